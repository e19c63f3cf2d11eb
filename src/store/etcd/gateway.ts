/**
 * Sends requests to one of several etcd endpoints through the JSON gateway. A request may be sent twice: if an endpoint does not answer in
 * time, the next one is tried. Callers make sure that a second copy does no harm.
 *
 * A call that fails throws `UNAVAILABLE`, or etcd's refusal, if no copy of it can have taken effect, and `UNKNOWN` otherwise.
 */
import http from 'node:http'
import https from 'node:https'
import { isDeepStrictEqual } from 'node:util'
import { afterReading, type Clock, pause } from '../../clock.ts'
import { type ErrorCode, LeaseError } from '../../errors.ts'
import { MAYBE_DONE, unreachableError, unreachableWithCode } from '../../unreachable-error.ts'
import { EtcdError, etcdError } from './errors.ts'
import { hostAndPort } from './url.ts'

export interface Tls {
  readonly ca?: string | Buffer
  readonly cert?: string | Buffer
  readonly key?: string | Buffer
}

export interface GatewayOptions {
  /** `host:port`. */
  readonly endpoints: readonly string[]
  readonly clock: Clock
  /** A call may take this long in all, in ms. */
  readonly timeout: number
  readonly tls?: Tls | undefined
  /** Reads the certificates again after a failure: they may have been replaced since. */
  readonly rereadTls?: (() => Promise<Tls | undefined>) | undefined
  readonly user?: { readonly name: string; readonly password: string } | undefined
  /** Returns whether connections without a request are closed after a moment. Left out: they stay. */
  readonly mayRest?: () => boolean
}

/** The state of a change that may be sent in several copies. */
export interface Copies {
  /** The answer to a copy was lost: that copy may have taken effect, whatever the answers to the other copies. */
  uncertain: boolean
}

export interface Stream {
  close(): void
}

/** One endpoint gets this fraction of the timeout (1/n), so that the next one has time to answer. */
const SHARE = 3
/** Reasons of a refusal that a request without a token gets. */
const REFUSED_USER: ReadonlySet<string> = new Set(['user', 'password'])
/** After so many ms without a call. */
const REST = 2_000
const PAUSE_FIRST = 20
const PAUSE_LAST = 400

export class Gateway {
  readonly #options: GatewayOptions
  readonly #clock: Clock
  readonly #http: typeof http | typeof https
  #agent: http.Agent
  #tls: Tls | undefined
  readonly #addresses: readonly { readonly host: string; readonly port: number }[]
  readonly #closing = new AbortController()
  #current = 0
  #path: Promise<string> | undefined
  #known: string | undefined
  #token: Promise<string | undefined> | undefined
  #calls = 0
  #cancelRest: (() => void) | undefined

  constructor(options: GatewayOptions) {
    this.#options = options
    this.#clock = options.clock
    this.#http = options.tls ? https : http
    this.#addresses = options.endpoints.map(hostAndPort)
    // One append, one barrier, one snapshot and the watch: a few connections that stay open.
    this.#agent = options.tls ? secureAgent(options.tls) : new http.Agent({ keepAlive: true })
    this.#tls = options.tls
  }

  /** The endpoints, for messages. */
  get place(): string {
    return this.#options.endpoints.join(', ')
  }

  /** Sets `copies.uncertain` if the answer to a copy is lost, even if a later copy is answered. */
  async call<T>(path: string, body: object, copies: Copies = { uncertain: false }): Promise<T> {
    this.#calls++
    try {
      return await this.#call<T>(path, body, copies)
    } finally {
      if (--this.#calls === 0) this.rest()
    }
  }

  /** Closes the connections after a moment without a call, if they may rest then. */
  rest(): void {
    const { mayRest } = this.#options
    this.#cancelRest?.()
    this.#cancelRest = undefined
    if (mayRest?.() !== true || this.#closing.signal.aborted) return
    this.#cancelRest = this.#clock.after(REST, () => {
      this.#cancelRest = undefined
      if (this.#calls === 0 && mayRest()) this.#closeFree()
    })
  }

  async #call<T>(path: string, body: object, copies: Copies): Promise<T> {
    const { timeout, endpoints } = this.#options
    const until = this.#clock.now() + timeout
    const text = JSON.stringify(body)
    let certain = !copies.uncertain
    for (let tries = 1; ; tries++) {
      const endpoint = this.#current
      try {
        return await this.#once<T>(endpoint, path, text, Math.min(timeout / SHARE, until - this.#clock.now()))
      } catch (error) {
        if (!(error instanceof EtcdError)) throw error
        certain &&= error.certain
        copies.uncertain = !certain
        const code: ErrorCode = certain ? 'UNAVAILABLE' : 'UNKNOWN'
        if (this.#closing.signal.aborted) throw new LeaseError(code, 'the store was closed', { cause: error })
        if (error.final) throw certain ? error.final : maybeDone(error.final)
        this.#leave(endpoint)
        await this.#rereadTls()
        const wait = tries % endpoints.length === 0 ? this.#pauseAfter(tries / endpoints.length) : 0
        if (this.#clock.now() + wait >= until) throw this.#unanswered(code, error)
        if (wait > 0) await pause(this.#clock, wait, this.#closing.signal, { ref: true }).catch(() => {})
      }
    }
  }

  /** Sends these requests, and passes on messages as they arrive, until the stream ends or is closed. Calls `ended` once, unless the stream was closed before. */
  stream(path: string, requests: readonly object[], message: (message: unknown) => void, ended: (error: unknown) => void): Stream {
    const endpoint = this.#current
    let request: http.ClientRequest | undefined
    let over = false
    const end = (error: unknown) => {
      if (over) return
      over = true
      request?.destroy()
      ended(error)
    }
    const begin = async () => {
      const [prefix, token] = [await this.#prefix(endpoint), await this.#authenticated(endpoint)]
      if (over) return
      const late = afterReading(this.#clock, this.#options.timeout / SHARE, () => end(new Error('the watch did not begin')))
      request = this.#request(endpoint, 'POST', prefix + path, token, response => {
        late()
        let rest = ''
        response.setEncoding('utf8')
        response.on('data', (piece: string) => {
          const lines = (rest + piece).split('\n')
          rest = lines.pop()!
          try {
            for (const line of lines) if (line !== '' && !over) message(JSON.parse(line))
          } catch (error) {
            end(error)
          }
        })
        response.on('end', () => end(new Error('the watch was ended')))
        response.on('error', end)
      })
      request.on('error', end)
      request.on('socket', socket => socket.unref()) // a watch does not keep the process alive
      request.end(requests.map(each => JSON.stringify(each)).join('\n'))
    }
    begin().catch(end)
    return {
      close() {
        over = true
        request?.destroy()
      },
    }
  }

  close(): void {
    this.#closing.abort()
    this.#cancelRest?.()
    this.#agent.destroy()
  }

  /** Later connections use certificates that were replaced. A file that cannot be read is being replaced: the next failure finds it. */
  async #rereadTls(): Promise<void> {
    const tls = await this.#options.rereadTls?.().catch(() => undefined)
    if (tls === undefined || this.#closing.signal.aborted || isDeepStrictEqual(tls, this.#tls)) return
    // Requests that are under way keep their connections.
    this.#closeFree()
    this.#tls = tls
    this.#agent = secureAgent(tls)
  }

  #closeFree(): void {
    for (const sockets of Object.values(this.#agent.freeSockets)) for (const socket of sockets ?? []) socket.destroy()
  }

  #leave(endpoint: number): void {
    if (this.#current === endpoint) this.#current = (endpoint + 1) % this.#options.endpoints.length
  }

  #pauseAfter(rounds: number): number {
    return Math.min(PAUSE_FIRST * 2 ** (rounds - 1), PAUSE_LAST) * (0.5 + this.#clock.random() / 2)
  }

  #unanswered(code: ErrorCode, failure: EtcdError): LeaseError {
    const detail = `no answer for ${this.#options.timeout} ms`
    return unreachableError({ engine: 'etcd', where: this.place, cause: failure.cause ?? failure, code, detail })
  }

  async #once<T>(endpoint: number, path: string, body: string, within: number): Promise<T> {
    // Awaiting a promise for a known value would take a noticeable part of an append's time.
    const known = this.#known
    const prefix = known ?? (await this.#prefix(endpoint))
    const token = this.#options.user === undefined ? undefined : await this.#authenticated(endpoint)
    const { status, text } = await this.#exchange(endpoint, 'POST', prefix + path, token, body, within)
    if (status === 200) return parsed<T>(text)
    const failure = etcdError(status, text, this.#options.endpoints[endpoint]!)
    // The cached path and token may be out of date: etcd was upgraded, or authentication was switched on or off.
    if (known !== undefined && failure.final?.reason === 'gateway') {
      this.#known = this.#path = undefined
      throw new EtcdError(failure.message, {})
    }
    const unnamed = token === undefined && this.#options.user !== undefined && REFUSED_USER.has(failure.final?.reason ?? '')
    if (failure.stale || failure.open || unnamed) this.#token = undefined
    throw unnamed ? new EtcdError(failure.message, { stale: true }) : failure
  }

  /** The prefix of the gateway's paths, which differs between versions. */
  #prefix(endpoint: number): Promise<string> {
    this.#path ??= this.#version(endpoint).catch(error => {
      this.#path = undefined
      throw error
    })
    return this.#path
  }

  async #version(endpoint: number): Promise<string> {
    const { status, text } = await this.#exchange(endpoint, 'GET', '/version', undefined, '', this.#options.timeout / SHARE)
    const [major = 0, minor = 0] = (status === 200 ? String(parsed<{ etcdserver?: string }>(text).etcdserver) : '').split('.').map(Number)
    if (major !== 3 || minor < 3)
      throw new EtcdError('no etcd 3.3 or newer', {
        final: new LeaseError(
          'UNSUPPORTED',
          `${this.#options.endpoints[endpoint]} does not answer as etcd 3.3 or newer does: check the address`,
          {
            facts: { endpoint: this.#options.endpoints[endpoint]!, status },
          },
        ),
      })
    this.#known = minor === 3 ? '/v3beta' : '/v3'
    return this.#known
  }

  #authenticated(endpoint: number): Promise<string | undefined> {
    if (this.#options.user === undefined) return Promise.resolve(undefined)
    this.#token ??= this.#authenticate(endpoint, this.#options.user).catch(error => {
      this.#token = undefined
      throw error
    })
    return this.#token
  }

  async #authenticate(endpoint: number, user: { readonly name: string; readonly password: string }): Promise<string | undefined> {
    const path = `${await this.#prefix(endpoint)}/auth/authenticate`
    const { status, text } = await this.#exchange(endpoint, 'POST', path, undefined, JSON.stringify(user), this.#options.timeout / SHARE)
    if (status === 200) return parsed<{ token: string }>(text).token
    const failure = etcdError(status, text, this.#options.endpoints[endpoint]!)
    if (failure.open) return undefined // authentication is switched off: no token is needed
    throw failure
  }

  #exchange(endpoint: number, method: 'GET' | 'POST', path: string, token: string | undefined, body: string, within: number) {
    return new Promise<{ status: number; text: string }>((resolve, reject) => {
      let sent = false
      const fail = (error: Error) => {
        late()
        const cause = error.message.trim() || (error as NodeJS.ErrnoException).code // the message is empty if a name has several addresses and all refuse
        reject(new EtcdError(`${this.#options.endpoints[endpoint]}: ${cause}`, { certain: !sent, cause: error }))
      }
      const request = this.#request(endpoint, method, path, token, response => {
        const pieces: Buffer[] = []
        response.on('data', piece => pieces.push(piece))
        response.on('error', fail)
        response.on('end', () => {
          late()
          resolve({ status: response.statusCode!, text: Buffer.concat(pieces).toString() })
        })
      })
      const late = afterReading(this.#clock, within, () => request.destroy(new Error(`no answer within ${Math.round(within)} ms`)))
      request.on('error', fail)
      request.on('socket', socket => {
        if (request.reusedSocket) sent = true
        else socket.once(this.#options.tls ? 'secureConnect' : 'connect', () => (sent = true))
      })
      request.end(body)
    })
  }

  #request(
    endpoint: number,
    method: 'GET' | 'POST',
    path: string,
    token: string | undefined,
    answered: (response: http.IncomingMessage) => void,
  ): http.ClientRequest {
    if (this.#closing.signal.aborted) throw new EtcdError('the store was closed', {})
    return this.#http.request(
      {
        ...this.#addresses[endpoint],
        method,
        path,
        agent: this.#agent,
        headers: { 'content-type': 'application/json', ...(token !== undefined && { authorization: token }) },
      },
      answered,
    )
  }
}

function secureAgent(tls: Tls): https.Agent {
  return new https.Agent({ keepAlive: true, ...tls })
}

/** The same failure as `UNKNOWN`: an earlier copy of the change may have taken effect. */
export function maybeDone(error: unknown): unknown {
  if (!(error instanceof LeaseError) || error.code === 'UNKNOWN') return error
  if (error.reason === 'unreachable') return unreachableWithCode(error, 'UNKNOWN')
  const { message, reason, facts } = error
  return new LeaseError('UNKNOWN', `${message}; the answer to an earlier copy was lost: ${MAYBE_DONE}`, { cause: error, reason, facts })
}

function parsed<T>(text: string): T {
  try {
    return JSON.parse(text) as T
  } catch (cause) {
    throw new EtcdError('the answer is not JSON', { certain: false, cause })
  }
}
