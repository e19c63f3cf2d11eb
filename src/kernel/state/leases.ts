/** The leases of a state: create, find, index by holder and key, and remove. */
import type { Holder, LeaseExtras, LIVE, State, WAITING } from '../state.ts'
import { countLease, moveUse, uncountLease } from './key-use.ts'
import { LeaseState, OWN_INCARNATION } from './lease-state.ts'

/** The key of a lease that was transferred to a holder name without a known process: the key of the first renewal becomes its key (rule/renew.ts). */
export const UNCLAIMED = Number.MAX_SAFE_INTEGER

export function findLease(state: State, id: number): LeaseState | undefined {
  return state.leases.get(id - state.origin)
}

/** Call before every change of a lease: a snapshot that is being taken saves the lease as it was. */
export function touch(state: State, lease: LeaseState): void {
  state.saving?.before(lease)
}

export function extrasOf(lease: LeaseState): LeaseExtras {
  lease.extras ??= {
    wants: [],
    any: 0,
    rank: 0,
    priority: 0,
    holding: [],
    passed: undefined,
    passedOn: undefined,
    parent: undefined,
    waited: false,
    handed: false,
    open: false,
    children: undefined,
    descendants: 0,
    entries: undefined,
    pending: [],
    bytes: 0,
    labels: [],
    grace: 0,
    permits: 0,
    covers: false,
    maxLife: 0,
    recalled: false,
    cause: '',
    by: '',
    timers: undefined,
    started: 0,
    slowed: 0,
    pool: undefined,
  }
  return lease.extras
}

/** Counts a lease of a holder. Returns one shared object for all its leases: a million leases of one process must not keep a million copies of its name. */
function joinHolder(state: State, name: string, process: number): Holder {
  const known = state.holders.get(name)
  if (known?.process === process) {
    known.leases++
    return known
  }
  const holder = { name, process, leases: 1 }
  if (known === undefined || process > known.process) state.holders.set(name, holder)
  return holder
}

/** Creates a lease without grants, with its short first term. Without an `incarnation`, the id of the lease becomes that of its holder. */
export function openLease(
  state: State,
  holder: string,
  incarnation: number | undefined,
  key: number,
  ttl: number,
  status: typeof WAITING | typeof LIVE,
): LeaseState {
  const id = state.nextLease++
  const owner = joinHolder(state, holder, incarnation ?? OWN_INCARNATION)
  const lease = new LeaseState({ id, holder: owner, key, ttl, status, run: state.run.number, since: state.wall })
  state.leases.set(id - state.origin, lease)
  if (key !== 0) countLease(state, key)
  return lease
}

/** Adds a lease that was loaded from a snapshot. Its holder is not shared yet. */
export function addLoadedLease(state: State, lease: LeaseState): void {
  const { id, key, holder } = lease
  lease.holder = joinHolder(state, holder.name, holder.process)
  state.leases.set(id - state.origin, lease)
  if (key !== 0) countLease(state, key)
}

/** Makes `lease` a child of `parent`: it ends with it. */
export function addChild(state: State, parent: LeaseState, lease: LeaseState): void {
  touch(state, parent)
  linkChild(parent, lease)
}

/** As `addChild`, while a snapshot is loaded. */
export function linkChild(parent: LeaseState, lease: LeaseState): void {
  const extras = extrasOf(parent)
  extras.children ??= new Set()
  extras.children.add(lease)
  extrasOf(lease).parent = parent
  countDescendants(parent, 1 + lease.extras!.descendants)
}

/** The lease ends, and its descendants with it. */
export function leaveParent(state: State, lease: LeaseState): void {
  const extras = lease.extras!
  const { parent } = extras
  if (parent === undefined) return
  touch(state, parent)
  parent.extras!.children!.delete(lease)
  countDescendants(parent, -1 - extras.descendants)
  extras.parent = undefined
}

function countDescendants(lease: LeaseState, more: number): void {
  for (let above: LeaseState | undefined = lease; above !== undefined; above = above.extras!.parent) above.extras!.descendants += more
}

/** Counts the leases that end together with the first ancestor of a lease. */
export function familySize(lease: LeaseState): number {
  let first = lease
  while (first.extras?.parent !== undefined) first = first.extras.parent
  return 1 + (first.extras?.descendants ?? 0)
}

/** Gives the lease to another key. The caller has touched the lease. */
export function rekey(state: State, lease: LeaseState, key: number): void {
  moveUse(state, lease, key)
  lease.key = key
}

/** Gives the lease to another process of the same holder name. The caller has touched the lease. */
export function rehold(state: State, lease: LeaseState, incarnation: number): void {
  const { holder } = lease
  leaveHolder(state, holder)
  lease.holder = joinHolder(state, holder.name, incarnation === lease.id ? OWN_INCARNATION : incarnation)
}

function leaveHolder(state: State, holder: Holder): void {
  holder.leases--
  if (holder.leases === 0 && state.holders.get(holder.name) === holder) state.holders.delete(holder.name)
}

export function dropLease(state: State, lease: LeaseState): void {
  if (lease.extras?.handed === true) state.unused.delete(lease)
  state.leases.delete(lease.id - state.origin)
  leaveHolder(state, lease.holder)
  if (lease.key !== 0) uncountLease(state, lease.key)
}

/** Returns whether the lease ends with the other one. */
export function descendsFrom(lease: LeaseState, id: number): boolean {
  for (let parent = lease.extras?.parent; parent !== undefined; parent = parent.extras?.parent) if (parent.id === id) return true
  return false
}
