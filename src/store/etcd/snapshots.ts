/** Snapshots in etcd: written in chunks, in force once `NAME:newest` points to them, deleted when no reader can be using them. */
import type { Clock } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import type { Position, Snapshot } from '../../store.ts'
import { type Copies, type Gateway, maybeDone } from './gateway.ts'
import { base64, type EtcdKeys, type KeyRange } from './keys.ts'
import type { EtcdLog } from './log.ts'
import { exists, type KeyValue, put, type RangeAnswer } from './message.ts'
import { PARTS_WITHIN, packAsync, unpack } from './parts.ts'

/** Bytes in a chunk, before it is packed. */
const CHUNK_BYTES = 1_048_576
/** Indexes deleted in one request: other requests do not wait long for it. */
const DELETE_AT_ONCE = 500

interface Pointer {
  readonly index: number
  readonly nonce: string
  readonly id: string
  readonly chunks: number
}

export interface EtcdSnapshotsOptions {
  readonly gateway: Gateway
  readonly keys: EtcdKeys
  readonly clock: Clock
  readonly log: EtcdLog
}

export class EtcdSnapshots {
  readonly #gateway: Gateway
  readonly #keys: EtcdKeys
  readonly #clock: Clock
  readonly #log: EtcdLog

  constructor({ gateway, keys, clock, log }: EtcdSnapshotsOptions) {
    this.#gateway = gateway
    this.#keys = keys
    this.#clock = clock
    this.#log = log
  }

  async newest(): Promise<Snapshot | undefined> {
    const { pointer } = await this.#newest()
    return pointer && { position: positionOf(pointer), age: 0, bytes: { [Symbol.asyncIterator]: () => this.#chunks(pointer) } }
  }

  async keep(at: Position, bytes: AsyncIterable<Uint8Array>): Promise<'kept' | 'older'> {
    if (await this.#outdated(at)) return 'older'
    const id = this.#clock.bits()
    let written: number | undefined
    try {
      written = await this.#write(at, id, bytes)
    } finally {
      if (written === undefined) await this.#drop(at, id)
    }
    // From here on the snapshot may be in force even if the call fails. If it is not, a later snapshot deletes its chunks.
    const before = await this.#activate({ index: at.index, nonce: at.nonce.toString(), id: id.toString(), chunks: written }, at)
    if (before === 'older') await this.#drop(at, id)
    // The snapshot is in force, even if this fails. What is left is deleted after the next one.
    else await this.#tidy(before?.index ?? 0).catch(() => {})
    return before === 'older' ? 'older' : 'kept'
  }

  async #write({ index }: Position, id: bigint, bytes: AsyncIterable<Uint8Array>): Promise<number> {
    let [chunks, pieces, size] = [0, [] as Uint8Array[], 0]
    const flush = async (least: number) => {
      let rest = Buffer.concat(pieces)
      for (; rest.length >= least && rest.length > 0; rest = rest.subarray(CHUNK_BYTES)) {
        const value = base64(await packAsync(rest.subarray(0, CHUNK_BYTES)))
        await this.#gateway.call('/kv/put', { key: this.#keys.chunk(index, id, chunks++), value })
      }
      ;[pieces, size] = [[rest], rest.length]
    }
    for await (const piece of bytes) {
      pieces.push(piece.slice())
      size += piece.length
      if (size >= CHUNK_BYTES) await flush(CHUNK_BYTES)
    }
    await flush(1)
    return chunks
  }

  /** Puts the snapshot in force and returns the previous one, or 'older' if a newer one is in force. */
  async #activate(pointer: Pointer, at: Position): Promise<Pointer | undefined | 'older'> {
    const copies: Copies = { uncertain: false }
    try {
      return await this.#movePointer(pointer, at, copies)
    } catch (error) {
      throw copies.uncertain ? maybeDone(error) : error
    }
  }

  async #movePointer(pointer: Pointer, at: Position, copies: Copies): Promise<Pointer | undefined | 'older'> {
    let last: Pointer | undefined
    for (;;) {
      const { pointer: before, revision } = await this.#newest()
      if (before?.id === pointer.id) return last // a copy whose answer was lost took effect
      if (before !== undefined && before.index >= at.index) return 'older'
      const compare = [
        { key: this.#keys.newest, target: 'MOD', result: 'EQUAL', mod_revision: revision } as const,
        exists(this.#keys.record(at)),
      ]
      const success = [put(this.#keys.newest, base64(JSON.stringify(pointer)))]
      const { succeeded } = await this.#log.transact({ compare, success, failure: [] }, copies)
      if (succeeded) return before
      if (await this.#gone(at)) return 'older'
      last = before
    }
  }

  async #outdated(at: Position): Promise<boolean> {
    const { pointer } = await this.#newest()
    return at.index <= (pointer?.index ?? 0) || this.#gone(at)
  }

  /** Returns whether the position was trimmed. */
  async #gone(at: Position): Promise<boolean> {
    const looked = await this.#log.look(at)
    if (looked.kind === 'diverged') throw new LeaseError('DIVERGED', `no snapshot can be kept of ${at.index}: ${looked.reason}`)
    return looked.kind === 'trimmed'
  }

  async #newest(): Promise<{ readonly pointer: Pointer | undefined; readonly revision: string }> {
    const { kvs: [kv] = [] } = await this.#gateway.call<RangeAnswer>('/kv/range', { key: this.#keys.newest })
    return { pointer: kv && pointerOf(kv), revision: kv?.mod_revision ?? '0' }
  }

  async *#chunks({ index, id, chunks }: Pointer): AsyncGenerator<Uint8Array> {
    for (let chunk = 0; chunk < chunks; chunk++) {
      const key = this.#keys.chunk(index, BigInt(id), chunk)
      const { kvs: [kv] = [] } = await this.#gateway.call<RangeAnswer>('/kv/range', { key })
      if (kv === undefined)
        throw new LeaseError('UNAVAILABLE', `the snapshot of ${index} was deleted while it was read: start again from the newest`)
      yield unpack(Buffer.from(kv.value ?? '', 'base64'))
    }
  }

  /** Deletes the records, chunks and parts before `floor`, oldest first, so that the log never has a hole. */
  async #tidy(floor: number): Promise<void> {
    const { kvs: [first] = [] } = await this.#gateway.call<RangeAnswer>('/kv/range', { ...this.#keys.log, limit: 1, keys_only: true })
    for (let from = first ? this.#keys.position(first.key).index : floor; from < floor; from += DELETE_AT_ONCE)
      await this.#delete(this.#keys.records(from, Math.min(from + DELETE_AT_ONCE, floor)))
    await this.#delete(this.#keys.chunksBefore(floor))
    if (floor > PARTS_WITHIN) await this.#delete(this.#keys.partsBefore(floor - PARTS_WITHIN))
  }

  async #drop({ index }: Position, id: bigint): Promise<void> {
    await this.#delete(this.#keys.chunks(index, id)).catch(() => {})
  }

  async #delete(range: KeyRange): Promise<void> {
    await this.#gateway.call('/kv/deleterange', range)
  }
}

function pointerOf({ value = '' }: KeyValue): Pointer {
  return JSON.parse(Buffer.from(value, 'base64').toString()) as Pointer
}

function positionOf({ index, nonce }: Pointer): Position {
  return { index, nonce: BigInt(nonce) }
}
