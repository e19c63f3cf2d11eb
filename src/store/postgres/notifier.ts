/**
 * Wakes those who wait for an entry: by NOTIFY where that arrives, by asking again where it does not, and by asking now and then even where
 * it does. Nothing rests on it but promptness.
 *
 * Behind a pooler LISTEN may be accepted and never heard of again. So a bell there is only believed in after it has been heard to ring.
 *
 * A NOTIFY costs about as much as an append, so nobody is notified where nobody else listens. Who listens is seen by a shared lock that each
 * listening session holds: it ends with the session, however that ends. Appending on the same connection, one is not in one's own way. Where
 * something stands between, there may be no such session: then the log is marked, and everyone calls.
 */
import { type Clock, pause } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import type { PostgresDriver } from './driver.ts'
import { presence } from './schema.ts'

/** How often is asked while nobody would tell us, and while somebody would. */
const ASK_ALONE = 50
const ASK_BENEATH = 1_000
const TRY_AGAIN_FIRST = 100
const TRY_AGAIN_LAST = 30_000
/** A call to ourselves arrives within this, or never. */
const RINGS_WITHIN = 1_000
const HELLO = 'hello '

export interface NotifierOptions {
  readonly clock: Clock
  /** The number of the log. */
  readonly log: number
  /** Is told what was sent to the channel, and decides whether to ring. */
  readonly news: (payload: string) => void
  /** From now on everyone is to notify. */
  readonly call: () => Promise<unknown>
}

export class Notifier implements AsyncDisposable {
  readonly #driver: PostgresDriver
  readonly #clock: Clock
  readonly #log: number
  readonly #channel: string
  readonly #news: (payload: string) => void
  readonly #call: () => Promise<unknown>
  readonly #waiting = new Set<() => void>()
  readonly #closing = new AbortController()
  #listening: Promise<void> | undefined
  #lost: (() => void) | undefined
  #hello: { readonly payload: string; readonly heard: () => void } | undefined
  /** How often something was heard. Compared before and after a question, so that what arrives in between is not missed. */
  count = 0
  /** Whether we would be told. */
  trusted = false
  /** The connection that listens, while there is one and nothing stands between it and the engine. As `Driver.run`. */
  connection: PostgresDriver['run'] | undefined

  constructor(driver: PostgresDriver, options: NotifierOptions) {
    this.#driver = driver
    this.#clock = options.clock
    this.#log = options.log
    this.#channel = `leasehold_${options.log}`
    this.#news = options.news
    this.#call = options.call
  }

  /** Resolves when it rings, or when that is not certain yet; goes on trying. */
  async start(): Promise<void> {
    await new Promise<void>(tried => {
      this.#listening = this.#listen(tried)
    })
  }

  /** Everyone looks again. */
  notify(): void {
    this.count++
    for (const wake of [...this.#waiting]) wake()
  }

  /** There was news that it had not told: it is not to be relied on. */
  distrust(): void {
    if (this.trusted) this.#lost?.()
  }

  /** Resolves when it has rung since `rung`, or when it is time to ask again; rejects with the signal's reason, or when this is closed. */
  async wait(rung: number, signal: AbortSignal): Promise<'rung' | 'asked'> {
    const closing = this.#closing.signal
    return new Promise((resolve, reject) => {
      const done = () => {
        cancel()
        this.#waiting.delete(wake)
        signal.removeEventListener('abort', stop)
        closing.removeEventListener('abort', close)
      }
      const wake = () => {
        done()
        resolve('rung')
      }
      const stop = () => {
        done()
        reject(signal.reason)
      }
      const close = () => {
        done()
        reject(closing.reason)
      }
      const cancel = this.#clock.after(this.trusted ? ASK_BENEATH : ASK_ALONE, () => {
        done()
        resolve('asked')
      })
      this.#waiting.add(wake)
      signal.addEventListener('abort', stop, { once: true })
      closing.addEventListener('abort', close, { once: true })
      if (closing.aborted) close()
      else if (signal.aborted) stop()
      else if (this.count !== rung) wake()
    })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort(new LeaseError('UNAVAILABLE', 'the store was closed'))
    this.#lost?.()
    await this.#listening
  }

  async #listen(tried: () => void): Promise<void> {
    const { signal } = this.#closing
    for (let wait = TRY_AGAIN_FIRST; !signal.aborted; wait = Math.min(wait * 2, TRY_AGAIN_LAST)) {
      const lost = new Promise<void>(resolve => {
        this.#lost = () => {
          this.connection = undefined
          resolve()
        }
      })
      try {
        const heard = (payload: string) => this.#heard(payload)
        await using connection = await this.#driver.listen(this.#channel, { heard, lost: this.#lost!, greeting: presence(this.#log) })
        const { run } = connection
        if (run === undefined) tried()
        if (run !== undefined || (await this.#ringsIndeed(lost))) {
          if (run === undefined) await this.#call()
          wait = TRY_AGAIN_FIRST
          this.trusted = true
          this.connection = run
          this.notify() // what came before we listened
          tried()
          await lost
        } else wait = TRY_AGAIN_LAST
      } catch {
        // No connection, or none that may listen: asking goes on meanwhile.
      }
      this.trusted = false
      tried()
      await pause(this.#clock, wait, signal).catch(() => {})
    }
  }

  #heard(payload: string): void {
    if (this.#hello?.payload === payload) this.#hello.heard()
    else if (!payload.startsWith(HELLO)) this.#news(payload)
  }

  /** Calls ourselves from another connection. */
  async #ringsIndeed(lost: Promise<void>): Promise<boolean> {
    const payload = `${HELLO}${this.#clock.bits()}`
    const answered = new Promise<boolean>(resolve => {
      this.#hello = { payload, heard: () => resolve(true) }
    })
    const late = new AbortController()
    try {
      await this.#driver.run('select pg_notify($1, $2)', [this.#channel, payload])
      const never = pause(this.#clock, RINGS_WITHIN, late.signal)
      return await Promise.race([answered, lost.then(() => false), never.then(() => false)])
    } finally {
      this.#hello = undefined
      late.abort()
    }
  }
}
