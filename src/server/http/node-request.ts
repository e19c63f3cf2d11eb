/** A request of Node's HTTP server, as routes see it. Its body is bounded while it is read. */
import { isUtf8 } from 'node:buffer'
import type { IncomingMessage, ServerResponse } from 'node:http'
import type { Caller } from '../access-control.ts'
import { Connections } from '../connections.ts'
import type { ListenerContext } from '../listener.ts'
import { HttpFailure } from './failure.ts'
import type { HttpRequest } from './route.ts'

/** A client that closed its sending side is probed for presence after this long, and then less and less often, in ms. */
const FIRST_PROBE_AFTER = 250
const MAX_PROBE_INTERVAL = 5_000
/** An unfinished body of up to this many bytes is always accepted: a usual one, split by the network. */
const SMALL_BODY = 16 << 10
/** Headers that must be unique. If one is sent twice, a proxy in front of this server may have used the other value. */
const UNIQUE_HEADERS: ReadonlySet<string> = new Set(['host', 'authorization', 'content-type', 'content-encoding', 'origin'])

/** Made once: every response ends with it, and an error with its stack costs as much as the answer to a short request. */
const DISCONNECTED = new HttpFailure('UNAVAILABLE', 'the client has disconnected')

/** Bytes of unfinished bodies over all connections: thousands of them must not exhaust the memory. */
export interface BodyTotals {
  unfinished: number
}

export class NodeHttpRequest implements HttpRequest {
  readonly #request: IncomingMessage
  readonly #response: ServerResponse
  readonly #context: ListenerContext
  readonly #bodies: BodyTotals

  constructor(request: IncomingMessage, response: ServerResponse, context: ListenerContext, bodies: BodyTotals) {
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

  get localAddress(): string | undefined {
    return this.#request.socket.localAddress
  }

  get secure(): boolean {
    return 'encrypted' in this.#request.socket
  }

  get peerAddress(): string | undefined {
    return this.#request.socket.remoteAddress
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

  async body(maxBytes: number): Promise<string> {
    const bytes = await this.bytes(maxBytes)
    // Invalid UTF-8 is refused, not replaced: replacement would turn two names into one.
    if (!isUtf8(bytes)) throw new HttpFailure('INVALID', 'the body is not UTF-8')
    return bytes.toString('utf8')
  }

  bytes(maxBytes: number): Promise<Buffer> {
    const request = this.#request
    const bodies = this.#bodies
    const { unfinished } = this.#context.limits
    return new Promise((resolve, reject) => {
      if (Number(request.headers['content-length'] ?? 0) > maxBytes) return reject(tooLarge(maxBytes))
      const chunks: Buffer[] = []
      let bytes = 0
      let settled = false
      const fail = (error: HttpFailure) => {
        settled = true
        request.off('data', onData)
        request.off('end', onEnd)
        request.off('close', onClose)
        bodies.unfinished -= bytes
        reject(error)
      }
      const onData = (chunk: Buffer) => {
        bytes += chunk.length
        bodies.unfinished += chunk.length
        if (bytes > maxBytes) fail(tooLarge(maxBytes))
        else if (bytes > SMALL_BODY && bodies.unfinished > unfinished) fail(tooManyUnfinished(unfinished))
        else chunks.push(chunk)
      }
      // The listeners stay: a request that has ended calls none but the last one, and removing them costs more than reading a short body.
      const onEnd = () => {
        settled = true
        bodies.unfinished -= bytes
        resolve(chunks.length === 1 ? chunks[0]! : Buffer.concat(chunks))
      }
      const onClose = () => {
        if (!settled) fail(new HttpFailure('INVALID', 'the connection closed before the body was complete'))
      }
      request.on('data', onData)
      request.on('end', onEnd)
      request.on('close', onClose)
    })
  }

  get repeatedHeader(): string | undefined {
    const { rawHeaders } = this.#request
    const seen: string[] = []
    for (let i = 0; i < rawHeaders.length; i += 2) {
      const name = rawHeaders[i]!.toLowerCase()
      if (!UNIQUE_HEADERS.has(name)) continue
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
    let cancelProbe = () => {}
    const onClosing = () => gone.abort(closing.reason)
    const onGone = () => {
      // By hand: AbortSignal.any would leave a trace of every request on a signal that lives as long as the server.
      closing.removeEventListener('abort', onClosing)
      socket.off('close', onGone)
      socket.off('end', onEnd)
      response.off('close', onGone)
      cancelProbe()
      gone.abort(DISCONNECTED)
    }
    const probe = (next: number) => {
      // A response that is being sent finds out by itself.
      if (response.headersSent) return
      response.writeContinue()
      cancelProbe = clock.after(next, () => probe(Math.min(next * 2, MAX_PROBE_INTERVAL)))
    }
    // A closed sending side usually means that the client has gone, but some clients only finish sending. So `100 Continue`, which every client skips, is sent
    // repeatedly: only a client that has gone makes it fail.
    const onEnd = () => {
      if (half || response.socket === null || this.#request.httpVersion !== '1.1') onGone()
      else probe(FIRST_PROBE_AFTER)
    }
    closing.addEventListener('abort', onClosing)
    socket.on('close', onGone)
    socket.on('end', onEnd)
    response.on('close', onGone)
    if (closing.aborted) onClosing()
    if (socket.destroyed || response.destroyed) onGone()
    else if (socket.readableEnded) onEnd()
    return gone.signal
  }
}

function tooLarge(limit: number): HttpFailure {
  return new HttpFailure('TOO_LARGE', `the body has more than ${limit} bytes, the limit`, { facts: { limit } })
}

function tooManyUnfinished(limit: number): HttpFailure {
  return new HttpFailure('LIMIT', `unfinished bodies of all connections exceed ${limit} bytes, the limit: retry later`, {
    facts: { limit },
  })
}
