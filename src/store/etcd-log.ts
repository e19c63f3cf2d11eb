/**
 * The log itself: entries under sequential keys, each put only where the one before it stands and nothing stands yet.
 *
 * **Several proposers.** Whoever loses the race for an index has to put its entry at a later one. A round trip for each lost race would make n
 * proposers n times slower, and some of them much more. So one transaction may try several indexes in turn: where the first is taken, a
 * transaction nested in its other branch tries the next one and also fetches what was missed. How many are tried follows from how many were
 * needed of late; alone, it is one.
 *
 * **A lost answer.** A copy of an append may be carried out twice. All copies of one call bear the same nonce, so whoever finds it
 * knows that it has been appended already.
 */
import { type Clock, pause } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import type { Appended, Entry, NotThere, Position } from '../store.ts'
import { START } from '../store.ts'
import type { Gateway } from './etcd-gateway.ts'
import { base64, FORMAT, type Keys } from './etcd-keys.ts'
import { absent, exists, type KeyValue, put, type RangeAnswer, range, type Transaction, type TransactionAnswer } from './etcd-message.ts'

/** What one answer carries at most. An entry that is larger travels alone. */
const MOST_ENTRIES = 1_000
const MOST_BYTES = 1_048_576
/** etcd takes 1.5 MiB in one request. A larger entry goes in parts, written before the key that makes an entry of them. */
const INLINE_BYTES = 786_432
const PART_BYTES = 524_288
/** Entries refer to parts that were begun at most so many entries before: older parts belong to nobody. */
export const PARTS_WITHIN = 10_000
const DEEPEST = 8
/** All copies within one transaction together: they travel through etcd's log, and are synced, all of them. */
const DEEP_BYTES = 262_144
/** Lost so often although we reach further each time, something is wrong. */
const MOST_TRIES = 50
/** After so many in vain, leave some room: with large entries only one index can be tried at a time. */
const EAGER = 4

const [INLINE, PARTS] = [0, 1]

/** As it stands in etcd: its bytes, or where they are. */
export interface Stored {
  readonly position: Position
  readonly value: Buffer
}

export type Looked =
  | { readonly kind: 'found'; readonly entries: readonly Stored[]; readonly after: number; readonly revision: bigint }
  | NotThere

/** It stands at `at`, after these. */
interface Put {
  readonly kind: 'put'
  readonly at: number
  readonly entries: readonly Stored[]
}

export class EtcdLog {
  readonly #gateway: Gateway
  readonly #keys: Keys
  readonly #clock: Clock
  #depth = 1
  #easy = 0
  /** Bytes of an entry, about: so that a range fetches what an answer carries and not much more. */
  #typical = MOST_BYTES / 64

  constructor({ gateway, keys, clock }: { readonly gateway: Gateway; readonly keys: Keys; readonly clock: Clock }) {
    this.#gateway = gateway
    this.#keys = keys
    this.#clock = clock
  }

  /** Makes the log if there is none, and finds its end. */
  async open(): Promise<Position> {
    for (let tries = 1; tries <= 3; tries++) {
      const end = await this.#end()
      if (end !== undefined) return end
      await this.#found()
    }
    throw new LeaseError('DIVERGED', `the log ${this.#keys.prefix} in etcd has a hole: ${torn('entries are missing').reason}`)
  }

  // Reading

  /** What follows `after`, as much as one answer carries. */
  async look(after: Position): Promise<Looked> {
    const answer = await this.transact(this.#looking(after, this.#limit()))
    return this.#looked(after, answer, answer.header.revision)
  }

  async entries(stored: readonly Stored[]): Promise<Entry[]> {
    const entries: Entry[] = []
    let bytes = 0
    for (const { position, value } of stored) {
      const whole = value[0] === PARTS ? await this.#gather(position, value) : value.subarray(1)
      bytes += whole.length
      if (bytes > MOST_BYTES && entries.length > 0) break
      entries.push({ position, bytes: whole, age: 0 })
    }
    return entries
  }

  #looking(after: Position, limit: number): Transaction {
    const { index } = after
    return {
      compare: [exists(this.#keys.entry(after))],
      success: [range({ ...this.#keys.entries(index + 1, index + 1 + MOST_ENTRIES), limit })],
      failure: [
        range({ ...this.#keys.log, limit: 1, keys_only: true }),
        range({ ...this.#keys.entries(index, index + 1), limit: 1, keys_only: true }),
      ],
    }
  }

  async #looked(after: Position, { succeeded, responses = [] }: TransactionAnswer, revision = '0'): Promise<Looked> {
    if (succeeded) {
      const { kvs = [], count = '0' } = responses[0]!.response_range!
      const entries = kvs.map(kv => this.stored(kv))
      for (const [i, { position }] of entries.entries())
        if (position.index !== after.index + 1 + i) return torn(`${after.index + 1 + i} is missing`)
      this.#learnSize(entries)
      return { kind: 'found', entries, after: Number(count), revision: BigInt(revision) }
    }
    const [all, there] = responses.map(({ response_range }) => response_range!) as [RangeAnswer, RangeAnswer]
    const [first] = all.kvs ?? []
    if (first !== undefined) {
      const { index } = this.#keys.position(first.key)
      if (after.index < index) return { kind: 'trimmed' }
      const last = index + Number(all.count) - 1
      return torn(
        (there.kvs ?? []).length > 0 ? `another entry stands at ${after.index}` : `the log ends at ${last}, before ${after.index}`,
      )
    }
    if (after.index > 0) return torn(`the log is empty, ${after.index} is gone`)
    await this.#found() // nobody who stands at the start has lost anything
    return this.look(after)
  }

  stored({ key, value = '' }: KeyValue): Stored {
    return { position: this.#keys.position(key), value: Buffer.from(value, 'base64') }
  }

  #limit(): number {
    return Math.max(1, Math.min(MOST_ENTRIES, Math.floor(MOST_BYTES / this.#typical)))
  }

  #learnSize(entries: readonly Stored[]): void {
    for (const { value } of entries) this.#typical += (value.length - this.#typical) / 8
    this.#typical = Math.max(this.#typical, 64)
  }

  // Appending

  async append(bytes: Uint8Array, after: Position): Promise<Appended> {
    const nonce = this.#clock.bits()
    const value =
      bytes.length <= INLINE_BYTES ? base64(Buffer.concat([Uint8Array.of(INLINE), bytes])) : await this.#inParts(bytes, after, nonce)
    const most = Math.max(1, Math.min(DEEPEST, Math.floor(DEEP_BYTES / value.length)))
    let base = after
    let missed: Stored[] | undefined = []
    for (let tries = 1; tries <= MOST_TRIES; tries++) {
      const depth = Math.min(this.#depth, most)
      const got = await this.#attempt(after, base, { nonce, value }, depth)
      if (got.kind !== 'put' && got.kind !== 'found') return got
      const mine = got.entries.findIndex(({ position }) => position.nonce === nonce)
      if (mine >= 0) return this.#done(got.entries[mine]!.position, missed && [...missed, ...got.entries.slice(0, mine)])
      if (got.kind === 'put') {
        this.#won(got.at - base.index)
        return this.#done({ index: got.at, nonce }, missed && [...missed, ...got.entries])
      }
      if (got.after === 0) {
        // Nothing stood in our way, so what we began from is gone.
        const gone = await this.look(after)
        if (gone.kind !== 'found') return gone
      }
      this.#lost()
      missed = missed && got.after === got.entries.length ? [...missed, ...got.entries] : undefined
      if (missed && (missed.length > MOST_ENTRIES || weight(missed) > MOST_BYTES)) missed = undefined
      base = (missed === undefined ? await this.#end() : missed.at(-1)?.position) ?? after
      if (base.index + DEEPEST > after.index + PARTS_WITHIN && bytes.length > INLINE_BYTES) break
      if (tries > EAGER) await pause(this.#clock, this.#clock.random() * Math.min(tries, 20), undefined, { ref: true })
    }
    throw new LeaseError(
      'UNAVAILABLE',
      `others append to ${this.#keys.prefix} in etcd so fast that this process found no place: nothing was done`,
    )
  }

  async #attempt(
    after: Position,
    base: Position,
    { nonce, value }: { readonly nonce: bigint; readonly value: string },
    depth: number,
  ): Promise<Put | Looked> {
    const standing = [after, ...(base === after ? [] : [base])].map(position => exists(this.#keys.entry(position)))
    const level = (n: number): Transaction => {
      const index = base.index + n
      return {
        // At every level: whoever stands on a lost entry would else go on behind the gap.
        compare: [...standing, absent(this.#keys.entries(index, index + 1))],
        success: [...(n > 1 ? [range(this.#keys.entries(base.index + 1, index))] : []), put(this.#keys.entry({ index, nonce }), value)],
        failure: [{ request_txn: n < depth ? level(n + 1) : this.#looking(base, this.#limit()) }],
      }
    }
    const whole = await this.transact(level(1))
    let answer = whole
    for (let n = 1; n <= depth; n++) {
      if (answer.succeeded) {
        const met = (n > 1 ? (answer.responses![0]!.response_range!.kvs ?? []) : []).map(kv => this.stored(kv))
        return { kind: 'put', at: base.index + n, entries: met }
      }
      answer = answer.responses![0]!.response_txn!
    }
    return this.#looked(base, answer, whole.header.revision)
  }

  async #done(position: Position, missed: readonly Stored[] | undefined): Promise<Appended> {
    // It stands there, whatever becomes of fetching the parts of what was missed.
    const entries = missed && (await this.entries(missed).catch(() => undefined))
    return entries && entries.length === missed.length ? { kind: 'appended', position, missed: entries } : { kind: 'behind', position }
  }

  #won(level: number): void {
    if (level === this.#depth) this.#easy = 0
    else if (++this.#easy >= 16 && this.#depth > 1) {
      this.#depth--
      this.#easy = 0
    }
  }

  #lost(): void {
    this.#depth = Math.min(DEEPEST, this.#depth * 2)
    this.#easy = 0
  }

  // Entries larger than a request

  async #inParts(bytes: Uint8Array, { index }: Position, nonce: bigint): Promise<string> {
    let count = 0
    for (let at = 0; at < bytes.length; at += PART_BYTES)
      await this.#gateway.call('/kv/put', {
        key: this.#keys.part(index, nonce, count++),
        value: base64(bytes.subarray(at, at + PART_BYTES)),
      })
    return base64(Buffer.concat([Uint8Array.of(PARTS), Buffer.from(`${index} ${count}`)]))
  }

  async #gather({ index, nonce }: Position, value: Buffer): Promise<Buffer> {
    const [base, count] = value.subarray(1).toString().split(' ').map(Number) as [number, number]
    const parts: Buffer[] = []
    for (let part = 0; part < count; part++) {
      const { kvs: [kv] = [] } = await this.#gateway.call<RangeAnswer>('/kv/range', { key: this.#keys.part(base, nonce, part) })
      if (kv === undefined) throw new LeaseError('UNAVAILABLE', `part ${part} of entry ${index} was trimmed while it was read: read again`)
      parts.push(Buffer.from(kv.value ?? '', 'base64'))
    }
    return Buffer.concat(parts)
  }

  // The whole

  transact(transaction: Transaction): Promise<TransactionAnswer> {
    return this.#gateway.call('/kv/txn', transaction)
  }

  /** The first that is kept and how many there are say where the last one is: to sort for it, etcd would fetch them all. */
  async #end(): Promise<Position | undefined> {
    const request = { ...this.#keys.log, limit: 1, keys_only: true }
    const { kvs: [first] = [], count } = await this.#gateway.call<RangeAnswer>('/kv/range', request)
    if (first === undefined) return undefined
    const index = this.#keys.position(first.key).index + Number(count) - 1
    const span = { ...this.#keys.entries(index, index + 1), limit: 1, keys_only: true }
    const { kvs: [last] = [] } = await this.#gateway.call<RangeAnswer>('/kv/range', span)
    return last && this.#keys.position(last.key)
  }

  /** The start is an entry like others, so that one can stand on it, and notice when it was trimmed. */
  async #found(): Promise<void> {
    await this.transact({
      compare: [absent(this.#keys.log)],
      success: [put(this.#keys.entry(START), base64(Uint8Array.of(INLINE))), put(this.#keys.format, base64(FORMAT))],
      failure: [],
    })
  }
}

function weight(stored: readonly Stored[]): number {
  return stored.reduce((sum, { value }) => sum + value.length, 0)
}

function torn(what: string): { readonly kind: 'diverged'; readonly reason: string } {
  return {
    kind: 'diverged',
    reason: `${what}: etcd was restored from an older backup, or its keys were deleted; restart every process on this log to begin from what is there`,
  }
}
