/**
 * Covering claims: a lease with `covers` claims each of its names with all names below it (`N` and what begins with `N/`). It conflicts with every claim there and
 * with every covering claim above, unless both are shared. Plain names stay independent of each other.
 *
 * - **Order**: a covering request queues at its own name. It is granted when everything at, below and above that name is free, and no waiter there stands before
 *   it. A request below a covering waiter stands behind it, whatever is free. One order holds for all queues, so that these waits close no cycle.
 * - **Own claims**: a lease that a request names in `holding` is no obstacle to it, above or below, if it has the same holder name and is not frozen. Below a covering
 *   claim of its own, a request need not queue.
 * - **Tokens** grow with each grant in the log: the token of a covering grant is higher than those of earlier claims below it, and lower than those of later ones.
 */
import type { Acquire } from '../command.ts'
import type { Refused } from '../outcome.ts'
import type { Flaw } from '../reason.ts'
import { type ClaimNode, ClaimTree, firstSegment } from '../state/claim-tree.ts'
import { findLease } from '../state/leases.ts'
import { standsBefore } from '../state/order.ts'
import { POOL_ROOT } from '../state/pools.ts'
import { FROZEN, type Freed, type Grant, type LeaseState, type State, WAITING } from '../state.ts'
import type { Applicant, WantedResource } from './applicant.ts'
import { rule } from './policy.ts'
import { refuse } from './refuse.ts'

const NONE: readonly never[] = []

/**
 * Lists the claims that may meet a covering one of these names: those whose names begin with the same segments. Once for each segment, its work grows with the
 * claims there, and a little with all names that are claimed.
 */
export function listClaims(state: State, wants: readonly WantedResource[]): void {
  state.claims ??= new ClaimTree()
  const added = state.claims.list(wants.map(({ resource }) => firstSegment(resource)))
  if (added.size > 0) addClaims(state, state.claims, added)
}

/** Called for a covering lease while a snapshot is read. It only notes the segments: `restoreClaims` lists their claims when all leases have been read. */
export function listLater(state: State, { grants, status, extras }: LeaseState): void {
  state.claims ??= new ClaimTree()
  for (const { resource } of grants) state.claims.segments.add(firstSegment(resource.name))
  for (const { resource } of status === WAITING ? extras!.wants : NONE) state.claims.segments.add(firstSegment(resource))
}

/** After a snapshot was read. */
export function restoreClaims(state: State): void {
  if (state.claims === undefined) return
  const tree = new ClaimTree()
  addClaims(state, tree, tree.list(state.claims.segments))
  state.claims = tree
}

function addClaims({ resources }: State, tree: ClaimTree, segments: ReadonlySet<string>): void {
  const waiters: [LeaseState, string][] = []
  const [only] = segments
  const isMeant = (name: string) =>
    segments.size === 1 ? name.startsWith(only!) && (name === only || isBelow(name, only!)) : segments.has(firstSegment(name))
  for (const [name, { grants, queue }] of resources) {
    if (!isMeant(name)) continue
    for (const grant of grants) tree.addGrant(grant)
    for (const waiter of queue) waiters.push([waiter, name])
  }
  // In their order, so that each is added at the end of its lists.
  waiters.sort(([one], [other]) => (standsBefore(one, other) ? -1 : 1))
  for (const [waiter, name] of waiters) tree.addWaiter(waiter, name)
}

function isBelow(name: string, above: string): boolean {
  return name.length > above.length && name.charCodeAt(above.length) === 0x2f && name.startsWith(above)
}

/** Returns whether a claim meets another one of another name. */
export function meet(one: string, covers: boolean, other: string, otherCovers: boolean): boolean {
  return (covers && isBelow(other, one)) || (otherCovers && isBelow(one, other))
}

/** Returns whether the client of a request keeps this lease: then it is no obstacle. */
export function isOwnOf({ holder, holding = NONE }: Applicant, lease: LeaseState): boolean {
  return lease.status !== FROZEN && lease.holder.name === holder && holding.includes(lease.id)
}

function ownOf(state: State, applicant: Applicant): readonly LeaseState[] {
  const own: LeaseState[] = []
  for (const id of applicant.holding ?? NONE) {
    const lease = findLease(state, id)
    if (lease !== undefined && isOwnOf(applicant, lease)) own.push(lease)
  }
  return own
}

/** Counts the grants of its own among those that a request would conflict with. */
function ownAmong(own: readonly LeaseState[], isCounted: (grant: Grant) => boolean): number {
  return own.reduce((sum, { grants }) => sum + grants.filter(isCounted).length, 0)
}

/** Returns whether no claim above or below is in the way. The name itself is not looked at. */
export function isClear(state: State, want: WantedResource, applicant: Applicant): boolean {
  if (state.claims!.coverings === 0 && applicant.covers !== true) return true
  return !isHeld(state, want, applicant) && (isOwn(state, want, applicant) || !waitsBefore(state, want, applicant))
}

/** Returns whether a lease holds a claim above or below that conflicts, apart from those of its client. */
export function isHeld(state: State, { resource: name, shared }: WantedResource, applicant: Applicant): boolean {
  const claims = state.claims!
  if (claims.coverings > 0)
    for (const { exclusiveCovers, sharedCovers, name: above } of claims.above(name)) {
      const held = exclusiveCovers + (shared ? 0 : sharedCovers)
      if (held === 0) continue
      const isCounted = (grant: Grant) => grant.resource.name === above && grant.lease.extras?.covers === true && !(shared && grant.shared)
      if (held > ownAmong(ownOf(state, applicant), isCounted)) return true
    }
  const place = applicant.covers === true ? claims.at(name) : undefined
  const held = place === undefined ? 0 : place.exclusiveBelow + (shared ? 0 : place.sharedBelow)
  if (held === 0) return false
  return held > ownAmong(ownOf(state, applicant), grant => isBelow(grant.resource.name, name) && !(shared && grant.shared))
}

/** Returns whether its client holds a covering claim above, which makes it wait for no other client. */
export function isOwn(state: State, { resource: name, shared }: WantedResource, applicant: Applicant): boolean {
  if (state.claims!.coverings === 0 || (applicant.holding ?? NONE).length === 0) return false
  const covers = ({ resource, shared: isShared }: Grant) => isBelow(name, resource.name) && (shared || !isShared)
  return ownOf(state, applicant).some(({ extras, grants }) => extras?.covers === true && grants.some(covers))
}

/** Returns whether a waiter above or below stands before it. */
function waitsBefore(state: State, want: WantedResource, applicant: Applicant): boolean {
  for (const _ of waitersBefore(state, want.resource, applicant)) return true
  return false
}

/** The waiters above and below a name that stand before a request, and block it. */
export function* waitersBefore(
  state: State,
  name: string,
  { covers, rank, id }: Pick<Applicant, 'covers' | 'rank' | 'id'>,
): Generator<LeaseState, void, void> {
  const claims = state.claims!
  const isBefore = (waiter: LeaseState) => waiter.extras!.rank < rank || (waiter.extras!.rank === rank && waiter.id < id)
  if (claims.coverings > 0)
    for (const place of claims.above(name))
      for (const waiter of place.covering) {
        if (!isBefore(waiter)) break
        if (isBlocking(state, waiter, place.name)) yield waiter
      }
  for (const waiter of (covers === true ? claims.at(name)?.waiting : undefined) ?? NONE) {
    if (!isBefore(waiter)) break
    if (blocksBelow(state, waiter, name)) yield waiter
  }
}

/** The waiters above and below that a claim on this name meets. */
export function waitersAround({ claims }: State, name: string, covers: boolean): readonly LeaseState[] {
  const found = new Set<LeaseState>()
  for (const line of linesAround({ claims }, name, covers)) for (const waiter of line) found.add(waiter)
  return [...found]
}

/** The same as lists, each in the order of its waiters. */
export function* linesAround(
  { claims }: Pick<State, 'claims'>,
  name: string,
  covers: boolean,
): Generator<readonly LeaseState[], void, void> {
  if (claims === undefined || claims.coverings === 0) return
  for (const { covering } of claims.above(name)) yield covering
  const below = covers ? claims.at(name)?.waiting : undefined
  if (below !== undefined) yield below
}

/** Returns whether a waiter for this name makes others wait behind it. */
function isBlocking(state: State, waiter: LeaseState, name: string): boolean {
  return waiter.extras!.passed?.has(name) !== true && rule(state, name, 'queue') !== 'fit'
}

function blocksBelow(state: State, waiter: LeaseState, name: string): boolean {
  return waiter.extras!.wants.some(({ resource }) => isBelow(resource, name) && isBlocking(state, waiter, resource))
}

/** Returns whether a waiter below this place stands behind a covering waiter at or above it. */
export function isBarred(state: State, place: ClaimNode, waiter: LeaseState): boolean {
  for (let at: ClaimNode | undefined = place; at !== undefined; at = at.above) {
    const first = at.covering.find(other => isBlocking(state, other, at!.name))
    if (first !== undefined && standsBefore(first, waiter)) return true
  }
  return false
}

/** The grants above and below that a request conflicts with, those of its own client as well: the covering ones above first, then those below by name. */
export function* conflictsOf(state: State, { resource: name, shared }: WantedResource, covers: boolean): Generator<Grant, void, void> {
  const { claims } = state
  if (claims === undefined) return
  const isMet = (grant: Grant) => !(shared && grant.shared)
  for (const { exclusiveCovers, sharedCovers, name: above } of claims.above(name))
    if (exclusiveCovers + sharedCovers > 0)
      for (const grant of state.resources.get(above)!.grants) if (grant.lease.extras?.covers === true && isMet(grant)) yield grant
  const place = covers ? claims.at(name) : undefined
  if (place !== undefined) for (const grant of grantsBelow(state, place)) if (isMet(grant)) yield grant
}

/** In the order of their names, segment by segment. */
function* grantsBelow(state: State, place: ClaimNode): Generator<Grant, void, void> {
  if (place.exclusiveBelow + place.sharedBelow === 0) return
  for (const next of place.below ?? NONE) {
    yield* state.resources.get(next.name)?.grants ?? NONE
    yield* grantsBelow(state, next)
  }
}

/** The first conflicting grant above or below that is not of its client. */
export function firstConflict(state: State, want: WantedResource, applicant: Applicant): Grant | undefined {
  if (state.claims === undefined) return undefined
  const own = new Set(ownOf(state, applicant))
  for (const grant of conflictsOf(state, want, applicant.covers === true)) if (!own.has(grant.lease)) return grant
  return undefined
}

/** The covering grants above a name. */
export function coveringGrants(state: State, name: string): readonly Grant[] {
  const found: Grant[] = []
  for (const { exclusiveCovers, sharedCovers, name: above } of state.claims?.above(name) ?? NONE)
    if (exclusiveCovers + sharedCovers > 0)
      found.push(...state.resources.get(above)!.grants.filter(({ lease }) => lease.extras?.covers === true))
  return found
}

/** The covering requests that wait for names above a name, each with its name. */
export function coveringWaiters(state: State, name: string): readonly (readonly [waiter: LeaseState, name: string])[] {
  const found: [LeaseState, string][] = []
  for (const { covering, name: above } of state.claims?.above(name) ?? NONE) for (const waiter of covering) found.push([waiter, above])
  return found
}

/** The first grants of names below a name, at most `most`. Nothing is known where no request has covered. */
export function firstGrantsBelow(state: State, name: string, most: number): readonly Grant[] {
  const place = state.claims?.at(name)
  const found: Grant[] = []
  if (place === undefined) return found
  for (const grant of grantsBelow(state, place)) if (found.push(grant) >= most) break
  return found
}

/** A claim on this name has gone, or does not block any more: covering waiters above may be served, and after a covering claim the waiters below. */
export function wake(state: State, name: string, covers: boolean, freed: Freed): void {
  const claims = state.claims!
  if (claims.coverings > 0)
    for (const place of claims.above(name)) if (place.covering.length > 0) freed.add(state.resources.get(place.name)!)
  const place = covers ? claims.at(name) : undefined
  if (place !== undefined && place.waiting.length > 0) freed.add(place)
}

/** Returns whether a waiter could be served if a lease gave back its claim on this name. `covers`: of that lease. */
export function isWaitedForAround(state: State, name: string, covers: boolean): boolean {
  const { claims } = state
  if (claims === undefined) return false
  for (const { covering, name: above } of claims.above(name))
    if (covering.some(({ extras }) => extras!.passed?.has(above) !== true)) return true
  const waiting = covers ? claims.at(name)?.waiting : undefined
  return (
    waiting?.some(({ extras }) =>
      extras!.wants.some(({ resource }) => isBelow(resource, name) && extras!.passed?.has(resource) !== true),
    ) === true
  )
}

/** A pool gives out its members by rules of its own: a name that is a pool or a member, or has some below it, is not covered. */
export function coversPool(state: State, name: string): Refused | undefined {
  return state.pools.has(name) || state.tree.has(POOL_ROOT + name) ? refuse(state, 'covers-pool', { resource: name }) : undefined
}

/** Why an entry may not offer a member of a pool now: a covering claim holds its name or waits for it. */
export function coveredMember(state: State, key: string): Refused | undefined {
  const { claims } = state
  if (claims === undefined || claims.coverings === 0 || !key.startsWith(POOL_ROOT)) return undefined
  const name = key.slice(POOL_ROOT.length)
  const isCovering = (place: ClaimNode | undefined) =>
    place !== undefined && place.exclusiveCovers + place.sharedCovers + place.covering.length > 0
  const found = [...claims.above(name), claims.at(name)].find(isCovering)
  return found === undefined ? undefined : refuse(state, 'covered-member', { key, resource: found.name })
}

/** The options that a covering claim cannot have. */
export function badCovers({ covers, permits, wants, any, pool }: Acquire): Flaw | undefined {
  if (covers !== true) return undefined
  const others = { pool, any, permits, units: wants.find(({ units = 1 }) => units > 1) }
  const other = Object.entries(others).find(([, given]) => given !== undefined)?.[0]
  if (other !== undefined) return { reason: 'not-together', facts: { field: 'covers', other } }
  return wants.length === 0 ? { reason: 'needs', facts: { field: 'covers', other: 'wants' } } : undefined
}
