/**
 * The countdowns of one replica: one for each running timer of the state, and when to look at each of them again. Those of the leases that this process holds are
 * kept apart: a replica that reads the log now and then sets real timers for them only.
 */

import { findLease } from '../kernel/state/leases.ts'
import { agedOf, timerId, timerOf } from '../kernel/state/timers.ts'
import { type LeaseState, QUIET, SLOTS, type Slot, type State, TERM, type Timer } from '../kernel/state.ts'
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
  /** Of a lease that this process holds or waits with. */
  own: boolean
}

export function newCountdown(lease: LeaseState | undefined, slot: Slot, epoch: number, zero: number, found: boolean): Countdown {
  return { bucket: undefined, place: 0, lease, slot, epoch, zero: Math.ceil(zero), busy: 0, found, own: false }
}

export class Countdowns {
  readonly #state: State
  readonly #wheel = new TimerWheel<Countdown>()
  readonly #ownWheel = new TimerWheel<Countdown>()
  /** The ids of the leases of this process. */
  readonly #own: Set<number>
  /** CAP, HOLD, BREAK and QUIET, by timer id. The countdown of a TERM is kept on its lease. */
  readonly #others = new Map<number, Countdown>()

  constructor(state: State, own: Set<number>) {
    this.#state = state
    this.#own = own
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
    countdown.own = this.#own.size > 0 && countdown.lease !== undefined && this.#own.has(countdown.lease.id)
    this.schedule(countdown, at)
  }

  remove(countdown: Countdown): void {
    this.#wheelOf(countdown).remove(countdown)
    if (countdown.lease !== undefined && countdown.slot === TERM) {
      countdown.lease.alarm = undefined
      this.#own.delete(countdown.lease.id)
    } else this.#others.delete(this.idOf(countdown))
  }

  /** This process holds the lease, or waits with it. `at`: when to look at a countdown again. */
  keepOwn(id: number, at: (countdown: Countdown) => number): void {
    const lease = findLease(this.#state, id)
    if (lease === undefined || this.#own.has(id)) return
    this.#own.add(id)
    for (let slot = TERM as Slot; slot < SLOTS; slot++) {
      const countdown = this.of(lease, slot)
      if (countdown === undefined) continue
      this.#wheel.remove(countdown)
      countdown.own = true
      this.schedule(countdown, at(countdown))
    }
  }

  #wheelOf({ own }: Countdown): TimerWheel<Countdown> {
    return own ? this.#ownWheel : this.#wheel
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
    this.#wheelOf(countdown).set(countdown, at)
  }

  /** When the next countdown is to be looked at. */
  get next(): number {
    return Math.min(this.nextOwn, this.#wheel.next() ?? Number.POSITIVE_INFINITY)
  }

  /** As `next`, of the leases of this process. */
  get nextOwn(): number {
    return this.#ownWheel.next() ?? Number.POSITIVE_INFINITY
  }

  /** Looks at those of the leases of this process that are to be looked at by now. Returns whether one of them is due, or worth a mark; the others are scheduled again. */
  isOwnDue(now: number, at: (countdown: Countdown) => number): boolean {
    let isDue = false
    for (const countdown of this.#ownWheel.take(now)) {
      const next = at(countdown)
      if (next <= now) isDue = true
      this.schedule(countdown, next)
    }
    return isDue
  }

  /** Takes the countdowns that are to be looked at by now, at most `most`. The caller schedules those again that are not due. */
  take(now: number, most: number): Countdown[] {
    const own = this.#ownWheel.take(now, most)
    const others = this.#wheel.take(now, most - own.length)
    return own.length === 0 ? others : [...own, ...others]
  }

  *[Symbol.iterator](): Generator<Countdown> {
    for (const lease of this.#state.leases.values()) if (lease.alarm !== undefined) yield lease.alarm as Countdown
    yield* this.#others.values()
  }
}
