/**
 * Sends HTTP responses. Unread bytes stay in the server's memory, so a client must read the next piece within the limit `drainTime`, or it is
 * disconnected. Progress counts, not speed.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { Connections } from '../connections.ts'
import type { ListenerContext } from '../listener.ts'
import type { HttpResponse } from './route.ts'

/** Headers of every response. No CORS headers: a page of another origin must not read anything. */
export const SECURITY_HEADERS = [
  'X-Content-Type-Options',
  'nosniff',
  'Cache-Control',
  'no-store',
  'Cross-Origin-Resource-Policy',
  'same-origin',
] as const

/** A long response is sent in pieces of this many bytes. One piece within `drainTime` is progress. */
const PIECE = 64 << 10
/** Bytes of a refused body that are still read and dropped: a client that is still sending would not read the error. */
const MAX_DISCARDED = 1 << 20

/** Throws if the client does not read. */
export async function send(
  context: ListenerContext,
  httpResponse: HttpResponse,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const { status, type = 'application/json', headers, body } = httpResponse
  const head: string[] = [...SECURITY_HEADERS]
  if (headers !== undefined) for (const name of Object.keys(headers)) head.push(name, headers[name]!)
  const bodiless = status === 204 || status === 304
  if (!bodiless) head.push('Content-Type', type)
  const unread = !request.complete
  // An unread body would be parsed as the next request. A stopping server takes no further request on this connection.
  if (unread || context.closing.aborted) head.push('Connection', 'close')
  if (typeof body === 'string' || body === undefined || body instanceof Uint8Array) {
    if (!bodiless) head.push('Content-Length', String(typeof body === 'string' ? Buffer.byteLength(body) : (body?.length ?? 0)))
    if (unread) discard(request)
    // Behind other responses in a pipeline it waits here, where it is counted, and not in Node.
    if (response.socket === null) await turnInPipeline(request, response)
    if (response.destroyed) return
    response.writeHead(status, head)
    if (body !== undefined && body.length > PIECE) await sendLong(context, typeof body === 'string' ? Buffer.from(body) : body, response)
    else response.end(body)
    return finished(context, request, response)
  }
  if (response.socket === null) await turnInPipeline(request, response)
  response.writeHead(status, head)
  if (request.method === 'HEAD') return void response.end()
  response.flushHeaders()
  for await (const piece of body) {
    if (response.destroyed) return
    if (!response.write(piece)) await progress('drain', context, response)
  }
  response.end()
  await finished(context, request, response)
}

async function sendLong(context: ListenerContext, bytes: Uint8Array, response: ServerResponse): Promise<void> {
  for (let at = 0; at < bytes.length && !response.destroyed; at += PIECE)
    if (!response.write(bytes.subarray(at, at + PIECE))) await progress('drain', context, response)
  response.end()
}

async function finished(context: ListenerContext, request: IncomingMessage, response: ServerResponse): Promise<void> {
  // The usual case: a response that fits into the system's buffers needs no timer.
  if (response.writableFinished) return
  if (response.socket === null) await turnInPipeline(request, response)
  await progress('finish', context, response)
}

/** Waits for the responses before this one in a pipeline. Their time does not count against this one. */
function turnInPipeline({ socket }: IncomingMessage, response: ServerResponse): Promise<void> {
  return new Promise(resolve => {
    const settle = () => {
      socket.off('close', settle)
      response.off('socket', settle)
      resolve()
    }
    if (socket.destroyed) return resolve()
    socket.on('close', settle)
    response.on('socket', settle)
  })
}

/** Waits until the client has read what it was sent, or has disconnected. Throws if it does neither within `drainTime`. */
function progress(event: 'drain' | 'finish', { clock, limits }: ListenerContext, response: ServerResponse): Promise<void> {
  return new Promise((resolve, reject) => {
    if (response.destroyed) return resolve()
    const settle = (then: () => void) => {
      cancel()
      response.off(event, on)
      response.off('close', on)
      then()
    }
    const on = () => {
      if (response.req !== undefined) Connections.of(response.req.socket)?.progressed()
      settle(resolve)
    }
    const cancel = clock.after(limits.drainTime, () => settle(() => reject(new Error('the client does not read'))))
    response.on(event, on)
    response.on('close', on)
  })
}

function discard(request: IncomingMessage): void {
  let bytes = 0
  request.on('data', (chunk: Buffer) => {
    bytes += chunk.length
    if (bytes > MAX_DISCARDED) request.socket.destroy()
  })
  request.on('error', () => {})
}
