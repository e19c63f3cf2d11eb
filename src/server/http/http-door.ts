/**
 * HTTP on Node's own server, without a framework between: the handler needs the target as it was sent, the body bounded while it is read, and every
 * turn counts. (Measured: a bare listener answered twice as many requests as one through an adapter to Request and Response.)
 */
import { isUtf8 } from 'node:buffer'
import { setMaxListeners } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import type { Clock } from '../../clock.ts'
import type { Door, DoorContext } from '../door.ts'
import { Metrics } from '../metrics.ts'
import { Tallies } from '../tally.ts'
import { Failure, failure } from './failure.ts'
import { Handler, type HandlerOptions } from './handler.ts'
import type { Answer, Ask } from './route.ts'

export type HttpOptions = Omit<HandlerOptions, 'count'>

const HEADER_BYTES = 16_384
const HEADERS = 100
/** Connections that ask nothing are kept as long as usual proxies keep theirs. */
const IDLE = 75_000
/** How often slow headers and bodies are looked for. */
const LOOK = 500
/** Of a body that is too large, so much is still taken and thrown away: whoever sends it would else not read why. */
const DISCARDED = 1 << 20

/** What is said with everything. No CORS: a page of another origin gets nothing to read. */
const ALWAYS = ['X-Content-Type-Options', 'nosniff', 'Cache-Control', 'no-store', 'Cross-Origin-Resource-Policy', 'same-origin'] as const

export function httpDoor(options: HttpOptions = {}): Door {
  return context => {
    const { limits, closing } = context
    setMaxListeners(0, closing) // every wait and every watch listens there
    Metrics.of(context) // begins to measure
    const tallies = Tallies.of(context.desk)
    const handler = new Handler(context, { ...options, count: (asked, code) => tallies.tally('http', asked).count(code) })
    const server = createServer({
      maxHeaderSize: HEADER_BYTES,
      headersTimeout: limits.headerTime,
      requestTimeout: limits.headerTime + limits.bodyTime,
      connectionsCheckingInterval: Math.max(1, Math.min(LOOK, limits.headerTime)),
      keepAliveTimeout: IDLE,
      insecureHTTPParser: false,
      requireHostHeader: false, // the guard says so in our words
    })
    server.maxHeadersCount = HEADERS
    server.on('request', (request, response) => void serve(context, handler, request, response))
    server.on('clientError', (error: NodeJS.ErrnoException, socket) => hopeless(error, socket as Socket))
    return server
  }
}

async function serve(context: DoorContext, handler: Handler, request: IncomingMessage, response: ServerResponse): Promise<void> {
  // Whoever hangs up while being answered is gone, and that is all.
  response.on('error', () => {})
  const answer = await handler.answer(new NodeAsk(request, response, context.closing))
  if (response.destroyed) return
  try {
    await send(context, answer, request, response)
    // What was promised to be kept open before we began to stop: a watch, say, that ended just now.
    if (context.closing.aborted) request.socket.destroySoon()
  } catch (error) {
    // A stream that broke in the middle must not look like one that ended.
    context.log.debug({ error: String(error) }, 'an answer was broken off')
    response.destroy()
  }
}

class NodeAsk implements Ask {
  readonly #request: IncomingMessage
  readonly #response: ServerResponse
  readonly #closing: AbortSignal
  #gone: AbortController | undefined

  constructor(request: IncomingMessage, response: ServerResponse, closing: AbortSignal) {
    this.#request = request
    this.#response = response
    this.#closing = closing
  }

  get method(): string {
    return this.#request.method!
  }

  get target(): string {
    return this.#request.url!
  }

  get connection(): object {
    return this.#request.socket
  }

  get local(): string | undefined {
    return this.#request.socket.localAddress
  }

  header(name: string): string | undefined {
    const value = this.#request.headers[name]
    return Array.isArray(value) ? value.join(', ') : value
  }

  get hasBody(): boolean {
    const { headers } = this.#request
    return headers['transfer-encoding'] !== undefined || (headers['content-length'] ?? '0') !== '0'
  }

  body(most: number): Promise<string> {
    const request = this.#request
    return new Promise((resolve, reject) => {
      if (Number(request.headers['content-length'] ?? 0) > most) return reject(tooLarge(most))
      const chunks: Buffer[] = []
      let bytes = 0
      const settle = (then: () => void) => {
        request.off('data', take)
        request.off('end', end)
        request.off('close', cut)
        then()
      }
      const take = (chunk: Buffer) => {
        bytes += chunk.length
        if (bytes > most) settle(() => reject(tooLarge(most)))
        else chunks.push(chunk)
      }
      const end = () =>
        settle(() => {
          const all = chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks)
          // Never made nicer: two names would become one.
          if (isUtf8(all)) resolve(all.toString('utf8'))
          else reject(new Failure('INVALID', 'the body is not UTF-8'))
        })
      const cut = () => settle(() => reject(new Failure('INVALID', 'the body ended before its end')))
      request.on('data', take)
      request.on('end', end)
      request.on('close', cut)
    })
  }

  gone(): AbortSignal {
    if (this.#gone === undefined) {
      const gone = new AbortController()
      const closing = this.#closing
      this.#gone = gone
      const stopping = () => gone.abort(closing.reason)
      const left = () => {
        // By hand: AbortSignal.any would leave a trace of every request on a signal that lives as long as the server.
        closing.removeEventListener('abort', stopping)
        gone.abort(new Failure('UNAVAILABLE', 'whoever asked has gone'))
      }
      closing.addEventListener('abort', stopping)
      if (closing.aborted) stopping()
      if (this.#response.destroyed) left()
      else this.#response.once('close', left)
    }
    return this.#gone.signal
  }
}

function tooLarge(most: number): Failure {
  return new Failure('TOO_LARGE', `the body has more than ${most} bytes, as many as are allowed`, { facts: { limit: most } })
}

async function send(context: DoorContext, answer: Answer, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { status, type = 'application/json', headers, body } = answer
  const head: string[] = [...ALWAYS]
  if (headers !== undefined) for (const name of Object.keys(headers)) head.push(name, headers[name]!)
  if (status !== 204) head.push('Content-Type', type)
  const unread = !request.complete
  // What was not read would be taken for the next request; and who is told that we stop need not ask again here.
  if (unread || context.closing.aborted) head.push('Connection', 'close')
  if (typeof body === 'string' || body === undefined) {
    if (status !== 204) head.push('Content-Length', String(Buffer.byteLength(body ?? '')))
    response.writeHead(status, head)
    response.end(body)
    if (unread) discard(request)
    return
  }
  response.writeHead(status, head)
  if (request.method === 'HEAD') return void response.end()
  response.flushHeaders()
  for await (const piece of body) {
    if (response.destroyed) return
    if (!response.write(piece)) await drained(response, context.clock, answer.patience)
  }
  response.end()
}

/** Waits until the reader has taken what it was sent; throws when it does not within its time. */
function drained(response: ServerResponse, clock: Clock, patience: number | undefined): Promise<void> {
  return new Promise((resolve, reject) => {
    const settle = (then: () => void) => {
      cancel()
      response.off('drain', on)
      response.off('close', on)
      then()
    }
    const on = () => settle(resolve)
    const cancel =
      patience === undefined ? () => {} : clock.after(patience, () => settle(() => reject(new Error('the reader does not read'))))
    response.on('drain', on)
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

/** What Node's parser refuses has no request that could be answered: the connection is told why, and ends. */
function hopeless(error: NodeJS.ErrnoException, socket: Socket): void {
  // In the middle of another answer nothing can be said.
  const answering = (socket as Socket & { _httpMessage?: ServerResponse })._httpMessage?.headersSent === true
  if (error.code === 'ECONNRESET' || !socket.writable || answering) return void socket.destroy()
  const {
    status,
    headers = {},
    body,
  } = failure(
    error.code === 'HPE_HEADER_OVERFLOW'
      ? new Failure('TOO_LARGE', `the header has more than ${HEADER_BYTES} bytes`, { status: 431 })
      : error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
        ? new Failure('LIMIT', 'the request took too long to arrive', { status: 408 })
        : new Failure('INVALID', 'this is no HTTP request'),
  )
  const head = [
    ...Object.entries({ 'Content-Type': 'application/json', 'Content-Length': String(Buffer.byteLength(body as string)), ...headers }),
  ]
  socket.end(
    `HTTP/1.1 ${status} ${status === 408 ? 'Request Timeout' : 'Bad Request'}\r\n${head.map(([name, value]) => `${name}: ${value}\r\n`).join('')}X-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n${body as string}`,
  )
}

export type { Server }
