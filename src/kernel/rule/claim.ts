/** Claiming: of several processes with one holder name, one takes the lease that was transferred to that name. */

import type { Claim } from '../command.ts'
import { done, type Outcome } from '../outcome.ts'
import { neverGiven } from '../reason.ts'
import { useOfLease } from '../state/key-use.ts'
import { findLease, rehold, rekey, touch, UNCLAIMED } from '../state/leases.ts'
import { FROZEN, type State } from '../state.ts'
import { mayRenew } from './authority.ts'
import type { Effects } from './effects.ts'
import { reconsider } from './end.ts'
import { beyondLimits } from './key-limit.ts'
import { gone, refuse, refuseFlaw } from './refuse.ts'
import { settle } from './settle.ts'

export function claim(state: State, effects: Effects, { lease: id, incarnation }: Claim, key: number): Outcome {
  const lease = findLease(state, id)
  if (lease === undefined || lease.status === FROZEN || !mayRenew(state, key, lease)) return gone(state, id)
  if (incarnation !== undefined && !(Number.isSafeInteger(incarnation) && incarnation >= 1 && incarnation < state.nextLease))
    return refuseFlaw(state, neverGiven('incarnation', incarnation))
  if (lease.extras?.open !== true) return refuse(state, 'claimed', { lease: id, holder: lease.holder.name, incarnation: lease.incarnation })
  // It may have lapsed in lost records, and another holder may rely on what it holds (see renew.ts).
  if (state.quiet !== undefined && lease.grants.length > 0) return refuse(state, 'quiet', { quiet: state.quiet.duration })
  const much = lease.key === UNCLAIMED ? beyondLimits(state, key, useOfLease(lease)) : undefined
  if (much !== undefined) return much
  touch(state, lease)
  lease.extras.open = false
  // The first lease of a process is its incarnation. Otherwise the process that made a reservation would still count as its owner.
  rehold(state, lease, incarnation ?? id)
  if (lease.key === UNCLAIMED) rekey(state, lease, key)
  for (const entry of lease.extras.entries ?? []) reconsider(state, entry)
  settle(state, effects, state.freed)
  return done(id)
}
