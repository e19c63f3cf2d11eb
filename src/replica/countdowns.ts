/**
 * The countdowns of one replica: one for each running timer of the state, and when to look at each of them again. Those of the leases that this process holds are
 * kept apart: a replica that reads the log now and then sets real timers for them only.
 */

import type { TermCountdown } from '../kernel/state/lease-state.ts'
import { findLease } from '../kernel/state/leases.ts'
import { agedOf, timerId, timerOf } from '../kernel/state/timers.ts'
import { type LeaseState, QUIET, SLOTS, type Slot, type State, TERM, type Timer } from '../kernel/state.ts'
import { TimerWheel } from './timer-wheel.ts'

/**
 * The countdown of a timer. That of a TERM is kept in its lease: a renewal should touch as little memory as possible.
 *
 * - `counted`: the epoch of the timer that is counted; 0: none.
 * - `zero`: when the timer began to run, on the timekeeper's time. Within an epoch it only moves back. Whole milliseconds, rounded to the late side: a small
 *   integer is stored in place, a fraction on the heap.
 * - `busy`: the pending proposal about this timer; 0 when there is none. Until that very proposal is settled, renewals go through the log. An older proposal that
 *   settles late must not allow a renewal in memory while the newer one can still end the lease.
 * - `found`: the timer already ran when this replica started. Perhaps no replica lives for a whole term, so it is marked early and often.
 */
export type Countdown = LeaseState | SlotCountdown

/** The countdown of a CAP, HOLD, BREAK, PREEMPT or QUIET. */
export class SlotCountdown implements TermCountdown {
  bucket: TermCountdown['bucket'] = undefined
  place = 0
  zero = 0
  counted = 0
  busy = 0
  found = false
  /** Undefined: the quiet period of the log. */
  readonly lease: LeaseState | undefined
  readonly slot: Slot

  constructor(lease: LeaseState | undefined, slot: Slot) {
    this.lease = lease
    this.slot = slot
  }
}

/** The lease whose term is counted; undefined: it is another timer. */
function termOf(countdown: Countdown): LeaseState | undefined {
  return countdown instanceof SlotCountdown ? undefined : countdown
}

/** Undefined: the quiet period of the log. */
export function leaseOf(countdown: Countdown): LeaseState | undefined {
  return countdown instanceof SlotCountdown ? countdown.lease : countdown
}

export class Countdowns {
  readonly #state: State
  readonly #wheel = new TimerWheel<Countdown>()
  readonly #ownWheel = new TimerWheel<Countdown>()
  /** The ids of the leases of this process. */
  readonly #own: Set<number>
  /** By timer id. The countdown of a TERM is its lease. */
  readonly #others = new Map<number, SlotCountdown>()

  constructor(state: State, own: Set<number>) {
    this.#state = state
    this.#own = own
  }

  of(lease: LeaseState | undefined, slot: Slot): Countdown | undefined {
    if (lease === undefined) return this.#others.get(QUIET)
    if (slot === TERM) return lease.counted === 0 ? undefined : lease
    return this.#others.get(timerId(lease, slot))
  }

  idOf(countdown: Countdown): number {
    if (!(countdown instanceof SlotCountdown)) return timerId(countdown, TERM)
    return countdown.lease === undefined ? QUIET : timerId(countdown.lease, countdown.slot)
  }

  timerOf(countdown: Countdown): Timer | undefined {
    if (!(countdown instanceof SlotCountdown)) return timerOf(countdown, TERM)
    return countdown.lease === undefined ? this.#state.quiet : timerOf(countdown.lease, countdown.slot)
  }

  /** Begins to count a timer. The caller schedules it. */
  begin(lease: LeaseState | undefined, slot: Slot, epoch: number, zero: number, found: boolean): Countdown {
    const countdown = lease !== undefined && slot === TERM ? lease : new SlotCountdown(lease, slot)
    countdown.bucket = undefined
    countdown.counted = epoch
    countdown.zero = Math.ceil(zero)
    countdown.busy = 0
    countdown.found = found
    if (countdown instanceof SlotCountdown) this.#others.set(this.idOf(countdown), countdown)
    return countdown
  }

  remove(countdown: Countdown): void {
    this.#wheelOf(countdown).remove(countdown)
    if (countdown instanceof SlotCountdown) this.#others.delete(this.idOf(countdown))
    else {
      countdown.counted = 0
      this.#own.delete(countdown.id)
    }
  }

  /** This process holds the lease, or waits with it. `at`: when to look at a countdown again. */
  keepOwn(id: number, at: (countdown: Countdown) => number): void {
    const lease = findLease(this.#state, id)
    if (lease === undefined || this.#own.has(id)) return
    for (let slot = TERM as Slot; slot < SLOTS; slot++) {
      const countdown = this.of(lease, slot)
      if (countdown !== undefined) this.#wheel.remove(countdown)
    }
    this.#own.add(id)
    for (let slot = TERM as Slot; slot < SLOTS; slot++) {
      const countdown = this.of(lease, slot)
      if (countdown !== undefined) this.schedule(countdown, at(countdown))
    }
  }

  /** A countdown may lie in the other wheel after its lease has ended as one of this process: each wheel removes the countdowns of both. */
  #wheelOf(countdown: Countdown): TimerWheel<Countdown> {
    const lease = leaseOf(countdown)
    return lease !== undefined && this.#own.has(lease.id) ? this.#ownWheel : this.#wheel
  }

  /** Returns whether this is still the countdown of a running timer, in the epoch it counts. */
  runs(countdown: Countdown): boolean {
    // Compare with the present state: after a snapshot was loaded, pending proposals still refer to the leases before it.
    if (!(countdown instanceof SlotCountdown)) return countdown.counted !== 0 && findLease(this.#state, countdown.id) === countdown
    const { lease, slot } = countdown
    if (lease === undefined) return this.#others.get(QUIET) === countdown && this.#state.quiet?.epoch === countdown.counted
    return this.#others.get(timerId(lease, slot)) === countdown
  }

  duration(countdown: Countdown): number {
    return termOf(countdown)?.term ?? this.timerOf(countdown)?.duration ?? 0
  }

  /** Returns how long the timer has run at least, as far as the log knows. */
  knownAge(countdown: Countdown): number {
    const timer = termOf(countdown) ?? this.timerOf(countdown)
    return timer === undefined ? 0 : agedOf(this.#state, timer)
  }

  /** Looks at it again at `at`, or at its earlier bucket. */
  schedule(countdown: Countdown, at: number): void {
    const wheel = this.#own.size === 0 ? this.#wheel : this.#wheelOf(countdown)
    wheel.set(countdown, at)
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
    for (const lease of this.#state.leases.values()) if (lease.counted !== 0) yield lease
    yield* this.#others.values()
  }
}
