/**
 * The last acknowledged position, in a small file beside the log.
 *
 * SQLite takes a write-ahead file whose end cannot be read for one that was torn before it was acknowledged, and drops that end without a
 * word. This file says what had been acknowledged. It is written after each commit and never synced, so after a loss of power it may be
 * old: a log that ends before it has lost its tail, one that ends after it is as it should be.
 */
import { closeSync, constants, readSync, writeSync } from 'node:fs'
import { crc32 } from 'node:zlib'
import { mustBePrivate, openPrivately } from '../../private-file.ts'
import type { Position } from '../../store.ts'

export class HeadFile {
  readonly #file: number
  readonly #record = Buffer.alloc(20)

  constructor(path: string) {
    this.#file = openPrivately(path, constants.O_RDWR | constants.O_CREAT)
  }

  /** As `read`, without making the file when there is none. */
  static read(path: string): number {
    if (mustBePrivate(path) === undefined) return 0
    const file = openPrivately(path, constants.O_RDONLY)
    try {
      return indexIn(file)
    } finally {
      closeSync(file)
    }
  }

  /** The log must reach this index. 0 when nothing was written, or what was written cannot be read: then it knows nothing. */
  read(): number {
    return indexIn(this.#file)
  }

  write({ index, nonce }: Position): void {
    this.#record.writeDoubleLE(index, 0)
    this.#record.writeBigUInt64LE(nonce, 8)
    this.#record.writeUInt32LE(crc32(this.#record.subarray(0, 16)), 16)
    try {
      writeSync(this.#file, this.#record, 0, 20, 0)
    } catch {
      // The commit stands without it; the next one writes it again.
    }
  }

  close(): void {
    closeSync(this.#file)
  }
}

function indexIn(file: number): number {
  const record = Buffer.alloc(20)
  if (readSync(file, record, 0, 20, 0) < 20) return 0
  return record.readUInt32LE(16) === crc32(record.subarray(0, 16)) ? record.readDoubleLE(0) : 0
}
