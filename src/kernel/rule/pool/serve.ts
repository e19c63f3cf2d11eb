/** Serving a pool: members that have become free go to its waiters, in the revision in which they became free. */
import { rareOf, touch } from '../../state/leases.ts'
import { type Freed, type LeaseState, LIVE, type PoolState, type State } from '../../state.ts'
import { attach, entriesFree } from '../attach.ts'
import type { Effects } from '../effects.ts'
import { grant, leaveQueues, type WantedResource } from '../queue.ts'
import { chooseMembers } from './choice.ts'
import { markPool } from './member.ts'
import { beginTurn } from './turn.ts'

export function servePool(state: State, effects: Effects, pool: PoolState, freed: Freed): void {
  // Marked until all are served: a waiter that leaves its place to be granted must not begin another turn.
  pool.freed = true
  const turn = beginTurn(state, pool)
  let attached = false
  for (let waiter = turn.next(); waiter !== undefined; waiter = turn.next()) {
    const chosen = state.quiet === undefined ? chooseMembers(pool, waiter.rare!.pool!) : undefined
    const mayEnter = chosen !== undefined && entriesFree(state, waiter)
    if (!mayEnter) turn.refused(waiter, chosen === undefined)
    else {
      attached ||= waiter.rare!.pending.length > 0
      grantMembers(state, effects, waiter, chosen, freed)
      turn.granted(waiter)
    }
  }
  pool.freed = false
  // An entry that was taken over may have ended its former lease: waiters that did not fit before may fit now.
  if (attached) markPool(state, pool)
}

function grantMembers(state: State, effects: Effects, waiter: LeaseState, chosen: readonly WantedResource[], freed: Freed): void {
  touch(state, waiter)
  leaveQueues(state, waiter, freed)
  const { pending } = waiter.rare!
  Object.assign(rareOf(waiter), { holding: [], pending: [] })
  waiter.status = LIVE
  for (const entry of pending) attach(state, effects, waiter, entry)
  grant(state, effects, waiter, chosen)
}
