/** Refuses gRPC clients in words: they begin with HTTP/2, which nothing here speaks, and would otherwise report no more than a broken connection. */
import type { Socket } from 'node:net'
import type { Clock } from '../clock.ts'

const PREFACE = 'PRI * HTTP/2.0'
const UNIMPLEMENTED = '12'
const MESSAGE = 'this is Leasehold, which answers HTTP/1.1 and not gRPC: use a client of the JSON gateway of etcd, see docs/faces/etcd.md'
/** A client that has not sent a request by then is disconnected, in ms. */
const PATIENCE = 10_000

/** Returns whether a client begins with HTTP/2, as gRPC clients do. */
export function isHttp2(first: Uint8Array): boolean {
  return Buffer.from(first.subarray(0, PREFACE.length)).toString('latin1') === PREFACE
}

/** Answers the first call with the reason, and closes the connection. */
export async function refuseGrpc(socket: Socket, first: Uint8Array, clock: Clock): Promise<void> {
  socket.pause()
  const { createServer } = await import('node:http2')
  const server = createServer({ maxSessionMemory: 1, settings: { maxConcurrentStreams: 8, maxHeaderListSize: 16 << 10 } })
  server.on('session', session => {
    session.on('error', () => session.destroy())
    session.on(
      'close',
      clock.after(PATIENCE, () => session.destroy()),
    )
  })
  server.on('stream', stream => {
    stream.on('error', () => {})
    const headers = { ':status': 200, 'content-type': 'application/grpc', 'grpc-status': UNIMPLEMENTED, 'grpc-message': MESSAGE }
    stream.respond(headers, { endStream: true })
    stream.session?.close()
  })
  socket.on('error', () => {})
  socket.unshift(first)
  server.emit('connection', socket)
}
