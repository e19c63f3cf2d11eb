/** Renewals that the owner of a log keeps in memory, where the timekeeper allows it. The others are written. */
import { GONE } from '../kernel/outcome.ts'
import { mayRenew } from '../kernel/rule/authority.ts'
import { findLease } from '../kernel/state/leases.ts'
import type { State } from '../kernel/state.ts'
import type { Timekeeper } from './timekeeper.ts'

export interface RenewedInMemory {
  /** 0 stands for each lease in `logged`. */
  readonly ttls: number[]
  /** The leases whose renewal must be written. */
  readonly logged: number[]
}

export function renewInMemory(state: State, timekeeper: Timekeeper, leases: readonly number[], key: number): RenewedInMemory {
  const ttls: number[] = []
  const logged: number[] = []
  const now = timekeeper.now()
  for (const id of leases) {
    const lease = findLease(state, id)
    if (lease === undefined || !mayRenew(state, key, lease)) ttls.push(GONE)
    else if (timekeeper.renewInMemory(lease, now)) ttls.push(lease.ttl)
    else {
      ttls.push(0)
      logged.push(id)
    }
  }
  return { ttls, logged }
}
