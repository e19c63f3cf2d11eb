/** The order in which the waiters of a pool are served if each of them fits. */
import { Heap } from '../../heap.ts'
import { insertionIndex, standsBefore } from '../../state/order.ts'
import { hasAccountQuotas } from '../../state/quota-counts.ts'
import type { LeaseState, PoolAccount, PoolClaim, PoolState, State } from '../../state.ts'
import { rule } from '../policy.ts'
import { hasUsedWeek, preempts, quotaOf, shareHalfLife, shareOf } from './account.ts'
import { isPossible } from './choice.ts'
import { matches } from './condition.ts'
import { kindBeyond } from './kind.ts'
import { type QuotaStanding, standingWith } from './quota.ts'
import { isReserved } from './reservation.ts'
import { compareShares, penaltyOf, type Share } from './share.ts'

/** Returns whether the turns of the pool are planned (plan.ts): accounts have quotas, or it has shares, backfill or preemption. */
export function isPlanned(state: State, pool: PoolState): boolean {
  const queue = rule(state, pool.name, 'queue')
  return queue === 'backfill' || queue === 'fair' || preempts(state, pool) || hasAccountQuotas(state)
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

/** Where the account of a request would stand with its quotas, if the request were granted, and one of the same account before it (`before`). */
export function standingOf(state: State, pool: PoolState, claim: PoolClaim, before?: PoolClaim): QuotaStanding {
  if (!hasAccountQuotas(state)) return 'within'
  const { account: name } = claim
  const account = pool.accounts.get(name)
  const claims = before === undefined ? [claim] : [before, claim]
  const units = claims.reduce((sum, each) => sum + askedUnits(pool, each), 0)
  const standing = standingWith(quotaOf(state, pool, account ?? { name, held: 0 }), units)
  const isOver =
    standing === 'over' || hasUsedWeek(state, pool, name) || kindBeyond(state, pool, name, claims, account?.kinds) !== undefined
  return isOver ? 'over' : standing
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
 * A fair queue compares accounts in this way:
 *
 * - Reservations stand before all other waiters, whatever their accounts have used, because the pool kept members free for them.
 * - A waiter that cannot be served now (its window is ahead, the members do not suffice, its quota is used up) adds nothing to the share of its account.
 *   Otherwise the next waiters of the account would be put back for a grant that did not happen.
 */
class FairQueue {
  readonly state: State
  readonly pool: PoolState
  readonly preempts: boolean
  readonly #halfLife: number
  readonly #penalty: number
  /** The number of reservations that wait. Mostly none, and then no account has to be asked. */
  readonly reserved: number

  constructor(state: State, pool: PoolState) {
    this.state = state
    this.pool = pool
    this.preempts = preempts(state, pool)
    this.#halfLife = shareHalfLife(state, pool)
    this.#penalty = rule(state, pool.name, 'sharePenalty')
    this.reserved = reservationsIn(pool.queue)
  }

  /** Returns how many reservations wait for an account. They are its first waiters. */
  reservations({ waiting }: PoolAccount): number {
    return this.reserved === 0 ? 0 : reservationsIn(waiting)
  }

  /** The share of an account after its first waiters, which are reservations. */
  shareOf(account: PoolAccount, reservations: number): Share {
    let share = shareOf(this.state, this.pool, account, this.#halfLife)
    for (let at = 0; at < reservations; at++) share = this.shareAfter(share, account.waiting[at]!)
    return share
  }

  /** The share of an account after one of its waiters was served. It never stands better than before. */
  shareAfter(share: Share, waiter: LeaseState): Share {
    const claim = waiter.extras!.pool!
    const units = askedUnits(this.pool, claim)
    if (!this.#mayBeServed(claim)) return { ...share }
    const { usage, held, weight } = share
    return { usage: usage + penaltyOf(units, this.#penalty, this.#halfLife), held: held + units, weight }
  }

  #mayBeServed(claim: PoolClaim): boolean {
    const { state, pool } = this
    if (isReserved(state, claim) || !isPossible(pool, claim)) return false
    return standingOf(state, pool, claim) === 'within'
  }
}

/**
 * Each time the account comes first that holds or has used least, as if all waiters given before had been served.
 *
 * No account stands before those that have nothing and used nothing, and they come in the order of their first waiters, which is that of the queue. So only
 * one of them is compared at a time: in a queue of ten thousand newcomers, the first is found without looking at the rest.
 */
function* byShare(state: State, pool: PoolState): Generator<LeaseState, void, void> {
  const fair = new FairQueue(state, pool)
  const { reserved } = fair
  for (let at = 0; at < reserved; at++) yield pool.queue[at]!
  const heap = new Heap<AccountTurn>((one, other) => {
    const order = compareShares(one.share, other.share, fair.preempts)
    return order < 0 || (order === 0 && standsBefore(one.account.waiting[one.next]!, other.account.waiting[other.next]!))
  })
  let untouched = 0
  for (const account of pool.accounts.values()) {
    const next = fair.reservations(account)
    if (next === account.waiting.length) continue
    if (next === 0 && hasNothing(account)) untouched++
    else heap.add({ account, share: fair.shareOf(account, next), next })
  }
  let at = reserved
  const addUntouched = (): void => {
    for (; untouched > 0; at++) {
      const account = pool.accounts.get(pool.queue[at]!.extras!.pool!.account)!
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
    turn.share = fair.shareAfter(share === NOTHING ? fair.shareOf(account, 0) : share, waiter)
    heap.add(turn)
  }
}

/**
 * Where one waiter of a fair queue stands in the order of `byShare`, counted instead of sorted: shares only grow along the waiters of an account, so the waiters
 * of each account that stand before it are its first ones. Of an account with a single waiter that has nothing and used nothing, which most accounts of a
 * long queue are, not even that waiter is looked at.
 */
export class ShareStanding {
  readonly #fair: FairQueue
  readonly #waiter: LeaseState
  readonly #isReservation: boolean
  readonly #share: Share
  /** By account: how many of its waiters stand before this one. */
  readonly #before = new Map<PoolAccount, number>()

  constructor(state: State, pool: PoolState, waiter: LeaseState) {
    this.#fair = new FairQueue(state, pool)
    this.#waiter = waiter
    const account = this.#accountOf(waiter)
    const { waiting } = account
    const place = placeIn(waiting, waiter)
    const reservations = this.#fair.reservations(account)
    this.#isReservation = place < reservations
    this.#before.set(account, place)
    let share = this.#fair.shareOf(account, Math.min(place, reservations))
    for (let at = reservations; at < place; at++) share = this.#fair.shareAfter(share, waiting[at]!)
    this.#share = share
  }

  /** Returns how many waiters stand before it. */
  get position(): number {
    const { accounts, queue } = this.#fair.pool
    const own = this.#accountOf(this.#waiter)
    const arrived = placeIn(queue, this.#waiter)
    if (this.#isReservation) return arrived
    let position = this.#before.get(own)!
    let [single, counted] = [0, position]
    for (const account of accounts.values()) {
      if (account === own || account.waiting.length === 0) continue
      if (account.waiting.length === 1 && hasNothing(account) && this.#fair.reservations(account) === 0) single++
      else {
        position += this.#countBefore(account)
        counted += placeIn(account.waiting, this.#waiter)
      }
    }
    // Those that have nothing go before all that have something, and among themselves in the order of arrival.
    return position + (this.#compare(NOTHING) < 0 ? single : arrived - counted)
  }

  /** Returns whether another waiter stands before it. */
  isAfter(other: LeaseState): boolean {
    if (this.#isReservation) return standsBefore(other, this.#waiter)
    const account = this.#accountOf(other)
    return placeIn(account.waiting, other) < this.#countBefore(account)
  }

  #countBefore(account: PoolAccount): number {
    const known = this.#before.get(account)
    if (known !== undefined) return known
    const { waiting } = account
    let count = this.#fair.reservations(account)
    let share = this.#fair.shareOf(account, count)
    for (; count < waiting.length; count++) {
      const order = this.#compare(share)
      if (order > 0 || (order === 0 && standsBefore(this.#waiter, waiting[count]!))) break
      share = this.#fair.shareAfter(share, waiting[count]!)
    }
    this.#before.set(account, count)
    return count
  }

  #accountOf({ extras }: LeaseState): PoolAccount {
    return this.#fair.pool.accounts.get(extras!.pool!.account)!
  }

  #compare(share: Share): number {
    return compareShares(share, this.#share, this.#fair.preempts)
  }
}

/** Waiters are in the order of their ranks, and reservations stand before all others. */
function reservationsIn(waiting: readonly LeaseState[]): number {
  let count = 0
  while (count < waiting.length && waiting[count]!.extras!.pool!.from > 0) count++
  return count
}

function placeIn(waiting: readonly LeaseState[], { extras, id }: LeaseState): number {
  return insertionIndex(waiting, extras!.rank, id)
}
