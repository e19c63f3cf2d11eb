/**
 * The plan of a turn, for pools with quotas of accounts, fair shares, backfill or preemption: which waiter is granted next, which members it gets, and which
 * waiters are blocked.
 *
 * Waiters are tried in order. One that does not fit is blocked, and others go past it only as far as that cannot delay it:
 *
 * - on members that no blocked waiter before them could use, in every queue but `fifo`;
 * - in a `backfill` queue also on other members, if they will probably end before the first blocked waiter starts, or may be preempted. Their leases yield.
 *
 * A waiter does not go past one of its own account that would be over its quota then.
 *
 * Waiters that would borrow come after all waiters within their quotas, and take only members that no blocked waiter could use. A waiter that is over its
 * quota, or that the present members could never serve, is passed over and blocks no other.
 */
import type { PolicyRules } from '../../command.ts'
import { standsBefore } from '../../state/order.ts'
import { FROZEN, type LeaseState, type PoolClaim, type PoolShape, type PoolState, type State } from '../../state.ts'
import type { WantedResource } from '../applicant.ts'
import { rule } from '../policy.ts'
import { BACKFILL_DEPTH, expectedEnd, expectedStart, mayOvertake } from './backfill.ts'
import { type Candidate, choose } from './choice.ts'
import { matches } from './condition.ts'
import { inOrder, standingOf } from './order.ts'
import { outlookOf } from './outlook.ts'
import { type WindowBudget, WindowsAhead } from './reservation.ts'

/** The most waiters that leases are preempted for in one turn. */
const MAX_BLOCKED = 64

type QueueKind = Required<PolicyRules>['queue']

export interface PlannedGrant {
  readonly waiter: LeaseState
  readonly chosen: readonly WantedResource[]
  /** It overtakes a waiter that could use the same members. */
  readonly yields: boolean
}

export interface TurnPlan {
  /** Undefined: no waiter can be granted now. */
  readonly next: PlannedGrant | undefined
  /** Waiters that do not fit, in order; equal needs are listed once. The first one is the head of the queue. */
  readonly blocked: readonly LeaseState[]
}

/** The leases that will end soon without any further decision: frozen ones, and those under notice. */
export function endingSoon({ holders, noticed }: PoolState): LeaseState[] {
  const ending: LeaseState[] = []
  for (const lease of holders) if (lease.status === FROZEN || noticed.has(lease)) ending.push(lease)
  return ending
}

/** `isOut`: waiters that cannot be served in this turn for reasons of their own. They block like one that does not fit. `isPassed`: they block no other. */
export function planTurn(
  state: State,
  pool: PoolState,
  isOut: (waiter: LeaseState) => boolean,
  isPassed: (waiter: LeaseState) => boolean,
  budget: WindowBudget,
): TurnPlan {
  const queue = rule(state, pool.name, 'queue')
  const walk = new Walk(state, pool, budget)
  const borrowers: LeaseState[] = []
  for (const waiter of inOrder(state, pool)) {
    if (isPassed(waiter)) continue
    const claim = waiter.extras!.pool!
    const standing = standingOf(state, pool, claim)
    if (standing === 'over') continue
    if (standing === 'borrowed') {
      borrowers.push(waiter)
      continue
    }
    if (!walk.mayGoOn(queue)) break
    const trial = isOut(waiter) ? undefined : walk.try(waiter, queue)
    if (trial === undefined) {
      walk.block(waiter)
      continue
    }
    return { next: trial, blocked: walk.blocked }
  }
  const { blocked } = walk
  const waiting = [...blocked]
  for (const borrower of borrowers) {
    const chosen = isOut(borrower) ? undefined : walk.chooseApart(borrower)
    if (chosen !== undefined) return { next: { waiter: borrower, chosen, yields: false }, blocked: waiting }
    if (queue === 'fifo' || !walk.mayGoOn(queue)) break
    walk.block(borrower)
  }
  return { next: undefined, blocked: waiting }
}

/** Returns what a waiter would get. In one turn, a request that does not fit is tried once for all waiters with equal needs that stay as long or longer. */
export function offerOnce(ahead: WindowsAhead, turn: number, { extras }: LeaseState): readonly WantedResource[] | undefined {
  const { pool: claim, maxLife } = extras!
  const shape = claim!.shape!
  const before = ahead.before(maxLife)
  if (shape.failed === turn && before >= shape.failedBefore) return undefined
  const chosen = ahead.offer(claim!, maxLife)
  if (chosen === undefined) Object.assign(shape, { failed: turn, failedBefore: before })
  return chosen
}

/** A turn has gone this far, and blocked waiters leave this for others. */
class Walk {
  readonly #state: State
  readonly #pool: PoolState
  readonly blocked: LeaseState[] = []
  readonly #shapes = new Set<PoolShape>()
  readonly #turn: number
  readonly #budget: WindowBudget
  readonly #ahead: WindowsAhead
  /** Free members that no blocked waiter could use. */
  #apart: readonly Candidate[]
  #tried = 0
  /** The expected start of the head; undefined: not computed yet. */
  #start: { readonly at: number | undefined; readonly imminent: boolean } | undefined

  constructor(state: State, pool: PoolState, budget: WindowBudget) {
    this.#state = state
    this.#pool = pool
    this.#turn = ++pool.turn
    this.#budget = budget
    this.#ahead = new WindowsAhead(state, pool, { budget })
    this.#apart = pool.free
  }

  /** Returns whether waiters behind the blocked ones may be tried. */
  mayGoOn(queue: QueueKind): boolean {
    if (this.blocked.length === 0) return true
    if (this.#budget.isSpent) return false
    if (queue === 'fifo') return false
    if (queue === 'backfill') return this.#tried < BACKFILL_DEPTH
    return queue === 'fit' ? this.#pool.free.length > 0 || this.blocked.length < MAX_BLOCKED : this.#apart.length > 0
  }

  /** The members that a waiter may have now. */
  try(waiter: LeaseState, queue: QueueKind): PlannedGrant | undefined {
    const claim = waiter.extras!.pool!
    if (this.blocked.length === 0 || queue === 'fit') {
      const chosen = offerOnce(this.#ahead, this.#turn, waiter)
      return chosen && { waiter, chosen, yields: false }
    }
    this.#tried++
    if (this.#pool.free.length === 0 || this.#usesUpQuota(claim)) return undefined
    const apart = this.chooseApart(waiter)
    if (apart !== undefined) return { waiter, chosen: apart, yields: false }
    if (queue !== 'backfill' || this.#isTooLong(claim)) return undefined
    const chosen = this.#ahead.offer({ ...claim, yields: true }, waiter.extras!.maxLife)
    return chosen && { waiter, chosen, yields: true }
  }

  /** Of the members that no blocked waiter could use. */
  chooseApart({ extras }: LeaseState): readonly WantedResource[] | undefined {
    const chosen = this.#apart.length === 0 ? undefined : choose(this.#apart, extras!.pool!)
    return chosen !== undefined && this.#ahead.leaves(extras!.maxLife, chosen) ? chosen : undefined
  }

  block(waiter: LeaseState): void {
    const claim = waiter.extras!.pool!
    const shape = claim.shape!
    if (this.#shapes.has(shape)) return
    this.#shapes.add(shape)
    if (this.blocked.length < MAX_BLOCKED) this.blocked.push(waiter)
    this.#apart = this.#apart.filter(({ labels }) => !matches(labels, claim.match))
  }

  /**
   * Returns whether a blocked waiter of the same account would be over its quota if this request were granted. It would be delayed then, and a lease that yields to
   * it would be preempted at once, only to overtake again.
   */
  #usesUpQuota(claim: PoolClaim): boolean {
    return this.blocked.some(({ extras }) => {
      const blocked = extras!.pool!
      return blocked.account === claim.account && standingOf(this.#state, this.#pool, blocked, claim) !== 'within'
    })
  }

  #isTooLong(claim: PoolClaim): boolean {
    this.#start ??= headStart(this.#state, this.#pool, this.blocked[0]!)
    return this.#start.imminent || !mayOvertake(claim, this.#state.elapsed, this.#start.at)
  }
}

/**
 * When the head of a `backfill` queue is expected to start. `imminent`: it starts as soon as leases end that are frozen, under notice, or yield to it. No
 * waiter may take members away from it any more; otherwise each could make it wait for the next one.
 */
function headStart(state: State, pool: PoolState, head: LeaseState): { readonly at: number | undefined; readonly imminent: boolean } {
  const outlook = outlookOf(state, pool, head.extras!.pool!)
  const soon = new Set(endingSoon(pool))
  for (const lease of pool.holders) if (yieldsTo(lease, head)) soon.add(lease)
  if (outlook.fits(soon)) return { at: state.elapsed, imminent: true }
  const running = [...pool.holders]
    .filter(lease => !soon.has(lease))
    .map(lease => {
      const { start, expect } = lease.extras!.pool!
      return { lease, ends: expectedEnd(start, expect, lease.extras!.maxLife, state.elapsed) }
    })
  const at = expectedStart(running, state.elapsed, ended => outlook.fits([...soon, ...ended.map(({ lease }) => lease)]))
  return { at, imminent: false }
}

/** Returns whether a lease overtook this waiter, or one that stood where it stands. */
export function yieldsTo(lease: LeaseState, waiter: LeaseState): boolean {
  return lease.extras!.pool!.yields && standsBefore(waiter, lease)
}
