/**
 * Decides whether a replica reads the log as it grows, or only now and then.
 *
 * A process that only holds leases needs no news of other leases: it reads the log to its end before each of its renewals, and after `readEvery` at the latest.
 * Anything that waits for news (a waiter, a watch, a copy that continues) makes the replica follow the log, and so does a state in which time itself has to be
 * proposed. docs/proofs.md says what an idle replica counts.
 */
import type { Clock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import type { Lifetime } from './lifetime.ts'
import type { Log } from './log.ts'
import type { LogTicker } from './log-ticker.ts'
import { within } from './retry.ts'
import type { Timekeeper } from './timekeeper.ts'

/** Follow the log for this long after the last need for it, so that one need after another costs no change. */
const LINGER = 1_000
/** Reads that nothing causes come up to a tenth earlier, so that processes do not read together for ever. */
const EARLIER = 0.1
/** A renewal waits this long, in ms, for the read before it. */
const READ_FIRST = 250

export interface IdleModeOptions {
  readonly clock: Clock
  readonly log: Log
  readonly timekeeper: Pick<Timekeeper, 'isIdle' | 'judgeRead'>
  readonly ticker: Pick<LogTicker, 'isIdle'>
  readonly lifetime: Pick<Lifetime, 'isOpen'>
  /** The log is read after this many ms at the latest. Undefined: it is always followed. */
  readonly readEvery: number | undefined
}

export class IdleMode {
  readonly #options: IdleModeOptions
  /** The log is read now and then. */
  isIdle = false
  #needs = 0
  #cancelLinger: (() => void) | undefined
  #cancelRead: (() => void) | undefined
  #reading: Promise<void> | undefined
  /** Ends the following. */
  #follow: AbortController | undefined
  #following: Promise<unknown> = Promise.resolve()
  #stopped = false
  /** For metrics and tests: how often the log began to be followed, the reads before renewals and after `readEvery`, and the renewals without a read. */
  readonly stats = { follows: 0, idleReads: 0, passed: 0 }

  constructor(options: IdleModeOptions) {
    this.#options = options
  }

  /** The log has been read to its end once. */
  start(): void {
    if (this.#isNeeded) this.#beginFollowing()
    else this.#beginIdling()
  }

  /** Something needs the log as it grows, until the returned function is called. */
  need(): () => void {
    this.#needs++
    this.look()
    let isOver = false
    return () => {
      if (isOver) return
      isOver = true
      this.#needs--
      this.look()
    }
  }

  /** As `need`, while `work` is under way. */
  async during<T>(work: () => Promise<T>): Promise<T> {
    const over = this.need()
    try {
      return await work()
    } finally {
      over()
    }
  }

  get #isNeeded(): boolean {
    const { log, ticker, readEvery } = this.#options
    const { quiet, moved, awaiting, floor } = log.state
    return (
      readEvery === undefined ||
      this.#needs > 0 ||
      !ticker.isIdle ||
      quiet !== undefined ||
      moved !== undefined ||
      awaiting ||
      floor !== undefined
    )
  }

  /** Called when the needs or the state may have changed. */
  look(): void {
    if (this.#stopped || (!this.isIdle && this.#follow === undefined)) return
    if (this.#isNeeded) {
      this.#cancelLinger?.()
      this.#cancelLinger = undefined
      if (this.isIdle) this.#beginFollowing()
    } else if (!this.isIdle)
      this.#cancelLinger ??= this.#options.clock.after(LINGER, () => {
        this.#cancelLinger = undefined
        if (!this.#stopped && !this.#isNeeded) this.#beginIdling()
      })
  }

  #beginFollowing(): void {
    this.#cancelRead?.()
    this.#cancelRead = undefined
    this.isIdle = false
    this.#options.timekeeper.isIdle = false
    const follow = new AbortController()
    this.#follow = follow
    this.stats.follows++
    this.#following = Promise.all([this.#following, this.#options.log.follow(follow.signal, () => this.look())])
  }

  #beginIdling(): void {
    this.#follow?.abort(new Error('the log is read now and then'))
    this.#follow = undefined
    this.isIdle = true
    this.#options.timekeeper.isIdle = true
    this.#armRead()
  }

  #armRead(): void {
    this.#cancelRead?.()
    const { clock, readEvery = 0 } = this.#options
    this.#cancelRead = clock.after(readEvery * (1 - EARLIER * clock.random()), () => {
      this.#cancelRead = undefined
      this.read().catch(() => {}) // the next read is due after the same time
    })
  }

  /** This process has renewed without a read, and another one reads: the next read is due after `readEvery`. */
  renewed(): void {
    this.stats.passed++
    if (this.isIdle && !this.#stopped) this.#armRead()
  }

  /** As `read`, for a renewal: a read that fails or is slow does not delay it. The renewal itself reports what is wrong. */
  async readBriefly(): Promise<void> {
    const late = () => new LeaseError('UNAVAILABLE', 'the store is slow')
    await within(this.#options.clock, READ_FIRST, this.read(), late).catch(() => {})
  }

  /** If the log is read now and then: reads it to its end, and judges what that shows in the next turn, so in the same record as what this turn proposes. */
  async read(): Promise<void> {
    if (!this.isIdle || this.#stopped) return
    this.#reading ??= this.#readOnce().finally(() => {
      this.#reading = undefined
    })
    await this.#reading
  }

  async #readOnce(): Promise<void> {
    const { clock, log, timekeeper, lifetime } = this.#options
    this.#armRead()
    this.stats.idleReads++
    await log.toThePresent()
    if (this.#stopped || !lifetime.isOpen) return
    log.afterRecord()
    clock.soon(() => timekeeper.judgeRead())
    this.look()
  }

  /** Resolves when the log is no longer followed. */
  async stop(): Promise<void> {
    this.#stopped = true
    this.#cancelLinger?.()
    this.#cancelRead?.()
    this.#follow?.abort(new Error('the replica has stopped'))
    await this.#following
  }
}
