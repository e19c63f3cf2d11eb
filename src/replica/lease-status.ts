/** The status of a lease, as readers see it. */
import { FROZEN, type LeaseState, LIVE, WAITING } from '../kernel/state.ts'
import type { LeaseStatus } from '../lessor.ts'

export function statusOf(lease: LeaseState): LeaseStatus {
  if (lease.status === LIVE) return 'live'
  return lease.status === WAITING ? 'waiting' : lease.status === FROZEN ? 'frozen' : 'suspect'
}
