/**
 * Deadlocks. A waiter declares the leases that it keeps while it waits (`holding`); only those can close a cycle. Only exclusive waits for all of several
 * resources are searched: with any-of, units or shared grants a cycle proves nothing, since another way may open.
 *
 * A waiter waits for the holder of what it wants, and in a `fifo` queue for every waiter before it: the search follows both. Every cycle is closed by its last
 * waiter, so that one is refused and the others go on.
 */

import { findLease } from '../state/leases.ts'
import { blocks } from '../state/order.ts'
import { FROZEN, type LeaseState, type Resource, type State } from '../state.ts'
import { type Applicant, applicantOf, type WantedResource } from './applicant.ts'
import { isOwn, isOwnOf, linesAround, meet, waitersBefore } from './covers.ts'
import { limitBeside } from './permits.ts'
import { rule } from './policy.ts'
import { positionOf } from './queue.ts'

/** The longest chain of waiters that is followed: the depth of the call stack is not the same on every replica. */
const LONGEST = 256

/** The resources of the cycle that a newcomer of this rank would close, in order; undefined when there is none. */
export function findCycle(state: State, wants: readonly WantedResource[], newcomer: Applicant): readonly string[] | undefined {
  const { rank, holding = [], permits = 0 } = newcomer
  if (holding.length === 0 || !mayLeadBack(state, wants, newcomer)) return undefined
  const mine = new Set(holding)
  const seen = new Set<LeaseState>()
  /** Each queue has been searched this far. */
  const reached = new Map<Resource, number>()
  const path: string[] = []
  /** Only a lease that a waiter keeps leads on. */
  let keptLeases: readonly LeaseState[] | undefined

  /** `from`: the waiter that wants these; undefined for the newcomer, which stands behind all waiters of its rank. */
  const leadsBack = (wanted: readonly WantedResource[], from: LeaseState | undefined): boolean =>
    wanted.some(want => blockedByMine(want, from))

  const blockedByMine = (want: WantedResource, from: LeaseState | undefined): boolean => {
    const resource = state.resources.get(want.resource)
    if (want.shared || path.length === LONGEST) return false
    path.push(want.resource)
    if (state.claims !== undefined && blockedAround(want, from)) return true
    if (resource === undefined) {
      path.pop()
      return false
    }
    const holder = soleObstacle(state, resource, want, from === undefined ? permits : from.extras!.permits)
    if (holder !== undefined) {
      if (mine.has(holder.id)) return true
      if (first(holder)) for (const waiter of state.keeping.get(holder.id) ?? []) if (follow(waiter)) return true
    }
    const isBehind = state.claims === undefined || !isOwn(state, want, from === undefined ? newcomer : applicantOf(from))
    if (isBehind && rule(state, want.resource, 'queue') !== 'fit') {
      const end = from === undefined ? behind(resource, rank) : positionOf(resource, from)
      for (let i = reached.get(resource) ?? 0; i < end; i++) {
        reached.set(resource, i + 1)
        if (blocks(resource.queue[i]!, resource) && follow(resource.queue[i]!)) return true
      }
    }
    path.pop()
    return false
  }

  /** By claims above and below: all of them must go. */
  const blockedAround = (want: WantedResource, from: LeaseState | undefined): boolean => {
    const asking = from === undefined ? newcomer : applicantOf(from)
    const isInTheWay = (kept: LeaseState) =>
      kept.status !== FROZEN &&
      !isOwnOf(asking, kept) &&
      kept.grants.some(({ resource }) => meet(want.resource, asking.covers === true, resource.name, kept.extras?.covers === true))
    const isMine = (id: number) => {
      const kept = findLease(state, id)
      return kept !== undefined && isInTheWay(kept)
    }
    if (holding.some(isMine)) return true
    keptLeases ??= [...state.keeping.keys()].sort((one, other) => one - other).flatMap(id => findLease(state, id) ?? [])
    for (const kept of keptLeases) if (isInTheWay(kept)) for (const waiter of state.keeping.get(kept.id)!) if (follow(waiter)) return true
    if (isOwn(state, want, asking)) return false
    for (const waiter of waitersBefore(state, want.resource, asking)) if (follow(waiter)) return true
    return false
  }

  const first = (lease: LeaseState): boolean => !seen.has(lease) && seen.add(lease) !== undefined
  const follow = (waiter: LeaseState): boolean => first(waiter) && waiter.extras!.any === 0 && leadsBack(waiter.extras!.wants, waiter)

  return leadsBack(wants, undefined) ? path : undefined
}

/** The most waiters that the backward search visits before the cycle itself is searched. */
const LOOKED_AT = 256

/**
 * Returns whether a lease in the newcomer's way may wait, directly or not, for what the newcomer keeps. Searches backwards, from the waiters for that: mostly there are
 * none, while thousands may stand before the newcomer. Never false if there is a cycle.
 */
function mayLeadBack(state: State, wants: readonly WantedResource[], { holding = [], covers = false }: Applicant): boolean {
  const wanted = new Set(wants.map(({ resource }) => resource))
  const found = new Set<LeaseState>()
  const addAll = (queue: readonly LeaseState[], from: number) => {
    for (let i = from; i < queue.length && found.size <= LOOKED_AT; i++) found.add(queue[i]!)
  }
  const isWanted = (name: string, covered: boolean) => wanted.has(name) || wants.some(want => meet(want.resource, covers, name, covered))
  /** The waiters above and below as well. */
  const addAround = (name: string, covered: boolean) => {
    for (const list of linesAround(state, name, covered)) addAll(list, 0)
  }
  /** Returns whether the newcomer wants something that these leases hold. Adds the waiters for what they hold to `found`. */
  const blocks = (leases: readonly number[]): boolean => {
    for (const id of leases)
      for (const { resource, lease } of findLease(state, id)?.grants ?? []) {
        const covered = lease.extras?.covers === true
        if (isWanted(resource.name, covered)) return true
        addAll(resource.queue, 0)
        addAround(resource.name, covered)
      }
    return false
  }
  if (blocks(holding)) return true
  for (const waiter of found) {
    if (found.size > LOOKED_AT || blocks(waiter.extras!.holding)) return true
    for (const want of waiter.extras!.wants) {
      if (isWanted(want.resource, waiter.extras!.covers)) return true
      const resource = state.resources.get(want.resource)!
      addAll(resource.queue, positionOf(resource, waiter) + 1)
      addAround(want.resource, waiter.extras!.covers)
    }
  }
  return false
}

/** `path`: the resources of the cycle, in order. */
/** The only holder in the way, if there is exactly one and it will not leave by itself. Of several holders, any might make room. */
function soleObstacle(state: State, resource: Resource, want: WantedResource, permits: number): LeaseState | undefined {
  const [only] = resource.grants
  if (only === undefined || resource.grants.length > 1 || only.shared || only.lease.status === FROZEN) return undefined
  return only.units + want.units > limitBeside(state, resource, permits) ? only.lease : undefined
}

function behind({ queue }: Resource, rank: number): number {
  const next = queue.findIndex(waiter => waiter.extras!.rank > rank)
  return next === -1 ? queue.length : next
}
