/**
 * Proposes ticks, by which the log counts a time of its own. That time passes only while something depends on it: the rank of waiters under a policy
 * with aging, or the penalties and sweeps of registrations.
 */
import type { Clock } from '../clock.ts'
import { TTL_LIMIT } from '../kernel/rule/policy.ts'
import { poolsNeedTicks } from '../kernel/rule/pool/waiters.ts'
import { needsTicks } from '../kernel/rule/service.ts'
import type { Log } from './log.ts'
import type { Outbox } from './outbox.ts'

/** The interval while waiters age, in ms. */
const FAST = 1_000
/** The interval for penalties and sweeps, which only decay. */
const SLOW = 5_000

export class LogTicker {
  readonly #clock: Clock
  readonly #log: Log
  readonly #outbox: Outbox
  #cancel: (() => void) | undefined
  /**
   * A moment of the clock, and what the log's own time was then. A tick adds what has passed since, less what ticks have added since, of whichever replica: the
   * time that an append takes is not lost. Undefined: no time passes.
   */
  #origin: { readonly now: number; readonly elapsed: number } | undefined
  #stopped = false
  /** No time passes, and nothing is needed before the state asks for it. */
  isIdle = true

  constructor(clock: Clock, log: Log, outbox: Outbox) {
    this.#clock = clock
    this.#log = log
    this.#outbox = outbox
  }

  /** Called after records while anything may need ticks (`afterRecord` of the log): sets a timer for the next tick, if one is needed. */
  tickWhileNeeded(): void {
    if (this.#stopped) return
    const interval = this.#interval()
    this.isIdle = interval === 0
    if (interval === 0) this.#origin = undefined
    if (interval === 0 || this.#cancel !== undefined) return
    const { tick, elapsed } = this.#log.state
    this.#origin ??= { now: this.#clock.now(), elapsed }
    const origin = this.#origin
    this.#cancel = this.#clock.after(interval * (1 + this.#log.turn() / 4), () => {
      this.#cancel = undefined
      if (this.#stopped || this.#interval() === 0) return
      if (this.#log.state.tick !== tick) return this.tickWhileNeeded() // another replica has proposed it
      const passed = Math.floor(this.#clock.now() - origin.now) - (this.#log.state.elapsed - origin.elapsed)
      // Another replica has counted more.
      if (passed < 0) this.#origin = undefined
      this.#outbox.write({ kind: 'tick', n: tick + 1, elapsed: Math.min(Math.max(0, passed), TTL_LIMIT) }).then(
        () => this.tickWhileNeeded(),
        () => {},
      )
    })
  }

  /** 0: nothing depends on ticks. */
  #interval(): number {
    const { state } = this.#log
    if (state.counts.waiting > 0) for (const { aging = 0 } of state.policies.values()) if (aging > 0) return FAST
    const pools = poolsNeedTicks(state)
    if (pools === 'fast') return FAST
    return pools === 'slow' || needsTicks(state) ? SLOW : 0
  }

  stop(): void {
    this.#stopped = true
    this.#cancel?.()
  }
}
