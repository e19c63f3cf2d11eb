/**
 * HTTP on Node's own server, without a framework between: the handler needs the target as it was sent, the body bounded while it is read, and every
 * turn counts. (Measured: a bare listener answered twice as many requests as one through an adapter to Request and Response.)
 */
import { isUtf8 } from 'node:buffer'
import { setMaxListeners } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse, STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import type { Caller } from '../access-control.ts'
import { uncertified } from '../client-certificate.ts'
import { Connections } from '../connections.ts'
import type { Listener, ListenerContext } from '../listener.ts'
import { Metrics } from '../metrics.ts'
import { RequestCounts } from '../request-counts.ts'
import { Failure, failure } from './failure.ts'
import { Handler, type HandlerOptions } from './handler.ts'
import { Pipeline } from './pipeline.ts'
import type { HttpAnswer, HttpRequest } from './route.ts'
import { ALWAYS, send } from './send.ts'

export type HttpOptions = Omit<HandlerOptions, 'count'>

const HEADER_BYTES = 16_384
const HEADERS = 100
/** Connections that ask nothing are kept as long as usual proxies keep theirs. */
const IDLE = 75_000
/** How often slow headers and bodies are looked for. */
const LOOK = 500
/** Whether one who closed its half of a connection is still there is found out so soon, and then less and less often. */
const PROBE_FIRST = 250
const PROBE_LAST = 5_000
/** So much of an unfinished body is never too much: a usual one, torn in two by the network. */
const SMALL = 16 << 10
/** Said twice, each could be meant: another server in front of this one may have gone by the other. */
const ONCE: ReadonlySet<string> = new Set(['host', 'authorization', 'content-type', 'content-encoding', 'origin'])

/** What is answered on a connection without the client certificate that the server asks for: those who probe have none. */
const PROBE = /^\/(healthz|readyz)(\?|$)/

/** Bytes of bodies that are not whole yet, of all connections: thousands of them must not add up to all the memory there is. */
interface Bodies {
  unfinished: number
}

export function httpListener(options: HttpOptions = {}): Listener {
  return context => {
    const { limits, closing } = context
    setMaxListeners(0, closing) // every wait and every watch listens there
    Metrics.of(context) // begins to measure
    const tallies = RequestCounts.of(context.desk)
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
    const bodies: Bodies = { unfinished: 0 }
    // Whoever has no more to ask may still want to hear the answer.
    Object.assign(server, { httpAllowHalfOpen: true })
    server.on('connection', (socket: Socket) => {
      socket.setMaxListeners(0) // each of a pipeline's waits listens there
      Pipeline.over(socket)
    })
    server.on('request', (request, response) => {
      const lacking = uncertified.has(request.socket) && !PROBE.test(request.url!)
      void serve(context, bodies, request, response, lacking ? withoutCertificate : ask => handler.answer(ask))
    })
    server.on('checkExpectation', (request, response) => void serve(context, bodies, request, response, unexpected))
    server.on('clientError', (error: NodeJS.ErrnoException, socket) => hopeless(error, socket as Socket))
    return server
  }
}

async function serve(
  context: ListenerContext,
  bodies: Bodies,
  request: IncomingMessage,
  response: ServerResponse,
  decide: (ask: HttpRequest) => HttpAnswer | Promise<HttpAnswer>,
): Promise<void> {
  // Whoever hangs up while being answered is gone, and that is all.
  response.on('error', () => {})
  const pipeline = Pipeline.of(request.socket)
  pipeline?.asked()
  const answer = await decide(new NodeAsk(request, response, context, bodies))
  const bytes = heldBy(answer)
  pipeline?.answered(bytes)
  try {
    if (response.destroyed) return
    await send(context, answer, request, response)
    // What was promised to be kept open before we began to stop: a watch, say, that ended just now.
    if (context.closing.aborted) request.socket.destroySoon()
  } catch (error) {
    // A stream that broke in the middle must not look like one that ended.
    context.log.debug({ error: String(error) }, 'an answer was broken off')
    response.destroy()
  } finally {
    pipeline?.sent(bytes)
  }
}

function withoutCertificate(): HttpAnswer {
  return failure(
    new Failure(
      'UNAUTHENTICATED',
      'this server lets in only who shows a client certificate of its authority; without one, /healthz and /readyz alone are answered',
    ),
  )
}

/** Bytes that an answer keeps in memory until it is sent. */
function heldBy({ body, held }: HttpAnswer): number {
  return held ?? (typeof body === 'string' ? body.length : 0)
}

function unexpected(ask: HttpRequest): HttpAnswer {
  const expected = ask.header('expect')!.slice(0, 64)
  return failure(new Failure('INVALID', `Expect: 100-continue is all that can be expected here, not ${expected}`, { status: 417 }))
}

class NodeAsk implements HttpRequest {
  readonly #request: IncomingMessage
  readonly #response: ServerResponse
  readonly #context: ListenerContext
  readonly #bodies: Bodies

  constructor(request: IncomingMessage, response: ServerResponse, context: ListenerContext, bodies: Bodies) {
    this.#request = request
    this.#response = response
    this.#context = context
    this.#bodies = bodies
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

  identified(caller: Caller): void {
    Connections.of(this.#request.socket)?.identified(caller)
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
    const bodies = this.#bodies
    const { unfinished } = this.#context.limits
    return new Promise((resolve, reject) => {
      if (Number(request.headers['content-length'] ?? 0) > most) return reject(tooLarge(most))
      const chunks: Buffer[] = []
      let bytes = 0
      const settle = (then: () => void) => {
        request.off('data', take)
        request.off('end', end)
        request.off('close', cut)
        bodies.unfinished -= bytes
        then()
      }
      const take = (chunk: Buffer) => {
        bytes += chunk.length
        bodies.unfinished += chunk.length
        if (bytes > most) settle(() => reject(tooLarge(most)))
        else if (bytes > SMALL && bodies.unfinished > unfinished) settle(() => reject(tooMuch(unfinished)))
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

  get repeated(): string | undefined {
    const { rawHeaders } = this.#request
    const seen: string[] = []
    for (let i = 0; i < rawHeaders.length; i += 2) {
      const name = rawHeaders[i]!.toLowerCase()
      if (!ONCE.has(name)) continue
      if (seen.includes(name)) return name
      seen.push(name)
    }
    return undefined
  }

  gone({ half = false }: { readonly half?: boolean } = {}): AbortSignal {
    const { clock, closing } = this.#context
    const { socket } = this.#request
    const response = this.#response
    const gone = new AbortController()
    let cancel = () => {}
    const stopping = () => gone.abort(closing.reason)
    const left = () => {
      // By hand: AbortSignal.any would leave a trace of every request on a signal that lives as long as the server.
      closing.removeEventListener('abort', stopping)
      socket.off('close', left)
      socket.off('end', ended)
      response.off('close', left)
      cancel()
      gone.abort(new Failure('UNAVAILABLE', 'whoever asked has gone'))
    }
    const probe = (next: number) => {
      // What is being sent finds out by itself.
      if (response.headersSent) return
      response.writeContinue()
      cancel = clock.after(next, () => probe(Math.min(next * 2, PROBE_LAST)))
    }
    // One half closed is all that is seen of those who left, and of a few who merely ask no more: something that every client skips is sent, and
    // sent again. Only to those who left it cannot be.
    const ended = () => {
      if (half || response.socket === null || this.#request.httpVersion !== '1.1') left()
      else probe(PROBE_FIRST)
    }
    closing.addEventListener('abort', stopping)
    socket.on('close', left)
    socket.on('end', ended)
    response.on('close', left)
    if (closing.aborted) stopping()
    if (socket.destroyed || response.destroyed) left()
    else if (socket.readableEnded) ended()
    return gone.signal
  }
}

function tooLarge(most: number): Failure {
  return new Failure('TOO_LARGE', `the body has more than ${most} bytes, as many as are allowed`, { facts: { limit: most } })
}

function tooMuch(most: number): Failure {
  return new Failure('LIMIT', `unfinished bodies of all connections come to more than ${most} bytes: send this one again later`, {
    facts: { limit: most },
  })
}

/** What Node's parser refuses has no request that could be answered: the connection is told why, and ends. */
function hopeless(error: NodeJS.ErrnoException, socket: Socket): void {
  // In the middle of another answer nothing can be said.
  const answering = (socket as Socket & { _httpMessage?: ServerResponse })._httpMessage?.headersSent === true
  if (error.code === 'ECONNRESET' || !socket.writable || answering) return void socket.destroy()
  const refused = failure(
    error.code === 'HPE_HEADER_OVERFLOW'
      ? new Failure('TOO_LARGE', `the header has more than ${HEADER_BYTES} bytes`, { status: 431 })
      : error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
        ? new Failure('LIMIT', 'the request took too long to arrive: the limits are called headerTime and bodyTime')
        : new Failure('INVALID', 'this is no HTTP request'),
  )
  const { status, headers, body } = refused as HttpAnswer & { readonly body: string }
  let head = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n`
  for (let i = 0; i < ALWAYS.length; i += 2) head += `${ALWAYS[i]}: ${ALWAYS[i + 1]}\r\n`
  for (const [name, value] of Object.entries(headers ?? {})) head += `${name}: ${value}\r\n`
  socket.end(`${head}Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`)
}

export type { Server }
