/**
 * Transactions: comparisons of entries, then puts and deletes, all or none, in one revision. Other protocols keep keys that belong to no lease; only a
 * transaction makes such entries, alone or with a grant or a release (`changesRefusal`).
 *
 * A policy must allow them (`freeEntries`), and bounds their number and bytes. Under `services/` and `pool/` there are none: the entries there say that
 * their holder is alive. A transaction may replace an entry that hangs on a lease of the same key: its comparisons, not the holder's name, say
 * whether that is right.
 */

import {
  type Acquire,
  COMPARED,
  type Comparison,
  type EntryChange,
  type GrantChange,
  MAX_CHANGES,
  MAX_COMPARISONS,
  MAX_LEASE_BYTES,
  MAX_LEASE_ENTRIES,
  MAX_TRANSACTION_BYTES,
  RELATIONS,
  type Release,
  type Transaction,
} from '../command.ts'
import { badName, badText, under, utf8Length, VALUE_BYTES } from '../name.ts'
import type { Outcome, Refused } from '../outcome.ts'
import { type Flaw, shown, tooMany, within } from '../reason.ts'
import { type EntryUsage, entryBytes } from '../state/free-entries.ts'
import { findLease, touch } from '../state/leases.ts'
import { addFreeEntry, dropEntry } from '../state/resources.ts'
import type { LeaseState, State } from '../state.ts'
import { written } from './attach.ts'
import { allowed, mayTouch } from './authority.ts'
import { type Effects, emit } from './effects.ts'
import { detachEntry, removeFree } from './end.ts'
import { leaseForEntries, putOn } from './entry.ts'
import { KeyGrowth } from './key-limit.ts'
import { rule, ruledBy, ttlOutside } from './policy.ts'
import { forbidden, gone, refuse, refuseFlaw, revisionsExhausted } from './refuse.ts'
import { settle } from './settle.ts'

/** Entries under these say that a process is alive. */
const LEASED_ONLY = ['services', 'pool']

/** A transaction will do this: it is checked completely, so that nothing of it can fail. */
interface TransactionPlan {
  readonly succeeded: boolean
  readonly changes: readonly EntryChange[]
}

export function transaction(state: State, effects: Effects, command: Transaction, key: number): Outcome {
  const plan = planTransaction(state, command, key)
  if ('kind' in plan) return plan
  carryOut(state, effects, plan.changes, key)
  settle(state, effects, state.freed)
  return { kind: 'transacted', revision: 0, succeeded: plan.succeeded }
}

/** Makes changes that were checked. `granted`: the lease that they come with. The caller settles. */
export function carryOut(state: State, effects: Effects, changes: readonly GrantChange[], key: number, granted?: LeaseState): void {
  for (const change of changes) {
    const lease = change.own === true ? granted : change.lease === undefined ? undefined : findLease(state, change.lease)
    if (change.delete === true) remove(state, effects, change.key)
    else if (lease === undefined) putFree(state, effects, change, key)
    else putOn(state, effects, lease, { key: change.key, value: change.value ?? '' })
  }
}

/** Why the transaction is refused, or what it will do. */
export function planTransaction(state: State, command: Transaction, key: number): TransactionPlan | Refused {
  const { compare = [], success = [], failure = [] } = command
  // Both branches are checked: which of them would be taken is not revealed to a key that may not know.
  const refused = unfit(state, compare, { success, failure }, key)
  if (refused !== undefined) return refused
  const succeeded = compare.every(comparison => holds(state, comparison))
  const changes = succeeded ? success : failure
  return badChange(state, changes, key) ?? tooMuch(state, changes, key) ?? { succeeded, changes }
}

/** Why a grant or a release may not come with these comparisons and changes now; undefined: it may. `ttl`: of the lease that is asked for. */
export function changesRefusal(state: State, command: Acquire | Release, key: number, ttl = 0): Refused | undefined {
  const { compare = [], changes = [] } = command
  const refused = unfit(state, compare, { changes }, key)
  if (refused !== undefined) return refused
  const untrue = compare.find(comparison => !holds(state, comparison))
  if (untrue !== undefined) return refuse(state, 'not-as-compared', { key: untrue.key, field: untrue.field })
  return badChange(state, changes, key, ttl) ?? tooMuch(state, changes, key)
}

/** The changes that a command may make, by the names of its fields. */
type Branches = Readonly<Record<string, readonly GrantChange[]>>

/** Refuses what depends on no entry. */
function unfit(state: State, compare: readonly Comparison[], branches: Branches, key: number): Refused | undefined {
  const wrong = malformed(compare, branches)
  if (wrong !== undefined) return refuseFlaw(state, wrong)
  const changes = Object.values(branches).flat()
  return beyondKey(state, compare, changes, key) ?? outsidePolicy(state, changes) ?? revisionsExhausted(state)
}

function malformed(compare: readonly Comparison[], branches: Branches): Flaw | undefined {
  if (compare.length > MAX_COMPARISONS) return tooMany('compare', MAX_COMPARISONS)
  let bytes = 0
  for (const [i, comparison] of compare.entries()) {
    const bad = badComparison(comparison)
    if (bad !== undefined) return within(`compare[${i}]`, bad)
    bytes += utf8Length(comparison.key) + utf8Length(comparison.value ?? '')
  }
  for (const [branch, changes] of Object.entries(branches)) {
    if (changes.length > MAX_CHANGES) return tooMany(branch, MAX_CHANGES)
    const keys = new Set<string>()
    for (const [i, change] of changes.entries()) {
      const bad = badChangeForm(change)
      if (bad !== undefined) return within(`${branch}[${i}]`, bad)
      if (keys.has(change.key)) return { reason: 'named-twice', facts: { field: branch, name: change.key } }
      keys.add(change.key)
      bytes += entryBytes({ key: change.key, value: change.value ?? '' })
    }
  }
  return bytes > MAX_TRANSACTION_BYTES
    ? { reason: 'too-large', facts: { field: 'transaction', bytes, limit: MAX_TRANSACTION_BYTES } }
    : undefined
}

function badComparison({ key, field, is, number = 0, value }: Comparison): Flaw | undefined {
  const badKey = badName(key)
  if (badKey !== undefined) return within('key', badKey)
  if (!COMPARED.includes(field)) return notOneOf('field', COMPARED, field)
  if (!RELATIONS.includes(is)) return notOneOf('is', RELATIONS, is)
  if (!Number.isSafeInteger(number) || number < 0) return { reason: 'not-whole', facts: { field: 'number', given: shown(number) } }
  if (field !== 'value')
    return value === undefined || value === '' ? undefined : { reason: 'not-together', facts: { field: 'value', other: field } }
  if (is !== 'equal' && is !== 'unequal') return notOneOf('is', ['equal', 'unequal'], is)
  const badValue = badText(value ?? '', VALUE_BYTES)
  return badValue === undefined ? undefined : within('value', badValue)
}

function notOneOf(field: string, choices: readonly string[], value: unknown): Flaw {
  return { reason: 'not-one-of', facts: { field, choices, given: shown(value) } }
}

function badChangeForm({ key, value = '', lease, delete: deletes = false, own = false }: GrantChange): Flaw | undefined {
  const badKey = badName(key)
  if (badKey !== undefined) return within('key', badKey)
  if (LEASED_ONLY.some(prefix => under(prefix, key))) return { reason: 'leased-only', facts: { key } }
  const besides = value !== '' ? 'value' : lease !== undefined ? 'lease' : own ? 'own' : undefined
  if (deletes && besides !== undefined) return { reason: 'not-together', facts: { field: 'delete', other: besides } }
  if (own && lease !== undefined) return { reason: 'not-together', facts: { field: 'own', other: 'lease' } }
  const badValue = badText(value, VALUE_BYTES)
  return badValue === undefined ? undefined : within('value', badValue)
}

function beyondKey(state: State, compare: readonly Comparison[], changes: readonly EntryChange[], key: number): Refused | undefined {
  if (key === 0) return undefined
  for (const comparison of compare) if (!allowed(state, key, 'read', comparison.key)) return forbidden(state, 'read', comparison.key)
  for (const change of changes) if (!allowed(state, key, 'register', change.key)) return forbidden(state, 'register', change.key)
  return undefined
}

function outsidePolicy(state: State, changes: readonly EntryChange[]): Refused | undefined {
  for (const { key } of changes) if (rule(state, key, 'freeEntries') === 0) return refuse(state, 'no-free-entries', { key })
  return undefined
}

function holds(state: State, { key, field, is, number = 0, value = '' }: Comparison): boolean {
  const attached = state.entries.get(key)
  const there = attached ?? state.free.get(key)
  if (field === 'value') return there !== undefined && (there.value === value) === (is === 'equal')
  const found = field === 'lease' ? (attached?.lease.id ?? 0) : (there?.[field] ?? 0)
  if (is === 'equal') return found === number
  if (is === 'unequal') return found !== number
  return is === 'less' ? found < number : found > number
}

/** Refuses a change of an entry that is not the key's to change, or one that is put on a lease which cannot take it. */
function badChange(state: State, changes: readonly GrantChange[], key: number, ttl = 0): Refused | undefined {
  for (const { key: name, lease: id, own } of changes) {
    const there = state.entries.get(name)
    if (there !== undefined && !mayTouch(state, key, there.lease)) return refuse(state, 'forbidden-entry', { name })
    if (there !== undefined && there.generation > 0) return refuse(state, 'older-generation', { key: name, generation: there.generation })
    if (id === undefined && own !== true) continue
    const lease = id === undefined ? undefined : leaseForEntries(state, id, key)
    if (id !== undefined && lease === undefined) return gone(state, id)
    const wrong = ttlOutside(state, lease?.ttl ?? ttl, name)
    if (wrong !== undefined) return refuseFlaw(state, wrong)
  }
  return undefined
}

/** The changes add this to a lease, or to the free entries under a prefix. */
class EntryGrowth<T> {
  readonly #by = new Map<T, EntryUsage>()

  add(to: T, entries: number, bytes: number): void {
    const sum = this.#by.get(to)
    if (sum === undefined) this.#by.set(to, { entries, bytes })
    else {
      sum.entries += entries
      sum.bytes += bytes
    }
  }

  [Symbol.iterator](): IterableIterator<[T, EntryUsage]> {
    return this.#by.entries()
  }
}

function tooMuch(state: State, changes: readonly GrantChange[], by: number): Refused | undefined {
  const leases = new EntryGrowth<LeaseState>()
  const entries = new EntryGrowth<string>()
  const bytes = new EntryGrowth<string>()
  const keys = new KeyGrowth()
  for (const { key, value = '', lease: id, delete: deletes, own } of changes) {
    const attached = state.entries.get(key)
    if (attached !== undefined) {
      leases.add(attached.lease, -1, -entryBytes(attached))
      keys.add(attached.lease.key, -1, -entryBytes(attached))
    }
    const free = state.free.get(key)
    const inEntries = ruledBy(state, key, 'freeEntries')!
    const inBytes = ruledBy(state, key, 'freeBytes') ?? inEntries
    if (free !== undefined) {
      entries.add(inEntries, -1, 0)
      bytes.add(inBytes, 0, -entryBytes(free))
      keys.add(free.by, -1, -entryBytes(free))
    }
    if (deletes === true) continue
    const size = entryBytes({ key, value })
    const lease = id === undefined ? undefined : findLease(state, id)!
    keys.add(lease === undefined ? by : lease.key, 1, size)
    if (lease !== undefined) leases.add(lease, 1, size)
    // What one command may bring is less than what a lease may have.
    else if (own !== true) {
      entries.add(inEntries, 1, 0)
      bytes.add(inBytes, 0, size)
    }
  }
  for (const [lease, more] of leases) {
    const refused = tooMuchForLease(state, lease, more)
    if (refused !== undefined) return refused
  }
  for (const [prefix, more] of entries) {
    const most = rule(state, prefix, 'freeEntries')
    if (more.entries > 0 && state.free.under(prefix).entries + more.entries > most)
      return refuse(state, 'too-many-free-entries', { prefix, limit: most })
  }
  for (const [prefix, more] of bytes) {
    const most = rule(state, prefix, 'freeBytes')
    if (more.bytes > 0 && state.free.under(prefix).bytes + more.bytes > most)
      return refuse(state, 'too-many-free-bytes', { prefix, limit: most })
  }
  return keys.refusal(state)
}

function tooMuchForLease(state: State, { id, extras }: LeaseState, more: EntryUsage): Refused | undefined {
  if (more.entries > 0 && (extras?.entries?.size ?? 0) + more.entries > MAX_LEASE_ENTRIES)
    return refuse(state, 'too-many-entries', { lease: id, limit: MAX_LEASE_ENTRIES })
  const bytes = extras?.bytes ?? 0
  return more.bytes > 0 && bytes + more.bytes > MAX_LEASE_BYTES
    ? refuse(state, 'too-many-entry-bytes', { lease: id, limit: MAX_LEASE_BYTES, bytes })
    : undefined
}

function remove(state: State, effects: Effects, key: string): void {
  const attached = state.entries.get(key)
  if (attached !== undefined) {
    touch(state, attached.lease)
    detachEntry(state, effects, key, 'deleted')
  } else if (state.free.get(key) !== undefined) removeFree(state, effects, key)
}

function putFree(state: State, effects: Effects, { key, value = '' }: EntryChange, by: number): void {
  const entry = { key, value, revision: state.revision + 1, ...written(state, key), by }
  const attached = state.entries.get(key)
  if (attached !== undefined) {
    const { lease } = attached
    touch(state, lease)
    lease.extras!.entries!.delete(key)
    lease.extras!.bytes -= entryBytes(attached)
    dropEntry(state, key)
  }
  addFreeEntry(state, entry)
  emit(state, effects, 'put', undefined, { key, value })
}
