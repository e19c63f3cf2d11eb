/**
 * Snapshots of a log: one file each, in the folder of the segments. A snapshot is in force once its file has its name, which has the position; the newest two
 * are kept, so that a reader of the last but one can finish. docs/file-format.md describes the bytes.
 */
import { crc32 } from 'node:zlib'
import type { Clock } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import type { Position, Snapshot } from '../../store.ts'
import { rechunk } from '../rechunk.ts'
import { damaged, fileError } from './errors.ts'
import { age, type Stamp, stamp } from './frame.ts'
import type { LogFile, LogFolder, NewLogFile } from './log-folder.ts'
import { TEMPORARY } from './segment-maker.ts'

const SUFFIX = '.snapshot'
const MAGIC = Buffer.from('LhSnaps1', 'latin1')
const HEADER = 256
const MAX_BOOT = 200
/** The length of a chunk and its checksum. The last chunk has no bytes, and the number of chunks instead of a checksum. */
const CHUNK_HEADER = 8
/** Bytes in one chunk. */
const CHUNK = 262_144
const KEPT = 2

export interface SnapshotFilesOptions {
  readonly folder: LogFolder
  readonly clock: Clock
  /** The path of the log, for messages. */
  readonly path: string
  /** Distinguishes the temporary files of this process. */
  readonly writer: () => string
}

export class SnapshotFiles {
  readonly #folder: LogFolder
  readonly #clock: Clock
  readonly #path: string
  readonly #writer: () => string
  #written = 0

  constructor({ folder, clock, path, writer }: SnapshotFilesOptions) {
    this.#folder = folder
    this.#clock = clock
    this.#path = path
    this.#writer = writer
  }

  /** The positions of the snapshots, the newest first. */
  async positions(): Promise<Position[]> {
    const names = await this.#folder.list()
    return names.flatMap(name => positionIn(name) ?? []).sort((a, b) => b.index - a.index)
  }

  /** The newest snapshot. Its header is checked now, its chunks as they are read. */
  async newest(): Promise<Snapshot | undefined> {
    for (;;) {
      const [position] = await this.positions()
      if (position === undefined) return undefined
      const file = await this.#open(position)
      if (file === undefined) continue // two newer ones were saved meanwhile
      try {
        const taken = await this.#header(file, position)
        const bytes = () => this.#chunks(position)
        return { position, age: age(taken, stamp(this.#clock)), bytes: { [Symbol.asyncIterator]: bytes } }
      } finally {
        await file.close()
      }
    }
  }

  /** Writes a snapshot. It is in force once it is kept. */
  async write(position: Position, bytes: AsyncIterable<Uint8Array>): Promise<NewLogFile> {
    const file = await this.#folder.create(`snapshot-${this.#writer()}-${++this.#written}${TEMPORARY}`).catch(error => {
      throw fileError(error, this.#path)
    })
    const put = (part: Uint8Array, at: number) =>
      file.write(part, at).catch(error => {
        throw fileError(error, this.#path)
      })
    try {
      let at = HEADER
      let count = 0
      await put(encodeHeader(position, stamp(this.#clock)), 0)
      for await (const chunk of rechunk(CHUNK, bytes)) {
        const whole = Buffer.concat([chunkHeader(chunk.length, crc32(chunk)), chunk])
        await put(whole, at)
        at += whole.length
        count++
      }
      await put(chunkHeader(0, count), at)
      return file
    } catch (error) {
      await file.drop()
      throw error
    }
  }

  async keep(file: NewLogFile, position: Position): Promise<void> {
    try {
      await file.keep(nameOf(position))
    } catch (error) {
      await file.drop()
      throw fileError(error, this.#path, 'perhaps')
    }
  }

  /** Removes all but the newest. A failure leaves them for the next time. */
  async trim(): Promise<void> {
    for (const position of (await this.positions()).slice(KEPT)) await this.#folder.remove(nameOf(position))
  }

  async *#chunks(position: Position): AsyncGenerator<Uint8Array> {
    const file = await this.#open(position)
    if (file === undefined)
      throw new LeaseError('UNAVAILABLE', 'two newer snapshots were saved while this one was read: start again from the newest')
    try {
      for (let [at, count] = [HEADER, 0]; ; count++) {
        const header = await this.#read(file, CHUNK_HEADER, at)
        const [length, sum] = header === undefined ? [0, -1] : [header.readUInt32LE(0), header.readUInt32LE(4)]
        if (length === 0 && sum === count) return
        const chunk = length === 0 || length > CHUNK ? undefined : await this.#read(file, length, at + CHUNK_HEADER)
        if (chunk === undefined || crc32(chunk) !== sum)
          throw damaged(this.#path, `part ${count} of the snapshot of ${position.index} does not match its checksum`)
        yield chunk
        at += CHUNK_HEADER + length
      }
    } finally {
      await file.close()
    }
  }

  #open(position: Position): Promise<LogFile | undefined> {
    return this.#folder.open(nameOf(position)).catch(error => {
      throw fileError(error, this.#path)
    })
  }

  /** Checks the header, and returns when the snapshot was taken. */
  async #header(file: LogFile, position: Position): Promise<Stamp> {
    const bytes = await this.#read(file, HEADER, 0)
    const taken = bytes && decodeHeader(bytes, position)
    if (taken === undefined) throw damaged(this.#path, `the snapshot of ${position.index} does not match its checksum`)
    return taken
  }

  async #read(file: LogFile, length: number, at: number): Promise<Buffer | undefined> {
    const bytes = Buffer.allocUnsafe(length)
    const read = await file.read(bytes, at).catch(error => {
      throw fileError(error, this.#path)
    })
    return read === length ? bytes : undefined
  }
}

function encodeHeader({ index, nonce }: Position, { boot, at }: Stamp): Buffer {
  const bytes = Buffer.alloc(HEADER)
  MAGIC.copy(bytes)
  bytes.writeDoubleLE(index, 8)
  bytes.writeBigUInt64LE(nonce, 16)
  bytes.writeDoubleLE(at, 24)
  bytes.writeUInt32LE(bytes.write(boot.slice(0, MAX_BOOT), 36, 'latin1'), 32)
  bytes.writeUInt32LE(crc32(bytes.subarray(0, HEADER - 4)), HEADER - 4)
  return bytes
}

function decodeHeader(bytes: Buffer, { index, nonce }: Position): Stamp | undefined {
  if (!bytes.subarray(0, MAGIC.length).equals(MAGIC) || bytes.readUInt32LE(HEADER - 4) !== crc32(bytes.subarray(0, HEADER - 4)))
    return undefined
  if (bytes.readDoubleLE(8) !== index || bytes.readBigUInt64LE(16) !== nonce) return undefined
  return { at: bytes.readDoubleLE(24), boot: bytes.toString('latin1', 36, 36 + bytes.readUInt32LE(32)) }
}

function chunkHeader(length: number, sum: number): Buffer {
  const bytes = Buffer.allocUnsafe(CHUNK_HEADER)
  bytes.writeUInt32LE(length, 0)
  bytes.writeUInt32LE(sum, 4)
  return bytes
}

function nameOf({ index, nonce }: Position): string {
  return `${String(index).padStart(16, '0')}-${nonce.toString(16).padStart(16, '0')}${SUFFIX}`
}

function positionIn(name: string): Position | undefined {
  const [, index, nonce] = /^(\d{16})-([0-9a-f]{16})\.snapshot$/.exec(name) ?? []
  return index === undefined ? undefined : { index: Number(index), nonce: BigInt(`0x${nonce}`) }
}
