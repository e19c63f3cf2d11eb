/** The state of a log that is kept in PATH: who owns it, and which segments belong to it. */
import { crc32 } from 'node:zlib'

export interface FileLogState {
  /** Changes whenever the log gets an owner, or becomes shared again. */
  readonly epoch: number
  /** The row of the user who owns the log; 0 if it is shared. */
  readonly owner: number
  /** All segments of the log have this id. */
  readonly log: bigint
}

const LENGTH = 28

export function encodeState({ epoch, owner, log }: FileLogState): Uint8Array {
  const bytes = Buffer.allocUnsafe(LENGTH)
  bytes.writeDoubleLE(epoch, 0)
  bytes.writeDoubleLE(owner, 8)
  bytes.writeBigUInt64LE(log, 16)
  bytes.writeUInt32LE(crc32(bytes.subarray(0, LENGTH - 4)), LENGTH - 4)
  return bytes
}

/** Undefined if the bytes do not match their checksum. */
export function decodeState(bytes: Uint8Array): FileLogState | undefined {
  if (bytes.length !== LENGTH) return undefined
  const view = Buffer.from(bytes.buffer, bytes.byteOffset, LENGTH)
  if (view.readUInt32LE(LENGTH - 4) !== crc32(view.subarray(0, LENGTH - 4))) return undefined
  return { epoch: view.readDoubleLE(0), owner: view.readDoubleLE(8), log: view.readBigUInt64LE(16) }
}
