/** The same must hold in every state, whatever led to it. Derived tables are worked out again from the leases, the naive way. */

import { type Claim, claimsWanted, holdersAround, isOwn, isUnderOwn, meets, waitersAround } from '../../../sim/covers.ts'
import type { KeyUse, Want } from '../../../src/kernel/command.ts'
import { wantsUnder } from '../../../src/kernel/rule/acquire.ts'
import { entryRefusal, processOf } from '../../../src/kernel/rule/attach.ts'
import { allowed } from '../../../src/kernel/rule/authority.ts'
import { rule, statedCapacity } from '../../../src/kernel/rule/policy.ts'
import { noUse } from '../../../src/kernel/state/key-use.ts'
import { findLease } from '../../../src/kernel/state/leases.ts'
import { standsBefore } from '../../../src/kernel/state/order.ts'
import { FROZEN, HOLD, type LeaseState, LIVE, type State, SUSPECT, WAITING } from '../../../src/kernel/state.ts'
import { claimViolations } from './claim-invariant.ts'
import { capacity as capacityOf, poolViolations } from './pool-invariant.ts'

export function check(state: State): void {
  const broken = violations(state)
  if (broken.length > 0) throw new Error(`the state is broken:\n${broken.join('\n')}`)
}

export function violations(state: State): string[] {
  return [
    ...leases(state),
    ...quotas(state),
    ...resources(state),
    ...queues(state),
    ...entries(state),
    ...tables(state),
    ...keyUse(state),
    ...registry(state),
    ...liveness(state),
    ...poolViolations(state),
    ...claimViolations(state),
  ]
}

function* leases(state: State): Generator<string> {
  const tokens = new Set<number>()
  let last = 0
  for (const lease of state.leases.values()) {
    if (findLease(state, lease.id) !== lease) yield `lease ${lease.id} is not found by its number`
    if (lease.id <= last) yield `lease ${lease.id} stands after ${last}`
    last = lease.id
    if (lease.id >= state.nextLease) yield `lease ${lease.id} was never given`
    if (lease.status === WAITING && lease.grants.length > 0) yield `waiter ${lease.id} has grants`
    if (lease.status === WAITING && (lease.extras?.wants.length ?? 0) === 0 && lease.extras?.pool === undefined)
      yield `waiter ${lease.id} waits for nothing`
    if (lease.status !== WAITING && (lease.extras?.wants.length ?? 0) > 0) yield `lease ${lease.id} holds and wants`
    if (lease.status !== WAITING && (lease.extras?.pending.length ?? 0) > 0) yield `lease ${lease.id} does not wait and brings entries`
    if (lease.status === WAITING && (lease.extras?.entries?.size ?? 0) > 0) yield `waiter ${lease.id} has entries`
    if (lease.status === FROZEN && lease.grants.length === 0) yield `lease ${lease.id} is frozen with nothing to freeze`
    if (lease.status === FROZEN && (lease.extras?.entries?.size ?? 0) > 0) yield `frozen lease ${lease.id} keeps entries`
    if (lease.status === FROZEN && lease.extras?.parent !== undefined) yield `frozen lease ${lease.id} has a parent`
    if (lease.status === FROZEN && (lease.extras?.children?.size ?? 0) > 0) yield `frozen lease ${lease.id} has children`
    if (lease.status === FROZEN && lease.extras?.timers?.some(timer => timer !== undefined))
      yield `frozen lease ${lease.id} has more timers`
    if (!(lease.term > 0)) yield `lease ${lease.id} has no term`
    if (lease.status === LIVE && !lease.confirmed && lease.term > longestFirstTerm(state, lease)) yield `lease ${lease.id} begins long`
    if (lease.aged < 0 || !Number.isSafeInteger(lease.aged)) yield `lease ${lease.id} is aged ${lease.aged}`
    for (const grant of lease.grants) {
      if (grant.lease !== lease) yield `a grant of ${lease.id} belongs to ${grant.lease.id}`
      if (tokens.has(grant.token)) yield `token ${grant.token} was given twice`
      tokens.add(grant.token)
      if (grant.token >= state.nextToken) yield `token ${grant.token} was never given`
      if (state.resources.get(grant.resource.name) !== grant.resource) yield `${grant.resource.name} is held and not known`
      if (!grant.resource.grants.includes(grant)) yield `${grant.resource.name} does not know its holder ${lease.id}`
    }
    const names = lease.grants.map(grant => grant.resource.name)
    if (new Set(names).size < names.length) yield `lease ${lease.id} holds something twice`
    const parent = lease.extras?.parent
    if (parent !== undefined) {
      if (state.leases.get(parent.id - state.origin) !== parent) yield `lease ${lease.id} has the parent ${parent.id}, which has ended`
      if (parent.extras?.children?.has(lease) !== true) yield `${parent.id} does not know its child ${lease.id}`
    }
    for (const child of lease.extras?.children ?? []) if (child.extras?.parent !== lease) yield `${child.id} is no child of ${lease.id}`
  }
}

function* quotas(state: State): Generator<string> {
  if (state.quotaCounts === undefined) return
  const expected: string[] = []
  const names = new Set([...state.leases.values()].map(({ holder }) => holder.name))
  for (const [prefix, { quota = 0 }] of state.policies)
    for (const name of quota > 0 ? names : []) {
      const own = [...state.leases.values()].filter(lease => lease.holder.name === name && wantsUnder(lease, prefix))
      if (own.length > 0) expected.push(`${name} has ${own.length} leases under ${JSON.stringify(prefix)}`)
    }
  const counted = [...state.quotaCounts].flatMap(([prefix, holders]) =>
    [...holders].map(([name, has]) => `${name} has ${has} leases under ${JSON.stringify(prefix)}`),
  )
  if (counted.sort().join() !== expected.sort().join()) yield `for quotas are counted: ${counted}; it should be: ${expected}`
}

function* resources(state: State): Generator<string> {
  for (const [name, resource] of state.resources) {
    if (resource.name !== name) yield `${resource.name} is kept under ${name}`
    if (resource.grants.length === 0 && resource.queue.length === 0) yield `${name} is idle and kept`
    const exclusive = resource.grants.filter(grant => !grant.shared)
    const used = exclusive.reduce((sum, grant) => sum + grant.units, 0)
    if (used !== resource.used) yield `${name}: ${used} units are held, ${resource.used} are counted`
    const stated = exclusive.map(({ lease }) => lease.extras?.permits ?? 0).filter(permits => permits > 0)
    if (stated.length !== (resource.permits?.total ?? 0)) yield `${name}: those that state permits are miscounted`
    const least = Math.min(...stated)
    if (stated.length > 0 && resource.permits!.smallest !== least)
      yield `${name}: ${resource.permits!.smallest} are the fewest permits, not ${least}`
    if (used > least) yield `${name}: ${used} units are held, and a holder agrees to ${least}`
    if (resource.grants.length - exclusive.length !== resource.sharers) yield `${name}: sharers are miscounted`
    const pressed = state.pressed.get(resource) ?? 0
    for (const { lease } of resource.grants.slice(0, pressed))
      if (lease.status !== FROZEN && lease.extras?.timers?.[HOLD] === undefined)
        yield `${name}: ${lease.id} does not count how long it holds`
    if (pressed > resource.grants.length) yield `${name}: more holders are pressed than there are`
    if (exclusive.length > 0 && resource.sharers > 0) yield `${name} is shared and not shared`
    for (let i = 1; i < resource.grants.length; i++)
      if (resource.grants[i - 1]!.token >= resource.grants[i]!.token) yield `${name}: grants are not in the order of tokens`
    for (const grant of resource.grants) {
      if (state.leases.get(grant.lease.id - state.origin) !== grant.lease) yield `${name} is held by ${grant.lease.id}, which has ended`
      if (!grant.lease.grants.includes(grant)) yield `${name} is held by ${grant.lease.id}, which does not know`
    }
  }
}

function* queues(state: State): Generator<string> {
  const waiting = [...state.leases.values()].filter(lease => lease.status === WAITING)
  const expected = new Map<string, LeaseState[]>()
  for (const lease of waiting)
    for (const want of lease.extras!.wants) expected.set(want.resource, [...(expected.get(want.resource) ?? []), lease])
  for (const [name, list] of expected) {
    list.sort((a, b) => a.extras!.rank - b.extras!.rank || a.id - b.id)
    const { queue } = state.resources.get(name) ?? { queue: [] }
    if (list.length !== queue.length || list.some((lease, i) => queue[i] !== lease))
      yield `the queue of ${name} is ${queue.map(lease => lease.id)}, and ought to be ${list.map(lease => lease.id)}`
  }
  for (const [name, { queue }] of state.resources) if (queue.length > 0 && !expected.has(name)) yield `${name} has a queue without waiters`
  const keeping = new Map<number, number[]>()
  for (const lease of waiting) for (const id of lease.extras!.holding) keeping.set(id, [...(keeping.get(id) ?? []), lease.id])
  const kept = (map: Map<number, readonly number[]>) => JSON.stringify([...map].sort((a, b) => a[0] - b[0]))
  // A waiter that a transfer moved to the front has joined these lists again: their order means nothing.
  const ids = (list: Set<LeaseState>) => [...list].map(({ id }) => id).sort((a, b) => a - b)
  const actual = new Map([...state.keeping].map(([id, list]) => [id, ids(list)] as const))
  const bringing = new Map<string, number[]>()
  for (const lease of waiting) for (const { key } of lease.extras!.pending) bringing.set(key, [...(bringing.get(key) ?? []), lease.id])
  const listed = (map: Map<string, readonly number[]>) => JSON.stringify([...map].sort((a, b) => (a[0] < b[0] ? -1 : 1)))
  const brought = new Map([...state.pending].map(([key, list]) => [key, ids(list)] as const))
  if (listed(bringing) !== listed(brought)) yield `waiters with a pending entry: ${listed(brought)} instead of ${listed(bringing)}`
  if (kept(keeping) !== kept(actual)) yield `who waits while keeping: ${kept(actual)} instead of ${kept(keeping)}`
}

function* entries(state: State): Generator<string> {
  let attached = 0
  for (const lease of state.leases.values()) {
    for (const key of lease.extras?.entries ?? []) {
      attached++
      if (state.entries.get(key)?.lease !== lease) yield `${key} is listed on lease ${lease.id}, which does not have it`
    }
  }
  if (attached !== state.entries.size) yield `${state.entries.size} entries, ${attached} of them attached to a lease`
  for (const [key, entry] of state.entries) if (entry.key !== key) yield `${entry.key} is kept under ${key}`
  for (const { key, created, revision, version } of [...state.entries.values(), ...state.free.values()])
    if (created > revision || version < 1 || (version === 1) !== (created === revision))
      yield `${key} was made in ${created} and written in ${revision}, as version ${version}`
  yield* freeEntries(state)
}

function* freeEntries(state: State): Generator<string> {
  const usage = new Map([['', { entries: 0, bytes: 0 }]])
  for (const { key, value } of state.free.values()) {
    if (state.entries.has(key)) yield `${key} hangs on a lease and on none`
    if (state.free.get(key)?.key !== key) yield `${key} is kept under another key`
    const segments = key.split('/')
    for (let n = 0; n <= segments.length; n++) {
      const prefix = segments.slice(0, n).join('/')
      const { entries = 0, bytes = 0 } = usage.get(prefix) ?? {}
      usage.set(prefix, { entries: entries + 1, bytes: bytes + Buffer.byteLength(key) + Buffer.byteLength(value) })
    }
  }
  for (const [prefix, { entries, bytes }] of usage) {
    const counted = state.free.under(prefix)
    if (counted.entries !== entries || counted.bytes !== bytes)
      yield `${entries} free entries of ${bytes} bytes under "${prefix}", ${counted.entries} of ${counted.bytes} are counted`
  }
}

function* tables(state: State): Generator<string> {
  const all = [...state.leases.values()]
  const { counts } = state
  if (counts.waiting !== all.filter(lease => lease.status === WAITING).length) yield `waiting: ${counts.waiting}`
  if (counts.suspect !== all.filter(lease => lease.status === SUSPECT).length) yield `suspect: ${counts.suspect}`
  if (counts.frozen !== all.filter(lease => lease.status === FROZEN).length) yield `frozen: ${counts.frozen}`
  const answers = [...state.answers].flatMap(([, sessions]) => sessions.flatMap(session => [...session])).length
  if (state.answers.size !== answers) yield `answers: ${state.answers.size} instead of ${answers}`
  const fenced = new Map<number, number>()
  for (const [name, key] of state.fencedBy) {
    if (!state.fences.has(name)) yield `${name} was fenced by ${key} and is not fenced`
    fenced.set(key, (fenced.get(key) ?? 0) + 1)
  }
  for (const key of new Set([...fenced.keys(), ...state.fencedWith.keys()]))
    if (fenced.get(key) !== state.fencedWith.get(key))
      yield `key ${key} fenced ${fenced.get(key)}, ${state.fencedWith.get(key)} are counted`
  const holders = new Map<object, number>()
  for (const { holder } of all) holders.set(holder, (holders.get(holder) ?? 0) + 1)
  for (const { holder } of all)
    if (holders.get(holder) !== holder.leases) yield `${holder.name} has ${holders.get(holder)} leases, ${holder.leases} are counted`
  for (const [name, holder] of state.holders) {
    if (holder.name !== name) yield `${holder.name} is kept under ${name}`
    if (!holders.has(holder)) yield `${name} is kept and holds nothing`
  }
}

/** Checks what keys and groups have, counted lease by lease and entry by entry. */
function* keyUse(state: State): Generator<string> {
  const expected = new Map<number, KeyUse>()
  const of = (key: number) => expected.get(key) ?? expected.set(key, noUse()).get(key)!
  const addEntry = (key: number, entry: { readonly key: string; readonly value: string }) => {
    of(key).entries++
    of(key).bytes += Buffer.byteLength(entry.key) + Buffer.byteLength(entry.value)
  }
  for (const { key, status, extras } of state.leases.values()) {
    of(key).leases++
    if (status === WAITING) of(key).waiters++
    for (const entry of extras?.pending ?? []) addEntry(key, entry)
  }
  for (const entry of state.entries.values()) addEntry(entry.lease.key, entry)
  for (const entry of state.free.values()) addEntry(entry.by, entry)
  expected.delete(0)
  const shown = (uses: Iterable<readonly [unknown, KeyUse]>) => JSON.stringify([...uses].map(([name, use]) => [String(name), use]).sort())
  if (shown(expected) !== shown(state.keyUse)) yield `keys have ${shown(state.keyUse)} instead of ${shown(expected)}`
  const groups = new Map<string, KeyUse & { keys: number }>()
  for (const { id, group } of state.keys.values()) {
    if (group === undefined) continue
    const sum = groups.get(group) ?? { ...noUse(), keys: 0 }
    const { leases, waiters, entries, bytes } = expected.get(id) ?? noUse()
    groups.set(group, {
      ...{ leases: sum.leases + leases, waiters: sum.waiters + waiters, entries: sum.entries + entries, bytes: sum.bytes + bytes },
      keys: sum.keys + 1,
    })
  }
  const counted = [...state.groups].map(([name, { use, keys }]) => [name, { ...use, keys }] as const)
  if (shown(groups) !== shown(counted)) yield `groups have ${shown(counted)} instead of ${shown(groups)}`
}

/** Checks what the registry derives from entries and flaps; and that nothing but a registration is ever put off. */
function* registry(state: State): Generator<string> {
  const below = [...state.tree.under('')]
  const all = state.entries.size + state.free.size
  if (below.length !== all) yield `the tree has ${below.length} entries of ${all}`
  for (const entry of below)
    if ((state.entries.get(entry.key) ?? state.free.get(entry.key)) !== entry) yield `the tree has another ${entry.key}`
  const services = new Map<string, { total: number; suspect: number }>()
  for (const { key, lease } of state.entries.values()) {
    if (!/^services\/[^/]+\/[^/]+$/.test(key)) continue
    const name = key.slice(0, key.lastIndexOf('/'))
    const service = services.get(name) ?? { total: 0, suspect: 0 }
    services.set(name, { total: service.total + 1, suspect: service.suspect + (lease.status === SUSPECT ? 1 : 0) })
  }
  for (const name of new Set([...services.keys(), ...state.services.keys()])) {
    const [counted, there] = [state.services.get(name), services.get(name)]
    if (counted?.total !== there?.total || counted?.suspect !== there?.suspect)
      yield `${name} has ${there?.suspect} of ${there?.total} suspect, ${counted?.suspect} of ${counted?.total} are counted`
  }
  for (const [name, { preserving, base, removed }] of state.upkeep) {
    if (!preserving && base === 0) yield `${name} is kept up for nothing`
    if (base === 0 && removed > 0) yield `${name} is swept and has nothing to sweep`
    if (preserving && !state.services.has(name)) yield `${name} is preserved and empty`
  }
  const suppressed = [...state.flaps].filter(([, flap]) => flap.suppressed).map(([key]) => key)
  if (suppressed.join() !== [...state.suppressed].join()) yield `suppressed: ${[...state.suppressed]} instead of ${suppressed}`
  for (const { id, extras, status } of state.leases.values())
    if ((extras?.slowed ?? 0) > 0 && status !== SUSPECT) yield `lease ${id} is slowed and not suspect`
}

/** The units in use that a lease agrees to, if it states so many permits. */
export function agreed(state: State, resource: string, permits: number): number {
  const capacity = capacityOf(state, resource)
  return permits === 0 ? capacity : statedCapacity(state, resource) === undefined ? permits : Math.min(permits, capacity)
}

/** Checks whether a waiter could be served by this resource, within the capacities, if nothing were held. */
function servable(state: State, { extras }: LeaseState, name: string): boolean {
  const { wants, any, permits } = extras!
  const there = wants.filter(({ resource, units, shared }) => {
    const capacity = agreed(state, resource, permits)
    return shared ? capacity > 0 : units <= capacity
  })
  return there.length >= (any === 0 ? wants.length : any) && there.some(({ resource }) => resource === name)
}

/** No free resource with an eligible waiter; no more units than there are, unless the capacity was lowered afterwards. */
function* liveness(state: State): Generator<string> {
  if (state.quiet !== undefined) return
  for (const lease of state.leases.values()) {
    if (lease.status !== WAITING) continue
    const { wants, any, permits } = lease.extras!
    if (wants.length === 0) continue // it waits for members of a pool
    const now = wants.filter(want => {
      const resource = state.resources.get(want.resource)!
      const capacity = Math.min(
        ...[permits, ...resource.grants.map(grant => grant.lease.extras?.permits ?? 0)].map(one => agreed(state, want.resource, one)),
      )
      const before = resource.queue.slice(0, resource.queue.indexOf(lease))
      const isUnder = state.claims !== undefined && isUnderOwn(state, { ...want, covers: false }, lease.holder.name, lease.extras!.holding)
      const first = isUnder || rule(state, want.resource, 'queue') === 'fit' || !before.some(other => servable(state, other, want.resource))
      const room = want.shared ? resource.used === 0 && capacity > 0 : resource.sharers === 0 && resource.used + want.units <= capacity
      return first && room && isFreeAround(state, lease, want)
    })
    if (now.length < (any === 0 ? wants.length : any)) continue
    // What it brings must be free as well.
    if (lease.extras!.pending.some(entry => entryRefusal(state, processOf(lease), entry, lease.key) !== undefined)) continue
    const entitled = wants.every(want => allowed(state, lease.key, 'acquire', want.resource))
    yield `${lease.id} waits${entitled ? '' : ', without any right to,'} for what is free: ${now.map(want => want.resource)}`
  }
}

/** Returns whether no claim above or below is in the way of a waiter, and no waiter that stands before it. */
function isFreeAround(state: State, lease: LeaseState, { resource, shared }: Want): boolean {
  if (state.claims === undefined) return true
  const { covers, holding } = lease.extras!
  const claim = { resource, shared: shared === true, covers }
  const isObstacle = (other: LeaseState) => other !== lease && !isOwn(lease.holder.name, holding, other)
  if (holdersAround(state, claim).some(isObstacle)) return false
  if (isUnderOwn(state, claim, lease.holder.name, holding)) return true
  return !waitersAround(state, claim).some(other => standsBefore(other, lease) && mayBlock(state, other, claim))
}

function mayBlock(state: State, waiter: LeaseState, claim: Claim): boolean {
  const met = claimsWanted(waiter).filter(wanted => meets(wanted, claim))
  return met.some(({ resource }) => servable(state, waiter, resource) && rule(state, resource, 'queue') !== 'fit')
}

/** Only where no policy lowered a capacity in between. */
export function withinCapacity(state: State): void {
  for (const { name, used } of state.resources.values())
    if (used > capacityOf(state, name) && state.resources.get(name)!.permits === undefined)
      throw new Error(`${used} units of ${name} are granted, there are ${capacityOf(state, name)}`)
}

/** Until its first renewal. After a generation each term lasts for the quiet period, since a renewal may be lost. */
function longestFirstTerm({ lineage }: State, { extras, ttl }: LeaseState): number {
  return Math.max(extras?.pool?.from ? ttl : 30_000, lineage.generation.quiet)
}
