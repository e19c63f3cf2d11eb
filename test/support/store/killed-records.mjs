// The records that dying-writer.mjs appends.
import { createHash } from 'node:crypto'

/** Bytes: small records, and some that soon fill a segment. */
const SIZES = [10, 300, 70_000, 1_200, 150_000, 40, 9_000, 200_000]

/** The bytes of the record with this name, which ends with a number. */
export function bytesOf(name) {
  return Buffer.from(`${name} `.padEnd(SIZES[Number(name.split('/')[1]) % SIZES.length], 'x'))
}

/** The hash of all records up to one of them. */
export function hashAfter(hash, bytes) {
  return createHash('sha256').update(hash).update(bytes).digest('hex')
}
