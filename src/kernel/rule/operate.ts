/** What operators and givers do to leases: revoke, break, recall, transfer. */

import type { Break, Recall, Revoke, Transfer, Want } from '../command.ts'
import { badName, badPrefix, badText, NAME_BYTES, under } from '../name.ts'
import { done, type Outcome, type Refused } from '../outcome.ts'
import { neverGiven, outside, within } from '../reason.ts'
import { addChild, extrasOf, findLease, openLease, touch, UNCLAIMED } from '../state/leases.ts'
import { agedOf } from '../state/timers.ts'
import { BREAK, FROZEN, type LeaseState, LIVE, PREEMPT, SLOTS, type Slot, type State, TERM, WAITING } from '../state.ts'
import { allowed, beyond, mayHave, mayRelease, mayTouch, namesHeld, namesOf, outOfReach } from './authority.ts'
import { type Effects, emit, startTimer } from './effects.ts'
import { end } from './end.ts'
import { TTL_LIMIT } from './policy.ts'
import { waitsForPool } from './pool/waiters.ts'
import { enqueue, FIRST_IN_LINE, grant } from './queue.ts'
import { exhausted, forbidden, gone, refuse, refuseFlaw } from './refuse.ts'
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

export function transfer(state: State, effects: Effects, command: Transfer, key: number): Outcome {
  const { lease: id, to, incarnation } = command
  const bad = badName(to)
  if (bad !== undefined) return refuseFlaw(state, within('to', bad))
  if (incarnation !== undefined && !(Number.isSafeInteger(incarnation) && incarnation >= 1 && incarnation < state.nextLease))
    return refuseFlaw(state, neverGiven('incarnation', incarnation))
  const lease = findLease(state, id)
  if (lease === undefined || lease.status !== LIVE || !mayTouch(state, key, lease)) return gone(state, id)
  if (!mayRelease(state, key, lease)) return refuse(state, 'forbidden-whole', { action: 'transfer', lease: id })
  if (lease.grants.length === 0) return refuse(state, 'holds-nothing', { lease: id })
  const over = exhausted(state)
  if (over !== undefined) return over
  const wants = lease.grants.map(given => ({ resource: given.resource.name, units: given.shared ? 1 : given.units, shared: given.shared }))
  const { maxLife = 0, grace = 0, by = '', parent, pool } = lease.extras ?? {}
  const running = lease.extras?.timers?.map(timer => timer && { duration: timer.duration, aged: agedOf(state, timer) }) ?? []
  const meant = recipient(state, wants, to, incarnation)
  // As with a release: an administrator cannot say for the holder that it has stopped.
  const stopped = command.stopped === true && (key === 0 || key === lease.key)
  // The freed units go to the recipient; the waiters are served only afterwards.
  const { freed } = state
  end(state, effects, lease, { type: 'transferred', cause: 'transferred', by: to, stopped }, freed)
  // A name alone does not tell which key its process uses. It cannot be the giver's key, which has given the lease away and may have been revoked.
  const owner = meant?.key ?? (state.keys.size > 0 ? UNCLAIMED : 0)
  // In the quiet period after a loss nothing is granted: lost records may have granted the same units to another lease.
  const atOnce = stopped && state.quiet === undefined
  const received = openLease(state, to, meant?.holder.incarnation ?? incarnation, owner, lease.ttl, atOnce ? LIVE : WAITING)
  if (maxLife > 0 || grace > 0) Object.assign(extrasOf(received), { maxLife, grace })
  // The members count for the same account still.
  if (pool !== undefined) extrasOf(received).pool = { ...pool, shape: undefined }
  if (owner !== 0) extrasOf(received).handed = true
  if (meant === undefined && incarnation === undefined) extrasOf(received).open = true
  effects.timer(received, TERM)
  if (parent !== undefined) addChild(state, parent, received)
  // Timers that were running continue: otherwise a lease that is passed back and forth would never end.
  for (const [slot, timer] of running.entries()) if (timer !== undefined) inherit(state, effects, received, slot as Slot, timer)
  if (running.length > 0) extrasOf(received).by = by
  if (atOnce) grant(state, effects, received, wants)
  else {
    Object.assign(extrasOf(received), { wants, rank: FIRST_IN_LINE })
    enqueue(state, effects, received)
    // It need not wait for shared grants, or if a pool has room beside the giver.
    for (const want of wants) freed.add(state.resources.get(want.resource)!)
  }
  settle(state, effects, freed)
  return done(received.id)
}

function inherit(
  state: State,
  effects: Effects,
  received: LeaseState,
  slot: Slot,
  { duration, aged }: { duration: number; aged: number },
): void {
  startTimer(state, effects, received, slot, duration)
  extrasOf(received).timers![slot]!.aged = aged
  effects.timer(received, slot)
}

/**
 * A lease of the intended recipient, which tells its process and its key: a waiter for one of the resources, or the first lease of the named incarnation.
 * Not if its key may neither acquire nor renew the resources: every client may use any holder name.
 */
function recipient(state: State, wants: readonly Required<Want>[], to: string, incarnation: number | undefined): LeaseState | undefined {
  const isMeant = ({ holder, status, key }: LeaseState) =>
    holder.name === to &&
    (incarnation === undefined || holder.incarnation === incarnation) &&
    status !== FROZEN &&
    wants.every(({ resource }) => mayHave(state, key, resource))
  for (const { resource } of wants) {
    const waiter = state.resources.get(resource)?.queue.find(isMeant)
    if (waiter !== undefined) return waiter
  }
  // An incarnation is the id of its first lease. `state.holders` cannot be used: a replica that began with a snapshot may have another one.
  const first = incarnation === undefined ? undefined : findLease(state, incarnation)
  return first !== undefined && isMeant(first) ? first : undefined
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
    if (full !== undefined) return refuse(state, 'too-many-breaks', { resource: name, lease: full.lease.id, limit: SLOTS - BREAK })
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
  const last = lease.extras?.pool === undefined ? SLOTS : PREEMPT
  for (let slot = BREAK as Slot; slot < last; slot++) {
    const running = timers?.[slot]
    if (running === undefined) return slot
    if (running.duration <= after) return undefined
  }
  return 'full'
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
