/** The views that readers get of the state: single items, and the summary. Lists are in lists.ts. */
import { copyOf } from '../kernel/copy.ts'
import { coveringGrants, coveringWaiters, firstGrantsBelow } from '../kernel/rule/covers.ts'
import { flapOf } from '../kernel/rule/flap.ts'
import { limitInForce } from '../kernel/rule/permits.ts'
import { capacityOf, rule } from '../kernel/rule/policy.ts'
import { positionInPool, waitsForPool } from '../kernel/rule/pool/waiters.ts'
import { positionOf } from '../kernel/rule/queue.ts'
import type { FreeEntry } from '../kernel/state/free-entries.ts'
import { noUse } from '../kernel/state/key-use.ts'
import { findLease } from '../kernel/state/leases.ts'
import type { ApiKey, Attached, Grant, LeaseState, Resource, State } from '../kernel/state.ts'
import { keptRuns, numbersKey, withRuns } from '../lessor/kept-runs.ts'
import type { ApiKeyView } from '../lessor/key-view.ts'
import type { EntryView, GrantView, LeaseView, PastGrant, Query, ResourceView, ServiceView, View, WaiterView } from '../lessor.ts'
import { statusOf } from './lease-status.ts'
import { poolSummaries, poolView } from './pool-view.ts'
import { sketchViews } from './sketch-view.ts'

export type Remaining = (lease: LeaseState) => number

/** Queries that look at one item or a few. */
type Short = Exclude<Query, { readonly kind: 'leases' | 'resources' | 'entries' }>

export function view(state: State, query: Short, remaining: Remaining): View {
  return { revision: state.revision, value: answer(state, query, remaining) }
}

function answer(state: State, query: Short, remaining: Remaining): View['value'] {
  switch (query.kind) {
    case 'summary':
      return {
        rules: state.rules,
        leases: state.leases.size,
        ...{ waiting: state.counts.waiting, suspect: state.counts.suspect, frozen: state.counts.frozen },
        resources: state.resources.size,
        entries: state.entries.size + state.free.size,
        keys: state.keys.size,
        nextToken: state.nextToken,
        quiet: state.quiet !== undefined,
        ...(state.moved !== undefined && { moved: state.moved }),
      }
    case 'lease': {
      const lease = findLease(state, query.lease)
      return lease === undefined ? undefined : leaseView(state, lease, remaining)
    }
    case 'resource':
      return resourceView(state, query.resource, state.resources.get(query.resource), remaining, query.waiters, query.holders)
    case 'services':
      return serviceViews(state, query.service)
    case 'pool':
      return poolView(state, query.pool, query)
    case 'pools':
      return poolSummaries(state)
    case 'history':
      return query.below === undefined
        ? historyView(state, query.resource, query.limit)
        : historyBelow(state, query.resource, query.below, query.limit)
    case 'durations':
      return sketchViews(state, query.class)
    case 'policies':
      return [...state.policies].map(([prefix, rules]) => ({ prefix, rules: { ...rules } }))
    case 'keys':
      return [...state.keys.values()].map(key => keyView(state, key))
  }
}

function keyView(state: State, key: ApiKey): ApiKeyView {
  const group = key.group === undefined ? undefined : state.groups.get(key.group)!
  return copyOf({
    ...key,
    use: state.keyUse.get(key.id) ?? noUse(),
    ...(group !== undefined && { groupUse: group.use, ...(group.limits !== undefined && { groupLimits: group.limits }) }),
  })
}

function historyView(state: State, resource: string, limit = Number.POSITIVE_INFINITY): readonly PastGrant[] {
  const most = Math.max(1, limit)
  const known = newest(state.history.get(resource) ?? [], most)
  const past = known.map(({ by, ...past }): PastGrant => (by === '' ? past : { ...past, by }))
  if (state.free.size === 0) return past
  const keptFor = rule(state, numbersKey(resource), 'maxLife')
  const runs = keptRuns(key => state.free.get(key)?.value, resource, keptFor === 0 ? 0 : state.wall - keptFor, most)
  return newest(withRuns(past, runs), most)
}

function historyBelow(state: State, resource: string, after: number, limit = Number.POSITIVE_INFINITY): readonly PastGrant[] {
  const found: PastGrant[] = []
  for (const [name, past] of state.history) {
    if (!name.startsWith(`${resource}/`)) continue
    for (const { by, ...grant } of past) if (grant.revision > after) found.push({ resource: name, ...grant, ...(by !== '' && { by }) })
  }
  found.sort((one, other) => one.revision - other.revision)
  return newest(found, Math.max(1, limit))
}

function newest<T>(items: readonly T[], most: number): readonly T[] {
  return items.slice(Math.max(0, items.length - most))
}

function grantView({ lease, resource, token, units, shared }: Grant, remaining: Remaining): GrantView {
  return {
    resource: resource.name,
    lease: lease.id,
    holder: lease.holder.name,
    incarnation: lease.incarnation,
    token,
    units: shared ? 1 : units,
    shared,
    status: statusOf(lease),
    since: lease.since,
    remaining: remaining(lease),
    ...permitsOf(lease),
  }
}

function permitsOf({ extras }: LeaseState): { readonly permits?: number; readonly covers?: boolean } {
  if (extras === undefined) return {}
  if (extras.covers) return { covers: true }
  return extras.permits === 0 ? {} : { permits: extras.permits }
}

function waiterView(resource: Resource, lease: LeaseState, position: number): WaiterView {
  const want = lease.extras!.wants.find(({ resource: name }) => name === resource.name)!
  return {
    lease: lease.id,
    holder: lease.holder.name,
    incarnation: lease.incarnation,
    position,
    units: want.units,
    shared: want.shared,
    priority: lease.extras!.priority,
    since: lease.since,
    ...permitsOf(lease),
  }
}

export function resourceView(
  state: State,
  name: string,
  resource: Resource | undefined,
  remaining: Remaining,
  waiters = Number.POSITIVE_INFINITY,
  holders = Number.POSITIVE_INFINITY,
): ResourceView {
  // An exclusive covering claim is alone: it states no number of its own.
  const isCovered = resource?.grants[0]?.lease.extras?.covers === true
  const above = coveringGrants(state, name)
  const first = (resource?.queue ?? []).slice(0, waiters).map((lease, position) => waiterView(resource!, lease, position))
  return {
    resource: name,
    capacity: capacityOf(state, name),
    ...(resource !== undefined && (resource.permits?.total ?? 0) > 0 && !isCovered && { limit: limitInForce(state, resource) }),
    grants: (resource?.grants ?? []).slice(0, holders).map(grant => grantView(grant, remaining)),
    ...(above.length > 0 && { coveredBy: above.slice(0, holders).map(grant => grantView(grant, remaining)) }),
    ...around(state, name, resource, remaining),
    queue: first.length < waiters ? [...first, ...poolQueue(state, name, waiters - first.length)] : first,
    fence: state.fences.get(name) ?? 0,
  }
}

/** Claims that are shown of the names around one. */
const MAX_AROUND = 20

/** Returns what stands in the way of a request between names of which one covers the other, besides grants above. */
function around(
  state: State,
  name: string,
  resource: Resource | undefined,
  remaining: Remaining,
): Pick<ResourceView, 'waitersAbove' | 'heldBelow'> {
  const waiters = coveringWaiters(state, name).slice(0, MAX_AROUND)
  const isAwaited = resource?.queue.some(({ extras }) => extras!.covers) === true
  const below = isAwaited ? firstGrantsBelow(state, name, MAX_AROUND) : []
  return {
    ...(waiters.length > 0 && {
      waitersAbove: waiters.map(([lease, above]) => {
        const place = state.resources.get(above)!
        return { resource: above, ...waiterView(place, lease, positionOf(place, lease)) }
      }),
    }),
    ...(below.length > 0 && { heldBelow: below.map(grant => grantView(grant, remaining)) }),
  }
}

export function leaseView(state: State, lease: LeaseState, remaining: Remaining): LeaseView {
  const { extras } = lease
  return {
    lease: lease.id,
    holder: lease.holder.name,
    incarnation: lease.incarnation,
    key: lease.key,
    ttl: lease.ttl,
    status: statusOf(lease),
    since: lease.since,
    remaining: remaining(lease),
    grants: lease.grants.map(grant => grantView(grant, remaining)),
    wants: waitsForPool(lease)
      ? [poolWant(state, lease)]
      : (extras?.wants ?? []).map(want => ({ ...want, position: positionOf(state.resources.get(want.resource)!, lease) })),
    entries: [...(extras?.entries ?? [])].map(key => ({ key, value: state.entries.get(key)!.value })),
    labels: copyOf(extras?.labels ?? []),
    parent: extras?.parent?.id ?? 0,
    children: [...(extras?.children ?? [])].map(child => child.id),
    recalled: extras?.recalled ?? false,
    ...(extras?.covers === true && { covers: true }),
    ...(extras !== undefined && extras.maxLife > 0 && { maxLife: extras.maxLife }),
  }
}

/** The waiters of the pool of this name, if there is one. */
function poolQueue(state: State, name: string, most: number): readonly WaiterView[] {
  return (state.pools.get(name)?.queue ?? []).slice(0, most).map(lease => {
    const { id, holder, incarnation, since, extras } = lease
    const { units, shared, position } = poolWant(state, lease)
    return { lease: id, holder: holder.name, incarnation, position, units, shared, priority: extras!.priority, since }
  })
}

/** A waiter for members of a pool waits for the pool's name. */
function poolWant(state: State, lease: LeaseState): LeaseView['wants'][number] {
  const { pool, count, units, total } = lease.extras!.pool!
  return { resource: pool, units: total > 0 ? total : count * Math.max(1, units), shared: false, position: positionInPool(state, lease) }
}

export function entryView(state: State, entry: Attached | FreeEntry, remaining: Remaining): EntryView {
  const { key, value, revision, created, version } = entry
  const written = { revision, created, version }
  if (!('lease' in entry)) {
    const none = { generation: 0, suppressed: false, remaining: 0 }
    return { key, value, lease: 0, holder: '', incarnation: 0, status: 'live', ...written, ...none }
  }
  const { lease, generation } = entry
  const flap = flapOf(state, key)
  const more = { generation, suppressed: state.suppressed.has(key), ...(flap && { flap }), remaining: remaining(lease) }
  return {
    key,
    value,
    lease: lease.id,
    holder: lease.holder.name,
    incarnation: lease.incarnation,
    status: statusOf(lease),
    ...written,
    ...more,
  }
}

function serviceViews(state: State, only: string | undefined): readonly ServiceView[] {
  const names = only === undefined ? [...state.services.keys()].sort() : [`services/${only}`].filter(name => state.services.has(name))
  const suppressed = new Map<string, number>()
  for (const key of state.suppressed) {
    const name = key.slice(0, key.lastIndexOf('/'))
    if (state.entries.has(key)) suppressed.set(name, (suppressed.get(name) ?? 0) + 1)
  }
  return names.map(name => {
    const { total: instances, suspect } = state.services.get(name)!
    const { preserving = false, since = 0, removed = 0 } = state.upkeep.get(name) ?? {}
    const service = name.slice('services/'.length)
    return { service, instances, suspect, suppressed: suppressed.get(name) ?? 0, preserving, since, removed }
  })
}
