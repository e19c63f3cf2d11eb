/** Keys and values as a client of etcd sees them at one revision, and what the operations of a transaction would do to them. */
import type { EntryView, LeaseView } from '../../lessor.ts'
import type { FaceCaller } from '../face.ts'
import { mapInSlices, sortInSlices } from '../slices.ts'
import { EtcdFailure } from './failure.ts'
import { base64, bytesOfValue, inSpan, type KeySpan, keyOf, nameOf, PREFIX, prefixOf } from './names.ts'
import type { RangeOperation } from './operation.ts'

/** The revision of a transaction that is not carried out yet. */
export const PENDING = 0

export interface KeyRecord {
  readonly key: string
  readonly value: string
  readonly lease: number
  readonly created: number
  readonly mod: number
  readonly version: number
}

export function recordOf({ key: name, value, lease, created, revision, version }: EntryView): KeyRecord | undefined {
  const key = keyOf(name)
  return key === undefined ? undefined : { key, value: bytesOfValue(value), lease, created, mod: revision, version }
}

/** As JSON, with 64-bit numbers as texts and without zeros. `revision` is that of a transaction whose record is pending. */
export function keyJson(record: KeyRecord, revision: number, keysOnly = false): object {
  const number = (n: number) => String(n === PENDING ? revision : n)
  return {
    key: base64(record.key),
    create_revision: number(record.created),
    mod_revision: number(record.mod),
    version: String(record.version),
    ...(record.value !== '' && !keysOnly && { value: base64(record.value) }),
    ...(record.lease !== 0 && { lease: String(record.lease) }),
  }
}

/** Several reads are tried this many times until all of them show the same revision. */
const MAX_READS = 4

/** The keys that were read, all at one revision. */
export class KeyView {
  readonly revision: number
  readonly #records: ReadonlyMap<string, KeyRecord>
  #inOrder: readonly KeyRecord[] | undefined

  constructor(revision: number, records: Iterable<KeyRecord>) {
    this.revision = revision
    this.#records = new Map([...records].map(record => [record.key, record]))
  }

  /** Reads these keys at the end of the log; with `stale`, as this server knows them. */
  static async read(caller: FaceCaller, spans: readonly KeySpan[], stale = false): Promise<KeyView> {
    const { lessor, signal } = caller
    const prefixes = [...new Set(spans.map(prefixOf))]
    const one = (prefix: string, consistent: boolean) => lessor.read<'entries'>({ kind: 'entries', prefix }, { consistent, signal })
    if (prefixes.length === 0) prefixes.push(nameOf('-'))
    for (let reads = 1; prefixes.length > 1 && reads <= MAX_READS; reads++) {
      const { revision } = await one(prefixes[0]!, !stale)
      const views = await Promise.all(prefixes.map(prefix => one(prefix, false)))
      if (views.every(view => view.revision === views[0]!.revision && view.revision >= revision))
        return new KeyView(
          views[0]!.revision,
          await recordsOf(
            caller,
            views.flatMap(view => view.value),
            spans,
          ),
        )
    }
    const view = await one(prefixes.length === 1 ? prefixes[0]! : PREFIX, !stale)
    return new KeyView(view.revision, await recordsOf(caller, view.value, spans))
  }

  with(records: readonly KeyRecord[]): KeyView {
    return new KeyView(this.revision, [...this.#records.values(), ...records])
  }

  get(key: string): KeyRecord | undefined {
    return this.#records.get(key)
  }

  /** In the order of the keys, and at most so many. */
  within(span: KeySpan, most = Number.POSITIVE_INFINITY): readonly KeyRecord[] {
    if (span.end === undefined) {
      const record = this.#records.get(span.key)
      return record === undefined ? [] : [record]
    }
    this.#inOrder ??= [...this.#records.values()].sort(byKey)
    const found: KeyRecord[] = []
    for (let i = countBefore(this.#inOrder, span.key); i < this.#inOrder.length && found.length < most; i++) {
      const record = this.#inOrder[i]!
      if (!inSpan(span, record.key)) break
      found.push(record)
    }
    return found
  }
}

/** Each entry is looked for in the spans, not each span in the entries: a transaction may name a hundred ranges of everything. */
async function recordsOf(caller: FaceCaller, entries: readonly EntryView[], spans: readonly KeySpan[]): Promise<readonly KeyRecord[]> {
  const single = new Set(spans.flatMap(({ key, end }) => (end === undefined ? [key] : [])))
  const ranges = joined(spans.filter(({ end }) => end !== undefined))
  const wanted = (entry: EntryView): KeyRecord | undefined => {
    const record = recordOf(entry)
    if (record === undefined) return undefined
    const range = ranges[countBefore(ranges, `${record.key}\0`) - 1]
    return single.has(record.key) || (range !== undefined && inSpan(range, record.key)) ? record : undefined
  }
  const read = await mapInSlices(caller, entries, wanted, ({ value }) => value.length)
  return read.filter(record => record !== undefined)
}

/** The ranges in order, those that overlap or touch as one. */
function joined(ranges: readonly KeySpan[]): readonly KeySpan[] {
  const all: KeySpan[] = []
  for (const range of [...ranges].sort(byKey)) {
    const last = all.at(-1)
    if (last === undefined || (last.end !== END && last.end! < range.key)) all.push(range)
    else if (last.end !== END && (range.end === END || range.end! > last.end!)) all[all.length - 1] = { key: last.key, end: range.end! }
  }
  return all
}

/** As the end of a range: up to the last key. */
const END = '\0'

/** Returns how many of these, which are in order, come before the key. */
function countBefore(inOrder: readonly { readonly key: string }[], key: string): number {
  let [low, high] = [0, inOrder.length]
  while (low < high) {
    const middle = (low + high) >> 1
    if (inOrder[middle]!.key < key) low = middle + 1
    else high = middle
  }
  return low
}

function byKey(a: { readonly key: string }, b: { readonly key: string }): number {
  return a.key < b.key ? -1 : a.key > b.key ? 1 : 0
}

/** The body of an answer to a range, without its header. */
export function rangeJson(range: RangeOperation, found: readonly KeyRecord[], revision: number): object {
  const count = found.length > 0 && { count: String(found.length) }
  if (range.countOnly) return { ...count }
  const { wanted, pending } = wantedOf(range, found, revision)
  const sorted = isInOrder(range) ? wanted : [...wanted].sort(comparison(range, pending))
  const kept = range.limit > 0 ? sorted.slice(0, range.limit) : sorted
  return {
    ...(kept.length > 0 && { kvs: kept.map(record => keyJson(record, revision, range.keysOnly)) }),
    ...(kept.length < sorted.length && { more: true }),
    ...count,
  }
}

/** As `rangeJson`, made in slices: the keys as texts, and the rest of the body. */
export async function rangeTexts(
  caller: FaceCaller,
  range: RangeOperation,
  found: readonly KeyRecord[],
  revision: number,
): Promise<{ readonly kvs: readonly string[]; readonly rest: object }> {
  const count = found.length > 0 && { count: String(found.length) }
  if (range.countOnly) return { kvs: [], rest: { ...count } }
  const { wanted, pending } = wantedOf(range, found, revision)
  const sorted = isInOrder(range) ? wanted : await sortInSlices(caller, wanted, comparison(range, pending))
  const kept = range.limit > 0 ? sorted.slice(0, range.limit) : sorted
  const write = (record: KeyRecord) => JSON.stringify(keyJson(record, revision, range.keysOnly))
  const kvs = await mapInSlices(caller, kept, write, ({ value }) => value.length)
  return { kvs, rest: { ...(kept.length < sorted.length && { more: true }), ...count } }
}

function wantedOf(range: RangeOperation, found: readonly KeyRecord[], revision: number) {
  const pending = (n: number) => (n === PENDING ? revision : n)
  const { minMod, maxMod, minCreate, maxCreate } = range
  const wanted = found.filter(
    ({ mod, created }) =>
      (minMod === 0 || pending(mod) >= minMod) &&
      (maxMod === 0 || pending(mod) <= maxMod) &&
      (minCreate === 0 || pending(created) >= minCreate) &&
      (maxCreate === 0 || pending(created) <= maxCreate),
  )
  return { wanted, pending }
}

function isInOrder({ order, target }: RangeOperation): boolean {
  return order === 'NONE' || (target === 'KEY' && order === 'ASCEND')
}

function comparison({ order, target }: RangeOperation, pending: (n: number) => number): (a: KeyRecord, b: KeyRecord) => number {
  const by = (record: KeyRecord): string | number => {
    switch (target) {
      case 'KEY':
        return record.key
      case 'VALUE':
        return record.value
      case 'VERSION':
        return record.version
      case 'CREATE':
        return pending(record.created)
      case 'MOD':
        return pending(record.mod)
    }
  }
  const sign = order === 'DESCEND' ? -1 : 1
  return (a, b) => (by(a) < by(b) ? -sign : by(a) > by(b) ? sign : 0)
}

/** The keys on a lease, in order. */
export function keysOn({ entries }: LeaseView): readonly string[] {
  return entries.flatMap(({ key }) => keyOf(key) ?? []).sort()
}

export function mustBeThere(record: KeyRecord | undefined): KeyRecord {
  if (record === undefined) throw new EtcdFailure('INVALID_ARGUMENT', 'etcdserver: key not found')
  return record
}
