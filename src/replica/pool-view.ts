/** The views that readers get of pools. */
import type { PoolRequest } from '../kernel/command.ts'
import { copyOf } from '../kernel/copy.ts'
import { CLASS_LABEL } from '../kernel/rule/learn.ts'
import { capacityOf, rule } from '../kernel/rule/policy.ts'
import { accountRules, shareHalfLife, usageOf } from '../kernel/rule/pool/account.ts'
import { isPossible } from '../kernel/rule/pool/choice.ts'
import { kindQuota } from '../kernel/rule/pool/kind.ts'
import { ShareStanding } from '../kernel/rule/pool/order.ts'
import { serviceOrder } from '../kernel/rule/pool/turn.ts'
import { positionInPool, waitsForPool } from '../kernel/rule/pool/waiters.ts'
import { lessThan, usedIn, weekAt } from '../kernel/rule/pool/week.ts'
import { findLease } from '../kernel/state/leases.ts'
import { emptyPool } from '../kernel/state/pools.ts'
import { kindsWithQuota } from '../kernel/state/quota-counts.ts'
import {
  type Grant,
  type LeaseState,
  LIVE,
  type PoolAccount,
  type PoolMember,
  type PoolState,
  type Resource,
  type State,
} from '../kernel/state.ts'
import type { PoolAccountView, PoolGrantView, PoolMemberView, PoolRules, PoolSummary, PoolView, PoolWaiterView } from '../lessor.ts'
import { MAX_POOL_PAGE, type PoolPage } from '../lessor.ts'
import { statusOf } from './lease-status.ts'

const RULES = [
  ...(['queue', 'aging', 'waiters', 'maxLife', 'maxHold', 'shareHalfLife', 'sharePenalty'] as const),
  ...(['preempt', 'minHold', 'preemptNotice', 'ttlMin', 'ttlMax'] as const),
]

export function poolSummaries(state: State): readonly PoolSummary[] {
  const summaries: PoolSummary[] = []
  for (const pool of state.pools.values()) {
    if (pool.members.size + pool.queue.length + pool.holders.size === 0) continue
    let [units, used] = [0, 0]
    for (const { resource, capacity } of pool.members.values()) {
      units += capacity
      used += state.resources.get(resource)?.used ?? 0
    }
    const { name, members, queue, reserved } = pool
    summaries.push({ pool: name, members: members.size, units, used, waiting: queue.length, reservations: reserved.size })
  }
  return summaries.sort((a, b) => (a.pool < b.pool ? -1 : 1))
}

/** Waiters before an asked one that its explanation plays one by one, and about how many stand for those between. */
const FIRST = 128
const SAMPLE = 64
/** A fair queue is put in order up to here. Beyond, its sample is in the order of arrival. */
const MOST_SORTED = 512

export function poolView(state: State, name: string, page: PoolPage = {}): PoolView {
  const pool = state.pools.get(name) ?? emptyPool(name)
  const queue = placesOf(state, pool, page).map(([lease, position]) => waiterView(state, pool, lease, position))
  const members = sortedMembers(pool).map(member => memberView(state, member))
  return {
    pool: name,
    elapsed: state.elapsed,
    members: [...members, ...draining(state, pool)],
    waiting: pool.queue.length,
    queue,
    reservations: reservations(state, pool),
    accounts: accountsOf(pool, queue, page).map(accountView(state, pool)),
    rules: Object.fromEntries(RULES.map(key => [key, rule(state, name, key)])) as unknown as PoolRules,
  }
}

/** Members by name, sorted once until members come, go or change. */
const sorted = new WeakMap<PoolState, { readonly version: number; readonly members: readonly PoolMember[] }>()

function sortedMembers(pool: PoolState): readonly PoolMember[] {
  let known = sorted.get(pool)
  if (known?.version !== pool.version) {
    known = { version: pool.version, members: [...pool.members.values()].sort(byName) }
    sorted.set(pool, known)
  }
  return known.members
}

/** The labels of a member as an object, made once: a member that is relabelled gets another map. */
const labelObjects = new WeakMap<ReadonlyMap<string, string>, Readonly<Record<string, string>>>()

function labelsOf(labels: ReadonlyMap<string, string>): Readonly<Record<string, string>> {
  let known = labelObjects.get(labels)
  if (known === undefined) {
    known = Object.freeze(Object.fromEntries(labels))
    labelObjects.set(labels, known)
  }
  return known
}

type PlacedWaiter = readonly [waiter: LeaseState, position: number]

/** The waiters that the query asks for, with their positions. */
function placesOf(state: State, pool: PoolState, { limit = MAX_POOL_PAGE, skip = 0, lease: asked }: PoolPage): PlacedWaiter[] {
  if (asked !== undefined) {
    const waiter = findLease(state, asked)
    return waiter !== undefined && waitsForPool(waiter) && waiter.extras!.pool!.pool === pool.name ? placesBefore(state, pool, waiter) : []
  }
  const most = Math.min(limit, MAX_POOL_PAGE)
  if (most === 0) return []
  return serviceOrder(state, pool, skip + most)
    .slice(skip, skip + most)
    .map((waiter, i) => [waiter, skip + i])
}

function placesBefore(state: State, pool: PoolState, waiter: LeaseState): PlacedWaiter[] {
  const isFair = rule(state, pool.name, 'queue') === 'fair'
  const standing = isFair ? new ShareStanding(state, pool, waiter) : undefined
  const last = standing?.position ?? positionInPool(state, waiter)
  const isSorted = standing === undefined || last <= MOST_SORTED
  const order = serviceOrder(state, pool, isSorted ? last : FIRST)
  const places: PlacedWaiter[] = []
  for (let at = 0; at < Math.min(FIRST, last); at++) places.push([order[at]!, at])
  if (isSorted) {
    const step = Math.max(1, Math.floor((last - FIRST) / SAMPLE))
    for (let at = FIRST; at < last; at += step) places.push([order[at]!, at])
  } else {
    const first = new Set(order)
    const step = Math.max(1, Math.floor(pool.queue.length / SAMPLE))
    const sample: LeaseState[] = []
    for (let at = 0; at < pool.queue.length; at += step)
      if (!first.has(pool.queue[at]!) && standing.isAfter(pool.queue[at]!)) sample.push(pool.queue[at]!)
    for (const [i, other] of sample.entries()) places.push([other, FIRST + Math.floor((i * (last - FIRST)) / sample.length)])
  }
  return [...places, [waiter, last]]
}

function reservations(state: State, pool: PoolState): readonly PoolWaiterView[] {
  const begin = ({ extras }: LeaseState) => extras!.pool!.from
  // They stand before all other waiters but those that steal or take over, and are few.
  const ahead = [...pool.reserved].sort((a, b) => begin(a) - begin(b) || a.id - b.id)
  if (ahead.length === 0) return []
  return ahead.map(lease => waiterView(state, pool, lease, positionInPool(state, lease)))
}

function accountsOf(pool: PoolState, queue: readonly PoolWaiterView[], { lease }: PoolPage): readonly PoolAccount[] {
  const names = new Set(queue.map(({ account }) => account))
  if (queue.length === pool.queue.length) return [...pool.accounts.values()].sort(byName)
  if (lease === undefined) for (const { extras } of pool.holders) names.add(extras!.pool!.account)
  return [...names].map(name => pool.accounts.get(name)!).sort(byName)
}

function byName(a: { readonly name: string }, b: { readonly name: string }): number {
  return a.name < b.name ? -1 : 1
}

function memberView(state: State, { name, resource, labels, entry, capacity }: PoolMember): PoolMemberView {
  const there = state.resources.get(resource)
  return {
    member: name,
    resource,
    labels: labelsOf(labels),
    units: capacity,
    used: there?.used ?? 0,
    status: entry.lease.status === LIVE ? 'live' : 'suspect',
    offer: entry.lease.id,
    offeredBy: entry.lease.holder.name,
    grants: (there?.grants ?? []).map(grant => poolGrantView(state, grant)),
    waiting: there?.queue.length ?? 0,
  }
}

/** Members that have left the pool and are still held by leases that took them from it. */
function draining(state: State, pool: PoolState): PoolMemberView[] {
  const left = new Set<Resource>()
  for (const { grants } of pool.holders) for (const { resource } of grants) if (resource.member === undefined) left.add(resource)
  return [...left].sort(byName).map(({ name, used, grants, queue }) => ({
    member: name.slice(name.lastIndexOf('/') + 1),
    resource: name,
    labels: {},
    units: capacityOf(state, name),
    used,
    status: 'draining' as const,
    offer: 0,
    offeredBy: '',
    grants: grants.map(grant => poolGrantView(state, grant)),
    waiting: queue.length,
  }))
}

function poolGrantView(state: State, { lease, token, units, shared }: Grant): PoolGrantView {
  const { extras } = lease
  const claim = extras?.pool
  return {
    lease: lease.id,
    holder: lease.holder.name,
    incarnation: lease.incarnation,
    account: claim?.account ?? '',
    units: shared ? 1 : units,
    shared,
    token,
    status: statusOf(lease),
    since: lease.since,
    start: claim?.start ?? 0,
    held: claim === undefined ? 0 : state.elapsed - claim.start,
    expect: claim?.expect ?? 0,
    maxLife: extras?.maxLife ?? 0,
    priority: extras?.priority ?? 0,
    preemptible: claim?.preemptible ?? false,
    yields: claim?.yields ?? false,
    borrows: claim?.borrows ?? false,
    recalled: extras?.recalled ?? false,
    class: workClass(lease),
  }
}

function waiterView(state: State, pool: PoolState, lease: LeaseState, position: number): PoolWaiterView {
  const { pool: claim, rank, priority, maxLife } = lease.extras!
  return {
    lease: lease.id,
    holder: lease.holder.name,
    incarnation: lease.incarnation,
    account: claim!.account,
    request: requestView(state, pool, lease),
    position,
    priority,
    rank,
    since: lease.since,
    maxLife,
    possible: isPossible(pool, claim!),
    class: workClass(lease),
  }
}

/** Returns what it asked for, without what it left out. */
function requestView(state: State, pool: PoolState, lease: LeaseState): PoolRequest {
  const { count, units, total, match, near, account, expect, preemptible, from } = lease.extras!.pool!
  const request: { -readonly [K in keyof PoolRequest]: PoolRequest[K] } = { pool: pool.name, account }
  if (total > 0) request.total = total
  else request.count = count
  if (units > 0) request.units = units
  if (match.length > 0) request.match = copyOf(match)
  if (near !== '') request.near = near
  if (expect > 0) request.expect = expect
  if (preemptible) request.preemptible = true
  if (pool.reserved.has(lease)) request.from = Math.max(1, from - state.elapsed)
  return request
}

function workClass({ extras }: LeaseState): string {
  return extras?.labels.find(([label]) => label === CLASS_LABEL)?.[1] ?? ''
}

function accountView(state: State, pool: PoolState): (account: PoolAccount) => PoolAccountView {
  const halfLife = shareHalfLife(state, pool)
  const rulesOf = accountRules(state, pool)
  return account => {
    const { name, held, leases, waiting } = account
    const { shareWeight: weight, quotaUnits: quota, quotaBorrow: borrow, quotaWeek } = rulesOf(name)
    const usage = usageOf(state, pool, account, halfLife)
    const kinds = kindViews(state, pool, account)
    return {
      ...{ account: name, usage, weight, held, leases, waiting: waiting.length, quota, borrow },
      ...(quotaWeek > 0 && { week: weekView(state, account, quotaWeek) }),
      ...(kinds.length > 0 && { kinds }),
    }
  }
}

function weekView({ elapsed }: State, account: PoolAccount, quota: number): NonNullable<PoolAccountView['week']> {
  const week = weekAt(account, elapsed)
  return { used: usedIn(week), quota, again: Math.max(0, lessThan(quota, week) - elapsed) }
}

function kindViews(state: State, pool: PoolState, { name, kinds }: PoolAccount): NonNullable<PoolAccountView['kinds']> {
  return (kindsWithQuota(state, pool.name) ?? []).flatMap(kind => {
    const quota = kindQuota(state, pool, kind, name)
    return quota > 0 ? [{ kind, held: kinds?.get(kind) ?? 0, quota }] : []
  })
}
