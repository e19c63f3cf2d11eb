/** The countdowns of one replica: one for each running timer of the state, and when to look at each of them again. */

import { findLease } from '../kernel/state/leases.ts'
import { agedOf, timerId, timerOf } from '../kernel/state/timers.ts'
import { type LeaseState, QUIET, type Slot, type State, TERM, type Timer } from '../kernel/state.ts'
import { TimerWheel, type WheelAlarm } from './timer-wheel.ts'

export interface Countdown extends WheelAlarm {
  /** Undefined: the quiet period of the log. */
  readonly lease: LeaseState | undefined
  readonly slot: Slot
  epoch: number
  /**
   * When the timer began to run, on the timekeeper's time. Within an epoch it only moves back. Whole milliseconds, rounded to the late side: a small
   * integer is stored in place, a fraction on the heap, and a renewal should touch as little memory as possible.
   */
  zero: number
  /**
   * The pending proposal about this timer; 0 when there is none. Until that very proposal is settled, renewals go through the log. An older
   * proposal that settles late must not allow a renewal in memory while the newer one can still end the lease.
   */
  busy: number
  /** The timer already ran when this replica started. Perhaps no replica lives for a whole term, so it is marked early and often. */
  found: boolean
}

export function newCountdown(lease: LeaseState | undefined, slot: Slot, epoch: number, zero: number, found: boolean): Countdown {
  return { bucket: undefined, place: 0, lease, slot, epoch, zero: Math.ceil(zero), busy: 0, found }
}

export class Countdowns {
  readonly #state: State
  readonly #wheel = new TimerWheel<Countdown>()
  /** CAP, HOLD, BREAK and QUIET, by timer id. The countdown of a TERM is kept on its lease. */
  readonly #others = new Map<number, Countdown>()

  constructor(state: State) {
    this.#state = state
  }

  of(lease: LeaseState | undefined, slot: Slot): Countdown | undefined {
    if (lease === undefined) return this.#others.get(QUIET)
    return slot === TERM ? (lease.alarm as Countdown | undefined) : this.#others.get(timerId(lease, slot))
  }

  idOf({ lease, slot }: Countdown): number {
    return lease === undefined ? QUIET : timerId(lease, slot)
  }

  timerOf({ lease, slot }: Countdown): Timer | undefined {
    return lease === undefined ? this.#state.quiet : timerOf(lease, slot)
  }

  /** Adds a countdown, to be looked at by `at`. */
  add(countdown: Countdown, at: number): void {
    if (countdown.lease !== undefined && countdown.slot === TERM) countdown.lease.alarm = countdown
    else this.#others.set(this.idOf(countdown), countdown)
    this.#wheel.set(countdown, at)
  }

  remove(countdown: Countdown): void {
    this.#wheel.remove(countdown)
    if (countdown.lease !== undefined && countdown.slot === TERM) countdown.lease.alarm = undefined
    else this.#others.delete(this.idOf(countdown))
  }

  /** Returns whether this is still the countdown of a running timer, in the epoch it counts. */
  runs(countdown: Countdown): boolean {
    const { lease, slot } = countdown
    if (lease === undefined) return this.#others.get(QUIET) === countdown && this.#state.quiet?.epoch === countdown.epoch
    // Compare with the present state: after a snapshot was loaded, pending proposals still refer to the leases before it.
    if (slot === TERM) return lease.alarm === countdown && findLease(this.#state, lease.id) === lease
    return this.#others.get(timerId(lease, slot)) === countdown
  }

  duration(countdown: Countdown): number {
    if (countdown.lease === undefined) return this.#state.quiet?.duration ?? 0
    return timerOf(countdown.lease, countdown.slot)?.duration ?? 0
  }

  /** Returns how long the timer has run at least, as far as the log knows. */
  knownAge(countdown: Countdown): number {
    const { lease, slot } = countdown
    if (lease !== undefined && slot === TERM) return agedOf(this.#state, lease)
    const timer = this.timerOf(countdown)
    return timer === undefined ? 0 : agedOf(this.#state, timer)
  }

  /** Looks at it again at `at`, or at its earlier bucket. */
  schedule(countdown: Countdown, at: number): void {
    this.#wheel.set(countdown, at)
  }

  /** When the next countdown is to be looked at. */
  get next(): number {
    return this.#wheel.next() ?? Number.POSITIVE_INFINITY
  }

  /** Takes the countdowns that are to be looked at by now, at most `most`. The caller schedules those again that are not due. */
  take(now: number, most: number): Countdown[] {
    return this.#wheel.take(now, most)
  }

  *[Symbol.iterator](): Generator<Countdown> {
    for (const lease of this.#state.leases.values()) if (lease.alarm !== undefined) yield lease.alarm as Countdown
    yield* this.#others.values()
  }
}
