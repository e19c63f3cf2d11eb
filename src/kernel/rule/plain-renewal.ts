/**
 * Plain renewals: they restart the terms of leases, and change nothing that another process needs to know for its own leases. So a process may append its renewal
 * behind plain renewals that it has not read, and knows the answer (replica/passing.ts).
 */
import type { Proposal } from '../command.ts'
import type { Outcome } from '../outcome.ts'
import { findLease, UNCLAIMED } from '../state/leases.ts'
import { FIRST_TERM, type LeaseState, LIVE, type State, WAITING } from '../state.ts'
import { mayRenew } from './authority.ts'
import { MAX_RENEWALS } from './renew.ts'

/**
 * Returns whether processes that have not read it may append their renewals behind it. It may not give a term that is longer than a process could know: a survivor of a
 * loss would not cover it.
 */
export function isPlainRenewal(state: State, { command, op }: Proposal): boolean {
  if (command.kind !== 'renew' || command.ttl !== undefined || op !== undefined) return false
  if (state.moved !== undefined || state.quiet !== undefined || command.leases.length > MAX_RENEWALS) return false
  return command.leases.every(id => isRenewedPlainly(findLease(state, id)))
}

function isRenewedPlainly(lease: LeaseState | undefined): boolean {
  if (lease === undefined || lease.key === UNCLAIMED || lease.extras?.open === true) return false
  return lease.status === LIVE || lease.status === WAITING ? lease.confirmed || lease.ttl <= FIRST_TERM : false
}

/** The answer to a plain renewal behind any number of others; undefined if it is not certain in this state. */
export function plainRenewalAnswer(state: State, proposal: Proposal): Outcome | undefined {
  const { command, key = 0 } = proposal
  if (command.kind !== 'renew' || command.waiting === true || !isPlainRenewal(state, proposal)) return undefined
  const ttls: number[] = []
  for (const id of command.leases) {
    const lease = findLease(state, id)!
    if (lease.status !== LIVE || !lease.confirmed || !mayRenew(state, key, lease)) return undefined
    ttls.push(lease.ttl)
  }
  return { kind: 'renewed', revision: state.revision, ttls }
}
