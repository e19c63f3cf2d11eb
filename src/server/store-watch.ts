/**
 * Whether the store can be reached and takes writes, for metrics and for the log of the server. An operator must not learn of an outage from
 * its users: each outage and each return is one line, with the reason.
 *
 * A store that takes reads and refuses writes (a failing disk, a full one) is not up either: the last append that failed counts until one
 * succeeds.
 */
import type { Clock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import type { GuardedLessor } from './guarded-lessor.ts'
import type { Log } from './listener.ts'

/** How often the store is asked. */
const LOOK_EVERY = 5_000
/** A store that takes longer to say where its log ends is not up. */
const ANSWERS_WITHIN = 2_000
/** A store that comes and goes makes at most one line in this time. */
const LINE_EVERY = 10_000
/** Of these a successful read says nothing. */
const ONLY_WRITES = new Set<unknown>(['io', 'full', 'readonly', 'damaged', 'disk', 'memory', 'replicas', 'permission'])

/** An append that failed, and none has succeeded since. */
export interface StoreTrouble {
  readonly error: LeaseError
  /** When, by the server's clock. */
  readonly at: number
}

export interface StoreWatchOptions {
  readonly clock: Clock
  readonly log: Log
  /** The last append of the replica, if it failed. */
  readonly trouble?: () => StoreTrouble | undefined
}

export class StoreWatch implements Disposable {
  static readonly #byDesk = new WeakMap<GuardedLessor, StoreWatch>()
  readonly #desk: GuardedLessor
  readonly #options: StoreWatchOptions
  #up = true
  #since: number
  #reason = ''
  /** What the last line said, and when. */
  #told = { up: true, at: Number.NEGATIVE_INFINITY }
  #outages = 0
  #looking: Promise<boolean> | undefined
  #cancelLook: (() => void) | undefined
  #cancelLine: (() => void) | undefined
  #over = false

  /** The one of a server. */
  static of(desk: GuardedLessor): StoreWatch | undefined {
    return StoreWatch.#byDesk.get(desk)
  }

  constructor(desk: GuardedLessor, options: StoreWatchOptions) {
    StoreWatch.#byDesk.set(desk, this)
    this.#desk = desk
    this.#options = options
    this.#since = options.clock.now()
    this.#lookLater()
  }

  /** Asks the store, within a bound. */
  look(): Promise<boolean> {
    this.#looking ??= this.#look().finally(() => (this.#looking = undefined))
    return this.#looking
  }

  [Symbol.dispose](): void {
    this.#over = true
    this.#cancelLook?.()
    this.#cancelLine?.()
  }

  #lookLater(): void {
    if (this.#over) return
    this.#cancelLook = this.#options.clock.after(LOOK_EVERY, () => void this.look().then(() => this.#lookLater()))
  }

  async #look(): Promise<boolean> {
    const failed = await this.#failure()
    if (!this.#over) this.#note(failed)
    return failed === undefined
  }

  async #failure(): Promise<LeaseError | undefined> {
    const { clock, trouble } = this.#options
    const { lessor } = this.#desk
    const last = trouble?.()?.error
    // A read would say nothing of writes; and an owner reads its own memory.
    if (last !== undefined && (!lessor.profile.shared || ONLY_WRITES.has(last.facts.reason))) return last
    const began = clock.now()
    const late = new AbortController()
    const cancel = clock.after(ANSWERS_WITHIN, () =>
      late.abort(new LeaseError('UNAVAILABLE', `the store has not answered for ${ANSWERS_WITHIN} ms`)),
    )
    try {
      await lessor.read({ kind: 'summary' }, { consistent: true, signal: late.signal })
      const since = trouble?.()
      return since !== undefined && since.at >= began ? since.error : undefined
    } catch (error) {
      return trouble?.()?.error ?? (error instanceof LeaseError ? error : new LeaseError('UNAVAILABLE', String(error)))
    } finally {
      cancel()
    }
  }

  #note(failed: LeaseError | undefined): void {
    const up = failed === undefined
    if (failed !== undefined) this.#reason = failed.message
    if (up === this.#up) return
    this.#up = up
    if (!up) this.#outages++
    this.#since = this.#options.clock.now()
    this.#tell()
  }

  #tell(): void {
    const { clock, log } = this.#options
    const now = clock.now()
    this.#cancelLine?.()
    if (this.#told.up === this.#up) return
    const rest = this.#told.at + LINE_EVERY - now
    // The return is told at once: only a line that follows another outage has to wait.
    if (!this.#up && rest > 0) {
      this.#cancelLine = clock.after(rest, () => this.#tell())
      return
    }
    const outages = this.#outages
    if (this.#up) {
      log.info({ store: 'up', outages }, 'the store answers again')
    } else {
      this.#told.at = now
      log.error({ store: 'down', outages, reason: this.#reason, since: Math.round(now - this.#since) }, 'the store is not available')
    }
    this.#told.up = this.#up
  }
}
