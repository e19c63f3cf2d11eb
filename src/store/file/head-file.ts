/**
 * The last acknowledged position, in a small file beside the log.
 *
 * If the end of a write-ahead file cannot be read, SQLite assumes that it was never acknowledged, and silently drops it. This file records
 * what was acknowledged. It is written after each commit and never synced, so after a power loss it may be old. A log that ends before this
 * position has lost its tail. A log that ends after it is intact.
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

  /** As `read`, without creating the file. */
  static read(path: string): number {
    if (mustBePrivate(path) === undefined) return 0
    const file = openPrivately(path, constants.O_RDONLY)
    try {
      return indexIn(file)
    } finally {
      closeSync(file)
    }
  }

  /** The index that the log must reach; 0 if the file is empty or damaged, and therefore says nothing. */
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
      // The commit is valid without it. The next commit writes it again.
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
