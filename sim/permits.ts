/** The limit on the units of one resource, as the judges see it: a list of all that states something, and the least of it. */
import { rule, ruledBy } from '../src/kernel/rule/policy.ts'
import type { Resource, State } from '../src/kernel/state.ts'

/** The units that one lease agrees to. `permits`: 0 if it states none. */
export function agreed(state: State, resource: string, permits: number): number {
  // Every member of the pool has one unit.
  const isStated = ruledBy(state, resource, 'capacity') !== undefined || state.entries.has(`pool/${resource}`)
  const capacity = rule(state, resource, 'capacity')
  return permits === 0 ? capacity : isStated ? Math.min(permits, capacity) : permits
}

/** The units that all holders agree to, and a request beside them. */
export function agreedByAll(state: State, { name, grants }: Pick<Resource, 'name' | 'grants'>, permits?: number): number {
  const all = grants.map(({ lease }) => lease.extras?.permits ?? 0)
  return Math.min(...[...all, ...(permits === undefined ? [] : [permits])].map(stated => agreed(state, name, stated)))
}
