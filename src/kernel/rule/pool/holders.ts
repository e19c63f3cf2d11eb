/** The leases that hold members of pools, and what their accounts hold. */
import { accountOf, dropAccountIfIdle, dropPoolIfIdle, poolOf } from '../../state/pools.ts'
import type { Grant, LeaseState, State } from '../../state.ts'
import { bringUpToDate, chargeGrant, quotaOf, refundGrant } from './account.ts'
import { countKind } from './kind.ts'
import { markPool } from './member.ts'
import { isPlanned } from './order.ts'
import { standingWith } from './quota.ts'

/** The lease was granted members: its account uses them from now on. */
export function beginHolding(state: State, lease: LeaseState): void {
  const claim = lease.extras!.pool!
  const pool = poolOf(state, claim.pool)
  const units = lease.grants.reduce((sum, grant) => sum + grant.units, 0)
  // A lease that was transferred goes on: it is as old as before, and was charged before.
  if (claim.start === 0) {
    claim.start = state.elapsed
    claim.borrows = standingWith(quotaOf(state, pool, accountOf(pool, claim.account)), units) === 'borrowed'
    chargeGrant(state, pool, claim, units)
  } else bringUpToDate(state, pool, accountOf(pool, claim.account))
  addHolder(state, lease)
  // It was passed on while it was under notice. The waiter that the notice is for may have gone before the giver stopped.
  if (claim.notice !== 0) markPool(state, pool)
}

/** Lists a lease that holds members. */
export function addHolder(state: State, lease: LeaseState): void {
  const claim = lease.extras!.pool!
  const pool = poolOf(state, claim.pool)
  pool.holders.add(lease)
  if (claim.notice !== 0) pool.noticed.add(lease)
  const account = accountOf(pool, claim.account)
  account.leases++
  for (const grant of lease.grants) {
    account.held += grant.units
    countKind(grant, grant.resource.member, 1)
  }
}

/** The lease gives back one grant; with the last one it leaves the pool. Call after the grant was removed from the lease. */
export function returnMember(state: State, grant: Grant, isLast: boolean): void {
  const { lease, resource, units } = grant
  const claim = lease.extras!.pool!
  const pool = state.pools.get(claim.pool)!
  const account = pool.accounts.get(claim.account)!
  if (!claim.passedOn) refundGrant(state, pool, claim, units)
  else bringUpToDate(state, pool, account)
  account.held -= units
  countKind(grant, resource.member, -1)
  // Even if the member itself cannot be given out (it is gone, its offer is suspect), a waiter of the account may be within its quota now and fit elsewhere.
  if (isPlanned(state, pool)) markPool(state, pool)
  if (!isLast) return
  pool.holders.delete(lease)
  pool.noticed.delete(lease)
  account.leases--
  dropAccountIfIdle(pool, account)
  dropPoolIfIdle(state, pool)
}

/** The lease has ended: from now on its holder knows, or its term runs out. A notice has no effect any more. */
export function endNotice(state: State, lease: LeaseState): void {
  const { extras } = lease
  if (extras?.pool === undefined || extras.pool.notice === 0) return
  extras.pool.notice = 0
  state.pools.get(extras.pool.pool)?.noticed.delete(lease)
}
