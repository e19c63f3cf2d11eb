/** Acquiring: the command is checked completely before anything changes. */

import {
  type Acquire,
  type Attachment,
  LABEL_BYTES,
  MAX_ENTRIES,
  MAX_LABELS,
  MAX_RESOURCES,
  PRIORITY_LIMIT,
  type Want,
} from '../command.ts'
import { copyOf } from '../copy.ts'
import { badName, badText, under } from '../name.ts'
import type { Granted, Queued, Refused } from '../outcome.ts'
import { type Flaw, neverGiven, outside, shown, tooMany, within } from '../reason.ts'
import { LeaseState, OWN_INCARNATION } from '../state/lease-state.ts'
import { addChild, extrasOf, familySize, findLease, openLease } from '../state/leases.ts'
import { emptyPool } from '../state/pools.ts'
import { leasesUnder } from '../state/quota-counts.ts'
import { FROZEN, type Grant, LIVE, type PoolClaim, type PoolState, type Resource, type State, SUSPECT, TERM, WAITING } from '../state.ts'
import type { Applicant, WantedResource } from './applicant.ts'
import { attach, badAttachment, entryRefusal } from './attach.ts'
import { allowed, allowedSomewhere, mayTouch } from './authority.ts'
import { badCovers, coversPool, firstConflict, listClaims, meet } from './covers.ts'
import { findCycle } from './deadlock.ts'
import { type Effects, emit } from './effects.ts'
import { outsideBounds, withKeyDefaults } from './key-bounds.ts'
import { beyondLimits, useOfRequest } from './key-limit.ts'
import { recallAround } from './operate.ts'
import { badPermits, leasesOf, limitAmong, limitBeside, ownLimit } from './permits.ts'
import { type Bounds, bounded, LEASES, rule, ruledBy, TTL_LIMIT, TTL_MAX, TTL_MIN, ttlOutside, UNITS_LIMIT } from './policy.ts'
import { beyondQuota } from './pool/over-quota.ts'
import { badPoolRequest, cannotWaitInPool, claimOf, impossible, notNow } from './pool/request.ts'
import { reservedRank, WindowsAhead, windowRefusal } from './pool/reservation.ts'
import { mayGoFirst, wouldBeServed } from './pool/turn.ts'
import { positionInPool, waitsForPool } from './pool/waiters.ts'
import { BY_FORCE, type ChosenWant, choose, chooseAll, enqueue, FIRST_IN_LINE, grant, positionOf } from './queue.ts'
import { exhausted, forbidden, gone, refuse, refuseFlaw } from './refuse.ts'
import { settle } from './settle.ts'
import { steal, victimsOf } from './steal.ts'
import { carryOut, changesRefusal } from './transaction.ts'

/** The most leases that end together with the first of them, in one revision. */
export const MAX_FAMILY = 10_000
/** Without aging, one point of priority outweighs any waiting time. */
const PRIORITY = 1e9
const NOTHING: readonly never[] = []

export function normal(want: Want): WantedResource {
  return { resource: want.resource, units: want.units ?? 1, shared: want.shared ?? false }
}

/** The ranges of its optional numbers, except of `any`. */
const RANGES = [
  ['priority', -PRIORITY_LIMIT, PRIORITY_LIMIT],
  ['grace', 0, TTL_LIMIT],
  ['maxLife', 1, TTL_LIMIT],
  ['permits', 1, UNITS_LIMIT],
] as const

function isWhole(value: number, low: number, high: number): boolean {
  return Number.isSafeInteger(value) && value >= low && value <= high
}

/** Returns what is wrong with the command itself, whatever the state. */
function malformed(command: Acquire): Flaw | undefined {
  const bad = badName(command.holder)
  if (bad !== undefined) return within('holder', bad)
  if (!Array.isArray(command.wants)) return { reason: 'not-list', facts: { field: 'wants', given: shown(command.wants) } }
  if (command.wants.length > MAX_RESOURCES) return tooMany('wants', MAX_RESOURCES)
  const { any, incarnation } = command
  if (any !== undefined && !isWhole(any, 1, command.wants.length)) return outside('any', 1, command.wants.length, any)
  for (const [field, low, high] of RANGES) {
    const value = command[field]
    if (value !== undefined && !isWhole(value, low, high)) return outside(field, low, high, value)
  }
  if (incarnation !== undefined && !isWhole(incarnation, 1, Number.MAX_SAFE_INTEGER)) return neverGiven('incarnation', incarnation)
  if (command.steal !== undefined && command.wait !== true) return { reason: 'needs', facts: { field: 'steal', other: 'wait' } }
  if (command.pool !== undefined) {
    const wrong = badPoolRequest(command)
    if (wrong !== undefined) return wrong
  } else if (command.wait === true && command.wants.length === 0) return { reason: 'nothing-to-wait-for', facts: {} }
  const isPlain = command.permits === undefined && command.covers === undefined
  const wrong =
    badWants(command.wants) ??
    (isPlain ? undefined : (badPermits(command) ?? badCovers(command))) ??
    (command.entries && badAttachments(command.entries))
  return wrong ?? (command.labels === undefined && command.holding === undefined ? undefined : badLabels(command))
}

function badWants(wants: readonly Want[]): Flaw | undefined {
  for (let i = 0; i < wants.length; i++) {
    const want = wants[i]!
    const bad = badName(want.resource)
    if (bad !== undefined) return within(`wants[${i}].resource`, bad)
    if (want.units !== undefined && !isWhole(want.units, 1, Number.MAX_SAFE_INTEGER))
      return outside(`wants[${i}].units`, 1, Number.MAX_SAFE_INTEGER, want.units)
    if (want.shared === true && (want.units ?? 1) !== 1)
      return { reason: 'shared-units', facts: { field: `wants[${i}].units`, resource: want.resource } }
    for (let j = 0; j < i; j++)
      if (wants[j]!.resource === want.resource) return { reason: 'named-twice', facts: { field: 'wants', name: want.resource } }
  }
  return undefined
}

function badAttachments(entries: readonly Attachment[]): Flaw | undefined {
  if (entries.length > MAX_ENTRIES) return tooMany('entries', MAX_ENTRIES)
  for (const [i, entry] of entries.entries()) {
    const bad = badAttachment(entry)
    if (bad !== undefined) return within(`entries[${i}]`, bad)
    for (let j = 0; j < i; j++)
      if (entries[j]!.key === entry.key) return { reason: 'named-twice', facts: { field: 'entries', name: entry.key } }
  }
  return undefined
}

function badLabels({ labels = [], holding = [] }: Acquire): Flaw | undefined {
  if (labels.length > MAX_LABELS) return tooMany('labels', MAX_LABELS)
  for (const [i, [name, value]] of labels.entries()) {
    const bad = badText(name, 128) ?? badText(value, LABEL_BYTES)
    if (bad !== undefined) return within(`labels[${i}]`, bad)
  }
  return holding.length > MAX_RESOURCES ? tooMany('holding', MAX_RESOURCES) : undefined
}

function badTtl(state: State, command: Acquire): Flaw | undefined {
  const { ttl, wants, entries = NOTHING, pool } = command
  if (!Number.isSafeInteger(ttl) || ttl < 1) return outside('ttl', 1, TTL_LIMIT, ttl)
  // Without policies, all names have the same bounds.
  if (state.policies.size === 0 && ttl >= TTL_MIN && ttl <= TTL_MAX) return undefined
  if (wants.length + entries.length === 0 && pool === undefined) return ttlOutside(state, ttl, '')
  const ofPool = pool === undefined ? undefined : ttlOutside(state, ttl, pool.pool)
  if (ofPool !== undefined) return ofPool
  for (const { resource } of wants) {
    const wrong = ttlOutside(state, ttl, resource)
    if (wrong !== undefined) return wrong
  }
  for (const { key } of entries) {
    const wrong = ttlOutside(state, ttl, key)
    if (wrong !== undefined) return wrong
  }
  return undefined
}

export function overQuota(state: State, holder: string, wants: readonly { readonly resource: string }[]): Refused | undefined {
  for (const { resource } of wants) {
    const prefix = ruledBy(state, resource, 'quota')
    if (prefix === undefined) continue
    const most = rule(state, resource, 'quota')
    if (most === 0) continue
    const has = leasesUnder(state, prefix, holder)
    if (has >= most) return refuse(state, 'quota', { holder, prefix, leases: has, quota: most })
  }
  return undefined
}

export function wantsUnder(lease: LeaseState, prefix: string): boolean {
  return (
    lease.grants.some(given => under(prefix, given.resource.name)) ||
    (lease.extras?.wants.some(want => under(prefix, want.resource)) ?? false) ||
    (lease.extras?.pool !== undefined && under(prefix, lease.extras.pool.pool))
  )
}

function rankOf(state: State, command: Acquire, wants: readonly WantedResource[]): number {
  if (command.steal !== undefined) return command.steal === 'force' ? BY_FORCE : FIRST_IN_LINE
  const { priority = 0 } = command
  let aging = 0
  for (const want of wants) aging = Math.max(aging, rule(state, want.resource, 'aging'))
  if (command.pool !== undefined) aging = rule(state, command.pool.pool, 'aging')
  // One scale for all queues: a waiter for one resource with aging and one without has the same rank in both.
  return state.elapsed - priority * (aging === 0 ? PRIORITY : aging)
}

function held(state: State, command: Acquire, wants: readonly WantedResource[], applicant: Applicant): Refused {
  const { any = 0 } = command
  const { permits = 0 } = applicant
  if (state.quiet !== undefined) return quiet(state)
  const busy = wants.find(want => choose(state, [want], { ...applicant, any: 0 }) === undefined)!
  const resource = state.resources.get(busy.resource)
  const holder = firstConflict(state, busy, applicant) ?? resource?.grants[0]
  const about = { resource: busy.resource, queue: resource?.queue.length ?? 0, ...(any > 0 && { any, of: wants.length }) }
  const limit = resource === undefined ? ownLimit(state, busy.resource, permits) : limitBeside(state, resource, permits)
  if (holder === undefined) return refuse(state, 'reserved', about)
  const { lease, token } = holder
  const { id, since, status } = lease
  return refuse(state, 'held', {
    ...about,
    holder: lease.holder.name,
    lease: id,
    token,
    since,
    ...(status === FROZEN && { frozen: true }),
    ...(limit < permits && { limit }),
    ...(holder.resource.name !== busy.resource && { claim: holder.resource.name }),
  })
}

function quiet(state: State): Refused {
  return refuse(state, 'quiet', { quiet: state.quiet!.duration })
}

interface Plan {
  readonly wants: readonly WantedResource[]
  readonly rank: number
  readonly parent: LeaseState | undefined
  readonly holding: readonly number[]
  readonly permits: number
  /** It asks a pool for this. */
  readonly claim: PoolClaim | undefined
  /** This is granted now; undefined: the lease waits. */
  readonly chosen: readonly ChosenWant[] | undefined
  /** The leases that a steal ends. */
  readonly victims: readonly LeaseState[]
}

/** Why the command is refused, or what would be done. Changes nothing. */
export function planAcquire(state: State, command: Acquire, key = 0): Refused | Plan {
  if (key === 0) return planned(state, command, key)
  const plan = planned(state, withKeyDefaults(state, command, key), key)
  if ('kind' in plan) return plan
  const waits = plan.chosen === undefined && command.wait === true
  return beyondLimits(state, key, useOfRequest(state, key, command, waits)) ?? plan
}

function planned(state: State, command: Acquire, key: number): Refused | Plan {
  const wrong = malformed(command) ?? badTtl(state, command)
  if (wrong !== undefined) return refuseFlaw(state, wrong)
  const over = exhausted(state)
  if (over !== undefined) return over
  // A covering claim is alone at its own name as well, whatever the capacity.
  const permits = command.covers === true ? 1 : (command.permits ?? 0)
  const wants: WantedResource[] = []
  for (const { resource, units = 1, shared = false } of command.wants) wants.push({ resource, units, shared })
  const claim = command.pool === undefined ? undefined : claimOf(state, command)
  if (claim !== undefined && !allowed(state, key, 'acquire', claim.pool)) return forbidden(state, 'acquire', claim.pool)
  for (const want of wants) {
    if (key !== 0 && !allowed(state, key, 'acquire', want.resource)) return forbidden(state, 'acquire', want.resource)
    if (command.steal !== undefined && !allowed(state, key, 'break', want.resource))
      return forbidden(state, 'break', want.resource, 'steal')
    const capacity = ownLimit(state, want.resource, permits)
    const pool = command.covers === true ? coversPool(state, want.resource) : undefined
    if (pool !== undefined) return pool
    if (want.units > capacity) return refuse(state, 'beyond-capacity', { resource: want.resource, units: want.units, capacity })
  }
  if (wants.length === 0 && claim === undefined && !allowedSomewhere(state, key, 'acquire', 'register'))
    return refuse(state, 'forbidden-lease', { verb: 'acquire' })
  const unsaid = key === 0 ? undefined : outsideBounds(state, key, command, claim?.account)
  if (unsaid !== undefined) return unsaid
  const rank = command.priority === undefined && command.steal === undefined ? state.elapsed : rankOf(state, command, wants)
  if (command.incarnation !== undefined && command.incarnation >= state.nextLease)
    return refuseFlaw(state, neverGiven('incarnation', command.incarnation))
  const parent = command.parent === undefined ? undefined : findLease(state, command.parent)
  if (command.parent !== undefined) {
    if (parent === undefined || (parent.status !== LIVE && parent.status !== SUSPECT)) {
      if (!(command.parent >= 1 && command.parent < state.nextLease)) return refuse(state, 'parent-missing', { lease: command.parent })
      if (parent?.status === WAITING && mayTouch(state, key, parent)) return refuse(state, 'parent-waits', { lease: command.parent })
      return gone(state, command.parent)
    }
    // A lease of another key is reported as gone: its existence is not revealed.
    if (!mayTouch(state, key, parent)) return gone(state, command.parent)
    if (familySize(parent) >= MAX_FAMILY) return refuse(state, 'too-many-descendants', { lease: command.parent, limit: MAX_FAMILY })
  }
  let mustWait = false
  for (const entry of command.entries ?? NOTHING) {
    if (!allowed(state, key, 'register', entry.key)) return forbidden(state, 'register', entry.key)
    const refused = entryRefusal(state, { name: command.holder, incarnation: command.incarnation ?? state.nextLease }, entry, key)
    if (refused === undefined) continue
    // An entry of another holder may become free. A replaced process or generation stays replaced.
    if (refused.code !== 'HELD' || command.wait !== true) return refused
    mustWait = true
  }
  if (state.leases.size >= (state.policies.size === 0 ? LEASES : rule(state, '', 'leases')))
    return refuse(state, 'too-many-leases', { limit: state.leases.size })
  const mine = key === 0 ? 0 : (state.keyUse.get(key)?.leases ?? 0)
  if (key !== 0 && mine >= rule(state, '', 'leasesPerKey')) return refuse(state, 'too-many-key-leases', { limit: mine })
  const many =
    state.policies.size === 0 ? undefined : overQuota(state, command.holder, claim === undefined ? wants : [{ resource: claim.pool }])
  if (many !== undefined) return many

  // Only the caller's own leases: declaring to hold another caller's lease would refuse others a wait.
  const holding =
    command.holding === undefined
      ? NOTHING
      : [...new Set(command.holding)].filter(id => {
          const kept = findLease(state, id)
          return kept !== undefined && mayTouch(state, key, kept)
        })
  if (claim !== undefined) return planPool(state, command, { wants, rank, parent, holding, permits, claim, victims: NOTHING }, mustWait)
  if (command.covers === true) listClaims(state, wants)
  const { any = 0, covers = false, holder } = command
  const applicant: Applicant = { any, rank, id: state.nextLease, permits, covers, holder, holding }
  if (command.compare !== undefined || command.changes !== undefined) {
    const refused = changesRefusal(state, command, key, command.ttl)
    if (refused !== undefined) return refused
  }
  const chosen = mustWait ? undefined : choose(state, wants, applicant)
  if (chosen === undefined) {
    if (command.wait !== true) return held(state, command, wants, applicant)
    const refused = cannotWait(state, command, wants, applicant)
    if (refused !== undefined) return refused
  }
  if (command.steal === undefined || chosen !== undefined) return { wants, rank, parent, holding, permits, claim, chosen, victims: NOTHING }
  const victims = victimsOf(state, { ...applicant, wants, permits, force: command.steal === 'force', key, parent })
  return 'kind' in victims ? victims : { wants, rank, parent, holding, permits, claim, chosen, victims }
}

function planPool(state: State, command: Acquire, plan: Omit<Plan, 'chosen'>, mustWait: boolean): Refused | Plan {
  const { wait, maxLife: given = 0 } = command
  const claim = plan.claim!
  const pool = state.pools.get(claim.pool) ?? emptyPool(claim.pool)
  const { maxLife } = bounded(state, claim.pool, { grace: 0, maxLife: given })
  if (claim.from > 0) return planReservation(state, pool, { ...plan, rank: reservedRank(claim) }, wait === true, maxLife)
  const isFirst = !mustWait && state.quiet === undefined && mayGoFirst(state, pool, claim, plan.rank)
  const chosen = isFirst ? new WindowsAhead(state, pool).offer(claim, maxLife) : undefined
  if (chosen === undefined) {
    const never = impossible(state, pool, claim) ?? beyondQuota(state, pool, claim, maxLife)
    if (never !== undefined) return never
    if (wait !== true) {
      if (state.quiet !== undefined) return quiet(state)
      // It joins the queue and leaves it in the same command.
      const joins = !mustWait && wouldBeServed(state, pool, newcomer(state, command, plan.rank, { claim, maxLife }))
      if (!joins) return notNow(state, pool, claim)
    } else {
      const refused = cannotWaitInPool(state, pool, plan.holding)
      if (refused !== undefined) return refused
    }
  }
  return { ...plan, chosen: chosen && chooseAll(state, chosen) }
}

/** The lease of a request that is only being considered. */
function newcomer(
  state: State,
  { holder: name, ttl, priority = 0 }: Acquire,
  rank: number,
  { claim, maxLife }: { readonly claim: PoolClaim; readonly maxLife: number },
): LeaseState {
  const id = state.nextLease
  const holder = { name, process: OWN_INCARNATION, leases: 0 }
  const lease = new LeaseState({ id, holder, key: 0, ttl, status: WAITING, run: state.run.number, since: state.wall })
  Object.assign(extrasOf(lease), { rank, priority, maxLife, pool: claim })
  return lease
}

/** A reservation waits in any case, until its window begins. */
function planReservation(state: State, pool: PoolState, plan: Omit<Plan, 'chosen'>, waits: boolean, maxLife: number): Refused | Plan {
  const claim = plan.claim!
  if (!waits) return refuse(state, 'needs', { field: 'pool.from', other: 'wait' })
  const most = rule(state, pool.name, 'ttlMax')
  if (claim.from - state.elapsed > most) return refuse(state, 'window-too-late', { pool: pool.name, limit: most })
  const refused =
    impossible(state, pool, claim) ??
    beyondQuota(state, pool, claim, maxLife) ??
    cannotWaitInPool(state, pool, plan.holding) ??
    windowRefusal(state, pool, claim, maxLife)
  return refused ?? { ...plan, chosen: undefined }
}

function cannotWait(state: State, command: Acquire, wants: readonly WantedResource[], applicant: Applicant): Refused | undefined {
  const { any, steal } = command
  const { permits = 0, holding = NOTHING } = applicant
  for (const want of wants) {
    const resource = state.resources.get(want.resource)
    const most = rule(state, want.resource, 'waiters')
    if (resource !== undefined && resource.queue.length >= most)
      return refuse(state, 'too-many-waiters', { resource: want.resource, limit: most })
    if (steal === undefined && any === undefined && resource !== undefined && blocksItself(state, resource, want, { holding, permits }))
      return refuse(state, 'waits-for-itself', { resource: want.resource })
    const unused = steal === undefined && any === undefined ? unusedBefore(state, command, want, permits) : undefined
    if (unused !== undefined) return refuse(state, 'waits-for-transferred', { resource: want.resource, lease: unused })
  }
  if (any !== undefined || steal !== undefined) return undefined
  const path = findCycle(state, wants, applicant)
  if (path === undefined) return undefined
  return refuse(state, 'deadlock', { cycle: path })
}

/** The first lease that was transferred to this very process and that it has not begun to use, if it is in the way of the request. */
function unusedBefore(state: State, command: Acquire, want: WantedResource, permits: number): number | undefined {
  const { holder, incarnation, covers = false, holding = NOTHING } = command
  let first: number | undefined
  for (const { id, holder: owner, incarnation: theirs, extras, grants, status } of state.unused) {
    if (theirs !== incarnation || owner.name !== holder || extras!.open || status === FROZEN) continue
    const isAround = ({ resource, shared }: Grant) => meet(want.resource, covers, resource.name, extras!.covers) && !(shared && want.shared)
    const around = holding.includes(id) ? undefined : grants.find(isAround)
    if (around !== undefined && (first === undefined || id < first)) first = id
    const given = grants.find(({ resource }) => resource.name === want.resource)
    if (given === undefined) continue
    const limit = limitAmong(state, want.resource, permits, [given.lease])
    const isInTheWay = want.shared ? !given.shared : given.shared || given.units + want.units > limit
    if (isInTheWay && (first === undefined || id < first)) first = id
  }
  return first
}

/** Even if all other holders let go, the leases that the caller keeps would still be in its way. */
function blocksItself(
  state: State,
  resource: Resource,
  want: WantedResource,
  { holding, permits }: { readonly holding: readonly number[]; readonly permits: number },
): boolean {
  // Searched among the caller's leases: the resource may have thousands of holders.
  const kept = holding.map(id => findLease(state, id)!).filter(({ status }) => status !== FROZEN)
  const own = kept.flatMap(({ grants }) => grants.filter(given => given.resource === resource))
  if (want.shared) return own.some(given => !given.shared)
  const units = own.reduce((sum, given) => sum + given.units, want.units)
  const limit = limitAmong(state, resource.name, permits, leasesOf(own))
  return own.some(given => given.shared) || units > limit
}

export function acquire(state: State, effects: Effects, asked: Acquire, key: number): Granted | Queued | Refused {
  const command = key === 0 ? asked : withKeyDefaults(state, asked, key)
  const plan = key === 0 ? planned(state, command, key) : planAcquire(state, command, key)
  if ('kind' in plan) return plan
  const { wants, rank, parent, chosen, victims } = plan
  const status = chosen === undefined ? WAITING : LIVE
  const lease = openLease(state, command.holder, command.incarnation, key, command.ttl, status)
  if (command.changes !== undefined && command.changes.length > 0) beginWholeTerm(lease)
  if (plan.claim !== undefined && plan.claim.from > 0) lease.term = command.ttl + plan.claim.from - state.elapsed
  effects.timer(lease, TERM)
  keepExtras(state, lease, command, plan)
  if (parent !== undefined) addChild(state, parent, lease)
  const entries = command.entries ?? NOTHING
  // A waiter attaches its entries with the grant.
  if (chosen !== undefined) {
    for (const entry of entries) attach(state, effects, lease, entry)
    grant(state, effects, lease, chosen)
    if (command.changes !== undefined) carryOut(state, effects, command.changes, key, lease)
    if (chosen.length === 0 && entries.length === 0) emit(state, effects, 'granted', lease, {})
    // Others may have been waiting for an entry that it took over or deleted.
    if (state.freed.size + state.freedPools.length > 0) settle(state, effects, state.freed)
  } else {
    const extras = extrasOf(lease)
    if (entries.length > 0) extras.pending = copyOf(entries)
    extras.wants = wants
    extras.rank = rank
    enqueue(state, effects, lease)
    const { freed } = state
    if (command.steal !== undefined) steal(state, effects, lease, { wants, force: command.steal === 'force' }, victims, freed)
    if (command.recall === true) for (const want of wants) recallAround(state, effects, want, command.holder, command.covers === true)
    settle(state, effects, freed)
  }
  return lease.status === WAITING ? queued(state, lease) : granted(lease)
}

/** As after a first renewal. */
function beginWholeTerm(lease: LeaseState): void {
  lease.confirmed = true
  lease.term = lease.ttl
}

function keepExtras(state: State, lease: LeaseState, command: Acquire, { wants, holding, permits, claim }: Plan): void {
  if (claim !== undefined) extrasOf(lease).pool = claim
  // A reservation is for a holder name: the process that comes when its window begins may be another.
  if (claim !== undefined && claim.from > 0) extrasOf(lease).open = true
  let bounds: Bounds = { grace: command.grace ?? 0, maxLife: command.maxLife ?? 0 }
  if (state.policies.size > 0) {
    for (const { resource } of wants) bounds = bounded(state, resource, bounds)
    if (claim !== undefined) bounds = bounded(state, claim.pool, bounds)
    for (const { key } of command.entries ?? NOTHING) bounds = bounded(state, key, bounds)
  }
  const { grace, maxLife } = bounds
  const { any = 0, covers = false, priority = 0, labels = NOTHING } = command
  if (grace + maxLife + any + permits === 0 && priority === 0 && holding.length + labels.length === 0) return
  // A copy: the caller may change its object.
  const own = labels.map(([name, value]) => [name, value] as const)
  Object.assign(extrasOf(lease), { grace, maxLife, any, permits, covers, priority, holding, labels: own })
}

function granted(lease: LeaseState): Granted {
  const resources: string[] = []
  const tokens: number[] = []
  for (const { resource, token } of lease.grants) {
    resources.push(resource.name)
    tokens.push(token)
  }
  return {
    kind: 'granted',
    revision: 0,
    lease: lease.id,
    incarnation: lease.incarnation,
    ttl: lease.term,
    resources,
    tokens,
  }
}

function queued(state: State, lease: LeaseState): Queued {
  let position = waitsForPool(lease) ? positionInPool(state, lease) : 0
  for (const want of lease.extras!.wants) position = Math.max(position, positionOf(state.resources.get(want.resource)!, lease))
  return { kind: 'queued', revision: 0, lease: lease.id, incarnation: lease.incarnation, ttl: lease.term, position }
}
