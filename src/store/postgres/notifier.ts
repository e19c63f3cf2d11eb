/**
 * Wakes readers that wait for a record: by NOTIFY if it arrives, by polling if it does not, and by a slow poll in any case. Correctness does
 * not depend on notifications, only latency does.
 *
 * Behind a pooler LISTEN may be accepted although no notification ever arrives. Trust LISTEN there only after a test NOTIFY has arrived.
 *
 * A NOTIFY costs about as much as an append, so an append notifies only if another session listens. Each listening session holds a shared
 * lock that shows its presence, and that ends with the session, however that ends. A store appends on the same connection, so its own lock
 * is not in its way. Behind a pooler there may be no such session: then the log is marked, and every append notifies.
 */
import { BACKOFF, pauseAfter } from '../../backoff.ts'
import { type Clock, pause } from '../../clock.ts'
import { storeClosed } from '../closed.ts'
import { Wakeups } from '../wakeups.ts'
import type { PostgresDriver } from './driver.ts'
import { presence } from './schema.ts'

/** A waiting reader polls this often, in ms, without trusted notifications, and with them. */
const POLL_ALONE = 50
const POLL_BESIDE = 1_000
/** Pauses before LISTEN is tried again, in ms. */
/** A test NOTIFY arrives within this many ms, or never. */
const TEST_TIMEOUT = 1_000
const TEST = 'hello '

export interface NotifierOptions {
  readonly clock: Clock
  /** The number of the log. */
  readonly log: number
  /** Receives the payloads of the channel, and decides whether to wake readers. */
  readonly notified: (payload: string) => void
  /** Marks the log, so that every append notifies from now on. */
  readonly requestNotify: () => Promise<unknown>
  /** Called when the connection that listens was lost, and when there is a new one. */
  readonly reconnected: () => void
}

export class Notifier implements AsyncDisposable {
  readonly #driver: PostgresDriver
  readonly #options: NotifierOptions
  readonly #channel: string
  readonly #wakeups = new Wakeups()
  readonly #closing = new AbortController()
  #listening: Promise<void> | undefined
  #lost: (() => void) | undefined
  #test: { readonly payload: string; readonly arrived: () => void } | undefined
  /** Number of wakeups. Compared before and after a read, so that one that arrives in between is not missed. */
  count = 0
  /** True if notifications can be relied on. */
  trusted = false
  /** Runs statements on the connection that listens, while there is a direct one. As `PostgresDriver.run`. */
  connection: PostgresDriver['run'] | undefined

  constructor(driver: PostgresDriver, options: NotifierOptions) {
    this.#driver = driver
    this.#options = options
    this.#channel = `leasehold_${options.log}`
  }

  /** Resolves after the first attempt to listen. Failed attempts are repeated in the background. */
  async start(): Promise<void> {
    await new Promise<void>(tried => {
      this.#listening = this.#listen(tried)
    })
  }

  /** Wakes all waiting readers. */
  notify(): void {
    this.count++
    this.#wakeups.wake()
  }

  /** A poll found a record without a notification: notifications are not trusted until they have been tested again. */
  distrust(): void {
    if (this.trusted) this.#lost?.()
  }

  /** Resolves when readers were woken since `count`, or when it is time to poll. Rejects with the signal's reason, or when the store is closed. */
  async wait(count: number, signal: AbortSignal): Promise<'notified' | 'poll'> {
    const waiting = this.#wakeups.wait([this.#closing.signal, signal], {
      clock: this.#options.clock,
      ms: this.trusted ? POLL_BESIDE : POLL_ALONE,
    })
    if (this.count !== count) this.#wakeups.wake()
    return (await waiting) === 'woken' ? 'notified' : 'poll'
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort(storeClosed())
    this.#lost?.()
    await this.#listening
  }

  async #listen(tried: () => void): Promise<void> {
    const { signal } = this.#closing
    for (let failures = 0; !signal.aborted; failures++) {
      const lost = new Promise<void>(resolve => {
        this.#lost = () => {
          this.connection = undefined
          this.#options.reconnected()
          resolve()
        }
      })
      try {
        const listener = {
          notified: (payload: string) => this.#notified(payload),
          lost: this.#lost!,
          greeting: presence(this.#options.log),
        }
        await using listening = await this.#driver.listen(this.#channel, listener)
        const { run } = listening
        this.#options.reconnected()
        if (run === undefined) tried()
        if (run !== undefined || (await this.#testArrives(lost))) {
          if (run === undefined) await this.#options.requestNotify()
          failures = 0
          this.trusted = true
          this.connection = run
          this.notify() // for records that came before LISTEN
          tried()
          await lost
        } else failures = Number.MAX_SAFE_INTEGER // NOTIFY does not arrive here: look rarely whether it does now
      } catch {
        // No connection, or none that may listen: readers poll meanwhile.
      }
      this.trusted = false
      tried()
      await pause(this.#options.clock, pauseAfter(BACKOFF.notices, failures), signal).catch(() => {})
    }
  }

  #notified(payload: string): void {
    if (this.#test?.payload === payload) this.#test.arrived()
    else if (!payload.startsWith(TEST)) this.#options.notified(payload)
  }

  /** Sends a test NOTIFY from another connection. */
  async #testArrives(lost: Promise<void>): Promise<boolean> {
    const { clock } = this.#options
    const payload = `${TEST}${clock.bits()}`
    const arrived = new Promise<boolean>(resolve => {
      this.#test = { payload, arrived: () => resolve(true) }
    })
    const late = new AbortController()
    try {
      await this.#driver.run('select pg_notify($1, $2)', [this.#channel, payload])
      const timeout = pause(clock, TEST_TIMEOUT, late.signal)
      return await Promise.race([arrived, lost.then(() => false), timeout.then(() => false)])
    } finally {
      this.#test = undefined
      late.abort()
    }
  }
}
