/** The leases that hold members of pools, and what their accounts hold. */
import { accountOf, dropAccountIfIdle, dropPoolIfIdle, poolOf } from '../../state/pools.ts'
import type { Grant, LeaseState, State } from '../../state.ts'

/** The lease was granted members. */
export function addHolder(state: State, lease: LeaseState): void {
  const claim = lease.rare!.pool!
  const pool = poolOf(state, claim.pool)
  pool.holders.add(lease)
  const account = accountOf(pool, claim.account)
  account.leases++
  for (const { units } of lease.grants) account.held += units
}

/** The lease gives back one grant; with the last one it leaves the pool. Call after the grant was removed from the lease. */
export function returnMember(state: State, { lease, units }: Grant, isLast: boolean): void {
  const claim = lease.rare!.pool!
  const pool = state.pools.get(claim.pool)!
  const account = pool.accounts.get(claim.account)!
  account.held -= units
  if (!isLast) return
  pool.holders.delete(lease)
  account.leases--
  dropAccountIfIdle(pool, account)
  dropPoolIfIdle(state, pool)
}
