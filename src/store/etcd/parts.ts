/**
 * The value of an entry's key: its bytes, or where they lie. They lie elsewhere when they are too large for one request, and when the
 * same entry is tried at several indexes at once: then each of these carries a few bytes, and the entry travels once.
 *
 * Batches repeat themselves and shrink to a fraction. Every byte is copied by gateway, log, disk and watch of several members, and counts
 * against etcd's quota until it is compacted, so the little work of packing pays many times.
 */
import { promisify } from 'node:util'
import { deflateRaw, deflateRawSync, inflateRawSync } from 'node:zlib'
import { LeaseError } from '../../errors.ts'
import type { Position } from '../../store.ts'
import type { Gateway } from './gateway.ts'
import { base64, type EtcdKeys } from './keys.ts'
import { type EtcdOperation, put, range, type TransactionAnswer } from './message.ts'

/** etcd takes 1.5 MiB in one request. */
export const INLINE_BYTES = 786_432
const PART_BYTES = 524_288
/** Entries refer to parts that were begun at most so many entries before: older parts belong to nobody. */
export const PARTS_WITHIN = 1_000
/** Fetched at a time. */
const AT_ONCE = 64
const [PLAIN, PARTS, DEFLATED] = [0, 1, 2] as const
/** Below this there is little to gain. */
const WORTH_PACKING = 512
/** Far more than any entry: a value that grows beyond was not written by us. */
const LARGEST = 1 << 28

/** An entry as it stands in etcd. */
export interface EtcdRecord {
  readonly position: Position
  readonly value: Buffer
}

/** As a value that holds the bytes itself. */
export function pack(bytes: Uint8Array): Buffer {
  return smaller(bytes, bytes.length < WORTH_PACKING ? bytes : deflateRawSync(bytes, { level: 1 }))
}

/** The same for what is large: the loop goes on meanwhile. */
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

  /** What has to be put, and the value that then refers to it. `base`: the index its writer stands on. */
  split(packed: Buffer, base: number, nonce: bigint): { readonly puts: readonly EtcdOperation[]; readonly value: Buffer } {
    const puts: EtcdOperation[] = []
    for (let at = 0; at < packed.length; at += PART_BYTES)
      puts.push(put(this.#keys.part(base, nonce, puts.length), base64(packed.subarray(at, at + PART_BYTES))))
    return { puts, value: Buffer.concat([Uint8Array.of(PARTS), Buffer.from(`${base} ${puts.length}`)]) }
  }

  /** The keys of the parts; none when the value holds the bytes itself. */
  keysOf({ position: { nonce }, value }: EtcdRecord): string[] {
    if (value[0] !== PARTS) return []
    const [base, count] = value.subarray(1).toString().split(' ').map(Number) as [number, number]
    return Array.from({ length: count }, (_, part) => this.#keys.part(base, nonce, part))
  }

  /** The same with its bytes, if all its parts are among these. */
  whole(stored: EtcdRecord, parts: ReadonlyMap<string, Buffer>): EtcdRecord {
    const keys = this.keysOf(stored)
    if (keys.length === 0 || !keys.every(key => parts.has(key))) return stored
    return { position: stored.position, value: Buffer.concat(keys.map(key => parts.get(key)!)) }
  }

  /** The bytes of all these. Parts are fetched for as many entries as fit into one answer. */
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
      const several = stored.slice(at, at + AT_ONCE).map(entry => this.keysOf(entry))
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
      if (kv === undefined) throw new LeaseError('UNAVAILABLE', 'parts of an entry were trimmed while it was read: read again')
      return Buffer.from(kv.value ?? '', 'base64')
    })
  }
}
