/** Queues: which lease may take free units, and which waits. Every queue has the same order, so waiting for several resources cannot deadlock by itself. */
import { under } from '../name.ts'
import { countWaiter, uncountWaiter } from '../state/key-use.ts'
import { Grant } from '../state/lease-state.ts'
import { touch } from '../state/leases.ts'
import { blocks, insertionIndex } from '../state/order.ts'
import { countForQuotas, uncountForQuotas } from '../state/quota-counts.ts'
import { addGrant, addResource, resourceOf } from '../state/resources.ts'
import { CAP, FROZEN, type Freed, HOLD, type LeaseState, LIVE, type Resource, type State } from '../state.ts'
import type { Applicant, WantedResource } from './applicant.ts'
import { conflictsOf, isClear, isOwn, wake } from './covers.ts'
import type { Effects } from './effects.ts'
import { cancelTimer, emit, pushEvent, startTimer } from './effects.ts'
import { judgeWaiter } from './judge.ts'
import { limitBeside, ownLimit } from './permits.ts'
import { rule } from './policy.ts'
import { beginHolding } from './pool/holders.ts'
import { updateRoom } from './pool/member.ts'
import { announceWaiter, joinPool, leavePool, pressPool, waitsForPool } from './pool/waiters.ts'

/** A want that is to be granted, and its resource as it was looked up; undefined: no lease holds it or waits for it. */
export interface ChosenWant {
  readonly want: WantedResource
  readonly resource: Resource | undefined
}

/** A resource that no lease holds or waits for. */
const UNUSED = { used: 0, sharers: 0 }

/** The rank of a steal, or of the recipient of a transfer: before all ordinary waiters. */
export const FIRST_IN_LINE = -1e15
/** The rank of a forced steal: before other steals and recipients as well. Otherwise the units that it frees would go to them, and it would wait. */
export const BY_FORCE = -2e15

export function positionOf(resource: Resource, lease: LeaseState): number {
  return insertionIndex(resource.queue, lease.extras!.rank, lease.id)
}

/** No overtaking in a `fifo` queue: a newcomer takes free units only if no waiter before it blocks. */
function mayTake(state: State, resource: Resource | undefined, want: WantedResource, applicant: Applicant): boolean {
  const { rank, id, permits = 0 } = applicant
  const { used, sharers } = resource ?? UNUSED
  const capacity = resource === undefined ? ownLimit(state, want.resource, permits) : limitBeside(state, resource, permits)
  if (want.shared ? capacity === 0 || used > 0 : sharers > 0 || used + want.units > capacity) return false
  if (state.claims !== undefined && !isClear(state, want, applicant)) return false
  if (resource === undefined || resource.queue.length === 0 || rule(state, want.resource, 'queue') === 'fit') return true
  const behind = mayOvertake(state, want, applicant) ? 0 : insertionIndex(resource.queue, rank, id)
  for (let i = 0; i < behind; i++) if (blocks(resource.queue[i]!, resource)) return false
  return true
}

/** Returns whether its own covering claim makes a name free for it: the waiters there wait for that claim. */
function mayOvertake(state: State, want: WantedResource, applicant: Applicant): boolean {
  return state.claims !== undefined && isOwn(state, want, applicant)
}

/** Which of `wants` would be granted now: all, or the first `any` of them; undefined: it must wait. */
export function choose(state: State, wants: readonly WantedResource[], applicant: Applicant): readonly ChosenWant[] | undefined {
  const { any } = applicant
  if (state.quiet !== undefined && wants.length > 0) return undefined
  const needed = any === 0 ? wants.length : any
  const chosen: ChosenWant[] = []
  for (const want of wants) {
    const resource = state.resources.get(want.resource)
    if (mayTake(state, resource, want, applicant)) chosen.push({ want, resource })
    else if (any === 0) return undefined
    if (chosen.length === needed) return chosen
  }
  return needed === 0 ? chosen : undefined
}

/** Looks up all `wants`: another rule has chosen them. */
export function chooseAll(state: State, wants: readonly WantedResource[]): readonly ChosenWant[] {
  return wants.map(want => ({ want, resource: state.resources.get(want.resource) }))
}

/** The caller has touched the lease, or just created it. No resource has been added or dropped since the choice. */
export function grant(state: State, effects: Effects, lease: LeaseState, chosen: readonly ChosenWant[], cause?: string): void {
  lease.status = LIVE
  lease.since = state.wall
  if (lease.extras?.passedOn !== undefined) continueClaim(lease)
  if (chosen.length > 0 && lease.term > state.longest) state.longest = lease.term
  for (const { want, resource: found } of chosen) {
    const resource = found ?? addResource(state, want.resource)
    const given = new Grant(lease, resource, want.shared ? 0 : want.units, state.nextToken++)
    addGrant(given)
    state.claims?.addGrant(given)
    if (resource.member !== undefined) updateRoom(state, resource.member, resource)
    pushEvent(state, effects, 'granted', lease, want.resource, given.token, cause)
  }
  if (state.quotaCounts !== undefined) countForQuotas(state, lease)
  const claim = lease.extras?.pool
  if (claim !== undefined) beginHolding(state, lease)
  const maxLife = lease.extras?.maxLife ?? 0
  // A transferred lease has inherited its cap already.
  if (maxLife > 0 && lease.extras?.timers?.[CAP] === undefined) startTimer(state, effects, lease, CAP, maxLife)
  // Only policies limit how long a resource is held.
  if (state.policies.size > 0)
    for (const { resource } of lease.grants) if (resource.queue.length > 0) pressHolders(state, effects, resource)
  if (claim !== undefined) pressPool(state, effects, state.pools.get(claim.pool)!)
}

/** The lease was passed on: it has been held for as long, and stands where it stood. */
function continueClaim(lease: LeaseState): void {
  const extras = lease.extras!
  lease.since = extras.passedOn!.since
  extras.rank = extras.passedOn!.rank
  extras.passedOn = undefined
}

export function enqueue(state: State, effects: Effects, lease: LeaseState): void {
  joinQueues(state, lease)
  for (const want of lease.extras!.wants) {
    emit(state, effects, 'queued', lease, { resource: want.resource })
    pressHolders(state, effects, state.resources.get(want.resource)!)
    pressAround(state, effects, want, lease.extras!.covers)
  }
  if (waitsForPool(lease)) announceWaiter(state, effects, lease)
}

export function joinQueues(state: State, lease: LeaseState): void {
  const { wants, rank, holding } = lease.extras!
  judgeWaiter(state, lease)
  state.counts.waiting++
  countWaiter(state, lease)
  for (const want of wants) {
    const resource = resourceOf(state, want.resource)
    if (resource.queue.length === 0) resource.queue = [lease]
    else resource.queue.splice(insertionIndex(resource.queue, rank, lease.id), 0, lease)
    if (resource.member !== undefined) updateRoom(state, resource.member, resource)
    state.claims?.addWaiter(lease, want.resource)
  }
  if (waitsForPool(lease)) joinPool(state, lease)
  countForQuotas(state, lease)
  for (const kept of holding) enlist(state.keeping, kept, lease)
  for (const { key } of lease.extras!.pending) enlist(state.pending, key, lease)
}

function enlist<K>(lists: Map<K, Set<LeaseState>>, name: K, lease: LeaseState): void {
  const waiters = lists.get(name)
  if (waiters === undefined) lists.set(name, new Set([lease]))
  else waiters.add(lease)
}

function strike<K>(lists: Map<K, Set<LeaseState>>, name: K, lease: LeaseState): void {
  const waiters = lists.get(name)!
  waiters.delete(lease)
  if (waiters.size === 0) lists.delete(name)
}

/** A waiter has come: starts the HOLD timer of holders whose policy limits holding while others wait. */
export function pressHolders(state: State, effects: Effects, resource: Resource): void {
  const { grants } = resource
  let pressed = state.pressed.get(resource) ?? 0
  if (pressed === grants.length) return
  const maxHold = rule(state, resource.name, 'maxHold')
  if (maxHold === 0) return
  // The grants before were handled when the last waiter came: with twenty thousand sharers, each waiter must not visit all of them.
  for (; pressed < grants.length; pressed++) {
    const { lease } = grants[pressed]!
    if (lease.status === FROZEN || lease.extras?.timers?.[HOLD] !== undefined) continue
    touch(state, lease)
    startTimer(state, effects, lease, HOLD, maxHold)
  }
  state.pressed.set(resource, pressed)
}

/** The same for the claims above and below that are in the way of the waiter. */
function pressAround(state: State, effects: Effects, want: WantedResource, covers: boolean): void {
  if (state.claims === undefined || state.claims.coverings === 0 || !mayLimitHolding(state, want.resource)) return
  for (const { resource } of conflictsOf(state, want, covers)) pressHolders(state, effects, resource)
}

/** Returns whether some policy limits how long a name is held, of this name or one above or below it. */
function mayLimitHolding(state: State, name: string): boolean {
  for (const [prefix, { maxHold = 0 }] of state.policies) if (maxHold > 0 && (under(prefix, name) || under(name, prefix))) return true
  return false
}

/** Stops the HOLD timer of a holder until another waiter comes. */
export function relaxHolder(state: State, effects: Effects, lease: LeaseState): void {
  cancelTimer(effects, lease, HOLD)
  for (const { resource } of lease.grants) state.pressed.delete(resource)
}

/** Removes a waiter from all its queues. `settle` then serves the waiters that it blocked. */
export function leaveQueues(state: State, lease: LeaseState, freed: Freed): void {
  state.counts.waiting--
  uncountWaiter(state, lease)
  uncountForQuotas(state, lease)
  for (const want of lease.extras!.wants) {
    const resource = state.resources.get(want.resource)!
    resource.queue.splice(positionOf(resource, lease), 1)
    if (resource.member !== undefined) updateRoom(state, resource.member, resource)
    freed.add(resource)
    if (state.claims !== undefined) {
      state.claims.deleteWaiter(lease, want.resource)
      wake(state, want.resource, lease.extras!.covers, freed)
    }
  }
  if (waitsForPool(lease)) leavePool(state, lease)
  for (const kept of lease.extras!.holding) strike(state.keeping, kept, lease)
  for (const { key } of lease.extras!.pending) strike(state.pending, key, lease)
}
