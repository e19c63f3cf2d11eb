/**
 * Waiting cycles. A waiter declares the leases it keeps while it waits (`holding`); only those can close a cycle. Looked for among
 * exclusive waits for all of several things only: with any-of, units or shared grants a cycle proves nothing, as another way may open.
 *
 * A waiter waits for whoever holds what it wants, and in a `fifo` queue for everyone before it: both are followed. Since every cycle is
 * closed by the last waiter to come, that one is refused and the others go on.
 */
import { rule } from './policy.ts'
import { blocks, positionOf, type Wanted } from './queue.ts'
import { FROZEN, type Lease, type Resource, type State } from './state.ts'

/** A longer chain of waiters is not followed to its end: how deep the stack of calls may grow is not the same on every replica. */
const LONGEST = 256

/** The resources of a cycle that a newcomer of this rank would close, in order; undefined when there is none. */
export function cycle(state: State, wants: readonly Wanted[], rank: number, holding: readonly number[]): readonly string[] | undefined {
  if (holding.length === 0) return undefined
  const mine = new Set(holding)
  const seen = new Set<Lease>()
  /** How far each queue has been looked through. */
  const reached = new Map<Resource, number>()
  const path: string[] = []

  /** `from`: the waiter whose wants these are; the newcomer has none yet and stands behind all of its rank. */
  const leadsBack = (wanted: readonly Wanted[], from: Lease | undefined): boolean => wanted.some(want => blockedByMine(want, from))

  const blockedByMine = (want: Wanted, from: Lease | undefined): boolean => {
    const resource = state.resources.get(want.resource)
    if (want.shared || resource === undefined || path.length === LONGEST) return false
    path.push(want.resource)
    const holder = soleObstacle(state, resource, want)
    if (holder !== undefined) {
      if (mine.has(holder.id)) return true
      if (first(holder)) for (const waiter of state.keeping.get(holder.id) ?? []) if (follow(waiter)) return true
    }
    if (rule(state, want.resource, 'queue') === 'fifo') {
      const end = from === undefined ? behind(resource, rank) : positionOf(resource, from)
      for (let i = reached.get(resource) ?? 0; i < end; i++) {
        reached.set(resource, i + 1)
        if (blocks(resource.queue[i]!, resource) && follow(resource.queue[i]!)) return true
      }
    }
    path.pop()
    return false
  }

  const first = (lease: Lease): boolean => !seen.has(lease) && seen.add(lease) !== undefined
  const follow = (waiter: Lease): boolean => first(waiter) && waiter.rare!.any === 0 && leadsBack(waiter.rare!.wants, waiter)

  return leadsBack(wants, undefined) ? path : undefined
}

/** The one holder that leaves too little, if it is one alone and will not go by itself: of several, any might make room. */
function soleObstacle(state: State, resource: Resource, want: Wanted): Lease | undefined {
  const [only] = resource.grants
  if (only === undefined || resource.grants.length > 1 || only.shared || only.lease.status === FROZEN) return undefined
  return only.units + want.units > rule(state, resource.name, 'capacity') ? only.lease : undefined
}

function behind({ queue }: Resource, rank: number): number {
  const next = queue.findIndex(waiter => waiter.rare!.rank > rank)
  return next === -1 ? queue.length : next
}
