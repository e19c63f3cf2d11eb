/** Releasing: the holder says that it has stopped; with `lost`, because it lost the lease, which then ends as one that lapsed. */

import type { Release } from '../command.ts'
import { done, type Outcome, type Refused } from '../outcome.ts'
import { findLease } from '../state/leases.ts'
import { FROZEN, type LeaseState, type State } from '../state.ts'
import { mayRelease, mayTouch } from './authority.ts'
import type { Effects } from './effects.ts'
import { end, type LeaseEnd, releaseGrant } from './end.ts'
import { leaseForEntries } from './entry.ts'
import { gone, refuse } from './refuse.ts'
import { settle } from './settle.ts'
import { carryOut, changesRefusal } from './transaction.ts'

const NOTHING: readonly never[] = []

export function releaseRefusal(state: State, command: Release, key: number): Refused | undefined {
  const { lease: id, resource, compare = NOTHING, changes = NOTHING } = command
  const lease = findLease(state, id)
  if (lease === undefined || !mayTouch(state, key, lease)) return gone(state, id)
  if (!mayRelease(state, key, lease)) return refuse(state, 'forbidden-whole', { action: 'release', lease: id })
  if (resource !== undefined && !lease.grants.some(given => given.resource.name === resource))
    return refuse(state, 'not-held', { lease: id, resource })
  if (compare.length + changes.length === 0) return undefined
  // A lease that has ended says nothing any more, though its holder has not stopped yet.
  return leaseForEntries(state, id, key) === undefined ? gone(state, id) : changesRefusal(state, command, key)
}

const RELEASED: LeaseEnd = { type: 'released', cause: 'released', stopped: true }

export function release(state: State, effects: Effects, command: Release, key: number): Outcome {
  const refused = releaseRefusal(state, command, key)
  if (refused !== undefined) return refused
  const lease = findLease(state, command.lease)!
  const { freed } = state
  if (command.changes !== undefined) carryOut(state, effects, command.changes, key)
  const only = command.resource === undefined ? undefined : lease.grants.find(given => given.resource.name === command.resource)
  if (only !== undefined && (key === 0 || key === lease.key) && !(lease.status === FROZEN && lease.grants.length === 1))
    releaseGrant(state, effects, lease, only, freed)
  // Only the lease's own key can say that its holder has stopped; an administrator's release is a revocation.
  else if (key !== 0 && key !== lease.key) end(state, effects, lease, { type: 'revoked', cause: 'revoked', stopped: false }, freed)
  else end(state, effects, lease, endOf(command), freed, stoppedChildren(command, key))
  settle(state, effects, freed)
  return done()
}

function endOf({ ran, lost }: Release): LeaseEnd {
  if (ran === undefined && lost === undefined) return RELEASED
  const how = lost === undefined ? RELEASED : ({ type: 'lapsed', cause: lost, stopped: true } as const)
  return ran === undefined ? how : { ...how, ran }
}

/** The descendants that are released as well: the holder has named them, and has their key. */
function stoppedChildren({ stopped = [] }: Release, key: number): ((child: LeaseState) => boolean) | undefined {
  if (stopped.length === 0) return undefined
  const named = new Set(stopped)
  return child => named.has(child.id) && (key === 0 || key === child.key)
}
