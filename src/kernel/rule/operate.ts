/** Operators do this to leases: revoke, break, recall. */

import type { Break, Recall, Revoke } from '../command.ts'
import { badName, badPrefix, badText, NAME_BYTES, under } from '../name.ts'
import { done, type Outcome, type Refused } from '../outcome.ts'
import { outside, tooMany, within } from '../reason.ts'
import { MAX_REVOKED } from '../revoke-part.ts'
import { extrasOf, findLease, touch } from '../state/leases.ts'
import { BREAK, FROZEN, type Grant, type LeaseState, PREEMPT, SLOTS, type Slot, type State } from '../state.ts'
import type { WantedResource } from './applicant.ts'
import { allowed, beyond, mayRelease, namesHeld, namesOf, outOfReach } from './authority.ts'
import { conflictsOf, coveringGrants } from './covers.ts'
import { type Effects, emit, startTimer } from './effects.ts'
import { end } from './end.ts'
import { TTL_LIMIT } from './policy.ts'
import { waitsForPool } from './pool/waiters.ts'
import { forbidden, gone, refuse, refuseFlaw } from './refuse.ts'
import { settle } from './settle.ts'

/** Asks the holders of a resource to give it back. */
export function recall(state: State, effects: Effects, name: string, by: string): void {
  for (const grant of state.resources.get(name)?.grants ?? []) recallGrant(state, effects, grant, by)
}

/** The same with the holders of the claims above and below that a request conflicts with. */
export function recallAround(state: State, effects: Effects, want: WantedResource, by: string, covers: boolean): void {
  recall(state, effects, want.resource, by)
  for (const grant of conflictsOf(state, want, covers)) recallGrant(state, effects, grant, by)
}

function recallGrant(state: State, effects: Effects, { lease, resource, token }: Grant, by: string): void {
  if (lease.status === FROZEN) return
  touch(state, lease)
  extrasOf(lease).recalled = true
  emit(state, effects, 'recalled', lease, { resource: resource.name, token, by })
}

export function revoke(state: State, effects: Effects, command: Revoke, key: number): Outcome {
  const { target, force = false, by = '', ended = 0 } = command
  const badBy = badText(by, NAME_BYTES)
  if (badBy !== undefined) return refuseFlaw(state, within('by', badBy))
  const found = revokeTargets(state, command, key)
  if (!Array.isArray(found)) return found as Refused
  const { freed } = state
  const before = state.leases.size - state.counts.frozen
  for (const lease of found) end(state, effects, lease, { type: 'revoked', cause: 'revoked', by, stopped: force }, freed)
  const count = ended + before - (state.leases.size - state.counts.frozen)
  settle(state, effects, freed)
  // None, if all of them had ended and their units were frozen.
  return 'lease' in target || count === 0 ? done() : done(count)
}

/** Which leases a revocation by holder or prefix ends: those that its target names, and that the key may revoke. */
export function revokeFilter(state: State, target: Revoke['target'], key: number): (lease: LeaseState) => boolean {
  const isNamed = targetFilter(target)
  return lease => isNamed(lease) && mayRevoke(state, key, lease)
}

function mayRevoke(state: State, key: number, lease: LeaseState): boolean {
  return mayRelease(state, key, lease) || outOfReach(state, key, 'revoke', lease) === undefined
}

function targetFilter(target: Revoke['target']): (lease: LeaseState) => boolean {
  if ('lease' in target) return lease => lease.id === target.lease
  if ('holder' in target) return lease => lease.holder.name === target.holder
  const { prefix } = target
  return lease =>
    lease.grants.some(given => under(prefix, given.resource.name)) ||
    (lease.extras?.wants.some(want => under(prefix, want.resource)) ?? false) ||
    (waitsForPool(lease) && under(prefix, lease.extras!.pool!.pool)) ||
    [...(lease.extras?.entries ?? [])].some(name => under(prefix, name)) ||
    (lease.extras?.pending.some(({ key: name }) => under(prefix, name)) ?? false)
}

function revokeTargets(state: State, { target, among, ended = 0 }: Revoke, key: number): readonly LeaseState[] | Refused {
  if ('lease' in target) {
    const lease = findLease(state, target.lease)
    if (lease === undefined) return gone(state, target.lease)
    if (mayRevoke(state, key, lease)) return [lease]
    // A key that may revoke a part of it learns why that is not enough; for all other keys the lease is reported as gone.
    const concerned = namesOf(lease).some(name => allowed(state, key, 'revoke', name))
    return concerned ? beyond(state, key, 'revoke', lease)! : gone(state, target.lease)
  }
  const bad = 'holder' in target ? badName(target.holder) : badPrefix(target.prefix)
  if (bad !== undefined) return refuseFlaw(state, within('holder' in target ? 'target.holder' : 'target.prefix', bad))
  if (among !== undefined && among.length > MAX_REVOKED) return refuseFlaw(state, tooMany('among', MAX_REVOKED))
  const isMeant = revokeFilter(state, target, key)
  const leases = among === undefined ? [...state.leases.values()] : among.map(id => findLease(state, id))
  const found = leases.filter((lease): lease is LeaseState => lease !== undefined && isMeant(lease))
  return found.length === 0 && ended === 0 ? refuse(state, 'no-match', {}) : found
}

export function breakHold(state: State, effects: Effects, { resource: name, after = 0, by = '' }: Break, key: number): Outcome {
  const bad = badName(name)
  if (bad !== undefined) return refuseFlaw(state, within('resource', bad))
  if (!Number.isSafeInteger(after) || after < 0 || after > TTL_LIMIT) return refuseFlaw(state, outside('after', 0, TTL_LIMIT, after))
  const badBy = badText(by, NAME_BYTES)
  if (badBy !== undefined) return refuseFlaw(state, within('by', badBy))
  if (!allowed(state, key, 'break', name)) return forbidden(state, 'break', name)
  const resource = state.resources.get(name)
  const held = (resource?.grants ?? []).filter(({ lease }) => lease.status !== FROZEN)
  if (held.length === 0) return refuse(state, 'no-holder', { resource: name })
  for (const { lease } of held) {
    const refused = mayRelease(state, key, lease) ? undefined : beyond(state, key, 'break', lease, namesHeld)
    if (refused !== undefined) return refused
  }
  if (after > 0) {
    const full = held.find(({ lease }) => breakSlot(lease, after) === 'full')
    if (full !== undefined)
      return refuse(state, 'too-many-breaks', { resource: name, lease: full.lease.id, limit: slotsEnd(full.lease) - BREAK })
  }
  const { freed } = state
  for (const { lease, token } of held) {
    if (after === 0) {
      end(state, effects, lease, { type: 'revoked', cause: 'break', by, stopped: false }, freed)
      continue
    }
    const slot = breakSlot(lease, after)
    if (slot === undefined || slot === 'full') continue
    touch(state, lease)
    extrasOf(lease).by = by
    startTimer(state, effects, lease, slot, after)
    emit(state, effects, 'recalled', lease, { resource: name, token, cause: 'break', by: by === '' ? undefined : by })
  }
  settle(state, effects, freed)
  return done()
}

/**
 * The timer slot for a break after this time, or undefined if it would change nothing. A running break is never replaced: how much of it is left is unknown
 * here, and a second break may only shorten it. `full`: it would shorten it, but there is no free slot.
 */
function breakSlot(lease: LeaseState, after: number): Slot | 'full' | undefined {
  const timers = lease.extras?.timers
  for (let slot = BREAK as Slot; slot < slotsEnd(lease); slot++) {
    const running = timers?.[slot]
    if (running === undefined) return slot
    if (running.duration <= after) return undefined
  }
  return 'full'
}

/** The slot after the last one for breaks. In a pool, one is for preemption. */
function slotsEnd({ extras }: LeaseState): number {
  return extras?.pool === undefined ? SLOTS : PREEMPT
}

export function recallHolders(state: State, effects: Effects, { resource, by = '' }: Recall, key: number): Outcome {
  const bad = badName(resource)
  if (bad !== undefined) return refuseFlaw(state, within('resource', bad))
  const badBy = badText(by, NAME_BYTES)
  if (badBy !== undefined) return refuseFlaw(state, within('by', badBy))
  if (!allowed(state, key, 'acquire', resource)) return forbidden(state, 'acquire', resource, 'recall')
  const above = coveringGrants(state, resource)
  const grants = [...(state.resources.get(resource)?.grants ?? []), ...above]
  if (!grants.some(given => given.lease.status !== FROZEN)) return refuse(state, 'no-holder', { resource })
  recall(state, effects, resource, by)
  for (const grant of above) recallGrant(state, effects, grant, by)
  return done()
}
