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
import type { LeaseState, PoolClaim, PoolShape, PoolState, State } from '../../state.ts'
import { rule } from '../policy.ts'
import { isPossible } from './choice.ts'
import { isReserved } from './reservation.ts'

/** In one turn of `fit`, so many different requests that do not fit are tried: a queue of ten thousand must not be searched at each release. */
const MAX_TRIES = 256

export interface Turn {
  /** The next waiter to try; undefined: no other may be served now. */
  next(): LeaseState | undefined
  /** It does not fit now. `byShape`: nor does any waiter with equal needs. */
  refused(waiter: LeaseState, byShape: boolean): void
  /** It has left the queue. */
  granted(waiter: LeaseState): void
}

export function beginTurn(state: State, pool: PoolState): Turn {
  return rule(state, pool.name, 'queue') === 'fit' ? new FitTurn(state, pool) : new FifoTurn(state, pool)
}

/** Whether a newcomer of this rank may be granted at once, if it fits. */
export function mayGoFirst(state: State, pool: PoolState, _claim: PoolClaim, rank: number): boolean {
  if (pool.queue.length === 0 || rule(state, pool.name, 'queue') === 'fit') return true
  for (const waiter of pool.queue) {
    if (waiter.rare!.rank > rank) return true
    if (!isPassedOver(state, pool, waiter)) return false
  }
  return true
}

/** The waiters in the order in which they would be served if each of them fitted. */
export function serviceOrder(_state: State, pool: PoolState): readonly LeaseState[] {
  return pool.queue
}

/** Whether it waits without holding up those behind it. */
export function isPassedOver(state: State, pool: PoolState, waiter: LeaseState): boolean {
  const claim = waiter.rare!.pool!
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

  next(): LeaseState | undefined {
    const { queue } = this.#pool
    while (this.#at < queue.length && isPassedOver(this.#state, this.#pool, queue[this.#at]!)) this.#at++
    return queue[this.#at]
  }

  refused(): void {
    this.#at = Number.POSITIVE_INFINITY
  }

  granted(): void {}
}

/** All waiters are tried in order. A request that does not fit is tried once for all waiters that need the same. */
class FitTurn implements Turn {
  readonly #state: State
  readonly #pool: PoolState
  readonly #turn: number
  #at = 0
  #tries = 0

  constructor(state: State, pool: PoolState) {
    this.#state = state
    this.#pool = pool
    this.#turn = ++pool.turn
  }

  next(): LeaseState | undefined {
    const { queue, free } = this.#pool
    if (free.length === 0 || this.#tries >= MAX_TRIES) return undefined
    for (; this.#at < queue.length; this.#at++) {
      const waiter = queue[this.#at]!
      if (shapeOf(waiter).failed !== this.#turn && !isPassedOver(this.#state, this.#pool, waiter)) return waiter
    }
    return undefined
  }

  refused(waiter: LeaseState, byShape: boolean): void {
    if (byShape) shapeOf(waiter).failed = this.#turn
    this.#tries++
    this.#at++
  }

  granted(): void {}
}

function shapeOf(waiter: LeaseState): PoolShape {
  return waiter.rare!.pool!.shape!
}
