/** The order in which the waiters of a pool are served if each of them fits. */
import { Heap } from '../../heap.ts'
import { standsBefore } from '../../state/order.ts'
import { hasUnitQuotas } from '../../state/quota-counts.ts'
import type { LeaseState, PoolClaim, PoolState, State } from '../../state.ts'
import { rule } from '../policy.ts'
import { entryPenalty, preempts, shareOf } from './account.ts'
import { matches } from './condition.ts'
import { compareShares, type Share } from './share.ts'

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

/** The waiters of an account, and how it would stand if those before `next` had been served. */
interface AccountTurn {
  readonly waiters: LeaseState[]
  share: Share
  next: number
}

/** Each time the account comes first that holds or has used least, as if all waiters given before had been served. */
function* byShare(state: State, pool: PoolState): Generator<LeaseState, void, void> {
  const isPreempting = preempts(state, pool)
  const accounts = new Map<string, AccountTurn>()
  for (const waiter of pool.queue) {
    const { account: name } = waiter.rare!.pool!
    const known = accounts.get(name)
    if (known === undefined) {
      accounts.set(name, { waiters: [waiter], share: shareOf(state, pool, pool.accounts.get(name)!), next: 0 })
    } else known.waiters.push(waiter)
  }
  const heap = new Heap<AccountTurn>((one, other) => {
    const order = compareShares(one.share, other.share, isPreempting)
    return order < 0 || (order === 0 && standsBefore(one.waiters[one.next]!, other.waiters[other.next]!))
  })
  for (const turn of accounts.values()) heap.add(turn)
  for (let turn = heap.take(); turn !== undefined; turn = heap.take()) {
    const waiter = turn.waiters[turn.next++]!
    yield waiter
    if (turn.next === turn.waiters.length) continue
    const units = askedUnits(pool, waiter.rare!.pool!)
    const { usage, held, weight } = turn.share
    turn.share = { usage: usage + entryPenalty(state, pool, units), held: held + units, weight }
    heap.add(turn)
  }
}
