/**
 * The value of a record's key: its marks (last-marks.ts), and its bytes or a reference to parts under other keys. Parts are used if the record is too large for one
 * request, and if it is tried at several indexes at once: then each index carries a short reference, and the bytes are sent once.
 *
 * Records are deflated, because batches repeat themselves and shrink to a fraction. Every byte is copied by the gateway, log, disk and
 * watch of several members, and counts against etcd's quota until it is compacted.
 */
import { promisify } from 'node:util'
import { deflateRaw, deflateRawSync, inflateRawSync } from 'node:zlib'
import { LeaseError } from '../../errors.ts'
import type { Position } from '../../store.ts'
import { type LastMarks, NO_MARKS } from '../last-marks.ts'
import type { Gateway } from './gateway.ts'
import { base64, type EtcdKeys } from './keys.ts'
import { type EtcdOperation, put, range, type TransactionAnswer } from './message.ts'

/** The largest record in one request. etcd accepts 1.5 MiB in a request, by default. */
export const INLINE_BYTES = 786_432
const PART_BYTES = 524_288
/** A record refers to parts that were put at most this many indexes before it. No record refers to older parts, so they can be deleted. */
export const PARTS_WITHIN = 1_000
/** Records whose parts are fetched in one request. */
const AT_ONCE = 64
const [PLAIN, PARTS, DEFLATED] = [0, 1, 2] as const
/** Smaller values, in bytes, are not deflated. */
const WORTH_PACKING = 512
/** Far more than any record. A value that inflates to more was not written by this program. */
const LARGEST = 1 << 28

const MARK_BYTES = 6

/** A record as stored in etcd: its value is the bytes, packed, or a reference to parts. */
export interface EtcdRecord {
  readonly position: Position
  readonly marks: LastMarks
  readonly value: Buffer
}

/** The bytes under the key of a record: its marks, and its value. */
export function withMarks({ other, reads }: LastMarks, value: Uint8Array): Buffer {
  const whole = Buffer.allocUnsafe(2 * MARK_BYTES + value.length)
  whole.writeUIntBE(other, 0, MARK_BYTES)
  whole.writeUIntBE(reads, MARK_BYTES, MARK_BYTES)
  whole.set(value, 2 * MARK_BYTES)
  return whole
}

/** A value that is too short was not written by this program, and has no bytes either. */
export function splitMarks(whole: Buffer): { readonly marks: LastMarks; readonly value: Buffer } {
  const value = whole.subarray(2 * MARK_BYTES)
  if (value.length === 0) return { marks: NO_MARKS, value }
  return { marks: { other: whole.readUIntBE(0, MARK_BYTES), reads: whole.readUIntBE(MARK_BYTES, MARK_BYTES) }, value }
}

/** A value that contains the bytes themselves. */
export function pack(bytes: Uint8Array): Buffer {
  return smaller(bytes, bytes.length < WORTH_PACKING ? bytes : deflateRawSync(bytes, { level: 1 }))
}

/** As `pack`, for large values: it does not block the event loop. */
export async function packAsync(bytes: Uint8Array): Promise<Buffer> {
  return smaller(bytes, await promisify(deflateRaw)(bytes, { level: 1 }))
}

function smaller(bytes: Uint8Array, deflated: Uint8Array): Buffer {
  const [kind, chosen] = deflated.length < bytes.length ? ([DEFLATED, deflated] as const) : ([PLAIN, bytes] as const)
  const value = Buffer.allocUnsafe(1 + chosen.length)
  value[0] = kind
  value.set(chosen, 1)
  return value
}

export function unpack(value: Buffer): Uint8Array {
  return value[0] === DEFLATED ? inflateRawSync(value.subarray(1), { maxOutputLength: LARGEST }) : value.subarray(1)
}

export class Parts {
  readonly #gateway: Gateway
  readonly #keys: EtcdKeys

  constructor({ gateway, keys }: { readonly gateway: Gateway; readonly keys: EtcdKeys }) {
    this.#gateway = gateway
    this.#keys = keys
  }

  /** The operations that put the parts, and the value that refers to them. `base`: the index of the writer's position. */
  split(packed: Buffer, base: number, nonce: bigint): { readonly puts: readonly EtcdOperation[]; readonly value: Buffer } {
    const puts: EtcdOperation[] = []
    for (let at = 0; at < packed.length; at += PART_BYTES)
      puts.push(put(this.#keys.part(base, nonce, puts.length), base64(packed.subarray(at, at + PART_BYTES))))
    return { puts, value: Buffer.concat([Uint8Array.of(PARTS), Buffer.from(`${base} ${puts.length}`)]) }
  }

  /** The keys of the parts; none if the value contains the bytes themselves. */
  keysOf({ position: { nonce }, value }: EtcdRecord): string[] {
    if (value[0] !== PARTS) return []
    const [base, count] = value.subarray(1).toString().split(' ').map(Number) as [number, number]
    return Array.from({ length: count }, (_, part) => this.#keys.part(base, nonce, part))
  }

  /** The record with its bytes in place of the reference, if all its parts are in `parts`. */
  whole(stored: EtcdRecord, parts: ReadonlyMap<string, Buffer>): EtcdRecord {
    const keys = this.keysOf(stored)
    if (keys.length === 0 || !keys.every(key => parts.has(key))) return stored
    return { ...stored, value: Buffer.concat(keys.map(key => parts.get(key)!)) }
  }

  /** The bytes of the first of these records, until they exceed `most`. Fetches parts of many small records in one request. */
  async bytes(stored: readonly EtcdRecord[], most: number): Promise<Uint8Array[]> {
    const found: Uint8Array[] = []
    let size = 0
    for (let at = 0; at < stored.length && size <= most; ) {
      const keys = this.keysOf(stored[at]!)
      if (keys.length === 0) {
        found.push(unpack(stored[at++]!.value))
        size += found.at(-1)!.length
        continue
      }
      const several = stored.slice(at, at + AT_ONCE).map(record => this.keysOf(record))
      const end = several.findIndex(({ length }) => length !== 1)
      const together = keys.length > 1 ? [keys] : several.slice(0, end < 0 ? undefined : end)
      const pieces = await this.#fetch(together.flat())
      for (const { length } of together) {
        found.push(unpack(Buffer.concat(pieces.splice(0, length))))
        size += found.at(-1)!.length
      }
      at += together.length
    }
    return found
  }

  async #fetch(keys: readonly string[]): Promise<Buffer[]> {
    const request = { compare: [], success: keys.map(key => range({ key })), failure: [] }
    const { responses = [] } = await this.#gateway.call<TransactionAnswer>('/kv/txn', request)
    return responses.map(({ response_range }) => {
      const [kv] = response_range?.kvs ?? []
      if (kv === undefined) throw new LeaseError('UNAVAILABLE', 'parts of a record were trimmed while it was read: read again')
      return Buffer.from(kv.value ?? '', 'base64')
    })
  }
}
