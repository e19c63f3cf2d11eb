/**
 * Passing a lease on. If the recipient waits for what it gets, the lease that waits is granted, and keeps what it asked for: its parent, entries, ttl, labels
 * and class. Otherwise a new lease is made for it. In both cases the claim goes on: its account, rank, priority, limits and notices, and the time it was
 * held.
 */
import type { KeyUse, Transfer } from '../command.ts'
import { DEADLOCK, ELSEWHERE } from '../event.ts'
import { badName } from '../name.ts'
import { done, type Outcome } from '../outcome.ts'
import { neverGiven, within } from '../reason.ts'
import { noUse } from '../state/key-use.ts'
import { addChild, descendsFrom, extrasOf, findLease, openLease, touch, UNCLAIMED } from '../state/leases.ts'
import { standsBefore } from '../state/order.ts'
import { agedOf } from '../state/timers.ts'
import {
  CAP,
  FROZEN,
  type Freed,
  type Grant,
  type LeaseExtras,
  type LeaseState,
  LIVE,
  type Slot,
  type State,
  TERM,
  WAITING,
} from '../state.ts'
import type { WantedResource } from './applicant.ts'
import { entriesFree } from './attach.ts'
import { allowed, mayHave, mayRelease, mayTouch } from './authority.ts'
import { firstConflict, meet, waitersAround } from './covers.ts'
import { type Effects, emit, startTimer } from './effects.ts'
import { end } from './end.ts'
import { isWithinBounds } from './key-bounds.ts'
import { beyondLimits } from './key-limit.ts'
import { limitAmong } from './permits.ts'
import { chooseAll, FIRST_IN_LINE, grant, joinQueues, leaveQueues, pressHolders } from './queue.ts'
import { exhausted, gone, refuse, refuseFlaw } from './refuse.ts'
import { grantWaiter, settle } from './settle.ts'

const ONE_LEASE: KeyUse = { ...noUse(), leases: 1 }

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
  const wants = lease.grants.map(wantOf)
  const claim = claimOf(state, lease)
  const waiter = answeredWaiter(state, lease, wants, command)
  // As with a release: an administrator cannot say for the holder that it has stopped.
  const stopped = command.stopped === true && (key === 0 || key === lease.key)
  if (lease.extras?.pool !== undefined) {
    touch(state, lease)
    lease.extras.pool.passedOn = true
  }
  // The freed units go to the recipient; the waiters are served only afterwards.
  const { freed } = state
  end(state, effects, lease, { type: 'transferred', cause: 'transferred', by: to, stopped }, freed)
  // In the quiet period after a loss nothing is granted: lost records may have granted the same units to another lease.
  const isFree = wants.every(want => firstConflict(state, want, { any: 0, rank: FIRST_IN_LINE, id: 0, covers: claim.covers }) === undefined)
  // Beside claims of the giver's own client, the recipient waits until these have gone.
  const atOnce = stopped && state.quiet === undefined && isFree
  // The waiter may have ended with the lease, or may have to wait for its entries.
  const isAnswered = waiter !== undefined && findLease(state, waiter.id) === waiter && entriesFree(state, waiter)
  const received = isAnswered ? waiter : successor(state, effects, command, claim, wants, atOnce)
  if (isAnswered) touch(state, received)
  carryOn(state, effects, received, claim)
  if (!atOnce) waitFirst(state, effects, received, wants, freed)
  else if (isAnswered) grantWaiter(state, effects, received, chooseAll(state, wants), freed, 'transferred')
  else grant(state, effects, received, chooseAll(state, wants))
  if (!isAnswered) endSelfWaits(state, effects, received, freed)
  settle(state, effects, freed)
  return done(received.id)
}

/** This goes on after a transfer. */
interface PassedOnClaim
  extends Pick<
    LeaseExtras,
    'maxLife' | 'grace' | 'permits' | 'covers' | 'by' | 'parent' | 'pool' | 'priority' | 'rank' | 'recalled' | 'labels'
  > {
  readonly ttl: number
  readonly since: number
  /** The timers that run: otherwise a lease that is passed back and forth would never end. */
  readonly running: readonly ({ readonly duration: number; readonly aged: number } | undefined)[]
}

function claimOf(state: State, { ttl, since, extras }: LeaseState): PassedOnClaim {
  const {
    maxLife = 0,
    grace = 0,
    permits = 0,
    covers = false,
    by = '',
    parent,
    pool,
    priority = 0,
    rank = 0,
    recalled = false,
    labels = [],
    timers = [],
  } = extras ?? {}
  const running = timers.map(timer => timer && { duration: timer.duration, aged: agedOf(state, timer) })
  return {
    ttl,
    since,
    maxLife,
    grace,
    permits,
    covers,
    by,
    parent,
    pool: pool && { ...pool, shape: undefined },
    priority,
    rank,
    recalled,
    labels,
    running,
  }
}

/**
 * A waiting request of the recipient that the transfer answers: it asks for nothing else, states the same permits, covers as much, and has no other parent. Not if
 * its key may not acquire all of the names: every client may use any holder name.
 */
function answeredWaiter(
  state: State,
  { id, extras }: LeaseState,
  wants: readonly WantedResource[],
  { to, incarnation }: Transfer,
): LeaseState | undefined {
  const parent = extras?.parent
  const isAnswered = (waiter: LeaseState) =>
    waiter.extras!.passedOn === undefined &&
    waiter.extras!.permits === (extras?.permits ?? 0) &&
    waiter.extras!.covers === (extras?.covers ?? false) &&
    waiter.holder.name === to &&
    (incarnation === undefined || waiter.incarnation === incarnation) &&
    covers(wants, waiter.extras!) &&
    (parent === undefined || waiter.extras!.parent === parent) &&
    !descendsFrom(waiter, id) &&
    isWithinBounds(state, waiter.key, to, extras?.pool?.account) &&
    wants.every(({ resource }) => allowed(state, waiter.key, 'acquire', resource))
  const first = (one: LeaseState | undefined, other: LeaseState) => (one === undefined || standsBefore(other, one) ? other : one)
  return wants.flatMap(({ resource }) => state.resources.get(resource)!.queue.filter(isAnswered)).reduce(first, undefined)
}

/** Returns whether these grants are all that a waiter asked for: each name, with its units and in its mode, or exactly as many of the names as it wants. */
function covers(given: readonly WantedResource[], { wants, any }: LeaseExtras): boolean {
  const isGiven = ({ resource, units, shared }: WantedResource) =>
    given.some(grant => grant.resource === resource && grant.shared === shared && grant.units >= units)
  return any > 0 ? given.length === any && wants.filter(isGiven).length === any : wants.every(isGiven)
}

/** A new lease for a recipient that does not wait for it. */
function successor(
  state: State,
  effects: Effects,
  { to, incarnation }: Transfer,
  { ttl, parent, labels, pool }: PassedOnClaim,
  wants: readonly WantedResource[],
  atOnce: boolean,
): LeaseState {
  const found = incarnation === undefined ? undefined : leaseOfProcess(state, to, incarnation, wants)
  // What would be too much for its key stays unclaimed: the key may claim it once it has room.
  const process = found !== undefined && mayReceive(state, found.key, to, pool) ? found : undefined
  // A name alone does not tell which key its process uses. It cannot be the giver's key, which has given the lease away and may have been revoked.
  const owner = process?.key ?? (state.keys.size > 0 ? UNCLAIMED : 0)
  const received = openLease(state, to, incarnation, owner, ttl, atOnce ? LIVE : WAITING)
  effects.timer(received, TERM)
  extrasOf(received).handed = true
  state.unused.add(received)
  if (labels.length > 0) extrasOf(received).labels = labels
  if (incarnation === undefined) extrasOf(received).open = true
  if (parent !== undefined) addChild(state, parent, received)
  return received
}

function mayReceive(state: State, key: number, holder: string, pool: PassedOnClaim['pool']): boolean {
  return isWithinBounds(state, key, holder, pool?.account) && beyondLimits(state, key, ONE_LEASE) === undefined
}

/** A lease of the process, which tells its key: its first one, or a waiter for one of the resources. */
function leaseOfProcess(state: State, to: string, incarnation: number, wants: readonly WantedResource[]): LeaseState | undefined {
  const isMeant = ({ holder, incarnation: theirs, status, key }: LeaseState) =>
    holder.name === to && theirs === incarnation && status !== FROZEN && wants.every(({ resource }) => mayHave(state, key, resource))
  for (const { resource } of wants) {
    const waiter = state.resources.get(resource)?.queue.find(isMeant)
    if (waiter !== undefined) return waiter
  }
  // An incarnation is the id of its first lease. `state.holders` cannot be used: a replica that began with a snapshot may have another one.
  const first = findLease(state, incarnation)
  return first !== undefined && isMeant(first) ? first : undefined
}

/** The claim of a lease that was passed on continues with the lease that got it. A waiter keeps its own limit on its life if that is shorter. */
function carryOn(state: State, effects: Effects, received: LeaseState, claim: PassedOnClaim): void {
  const { grace, permits, covers, by, pool, priority, recalled, rank, since, running } = claim
  const cap = running[CAP]
  const own = received.extras?.maxLife ?? 0
  const keepsOwn = own > 0 && (cap === undefined || own < cap.duration - cap.aged)
  const maxLife = keepsOwn ? own : claim.maxLife
  const extras = Object.assign(extrasOf(received), { grace, maxLife, priority, recalled, permits, covers, passedOn: { rank, since } })
  if (pool !== undefined) extras.pool = pool
  if (running.length > 0) extras.by = by
  for (const [slot, timer] of running.entries()) {
    if (timer === undefined || (slot === CAP && keepsOwn)) continue
    startTimer(state, effects, received, slot as Slot, timer.duration)
    extras.timers![slot]!.aged = timer.aged
    effects.timer(received, slot as Slot)
  }
}

/** It waits before all others until the giver has certainly stopped. */
function waitFirst(state: State, effects: Effects, received: LeaseState, wants: readonly WantedResource[], freed: Freed): void {
  const before = received.extras!.wants
  const isIn = (list: readonly WantedResource[], { resource }: WantedResource) => list.some(other => other.resource === resource)
  if (before.length > 0) leaveQueues(state, received, freed)
  Object.assign(received.extras!, { wants, any: 0, rank: FIRST_IN_LINE })
  joinQueues(state, received)
  for (const want of wants) {
    const resource = state.resources.get(want.resource)!
    if (!isIn(before, want)) emit(state, effects, 'queued', received, { resource: want.resource })
    pressHolders(state, effects, resource)
    freed.add(resource) // it need not wait for shared grants, or if there is room beside the giver
  }
  for (const want of before)
    if (!isIn(wants, want)) emit(state, effects, 'withdrawn', received, { resource: want.resource, cause: ELSEWHERE })
}

/** A process that waits for what was passed on to itself would wait for ever. The caller settles. */
function endSelfWaits(state: State, effects: Effects, received: LeaseState, freed: Freed): void {
  const { holder, incarnation } = received
  const given: readonly WantedResource[] = received.status === WAITING ? received.extras!.wants : received.grants.map(wantOf)
  for (const own of given) {
    const blocks = ({ resource, units, shared }: WantedResource, permits: number) =>
      resource === own.resource &&
      (shared ? !own.shared : own.shared || own.units + units > limitAmong(state, resource, permits, [received]))
    const waitsForItself = (waiter: LeaseState) =>
      waiter.extras!.passedOn === undefined &&
      waiter.holder.name === holder.name &&
      waiter.incarnation === incarnation &&
      waiter.extras!.any === 0 &&
      waiter.extras!.wants.some(want => blocks(want, waiter.extras!.permits) || isAround(want, waiter.extras!.covers))
    const covers = received.extras!.covers
    const isAround = ({ resource, shared }: WantedResource, covering: boolean) =>
      meet(own.resource, covers, resource, covering) && !(shared && own.shared)
    const there = [...(state.resources.get(own.resource)?.queue ?? []), ...waitersAround(state, own.resource, covers)]
    for (const waiter of there.filter(waitsForItself))
      end(state, effects, waiter, { type: 'revoked', cause: DEADLOCK, by: String(received.id), stopped: true }, freed)
  }
}

function wantOf({ resource, units, shared }: Grant): WantedResource {
  return { resource: resource.name, units: shared ? 1 : units, shared }
}
