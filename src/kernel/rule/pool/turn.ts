/**
 * Turns: in which order the waiters of a pool are tried when members have become free, and which of them may overtake. What differs between the
 * disciplines (`queue` of the pool's policy) is here and nowhere else:
 *
 * - `beginTurn` gives the waiters one after the other, and learns which of them were granted and which do not fit.
 * - `mayGoFirst` says whether a newcomer that fits may be granted at once, although others wait.
 * - `serviceOrder` is the order that waiters are told.
 *
 * A waiter is passed over, and holds up no other, while the present members could never serve it, and until the window of its reservation begins.
 */
import { type LeaseState, type PoolClaim, type PoolState, type State, WAITING } from '../../state.ts'
import type { WantedResource } from '../applicant.ts'
import { entriesFree } from '../attach.ts'
import type { Effects } from '../effects.ts'
import { rule } from '../policy.ts'
import { isPossible } from './choice.ts'
import { inOrder, isPlanned, standingOf } from './order.ts'
import { offerOnce, planTurn } from './plan.ts'
import { reviewNotices } from './preempt.ts'
import { isReserved, WindowBudget, WindowsAhead } from './reservation.ts'
import { listWaiter, unlistWaiter } from './waiters.ts'

export interface Turn {
  /** The next waiter to try; undefined: no other may be served now. */
  next(): Trial | undefined
  /** It does not fit now, or cannot be served for another reason. */
  refused(waiter: LeaseState): void
  /** It has left the queue. */
  granted(waiter: LeaseState): void
  /** All that could be granted is granted. */
  end(effects: Effects): void
}

export interface Trial {
  readonly waiter: LeaseState
  /** The members that it gets; left out: any that are free. */
  readonly chosen?: readonly WantedResource[]
  /** It overtakes a waiter that could use the same members. */
  readonly yields?: boolean
}

export function beginTurn(state: State, pool: PoolState): Turn {
  if (isPlanned(state, pool)) return new PlannedTurn(state, pool)
  return rule(state, pool.name, 'queue') === 'fit' ? new FitTurn(state, pool) : new FifoTurn(state, pool)
}

/** Returns whether a newcomer of this rank may be granted at once, if it fits. */
export function mayGoFirst(state: State, pool: PoolState, claim: PoolClaim, rank: number): boolean {
  if (isPlanned(state, pool)) {
    // In all other cases it joins the queue, and the plan of the turn decides.
    return standingOf(state, pool, claim) === 'within' && pool.queue.every(waiter => isPassedOver(state, pool, waiter))
  }
  if (pool.queue.length === 0 || rule(state, pool.name, 'queue') === 'fit') return true
  for (const waiter of pool.queue) {
    if (waiter.extras!.rank > rank) return true
    if (!isPassedOver(state, pool, waiter)) return false
  }
  return true
}

/** Returns whether a newcomer would be granted members at once if it joined the queue. It is listed only while the turn is planned. */
export function wouldBeServed(state: State, pool: PoolState, newcomer: LeaseState): boolean {
  // In other pools a newcomer is served only if it may go first.
  if (!isPlanned(state, pool)) return false
  listWaiter(state, pool, newcomer)
  try {
    const turn = new PlannedTurn(state, pool)
    for (let trial = turn.next(); trial !== undefined; trial = turn.next()) {
      if (trial.waiter === newcomer) return true
      if (entriesFree(state, trial.waiter)) return false
      turn.refused(trial.waiter)
    }
    return false
  } finally {
    unlistWaiter(pool, newcomer)
  }
}

/** The first `count` waiters in the order in which they would be served if each of them fitted, or more. */
export function serviceOrder(state: State, pool: PoolState, count: number): readonly LeaseState[] {
  const order = inOrder(state, pool)
  if (order === pool.queue) return pool.queue
  const first: LeaseState[] = []
  for (const waiter of order) {
    if (first.length >= count) break
    first.push(waiter)
  }
  return first
}

/** Returns whether it waits without holding up those behind it. */
export function isPassedOver(state: State, pool: PoolState, waiter: LeaseState): boolean {
  const claim = waiter.extras!.pool!
  return isReserved(state, claim) || !isPossible(pool, claim)
}

/** Only the first waiter is tried, apart from those that are passed over. */
class FifoTurn implements Turn {
  readonly #state: State
  readonly #pool: PoolState
  #at = 0

  constructor(state: State, pool: PoolState) {
    this.#state = state
    this.#pool = pool
  }

  next(): Trial | undefined {
    const { queue } = this.#pool
    while (this.#at < queue.length && isPassedOver(this.#state, this.#pool, queue[this.#at]!)) this.#at++
    const waiter = queue[this.#at]
    return waiter && { waiter }
  }

  refused(): void {
    this.#at = Number.POSITIVE_INFINITY
  }

  granted(): void {}

  end(): void {}
}

/**
 * All waiters are tried in order. A request that does not fit is tried once for all waiters that need the same for as long. If the windows ahead are so many
 * that the work of a turn is not enough for all waiters, its second half begins at a place that differs from tick to tick, so that every waiter is tried.
 */
class FitTurn implements Turn {
  readonly #state: State
  readonly #pool: PoolState
  readonly #turn: number
  readonly #budget = new WindowBudget()
  #ahead: WindowsAhead
  #at = 0
  /** The waiters of the second half. */
  #others: readonly LeaseState[] | undefined

  constructor(state: State, pool: PoolState) {
    this.#state = state
    this.#pool = pool
    this.#turn = ++pool.turn
    this.#ahead = new WindowsAhead(state, pool, { budget: this.#budget })
  }

  next(): Trial | undefined {
    const { queue, free } = this.#pool
    if (this.#state.quiet !== undefined) return undefined
    for (; free.length > 0 && !this.#budget.isSpent; this.#at++) {
      if (this.#others === undefined && this.#budget.isHalfSpent) this.#jump()
      const waiter = (this.#others ?? queue)[this.#at]
      if (waiter === undefined) return undefined
      if (waiter.status !== WAITING || isPassedOver(this.#state, this.#pool, waiter)) continue
      const chosen = offerOnce(this.#ahead, this.#turn, waiter)
      if (chosen !== undefined) return { waiter, chosen }
    }
    return undefined
  }

  #jump(): void {
    const left = this.#pool.queue.slice(this.#at)
    const place = left.length === 0 ? 0 : (Math.imul(this.#state.tick, 0x9e3779b1) >>> 0) % left.length
    this.#others = [...left.slice(place), ...left.slice(0, place)]
    this.#at = 0
  }

  refused(): void {
    this.#at++
  }

  granted(): void {
    if (this.#others !== undefined) this.#at++ // it has left the queue, and not this list
    this.#ahead = new WindowsAhead(this.#state, this.#pool, { budget: this.#budget })
  }

  end(): void {}
}

/** Planned anew after each grant: shares and quotas have changed then. */
class PlannedTurn implements Turn {
  readonly #state: State
  readonly #pool: PoolState
  /** Waiters that fit, and cannot be served for other reasons. */
  readonly #refused = new Set<LeaseState>()
  readonly #budget = new WindowBudget()
  #blocked: readonly LeaseState[] = []

  constructor(state: State, pool: PoolState) {
    this.#state = state
    this.#pool = pool
  }

  next(): Trial | undefined {
    const [state, pool] = [this.#state, this.#pool]
    if (this.#budget.isSpent) return undefined // the next turn goes on
    const isOut = (waiter: LeaseState): boolean => state.quiet !== undefined || this.#refused.has(waiter)
    const { next, blocked } = planTurn(state, pool, isOut, waiter => isPassedOver(state, pool, waiter), this.#budget)
    this.#blocked = blocked
    return next
  }

  refused(waiter: LeaseState): void {
    this.#refused.add(waiter)
  }

  granted(): void {}

  end(effects: Effects): void {
    const isServable = this.#state.quiet === undefined
    const blocked = isServable ? this.#blocked.filter(waiter => !this.#refused.has(waiter)) : []
    reviewNotices(this.#state, effects, this.#pool, blocked)
  }
}
