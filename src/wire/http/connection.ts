/** One server, asked over HTTP with `fetch`, and what its silence means. */
import type { Clock } from '../../clock.ts'
import { type ErrorCode, type Facts, LeaseError } from '../../errors.ts'
import { wentBack } from '../rewound.ts'

const WITNESS = 'leasehold-witness'
/** Says that witnesses are wanted, and that none is known yet. */
const NO_WITNESS = 'none'
/** A server answers sooner, if only that it does not know. */
const TIMEOUT = 35_000
/** Why a call ends that has its answer. Left out, an exception with a stack would be made for each of them. */
const OVER = new Error('it is over')

export type HttpReply = { readonly code: string; readonly message: string } & Facts

interface Sending {
  readonly body?: string
  readonly signal?: AbortSignal | undefined
  /** What was asked may have been done when no answer comes. */
  readonly changes?: boolean
}

export class HttpConnection {
  readonly closing = new AbortController()
  readonly #base: string
  readonly #key: string | undefined
  readonly #clock: Clock
  readonly #fetch: typeof fetch
  /** What is under way: aborted when closing, without a listener for each on one signal. */
  readonly #calls = new Set<AbortController>()
  /** What the server told last of how far its log has come. */
  #witness = NO_WITNESS
  readonly onRewound = new Set<(why: LeaseError) => void>()
  /** How often its log turned out to have gone back. */
  rewinds = 0

  constructor(url: string, key: string | undefined, clock: Clock, fetch: typeof globalThis.fetch) {
    const { protocol, username, password, origin, pathname, search, hash } = parsed(url)
    if (protocol !== 'http:' && protocol !== 'https:') throw new LeaseError('INVALID', `${protocol} is not spoken here: use http or https`)
    if (username !== '' || password !== '')
      throw new LeaseError(
        'INVALID',
        'a key never travels in a URL, where logs and histories keep it: give it as key, or set LEASEHOLD_API_KEY',
      )
    if (search !== '' || hash !== '')
      throw new LeaseError(
        'INVALID',
        `${protocol}// has no settings such as ${(search || hash).slice(0, 32)}: name an authority of your own with NODE_EXTRA_CA_CERTS=FILE, or use leaseholds://host:port?ca=FILE`,
      )
    this.#base = origin + pathname.replace(/\/+$/, '')
    this.#key = key
    this.#clock = clock
    // As a method of something else it would refuse to work in a browser.
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

  /** A signal of its own for one call: nothing stays behind on the giver's. */
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

  async json(method: string, path: string, { body, signal, changes = false }: Sending = {}): Promise<unknown> {
    this.mustBeOpen()
    const call = this.call(signal)
    const end = () => call.end(new Error(`nothing for ${TIMEOUT / 1_000} s`))
    // When this process has stood still, the timer is overdue and the answer waits to be read: it comes first.
    const late = this.#clock.after(TIMEOUT, () => this.#clock.soon(() => this.#clock.soon(end)))
    let answered = false
    const ask = async () => {
      answered = false
      const { rewinds } = this
      const answer = await this.send(method, path, {}, body, call.signal)
      answered = true
      const said = (await answer.json()) as unknown
      // Answered by the server that was there before, and read after we heard from the one that is there now.
      if (this.rewinds !== rewinds) throw new Broken('its log has gone back since it answered this')
      return said
    }
    // Refused for what we saw of a log that is gone, it was certainly not done: it is asked again as by a newcomer.
    const again = (error: unknown) => (isRewound(error) ? ask() : Promise.reject(error as Error))
    try {
      return await unlessEnded(call.signal, ask().catch(again))
    } catch (error) {
      throw this.worded(error, signal, changes, answered)
    } finally {
      late()
      call.end()
    }
  }

  /** The answer, when it is a good one. Throws what the server said, as a LeaseError. */
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
      // Nobody may lead a key elsewhere.
      redirect: 'error',
      credentials: 'omit',
      ...(body !== undefined && { body }),
    })
    if (signal.aborted) {
      answer.body?.cancel().catch(() => {}) // it was not heard, and nobody will read this
      throw signal.reason
    }
    const witness = answer.headers.get(WITNESS)
    if (rewinds === this.rewinds && witness !== null && isNewer(witness, this.#witness)) this.#witness = witness
    if (answer.ok) return answer
    const text = await answer.text()
    const error = said(text)
    // Of several that were under way the first says it for all.
    if (error !== undefined && isRewound(error) && rewinds === this.rewinds) this.#rewound(witness)
    throw error ?? new Broken(`${this.#base} answered ${answer.status}, which is not an answer of ours: ${text.slice(0, 100)}`)
  }

  /** Nothing that was told before counts any more. */
  #rewound(witness: string | null): void {
    this.rewinds++
    this.#witness = witness ?? NO_WITNESS
    const why = wentBack(this.#base)
    for (const tell of [...this.onRewound]) tell(why)
  }

  #adviceOn(error: unknown): string {
    const { code = '', message = '' } = ((error as Error | undefined)?.cause ?? {}) as { code?: string; message?: string }
    if (NO_TLS.test(`${code} ${message}`)) return `. It does not speak TLS: write ${this.#base.replace('https:', 'http:')}`
    if (DISTRUST.test(code) && !code.startsWith('ERR_SSL'))
      return '. Its certificate is not trusted here: name its authority with NODE_EXTRA_CA_CERTS=FILE, or use leaseholds://host:port?ca=FILE'
    return ''
  }

  /** What went wrong, as a lessor says it. */
  worded(error: unknown, signal: AbortSignal | undefined, changes: boolean, answered = false): unknown {
    if (signal?.aborted) return signal.reason
    const closed = this.closing.signal.aborted
    if (error instanceof LeaseError && !closed) return error
    const message = closed ? 'this lessor was closed' : `no answer from ${this.#base}: ${reasonOf(error)}${this.#adviceOn(error)}`
    // Only who was never reached did nothing. Of everything else nobody can know.
    if (changes && (answered || !neverReached(error)))
      return new LeaseError('UNKNOWN', `${message}; what was asked may or may not have been done`, { cause: error })
    return new LeaseError('UNAVAILABLE', message, { cause: error })
  }
}

/** What answered a handshake was no TLS; and codes of certificates that were not believed. */
const NO_TLS = /wrong.version.number|packet.length.too.long/i
const DISTRUST = /CERT|SELF_SIGNED|UNABLE_TO_(GET|VERIFY)|ALTNAME/

function parsed(url: string): URL {
  try {
    return new URL(url)
  } catch (cause) {
    throw new LeaseError('INVALID', 'this names no server: write http://host:7420', { cause })
  }
}

/** Without waiting for whoever carries it to notice: in Node 20 a `fetch` does not hear its signal any more once its request was collected. */
export function unlessEnded<T>(signal: AbortSignal, answer: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const end = () => reject(signal.reason)
    signal.addEventListener('abort', end)
    if (signal.aborted) end()
    answer.then(resolve, reject).finally(() => signal.removeEventListener('abort', end))
  })
}

/** Two answers may be read in another order than they were given in. Of one log the one that has come further is the newer. */
function isNewer(witness: string, known: string): boolean {
  const [[log, index], [knownLog, knownIndex]] = [witness.split('.'), known.split('.')]
  return log !== knownLog || Number(index) >= Number(knownIndex)
}

function isRewound(error: unknown): error is LeaseError {
  return error instanceof LeaseError && error.code === 'DIVERGED' && error.facts.rewound === true
}

class Broken extends Error {}

function said(text: string): LeaseError | undefined {
  try {
    return errorOf((JSON.parse(text) as { error: HttpReply }).error)
  } catch {
    return undefined
  }
}

export function errorOf({ code, message, ...facts }: HttpReply): LeaseError | undefined {
  if (typeof code !== 'string' || typeof message !== 'string') return undefined
  return new LeaseError(CODES[code] ?? (code as ErrorCode), message, { facts })
}

/** Words of HTTP alone, in those that lessors use. */
const CODES: Readonly<Record<string, ErrorCode>> = { TOO_LARGE: 'LIMIT' }

/** Node says why; a browser does not, and then it may have been reached. */
function neverReached(error: unknown): boolean {
  const { code } = ((error as Error | undefined)?.cause ?? {}) as { code?: string }
  return code === 'ECONNREFUSED' || code === 'ENOTFOUND' || code === 'EAI_AGAIN' || code === 'UND_ERR_CONNECT_TIMEOUT'
}

function reasonOf(error: unknown): string {
  const { message = String(error), cause } = (error ?? {}) as { message?: string; cause?: { message?: string; code?: string } }
  return cause?.message !== undefined && cause.message !== ''
    ? `${message} (${cause.message})`
    : cause?.code !== undefined
      ? `${message} (${cause.code})`
      : message
}
