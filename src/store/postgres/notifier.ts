/**
 * Wakes readers that wait for a record: by NOTIFY if it arrives, by polling if it does not, and by a slow poll in any case. Correctness does
 * not depend on notifications, only latency does.
 *
 * Behind a pooler LISTEN may be accepted although no notification ever arrives. Trust LISTEN there only after a test NOTIFY has arrived.
 *
 * A NOTIFY costs about as much as an append, so an append notifies only if another session listens. Each listening session holds a shared
 * lock that shows its presence, and that ends with the session, however that ends. A store appends on the same connection, so its own lock
 * is not in its way. Behind a pooler there may be no such session: then the log is marked, and every append notifies.
 *
 * While no reader waits, nothing listens to the log. A process whose pool is its own then keeps the one connection, for its statements and for a channel of its own on
 * which others tell it what became of its leases. A process that was given a pool keeps none.
 */
import { BACKOFF, pauseAfter } from '../../backoff.ts'
import { type Clock, pause } from '../../clock.ts'
import { storeClosed } from '../closed.ts'
import { Wakeups } from '../wakeups.ts'
import type { PostgresDriver } from './driver.ts'
import { absence, channelOf, GREETING, presence } from './schema.ts'

/** A waiting reader polls this often, in ms, without trusted notifications, and with them. */
const POLL_ALONE = 50
const POLL_BESIDE = 1_000
/** Listen to the log for this long, in ms, after the last reader that waited. */
const LISTEN_ON = 2_000
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
  /** Keeps a connection while no reader waits, too. */
  readonly keep: boolean
}

export class Notifier implements AsyncDisposable {
  readonly #driver: PostgresDriver
  readonly #options: NotifierOptions
  readonly #channel: string
  readonly #wakeups = new Wakeups()
  readonly #closing = new AbortController()
  #listening: Promise<void> | undefined
  /** Readers that wait, and the end of the time after the last one. */
  #waiting = 0
  #cancelQuiet: (() => void) | undefined
  /** Wakes the loop that listens: readers began or ceased to wait, or there is another name to listen to. */
  readonly #changes = new Wakeups()
  /** The functions to call when this process is told something, by the channel. */
  readonly #woken = new Map<string, () => void>()
  #lost: (() => void) | undefined
  /** A connection is kept while no reader waits, too. Behind a pooler, or in a pool of the application, it is of use only while readers wait. */
  #isKept: boolean
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
    this.#channel = channelOf(options.log)
    this.#isKept = options.keep
  }

  /** Resolves after the first attempt to connect, if a connection is kept. Failed attempts are repeated in the background. */
  async start(): Promise<void> {
    if (this.#options.keep) await this.#begin()
  }

  #begin(): Promise<void> {
    return new Promise<void>(tried => {
      this.#listening ??= this.#listen(tried)
    })
  }

  /** Returns whether a reader waits, or did a moment ago. */
  get isWanted(): boolean {
    return this.#waiting > 0 || this.#cancelQuiet !== undefined
  }

  /** Returns whether readers that wait are notified, as far as is known: where nothing is connected, that shows when one waits. */
  get pushes(): boolean {
    return this.trusted || this.connection !== undefined || (!this.#options.keep && !this.isWanted)
  }

  /** Returns whether others can tell this process something. */
  get listens(): boolean {
    return this.#isKept
  }

  /** Calls `woken` when another process calls `wake` with this name, while a connection is kept. */
  listenTo(name: string, woken: () => void): void {
    this.#woken.set(channelOf(this.#options.log, name), woken)
    this.#changes.wake()
  }

  /** Tells other processes. Whether it arrives is not known. */
  wake(names: readonly string[]): void {
    const channels = names.map(name => channelOf(this.#options.log, name)).join()
    this.#driver.run("select pg_notify(channel, '')::text from unnest(string_to_array($1, ',')) channel", [channels]).catch(() => {})
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
    const wasWanted = this.isWanted
    this.#waiting++
    try {
      if (!wasWanted) this.#changes.wake()
      if (this.#listening === undefined) void this.#begin()
      const waiting = this.#wakeups.wait([this.#closing.signal, signal], {
        clock: this.#options.clock,
        ms: this.trusted ? POLL_BESIDE : POLL_ALONE,
      })
      if (this.count !== count) this.#wakeups.wake()
      return (await waiting) === 'woken' ? 'notified' : 'poll'
    } finally {
      if (--this.#waiting === 0 && !this.#closing.signal.aborted) this.#quietLater()
    }
  }

  #quietLater(): void {
    this.#cancelQuiet?.()
    this.#cancelQuiet = this.#options.clock.after(LISTEN_ON, () => {
      this.#cancelQuiet = undefined
      if (this.#waiting === 0) this.#changes.wake()
    })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort(storeClosed())
    this.#cancelQuiet?.()
    this.#cancelQuiet = undefined
    this.#lost?.()
    await this.#listening
  }

  async #listen(tried: () => void): Promise<void> {
    const { signal } = this.#closing
    for (let failures = 0; !signal.aborted; failures++) {
      const isQuiet = !this.isWanted
      if (isQuiet && !this.#isKept) {
        tried()
        await this.#changes.wait([signal]).catch(() => {})
        failures = -1
        continue
      }
      const lost = new Promise<void>(resolve => {
        this.#lost = () => {
          this.connection = undefined
          this.#options.reconnected()
          resolve()
        }
      })
      try {
        const listener = {
          notified: (payload: string, channel: string) => this.#notified(payload, channel),
          lost: this.#lost!,
          greeting: GREETING,
        }
        await using listening = await this.#driver.listen(isQuiet ? undefined : this.#channel, listener)
        const { run, script } = listening
        this.#options.reconnected()
        if (run === undefined) {
          this.#isKept = false
          tried()
        }
        if (run !== undefined && script !== undefined) {
          failures = 0
          this.connection = run
          await this.#follow(script, lost, tried)
        } else if (isQuiet) {
          failures = -1
          continue
        } else if (await this.#testArrives(lost)) {
          await this.#options.requestNotify()
          failures = 0
          this.trusted = true
          this.notify() // for records that came before LISTEN
          await Promise.race([lost, this.#untilQuiet()])
        } else failures = Number.MAX_SAFE_INTEGER // NOTIFY does not arrive here: look rarely whether it does now
      } catch {
        // No connection, or none that may listen: readers poll meanwhile.
      }
      this.connection = undefined
      this.trusted = false
      tried()
      if (failures >= 0 && (this.#isKept || this.isWanted))
        await pause(this.#options.clock, pauseAfter(BACKOFF.notices, failures), signal).catch(() => {})
    }
  }

  /** On a direct connection: listens to the log while readers wait, and to the channels of this process, until the connection is lost or not needed. */
  async #follow(script: (text: string) => Promise<void>, lost: Promise<void>, tried: () => void): Promise<void> {
    const { log, keep } = this.#options
    const listened = new Set<string>()
    let isLost = false
    void lost.then(() => {
      isLost = true
    })
    while (!isLost) {
      const { isWanted } = this
      if (isWanted && !this.trusted) {
        await script(presence(log))
        this.trusted = true
        this.notify() // for records that came before LISTEN
      } else if (!isWanted && this.trusted) {
        this.trusted = false
        if (!keep) return
        await script(absence(log))
      }
      for (const channel of this.#woken.keys()) {
        if (listened.has(channel)) continue
        listened.add(channel)
        await script(`listen ${channel}`)
        this.#woken.get(channel)?.() // for what it was told before
      }
      tried()
      if (this.isWanted === this.trusted && listened.size === this.#woken.size) await Promise.race([lost, this.#changed()])
    }
  }

  async #untilQuiet(): Promise<void> {
    while (this.isWanted) await this.#changed()
  }

  async #changed(): Promise<void> {
    await this.#changes.wait([this.#closing.signal]).catch(() => {})
    if (this.#closing.signal.aborted) await new Promise<void>(resolve => this.#options.clock.soon(resolve))
  }

  #notified(payload: string, channel: string): void {
    if (channel !== this.#channel) this.#woken.get(channel)?.()
    else if (this.#test?.payload === payload) this.#test.arrived()
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
