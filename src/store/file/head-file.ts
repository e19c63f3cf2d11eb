/**
 * The last acknowledged position, in a small file beside the log.
 *
 * It is written after each append and never synced, so after a power loss it may be old. A log that ends before this position has lost its tail; one that ends
 * after it is intact. Processes that read without the lock read up to this position, and are woken by its change.
 */
import { closeSync, constants, readSync, write, writeSync } from 'node:fs'
import { crc32 } from 'node:zlib'
import { mustBePrivate, openPrivately } from '../../private-file.ts'
import type { Position } from '../../store.ts'

const LENGTH = 20
/** Behind the position: bits that a process changes while it waits for the lock, so that the one that appends lets it have its turn. */
const WAITING = 8

export class HeadFile {
  readonly #file: number
  readonly #record = Buffer.alloc(LENGTH)
  readonly #waiting = Buffer.alloc(WAITING)
  #closed = false

  constructor(path: string) {
    this.#file = openPrivately(path, constants.O_RDWR | constants.O_CREAT)
  }

  /** As `read`, without creating the file. */
  static read(path: string): Position | undefined {
    if (mustBePrivate(path) === undefined) return undefined
    const file = openPrivately(path, constants.O_RDONLY)
    try {
      return positionIn(file)
    } finally {
      closeSync(file)
    }
  }

  /** The position that the log must reach; undefined if the file is empty or damaged, and therefore says nothing. */
  read(): Position | undefined {
    return positionIn(this.#file)
  }

  /** Calls `then` when it is written, or has failed: the append is valid without it, and the next one writes it again. */
  publish({ index, nonce }: Position, then: () => void): void {
    if (this.#closed) return then()
    this.#record.writeDoubleLE(index, 0)
    this.#record.writeBigUInt64LE(nonce, 8)
    this.#record.writeUInt32LE(crc32(this.#record.subarray(0, LENGTH - 4)), LENGTH - 4)
    write(this.#file, this.#record, 0, LENGTH, 0, then)
  }

  /** Tells the processes that append that this one waits for the lock. */
  markWaiting(bits: bigint): void {
    if (this.#closed) return
    this.#waiting.writeBigUInt64LE(bits)
    writeSync(this.#file, this.#waiting, 0, WAITING, LENGTH)
  }

  /** Returns what the last process that waited for the lock has written. */
  waiting(): bigint {
    return readSync(this.#file, this.#waiting, 0, WAITING, LENGTH) < WAITING ? 0n : this.#waiting.readBigUInt64LE()
  }

  close(): void {
    this.#closed = true
    closeSync(this.#file)
  }
}

function positionIn(file: number): Position | undefined {
  const record = Buffer.alloc(LENGTH)
  if (readSync(file, record, 0, LENGTH, 0) < LENGTH) return undefined
  if (record.readUInt32LE(LENGTH - 4) !== crc32(record.subarray(0, LENGTH - 4))) return undefined
  return { index: record.readDoubleLE(0), nonce: record.readBigUInt64LE(8) }
}
