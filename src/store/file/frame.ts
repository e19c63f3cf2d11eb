/**
 * The bytes of a segment: a header, then one frame for each record, then zeros. docs/file-format.md describes them for other programs.
 *
 * A frame names the record before it, so that frames of an older copy of the log never look like its continuation. Every frame has a checksum over all its
 * bytes but the first four.
 */
import { crc32 } from 'node:zlib'
import type { Clock } from '../../clock.ts'
import type { Position } from '../../store.ts'

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

export interface Frame {
  readonly position: Position
  /** The nonce of the record before. */
  readonly before: bigint
  readonly stamp: Stamp
  readonly bytes: Uint8Array
  /** Its bytes in the segment. */
  readonly length: number
}

/** 'Lhf1' */
const FRAME = 0x3166684c
export const FRAME_HEADER = 48
const MAX_BOOT = 200
/** Frames begin at multiples of this. */
export const ALIGNMENT = 8

export function encodeFrame({ index, nonce }: Position, before: bigint, { boot, at }: Stamp, bytes: Uint8Array): Buffer {
  const name = Buffer.from(boot.slice(0, MAX_BOOT), 'latin1')
  const end = FRAME_HEADER + name.length + bytes.length
  const frame = Buffer.allocUnsafe(Math.ceil(end / ALIGNMENT) * ALIGNMENT)
  frame.fill(0, end)
  frame.writeUInt32LE(FRAME, 0)
  frame.writeUInt32LE(bytes.length, 8)
  frame.writeUInt32LE(name.length, 12)
  frame.writeDoubleLE(index, 16)
  frame.writeBigUInt64LE(nonce, 24)
  frame.writeBigUInt64LE(before, 32)
  frame.writeDoubleLE(at, 40)
  name.copy(frame, FRAME_HEADER)
  frame.set(bytes, FRAME_HEADER + name.length)
  frame.writeUInt32LE(crc32(frame.subarray(8)), 4)
  return frame
}

/** The frame at `offset`; `none` if zeros are there, `torn` if something else is there. A number: so many bytes from `offset` on are needed to tell. */
export function decodeFrame(bytes: Buffer, offset: number): Frame | 'none' | 'torn' | number {
  if (offset + 4 > bytes.length) return FRAME_HEADER
  const magic = bytes.readUInt32LE(offset)
  if (magic === 0) return 'none'
  if (magic !== FRAME) return 'torn'
  if (offset + FRAME_HEADER > bytes.length) return FRAME_HEADER
  const [size, boot] = [bytes.readUInt32LE(offset + 8), bytes.readUInt32LE(offset + 12)]
  if (boot > MAX_BOOT) return 'torn'
  const length = Math.ceil((FRAME_HEADER + boot + size) / ALIGNMENT) * ALIGNMENT
  if (offset + length > bytes.length) return length
  if (bytes.readUInt32LE(offset + 4) !== crc32(bytes.subarray(offset + 8, offset + length))) return 'torn'
  const from = offset + FRAME_HEADER
  return {
    position: { index: bytes.readDoubleLE(offset + 16), nonce: bytes.readBigUInt64LE(offset + 24) },
    before: bytes.readBigUInt64LE(offset + 32),
    stamp: { boot: bytes.toString('latin1', from, from + boot), at: bytes.readDoubleLE(offset + 40) },
    bytes: bytes.subarray(from + boot, from + boot + size),
    length,
  }
}

/** Returns whether a whole frame begins at one of the aligned places behind `offset`. */
export function hasFrameBehind(bytes: Buffer, offset: number): boolean {
  for (let at = offset + ALIGNMENT; at + FRAME_HEADER <= bytes.length; at += ALIGNMENT)
    if (bytes.readUInt32LE(at) === FRAME && typeof decodeFrame(bytes, at) === 'object') return true
  return false
}

export interface SegmentHeader {
  /** The same in all segments of a log. */
  readonly log: bigint
  /** The index of its first record. */
  readonly first: number
  /** The nonce of the record before that. */
  readonly before: bigint
}

const SEGMENT = Buffer.from('LhSegmt1', 'latin1')
export const SEGMENT_HEADER = 64

export function encodeSegmentHeader({ log, first, before }: SegmentHeader): Buffer {
  const bytes = Buffer.alloc(SEGMENT_HEADER)
  SEGMENT.copy(bytes)
  bytes.writeBigUInt64LE(log, 8)
  bytes.writeDoubleLE(first, 16)
  bytes.writeBigUInt64LE(before, 24)
  bytes.writeUInt32LE(crc32(bytes.subarray(0, SEGMENT_HEADER - 4)), SEGMENT_HEADER - 4)
  return bytes
}

/** Undefined if the bytes are no header. */
export function decodeSegmentHeader(bytes: Buffer): SegmentHeader | undefined {
  if (bytes.length < SEGMENT_HEADER || !bytes.subarray(0, SEGMENT.length).equals(SEGMENT)) return undefined
  if (bytes.readUInt32LE(SEGMENT_HEADER - 4) !== crc32(bytes.subarray(0, SEGMENT_HEADER - 4))) return undefined
  return { log: bytes.readBigUInt64LE(8), first: bytes.readDoubleLE(16), before: bytes.readBigUInt64LE(24) }
}
