/**
 * Waiting cycles. A waiter declares the leases it keeps while it waits (`holding`); only those can close a cycle. Looked for among
 * exclusive waits for all of several things only: with any-of, units or shared grants a cycle proves nothing, as another way may open.
 *
 * A waiter waits for whoever holds what it wants, and in a `fifo` queue for everyone before it: both are followed. Since every cycle is
 * closed by the last waiter to come, that one is refused and the others go on.
 */
import { rule } from './policy.ts'
import type { Wanted } from './queue.ts'
import type { Lease, State } from './state.ts'

/** The resources of a cycle that a newcomer of this rank would close, in order; undefined when there is none. */
export function cycle(state: State, wants: readonly Wanted[], rank: number, holding: readonly number[]): readonly string[] | undefined {
  if (holding.length === 0) return undefined
  const mine = new Set(holding)
  const seen = new Set<Lease>()
  const path: string[] = []

  /** `from`: the waiter whose wants these are; the newcomer has none yet and stands behind all of its rank. */
  const leadsBack = (wanted: readonly Wanted[], from: Lease | undefined): boolean => wanted.some(want => blockedByMine(want, from))

  const blockedByMine = (want: Wanted, from: Lease | undefined): boolean => {
    const resource = state.resources.get(want.resource)
    if (want.shared || resource === undefined) return false
    path.push(want.resource)
    const holder = resource.grants.length === 1 && !resource.grants[0]!.shared ? resource.grants[0]!.lease : undefined
    if (holder !== undefined) {
      if (mine.has(holder.id)) return true
      if (first(holder)) for (const waiter of state.keeping.get(holder.id) ?? []) if (follow(waiter)) return true
    }
    if (rule(state, want.resource, 'queue') === 'fifo') {
      for (const before of resource.queue) {
        if (before === from || (from === undefined && before.rare!.rank > rank)) break
        if (first(before) && follow(before)) return true
      }
    }
    path.pop()
    return false
  }

  const first = (lease: Lease): boolean => !seen.has(lease) && seen.add(lease) !== undefined
  const follow = (waiter: Lease): boolean => waiter.rare!.any === 0 && leadsBack(waiter.rare!.wants, waiter)

  return leadsBack(wants, undefined) ? path : undefined
}
