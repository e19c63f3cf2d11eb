/** What operators do to leases: revoke, break, recall. */

import type { Break, Recall, Revoke } from '../command.ts'
import { badName, badPrefix, badText, NAME_BYTES, under } from '../name.ts'
import { done, type Outcome, type Refused } from '../outcome.ts'
import { outside, within } from '../reason.ts'
import { extrasOf, findLease, touch } from '../state/leases.ts'
import { BREAK, FROZEN, type LeaseState, PREEMPT, SLOTS, type Slot, type State } from '../state.ts'
import { allowed, beyond, mayRelease, namesHeld, namesOf, outOfReach } from './authority.ts'
import { type Effects, emit, startTimer } from './effects.ts'
import { end } from './end.ts'
import { TTL_LIMIT } from './policy.ts'
import { waitsForPool } from './pool/waiters.ts'
import { forbidden, gone, refuse, refuseFlaw } from './refuse.ts'
import { settle } from './settle.ts'

/** Asks the holders of a resource to give it back. */
export function recall(state: State, effects: Effects, name: string, by: string): void {
  for (const { lease, token } of state.resources.get(name)?.grants ?? []) {
    if (lease.status === FROZEN) continue
    touch(state, lease)
    extrasOf(lease).recalled = true
    emit(state, effects, 'recalled', lease, { resource: name, token, by })
  }
}

export function revoke(state: State, effects: Effects, { target, force = false, by = '' }: Revoke, key: number): Outcome {
  const badBy = badText(by, NAME_BYTES)
  if (badBy !== undefined) return refuseFlaw(state, within('by', badBy))
  const found = revokeTargets(state, target, key)
  if (!Array.isArray(found)) return found as Refused
  const { freed } = state
  for (const lease of found) end(state, effects, lease, { type: 'revoked', cause: 'revoked', by, stopped: force }, freed)
  settle(state, effects, freed)
  return done()
}

function revokeTargets(state: State, target: Revoke['target'], key: number): readonly LeaseState[] | Refused {
  const mayRevoke = (lease: LeaseState): boolean => mayRelease(state, key, lease) || outOfReach(state, key, 'revoke', lease) === undefined
  if ('lease' in target) {
    const lease = findLease(state, target.lease)
    if (lease === undefined) return gone(state, target.lease)
    if (mayRevoke(lease)) return [lease]
    // A key that may revoke a part of it learns why that is not enough; for all other keys the lease is reported as gone.
    const concerned = namesOf(lease).some(name => allowed(state, key, 'revoke', name))
    return concerned ? beyond(state, key, 'revoke', lease)! : gone(state, target.lease)
  }
  const bad = 'holder' in target ? badName(target.holder) : badPrefix(target.prefix)
  if (bad !== undefined) return refuseFlaw(state, within('holder' in target ? 'target.holder' : 'target.prefix', bad))
  const concerned = (lease: LeaseState): boolean => {
    if ('holder' in target) return lease.holder.name === target.holder
    const prefix = target.prefix
    return (
      lease.grants.some(given => under(prefix, given.resource.name)) ||
      (lease.extras?.wants.some(want => under(prefix, want.resource)) ?? false) ||
      (waitsForPool(lease) && under(prefix, lease.extras!.pool!.pool)) ||
      [...(lease.extras?.entries ?? [])].some(name => under(prefix, name)) ||
      (lease.extras?.pending.some(({ key: name }) => under(prefix, name)) ?? false)
    )
  }
  const found = [...state.leases.values()].filter(lease => concerned(lease) && mayRevoke(lease))
  return found.length === 0 ? refuse(state, 'no-match', {}) : found
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
  if (state.resources.get(resource)?.grants.some(given => given.lease.status !== FROZEN) !== true)
    return refuse(state, 'no-holder', { resource })
  recall(state, effects, resource, by)
  return done()
}
