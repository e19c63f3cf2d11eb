/** The order in which the waiters of a pool are served if each of them fits. */
import { Heap } from '../../heap.ts'
import { place, standsBefore } from '../../state/order.ts'
import { hasUnitQuotas } from '../../state/quota-counts.ts'
import type { LeaseState, PoolAccount, PoolClaim, PoolState, State } from '../../state.ts'
import { rule } from '../policy.ts'
import { preempts, shareHalfLife, shareOf } from './account.ts'
import { matches } from './condition.ts'
import { compareShares, penaltyOf, type Share } from './share.ts'

/** Whether the turns of the pool are planned (plan.ts): it has quotas of units, shares, backfill or preemption. */
export function isPlanned(state: State, pool: PoolState): boolean {
  const queue = rule(state, pool.name, 'queue')
  return queue === 'backfill' || queue === 'fair' || preempts(state, pool) || hasUnitQuotas(state)
}

/**
 * The units that count for a request before its members are chosen. Whole members count with the units of the largest one that matches: otherwise a waiter could
 * be found to be over its quota only after others have made room for it.
 */
export function askedUnits(pool: PoolState, { count, units, total, match, shape }: PoolClaim): number {
  if (total > 0) return total
  if (units > 0) return count * units
  if (shape?.measured === pool.version) return count * shape.largest
  let largest = 1
  for (const { labels, capacity } of pool.members.values()) if (capacity > largest && matches(labels, match)) largest = capacity
  if (shape !== undefined) Object.assign(shape, { largest, measured: pool.version })
  return count * largest
}

/** The waiters in the order in which they would be served if each of them fitted. */
export function inOrder(state: State, pool: PoolState): Iterable<LeaseState> {
  return rule(state, pool.name, 'queue') === 'fair' ? byShare(state, pool) : pool.queue
}

/** An account that waits, and how it would stand if those before `next` had been served. */
interface AccountTurn {
  readonly account: PoolAccount
  share: Share
  next: number
}

/** The share of every account that has nothing and used nothing, whatever its weight. */
const NOTHING: Share = { usage: 0, held: 0, weight: 1 }

function hasNothing({ usage, held }: PoolAccount): boolean {
  return usage === 0 && held === 0
}

/**
 * Each time the account comes first that holds or has used least, as if all waiters given before had been served.
 *
 * No account stands before those that have nothing and used nothing, and they come in the order of their first waiters, which is that of the queue. So only
 * one of them is compared at a time: in a queue of ten thousand newcomers, the first is found without looking at the rest.
 */
function* byShare(state: State, pool: PoolState): Generator<LeaseState, void, void> {
  const isPreempting = preempts(state, pool)
  const halfLife = shareHalfLife(state, pool)
  const penalty = rule(state, pool.name, 'sharePenalty')
  const heap = new Heap<AccountTurn>((one, other) => {
    const order = compareShares(one.share, other.share, isPreempting)
    return order < 0 || (order === 0 && standsBefore(one.account.waiting[one.next]!, other.account.waiting[other.next]!))
  })
  let untouched = 0
  for (const account of pool.accounts.values()) {
    if (account.waiting.length === 0) continue
    if (hasNothing(account)) untouched++
    else heap.add({ account, share: shareOf(state, pool, account, halfLife), next: 0 })
  }
  let at = 0
  const addUntouched = (): void => {
    for (; untouched > 0; at++) {
      const account = pool.accounts.get(pool.queue[at]!.rare!.pool!.account)!
      if (!hasNothing(account) || account.waiting[0] !== pool.queue[at]) continue
      heap.add({ account, share: NOTHING, next: 0 })
      untouched--
      at++
      return
    }
  }
  addUntouched()
  for (let turn = heap.take(); turn !== undefined; turn = heap.take()) {
    const { account, share } = turn
    const waiter = account.waiting[turn.next++]!
    yield waiter
    if (share === NOTHING) addUntouched()
    if (turn.next === account.waiting.length) continue
    const known = share === NOTHING ? shareOf(state, pool, account, halfLife) : share
    turn.share = shareAfter(known, askedUnits(pool, waiter.rare!.pool!), penalty, halfLife)
    heap.add(turn)
  }
}

/** The share of an account after one of its waiters was granted so many units. It never stands better than before. */
function shareAfter({ usage, held, weight }: Share, units: number, penalty: number, halfLife: number): Share {
  return { usage: usage + penaltyOf(units, penalty, halfLife), held: held + units, weight }
}

/**
 * Where one waiter of a fair queue stands in the order of `byShare`, counted instead of sorted: shares only grow along the waiters of an account, so the waiters
 * of each account that stand before it are its first ones. Of an account with a single waiter that has nothing and used nothing, which most accounts of a
 * long queue are, not even that waiter is looked at.
 */
export class ShareStanding {
  readonly #state: State
  readonly #pool: PoolState
  readonly #waiter: LeaseState
  readonly #isPreempting: boolean
  readonly #halfLife: number
  readonly #penalty: number
  readonly #share: Share
  /** By account: how many of its waiters stand before this one. */
  readonly #before = new Map<PoolAccount, number>()

  constructor(state: State, pool: PoolState, waiter: LeaseState) {
    this.#state = state
    this.#pool = pool
    this.#waiter = waiter
    this.#isPreempting = preempts(state, pool)
    this.#halfLife = shareHalfLife(state, pool)
    this.#penalty = rule(state, pool.name, 'sharePenalty')
    const account = this.#accountOf(waiter)
    const place = placeIn(account.waiting, waiter)
    this.#before.set(account, place)
    let share = shareOf(state, pool, account, this.#halfLife)
    for (let at = 0; at < place; at++) share = this.#next(share, account.waiting[at]!)
    this.#share = share
  }

  /** How many waiters stand before it. */
  get position(): number {
    const { accounts, queue } = this.#pool
    const own = this.#accountOf(this.#waiter)
    const arrived = placeIn(queue, this.#waiter)
    let position = this.#before.get(own)!
    let [single, counted] = [0, position]
    for (const account of accounts.values()) {
      if (account === own || account.waiting.length === 0) continue
      if (account.waiting.length === 1 && hasNothing(account)) single++
      else {
        position += this.#countBefore(account)
        counted += placeIn(account.waiting, this.#waiter)
      }
    }
    // Those that have nothing go before all that have something, and among themselves in the order of arrival.
    return position + (this.#compare(NOTHING) < 0 ? single : arrived - counted)
  }

  /** Whether another waiter stands before it. */
  isAfter(other: LeaseState): boolean {
    const account = this.#accountOf(other)
    return placeIn(account.waiting, other) < this.#countBefore(account)
  }

  #countBefore(account: PoolAccount): number {
    const known = this.#before.get(account)
    if (known !== undefined) return known
    const { waiting } = account
    let share = shareOf(this.#state, this.#pool, account, this.#halfLife)
    let count = 0
    for (; count < waiting.length; count++) {
      const order = this.#compare(share)
      if (order > 0 || (order === 0 && standsBefore(this.#waiter, waiting[count]!))) break
      share = this.#next(share, waiting[count]!)
    }
    this.#before.set(account, count)
    return count
  }

  #accountOf({ rare }: LeaseState): PoolAccount {
    return this.#pool.accounts.get(rare!.pool!.account)!
  }

  #compare(share: Share): number {
    return compareShares(share, this.#share, this.#isPreempting)
  }

  #next(share: Share, waiter: LeaseState): Share {
    return shareAfter(share, askedUnits(this.#pool, waiter.rare!.pool!), this.#penalty, this.#halfLife)
  }
}

function placeIn(waiting: readonly LeaseState[], { rare, id }: LeaseState): number {
  return place(waiting, rare!.rank, id)
}
