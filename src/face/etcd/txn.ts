/**
 * Transactions of etcd, on the kernel's transaction.
 *
 * The kernel compares and changes single keys. A transaction that needs no more than that is sent as it is, in one command. Any other is planned: its keys are
 * read at one revision, the plan says what it answers and changes, and the changes are made on condition that every key that was looked at is still as it was
 * read. If one is not, the transaction is planned again.
 *
 * No condition can say that no key was added to a range meanwhile. So a range is read once more after the change; keys that were added before it count as
 * found, and if the range was to be deleted, they are deleted in a further revision.
 */
import type { Comparison, EntryChange, Transaction } from '../../kernel/command.ts'
import { propose } from '../../lessor/propose.ts'
import type { FaceCaller } from '../face.ts'
import { compacted, EtcdFailure, failureOf, futureRevision, tooManyOperations } from './failure.ts'
import { type KeyRecord, KeyView, keyJson, mustBeThere, PENDING, rangeJson } from './key-view.ts'
import { type KeySpan, nameOf, textOf } from './names.ts'
import type { DeleteOperation, KeyComparison, KeyOperation, PutOperation, RangeOperation, TxnOperation } from './operation.ts'

/** A transaction is planned again this many times because other clients were faster. */
const MAX_PLANS = 16
/** Limits of the kernel's transaction. */
const MAX_COMPARED = 128
const MAX_CHANGED = 128
/** Keys that all operations of a transaction find together, those that several find counted each time: all of them are in the answer. */
const MAX_FOUND = 1_024

const FIELDS = { VERSION: 'version', CREATE: 'created', MOD: 'revision', LEASE: 'lease', VALUE: 'value' } as const
const RELATIONS = { EQUAL: 'equal', NOT_EQUAL: 'unequal', LESS: 'less', GREATER: 'greater' } as const

export interface TxnAnswer {
  readonly revision: number
  readonly succeeded: boolean
  readonly responses: readonly object[]
}

export async function transact(caller: FaceCaller, txn: TxnOperation): Promise<TxnAnswer> {
  return (await sendAsItIs(caller, txn)) ?? planned(caller, txn)
}

// As it is

/** Undefined: the transaction needs a plan. Then nothing was done. */
async function sendAsItIs(caller: FaceCaller, txn: TxnOperation): Promise<TxnAnswer | undefined> {
  const compare = txn.compare.map(asComparison)
  const there = new Set(txn.compare.filter(impliesKey).map(({ key }) => key))
  const success = txn.success.map(operation => asChange(operation, there))
  if (success.length === 0 || !allDefined(compare) || !allDefined(success)) return undefined
  const outcome = await commit(caller, { kind: 'transaction', compare, success })
  if (!outcome.succeeded) return txn.failure.length === 0 ? { ...outcome, responses: [] } : undefined
  const { revision } = outcome
  const header = { revision: String(revision) }
  return {
    ...outcome,
    responses: txn.success.map(({ kind }) =>
      kind === 'put' ? { response_put: { header } } : { response_delete_range: { header, deleted: '1' } },
    ),
  }
}

function allDefined<T>(items: readonly (T | undefined)[]): items is readonly T[] {
  return items.every(item => item !== undefined)
}

function asComparison({ key, target, result, number, value }: KeyComparison): Comparison | undefined {
  const field = FIELDS[target]
  const is = RELATIONS[result]
  if (field !== 'value') return number < 0 ? undefined : { key: nameOf(key), field, is, number }
  return is === 'less' || is === 'greater' ? undefined : { key: nameOf(key), field, is, value: textOf(value) }
}

/** The comparison can only be true of a key that is there. */
function impliesKey({ target, result, number }: KeyComparison): boolean {
  if (target === 'VALUE') return true
  if (target === 'LEASE') return result === 'EQUAL' && number > 0
  if (result === 'EQUAL') return number > 0
  return result === 'GREATER' ? number >= 0 : result === 'NOT_EQUAL' && number === 0
}

function asChange(operation: KeyOperation, there: ReadonlySet<string>): EntryChange | undefined {
  if (operation.kind === 'put') {
    const { key, value, lease, prevKv, ignoreValue, ignoreLease } = operation
    if (prevKv || ignoreValue || ignoreLease) return undefined
    return { key: nameOf(key), value: textOf(value), ...(lease !== 0 && { lease }) }
  }
  if (operation.kind !== 'delete' || operation.prevKv) return undefined
  const { key, end } = operation.span
  return end === undefined && there.has(key) ? { key: nameOf(key), delete: true } : undefined
}

async function commit(caller: FaceCaller, transaction: Transaction): Promise<{ readonly revision: number; readonly succeeded: boolean }> {
  const outcome = await propose(caller.lessor, transaction)
  if (outcome.kind !== 'transacted') throw failureOf(outcome)
  return { revision: outcome.revision, succeeded: outcome.succeeded }
}

// By a plan

async function planned(caller: FaceCaller, txn: TxnOperation): Promise<TxnAnswer> {
  const spans = spansOf(txn)
  const ranges = spans.filter(({ end }) => end !== undefined)
  for (let plans = 1; plans <= MAX_PLANS; plans++) {
    const view = await KeyView.read(caller, spans)
    const plan = new TxnPlan(view, txn)
    if (plan.changes.length === 0) return plan.answer(view.revision)
    const { revision, succeeded } = await commit(caller, { kind: 'transaction', compare: plan.conditions, success: plan.changes })
    if (!succeeded) continue
    if (ranges.length === 0 || revision === view.revision + 1) return plan.answer(revision)
    return withLateKeys(caller, txn, { view, plan, ranges, revision })
  }
  throw new EtcdFailure('UNAVAILABLE', 'etcdserver: request timed out', 'nothing was done: other clients were faster each time, try again')
}

interface CommittedPlan {
  readonly view: KeyView
  readonly plan: TxnPlan
  readonly ranges: readonly KeySpan[]
  readonly revision: number
}

async function withLateKeys(caller: FaceCaller, txn: TxnOperation, { view, plan, ranges, revision }: CommittedPlan): Promise<TxnAnswer> {
  const now = await KeyView.read(caller, ranges)
  const late = ranges
    .flatMap(span => now.within(span))
    .filter(({ key, created, mod }) => created < revision && mod < revision && view.get(key) === undefined)
  if (late.length === 0) return plan.answer(revision)
  const whole = new TxnPlan(view.with(late), txn)
  const more = whole.changes.filter(change => change.delete === true && !plan.changes.some(({ key }) => key === change.key))
  for (const record of late) {
    const change = more.find(({ key }) => key === nameOf(record.key))
    if (change !== undefined) await commit(caller, { kind: 'transaction', compare: [unchanged(record.key, record)], success: [change] })
  }
  return whole.answer(revision)
}

/** Deletes these keys in one revision if all of them are as they were read, and returns whether it did. */
export async function deleteUnchanged(caller: FaceCaller, records: readonly KeyRecord[]): Promise<boolean> {
  const compare = records.map(record => unchanged(record.key, record))
  const success = records.map(({ key }): EntryChange => ({ key: nameOf(key), delete: true }))
  return (await commit(caller, { kind: 'transaction', compare, success })).succeeded
}

function unchanged(key: string, record: KeyRecord | undefined): Comparison {
  return { key: nameOf(key), field: 'revision', is: 'equal', number: record?.mod ?? 0 }
}

/** All keys that a transaction may look at. */
function spansOf(operation: KeyOperation): readonly KeySpan[] {
  switch (operation.kind) {
    case 'put':
      return [{ key: operation.key }]
    case 'txn':
      return [
        ...operation.compare.map(({ key }) => ({ key })),
        ...operation.success.flatMap(spansOf),
        ...operation.failure.flatMap(spansOf),
      ]
    default:
      return [operation.span]
  }
}

type Response = (revision: number) => object

/** A transaction answers and changes this, if the keys are as they were read. */
class TxnPlan {
  readonly #view: KeyView
  readonly #guarded = new Map<string, KeyRecord | undefined>()
  /** These records were written so far; null: deleted. */
  readonly #written = new Map<string, KeyRecord | null>()
  readonly #succeeded: boolean
  readonly #responses: readonly Response[]
  #found = 0

  constructor(view: KeyView, txn: TxnOperation) {
    this.#view = view
    const { succeeded, responses } = this.#run(txn)
    this.#succeeded = succeeded
    this.#responses = responses
    if (this.#written.size > MAX_CHANGED) throw tooManyKeys()
  }

  get conditions(): readonly Comparison[] {
    return [...this.#guarded].map(([key, record]) => unchanged(key, record))
  }

  get changes(): readonly EntryChange[] {
    return [...this.#written].map(([key, record]) =>
      record === null
        ? { key: nameOf(key), delete: true }
        : { key: nameOf(key), value: textOf(record.value), ...(record.lease !== 0 && { lease: record.lease }) },
    )
  }

  answer(revision: number): TxnAnswer {
    return { revision, succeeded: this.#succeeded, responses: this.#responses.map(response => response(revision)) }
  }

  #run({ compare, success, failure }: TxnOperation): { readonly succeeded: boolean; readonly responses: readonly Response[] } {
    // All comparisons are made before the first change, those of inner transactions too.
    const succeeded = compare.every(comparison => isTrue(comparison, this.#before(comparison.key)))
    return { succeeded, responses: (succeeded ? success : failure).map(operation => this.#operation(operation)) }
  }

  #operation(operation: KeyOperation): Response {
    switch (operation.kind) {
      case 'range':
        return this.#range(operation)
      case 'put':
        return this.#put(operation)
      case 'delete':
        return this.#delete(operation)
      case 'txn': {
        const { succeeded, responses } = this.#run(operation)
        return revision => ({
          response_txn: {
            header: {},
            ...(succeeded && { succeeded }),
            ...(responses.length > 0 && { responses: responses.map(response => response(revision)) }),
          },
        })
      }
    }
  }

  /** The key as it was read. From now on the plan depends on it. */
  #before(key: string): KeyRecord | undefined {
    const record = this.#view.get(key)
    this.#guarded.set(key, record)
    if (this.#guarded.size > MAX_COMPARED) throw tooManyKeys()
    return record
  }

  /** The key as it is after what was written so far. */
  #look(key: string): KeyRecord | undefined {
    const written = this.#written.get(key)
    return written === undefined ? this.#before(key) : (written ?? undefined)
  }

  #within(span: KeySpan): readonly KeyRecord[] {
    if (span.end === undefined) {
      const record = this.#look(span.key)
      return record === undefined ? [] : [record]
    }
    // Counted before anything else is done with them.
    const there = this.#view.within(span, MAX_COMPARED + 1)
    this.#found += there.length
    if (this.#found > MAX_FOUND) throw tooManyOperations(`the operations of the transaction find more than ${MAX_FOUND} keys in all`)
    for (const { key } of there) this.#look(key)
    const changed = [...this.#written].flatMap(([key, record]) => (record === null ? [] : [{ ...record, key }]))
    const kept = there.filter(({ key }) => !this.#written.has(key))
    return new KeyView(0, [...kept, ...changed]).within(span)
  }

  #range(range: RangeOperation): Response {
    if (range.revision > this.#view.revision) throw futureRevision()
    if (range.revision > 0 && range.revision < this.#view.revision) throw compacted()
    const found = this.#within(range.span)
    const changed = this.#written.size > 0
    return revision => ({
      response_range: { header: this.#header(revision, changed), ...rangeJson(range, found, revision) },
    })
  }

  /** Before the first change of a transaction its operations see the revision before it. */
  #header(revision: number, changed: boolean): object {
    return { revision: String(changed ? revision : this.#view.revision) }
  }

  #put({ key, value, lease, prevKv, ignoreValue, ignoreLease }: PutOperation): Response {
    // Even a put that needs nothing of what was there depends on it: a later range of the transaction shows its version.
    const before = this.#look(key)
    const record: KeyRecord = {
      key,
      value: ignoreValue ? mustBeThere(before).value : value,
      lease: ignoreLease ? mustBeThere(before).lease : lease,
      created: before?.created ?? PENDING,
      mod: PENDING,
      version: (before?.version ?? 0) + 1,
    }
    this.#written.set(key, record)
    return revision => ({
      response_put: {
        header: { revision: String(revision) },
        ...(prevKv && before !== undefined && { prev_kv: keyJson(before, revision) }),
      },
    })
  }

  #delete({ span, prevKv }: DeleteOperation): Response {
    const found = this.#within(span)
    for (const { key } of found) this.#written.set(key, null)
    const changed = this.#written.size > 0
    return revision => ({
      response_delete_range: {
        header: this.#header(revision, changed),
        ...(found.length > 0 && { deleted: String(found.length) }),
        ...(found.length > 0 && prevKv && { prev_kvs: found.map(record => keyJson(record, revision)) }),
      },
    })
  }
}

function tooManyKeys(): EtcdFailure {
  return tooManyOperations(`the transaction looks at or changes more than ${MAX_COMPARED} keys`)
}

function isTrue({ target, result, number, value }: KeyComparison, record: KeyRecord | undefined): boolean {
  if (target === 'VALUE') return record !== undefined && related(record.value, result, value)
  const field = { VERSION: 'version', CREATE: 'created', MOD: 'mod', LEASE: 'lease' } as const
  return related(record?.[field[target]] ?? 0, result, number)
}

function related<T extends string | number>(a: T, result: KeyComparison['result'], b: T): boolean {
  switch (result) {
    case 'EQUAL':
      return a === b
    case 'NOT_EQUAL':
      return a !== b
    case 'LESS':
      return a < b
    case 'GREATER':
      return a > b
  }
}
