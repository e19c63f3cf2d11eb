/** One lease in a snapshot, with its grants, wants and timers, and as many of its entries as fit. */

import { listLater } from '../rule/covers.ts'
import { addHolder } from '../rule/pool/holders.ts'
import { joinQueues } from '../rule/queue.ts'
import { countEntry } from '../rule/service.ts'
import { entryBytes } from '../state/free-entries.ts'
import { Grant, LeaseState, OWN_INCARNATION } from '../state/lease-state.ts'
import { extrasOf, findLease, linkChild } from '../state/leases.ts'
import { addEntry, addGrant, resourceOf } from '../state/resources.ts'
import { type Attached, FROZEN, SLOTS, type State, type Status, SUSPECT, TERM, WAITING } from '../state.ts'
import { Damaged, NewerFormatError, type Reader, type Writer } from './bytes.ts'
import { readClaim, writeClaim } from './saved-claim.ts'
import { readTimer, writeTimer } from './saved-table.ts'

/** The most characters of entries that are written with their lease; the others follow in chunks of their own. */
const INLINE = 64 * 1_024
const NONE: readonly never[] = []
/** Beside the other flags of a lease: it asked a pool for members. */
const OF_POOL = 16

/** An entry that is not written with its lease. Revision 0: a pending entry, to be attached with the grant. */
export interface SavedEntry extends Omit<Attached, 'lease'> {
  readonly lease: number
}

export function writeEntry(to: Writer, { key, value, revision, generation, created, version }: Omit<Attached, 'lease'>): void {
  to.text(key)
  to.text(value)
  for (const n of [revision, generation, created, version]) to.uint(n)
}

export function readEntry(from: Reader): Omit<Attached, 'lease'> {
  const [key, value, revision, generation] = [from.text(), from.text(), from.uint(), from.uint()]
  return { key, value, revision, generation, created: from.uint(), version: from.uint() }
}

/** Returns how many entries of a lease are written with it. */
function fittingOf(state: State, keys: readonly string[]): number {
  let characters = 0
  for (const [i, key] of keys.entries()) {
    characters += key.length + state.entries.get(key)!.value.length
    if (characters > INLINE) return i
  }
  return keys.length
}

/** Returns the entries that were not written with the lease. */
export function writeLease(to: Writer, state: State, lease: LeaseState): readonly SavedEntry[] {
  const { extras } = lease
  to.uint(lease.id)
  to.text(lease.holder.name)
  to.uint(lease.incarnation)
  to.uint(lease.key)
  to.uint(lease.ttl)
  to.byte(lease.status | (lease.confirmed ? 4 : 0) | (extras === undefined ? 0 : 8) | (extras?.pool === undefined ? 0 : OF_POOL))
  for (const n of [lease.term, lease.epoch, lease.run, lease.aged, lease.since]) to.uint(n)
  to.list(lease.grants, grant => {
    to.text(grant.resource.name)
    to.uint(grant.units)
    to.bool(grant.shared)
    to.uint(grant.token)
  })
  if (extras === undefined) return NONE
  to.list(extras.wants, want => {
    to.text(want.resource)
    to.uint(want.units)
    to.bool(want.shared)
  })
  to.uint(extras.any)
  to.uint(extras.permits)
  to.bool(extras.covers)
  to.int(extras.rank)
  to.int(extras.priority)
  to.bool(extras.passedOn !== undefined)
  if (extras.passedOn !== undefined) {
    to.int(extras.passedOn.rank)
    to.uint(extras.passedOn.since)
  }
  to.list(extras.holding, id => to.uint(id))
  to.uint(extras.parent?.id ?? 0)
  to.bool(extras.waited)
  to.bool(extras.handed)
  to.bool(extras.open)
  const keys = [...(extras.entries ?? NONE)]
  const fitting = fittingOf(state, keys)
  to.list(keys.slice(0, fitting), key => writeEntry(to, state.entries.get(key)!))
  to.list(extras.labels, ([name, value]) => {
    to.text(name)
    to.text(value)
  })
  to.uint(extras.grace)
  to.uint(extras.maxLife)
  to.bool(extras.recalled)
  to.text(extras.cause)
  to.text(extras.by)
  to.uint(extras.started)
  to.uint(extras.slowed)
  to.bool(extras.timers !== undefined)
  for (const timer of extras.timers?.slice(1) ?? []) writeTimer(to, timer)
  if (extras.pool !== undefined) writeClaim(to, extras.pool)
  if (fitting === keys.length && extras.pending.length === 0) return NONE
  return [
    ...keys.slice(fitting).map(key => ({ ...state.entries.get(key)!, lease: lease.id })),
    ...extras.pending.map(({ key, value, generation = 0 }) => ({
      lease: lease.id,
      key,
      value,
      revision: 0,
      generation,
      created: 0,
      version: 1,
    })),
  ]
}

/** The parts of a lease that refer to other leases and to resources; `link` connects them. */
interface LeaseRest {
  readonly grants: readonly { readonly resource: string; readonly units: number; readonly shared: boolean; readonly token: number }[]
  readonly parent: number
  readonly entries: readonly Omit<Attached, 'lease'>[]
}

export interface SavedLease {
  readonly lease: LeaseState
  readonly rest: LeaseRest
}

export function readLease(from: Reader): SavedLease {
  const id = from.uint()
  const name = from.text()
  const incarnation = from.uint()
  const key = from.uint()
  const ttl = from.uint()
  const flags = from.byte()
  if (flags > 31) throw new NewerFormatError('a lease with fields not known here')
  const [term, epoch, run, aged, since] = [from.uint(), from.uint(), from.uint(), from.uint(), from.uint()]
  const holder = { name, process: incarnation === id ? OWN_INCARNATION : incarnation, leases: 0 }
  const lease = new LeaseState({ id, holder, key, ttl, status: (flags & 3) as Status, run, since })
  Object.assign(lease, { confirmed: (flags & 4) !== 0, aged, epoch, term })
  const grants = from.list(() => ({ resource: from.text(), units: from.uint(), shared: from.bool(), token: from.uint() }))
  if ((flags & 8) === 0) return { lease, rest: { grants, parent: 0, entries: [] } }
  const extras = extrasOf(lease)
  extras.wants = from.list(() => ({ resource: from.text(), units: from.uint(), shared: from.bool() }))
  extras.any = from.uint()
  extras.permits = from.uint()
  extras.covers = from.bool()
  extras.rank = from.int()
  extras.priority = from.int()
  if (from.bool()) extras.passedOn = { rank: from.int(), since: from.uint() }
  extras.holding = from.list(() => from.uint())
  const parent = from.uint()
  extras.waited = from.bool()
  extras.handed = from.bool()
  extras.open = from.bool()
  const entries = from.list(() => readEntry(from))
  extras.labels = from.list(() => [from.text(), from.text()] as const)
  extras.grace = from.uint()
  extras.maxLife = from.uint()
  extras.recalled = from.bool()
  extras.cause = from.text()
  extras.by = from.text()
  extras.started = from.uint()
  extras.slowed = from.uint()
  if (from.bool()) extras.timers = Array.from({ length: SLOTS }, (_, slot) => (slot === TERM ? undefined : readTimer(from)))
  if ((flags & OF_POOL) !== 0) extras.pool = readClaim(from)
  return { lease, rest: { grants, parent, entries } }
}

export function link(state: State, lease: LeaseState, { grants, parent, entries }: LeaseRest, more: LeaseRest['entries'] = NONE): void {
  for (const { resource, units, shared, token } of grants)
    addGrant(new Grant(lease, resourceOf(state, resource), shared ? 0 : units, token))
  if (lease.status === WAITING && lease.extras === undefined) throw new Damaged(`lease ${lease.id} waits for nothing`)
  if (more.some(isPending))
    extrasOf(lease).pending = more
      .filter(isPending)
      .map(({ key, value, generation }) => ({ key, value, ...(generation > 0 && { generation }) }))
  if (lease.extras?.pool !== undefined && lease.grants.length > 0) addHolder(state, lease)
  if (lease.extras?.handed === true && !lease.confirmed) state.unused.add(lease)
  if (lease.extras?.covers === true) listLater(state, lease)
  if (lease.status === WAITING) joinQueues(state, lease)
  else if (lease.status === SUSPECT) state.counts.suspect++
  else if (lease.status === FROZEN) state.counts.frozen++
  for (const list of [entries, more])
    for (const rest of list) {
      if (isPending(rest)) continue
      const extras = extrasOf(lease)
      extras.entries ??= new Set()
      extras.entries.add(rest.key)
      extras.bytes += entryBytes(rest)
      const entry = { ...rest, lease }
      addEntry(state, entry)
      countEntry(state, entry, 1)
    }
  if (parent === 0) return
  const above = findLease(state, parent)
  if (above === undefined) throw new Damaged(`lease ${lease.id} hangs on ${parent}, which is not there`)
  linkChild(above, lease)
}

function isPending({ revision }: { readonly revision: number }): boolean {
  return revision === 0
}
