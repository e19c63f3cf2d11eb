/**
 * Answers on their way out. What a reader has not taken stays in our memory, so each has only so long to take the next piece of it: then the
 * connection is cut. Progress counts, not speed.
 */
import type { IncomingMessage, ServerResponse } from 'node:http'
import { Connections } from '../connections.ts'
import type { ListenerContext } from '../listener.ts'
import type { HttpAnswer } from './route.ts'

/** What is said with everything. No CORS: a page of another origin gets nothing to read. */
export const ALWAYS = [
  'X-Content-Type-Options',
  'nosniff',
  'Cache-Control',
  'no-store',
  'Cross-Origin-Resource-Policy',
  'same-origin',
] as const

/** A long answer goes out in pieces of so many bytes: one of them within `drainTime` is progress. */
const PIECE = 64 << 10
/** Of a body that is too large, so much is still taken and thrown away: whoever sends it would else not read why. */
const DISCARDED = 1 << 20

/** Throws when the reader does not read. */
export async function send(
  context: ListenerContext,
  answer: HttpAnswer,
  request: IncomingMessage,
  response: ServerResponse,
): Promise<void> {
  const { status, type = 'application/json', headers, body } = answer
  const head: string[] = [...ALWAYS]
  if (headers !== undefined) for (const name of Object.keys(headers)) head.push(name, headers[name]!)
  const bodiless = status === 204 || status === 304
  if (!bodiless) head.push('Content-Type', type)
  const unread = !request.complete
  // What was not read would be taken for the next request; and who is told that we stop need not ask again here.
  if (unread || context.closing.aborted) head.push('Connection', 'close')
  if (typeof body === 'string' || body === undefined || body instanceof Uint8Array) {
    if (!bodiless) head.push('Content-Length', String(typeof body === 'string' ? Buffer.byteLength(body) : (body?.length ?? 0)))
    if (unread) discard(request)
    // Behind others in a pipeline it waits here, where it is counted, and not in Node.
    if (response.socket === null) await itsTurn(request, response)
    if (response.destroyed) return
    response.writeHead(status, head)
    if (body !== undefined && body.length > PIECE) await sendLong(context, typeof body === 'string' ? Buffer.from(body) : body, response)
    else response.end(body)
    return taken(context, request, response)
  }
  if (response.socket === null) await itsTurn(request, response)
  response.writeHead(status, head)
  if (request.method === 'HEAD') return void response.end()
  response.flushHeaders()
  for await (const piece of body) {
    if (response.destroyed) return
    if (!response.write(piece)) await heard('drain', context, response)
  }
  response.end()
  await taken(context, request, response)
}

async function sendLong(context: ListenerContext, bytes: Uint8Array, response: ServerResponse): Promise<void> {
  for (let at = 0; at < bytes.length && !response.destroyed; at += PIECE)
    if (!response.write(bytes.subarray(at, at + PIECE))) await heard('drain', context, response)
  response.end()
}

async function taken(context: ListenerContext, request: IncomingMessage, response: ServerResponse): Promise<void> {
  // Most are: what fits into the machine's own buffers costs no timer.
  if (response.writableFinished) return
  if (response.socket === null) await itsTurn(request, response)
  await heard('finish', context, response)
}

/** Behind others in a pipeline: the time that these take is not counted against it. */
function itsTurn({ socket }: IncomingMessage, response: ServerResponse): Promise<void> {
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

/** Waits until the reader has taken what it was sent, or left; throws when it does neither within its time. */
function heard(event: 'drain' | 'finish', { clock, limits }: ListenerContext, response: ServerResponse): Promise<void> {
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
    const cancel = clock.after(limits.drainTime, () => settle(() => reject(new Error('the reader does not read'))))
    response.on(event, on)
    response.on('close', on)
  })
}

function discard(request: IncomingMessage): void {
  let bytes = 0
  request.on('data', (chunk: Buffer) => {
    bytes += chunk.length
    if (bytes > DISCARDED) request.socket.destroy()
  })
  request.on('error', () => {})
}
