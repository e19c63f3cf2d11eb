/**
 * The HTTP wire, on Node's own server without a framework: the handler needs the target exactly as it was sent, a body that is bounded while it is read, and speed.
 * (Measured: a bare listener answered twice as many requests as one through an adapter to Request and Response.)
 */
import { setMaxListeners } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse, STATUS_CODES } from 'node:http'
import type { Socket } from 'node:net'
import { ServerActivity } from '../activity/activity.ts'
import { socketsWithoutCertificate } from '../client-certificate.ts'
import type { Listener, ListenerContext } from '../listener.ts'
import { Metrics } from '../metrics.ts'
import { RequestCounters } from '../request-counters.ts'
import { failureResponse, HttpFailure } from './failure.ts'
import { HttpHandler, type HttpHandlerOptions } from './handler.ts'
import { type BodyTotals, NodeHttpRequest } from './node-request.ts'
import { Pipeline } from './pipeline.ts'
import type { HttpRequest, HttpResponse } from './route.ts'
import { SECURITY_HEADERS, send } from './send.ts'

export interface HttpOptions extends Omit<HttpHandlerOptions, 'count'> {
  /** Where the dashboard's history of the last day is kept between two runs. @default only in memory */
  readonly activityFile?: string
}

const MAX_HEADER_BYTES = 16_384
const MAX_HEADERS = 100
/** Timeout of idle connections, in ms. Common proxies keep theirs as long. */
const IDLE_TIMEOUT = 75_000
/** Interval of the check for slow headers and bodies, in ms. */
const TIMEOUT_CHECK_INTERVAL = 500
/** Answered without the client certificate that the server requires: health probes have none. */
const HEALTH_PROBE = /^\/(healthz|readyz)(\?|$)/

export function httpListener({ activityFile, ...options }: HttpOptions = {}): Listener {
  return context => {
    const { limits, closing } = context
    setMaxListeners(0, closing) // every wait and every watch listens there
    Metrics.of(context) // starts to measure
    ServerActivity.of(context.guarded, {
      ...context,
      lessor: context.guarded.lessor,
      ...(activityFile !== undefined && { file: activityFile }),
    }) // starts to observe
    const counters = RequestCounters.of(context.guarded)
    const count = (route: string, code: string, key: number) => {
      counters.counter('http', route).increment(code)
      counters.ofKey(key).increment(code)
    }
    const handler = new HttpHandler(context, { ...options, count })
    const server = createServer({
      maxHeaderSize: MAX_HEADER_BYTES,
      headersTimeout: limits.headerTime,
      requestTimeout: limits.headerTime + limits.bodyTime,
      connectionsCheckingInterval: Math.max(1, Math.min(TIMEOUT_CHECK_INTERVAL, limits.headerTime)),
      keepAliveTimeout: IDLE_TIMEOUT,
      insecureHTTPParser: false,
      requireHostHeader: false, // OriginCheck refuses it with our own message
    })
    server.maxHeadersCount = MAX_HEADERS
    const bodies: BodyTotals = { unfinished: 0 }
    // A client that closes its sending side may still wait for the response.
    Object.assign(server, { httpAllowHalfOpen: true })
    server.on('connection', (socket: Socket) => {
      socket.setMaxListeners(0) // every pipelined request listens there
      Pipeline.attach(socket)
    })
    server.on('request', (request, response) => {
      const refused = socketsWithoutCertificate.has(request.socket) && !HEALTH_PROBE.test(request.url!)
      void serve(context, bodies, request, response, refused ? certificateRequired : httpRequest => handler.handle(httpRequest))
    })
    server.on('checkExpectation', (request, response) => void serve(context, bodies, request, response, unsupportedExpectation))
    server.on('clientError', (error: NodeJS.ErrnoException, socket) => refuseUnparsable(error, socket as Socket))
    return server
  }
}

async function serve(
  context: ListenerContext,
  bodies: BodyTotals,
  request: IncomingMessage,
  response: ServerResponse,
  handle: (request: HttpRequest) => HttpResponse | Promise<HttpResponse>,
): Promise<void> {
  // A client may disconnect while it is answered. That needs no handling.
  response.on('error', ignore)
  const pipeline = Pipeline.of(request.socket)
  pipeline?.requestParsed()
  const httpResponse = await handle(new NodeHttpRequest(request, response, context, bodies))
  const bytes = heldBytes(httpResponse)
  pipeline?.responseReady(bytes)
  try {
    if (response.destroyed) return
    await send(context, httpResponse, request, response)
    // The response was started before the server began to stop (such as a watch that ended now), and promised to keep the connection open.
    if (context.closing.aborted) request.socket.destroySoon()
  } catch (error) {
    // An incomplete stream must not look complete.
    context.log.debug({ error: String(error) }, 'a response was aborted')
    response.destroy()
  } finally {
    pipeline?.responseSent(bytes)
  }
}

function ignore(): void {}

function certificateRequired(): HttpResponse {
  return failureResponse(
    new HttpFailure(
      'UNAUTHENTICATED',
      'this server requires a client certificate of its authority: connect with one. Without it, only /healthz and /readyz are answered',
    ),
  )
}

/** Memory that a response takes until it is sent. */
function heldBytes({ body, heldBytes }: HttpResponse): number {
  return heldBytes ?? (typeof body === 'string' ? body.length : 0)
}

function unsupportedExpectation(request: HttpRequest): HttpResponse {
  const expectation = request.header('expect')!.slice(0, 64)
  return failureResponse(new HttpFailure('INVALID', `only Expect: 100-continue is supported, not ${expectation}`, { status: 417 }))
}

/** Node's parser refused the input, so there is no request to answer. Writes the error to the connection and closes it. */
function refuseUnparsable(error: NodeJS.ErrnoException, socket: Socket): void {
  // An error cannot be written in the middle of another response.
  const responding = (socket as Socket & { _httpMessage?: ServerResponse })._httpMessage?.headersSent === true
  if (error.code === 'ECONNRESET' || !socket.writable || responding) return void socket.destroy()
  const refusal = failureResponse(
    error.code === 'HPE_HEADER_OVERFLOW'
      ? new HttpFailure('TOO_LARGE', `the header has more than ${MAX_HEADER_BYTES} bytes`, { status: 431 })
      : error.code === 'ERR_HTTP_REQUEST_TIMEOUT'
        ? new HttpFailure('LIMIT', 'the request took too long to arrive: see the limits headerTime and bodyTime')
        : new HttpFailure('INVALID', 'this is not an HTTP request'),
  )
  const { status, headers, body } = refusal as HttpResponse & { readonly body: string }
  let head = `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\n`
  for (let i = 0; i < SECURITY_HEADERS.length; i += 2) head += `${SECURITY_HEADERS[i]}: ${SECURITY_HEADERS[i + 1]}\r\n`
  for (const [name, value] of Object.entries(headers ?? {})) head += `${name}: ${value}\r\n`
  socket.end(`${head}Content-Type: application/json\r\nContent-Length: ${Buffer.byteLength(body)}\r\nConnection: close\r\n\r\n${body}`)
}

export type { Server }
