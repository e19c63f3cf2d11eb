/**
 * The use of each key and each group of keys is counted as it changes: a check costs the same for a key with one lease and for a key with a million.
 *
 * The use of a revoked key is still counted, since its leases run out later; its group no longer counts it.
 */
import type { KeyUse } from '../command.ts'
import { type ApiKey, type LeaseState, type State, WAITING } from '../state.ts'
import { entryBytes } from './free-entries.ts'

export function noUse(): KeyUse {
  return { leases: 0, waiters: 0, entries: 0, bytes: 0 }
}

function add(to: KeyUse, { leases, waiters, entries, bytes }: KeyUse, sign: 1 | -1): void {
  to.leases += sign * leases
  to.waiters += sign * waiters
  to.entries += sign * entries
  to.bytes += sign * bytes
}

function change(state: State, key: number, use: KeyUse, sign: 1 | -1): void {
  if (key === 0) return
  const group = state.keys.get(key)?.group
  if (group !== undefined) add(state.groups.get(group)!.use, use, sign)
  const known = state.keyUse.get(key)
  const sum = known ?? noUse()
  add(sum, use, sign)
  if (known === undefined) state.keyUse.set(key, sum)
  else if (sum.leases === 0 && sum.entries === 0) state.keyUse.delete(key)
}

const LEASE: KeyUse = { ...noUse(), leases: 1 }

/** A lease of this key begins. Its waiting and its entries are counted where they begin. */
export function countLease(state: State, key: number): void {
  change(state, key, LEASE, 1)
}

export function uncountLease(state: State, key: number): void {
  change(state, key, LEASE, -1)
}

/** Call when a lease has joined its queues, with the entries that it brings. */
export function countWaiter(state: State, lease: LeaseState): void {
  if (lease.key !== 0) change(state, lease.key, { ...pendingUse(lease), waiters: 1 }, 1)
}

export function uncountWaiter(state: State, lease: LeaseState): void {
  if (lease.key !== 0) change(state, lease.key, { ...pendingUse(lease), waiters: 1 }, -1)
}

function pendingUse({ extras }: LeaseState): KeyUse {
  const use = noUse()
  for (const entry of extras?.pending ?? []) {
    use.entries++
    use.bytes += entryBytes(entry)
  }
  return use
}

/** Entries of this key have come (above 0) or gone. Of an entry that is replaced, only the bytes change. */
export function countEntries(state: State, key: number, entries: number, bytes: number): void {
  if (key !== 0) change(state, key, { leases: 0, waiters: 0, entries, bytes }, 1)
}

/** Returns all that a lease counts for its key. */
export function useOfLease(lease: LeaseState): KeyUse {
  const use = pendingUse(lease)
  use.leases = 1
  if (lease.status === WAITING) use.waiters = 1
  use.entries += lease.extras?.entries?.size ?? 0
  use.bytes += lease.extras?.bytes ?? 0
  return use
}

/** Counts the lease for another key than its present one, which the caller then sets. */
export function moveUse(state: State, lease: LeaseState, to: number): void {
  const use = useOfLease(lease)
  change(state, lease.key, use, -1)
  change(state, to, use, 1)
}

/** Adds a key, which has nothing yet, to the keys and to its group. */
export function addKey(state: State, key: ApiKey): void {
  state.keys.set(key.id, key)
  if (key.group === undefined) return
  const group = state.groups.get(key.group)
  if (group === undefined) state.groups.set(key.group, { keys: 1, use: noUse(), limits: undefined })
  else group.keys++
}

/** A group without keys is forgotten, with its limits. */
export function dropKey(state: State, key: ApiKey): void {
  state.keys.delete(key.id)
  if (key.group === undefined) return
  const group = state.groups.get(key.group)!
  add(group.use, state.keyUse.get(key.id) ?? noUse(), -1)
  if (--group.keys === 0) state.groups.delete(key.group)
}
