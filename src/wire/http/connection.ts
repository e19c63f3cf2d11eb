/** Requests to one server with `fetch`, and the error that is true when no answer comes. */
import type { Clock } from '../../clock.ts'
import { type ErrorCode, type ErrorReason, type Facts, LeaseError } from '../../errors.ts'
import { neverConnected, unreachableError } from '../../unreachable-error.ts'
import { errorFrom } from '../received-error.ts'
import { rewoundError } from '../rewound-error.ts'
import { isNotTls, isUntrustedCertificate } from '../tls-errors.ts'

const WITNESS = 'leasehold-witness'
/** Asks the server for witnesses when none is known yet. */
const NO_WITNESS = 'none'
/** A server answers sooner than this, with `UNKNOWN` at least. */
const TIMEOUT = 35_000
/** The abort reason of a call that has its answer. Without one, each abort would create an exception with a stack. */
const OVER = new Error('the call is over')

export type HttpReply = { readonly code: string; readonly message: string } & Facts

interface JsonRequest {
  readonly body?: string
  readonly signal?: AbortSignal | undefined
  /** The request changes state: without an answer it is `UNKNOWN` whether the server executed it. */
  readonly changes?: boolean
}

export class HttpConnection {
  readonly closing = new AbortController()
  readonly #base: string
  readonly #key: string | undefined
  readonly #clock: Clock
  readonly #fetch: typeof fetch
  /** Calls in flight. `close` aborts them, without a listener for each of them on one signal. */
  readonly #calls = new Set<AbortController>()
  /** The server's log had come this far when it last said so. */
  #witness = NO_WITNESS
  readonly onRewound = new Set<(why: LeaseError) => void>()
  /** The server's log turned out to have gone back this many times. */
  rewinds = 0

  constructor(url: string, key: string | undefined, clock: Clock, fetch: typeof globalThis.fetch) {
    const { protocol, username, password, origin, pathname, search, hash } = parsed(url)
    if (protocol !== 'http:' && protocol !== 'https:')
      throw new LeaseError('INVALID', `${protocol} is not supported here: use http: or https:`)
    if (username !== '' || password !== '')
      throw new LeaseError(
        'INVALID',
        'a key must not be in a URL, where logs and histories keep it: pass it as key, or set LEASEHOLD_API_KEY',
      )
    if (search !== '' || hash !== '')
      throw new LeaseError(
        'INVALID',
        `${protocol}// takes no settings such as ${(search || hash).slice(0, 32)}: name a certificate authority with NODE_EXTRA_CA_CERTS=FILE, or use leaseholds://host:port?ca=FILE`,
      )
    this.#base = origin + pathname.replace(/\/+$/, '')
    this.#key = key
    this.#clock = clock
    // A browser's fetch refuses to run as a method of another object.
    this.#fetch = (input, init) => fetch(input, init)
  }

  mustBeOpen(): void {
    if (this.closing.signal.aborted) throw this.closing.signal.reason
  }

  close(): void {
    if (this.closing.signal.aborted) return
    this.closing.abort(new LeaseError('UNAVAILABLE', 'this lessor was closed'))
    for (const call of this.#calls) call.abort(this.closing.signal.reason)
  }

  /** A new signal for one call, which follows `signal` until `end` and then leaves no listener on it. */
  call(signal: AbortSignal | undefined): { readonly signal: AbortSignal; end(reason?: Error): void } {
    const controller = new AbortController()
    const abort = () => controller.abort(signal!.reason)
    signal?.addEventListener('abort', abort)
    if (signal?.aborted) abort()
    this.#calls.add(controller)
    return {
      signal: controller.signal,
      end: (reason = OVER) => {
        signal?.removeEventListener('abort', abort)
        this.#calls.delete(controller)
        controller.abort(reason)
      },
    }
  }

  async json(method: string, path: string, { body, signal, changes = false }: JsonRequest = {}): Promise<unknown> {
    this.mustBeOpen()
    const call = this.call(signal)
    const end = () => call.end(new Error(`nothing for ${TIMEOUT / 1_000} s`))
    // After a stall the timer is overdue and the answer waits in the socket. Read it first.
    const cancelTimeout = this.#clock.after(TIMEOUT, () => this.#clock.soon(() => this.#clock.soon(end)))
    let answered = false
    const ask = async () => {
      answered = false
      const { rewinds } = this
      const answer = await this.send(method, path, {}, body, call.signal)
      answered = true
      const reply = answer.status === 204 ? undefined : ((await answer.json()) as unknown)
      // The answer came from before the log went back, and is read after this client has learnt of that.
      if (this.rewinds !== rewinds) throw new BadAnswer('its log has gone back since it answered this')
      return reply
    }
    // Refused because of a witness from the lost log: it was certainly not executed. Send it again without that witness.
    const again = (error: unknown) => (isRewound(error) ? ask() : Promise.reject(error as Error))
    try {
      return await unlessEnded(call.signal, ask().catch(again))
    } catch (error) {
      throw this.errorFor(error, signal, changes, answered)
    } finally {
      cancelTimeout()
      call.end()
    }
  }

  /** A successful response. Throws the server's error as a LeaseError. */
  async send(
    method: string,
    path: string,
    headers: Readonly<Record<string, string>>,
    body: string | undefined,
    signal: AbortSignal,
  ): Promise<Response> {
    const { rewinds } = this
    const answer = await this.#fetch(this.#base + path, {
      method,
      headers: {
        ...headers,
        ...(this.#key !== undefined && { authorization: `Bearer ${this.#key}` }),
        [WITNESS]: this.#witness,
        ...(body !== undefined && { 'content-type': 'application/json' }),
      },
      signal,
      // A redirect must not lead the key to another host.
      redirect: 'error',
      credentials: 'omit',
      ...(body !== undefined && { body }),
    })
    if (signal.aborted) {
      answer.body?.cancel().catch(() => {}) // fetch missed the abort; close the body, which is not read
      throw signal.reason
    }
    const witness = answer.headers.get(WITNESS)
    if (rewinds === this.rewinds && witness !== null && isNewer(witness, this.#witness)) this.#witness = witness
    if (answer.ok) return answer
    const text = await answer.text()
    const error = errorIn(text)
    // Of several answers in flight only the first reports the rewind.
    if (error !== undefined && isRewound(error) && rewinds === this.rewinds) this.#rewound(witness)
    throw error ?? new BadAnswer(`${this.#base} answered ${answer.status}, which no Leasehold server does: ${text.slice(0, 100)}`)
  }

  /** The server's log lost what this client saw: nothing learnt before is valid. */
  #rewound(witness: string | null): void {
    this.rewinds++
    this.#witness = witness ?? NO_WITNESS
    const why = rewoundError(this.#base)
    for (const listener of [...this.onRewound]) listener(why)
  }

  /** The error that a lessor throws for a request that failed with `error`. */
  errorFor(error: unknown, signal: AbortSignal | undefined, changes: boolean, answered = false): unknown {
    if (signal?.aborted) return signal.reason
    const closed = this.closing.signal.aborted
    if (error instanceof LeaseError && !closed) return error
    // Only a server that was never reached has certainly done nothing.
    const code: ErrorCode = changes && (answered || !neverReached(error)) ? 'UNKNOWN' : 'UNAVAILABLE'
    const failure = closed ? { message: 'this lessor was closed' } : this.#failure(error)
    if (failure === undefined) return unreachableError({ engine: 'leasehold', where: this.#base, cause: error, code })
    const { message, reason, facts } = failure
    const maybe = code === 'UNKNOWN' ? '; the request may or may not have been executed' : ''
    return new LeaseError(code, `${message}${maybe}`, { cause: error, reason, ...(facts && { facts }) })
  }

  /** Returns what is wrong with the server or its address. Undefined: no answer came. */
  #failure(error: unknown): { readonly message: string; readonly reason?: ErrorReason; readonly facts?: Facts } | undefined {
    const cause = ((error as Error | undefined)?.cause ?? {}) as { code?: string; message?: string }
    const where = this.#base
    const message = `no answer from ${where}: ${reasonOf(error)}`
    if (error instanceof BadAnswer) return { message, reason: 'stranger', facts: { where } }
    if (isNotTls(cause)) {
      const plain = where.replace('https:', 'http:')
      return { message: `${message}. It does not speak TLS: write ${plain}`, reason: 'tls-unsupported', facts: { where } }
    }
    if (!isUntrustedCertificate(cause.code)) return undefined
    const advice = 'name its authority with NODE_EXTRA_CA_CERTS=FILE, or use leaseholds://host:port?ca=FILE'
    return {
      message: `${message}. Its certificate is not trusted here: ${advice}`,
      reason: 'certificate',
      facts: { where, certificate: (cause.message ?? String(cause.code)).replace(/\s+/g, ' ').slice(0, 256) },
    }
  }
}

function parsed(url: string): URL {
  try {
    return new URL(url)
  } catch (cause) {
    throw new LeaseError('INVALID', 'this is not the address of a server: write http://host:7420', { cause })
  }
}

/**
 * Rejects as soon as `signal` fires. `fetch` itself may miss that: in Node 20 it loses its signal once the request object was garbage
 * collected. (`unlessAborted` of clock.ts does the same, but cannot be loaded in a browser.)
 */
export function unlessEnded<T>(signal: AbortSignal, answer: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const end = () => reject(signal.reason)
    signal.addEventListener('abort', end)
    if (signal.aborted) end()
    answer.then(resolve, reject).finally(() => signal.removeEventListener('abort', end))
  })
}

/** Answers may be read out of order. Of two witnesses of one log the one further along is newer. */
function isNewer(witness: string, known: string): boolean {
  const [[log, index], [knownLog, knownIndex]] = [witness.split('.'), known.split('.')]
  return log !== knownLog || Number(index) >= Number(knownIndex)
}

function isRewound(error: unknown): error is LeaseError {
  return error instanceof LeaseError && error.code === 'DIVERGED' && error.facts.rewound === true
}

class BadAnswer extends Error {}

function errorIn(text: string): LeaseError | undefined {
  try {
    return errorOf((JSON.parse(text) as { error: HttpReply }).error)
  } catch {
    return undefined
  }
}

export function errorOf({ code, message, ...rest }: HttpReply): LeaseError | undefined {
  return typeof code === 'string' && typeof message === 'string' ? errorFrom(code, message, rest) : undefined
}

/** Node reports why a request failed. A browser does not: then the server may have been reached. */
function neverReached(error: unknown): boolean {
  const { code } = ((error as Error | undefined)?.cause ?? {}) as { code?: string }
  return code === 'UND_ERR_CONNECT_TIMEOUT' || neverConnected(error)
}

function reasonOf(error: unknown): string {
  const { message = String(error), cause } = (error ?? {}) as { message?: string; cause?: { message?: string; code?: string } }
  return cause?.message !== undefined && cause.message !== ''
    ? `${message} (${cause.message})`
    : cause?.code !== undefined
      ? `${message} (${cause.code})`
      : message
}
