/**
 * Members of pools: entries `pool/NAME/MEMBER`, attached to any lease. The value is JSON with `labels` (texts) and `units`; further fields are
 * for others. An entry with another value is no member.
 *
 * A member that leaves by a deletion or by the release of its offer **drains**: it gets no new grants, and present grants stay. If its offer ends
 * in any other way, the member has **vanished** (a host has died, for example), and the leases that hold it end in the same revision.
 */
import { MAX_LABELS } from '../../command.ts'
import { badText } from '../../name.ts'
import { blocks } from '../../state/order.ts'
import { dropPoolIfIdle, POOL_ROOT, poolOf, setRoom } from '../../state/pools.ts'
import { type Attached, type LeaseState, LIVE, type PoolMember, type PoolState, type Resource, type State } from '../../state.ts'
import { judgeQueue } from '../judge.ts'
import { limitOfHolders } from '../permits.ts'
import { capacityOf, rule } from '../policy.ts'
import { countKind } from './kind.ts'

const MAX_UNITS = 1_000_000

interface Offer {
  readonly labels: ReadonlyMap<string, string>
  readonly units: number
}

/** Labels and units that the value of an entry offers; undefined: it offers no member. */
export function parseOffer(value: string): Offer | undefined {
  let parsed: unknown
  try {
    parsed = JSON.parse(value)
  } catch {
    return undefined
  }
  if (typeof parsed !== 'object' || parsed === null || Array.isArray(parsed)) return undefined
  const { labels = {}, units = 1 } = parsed as { readonly labels?: unknown; readonly units?: unknown }
  if (typeof labels !== 'object' || labels === null || Array.isArray(labels)) return undefined
  if (!Number.isSafeInteger(units) || (units as number) < 1 || (units as number) > MAX_UNITS) return undefined
  const pairs = Object.entries(labels)
  if (pairs.length > MAX_LABELS) return undefined
  for (const [label, text] of pairs) if (badText(label, 128) !== undefined || badText(text, 1_024) !== undefined) return undefined
  return { labels: new Map(pairs as [string, string][]), units: units as number }
}

/** The pool and the member that an entry's key names. */
function memberNames(key: string): { readonly pool: string; readonly name: string } | undefined {
  if (!key.startsWith(POOL_ROOT)) return undefined
  const slash = key.lastIndexOf('/')
  return slash < POOL_ROOT.length ? undefined : { pool: key.slice(POOL_ROOT.length, slash), name: key.slice(slash + 1) }
}

/** An entry was attached, or its value or its lease has changed. */
export function offerMember(state: State, entry: Attached): void {
  const names = memberNames(entry.key)
  if (names === undefined) return
  const offer = parseOffer(entry.value)
  if (offer === undefined) return void withdrawMember(state, entry.key)
  const pool = poolOf(state, names.pool)
  const known = pool.members.get(names.name)
  const resource = entry.key.slice(POOL_ROOT.length)
  const member = known ?? { pool, name: names.name, resource, entry, labels: offer.labels, units: 0, capacity: 0, room: 0 }
  if (known === undefined) {
    pool.members.set(names.name, member)
    const there = state.resources.get(resource)
    if (there !== undefined) there.member = member
  }
  member.entry = entry
  const isReshaped = known === undefined || member.units !== offer.units || !equal(member.labels, offer.labels)
  if (isReshaped) {
    // Listed anew, for its labels as well: waiters that matched none may match it now.
    setRoom(member, 0)
    if (known !== undefined) countKinds(state, member, -1)
    Object.assign(member, offer)
    countKinds(state, member, 1)
    pool.version++
  }
  measure(state, member)
  // A waiter that only the former member could have served is passed over from now on, and those behind it may be served.
  if (isReshaped) markPool(state, pool)
}

/** The kind of a member that may be held begins (1) or ceases (-1) to be known. */
function countKinds(state: State, member: PoolMember, by: 1 | -1): void {
  for (const grant of state.resources.get(member.resource)?.grants ?? []) countKind(grant, member, by)
}

function equal(one: ReadonlyMap<string, string>, other: ReadonlyMap<string, string>): boolean {
  if (one.size !== other.size) return false
  for (const [label, value] of one) if (other.get(label) !== value) return false
  return true
}

/** The entry is gone, or offers no member any more. Returns the member that has left. */
export function withdrawMember(state: State, key: string): PoolMember | undefined {
  const names = memberNames(key)
  const pool = names && state.pools.get(names.pool)
  const member = names && pool?.members.get(names.name)
  if (pool === undefined || member === undefined) return undefined
  setRoom(member, 0)
  countKinds(state, member, -1)
  pool.members.delete(member.name)
  pool.version++
  const resource = state.resources.get(member.resource)
  if (resource !== undefined) {
    resource.member = undefined
    // Its capacity is that of any other name now, which may be more or less.
    judgeQueue(state, resource)
    state.freed.add(resource)
  }
  // Waiters that it blocked although it could not serve them alone may be passed over now.
  markPool(state, pool)
  dropPoolIfIdle(state, pool)
  return member
}

/** The capacity in force may have changed. */
export function measure(state: State, member: PoolMember): void {
  const capacity = capacityOf(state, member.resource)
  const resource = state.resources.get(member.resource)
  if (capacity !== member.capacity) {
    member.capacity = capacity
    member.pool.version++
    if (resource !== undefined) judgeQueue(state, resource)
  }
  updateRoom(state, member, resource)
}

/** Grants, the queue of the resource or the status of the offer have changed. */
export function updateRoom(state: State, member: PoolMember, resource: Resource | undefined): void {
  const before = member.room
  setRoom(member, roomOf(state, member, resource))
  if (member.room > before) markPool(state, member.pool)
}

function roomOf(state: State, { capacity, entry }: PoolMember, resource: Resource | undefined): number {
  if (entry.lease.status !== LIVE) return 0
  if (resource === undefined) return capacity
  // A client that waits for the member by its name comes before the waiters of the pool.
  const isWaitedFor = resource.queue.length > 0 && rule(state, resource.name, 'queue') !== 'fit'
  if (resource.sharers > 0 || (isWaitedFor && resource.queue.some(waiter => blocks(waiter, resource)))) return 0
  return Math.max(0, (resource.permits === undefined ? capacity : Math.min(capacity, limitOfHolders(state, resource))) - resource.used)
}

/** The status of a lease has changed: a member whose offer is suspect is not given out. */
export function updateOffers(state: State, { extras }: LeaseState): void {
  if (state.pools.size === 0) return
  for (const key of extras?.entries ?? []) {
    const names = memberNames(key)
    const member = names && state.pools.get(names.pool)?.members.get(names.name)
    if (member !== undefined) updateRoom(state, member, state.resources.get(member.resource))
  }
}

/** `settle` serves the pool. */
export function markPool(state: State, pool: PoolState): void {
  // Notices are taken back when the last waiter has gone.
  if (pool.freed || pool.queue.length + pool.noticed.size === 0) return
  pool.freed = true
  state.freedPools.push(pool)
}

/** Finds the members among the entries, after a snapshot was read. There everything is settled. */
export function restorePools(state: State): void {
  for (const entry of state.entries.values()) offerMember(state, entry)
  for (const pool of state.pools.values())
    for (const member of pool.members.values()) {
      const resource = state.resources.get(member.resource)
      if (resource !== undefined) resource.member = member
      measure(state, member)
    }
  for (const pool of state.freedPools) pool.freed = false
  state.freedPools.length = 0
  while (state.freed.take() !== undefined);
}
