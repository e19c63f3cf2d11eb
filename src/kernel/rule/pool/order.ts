/** The order in which the waiters of a pool are served if each of them fits. */
import { Heap } from '../../heap.ts'
import { standsBefore } from '../../state/order.ts'
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
    if (account.usage === 0 && account.held === 0) untouched++
    else heap.add({ account, share: shareOf(state, pool, account, halfLife), next: 0 })
  }
  let at = 0
  const addUntouched = (): void => {
    for (; untouched > 0; at++) {
      const account = pool.accounts.get(pool.queue[at]!.rare!.pool!.account)!
      if (account.usage !== 0 || account.held !== 0 || account.waiting[0] !== pool.queue[at]) continue
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
    const units = askedUnits(pool, waiter.rare!.pool!)
    const weight = share === NOTHING ? shareOf(state, pool, account, halfLife).weight : share.weight
    turn.share = { usage: share.usage + penaltyOf(units, penalty, halfLife), held: share.held + units, weight }
    heap.add(turn)
  }
}
