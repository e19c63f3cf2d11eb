/** Serving a pool: members that have become free go to its waiters, in the revision in which they became free. */
import { extrasOf, touch } from '../../state/leases.ts'
import { type Freed, type LeaseState, LIVE, type PoolState, type State } from '../../state.ts'
import type { WantedResource } from '../applicant.ts'
import { attach, entriesFree } from '../attach.ts'
import { type Effects, restartTerm } from '../effects.ts'
import { chooseAll, grant, leaveQueues } from '../queue.ts'
import { markPool } from './member.ts'
import { WindowsAhead } from './reservation.ts'
import { beginTurn } from './turn.ts'

export function servePool(state: State, effects: Effects, pool: PoolState, freed: Freed): void {
  // Marked until all are served: a waiter that leaves its place to be granted must not begin another turn.
  pool.freed = true
  const turn = beginTurn(state, pool)
  let attached = false
  for (let trial = turn.next(); trial !== undefined; trial = turn.next()) {
    const { waiter, yields = false } = trial
    const { pool: claim, maxLife } = waiter.extras!
    const chosen = trial.chosen ?? (state.quiet === undefined ? new WindowsAhead(state, pool).offer(claim!, maxLife) : undefined)
    if (chosen === undefined || !entriesFree(state, waiter)) turn.refused(waiter)
    else {
      attached ||= waiter.extras!.pending.length > 0
      touch(state, waiter)
      waiter.extras!.pool!.yields = yields
      grantMembers(state, effects, waiter, chosen, freed)
      turn.granted(waiter)
    }
  }
  pool.freed = false
  turn.end(effects)
  // An entry that was taken over may have ended its former lease: waiters that did not fit before may fit now.
  if (attached) markPool(state, pool)
}

function grantMembers(state: State, effects: Effects, waiter: LeaseState, chosen: readonly WantedResource[], freed: Freed): void {
  leaveQueues(state, waiter, freed)
  // Nothing renewed a reservation before its window: its holder has a whole ttl to show up. It is not confirmed, so the first renewal goes through the log.
  if (waiter.extras!.pool!.from > 0) restartTerm(state, effects, waiter, waiter.ttl)
  const { pending } = waiter.extras!
  Object.assign(extrasOf(waiter), { holding: [], pending: [] })
  waiter.status = LIVE
  for (const entry of pending) attach(state, effects, waiter, entry)
  grant(state, effects, waiter, chooseAll(state, chosen))
}
