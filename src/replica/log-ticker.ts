/**
 * Proposes ticks, by which the log counts a time of its own. That time passes only while something depends on it: the rank of waiters under a policy
 * with aging, or the penalties and sweeps of registrations.
 */
import type { Clock } from '../clock.ts'
import type { Tick } from '../kernel/command.ts'
import { poolsNeedTicks } from '../kernel/rule/pool/waiters.ts'
import { needsTicks } from '../kernel/rule/service.ts'
import type { State } from '../kernel/state.ts'

/** The interval while waiters age, in ms. */
const FAST = 1_000
/** The interval for penalties and sweeps, which only decay. */
const SLOW = 5_000

export interface LogTickerOptions {
  readonly clock: Clock
  readonly state: () => State
  /** The place of this replica among those that propose: 0 goes first. */
  readonly turn: () => number
  readonly propose: (command: Tick) => Promise<unknown>
}

export class LogTicker {
  readonly #options: LogTickerOptions
  #cancel: (() => void) | undefined
  #stopped = false

  constructor(options: LogTickerOptions) {
    this.#options = options
  }

  /** Called after every record: sets a timer for the next tick, if one is needed. */
  tickWhileNeeded(): void {
    const { clock, state, turn, propose } = this.#options
    if (this.#cancel !== undefined || this.#stopped) return
    const interval = this.#interval()
    if (interval === 0) return
    const { tick } = state()
    const began = clock.now()
    this.#cancel = clock.after(interval * (1 + turn() / 4), () => {
      this.#cancel = undefined
      if (this.#stopped || this.#interval() === 0) return
      if (state().tick !== tick) return this.tickWhileNeeded() // another replica has proposed it
      propose({ kind: 'tick', n: tick + 1, elapsed: Math.floor(clock.now() - began) }).then(
        () => this.tickWhileNeeded(),
        () => {},
      )
    })
  }

  /** 0: nothing depends on ticks. */
  #interval(): number {
    const state = this.#options.state()
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
