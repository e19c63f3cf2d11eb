/**
 * A backup: the whole state of a log at one revision, as the bytes of a file.
 *
 *   "leasehold-backup" · format (1 byte) · the chunks of a kernel snapshot, each after its length (4 bytes) · length 0 · SHA-256 of all before
 *
 * Not guaranteed: what was decided after it was taken, including renewals that an owner kept in memory; so a restore begins a new generation
 * (restore.ts). Guaranteed: it is the complete state at one revision, and a damaged backup is distinguished from one of another format.
 */
import { createHash } from 'node:crypto'
import { LeaseError } from '../errors.ts'
import { NewerFormatError, OlderFormatError } from '../kernel/codec/bytes.ts'
import { FORMAT, refuseNewer, refuseOlder } from '../kernel/codec/format.ts'
import { StateLoader } from '../kernel/codec/snapshot.ts'
import type { State } from '../kernel/state.ts'
import { frameChunk, readFrames } from './frame.ts'

const MAGIC = new TextEncoder().encode('leasehold-backup')
const HEAD = MAGIC.length + 1
const DIGEST = 32

/** Writes a backup of the chunks of a snapshot. */
export async function* backupBytes(chunks: Iterable<Uint8Array>): AsyncGenerator<Uint8Array, void, void> {
  const hash = createHash('sha256')
  const counted = (bytes: Uint8Array) => {
    hash.update(bytes)
    return bytes
  }
  yield counted(new Uint8Array([...MAGIC, FORMAT]))
  for (const chunk of chunks) yield counted(frameChunk(chunk))
  yield counted(frameChunk(new Uint8Array(0)))
  yield new Uint8Array(hash.digest())
}

/** Reads the state in a backup. Throws `INVALID` if it is damaged or no backup, `UNSUPPORTED` if it is of another format. Never returns a part of it. */
export async function readBackup(pieces: AsyncIterable<Uint8Array>): Promise<State> {
  const loader = new StateLoader()
  let ended = false
  try {
    for await (const chunk of readFrames(checked(pieces))) {
      if (ended) throw new Error('it goes on after its end')
      if (chunk.length === 0) ended = true
      else loader.add(chunk)
    }
    if (!ended) throw new Error('it is cut off')
    return loader.finish()
  } catch (error) {
    const { message, code } = error as NodeJS.ErrnoException
    if (error instanceof LeaseError || code !== undefined) throw error // the bytes could not be read
    if (error instanceof NewerFormatError) throw unsupported(`a newer leasehold (${message}): restore it with that one`, error)
    if (error instanceof OlderFormatError) throw unsupported(`an earlier build (${message}): restore it with that build`, error)
    throw new LeaseError('INVALID', `this backup is damaged: ${message}. Nothing was changed`, { cause: error })
  }
}

/** Yields the bytes between the header and the digest, and checks both. The last bytes are held back until the digest is known to be right. */
async function* checked(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array, void, void> {
  const hash = createHash('sha256')
  let held = new Uint8Array(0)
  let begun = false
  for await (const piece of pieces) {
    held = joined(held, piece)
    if (!begun) {
      if (held.length < HEAD) continue
      if (MAGIC.some((byte, i) => held[i] !== byte)) throw new LeaseError('INVALID', 'this file is not a backup of leasehold')
      refuseNewer(held[MAGIC.length])
      refuseOlder(held[MAGIC.length]!)
      hash.update(held.subarray(0, HEAD))
      held = held.subarray(HEAD)
      begun = true
    }
    if (held.length <= DIGEST) continue
    const sure = held.subarray(0, held.length - DIGEST)
    held = held.subarray(held.length - DIGEST)
    hash.update(sure)
    yield sure
  }
  if (!begun) throw new LeaseError('INVALID', 'this file is not a backup of leasehold')
  if (!hash.digest().equals(held)) throw new Error('its bytes are not those that were written')
}

function joined(a: Uint8Array, b: Uint8Array): Uint8Array<ArrayBuffer> {
  const all = new Uint8Array(a.length + b.length)
  all.set(a)
  all.set(b, a.length)
  return all
}

function unsupported(made: string, cause: unknown): LeaseError {
  return new LeaseError('UNSUPPORTED', `this backup was made by ${made}. Nothing was changed`, { cause })
}
