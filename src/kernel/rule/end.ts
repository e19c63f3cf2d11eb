/**
 * Leases end here. After a revoke, a parent's end, a break, a steal or a cap, the holder may not know yet that its lease has ended. So its units stay frozen
 * until it releases them or its running term is over. The timer that runs on is the same one: when it is due, the holder has stopped, exactly as for a
 * lapse.
 */

import type { EventType } from '../event.ts'
import { entryBytes } from '../state/free-entries.ts'
import { NO_GRANTS, withoutGrant } from '../state/lease-state.ts'
import { dropLease, extrasOf, findLease, leaveParent, touch } from '../state/leases.ts'
import { POOL_ROOT } from '../state/pools.ts'
import { countForQuotas, uncountForQuotas } from '../state/quota-counts.ts'
import { dropEntry, dropFreeEntry, freeUnits, placeOfGrant } from '../state/resources.ts'
import {
  CAP,
  FROZEN,
  type Freed,
  type Grant,
  type LeaseState,
  LIVE,
  PREEMPT,
  SLOTS,
  type Slot,
  type State,
  SUSPECT,
  TERM,
  WAITING,
} from '../state.ts'
import { wake } from './covers.ts'
import type { Effects } from './effects.ts'
import { cancelTimer, emit, emitForGrants, restartTerm } from './effects.ts'
import { learnFromEnd } from './learn.ts'
import { rule } from './policy.ts'
import { endNotice, returnMember } from './pool/holders.ts'
import { markPool, updateRoom, withdrawMember } from './pool/member.ts'
import { waitsForPool } from './pool/waiters.ts'
import { leaveQueues } from './queue.ts'
import { countEntry, review } from './service.ts'

export interface LeaseEnd {
  readonly type: EventType
  readonly cause: string
  readonly by?: string
  /** The holder said so, or its term has run out: it does not rely on the lease any more. */
  readonly stopped: boolean
  /** For how many ms the lease was held, as its holder says. */
  readonly ran?: number
}

const HISTORY_NAMES = 16_384
const HISTORY_LENGTH = 8

function remember(state: State, grant: Grant, cause: string, by: string): void {
  const { name } = grant.resource
  let past = state.history.get(name)
  if (past === undefined) {
    past = []
    state.history.set(name, past)
    if (state.history.size > HISTORY_NAMES) {
      state.oldest ??= state.history.keys()
      state.history.delete(state.oldest.next().value)
    }
  }
  // Overwrites the oldest record: repeated grants of one resource should allocate nothing. Not while a snapshot is being taken.
  const oldest = past.length < HISTORY_LENGTH ? undefined : past.shift()
  const record =
    oldest === undefined || state.saving !== undefined
      ? { lease: 0, holder: '', token: 0, since: 0, until: 0, cause: '', by: '', revision: 0 }
      : oldest
  record.lease = grant.lease.id
  record.holder = grant.lease.holder.name
  record.token = grant.token
  record.since = grant.lease.since
  record.until = state.wall
  record.cause = cause
  record.by = by
  record.revision = state.revision + 1
  past.push(record)
}

function removeGrant(state: State, grant: Grant, freed: Freed): void {
  const { resource } = grant
  const at = placeOfGrant(resource.grants, grant.token)
  const pressed = state.pressed.size === 0 ? 0 : (state.pressed.get(resource) ?? 0)
  if (at < pressed) state.pressed.set(resource, pressed - 1)
  resource.held = withoutGrant(resource.held, at)
  freeUnits(grant)
  if (resource.member !== undefined) updateRoom(state, resource.member, resource)
  freed.add(resource)
  const { claims } = state
  if (claims === undefined) return
  claims.deleteGrant(grant)
  const covers = grant.lease.extras?.covers === true
  wake(state, resource.name, covers, freed)
  if (covers) reconsiderOffers(state)
}

/** Members of pools may be offered again where a covering claim has gone. In one order on all replicas. */
function reconsiderOffers(state: State): void {
  const offers = [...state.pending.keys()].filter(key => key.startsWith(POOL_ROOT))
  for (const key of offers.sort()) reconsider(state, key)
}

function clearTimers(effects: Effects, lease: LeaseState): void {
  if (lease.extras?.timers === undefined) return
  for (let slot = CAP as Slot; slot < SLOTS; slot++) cancelTimer(effects, lease, slot)
}

/**
 * Frees the resources of waiters that bring an entry with this key: they may be served now. The caller settles. In the order of their ids, which is the order
 * of the list after a snapshot: a waiter that a transfer has moved to the front joined the list again.
 */
export function reconsider(state: State, key: string): void {
  const waiters = state.pending.get(key)
  if (waiters === undefined) return
  for (const waiter of [...waiters].sort((one, other) => one.id - other.id))
    if (waitsForPool(waiter)) markPool(state, state.pools.get(waiter.extras!.pool!.pool)!)
    else for (const want of waiter.extras!.wants) state.freed.add(state.resources.get(want.resource)!)
}

/** `vanishes`: a member of a pool does not drain, but is gone. */
export function detachEntry(state: State, effects: Effects, key: string, cause: string, vanishes = false): void {
  const entry = state.entries.get(key)!
  dropEntry(state, key)
  entry.lease.extras!.entries!.delete(key)
  entry.lease.extras!.bytes -= entryBytes(entry)
  emit(state, effects, 'deleted', entry.lease, { key, cause })
  reconsider(state, key)
  const service = countEntry(state, entry, -1)
  if (service !== undefined) review(state, effects, service)
  const member = withdrawMember(state, key)
  if (vanishes && member !== undefined && state.resources.has(member.resource)) state.vanished.push(member)
}

/** Deletes an entry that hangs on no lease. The caller settles. */
export function removeFree(state: State, effects: Effects, key: string): void {
  dropFreeEntry(state, key)
  emit(state, effects, 'deleted', undefined, { key, cause: 'deleted' })
  reconsider(state, key)
}

/** Removes from the family and the entries what an ended lease must not keep, whether its units are frozen or not. */
function strip(state: State, effects: Effects, lease: LeaseState, cause: string, type?: EventType): void {
  const extras = lease.extras
  if (extras === undefined) return
  const vanishes = type === 'lapsed' || type === 'revoked'
  if (extras.entries !== undefined) for (const key of extras.entries) detachEntry(state, effects, key, cause, vanishes)
  extras.entries = undefined
  leaveParent(state, lease)
  clearTimers(effects, lease)
  endNotice(state, lease)
}

/** A waiter ends. It had no grants, so nothing is frozen. */
function withdraw(state: State, effects: Effects, lease: LeaseState, { cause, by }: LeaseEnd, freed: Freed): void {
  touch(state, lease)
  for (const want of lease.extras!.wants)
    emit(state, effects, 'withdrawn', lease, { resource: want.resource, cause, by: by === '' ? undefined : by })
  if (waitsForPool(lease)) emit(state, effects, 'withdrawn', lease, { resource: lease.extras!.pool!.pool, cause })
  leaveQueues(state, lease, freed)
  if (lease.extras!.covers) reconsiderOffers(state)
  strip(state, effects, lease, cause)
  dropLease(state, lease)
  effects.timer(lease, TERM)
}

/**
 * Ends a lease and all its descendants in this revision. A loop and not a recursion: the depth of the call stack is not the same on every replica.
 * The caller settles the freed resources. `hasStopped`: descendants that end as the lease itself, because their holder does not rely on them any more.
 */
export function end(
  state: State,
  effects: Effects,
  lease: LeaseState,
  ending: LeaseEnd,
  freed: Freed,
  hasStopped?: (child: LeaseState) => boolean,
): void {
  endFamily(state, effects, lease, ending, freed, hasStopped)
  // The leases that held members of a pool that are gone. They may have offered members themselves.
  for (let member = state.vanished.pop(); member !== undefined; member = state.vanished.pop())
    for (const grant of [...(state.resources.get(member.resource)?.grants ?? [])])
      if (grant.lease.status !== FROZEN)
        endFamily(state, effects, grant.lease, { type: 'revoked', cause: 'member', by: member.resource, stopped: false }, freed)
}

function endFamily(
  state: State,
  effects: Effects,
  lease: LeaseState,
  ending: LeaseEnd,
  freed: Freed,
  hasStopped?: (child: LeaseState) => boolean,
): void {
  // It has ended already, together with an ancestor.
  if (findLease(state, lease.id) !== lease) return
  if (lease.extras?.children === undefined) return endOne(state, effects, lease, ending, freed)
  const pending = [lease]
  for (let next = pending.pop(); next !== undefined; next = pending.pop()) {
    if (findLease(state, next.id) !== next) continue
    const children = [...(next.extras?.children ?? [])]
    const orphaned: LeaseEnd =
      hasStopped?.(next) === true
        ? { type: ending.type, cause: 'parent', stopped: true }
        : { type: 'revoked', cause: 'parent', stopped: false }
    endOne(state, effects, next, next === lease ? ending : orphaned, freed)
    for (const child of children.reverse()) pending.push(child)
  }
}

function endOne(state: State, effects: Effects, lease: LeaseState, ending: LeaseEnd, freed: Freed): void {
  if (lease.status === FROZEN) {
    if (ending.stopped) thaw(state, effects, lease, freed)
  } else if (lease.status === WAITING) withdraw(state, effects, lease, ending, freed)
  else endHeld(state, effects, lease, ending, freed)
}

function endHeld(state: State, effects: Effects, lease: LeaseState, ending: LeaseEnd, freed: Freed): void {
  const { type, cause, by = '', stopped, ran } = ending
  touch(state, lease)
  learnFromEnd(state, lease, type, ran)
  emitForGrants(state, effects, type, lease, cause, by === '' ? undefined : by)
  for (const grant of lease.grants) remember(state, grant, cause, by)
  strip(state, effects, lease, cause, type)
  // The term of a suspect lease has run out: its holder stopped before the grace period began.
  const believes = !stopped && lease.status === LIVE && lease.grants.length > 0
  if (lease.status === SUSPECT) state.counts.suspect--
  const delay = type === 'lapsed' ? lockDelay(state, lease) : 0
  if (believes || delay > 0) {
    lease.status = FROZEN
    state.counts.frozen++
    const extras = extrasOf(lease)
    extras.cause = cause
    extras.by = by
    emitForGrants(state, effects, 'frozen', lease, cause)
    if (delay > 0) restartTerm(state, effects, lease, delay)
    return
  }
  dropGrants(state, lease, freed)
  dropLease(state, lease)
  effects.timer(lease, TERM)
}

function dropGrants(state: State, lease: LeaseState, freed: Freed): void {
  uncountForQuotas(state, lease)
  const { grants } = lease
  lease.held = NO_GRANTS
  for (let i = 0; i < grants.length; i++) {
    const grant = grants[i]!
    removeGrant(state, grant, freed)
    if (lease.extras?.pool !== undefined) returnMember(state, grant, i === grants.length - 1)
  }
}

function lockDelay(state: State, lease: LeaseState): number {
  let longest = 0
  for (const grant of lease.grants) longest = Math.max(longest, rule(state, grant.resource.name, 'lockDelay'))
  return longest
}

/** The holder has stopped, or the end was forced: the frozen units are free. */
function thaw(state: State, effects: Effects, lease: LeaseState, freed: Freed): void {
  touch(state, lease)
  state.counts.frozen--
  emitForGrants(state, effects, 'thawed', lease, lease.extras!.cause)
  dropGrants(state, lease, freed)
  dropLease(state, lease)
  effects.timer(lease, TERM)
}

/** Releases one grant of a lease that stays. Only the holder may do so, so nothing is frozen. */
export function releaseGrant(state: State, effects: Effects, lease: LeaseState, grant: Grant, freed: Freed): void {
  touch(state, lease)
  const frozen = lease.status === FROZEN
  emit(state, effects, frozen ? 'thawed' : 'released', lease, { resource: grant.resource.name, token: grant.token, cause: 'released' })
  if (!frozen) remember(state, grant, 'released', '')
  uncountForQuotas(state, lease)
  lease.held = withoutGrant(lease.held, lease.grants.indexOf(grant))
  countForQuotas(state, lease)
  removeGrant(state, grant, freed)
  if (lease.extras?.pool === undefined) return
  // With its last member it has given back what it was asked for.
  if (lease.grants.length === 0) {
    endNotice(state, lease)
    cancelTimer(effects, lease, PREEMPT)
  }
  returnMember(state, grant, lease.grants.length === 0)
}
