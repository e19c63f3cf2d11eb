import type { Effects } from './effects.ts'
import type { Freed } from './freed.ts'
import { rule } from './policy.ts'
import { choose, grant, leaveQueues } from './queue.ts'
import { dropIfIdle, type Resource, rareOf, type State, touch } from './state.ts'

/** Gives what is free to the next live waiters, in the same revision in which it became free. Those whose key went are not among them (govern.ts). */
export function settle(state: State, effects: Effects, freed: Freed): void {
  // What follows may add it again.
  for (let resource = freed.take(); resource !== undefined; resource = freed.take()) {
    if (resource.queue.length > 0) settleOne(state, effects, resource, freed)
    dropIfIdle(state, resource)
  }
}

function settleOne(state: State, effects: Effects, resource: Resource, freed: Freed): void {
  const overtaking = rule(state, resource.name, 'queue') === 'fit'
  let at = 0
  while (at < resource.queue.length) {
    const lease = resource.queue[at]!
    const { wants, any, rank } = lease.rare!
    const chosen = choose(state, wants, any, rank, lease.id)
    if (chosen === undefined) {
      if (!overtaking) return
      at++
    } else {
      touch(state, lease)
      leaveQueues(state, lease, freed)
      Object.assign(rareOf(lease), { wants: [], any: 0, holding: [] })
      grant(state, effects, lease, chosen)
    }
  }
}
