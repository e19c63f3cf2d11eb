/** The log: records under sequential keys. A record is put only if the previous one exists and its own index is free. */
import { LeaseError } from '../../errors.ts'
import type { LogRecord, Position, Rejected } from '../../store.ts'
import { START } from '../../store.ts'
import { type LastMarks, NO_MARKS } from '../last-marks.ts'
import type { Copies, Gateway } from './gateway.ts'
import { base64, type EtcdKeys, FORMAT } from './keys.ts'
import {
  absent,
  type EtcdHeader,
  type EtcdOperation,
  type EtcdTransaction,
  exists,
  type KeyValue,
  put,
  type RangeAnswer,
  range,
  type TransactionAnswer,
} from './message.ts'
import { type EtcdRecord, Parts, pack, splitMarks, withMarks } from './parts.ts'

/** One answer carries at most this much. A larger record travels alone. */
export const MAX_RECORDS = 1_000
export const MAX_BYTES = 1_048_576

/** The records after a position that is in the log. `count`: how many there are within the next thousand indexes. */
export interface FoundRecords {
  readonly kind: 'found'
  readonly records: readonly EtcdRecord[]
  readonly count: number
  readonly revision: bigint
}

export class EtcdLog {
  readonly keys: EtcdKeys
  readonly parts: Parts
  readonly #gateway: Gateway
  /** The last record that was seen here. */
  #last: Pick<EtcdRecord, 'position' | 'marks'> = { position: START, marks: NO_MARKS }
  /** The typical size of a record, so that a range fetches about as much as one answer carries. */
  #typical = MAX_BYTES / 64

  constructor({ gateway, keys }: { readonly gateway: Gateway; readonly keys: EtcdKeys }) {
    this.keys = keys
    this.parts = new Parts({ gateway, keys })
    this.#gateway = gateway
  }

  /** Creates the log if it does not exist, and finds its end. */
  async open(): Promise<Position> {
    for (let tries = 1; tries <= 3; tries++) {
      const end = await this.end()
      if (end !== undefined) return end
      await this.#createLog()
    }
    throw new LeaseError('DIVERGED', `the log ${this.keys.prefix} in etcd has a hole: ${torn('records are missing').reason}`)
  }

  /** Computes the last index from the first one and the count. To sort for the last key, etcd would fetch them all. */
  async end(): Promise<Position | undefined> {
    const request = { ...this.keys.log, limit: 1, keys_only: true }
    const { kvs: [first] = [], count } = await this.#gateway.call<RangeAnswer>('/kv/range', request)
    if (first === undefined) return undefined
    const index = this.keys.position(first.key).index + Number(count) - 1
    const span = { ...this.keys.records(index, index + 1), limit: 1, keys_only: true }
    const { kvs: [last] = [] } = await this.#gateway.call<RangeAnswer>('/kv/range', span)
    return last && this.keys.position(last.key)
  }

  /** The records after `after`, about as many as one answer carries. */
  async look(after: Position): Promise<FoundRecords | Rejected> {
    return this.#looked(after, await this.transact(this.#looking(after)))
  }

  /** Reads about as many records as one answer carries, but not fewer than `least`. */
  following({ index }: Position, least = 1): EtcdOperation {
    const limit = Math.max(least, Math.min(MAX_RECORDS, Math.floor(MAX_BYTES / this.#typical)))
    return range({ ...this.keys.records(index + 1, index + 1 + MAX_RECORDS), limit })
  }

  #looking(after: Position): EtcdTransaction {
    const { index } = after
    return {
      compare: [exists(this.keys.record(after))],
      success: [this.following(after)],
      failure: [
        range({ ...this.keys.log, limit: 1, keys_only: true }),
        range({ ...this.keys.records(index, index + 1), limit: 1, keys_only: true }),
      ],
    }
  }

  async #looked(after: Position, { header, succeeded, responses = [] }: TransactionAnswer): Promise<FoundRecords | Rejected> {
    if (succeeded) return this.parseRange(after, responses[0]!.response_range!, header)
    const [all, there] = responses.map(({ response_range }) => response_range!) as [RangeAnswer, RangeAnswer]
    const [first] = all.kvs ?? []
    if (first !== undefined) {
      const { index } = this.keys.position(first.key)
      if (after.index < index) return { kind: 'trimmed' }
      const last = index + Number(all.count) - 1
      return torn((there.kvs ?? []).length > 0 ? `another record is at ${after.index}` : `the log ends at ${last}, before ${after.index}`)
    }
    if (after.index > 0) return torn(`the log is empty, record ${after.index} is gone`)
    await this.#createLog() // a reader at the start has lost nothing
    return this.look(after)
  }

  /** Parses the answer to `following`. */
  parseRange(after: Position, { kvs = [], count = '0' }: RangeAnswer, { revision = '0' }: EtcdHeader = {}): FoundRecords | Rejected {
    const records = kvs.map(kv => this.stored(kv))
    const hole = records.findIndex(({ position }, i) => position.index !== after.index + 1 + i)
    if (hole >= 0) return torn(`record ${after.index + 1 + hole} is missing`)
    return { kind: 'found', records, count: Number(count), revision: BigInt(revision) }
  }

  /** The records with their bytes, as many as one answer carries. */
  async records(stored: readonly EtcdRecord[]): Promise<LogRecord[]> {
    const records: LogRecord[] = []
    let size = 0
    for (const [i, bytes] of (await this.parts.bytes(stored, MAX_BYTES)).entries()) {
      this.#typical = Math.max(64, this.#typical + (bytes.length - this.#typical) / 8)
      size += bytes.length
      if (size > MAX_BYTES && records.length > 0) break
      records.push({ position: stored[i]!.position, bytes, age: 0 })
    }
    return records
  }

  /** The end of the log, if it contains `after`, and fewer than a thousand records follow. Reads one of them at most. */
  async endAfter(after: Position): Promise<Pick<EtcdRecord, 'position' | 'marks'> | undefined> {
    const { index } = after
    const { succeeded, responses = [] } = await this.transact({
      compare: [exists(this.keys.record(after))],
      success: [range({ ...this.keys.records(index + 1, index + 1 + MAX_RECORDS), limit: 1, keys_only: true })],
      failure: [],
    })
    const count = Number(responses[0]?.response_range?.count ?? 0)
    if (!succeeded || count === MAX_RECORDS) return undefined
    if (count === 0) return { position: after, marks: this.marksOf(after) }
    const last = { ...this.keys.records(index + count, index + count + 1), limit: 1 }
    const { kvs: [kv] = [] } = await this.#gateway.call<RangeAnswer>('/kv/range', last)
    return kv && this.stored(kv)
  }

  /** The marks of the record at a position. Of one that was not seen here: as if it were no renewal, and no process read. */
  marksOf({ index, nonce }: Position): LastMarks {
    const { position, marks } = this.#last
    return position.index === index && position.nonce === nonce ? marks : { other: index, reads: 0 }
  }

  /** This record was seen in the log, or put there. */
  saw({ position, marks }: Pick<EtcdRecord, 'position' | 'marks'>): void {
    if (position.index >= this.#last.position.index) this.#last = { position, marks }
  }

  stored({ key, value = '' }: KeyValue): EtcdRecord {
    const record = { position: this.keys.position(key), ...splitMarks(Buffer.from(value, 'base64')) }
    this.saw(record)
    return record
  }

  transact(transaction: EtcdTransaction, copies?: Copies): Promise<TransactionAnswer> {
    return this.#gateway.call('/kv/txn', transaction, copies)
  }

  /** The start is a record like others, so that a transaction can require it and detect that it was trimmed. */
  async #createLog(): Promise<void> {
    await this.transact({
      compare: [absent(this.keys.log)],
      success: [put(this.keys.record(START), base64(withMarks(NO_MARKS, pack(new Uint8Array())))), put(this.keys.format, base64(FORMAT))],
      failure: [],
    })
  }
}

function torn(what: string): { readonly kind: 'diverged'; readonly reason: string } {
  return {
    kind: 'diverged',
    reason: `${what}: etcd was restored from an older backup, or its keys were deleted; restart every process on this log to begin from what is there`,
  }
}
