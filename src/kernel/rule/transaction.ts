/**
 * Transactions: comparisons of entries, then puts and deletes, all or none, in one revision. Other protocols keep keys that belong to no lease; a
 * transaction is the only command that makes such entries.
 *
 * A policy must allow them (`freeEntries`), and bounds their number and bytes. Under `services/` and `pool/` there are none: the entries there say that
 * their holder is alive. A transaction may replace an entry that hangs on a lease of the same key: its comparisons, not the holder's name, say
 * whether that is right.
 */

import {
  COMPARED,
  type Comparison,
  type EntryChange,
  MAX_CHANGES,
  MAX_COMPARISONS,
  MAX_LEASE_BYTES,
  MAX_LEASE_ENTRIES,
  MAX_TRANSACTION_BYTES,
  RELATIONS,
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
  for (const change of plan.changes) {
    if (change.delete === true) remove(state, effects, change.key)
    else if (change.lease === undefined) putFree(state, effects, change, key)
    else putOn(state, effects, findLease(state, change.lease)!, { key: change.key, value: change.value ?? '' })
  }
  settle(state, effects, state.freed)
  return { kind: 'transacted', revision: 0, succeeded: plan.succeeded }
}

/** Why the transaction is refused, or what it will do. */
export function planTransaction(state: State, command: Transaction, key: number): TransactionPlan | Refused {
  const wrong = malformed(command)
  if (wrong !== undefined) return refuseFlaw(state, wrong)
  // Both branches are checked: which of them would be taken is not revealed to a key that may not know.
  const refused = beyondKey(state, command, key) ?? outsidePolicy(state, command) ?? revisionsExhausted(state)
  if (refused !== undefined) return refused
  const succeeded = (command.compare ?? []).every(comparison => holds(state, comparison))
  const changes = (succeeded ? command.success : command.failure) ?? []
  return badChange(state, changes, key) ?? tooMuch(state, changes, key) ?? { succeeded, changes }
}

/** Returns what is wrong with the command itself, whatever the state. */
function malformed({ compare = [], success = [], failure = [] }: Transaction): Flaw | undefined {
  if (compare.length > MAX_COMPARISONS) return tooMany('compare', MAX_COMPARISONS)
  let bytes = 0
  for (const [i, comparison] of compare.entries()) {
    const bad = badComparison(comparison)
    if (bad !== undefined) return within(`compare[${i}]`, bad)
    bytes += utf8Length(comparison.key) + utf8Length(comparison.value ?? '')
  }
  for (const [branch, changes] of Object.entries({ success, failure })) {
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

function badChangeForm({ key, value = '', lease, delete: deletes = false }: EntryChange): Flaw | undefined {
  const badKey = badName(key)
  if (badKey !== undefined) return within('key', badKey)
  if (LEASED_ONLY.some(prefix => under(prefix, key))) return { reason: 'leased-only', facts: { key } }
  if (deletes && (value !== '' || lease !== undefined))
    return { reason: 'not-together', facts: { field: 'delete', other: value !== '' ? 'value' : 'lease' } }
  const badValue = badText(value, VALUE_BYTES)
  return badValue === undefined ? undefined : within('value', badValue)
}

function* changesOf({ success = [], failure = [] }: Transaction): Generator<EntryChange, void, void> {
  yield* success
  yield* failure
}

function beyondKey(state: State, command: Transaction, key: number): Refused | undefined {
  if (key === 0) return undefined
  for (const comparison of command.compare ?? [])
    if (!allowed(state, key, 'read', comparison.key)) return forbidden(state, 'read', comparison.key)
  for (const change of changesOf(command)) if (!allowed(state, key, 'register', change.key)) return forbidden(state, 'register', change.key)
  return undefined
}

function outsidePolicy(state: State, command: Transaction): Refused | undefined {
  for (const { key } of changesOf(command)) if (rule(state, key, 'freeEntries') === 0) return refuse(state, 'no-free-entries', { key })
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
function badChange(state: State, changes: readonly EntryChange[], key: number): Refused | undefined {
  for (const { key: name, lease: id } of changes) {
    const there = state.entries.get(name)
    if (there !== undefined && !mayTouch(state, key, there.lease)) return refuse(state, 'forbidden-entry', { name })
    if (there !== undefined && there.generation > 0) return refuse(state, 'older-generation', { key: name, generation: there.generation })
    if (id === undefined) continue
    const lease = leaseForEntries(state, id, key)
    if (lease === undefined) return gone(state, id)
    const wrong = ttlOutside(state, lease.ttl, name)
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

function tooMuch(state: State, changes: readonly EntryChange[], by: number): Refused | undefined {
  const leases = new EntryGrowth<LeaseState>()
  const entries = new EntryGrowth<string>()
  const bytes = new EntryGrowth<string>()
  const keys = new KeyGrowth()
  for (const { key, value = '', lease: id, delete: deletes } of changes) {
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
    else {
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
