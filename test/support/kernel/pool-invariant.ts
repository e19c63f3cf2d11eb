/** The same must hold for the pools of every state. All tables are worked out again from entries, leases and policies, the naive way. */

import type { PoolCondition } from '../../../src/kernel/command.ts'
import { entryRefusal, processOf } from '../../../src/kernel/rule/attach.ts'
import { rule, ruledBy } from '../../../src/kernel/rule/policy.ts'
import {
  type Attached,
  FROZEN,
  type LeaseState,
  LIVE,
  type PoolClaim,
  PREEMPT,
  type Resource,
  type State,
  WAITING,
} from '../../../src/kernel/state.ts'

export interface NaiveMember {
  readonly name: string
  readonly resource: string
  readonly entry: Attached
  readonly labels: Readonly<Record<string, string>>
  readonly capacity: number
  readonly room: number
}

/** The units that a resource has: by policy, as a member, or 1. */
export function capacity(state: State, name: string): number {
  if (ruledBy(state, name, 'capacity') !== undefined) return rule(state, name, 'capacity')
  const entry = state.entries.get(`pool/${name}`)
  return (entry && name.includes('/') ? offered(entry.value)?.units : undefined) ?? 1
}

function offered(value: string): { readonly labels: Readonly<Record<string, string>>; readonly units: number } | undefined {
  try {
    const parsed = JSON.parse(value)
    if (Array.isArray(parsed)) return undefined
    const { labels = {}, units = 1 } = parsed
    const isOffer = Number.isInteger(units) && units >= 1 && Object.values(labels).every(text => typeof text === 'string')
    return isOffer ? { labels, units } : undefined
  } catch {
    return undefined
  }
}

export function naiveMembers(state: State, pool: string): NaiveMember[] {
  const members: NaiveMember[] = []
  for (const entry of state.entries.values()) {
    const [, key, name] = /^pool\/(.+)\/([^/]+)$/.exec(entry.key) ?? []
    const offer = key === pool ? offered(entry.value) : undefined
    if (offer === undefined) continue
    const resource = `${pool}/${name}`
    const there = state.resources.get(resource)
    const units = capacity(state, resource)
    const used = there?.grants.reduce((sum, grant) => sum + grant.units, 0) ?? 0
    const isOpen = entry.lease.status === LIVE && !there?.grants.some(grant => grant.shared) && !isAwaited(state, there)
    members.push({ name: name!, resource, entry, labels: offer.labels, capacity: units, room: isOpen ? Math.max(0, units - used) : 0 })
  }
  return members
}

/** Returns whether a client that waits for the resource by name comes first. */
function isAwaited(state: State, resource: Resource | undefined): boolean {
  if (resource === undefined || rule(state, resource.name, 'queue') === 'fit') return false
  return resource.queue.some(({ extras }) => {
    const { wants, any } = extras!
    const there = wants.filter(want => (want.shared ? capacity(state, want.resource) > 0 : want.units <= capacity(state, want.resource)))
    return there.length >= (any === 0 ? wants.length : any) && there.some(want => want.resource === resource.name)
  })
}

export function passes(labels: Readonly<Record<string, string>>, { label, test, values = [] }: PoolCondition): boolean {
  const value = Object.hasOwn(labels, label) ? labels[label] : undefined
  if (test === 'absent') return value === undefined
  if (test === 'present') return value !== undefined
  if (test === 'not-in') return value === undefined || !values.includes(value)
  if (value === undefined) return false
  if (test === 'in') return values.includes(value)
  if (!/^-?\d+(\.\d+)?$/.test(value)) return false
  const [a, b] = [Number.parseFloat(value), Number.parseFloat(values[0]!)]
  return test === 'less' ? a < b : test === 'at-most' ? a <= b : test === 'more' ? a > b : a >= b
}

/** Returns whether there is any way to serve the request with this much room on each member. */
export function canServe(members: readonly NaiveMember[], claim: PoolClaim, roomOf: (member: NaiveMember) => number): boolean {
  const fitting = members.filter(({ labels }) => claim.match.every(condition => passes(labels, condition)))
  const groups =
    claim.near === ''
      ? [fitting]
      : [...new Set(fitting.map(({ labels }) => labels[claim.near]))]
          .filter(value => value !== undefined)
          .map(value => fitting.filter(({ labels }) => labels[claim.near] === value))
  return groups.some(group => {
    if (claim.total > 0) return group.reduce((sum, member) => sum + roomOf(member), 0) >= claim.total
    const able = group.filter(member => {
      const room = roomOf(member)
      return room > 0 && (claim.units === 0 ? room === member.capacity : room >= claim.units)
    })
    return able.length >= claim.count
  })
}

function isPoolWaiter({ status, extras }: LeaseState): boolean {
  return status === WAITING && extras?.pool !== undefined && extras.wants.length === 0
}

export function* poolViolations(state: State): Generator<string> {
  const leases = [...state.leases.values()]
  const names = new Set([...state.pools.keys(), ...leases.flatMap(({ extras }) => (extras?.pool ? [extras.pool.pool] : []))])
  for (const { key } of state.entries.values()) {
    const [, name] = /^pool\/(.+)\/[^/]+$/.exec(key) ?? []
    if (name !== undefined) names.add(name)
  }
  if (state.freedPools.length > 0) yield 'a pool is left to be served'
  if (state.vanished.length > 0) yield 'members have vanished, and their holders were not ended'
  for (const name of names) yield* onePool(state, name, leases)
  for (const resource of state.resources.values()) {
    const slash = resource.name.lastIndexOf('/')
    const member = state.pools.get(resource.name.slice(0, slash))?.members.get(resource.name.slice(slash + 1))
    if (resource.member !== (slash < 0 ? undefined : member)) yield `${resource.name} does not know which member it is`
  }
}

function* onePool(state: State, name: string, leases: readonly LeaseState[]): Generator<string> {
  const members = naiveMembers(state, name)
  const waiters = leases.filter(lease => isPoolWaiter(lease) && lease.extras!.pool!.pool === name)
  const holders = leases.filter(({ extras, grants }) => extras?.pool?.pool === name && grants.length > 0)
  const pool = state.pools.get(name)
  if (pool === undefined) {
    if (members.length + waiters.length + holders.length > 0) yield `the pool ${name} is not known`
    return
  }
  const usage = [...pool.accounts.values()].some(account => account.usage > 0 || account.week.length > 0)
  if (members.length + waiters.length + holders.length === 0 && !usage) yield `the pool ${name} is kept and empty`
  yield* memberTable(state, name, members)
  waiters.sort((a, b) => a.extras!.rank - b.extras!.rank || a.id - b.id)
  const ids = (list: readonly LeaseState[]) => list.map(({ id }) => id).join()
  if (ids(pool.queue) !== ids(waiters)) yield `the queue of ${name} is ${ids(pool.queue)} instead of ${ids(waiters)}`
  if (ids([...pool.holders].sort((a, b) => a.id - b.id)) !== ids(holders)) yield `the holders of ${name} are ${ids([...pool.holders])}`
  const later = waiters.filter(({ extras }) => extras!.pool!.from > state.elapsed)
  if (ids([...pool.reserved].sort((a, b) => a.id - b.id)) !== ids(later.sort((a, b) => a.id - b.id))) yield `the reservations of ${name}`
  const shapes = new Set(waiters.map(({ extras }) => extras!.pool!.shape))
  if (shapes.has(undefined) || shapes.size !== pool.shapes.size) yield `${name} has ${pool.shapes.size} shapes instead of ${shapes.size}`
  for (const shape of pool.shapes.values())
    if (shape.waiters !== waiters.filter(({ extras }) => extras!.pool!.shape === shape).length)
      yield `the waiters of ${shape.key} are miscounted`
  yield* accounts(state, name, waiters, holders)
  yield* notices(state, name, waiters, holders)
  yield* liveness(state, name, members, waiters)
}

function* memberTable(state: State, name: string, members: readonly NaiveMember[]): Generator<string> {
  const pool = state.pools.get(name)!
  if (pool.members.size !== members.length) yield `${name} has ${pool.members.size} members instead of ${members.length}`
  for (const { name: member, entry, labels, capacity: units, room } of members) {
    const there = pool.members.get(member)
    if (there?.entry !== entry) yield `${name}/${member} is of another entry`
    if (JSON.stringify([...(there?.labels ?? [])].sort()) !== JSON.stringify(Object.entries(labels).sort())) yield `labels of ${member}`
    if (there?.capacity !== units) yield `${name}/${member} has ${units} units, and ${there?.capacity} are listed`
    if (there?.room !== room) yield `${name}/${member} has room for ${room}, and ${there?.room} are listed`
  }
  const free = members.filter(({ room }) => room > 0).sort((a, b) => a.room - b.room || (a.name < b.name ? -1 : 1))
  const listed = pool.free.map(member => member.name).join()
  if (listed !== free.map(member => member.name).join()) yield `free in ${name}: ${listed} instead of ${free.map(member => member.name)}`
}

function* accounts(state: State, name: string, waiters: readonly LeaseState[], holders: readonly LeaseState[]): Generator<string> {
  const { accounts } = state.pools.get(name)!
  for (const account of new Set([...accounts.keys(), ...[...waiters, ...holders].map(({ extras }) => extras!.pool!.account)])) {
    const own = (list: readonly LeaseState[]) => list.filter(({ extras }) => extras!.pool!.account === account)
    const held = own(holders).reduce((sum, { grants }) => sum + grants.reduce((units, grant) => units + grant.units, 0), 0)
    const there = accounts.get(account)
    yield* accountQuotas(state, name, account, own(holders))
    if (
      there?.held !== held ||
      there.leases !== own(holders).length ||
      there.waiting.map(({ id }) => id).join() !==
        own(waiters)
          .map(({ id }) => id)
          .join()
    )
      yield `account ${account} of ${name} holds ${held} on ${own(holders).length} leases, ${own(waiters).length} wait: ${JSON.stringify({ ...there, waiting: there?.waiting.map(({ id }) => id) })}`
  }
}

/** The units of each kind that an account holds are counted, and its week only under a quota. */
function* accountQuotas(state: State, pool: string, account: string, holders: readonly LeaseState[]): Generator<string> {
  const kinds = new Map<string, number>()
  for (const { resource, units } of holders.flatMap(({ grants }) => grants)) {
    const labels = resource.name.startsWith(`${pool}/`)
      ? offered(state.entries.get(`pool/${resource.name}`)?.value ?? '')?.labels
      : undefined
    const kind = labels?.kind ?? labels?.model
    if (kind !== undefined) kinds.set(kind, (kinds.get(kind) ?? 0) + units)
  }
  const { kinds: counted = new Map(), week = [] } = state.pools.get(pool)!.accounts.get(account) ?? {}
  const text = (held: ReadonlyMap<string, number>) => [...held].sort().join(' ')
  if (text(counted) !== text(kinds)) yield `account ${account} of ${pool} holds ${text(kinds)}, and ${text(counted)} is counted`
  if (week.length > 29) yield `account ${account} of ${pool} keeps ${week.length} steps of its week`
  if (week.length > 0 && rule(state, `${pool}/accounts/${account}`, 'quotaWeek') === 0)
    yield `the week of ${account} is counted without a quota`
}

/** Leases under notice hold members, have the timer of the notice, and are named for a waiter of the pool. */
function* notices(state: State, name: string, waiters: readonly LeaseState[], holders: readonly LeaseState[]): Generator<string> {
  const told = holders.filter(({ extras }) => extras!.pool!.notice !== 0)
  const ids = (list: readonly LeaseState[]) => list.map(({ id }) => id).sort((a, b) => a - b)
  const { noticed } = state.pools.get(name)!
  if (ids([...noticed]).join() !== ids(told).join()) yield `under notice in ${name}: ${ids([...noticed])} instead of ${ids(told)}`
  for (const { id, status, extras } of told) {
    if (status === FROZEN) yield `${id} is frozen and under notice`
    if (extras!.timers?.[PREEMPT] === undefined) yield `${id} is under notice without a deadline`
    if (!extras!.recalled) yield `${id} is under notice and was not told`
    if (!waiters.some(waiter => waiter.id === extras!.pool!.notice))
      yield `${id} is preempted for ${extras!.pool!.notice}, which does not wait`
  }
}

/** Returns whether the account of a waiter could hold what it asks for, without borrowing. */
function isWithinQuota(state: State, name: string, claim: PoolClaim): boolean {
  const { account, count, units, total } = claim
  const quota = rule(state, `${name}/accounts/${account}`, 'quotaUnits')
  const held = state.pools.get(name)!.accounts.get(account)?.held ?? 0
  return quota === 0 || held + (total || count * Math.max(1, units)) <= quota
}

/**
 * No waiter could be served now. In a queue without overtaking only the first one counts that could be served at all; with shares, that one is among those
 * that do not fit.
 */
function* liveness(state: State, name: string, members: readonly NaiveMember[], waiters: readonly LeaseState[]): Generator<string> {
  if (state.quiet !== undefined || state.moved !== undefined) return
  const queue = rule(state, name, 'queue')
  // A grant may be withheld for a window ahead.
  if (waiters.some(({ extras }) => extras!.pool!.from > state.elapsed)) return
  const hasQuotas = [...state.policies.values()].some(({ quotaUnits = 0, quotaWeek = 0 }) => quotaUnits + quotaWeek > 0)
  const able = waiters.filter(({ extras }) => canServe(members, extras!.pool!, member => member.capacity))
  const within = able.filter(({ extras }) => isWithinQuota(state, name, extras!.pool!))
  // With quotas, members of several units may turn a request into a loan: then nothing is said about it here.
  if (hasQuotas && within.some(({ extras }) => extras!.pool!.units === 0 && extras!.pool!.total === 0)) return
  const brought = (waiter: LeaseState) =>
    waiter.extras!.pending.every(entry => entryRefusal(state, processOf(waiter), entry, waiter.key) === undefined)
  if (queue === 'fair') {
    if (within.length > 0 && within.every(waiter => brought(waiter) && canServe(members, waiter.extras!.pool!, member => member.room)))
      yield `all waiters of ${name} fit: ${within.map(({ id }) => id)}`
    return
  }
  for (const waiter of within) {
    const claim = waiter.extras!.pool!
    if (claim.from > state.elapsed) continue
    if (brought(waiter) && canServe(members, claim, member => member.room)) yield `${waiter.id} waits for members of ${name} that are free`
    if (queue !== 'fit') return
  }
}
