/**
 * Transactions: comparisons of entries, then puts and deletes, all or none, in one revision. Other protocols keep keys that hang on no lease; a
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
import { type EntryUsage, entryBytes } from '../state/free-entries.ts'
import { findLease, touch } from '../state/leases.ts'
import { addFreeEntry, dropEntry } from '../state/resources.ts'
import type { LeaseState, State } from '../state.ts'
import { written } from './attach.ts'
import { allowed, mayTouch } from './authority.ts'
import { type Effects, emit } from './effects.ts'
import { detachEntry, removeFree } from './end.ts'
import { leaseForEntries, putOn } from './entry.ts'
import { rule, ruledBy, ttlOutside } from './policy.ts'
import { forbidden, gone, invalid, refuse, revisionsExhausted } from './refuse.ts'
import { settle } from './settle.ts'

/** Entries under these say that a process is alive. */
const LEASED_ONLY = ['services', 'pool']

/** What a transaction will do: checked completely, so that nothing of it can fail. */
interface TransactionPlan {
  readonly succeeded: boolean
  readonly changes: readonly EntryChange[]
}

export function transaction(state: State, effects: Effects, command: Transaction, key: number): Outcome {
  const plan = planTransaction(state, command, key)
  if ('kind' in plan) return plan
  for (const change of plan.changes) {
    if (change.delete === true) remove(state, effects, change.key)
    else if (change.lease === undefined) putFree(state, effects, change)
    else putOn(state, effects, findLease(state, change.lease)!, { key: change.key, value: change.value ?? '' })
  }
  settle(state, effects, state.freed)
  return { kind: 'transacted', revision: 0, succeeded: plan.succeeded }
}

/** Why the transaction is refused, or what it will do. */
export function planTransaction(state: State, command: Transaction, key: number): TransactionPlan | Refused {
  const wrong = malformed(command)
  if (wrong !== undefined) return invalid(state, `transaction: ${wrong}`)
  // Both branches are checked: which of them would be taken is not revealed to a key that may not know.
  const refused = beyondKey(state, command, key) ?? outsidePolicy(state, command) ?? revisionsExhausted(state)
  if (refused !== undefined) return refused
  const succeeded = (command.compare ?? []).every(comparison => holds(state, comparison))
  const changes = (succeeded ? command.success : command.failure) ?? []
  return badChange(state, changes, key) ?? tooMuch(state, changes) ?? { succeeded, changes }
}

/** What is wrong with the command itself, whatever the state. */
function malformed({ compare = [], success = [], failure = [] }: Transaction): string | undefined {
  if (compare.length > MAX_COMPARISONS) return `it has ${compare.length} comparisons, and at most ${MAX_COMPARISONS} are allowed`
  let bytes = 0
  for (const comparison of compare) {
    const bad = badComparison(comparison)
    if (bad !== undefined) return bad
    bytes += utf8Length(comparison.key) + utf8Length(comparison.value ?? '')
  }
  for (const changes of [success, failure]) {
    if (changes.length > MAX_CHANGES) return `a branch has ${changes.length} changes, and at most ${MAX_CHANGES} are allowed`
    const keys = new Set<string>()
    for (const change of changes) {
      const bad = badChangeForm(change)
      if (bad !== undefined) return bad
      if (keys.has(change.key)) return `${change.key} is changed twice in one branch`
      keys.add(change.key)
      bytes += entryBytes({ key: change.key, value: change.value ?? '' })
    }
  }
  return bytes > MAX_TRANSACTION_BYTES
    ? `its keys and values have ${bytes} bytes, and at most ${MAX_TRANSACTION_BYTES} are allowed`
    : undefined
}

function badComparison({ key, field, is, number = 0, value }: Comparison): string | undefined {
  const badKey = badName(key)
  if (badKey !== undefined) return `the key of a comparison ${badKey}`
  if (!COMPARED.includes(field)) return `there is no field ${String(field)} to compare`
  if (!RELATIONS.includes(is)) return `there is no relation ${String(is)}`
  if (!Number.isSafeInteger(number) || number < 0) return `${key} is compared with ${String(number)}, which is not a whole number`
  if (field !== 'value') return value === undefined || value === '' ? undefined : `${key} is compared by ${field}: leave value out`
  if (is !== 'equal' && is !== 'unequal') return `the value of ${key} can be equal or unequal, not ${is}`
  const badValue = badText(value ?? '', VALUE_BYTES)
  return badValue === undefined ? undefined : `the value that ${key} is compared with ${badValue}`
}

function badChangeForm({ key, value = '', lease, delete: deletes = false }: EntryChange): string | undefined {
  const badKey = badName(key)
  if (badKey !== undefined) return `the entry's key ${badKey}`
  if (LEASED_ONLY.some(prefix => under(prefix, key))) return `the entry ${key} says that its holder is alive: put it on a lease`
  if (deletes && (value !== '' || lease !== undefined)) return `${key} is deleted: leave value and lease out`
  const badValue = badText(value, VALUE_BYTES)
  return badValue === undefined ? undefined : `the value of ${key} ${badValue}`
}

function* changesOf({ success = [], failure = [] }: Transaction): Generator<EntryChange, void, void> {
  yield* success
  yield* failure
}

function beyondKey(state: State, command: Transaction, key: number): Refused | undefined {
  if (key === 0) return undefined
  for (const comparison of command.compare ?? [])
    if (!allowed(state, key, 'read', comparison.key)) return forbidden(state, `read ${comparison.key}`)
  for (const change of changesOf(command))
    if (!allowed(state, key, 'register', change.key)) return forbidden(state, `register ${change.key}`)
  return undefined
}

function outsidePolicy(state: State, command: Transaction): Refused | undefined {
  for (const { key } of changesOf(command))
    if (rule(state, key, 'freeEntries') === 0)
      return refuse(state, 'INVALID', `no transaction may change ${key}: a policy must allow free entries there (freeEntries)`, { key })
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
    if (there !== undefined && !mayTouch(state, key, there.lease)) return forbidden(state, `change ${name}, which is of another key`)
    if (there !== undefined && there.generation > 0)
      return refuse(state, 'STALE', `the entry ${name} belongs to generation ${there.generation}: only a newer generation replaces it`, {
        key: name,
        generation: there.generation,
      })
    if (id === undefined) continue
    const lease = leaseForEntries(state, id, key)
    if (lease === undefined) return gone(state, id)
    const wrong = ttlOutside(state, lease.ttl, name)
    if (wrong !== undefined) return invalid(state, wrong)
  }
  return undefined
}

/** What the changes add to a lease, or to the free entries under a prefix. */
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

function tooMuch(state: State, changes: readonly EntryChange[]): Refused | undefined {
  const leases = new EntryGrowth<LeaseState>()
  const entries = new EntryGrowth<string>()
  const bytes = new EntryGrowth<string>()
  for (const { key, value = '', lease: id, delete: deletes } of changes) {
    const attached = state.entries.get(key)
    if (attached !== undefined) leases.add(attached.lease, -1, -entryBytes(attached))
    const free = state.free.get(key)
    const inEntries = ruledBy(state, key, 'freeEntries')!
    const inBytes = ruledBy(state, key, 'freeBytes') ?? inEntries
    if (free !== undefined) {
      entries.add(inEntries, -1, 0)
      bytes.add(inBytes, 0, -entryBytes(free))
    }
    if (deletes === true) continue
    const size = entryBytes({ key, value })
    if (id !== undefined) leases.add(findLease(state, id)!, 1, size)
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
    if (more.entries > 0 && state.free.under(prefix).entries + more.entries > most) return overPolicy(state, prefix, most, 'entries')
  }
  for (const [prefix, more] of bytes) {
    const most = rule(state, prefix, 'freeBytes')
    if (more.bytes > 0 && state.free.under(prefix).bytes + more.bytes > most) return overPolicy(state, prefix, most, 'bytes')
  }
  return undefined
}

function overPolicy(state: State, prefix: string, limit: number, what: string): Refused {
  const where = prefix === '' ? 'in all' : `under ${prefix}`
  return refuse(state, 'LIMIT', `there may be ${limit} ${what} of free entries ${where}: delete some, or allow more by a policy`, {
    prefix,
    limit,
  })
}

function tooMuchForLease(state: State, { id, rare }: LeaseState, more: EntryUsage): Refused | undefined {
  const refused = (limit: number, what: string) =>
    refuse(state, 'LIMIT', `lease ${id} takes at most ${limit} ${what}: put the rest on another lease`, { lease: id, limit })
  if (more.entries > 0 && (rare?.entries?.size ?? 0) + more.entries > MAX_LEASE_ENTRIES) return refused(MAX_LEASE_ENTRIES, 'entries')
  return more.bytes > 0 && (rare?.bytes ?? 0) + more.bytes > MAX_LEASE_BYTES ? refused(MAX_LEASE_BYTES, 'bytes of entries') : undefined
}

function remove(state: State, effects: Effects, key: string): void {
  const attached = state.entries.get(key)
  if (attached !== undefined) {
    touch(state, attached.lease)
    detachEntry(state, effects, key, 'deleted')
  } else if (state.free.get(key) !== undefined) removeFree(state, effects, key)
}

function putFree(state: State, effects: Effects, { key, value = '' }: EntryChange): void {
  const entry = { key, value, revision: state.revision + 1, ...written(state, key) }
  const attached = state.entries.get(key)
  if (attached !== undefined) {
    const { lease } = attached
    touch(state, lease)
    lease.rare!.entries!.delete(key)
    lease.rare!.bytes -= entryBytes(attached)
    dropEntry(state, key)
  }
  addFreeEntry(state, entry)
  emit(state, effects, 'put', undefined, { key, value })
}
