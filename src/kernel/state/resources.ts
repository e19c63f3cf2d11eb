/** The resources of a state with their grants, and the other tables by name: entries and fences. */
import type { Attached, Grant, State } from '../state.ts'
import { entryBytes, type FreeEntry } from './free-entries.ts'
import { countEntries } from './key-use.ts'
import { NO_GRANTS, Resource, withGrant } from './lease-state.ts'
import { PermitCounts } from './permit-counts.ts'
import { memberOf } from './pools.ts'

/** Lists a grant with its lease and its resource, and counts what it takes of its resource. */
export function addGrant(grant: Grant): void {
  const { lease, resource, units } = grant
  lease.held = lease.held === NO_GRANTS ? grant : withGrant(lease.held, grant)
  resource.held = resource.held === NO_GRANTS ? grant : withGrant(resource.held, grant)
  if (units === 0) resource.sharers++
  else resource.used += units
  const permits = lease.extras?.permits ?? 0
  if (permits > 0 && units > 0) {
    resource.permits ??= new PermitCounts()
    resource.permits.add(permits)
  }
}

/** The index of the grant with this token among the grants of a resource, which are ordered by token. */
export function placeOfGrant(grants: readonly Grant[], token: number): number {
  let low = 0
  let high = grants.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (grants[middle]!.token < token) low = middle + 1
    else high = middle
  }
  return low
}

/** Takes back what `addGrant` has counted. */
export function freeUnits({ resource, lease: { extras }, shared, units }: Grant): void {
  if (shared) resource.sharers--
  else resource.used -= units
  if (extras !== undefined && extras.permits > 0 && !shared) resource.permits!.delete(extras.permits)
}

export function resourceOf(state: State, name: string): Resource {
  return state.resources.get(name) ?? addResource(state, name)
}

/** Call this only for a name that is not in the table. */
export function addResource(state: State, name: string): Resource {
  const resource = new Resource(name)
  if (state.pools.size > 0) resource.member = memberOf(state, name)
  state.resources.set(name, resource)
  return resource
}

export function dropIfIdle(state: State, resource: Resource): void {
  if (!Array.isArray(resource.held) || resource.held.length + resource.queue.length > 0) return
  if (state.pressed.size > 0) state.pressed.delete(resource)
  if (state.resources.get(resource.name) === resource) state.resources.delete(resource.name)
}

/** In place of the entry with the same key, of either kind, if there is one. */
export function addEntry(state: State, entry: Attached): void {
  const { key, lease } = entry
  const before = state.entries.get(key)
  if (before !== undefined) countEntries(state, before.lease.key, -1, -entryBytes(before))
  removeFreeEntry(state, key)
  state.entries.set(key, entry)
  state.tree.set(key, entry)
  countEntries(state, lease.key, 1, entryBytes(entry))
}

export function dropEntry(state: State, key: string): void {
  const entry = state.entries.get(key)!
  state.entries.delete(key)
  state.tree.delete(key)
  countEntries(state, entry.lease.key, -1, -entryBytes(entry))
}

/** In place of the entry without a lease with the same key, if there is one. */
export function addFreeEntry(state: State, entry: FreeEntry): void {
  removeFreeEntry(state, entry.key)
  state.free.set(entry)
  state.tree.set(entry.key, entry)
  countEntries(state, entry.by, 1, entryBytes(entry))
}

export function dropFreeEntry(state: State, key: string): void {
  removeFreeEntry(state, key)
  state.tree.delete(key)
}

function removeFreeEntry(state: State, key: string): void {
  const entry = state.free.get(key)
  if (entry === undefined) return
  state.free.delete(key)
  countEntries(state, entry.by, -1, -entryBytes(entry))
}

/** Records `token` as the highest one shown for `resource`. The caller has checked that no higher token was shown. */
export function recordFence(state: State, resource: string, token: number, key: number): void {
  if (key !== 0 && !state.fences.has(resource)) {
    state.fencedBy.set(resource, key)
    state.fencedWith.set(key, (state.fencedWith.get(key) ?? 0) + 1)
  }
  state.fences.set(resource, token)
}
