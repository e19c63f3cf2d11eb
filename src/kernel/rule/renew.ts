/** Renewing: restarts the terms of leases, and never revives a lease that has ended. */

import type { Renew } from '../command.ts'
import { GONE, type Outcome } from '../outcome.ts'
import { useOfLease } from '../state/key-use.ts'
import { findLease, rekey, touch, UNCLAIMED } from '../state/leases.ts'
import { agedOf } from '../state/timers.ts'
import { FIRST_TERM, FROZEN, type LeaseState, LIVE, type State, SUSPECT, type Timer, WAITING } from '../state.ts'
import { mayRenew } from './authority.ts'
import { type Effects, emit, restartTerm } from './effects.ts'
import { reconsider } from './end.ts'
import { beyondLimits } from './key-limit.ts'
import { rule } from './policy.ts'
import { updateOffers } from './pool/member.ts'
import { untilWindow } from './pool/reservation.ts'
import { refuse } from './refuse.ts'
import { countSuspect } from './service.ts'
import { settle } from './settle.ts'

/** The most renewals in one command. */
export const MAX_RENEWALS = 10_000

export function renew(state: State, effects: Effects, { leases, waiting = false, ttl = 0 }: Renew, key: number): Outcome {
  if (!Array.isArray(leases) || leases.length > MAX_RENEWALS) return refuse(state, 'too-many-renewals', { limit: MAX_RENEWALS })
  const ttls: number[] = []
  for (const id of leases) {
    const lease = findLease(state, id)
    // A lease of another key is reported as gone: its existence is not revealed. So is an unclaimed one that would be too much for the key.
    if (lease === undefined || lease.status === FROZEN || !mayRenew(state, key, lease) || isTooMuch(state, key, lease)) {
      ttls.push(GONE)
      continue
    }
    if (waiting && lease.status !== WAITING) {
      ttls.push(0)
      continue
    }
    touch(state, lease)
    // A reservation needs no renewal before its window.
    const ahead = lease.extras?.pool === undefined ? 0 : untilWindow(state, lease)
    if (state.quiet !== undefined && ahead === 0 && isUntaken(lease)) {
      restartTerm(state, effects, lease, Math.min(lease.ttl, FIRST_TERM))
      keepBelieved(state, lease, state.quiet)
      ttls.push(0)
      continue
    }
    if (lease.key === UNCLAIMED) {
      rekey(state, lease, key)
      for (const name of lease.extras?.entries ?? []) reconsider(state, name)
    }
    // The process that renews the lease has taken it, though it did not claim it by incarnation.
    if (lease.extras?.open === true && ahead === 0) lease.extras.open = false
    if (lease.status === SUSPECT) recover(state, effects, lease)
    if (lease.status === LIVE) {
      if (!lease.confirmed) confirm(state, lease)
      lengthen(state, lease, ttl)
    }
    const term = lease.confirmed ? lease.ttl : Math.min(lease.ttl, FIRST_TERM)
    restartTerm(state, effects, lease, ahead > 0 ? lease.ttl + ahead : term)
    ttls.push(lease.term)
    if (state.quiet !== undefined && lease.status === LIVE) keepBelieved(state, lease, state.quiet)
  }
  settle(state, effects, state.freed)
  return { kind: 'renewed', revision: 0, ttls }
}

/**
 * After a loss the holder may rely on a renewal that is lost and gave it a longer ttl: its answer came, and that of this one may not. So until the quiet period
 * is over, no renewal makes the term shorter than the rest of that period. The holder is told the usual term.
 */
function keepBelieved(state: State, lease: LeaseState, quiet: Timer): void {
  lease.term = Math.max(lease.term, quiet.duration - agedOf(state, quiet))
}

/**
 * Returns whether no renewal in this log shows that the holder knows of its grant: it waited for it, or it was passed on to it. After a loss no holder may begin
 * to rely on such a lease: it may have lapsed in the lost records, and its resources may have been granted to another holder, which relies on them until the quiet
 * period is over. The holder that was granted a lease at once began to rely on it with the answer, and has counted its validity since.
 */
function isUntaken({ status, confirmed, grants, extras }: LeaseState): boolean {
  if (confirmed || status === WAITING || grants.length === 0 || extras === undefined) return false
  return extras.waited || extras.handed || extras.open
}

/** Renewing an unclaimed lease claims it. */
function isTooMuch(state: State, key: number, lease: LeaseState): boolean {
  return lease.key === UNCLAIMED && beyondLimits(state, key, useOfLease(lease)) !== undefined
}

function confirm(state: State, lease: LeaseState): void {
  lease.confirmed = true
  state.unused.delete(lease)
}

/** Never shortens, and never beyond what the policies for its resources and entries allow. */
function lengthen(state: State, lease: LeaseState, ttl: number): void {
  if (ttl <= lease.ttl) return
  const entries = lease.extras?.entries
  let most = lease.grants.length === 0 && (entries?.size ?? 0) === 0 ? rule(state, '', 'ttlMax') : ttl
  for (const { resource } of lease.grants) most = Math.min(most, rule(state, resource.name, 'ttlMax'))
  for (const key of entries ?? []) most = Math.min(most, rule(state, key, 'ttlMax'))
  lease.ttl = Math.max(lease.ttl, Math.min(ttl, most))
}

function recover(state: State, effects: Effects, lease: LeaseState): void {
  lease.status = LIVE
  if (lease.extras !== undefined) lease.extras.slowed = 0
  state.counts.suspect--
  emitForAll(state, effects, 'recovered', lease)
  countSuspect(state, effects, lease, -1)
  updateOffers(state, lease)
}

/** Emits an event for each grant and entry; if there are none, one for the lease. */
export function emitForAll(state: State, effects: Effects, type: 'suspected' | 'recovered', lease: LeaseState): void {
  for (const given of lease.grants) emit(state, effects, type, lease, { resource: given.resource.name, token: given.token })
  const entries = lease.extras?.entries
  for (const key of entries ?? []) emit(state, effects, type, lease, { key })
  if (lease.grants.length === 0 && (entries?.size ?? 0) === 0) emit(state, effects, type, lease, {})
}
