/**
 * The last acknowledged position, in a small file beside the log.
 *
 * SQLite takes a write-ahead file whose end cannot be read for one that was torn before it was acknowledged, and drops that end without a
 * word. This file says what had been acknowledged. It is written after each commit and never synced, so after a loss of power it may be
 * old: a log that ends before it has lost its tail, one that ends after it is as it should be.
 */
import { closeSync, constants, openSync, readSync, writeSync } from 'node:fs'
import { crc32 } from 'node:zlib'
import type { Position } from '../store.ts'

export class Witness {
  readonly #file: number
  readonly #record = Buffer.alloc(20)

  constructor(path: string) {
    this.#file = openSync(path, constants.O_RDWR | constants.O_CREAT, 0o600)
  }

  /** The log must reach this index. 0 when nothing was written, or what was written cannot be read: then it knows nothing. */
  read(): number {
    const record = Buffer.alloc(20)
    if (readSync(this.#file, record, 0, 20, 0) < 20) return 0
    return record.readUInt32LE(16) === crc32(record.subarray(0, 16)) ? record.readDoubleLE(0) : 0
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
