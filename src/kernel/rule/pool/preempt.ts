/**
 * Preemption with notice: leases that make room for a waiter are recalled, have `preemptNotice` to stop, and are revoked then. If the waiter goes away or fits
 * without them, the notice is taken back.
 *
 * Who makes room for whom:
 *
 * - a lease that overtook (`yields`) for a waiter that stood before it, at any time;
 * - a preemptible lease for a waiter of higher priority;
 * - a lease that borrows for a waiter within its quota, while its account holds more than its own quota;
 * - in a `fair` queue, a preemptible lease for a waiter whose account has less (`mayExchange` in share.ts).
 *
 * The last three need the policy `preempt: marked`, `minHold` since the grant, and a priority that is not above the waiter's.
 *
 * Why it cannot go round in circles: a lease that was granted to a head of the queue does not yield. Of two priorities one is higher, and no other rule
 * preempts against it. A waiter within its quota does not borrow. An exchange between accounts cannot be reversed before the taker has used up its lead. So
 * each notice is for a waiter that is ahead in one of these orders, and as many notices are given for one grant as it has victims.
 */
import { descendsFrom, extrasOf, findLease, touch } from '../../state/leases.ts'
import { FROZEN, type LeaseState, type PoolState, PREEMPT, type State, WAITING } from '../../state.ts'
import { cancelTimer, type Effects, emit, startTimer } from '../effects.ts'
import { end } from '../end.ts'
import { rule } from '../policy.ts'
import { accountName, entryPenalty, preempts, refundOf, shareOf } from './account.ts'
import { matches } from './condition.ts'
import { endNotice } from './holders.ts'
import { askedUnits } from './order.ts'
import { type Outlook, outlookOf } from './outlook.ts'
import { endingSoon, yieldsTo } from './plan.ts'
import { mayExchange, type Share } from './share.ts'
import { chooseVictims } from './victims.ts'

/** Returns whether leases of this pool can be preempted at all. */
function mayPreempt(state: State, pool: PoolState): boolean {
  return preempts(state, pool) || rule(state, pool.name, 'queue') === 'backfill'
}

/** After a turn: takes back notices that are not needed any more, and gives notices for the waiters that are blocked. The caller settles. */
export function reviewNotices(state: State, effects: Effects, pool: PoolState, blocked: readonly LeaseState[]): void {
  takeBack(state, effects, pool)
  if (!mayPreempt(state, pool)) return
  const waiters = [...upcoming(state, pool), ...blocked]
  if (waiters.length === 0) return
  const soon = endingSoon(pool)
  const byAge = [...pool.holders].map(lease => ({ lease, token: tokenOf(lease) })).sort((a, b) => b.token - a.token)
  const young = byAge.map(({ lease }) => lease)
  // A waiter behind others does not preempt leases on members that they could use: it would preempt for them.
  let members = [...pool.members.values()]
  for (const waiter of waiters) {
    if (members.length === 0) return
    const { match } = waiter.extras!.pool!
    const there = members
    members = members.filter(({ labels }) => !matches(labels, match))
    if (waiter.status !== WAITING || findLease(state, waiter.id) !== waiter) continue // it has ended with a lease that was preempted for another
    const outlook = outlookOf(state, pool, waiter.extras!.pool!, there)
    if (outlook.fits(soon)) continue
    const candidates = victimsFor(state, pool, waiter, young)
      .map(lease => ({ lease, token: tokenOf(lease), units: outlook.useful(lease) }))
      .filter(({ units }) => units > 0)
    if (candidates.length === 0) continue
    const victims = chooseVictims(candidates, ended => outlook.fits([...soon, ...[...ended].map(({ lease }) => lease)]))
    for (const { lease } of victims ?? []) {
      giveNotice(state, effects, pool, lease, waiter)
      soon.push(lease)
    }
  }
}

/** Reservations whose window begins within the notice: leases that yield are told now, so that they are gone then. */
function upcoming(state: State, pool: PoolState): readonly LeaseState[] {
  if (pool.reserved.size === 0) return []
  const notice = rule(state, pool.name, 'preemptNotice')
  return [...pool.reserved]
    .filter(({ extras }) => extras!.pool!.from - state.elapsed <= notice)
    .sort((a, b) => a.extras!.rank - b.extras!.rank || a.id - b.id)
}

/** The newest of its tokens: higher is younger. */
function tokenOf({ grants }: LeaseState): number {
  return grants.reduce((newest, { token }) => Math.max(newest, token), 0)
}

function unitsHeld({ grants }: LeaseState): number {
  return grants.reduce((sum, { units }) => sum + units, 0)
}

/**
 * The leases that may be preempted for a waiter, the youngest first. All of them together may be: what each account loses is summed up. `young`: the holders,
 * the youngest first.
 */
function victimsFor(state: State, pool: PoolState, waiter: LeaseState, young: readonly LeaseState[]): readonly LeaseState[] {
  const isMarked = preempts(state, pool)
  const isFair = isMarked && rule(state, pool.name, 'queue') === 'fair'
  const minHold = rule(state, pool.name, 'minHold')
  const { pool: claim, priority } = waiter.extras!
  const units = askedUnits(pool, claim!)
  const penalty = entryPenalty(state, pool, units)
  const taker = shareOf(state, pool, pool.accounts.get(claim!.account)!)
  const givers = new Map<string, { readonly share: Share; readonly quota: number; lost: number; refund: number }>()
  const giverOf = (name: string) => {
    let giver = givers.get(name)
    if (giver === undefined) {
      const share = shareOf(state, pool, pool.accounts.get(name)!)
      giver = { share, quota: rule(state, accountName(pool, name), 'quotaUnits'), lost: 0, refund: 0 }
      givers.set(name, giver)
    }
    return giver
  }
  const lose = (lease: LeaseState): void => {
    const giver = giverOf(lease.extras!.pool!.account)
    giver.lost += unitsHeld(lease)
    giver.refund += refundOf(state, pool, lease.extras!.pool!, unitsHeld(lease))
  }
  // Those under notice are lost to their accounts already.
  for (const lease of pool.noticed) lose(lease)

  function isVictim(lease: LeaseState): boolean {
    const theirs = lease.extras!.pool!
    if (yieldsTo(lease, waiter)) return true
    if (!isMarked || state.elapsed - theirs.start < minHold || lease.extras!.priority > priority) return false
    if (theirs.preemptible && priority > lease.extras!.priority) return true
    if (theirs.account === claim!.account) return false
    const { share, quota, lost, refund: before } = giverOf(theirs.account)
    const held = share.held - lost
    if (theirs.borrows && held > quota) return true
    if (!isFair || !theirs.preemptible) return false
    const loses = unitsHeld(lease)
    const refund = before + refundOf(state, pool, theirs, loses)
    return mayExchange({ taker, giver: { ...share, held }, units, loses, refund, penalty })
  }

  const found: LeaseState[] = []
  for (const lease of young) {
    if (!pool.holders.has(lease) || !(isMarked || lease.extras!.pool!.yields) || lease.status === FROZEN) continue
    if (pool.noticed.has(lease) || descendsFrom(waiter, lease.id) || !isVictim(lease)) continue
    lose(lease)
    found.push(lease)
  }
  return found
}

function giveNotice(state: State, effects: Effects, pool: PoolState, lease: LeaseState, waiter: LeaseState): void {
  const notice = rule(state, pool.name, 'preemptNotice')
  const by = waiter.holder.name
  touch(state, lease)
  const extras = extrasOf(lease)
  for (const { resource, token } of lease.grants)
    emit(state, effects, 'recalled', lease, { resource: resource.name, token, cause: 'preempt', by, value: String(notice) })
  extras.recalled = true
  if (notice === 0) return end(state, effects, lease, { type: 'revoked', cause: 'preempted', by, stopped: false }, state.freed)
  extras.pool!.notice = waiter.id
  pool.noticed.add(lease)
  startTimer(state, effects, lease, PREEMPT, notice)
}

/** The notice has run out: the deadline is hard. */
export function preemptionDue(state: State, effects: Effects, lease: LeaseState): void {
  const { pool: name, notice } = lease.extras!.pool!
  const waiter = findLease(state, notice)
  // Turns review the notices of holders. A lease that was passed on, and waits until the giver has stopped, is none yet.
  if (lease.status === WAITING && !isWaitingFor(waiter, name)) return spare(state, effects, lease)
  const by = waiter?.holder.name ?? ''
  end(state, effects, lease, { type: 'revoked', cause: 'preempted', by, stopped: false }, state.freed)
}

/** Takes back the notices for waiters that are gone, and those that their waiters do not need any more: the oldest lease is spared first. */
function takeBack(state: State, effects: Effects, pool: PoolState): void {
  if (pool.noticed.size === 0) return
  const noticed = [...pool.noticed].sort((a, b) => tokenOf(a) - tokenOf(b))
  const outlooks = new Map<LeaseState, Outlook>()
  for (const lease of noticed) {
    const waiter = findLease(state, lease.extras!.pool!.notice)
    if (isWaitingFor(waiter, pool.name)) {
      const outlook = outlooks.get(waiter) ?? outlookOf(state, pool, waiter.extras!.pool!)
      outlooks.set(waiter, outlook)
      if (!outlook.fits(endingSoon(pool).filter(other => other !== lease))) continue
    }
    spare(state, effects, lease)
  }
}

/** Returns whether the waiter of a notice still waits for members of the pool. */
function isWaitingFor(waiter: LeaseState | undefined, pool: string): waiter is LeaseState {
  return waiter?.status === WAITING && waiter.extras!.pool?.pool === pool
}

function spare(state: State, effects: Effects, lease: LeaseState): void {
  touch(state, lease)
  endNotice(state, lease)
  lease.extras!.recalled = false
  cancelTimer(effects, lease, PREEMPT)
  for (const { resource, token } of lease.grants) emit(state, effects, 'kept', lease, { resource: resource.name, token, cause: 'preempt' })
}
