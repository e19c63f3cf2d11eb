/**
 * Permits: requests for one resource state how many of its units may be in use at once, and need no policy. They may disagree, while a new version of
 * a program is rolled out for example. A grant keeps to the smallest number of all leases on the resource, so that no holder shares it with more than it
 * has agreed to. A lease that states none agrees to the capacity, and a capacity that a policy or a member of a pool states bounds everyone.
 */
import type { Acquire } from '../command.ts'
import type { Flaw } from '../reason.ts'
import type { Grant, LeaseState, Resource, State } from '../state.ts'
import { CAPACITY, capacityOf, statedCapacity } from './policy.ts'

/** The units in use that one request agrees to, whatever others state. `permits`: 0 if it states none. */
export function ownLimit(state: State, name: string, permits: number): number {
  // Most logs have neither policies nor pools.
  const stated = state.policies.size + state.pools.size === 0 ? undefined : statedCapacity(state, name)
  if (permits === 0) return stated ?? CAPACITY
  return stated === undefined ? permits : Math.min(stated, permits)
}

/** The units in use that all holders of a resource agree to. Frozen ones count: their work may go on. */
export function limitOfHolders(state: State, { name, held, sharers, permits }: Resource): number {
  const stating = permits?.total ?? 0
  const limit = stating === 0 ? Number.POSITIVE_INFINITY : permits!.smallest
  const holders = Array.isArray(held) ? held.length : 1
  return holders - sharers > stating ? Math.min(limit, capacityOf(state, name)) : limit
}

/** The units that may be in use once a request with these `permits` is granted beside the present holders. */
export function limitBeside(state: State, resource: Resource, permits: number): number {
  const own = ownLimit(state, resource.name, permits)
  if (permits === 0 && resource.permits === undefined) return own
  return Math.min(own, limitOfHolders(state, resource))
}

/** The same beside these leases only. */
export function limitAmong(state: State, name: string, permits: number, leases: readonly LeaseState[]): number {
  return leases.reduce((limit, { extras }) => Math.min(limit, ownLimit(state, name, extras?.permits ?? 0)), ownLimit(state, name, permits))
}

export function leasesOf(grants: readonly Grant[]): readonly LeaseState[] {
  return grants.map(({ lease }) => lease)
}

/** The units of a resource with holders that may be in use at once. */
export function limitInForce(state: State, resource: Resource): number {
  return Math.min(limitOfHolders(state, resource), statedCapacity(state, resource.name) ?? Number.POSITIVE_INFINITY)
}

/** Permits count units of the named resources. */
export function badPermits({ permits, wants, any, pool }: Acquire): Flaw | undefined {
  if (permits === undefined) return undefined
  const other = pool !== undefined ? 'pool' : any !== undefined ? 'any' : wants.some(({ shared }) => shared === true) ? 'shared' : undefined
  if (other !== undefined) return { reason: 'not-together', facts: { field: 'permits', other } }
  return wants.length === 0 ? { reason: 'needs', facts: { field: 'permits', other: 'wants' } } : undefined
}
