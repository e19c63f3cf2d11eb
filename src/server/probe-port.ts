/**
 * A port for the probes of an orchestrator: plain HTTP, `/healthz` and `/readyz`, and nothing else. Kubernetes and load balancers have neither a client certificate
 * nor a key, and some speak no TLS, so the server's own port may refuse them.
 *
 * Every network may reach it, so it says only whether the server lives and is ready. Connections are few and short, a request is one header, and all
 * that ask at the same time share one look at the store.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import { LeaseError } from '../errors.ts'
import { listenError } from './listen-error.ts'
import { type Readiness, type ReadinessContext, readiness } from './readiness.ts'

/** Probes of a few nodes at a time. Further connections are refused by the system. */
const MAX_CONNECTIONS = 64
const MAX_HEADER_BYTES = 8_192
/** A probe that has not sent its request after this time is disconnected, in ms. */
const REQUEST_TIMEOUT = 5_000
const ROUTES = 'only GET /healthz and /readyz are answered here'

export class ProbePort implements AsyncDisposable {
  readonly address: string
  readonly #server: Server

  private constructor(server: Server, address: string) {
    this.#server = server
    this.address = address
  }

  static async open(listen: { readonly host: string; readonly port: number }, context: ReadinessContext): Promise<ProbePort> {
    let looking: Promise<Readiness> | undefined
    const look = () => (looking ??= readiness(context).finally(() => (looking = undefined)))
    const server = createServer(
      {
        maxHeaderSize: MAX_HEADER_BYTES,
        headersTimeout: REQUEST_TIMEOUT,
        requestTimeout: REQUEST_TIMEOUT,
        connectionsCheckingInterval: 1_000,
        keepAlive: false,
        requireHostHeader: false, // load balancers send none (HAProxy: `option httpchk`), and no answer depends on it
      },
      (request, response) => void answer(request, response, look),
    )
    server.maxConnections = MAX_CONNECTIONS
    server.maxHeadersCount = 50
    server.timeout = 2 * REQUEST_TIMEOUT // of a connection on which nothing happens
    await new Promise<void>((resolve, reject) => {
      server.once('error', error => reject(failure(error, `${listen.host}:${listen.port}`)))
      server.listen(listen, resolve)
    })
    server.on('error', () => {}) // a connection that cannot be accepted: the next probe tries again
    const bound = server.address()
    if (bound === null || typeof bound === 'string') throw new Error('the port for probes has no address')
    return new ProbePort(server, `${bound.family === 'IPv6' ? `[${bound.address}]` : bound.address}:${bound.port}`)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const closed = new Promise<void>(resolve => this.#server.close(() => resolve()))
    this.#server.closeAllConnections()
    await closed
  }
}

/** Without the facts: --next-port is about the server's own port. */
function failure(cause: unknown, address: string): unknown {
  const error = listenError(cause, address)
  return error instanceof LeaseError ? new LeaseError(error.code, `--probe: ${error.message}`, { cause, reason: error.reason }) : error
}

async function answer(request: IncomingMessage, response: ServerResponse, look: () => Promise<Readiness>): Promise<void> {
  response.on('error', () => {}) // the probe has disconnected
  request.resume()
  const path = request.url?.split('?', 1)[0]
  const end = (status: number, body: object) =>
    response
      .writeHead(status, { 'content-type': 'application/json', 'cache-control': 'no-store', connection: 'close' })
      .end(request.method === 'HEAD' ? undefined : `${JSON.stringify(body)}\n`)
  if ((request.method !== 'GET' && request.method !== 'HEAD') || (path !== '/healthz' && path !== '/readyz'))
    return void end(404, { error: { code: 'NOT_FOUND', message: ROUTES } })
  if (path === '/healthz') return void end(200, { ok: true })
  const found = await look()
  end(found.ready ? 200 : 503, found.ready ? { ok: true } : { error: { code: 'UNAVAILABLE', message: found.reason } })
}
