/** The encoding of the rows, and their checksums: SQLite has none of its own. */
import { crc32 } from 'node:zlib'
import type { Clock } from '../../clock.ts'
import type { Position } from '../../store.ts'

/** The state of a log, in one row that every transaction reads. */
export interface FileLogState {
  /** Changes whenever the log gets an owner, or becomes shared again. */
  readonly epoch: number
  /** The last record. */
  readonly head: Position
  /** The last record that was trimmed. */
  readonly floor: Position
  /** The id of the snapshot in force; 0 if there is none. */
  readonly snapshot: number
  /** The row of the user who owns the log; 0 if it is shared. */
  readonly owner: number
}

export function encodeState({ epoch, head, floor, snapshot, owner }: FileLogState): Uint8Array {
  const bytes = Buffer.allocUnsafe(60)
  bytes.writeDoubleLE(epoch, 0)
  bytes.writeDoubleLE(head.index, 8)
  bytes.writeBigUInt64LE(head.nonce, 16)
  bytes.writeDoubleLE(floor.index, 24)
  bytes.writeBigUInt64LE(floor.nonce, 32)
  bytes.writeDoubleLE(snapshot, 40)
  bytes.writeDoubleLE(owner, 48)
  bytes.writeUInt32LE(crc32(bytes.subarray(0, 56)), 56)
  return bytes
}

/** Undefined if the bytes do not match their checksum. */
export function decodeState(bytes: Uint8Array): FileLogState | undefined {
  if (bytes.length !== 60) return undefined
  const view = Buffer.from(bytes.buffer, bytes.byteOffset, 60)
  if (view.readUInt32LE(56) !== crc32(view.subarray(0, 56))) return undefined
  return {
    epoch: view.readDoubleLE(0),
    head: { index: view.readDoubleLE(8), nonce: view.readBigUInt64LE(16) },
    floor: { index: view.readDoubleLE(24), nonce: view.readBigUInt64LE(32) },
    snapshot: view.readDoubleLE(40),
    owner: view.readDoubleLE(48),
  }
}

const fixed = Buffer.alloc(24)

export function sumOfRecord({ index, nonce }: Position, { boot, at }: Stamp, bytes: Uint8Array): number {
  fixed.writeDoubleLE(index, 0)
  fixed.writeBigUInt64LE(nonce, 8)
  fixed.writeDoubleLE(at, 16)
  return crc32(bytes, crc32(boot, crc32(fixed)))
}

export function sumOfSnapshot(id: number, { index, nonce }: Position, { boot, at }: Stamp, chunks: number): number {
  return crc32([id, index, nonce, boot, at, chunks].join())
}

export function sumOfChunk(id: number, bytes: Uint8Array): number {
  return crc32(bytes, crc32(String(id)))
}

/** A moment of one boot of this machine. */
export interface Stamp {
  readonly boot: string
  readonly at: number
}

export function stamp(clock: Clock): Stamp {
  return { boot: clock.boot(), at: clock.now() }
}

/** Only times of the same boot can be compared. 0 for any other. */
export function age({ boot, at }: Stamp, now: Stamp): number {
  return boot === now.boot && boot !== '' ? Math.max(0, now.at - at) : 0
}

/** The nonce as a signed integer, as SQLite stores it. */
export function signed(nonce: bigint): bigint {
  return BigInt.asIntN(64, nonce)
}

export function unsigned(nonce: bigint): bigint {
  return BigInt.asUintN(64, nonce)
}
