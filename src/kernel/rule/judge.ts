/** Which waiters a queue passes over, because the capacity of the resource is less than they want. */
import type { Want } from '../command.ts'
import type { LeaseState, Resource, State } from '../state.ts'
import { wake } from './covers.ts'
import { ownLimit } from './permits.ts'

/** Returns whether the capacity allows it at all, whatever is held now. */
export function exists(state: State, want: Required<Want>, permits = 0): boolean {
  const capacity = ownLimit(state, want.resource, permits)
  return want.shared ? capacity > 0 : want.units <= capacity
}

/**
 * Finds the queues that pass a waiter over. A capacity that was lowered after its request may be less than it wants: the waiter keeps its place, because the
 * capacity may be raised again, but must not block others meanwhile. Called whenever its wants or their policies change.
 */
export function judgeWaiter(state: State, lease: LeaseState): void {
  const extras = lease.extras!
  extras.passed = undefined
  const { wants, any, permits } = extras
  const lacking = wants.filter(want => !exists(state, want, permits))
  if (lacking.length === 0) return
  const isHopeless = wants.length - lacking.length < (any === 0 ? wants.length : any)
  extras.passed = new Set((isHopeless ? wants : lacking).map(want => want.resource))
}

/** The capacity of a resource has changed: judges its waiters again, and has their queues served. The caller settles. */
export function judgeQueue(state: State, resource: Resource): void {
  if (resource.queue.length === 0) return
  for (const waiter of resource.queue) {
    judgeWaiter(state, waiter)
    for (const want of waiter.extras!.wants) {
      state.freed.add(state.resources.get(want.resource)!)
      if (state.claims !== undefined) wake(state, want.resource, waiter.extras!.covers, state.freed)
    }
  }
}
