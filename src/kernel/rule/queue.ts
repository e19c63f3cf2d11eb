/** Who may take what is free, and who waits for it. The order of a queue is the same wherever a waiter stands in it, so waiting for several things cannot lock up. */
import type { Want } from '../command.ts'
import type { FreedResources } from '../state/freed-resources.ts'
import { touch } from '../state/leases.ts'
import { resourceOf, withGrant } from '../state/resources.ts'
import { CAP, FROZEN, HOLD, type LeaseState, LIVE, type Resource, type State } from '../state.ts'
import type { Effects } from './effects.ts'
import { cancelTimer, emit, emitForGrant, startTimer } from './effects.ts'
import { rule } from './policy.ts'

export type WantedResource = Required<Want>

/** The rank of a thief or an heir: before everyone who merely waits. */
export const FIRST_IN_LINE = -1e15
/** The rank of who takes by force: before those as well, or what it frees would be theirs and it would wait. */
export const BY_FORCE = -2e15

function isBefore(waiter: LeaseState, rank: number, id: number): boolean {
  return waiter.rare!.rank < rank || (waiter.rare!.rank === rank && waiter.id < id)
}

/** Whether one waiter's turn is before another's, wherever they stand. */
export function standsBefore(one: LeaseState, other: LeaseState): boolean {
  return isBefore(one, other.rare!.rank, other.id)
}

/** Where `rank`, `id` stands or would stand. */
export function place(queue: readonly LeaseState[], rank: number, id: number): number {
  let low = 0
  let high = queue.length
  while (low < high) {
    const middle = (low + high) >>> 1
    if (isBefore(queue[middle]!, rank, id)) low = middle + 1
    else high = middle
  }
  return low
}

export function positionOf(resource: Resource, lease: LeaseState): number {
  return place(resource.queue, lease.rare!.rank, lease.id)
}

function room(state: State, resource: Resource | undefined, want: WantedResource): boolean {
  const capacity = rule(state, want.resource, 'capacity')
  if (want.shared) return capacity > 0 && (resource === undefined || resource.used === 0)
  if (resource === undefined) return want.units <= capacity
  return resource.sharers === 0 && resource.used + want.units <= capacity
}

/** Whether there is as much of it at all, whoever holds it now. */
export function exists(state: State, want: WantedResource): boolean {
  const capacity = rule(state, want.resource, 'capacity')
  return want.shared ? capacity > 0 : want.units <= capacity
}

/**
 * Works out where one who waits is passed over. A capacity that was lowered after it came may leave less than it wants: it keeps its place, for the
 * capacity may be raised again, but nobody is to wait behind what cannot be served. Asked for whenever its wants or their policies change.
 */
export function judgeWaiter(state: State, lease: LeaseState): void {
  const rare = lease.rare!
  rare.passed = undefined
  if (state.rules < 2) return
  const { wants, any } = rare
  const lacking = wants.filter(want => !exists(state, want))
  if (lacking.length === 0) return
  const isHopeless = wants.length - lacking.length < (any === 0 ? wants.length : any)
  rare.passed = new Set((isHopeless ? wants : lacking).map(want => want.resource))
}

/** Whether those behind it have to wait for it. */
export function blocks(waiter: LeaseState, resource: Resource): boolean {
  return waiter.rare!.passed?.has(resource.name) !== true
}

/** Nobody overtakes in a `fifo` queue: a newcomer may only take what is free when it would stand first, but for those who are passed over. */
function mayTake(state: State, resource: Resource | undefined, want: WantedResource, rank: number, id: number): boolean {
  if (!room(state, resource, want)) return false
  if (resource === undefined || resource.queue.length === 0) return true
  if (rule(state, want.resource, 'queue') === 'fit') return true
  const behind = place(resource.queue, rank, id)
  for (let i = 0; i < behind; i++) if (blocks(resource.queue[i]!, resource)) return false
  return true
}

/** Which of `wants` it would get now: all, or the first `any` of them; undefined when it must wait. */
export function choose(
  state: State,
  wants: readonly WantedResource[],
  any: number,
  rank: number,
  id: number,
): readonly WantedResource[] | undefined {
  if (state.quiet !== undefined && wants.length > 0) return undefined
  if (any === 0) {
    for (const want of wants) if (!mayTake(state, state.resources.get(want.resource), want, rank, id)) return undefined
    return wants
  }
  const chosen: WantedResource[] = []
  for (const want of wants) {
    if (!mayTake(state, state.resources.get(want.resource), want, rank, id)) continue
    chosen.push(want)
    if (chosen.length === any) return chosen
  }
  return undefined
}

/** The caller has touched the lease, or just made it. */
export function grant(state: State, effects: Effects, lease: LeaseState, wants: readonly WantedResource[]): void {
  lease.status = LIVE
  lease.since = state.wall
  if (wants.length > 0 && lease.term > state.longest) state.longest = lease.term
  for (const want of wants) {
    const resource = resourceOf(state, want.resource)
    const given = { lease, resource, units: want.shared ? 0 : want.units, shared: want.shared, token: state.nextToken++ }
    resource.grants = withGrant(resource.grants, given)
    lease.grants = withGrant(lease.grants, given)
    if (want.shared) resource.sharers++
    else resource.used += want.units
    emitForGrant(state, effects, 'granted', lease, given)
  }
  const maxLife = lease.rare?.maxLife ?? 0
  // One that was passed on has it already.
  if (maxLife > 0 && lease.rare?.timers?.[CAP] === undefined) startTimer(state, effects, lease, CAP, maxLife)
  for (const { resource } of lease.grants) if (resource.queue.length > 0) pressHolders(state, effects, resource)
}

export function enqueue(state: State, effects: Effects, lease: LeaseState): void {
  joinQueues(state, lease)
  for (const want of lease.rare!.wants) {
    emit(state, effects, 'queued', lease, { resource: want.resource })
    pressHolders(state, effects, state.resources.get(want.resource)!)
  }
}

export function joinQueues(state: State, lease: LeaseState): void {
  const { wants, rank, holding } = lease.rare!
  judgeWaiter(state, lease)
  state.counts.waiting++
  for (const want of wants) {
    const resource = resourceOf(state, want.resource)
    if (resource.queue.length === 0) resource.queue = [lease]
    else resource.queue.splice(place(resource.queue, rank, lease.id), 0, lease)
  }
  for (const kept of holding) enlist(state.keeping, kept, lease)
  for (const { key } of lease.rare!.pending) enlist(state.pending, key, lease)
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

/** Someone waits: holders that a policy limits to so long while others wait begin to count. */
export function pressHolders(state: State, effects: Effects, resource: Resource): void {
  const { grants } = resource
  if (resource.pressed === grants.length) return
  const maxHold = rule(state, resource.name, 'maxHold')
  if (maxHold === 0) return
  // Those before were seen when the last waiter came: twenty thousand who share it are not asked again for each.
  for (; resource.pressed < grants.length; resource.pressed++) {
    const { lease } = grants[resource.pressed]!
    if (lease.status === FROZEN || lease.rare?.timers?.[HOLD] !== undefined) continue
    touch(state, lease)
    startTimer(state, effects, lease, HOLD, maxHold)
  }
}

/** This holder need not count any more, until another waiter comes. */
export function relaxHolder(effects: Effects, lease: LeaseState): void {
  cancelTimer(effects, lease, HOLD)
  for (const { resource } of lease.grants) resource.pressed = 0
}

/** Takes it out of every queue; what it stood in the way of is looked at by `settle`. */
export function leaveQueues(state: State, lease: LeaseState, freed: FreedResources): void {
  state.counts.waiting--
  for (const want of lease.rare!.wants) {
    const resource = state.resources.get(want.resource)!
    resource.queue.splice(positionOf(resource, lease), 1)
    freed.add(resource)
  }
  for (const kept of lease.rare!.holding) strike(state.keeping, kept, lease)
  for (const { key } of lease.rare!.pending) strike(state.pending, key, lease)
}
