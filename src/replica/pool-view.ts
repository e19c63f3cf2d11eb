/** The views that readers get of pools. */
import { copyOf } from '../kernel/copy.ts'
import { CLASS_LABEL } from '../kernel/rule/learn.ts'
import { capacityOf, rule } from '../kernel/rule/policy.ts'
import { accountName, usageOf } from '../kernel/rule/pool/account.ts'
import { isPossible } from '../kernel/rule/pool/choice.ts'
import { serviceOrder } from '../kernel/rule/pool/turn.ts'
import { emptyPool } from '../kernel/state/pools.ts'
import { type Grant, type LeaseState, LIVE, type PoolAccount, type PoolMember, type PoolState, type State } from '../kernel/state.ts'
import type { PoolAccountView, PoolGrantView, PoolMemberView, PoolRules, PoolSummary, PoolView, PoolWaiterView } from '../lessor.ts'
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
    for (const { resource } of pool.members.values()) {
      units += capacityOf(state, resource)
      used += state.resources.get(resource)?.used ?? 0
    }
    const { name, members, queue, reserved } = pool
    summaries.push({ pool: name, members: members.size, units, used, waiting: queue.length, reservations: reserved.size })
  }
  return summaries.sort((a, b) => (a.pool < b.pool ? -1 : 1))
}

export function poolView(state: State, name: string): PoolView {
  const pool = state.pools.get(name) ?? emptyPool(name)
  const queue = serviceOrder(state, pool).map((lease, position) => waiterView(state, pool, lease, position))
  const members = [...pool.members.values()].sort(byName).map(member => memberView(state, member))
  return {
    pool: name,
    elapsed: state.elapsed,
    members: [...members, ...draining(state, pool)],
    queue,
    reservations: queue.filter(({ request }) => request.from !== undefined).sort((a, b) => a.request.from! - b.request.from!),
    accounts: [...pool.accounts.values()].sort(byName).map(account => accountView(state, pool, account)),
    rules: Object.fromEntries(RULES.map(key => [key, rule(state, name, key)])) as unknown as PoolRules,
  }
}

function byName(a: { readonly name: string }, b: { readonly name: string }): number {
  return a.name < b.name ? -1 : 1
}

function memberView(state: State, { name, resource, labels, entry }: PoolMember): PoolMemberView {
  const there = state.resources.get(resource)
  return {
    member: name,
    resource,
    labels: Object.fromEntries(labels),
    units: capacityOf(state, resource),
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
  const left = new Set([...pool.holders].flatMap(({ grants }) => grants.flatMap(({ resource }) => (resource.member ? [] : [resource]))))
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
  const { rare } = lease
  const claim = rare?.pool
  return {
    lease: lease.id,
    holder: lease.holder.name,
    incarnation: lease.holder.incarnation,
    account: claim?.account ?? '',
    units: shared ? 1 : units,
    shared,
    token,
    status: statusOf(lease),
    since: lease.since,
    start: claim?.start ?? 0,
    held: claim === undefined ? 0 : state.elapsed - claim.start,
    expect: claim?.expect ?? 0,
    maxLife: rare?.maxLife ?? 0,
    priority: rare?.priority ?? 0,
    preemptible: claim?.preemptible ?? false,
    yields: claim?.yields ?? false,
    borrows: claim?.borrows ?? false,
    recalled: rare?.recalled ?? false,
    class: workClass(lease),
  }
}

function waiterView(state: State, pool: PoolState, lease: LeaseState, position: number): PoolWaiterView {
  const { pool: claim, rank, priority, maxLife } = lease.rare!
  const { count, units, total, match, near, account, expect, preemptible, from } = claim!
  return {
    lease: lease.id,
    holder: lease.holder.name,
    incarnation: lease.holder.incarnation,
    account,
    request: {
      pool: pool.name,
      ...(total > 0 ? { total } : { count }),
      ...(units > 0 && { units }),
      ...(match.length > 0 && { match: copyOf(match) }),
      ...(near !== '' && { near }),
      account,
      ...(expect > 0 && { expect }),
      ...(preemptible && { preemptible }),
      ...(pool.reserved.has(lease) && { from: Math.max(1, from - state.elapsed) }),
    },
    position,
    priority,
    rank,
    since: lease.since,
    maxLife,
    possible: isPossible(pool, claim!),
    class: workClass(lease),
  }
}

function workClass({ rare }: LeaseState): string {
  return rare?.labels.find(([label]) => label === CLASS_LABEL)?.[1] ?? ''
}

function accountView(state: State, pool: PoolState, account: PoolAccount): PoolAccountView {
  const name = accountName(pool, account.name)
  return {
    account: account.name,
    usage: usageOf(state, pool, account),
    weight: rule(state, name, 'shareWeight'),
    held: account.held,
    leases: account.leases,
    waiting: account.waiting,
    quota: rule(state, name, 'quotaUnits'),
    borrow: rule(state, name, 'quotaBorrow'),
  }
}
