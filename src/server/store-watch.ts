/**
 * Checks whether the store can be reached and accepts writes, for metrics and for the server's log. An operator must not learn of an outage from
 * users: each outage and each recovery is logged once, with the reason.
 *
 * A store that answers reads and refuses writes (a full or failing disk) is down as well: a failed append counts until an append succeeds.
 */
import type { Clock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import type { GuardedLessor } from './guarded-lessor.ts'
import type { ServerLog } from './listener.ts'

/** Interval between two checks, in ms. */
const CHECK_INTERVAL = 5_000
/** Timeout of a check, in ms. A store that takes longer is down. */
const CHECK_TIMEOUT = 2_000
/** Minimum time between two logged outages, in ms, so that a flapping store does not flood the log. */
const LOG_INTERVAL = 10_000
/** Reasons of failed writes that a successful read does not disprove. */
const WRITE_ONLY_REASONS = new Set<unknown>(['io', 'full', 'readonly', 'damaged', 'disk', 'memory', 'replicas', 'permission'])

/** A failed append. No append has succeeded since. */
export interface FailedAppend {
  readonly error: LeaseError
  /** When it failed, by the server's clock. */
  readonly at: number
}

export interface StoreState {
  readonly up: boolean
  /** When that began, in wall time. */
  readonly since: number
  readonly reason?: string
}

export interface StoreWatchOptions {
  readonly clock: Clock
  readonly log: ServerLog
  /** The last append of the replica, if it failed. */
  readonly failedAppend?: () => FailedAppend | undefined
}

export class StoreWatch implements Disposable {
  static readonly #byServer = new WeakMap<GuardedLessor, StoreWatch>()
  readonly #guarded: GuardedLessor
  readonly #options: StoreWatchOptions
  #up = true
  #since: number
  /** The same moment by the wall clock, for people. */
  #sinceWall: number
  #reason = ''
  /** This was last logged, and the last outage was then. */
  #logged = { up: true, at: Number.NEGATIVE_INFINITY }
  #outages = 0
  #checking: Promise<boolean> | undefined
  #cancelCheck: (() => void) | undefined
  #cancelLog: (() => void) | undefined
  #disposed = false

  /** The store watch of a server. */
  static of(guarded: GuardedLessor): StoreWatch | undefined {
    return StoreWatch.#byServer.get(guarded)
  }

  constructor(guarded: GuardedLessor, options: StoreWatchOptions) {
    StoreWatch.#byServer.set(guarded, this)
    this.#guarded = guarded
    this.#options = options
    this.#since = options.clock.now()
    this.#sinceWall = options.clock.wall()
    this.#scheduleCheck()
  }

  /** Returns whether the store is up. Asks it, with a timeout. */
  check(): Promise<boolean> {
    this.#checking ??= this.#check().finally(() => (this.#checking = undefined))
    return this.#checking
  }

  /** Returns what the last check found. */
  get state(): StoreState {
    return { up: this.#up, since: this.#sinceWall, ...(!this.#up && { reason: this.#reason }) }
  }

  [Symbol.dispose](): void {
    this.#disposed = true
    this.#cancelCheck?.()
    this.#cancelLog?.()
  }

  #scheduleCheck(): void {
    if (this.#disposed) return
    this.#cancelCheck = this.#options.clock.after(CHECK_INTERVAL, () => void this.check().then(() => this.#scheduleCheck()))
  }

  async #check(): Promise<boolean> {
    const error = await this.#findError()
    if (!this.#disposed) this.#update(error)
    return error === undefined
  }

  async #findError(): Promise<LeaseError | undefined> {
    const { clock, failedAppend } = this.#options
    const { lessor } = this.#guarded
    const last = failedAppend?.()?.error
    // A read shows nothing about writes, and the owner of a store reads its own memory.
    if (last !== undefined && (!lessor.profile.shared || WRITE_ONLY_REASONS.has(last.reason))) return last
    const startedAt = clock.now()
    const late = new AbortController()
    const cancel = clock.after(CHECK_TIMEOUT, () =>
      late.abort(new LeaseError('UNAVAILABLE', `the store has not answered for ${CHECK_TIMEOUT} ms`)),
    )
    try {
      await lessor.read({ kind: 'summary' }, { consistent: true, signal: late.signal })
      const failed = failedAppend?.()
      return failed !== undefined && failed.at >= startedAt ? failed.error : undefined
    } catch (error) {
      return failedAppend?.()?.error ?? (error instanceof LeaseError ? error : new LeaseError('UNAVAILABLE', String(error)))
    } finally {
      cancel()
    }
  }

  #update(error: LeaseError | undefined): void {
    const up = error === undefined
    if (error !== undefined) this.#reason = error.message
    if (up === this.#up) return
    this.#up = up
    if (!up) this.#outages++
    this.#since = this.#options.clock.now()
    this.#sinceWall = this.#options.clock.wall()
    this.#logChange()
  }

  #logChange(): void {
    const { clock, log } = this.#options
    const now = clock.now()
    this.#cancelLog?.()
    if (this.#logged.up === this.#up) return
    const wait = this.#logged.at + LOG_INTERVAL - now
    // A recovery is logged at once. Only an outage that follows another one has to wait.
    if (!this.#up && wait > 0) {
      this.#cancelLog = clock.after(wait, () => this.#logChange())
      return
    }
    const outages = this.#outages
    if (this.#up) {
      log.info({ store: 'up', outages }, 'the store answers again')
    } else {
      this.#logged.at = now
      log.error({ store: 'down', outages, reason: this.#reason, since: Math.round(now - this.#since) }, 'the store is not available')
    }
    this.#logged.up = this.#up
  }
}
