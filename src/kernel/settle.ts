import type { Effects } from './effects.ts'
import type { Freed } from './freed.ts'
import { rule } from './policy.ts'
import { choose, grant, leaveQueues, standsBefore } from './queue.ts'
import { dropIfIdle, type Lease, type Resource, rareOf, type State, touch } from './state.ts'

/** Gives what is free to the next live waiters, in the same revision in which it became free. Those whose key went are not among them (govern.ts). */
export function settle(state: State, effects: Effects, freed: Freed): void {
  for (let resource = freed.take(); resource !== undefined; resource = freed.take()) {
    if (resource.queue.length > 0) serve(state, effects, resource, freed)
    else dropIfIdle(state, resource)
  }
}

/** How far a queue has been gone through. */
interface Walk {
  readonly resource: Resource
  at: number
  next: Lease
}

/**
 * Whatever else is free is looked at together with the first, by rank and not queue after queue: one who wants two of the things must not get
 * them before another who stands ahead of it for the second alone. Those who were passed over need not be asked again: a grant leaves
 * less room, and moves up only those behind.
 */
function serve(state: State, effects: Effects, first: Resource, freed: Freed): void {
  /** The next one last. */
  const walks: Walk[] = []
  for (let resource: Resource | undefined = first; resource !== undefined; resource = freed.take())
    goOn(state, walks, { resource, at: 0, next: resource.queue[0]! })
  for (let walk = walks.pop(); walk !== undefined; walk = walks.pop()) {
    const { resource, at, next } = walk
    // It was granted on another's walk, and has left.
    if (resource.queue[at] !== next) {
      goOn(state, walks, walk)
      continue
    }
    const { wants, any, rank } = next.rare!
    const chosen = choose(state, wants, any, rank, next.id)
    if (chosen === undefined) {
      walk.at = rule(state, resource.name, 'queue') === 'fit' ? at + 1 : Number.POSITIVE_INFINITY
    } else {
      touch(state, next)
      leaveQueues(state, next, freed)
      Object.assign(rareOf(next), { wants: [], any: 0, holding: [] })
      grant(state, effects, next, chosen)
    }
    goOn(state, walks, walk)
    for (let moved = freed.take(); moved !== undefined; moved = freed.take())
      goOn(state, walks, { resource: moved, at: 0, next: moved.queue[0]! })
  }
}

/** Puts a walk where its next one's turn is, or ends it. Until then the resource counts as freed, so that nobody frees it twice. */
function goOn(state: State, walks: Walk[], walk: Walk): void {
  const { resource, at } = walk
  const next = resource.queue[at]
  resource.freed = next !== undefined
  if (next === undefined) return dropIfIdle(state, resource)
  walk.next = next
  let low = 0
  let high = walks.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (standsBefore(next, walks[middle]!.next)) low = middle + 1
    else high = middle
  }
  walks.splice(low, 0, walk)
}
