/** Stealing: which leases must end so that a steal gets what it wants. As few as possible, and the same ones on every replica. */

import type { Refused } from '../outcome.ts'
import { blocks, insertionIndex } from '../state/order.ts'
import { FROZEN, type Freed, type Grant, type LeaseState, type State } from '../state.ts'
import type { Applicant, WantedResource } from './applicant.ts'
import { beyond, mayRelease, namesHeld } from './authority.ts'
import { conflictsOf, isOwnOf } from './covers.ts'
import type { Effects } from './effects.ts'
import { end } from './end.ts'
import { leasesOf, limitAmong } from './permits.ts'
import { refuse } from './refuse.ts'

/** With more victims than this, they are not compared with each other: the cost of a steal must not grow with their square. */
const MAX_SPARED = 64

export interface StealRequest extends Applicant {
  readonly wants: readonly WantedResource[]
  /** The number that suffices; 0: all. */
  readonly any: number
  /** 0: it states none. */
  readonly permits: number
  /** Also takes frozen units at once. */
  readonly force: boolean
  readonly rank: number
  /** The key of the lease that steals. */
  readonly key: number
  /** The parent of the lease that steals: it must not end. */
  readonly parent: LeaseState | undefined
}

/** The leases that end, or why the steal is refused. Empty if the resources become free anyway. */
export function victimsOf(state: State, request: StealRequest): readonly LeaseState[] | Refused {
  const { wants, any } = request
  if (any === 0) return victimsFor(state, request, wants)
  // The resources with the fewest victims; of equals, those that were named first.
  const costs = wants.map((want, i) => {
    const victims = victimsFor(state, request, [want])
    return { want, i, cost: isRefused(victims) ? Number.POSITIVE_INFINITY : victims.length }
  })
  costs.sort((a, b) => (a.cost === b.cost ? a.i - b.i : a.cost - b.cost))
  return victimsFor(
    state,
    request,
    costs.slice(0, any).map(({ want }) => want),
  )
}

function isRefused(found: readonly LeaseState[] | Refused): found is Refused {
  return !Array.isArray(found)
}

function victimsFor(state: State, request: StealRequest, wants: readonly WantedResource[]): readonly LeaseState[] | Refused {
  const victims = new Set<LeaseState>()
  for (const want of wants) {
    const more = victimsOn(state, request, want, victims)
    if (isRefused(more)) return more
    for (const lease of more) victims.add(lease)
  }
  if (wants.length > 1 && victims.size <= MAX_SPARED) spare(state, request, wants, victims)
  for (const lease of victims) {
    const refused = mayEnd(state, request, lease) ? undefined : beyond(state, request.key, 'break', lease, namesHeld)
    if (refused !== undefined) return refused
  }
  return [...victims]
}

/** Spares a lease that was to end for one resource, if the end of another victim frees that resource as well. */
function spare(state: State, request: StealRequest, wants: readonly WantedResource[], victims: Set<LeaseState>): void {
  for (const lease of [...victims]) {
    victims.delete(lease)
    const isNeeded = wants.some(want => {
      const more = victimsOn(state, request, want, victims)
      return isRefused(more) || more.length > 0
    })
    if (isNeeded) victims.add(lease)
  }
}

/** A victim loses everything that it holds, so the stealing key must be allowed to break all of it. */
function mayEnd(state: State, { key }: StealRequest, lease: LeaseState): boolean {
  return mayRelease(state, key, lease) || beyond(state, key, 'break', lease, namesHeld) === undefined
}

/** The leases that end for one wanted resource, beside those in `others`. */
function victimsOn(
  state: State,
  request: StealRequest,
  want: WantedResource,
  others: ReadonlySet<LeaseState>,
): readonly LeaseState[] | Refused {
  const resource = state.resources.get(want.resource)
  if (resource === undefined && state.claims === undefined) return []
  const isIn = (leases: ReadonlySet<LeaseState>, lease: LeaseState): boolean => {
    for (let next: LeaseState | undefined = lease; next !== undefined; next = next.extras?.parent) if (leases.has(next)) return true
    return false
  }
  // Frozen units become free without force, when their holder has stopped.
  const isStaying = ({ lease }: Grant) => (request.force || lease.status !== FROZEN) && !isIn(others, lease)
  const staying = (resource?.grants ?? []).filter(isStaying)
  const around = [...conflictsOf(state, want, request.covers === true)].filter(grant => isStaying(grant) && !isOwnOf(request, grant.lease))
  const above = new Set<LeaseState>()
  for (let next = request.parent; next !== undefined; next = next.extras?.parent) above.add(next)
  const inTheWay = want.shared ? staying.filter(({ shared }) => !shared) : staying
  const own = inTheWay.filter(({ lease }) => above.has(lease))
  const ownLimit = limitAmong(state, want.resource, request.permits, leasesOf(own))
  const aroundOwn = around.find(({ lease }) => above.has(lease))
  if (aroundOwn !== undefined) return refuse(state, 'steals-from-parent', { lease: aroundOwn.lease.id })
  if (own.some(({ shared }) => want.shared || shared) || unitsOf(own) + want.units > ownLimit)
    return refuse(state, 'steals-from-parent', { lease: own[0]!.lease.id })
  const candidates = inTheWay.filter(({ lease }) => !above.has(lease))
  const needed = new Set(leasesOf(around))
  if (want.shared || candidates.some(({ shared }) => shared)) return [...needed, ...leasesOf(candidates)]
  if (resource === undefined) return [...needed]
  // Earlier steals and recipients of transfers come first: what they take must become free as well.
  const ahead = resource.queue
    .slice(0, insertionIndex(resource.queue, request.rank, state.nextLease))
    .filter(waiter => blocks(waiter, resource))
  const promised = ahead.reduce(
    (sum, { extras }) => sum + (extras!.wants.find(({ resource: name }) => name === resource.name)?.units ?? 0),
    0,
  )
  // The limit that is in force while all of them hold it: once some have ended, it may be higher.
  const limit = limitAmong(state, want.resource, request.permits, leasesOf(staying))
  const victims = fewest(candidates, unitsOf(staying) + promised + want.units - limit, lease => mayEnd(state, request, lease))
  if (resource.permits === undefined || victims.length > MAX_SPARED) return [...needed, ...victims]
  const ending = new Set(victims)
  for (const lease of victims) {
    const others = staying.filter(grant => grant.lease === lease || !ending.has(grant.lease))
    const most = limitAmong(state, want.resource, request.permits, leasesOf(others))
    if (unitsOf(others) + promised + want.units <= most) ending.delete(lease)
  }
  return [...needed, ...ending]
}

function unitsOf(grants: readonly Grant[]): number {
  return grants.reduce((sum, { units }) => sum + units, 0)
}

/** As few holders as free `short` units: first leases that have ended already, then those with the most units; of equals, the newest. */
function fewest(candidates: readonly Grant[], short: number, may: (lease: LeaseState) => boolean): readonly LeaseState[] {
  if (short <= 0) return []
  const order = candidates
    .map(grant => ({ grant, frozen: grant.lease.status === FROZEN ? 0 : 1, allowed: may(grant.lease) ? 0 : 1 }))
    .sort((a, b) => a.frozen - b.frozen || a.allowed - b.allowed || b.grant.units - a.grant.units || b.grant.token - a.grant.token)
  let taken: Grant[] = []
  for (const { grant } of order) {
    if (unitsOf(taken) >= short) break
    taken.push(grant)
  }
  // A larger grant may have made some of the frozen ones unnecessary.
  for (const grant of [...taken]) if (unitsOf(taken) - grant.units >= short) taken = taken.filter(other => other !== grant)
  return taken.map(({ lease }) => lease)
}

export function steal(
  state: State,
  effects: Effects,
  stealer: LeaseState,
  { wants, force }: Pick<StealRequest, 'wants' | 'force'>,
  victims: readonly LeaseState[],
  freed: Freed,
): void {
  const ending = { type: 'revoked', cause: 'stolen', by: stealer.holder.name, stopped: force } as const
  for (const want of wants) freed.add(state.resources.get(want.resource)!)
  for (const lease of victims) end(state, effects, lease, ending, freed)
}
