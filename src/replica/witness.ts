/**
 * A witness: how far a log has come, as a text that clients keep. A client that reconnects presents it, and learns whether the log still contains what
 * the client saw.
 *
 * Not guaranteed: that every log which was put back to an older copy is noticed. A shared log has no runs, and only its newest records can be compared; a
 * client that received nothing after the copy was made has nothing to present. Guaranteed: a log that only grew, or whose leases were moved, is never taken
 * for one that was put back. The signature prevents clients from claiming records that never existed: only a witness that this log signed begins a generation.
 */
import { timingSafeEqual } from 'node:crypto'
import { Damaged, Reader, Writer } from '../kernel/codec/bytes.ts'
import type { Lineage } from '../kernel/state/lineage.ts'
import type { State } from '../kernel/state.ts'
import type { Position } from '../store.ts'
import { Hmac } from './hmac.ts'

/** The position and the counters of a log. */
export interface Witness {
  /** The id of the lineage; 0 if the log has none. */
  readonly log: number
  readonly run: number
  /** The nonce of the run; 0 if it has none. */
  readonly nonce: number
  readonly index: number
  /** The nonce of the record at `index`. */
  readonly record: bigint
  /** The counters, and for how long a holder may trust a grant. */
  readonly lease: number
  readonly token: number
  readonly revision: number
  readonly quiet: number
}

const VERSION = 1
const MAC_BYTES = 12
const LONGEST = 256
/** Keyed with the secret of the log that signed last. A process has one log, or a few. */
let hmac = new Hmac('', LONGEST)

export function witnessOf(state: State, { nonce: record }: Position): Witness {
  const { lineage, run, index, nextLease: lease, nextToken: token, revision, longest, quiet } = state
  const begun = lineage.runs.at(-1)
  const nonce = begun?.number === run.number ? begun.nonce : 0
  const covered = Math.max(longest, quiet?.duration ?? 0)
  return { log: lineage.id, run: run.number, nonce, index, record, lease, token, revision, quiet: covered }
}

/** For all witnesses: an owner keeps one with every record. */
const WRITER = new Writer(96)

/** Writes a witness without a signature, for the process itself. The bytes are overwritten by the next call. */
export function encodeWitness({ log, run, nonce, index, record, lease, token, revision, quiet }: Witness): Uint8Array {
  const to = WRITER
  to.length = 0
  to.byte(VERSION)
  for (const n of [log, run, nonce, index]) to.uint(n)
  to.uint32(Number(record >> 32n))
  to.uint32(Number(record & 0xffff_ffffn))
  for (const n of [lease, token, revision, quiet]) to.uint(n)
  return to.view()
}

/** Undefined when the bytes are no witness. */
export function decodeWitness(bytes: Uint8Array): Witness | undefined {
  try {
    const from = new Reader(bytes)
    if (from.byte() !== VERSION) return undefined
    const [log, run, nonce, index] = [from.uint(), from.uint(), from.uint(), from.uint()]
    const record = (BigInt(from.uint32()) << 32n) | BigInt(from.uint32())
    const [lease, token, revision, quiet] = [from.uint(), from.uint(), from.uint(), from.uint()]
    return from.left > 0 ? undefined : { log, run, nonce, index, record, lease, token, revision, quiet }
  } catch (error) {
    if (error instanceof Damaged || error instanceof RangeError) return undefined
    throw error
  }
}

/** Writes a witness with its signature, as text that fits into an HTTP header. */
export function writeWitness(witness: Witness, secret: string): string {
  const body = encodeWitness(witness)
  if (hmac.secret !== secret) hmac = new Hmac(secret, LONGEST)
  const mac = hmac.of(body).subarray(0, MAC_BYTES)
  // Clients read the first two parts, to tell which of two witnesses of one log is newer.
  return `${witness.log.toString(36)}.${witness.index}.${Buffer.concat([body, mac]).toString('base64url')}`
}

/** Undefined when the text is no witness. `signed`: this log has written it, possibly in records that it has lost since. */
export function readWitness(text: string, secret: string): (Witness & { readonly signed: boolean }) | undefined {
  if (text.length > LONGEST) return undefined
  const bytes = Buffer.from(text.slice(text.lastIndexOf('.') + 1), 'base64url')
  const body = bytes.subarray(0, Math.max(0, bytes.length - MAC_BYTES))
  const witness = decodeWitness(body)
  if (witness === undefined) return undefined
  if (hmac.secret !== secret) hmac = new Hmac(secret, LONGEST)
  // Without a secret there is no proof: every client could sign with an empty one.
  const signed = secret !== '' && timingSafeEqual(bytes.subarray(body.length), hmac.of(body).subarray(0, MAC_BYTES))
  return { ...witness, signed }
}

/** `lost`: the log does not contain what the client saw. The two differ at this record or before it. */
export type Verdict = 'contained' | { readonly lost: number }

/** `recordAt` returns the nonce of a record if it is known here. The state is at the end of the log, or beyond the witness. */
export function judge(state: State, seen: Witness, recordAt: (index: number) => bigint | undefined): Verdict {
  const { lineage, index } = state
  const { runs } = lineage
  const own = seen.log === lineage.id || (seen.log === 0 && !lineage.before.includes(0))
  if (!own) return lineage.before.includes(seen.log) ? 'contained' : { lost: forkOf(lineage, index) }
  if (seen.nonce !== 0) {
    const at = runs.findIndex(({ number }) => number === seen.run)
    // A run older than all known ones cannot be judged. A holder that trusts it has renewed nothing for hundreds of runs.
    if (at < 0 || runs[at]!.nonce !== seen.nonce) return { lost: forkOf(lineage, index) }
    const next = runs[at + 1]
    if (next !== undefined) return seen.index < next.index ? 'contained' : { lost: next.index }
  }
  if (seen.index > index) return { lost: index }
  const record = recordAt(seen.index)
  return record === undefined || record === seen.record ? 'contained' : { lost: seen.index }
}

/**
 * A log is put back while it has no owner, so before its present run began. How long before is unknown: a log that was put back once may be put back
 * again, to a copy from before the first time, whose generations came before the run that is lost now. So only a generation of the present run counts.
 */
function forkOf({ runs }: Lineage, index: number): number {
  return runs.at(-1)?.index ?? index
}

/** Returns whether a generation that is already in the log makes up for the loss that the witness proves. */
export function isCompensated({ lineage, nextLease, nextToken }: State, seen: Witness, fork: number): boolean {
  const { generation } = lineage
  return generation.index >= fork && generation.quiet >= seen.quiet && nextLease >= seen.lease && nextToken >= seen.token
}
