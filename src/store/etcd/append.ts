/**
 * Appends records to the log while other processes append theirs.
 *
 * **Several proposers.** A process that loses the race for an index has to use a later one. With a round trip for each lost race, the
 * processes nearest to etcd's leader always win and the others never do (measured; docs/decisions/stores.md). So one transaction tries several
 * indexes in turn: if the first is taken, a transaction nested in its other branch tries the next one. At the end it reads what follows, so
 * the answer shows what was missed and where the record is. Recent losses determine how many indexes are tried; alone, it is one.
 *
 * **A lost answer.** A copy of an append may take effect twice. All copies of one call have the same nonce, so a copy that is found shows
 * that the record has been appended. Until the nonce is found, or every index that was tried is known to be taken by another record, each
 * failure is `UNKNOWN`.
 *
 * **A renewal behind others** (`RenewalMark`) is put right after the last record, whose marks say whether it may. Its writer reads that record only.
 */
import { type Clock, pause } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import type { Appended, Position, Rejected, RenewalMark } from '../../store.ts'
import { MAYBE_DONE } from '../../unreachable-error.ts'
import { type LastMarks, marksAfter, passes } from '../last-marks.ts'
import { type Copies, maybeDone } from './gateway.ts'
import { base64 } from './keys.ts'
import { type EtcdLog, type FoundRecords, MAX_BYTES, MAX_RECORDS } from './log.ts'
import { absent, type EtcdOperation, type EtcdTransaction, exists, put } from './message.ts'
import { type EtcdRecord, INLINE_BYTES, PARTS_WITHIN, pack, withMarks } from './parts.ts'

/** The number of indexes that one transaction tries at most. */
const MAX_DEPTH = 24
/** If all copies in one transaction together exceed this, the record is sent once beside them. */
const COPIES_BYTES = 4_096
/** After this many wins that did not need all tries, one fewer is made. */
const EASY = 16
/** After this many lost races, each with one more try, something is wrong. */
const MAX_TRIES = 50
/** After this many lost races, pause between attempts. */
const EAGER = 8
/** After this many lost races a renewal that would be put behind others reads what it missed. */
const PASSING_TRIES = 3
const NOTHING = Buffer.alloc(0)

/** A record to be appended: the value of its key, and what has to be put beside it first. */
interface PackedRecord {
  readonly nonce: bigint
  /** The index of its writer's position when it put the parts, if there are any. */
  readonly from?: number
  readonly value: Buffer
  readonly renewal: RenewalMark | undefined
  readonly beside: readonly EtcdOperation[]
}

export class EtcdAppender {
  readonly #log: EtcdLog
  readonly #clock: Clock
  #depth = 1
  #easy = 0
  /** The nonce of the next append, drawn while the last answer was pending. */
  #nonce: bigint | undefined

  constructor({ log, clock }: { readonly log: EtcdLog; readonly clock: Clock }) {
    this.#log = log
    this.#clock = clock
  }

  async append(bytes: Uint8Array, after: Position, renewal?: RenewalMark): Promise<Appended> {
    const copies: Copies = { uncertain: false }
    try {
      return (await this.#pass(bytes, after, renewal, copies)) ?? (await this.#append(bytes, after, renewal, copies))
    } catch (error) {
      throw copies.uncertain ? maybeDone(error) : error
    }
  }

  /** Undefined: nothing was done, and the record is appended as others are. */
  async #pass(bytes: Uint8Array, after: Position, renewal: RenewalMark | undefined, copies: Copies): Promise<Appended | undefined> {
    if (renewal?.past === undefined || bytes.length > COPIES_BYTES) return undefined
    const { keys } = this.#log
    const value = pack(bytes)
    for (let tries = 1; tries <= PASSING_TRIES; tries++) {
      const last = await this.#log.endAfter(after)
      if (last === undefined || !passes(last.marks, last.position.index, renewal)) return undefined
      const position = { index: last.position.index + 1, nonce: this.#clock.bits() }
      const marks = marksAfter(last.marks, position.index, renewal)
      const { succeeded } = await this.#log.transact(
        {
          compare: [
            exists(keys.record(after)),
            exists(keys.record(last.position)),
            absent(keys.records(position.index, position.index + 1)),
          ],
          success: [put(keys.record(position), base64(withMarks(marks, value)))],
          failure: [],
        },
        copies,
      )
      if (succeeded) {
        this.#log.saw({ position, marks })
        return { kind: 'passed', position }
      }
      // The record that is in the way may be an earlier copy of this one.
      if (copies.uncertain) throw lostTrack()
    }
    return undefined
  }

  async #append(bytes: Uint8Array, after: Position, renewal: RenewalMark | undefined, copies: Copies): Promise<Appended> {
    let base = after
    let packed = await this.#pack(bytes, renewal, base)
    let missed: readonly EtcdRecord[] | undefined = []
    for (let tries = 1; tries <= MAX_TRIES; tries++) {
      const tried = this.#depth
      const got = await this.#attempt(packed, after, base, copies)
      if (got.kind !== 'found') return unlessUncertain(got, copies)
      const mine = got.records.findIndex(({ position }) => position.nonce === packed.nonce)
      if (mine >= 0) {
        this.#won(mine + 1)
        return this.#done(got.records[mine]!.position, missed && [...missed, ...got.records.slice(0, mine)])
      }
      // If other records have taken every index that was tried, no copy took effect, and none can any more.
      if (got.records.length >= tried) copies.uncertain = false
      if (got.count === 0) {
        // No record was in the way, so the position itself is gone.
        const gone = await this.#log.look(after)
        if (gone.kind !== 'found') return unlessUncertain(gone, copies)
      }
      if (copies.uncertain) throw lostTrack()
      this.#lost(got.count)
      missed = missed && got.count === got.records.length && fits([...missed, ...got.records]) ? [...missed, ...got.records] : undefined
      base = (missed === undefined ? await this.#log.end() : missed.at(-1)?.position) ?? after
      if (packed.from === undefined || base.index + MAX_DEPTH > packed.from + PARTS_WITHIN) packed = await this.#pack(bytes, renewal, base)
      else packed = { ...packed, beside: [] }
      if (tries > EAGER) await pause(this.#clock, this.#clock.random() * tries, undefined, { ref: true })
    }
    throw new LeaseError(
      'UNAVAILABLE',
      `other processes append to ${this.#log.keys.prefix} in etcd so fast that this one found no free index: nothing was done`,
    )
  }

  async #pack(bytes: Uint8Array, renewal: RenewalMark | undefined, { index: from }: Position): Promise<PackedRecord> {
    const nonce = this.#nonce ?? this.#clock.bits()
    this.#nonce = undefined
    const whole = pack(bytes)
    const alone = this.#depth === 1 && whole.length <= INLINE_BYTES
    if (alone || whole.length * this.#depth <= COPIES_BYTES) return { nonce, value: whole, renewal, beside: [] }
    const { puts, value } = this.#log.parts.split(whole, from, nonce)
    const packed = { nonce, from, value, renewal, beside: puts }
    if (whole.length <= INLINE_BYTES) return packed
    for (const one of puts) await this.#log.transact({ compare: [], success: [one], failure: [] })
    return { ...packed, beside: [] }
  }

  async #attempt(
    { nonce, value, renewal, beside }: PackedRecord,
    after: Position,
    base: Position,
    copies: Copies,
  ): Promise<FoundRecords | Rejected> {
    const { keys } = this.#log
    const depth = this.#depth
    const standing = [after, ...(base === after ? [] : [base])].map(position => exists(keys.record(position)))
    const at = (n: number): Position => ({ index: base.index + n, nonce })
    const before = this.#log.marksOf(base)
    // What stands between `base` and a later index is not known here: it counts as no renewal.
    const marks = (n: number): LastMarks =>
      marksAfter(n === 1 ? before : { other: base.index + n - 1, reads: before.reads }, base.index + n, renewal)
    const record = (n: number) => put(keys.record(at(n)), base64(withMarks(marks(n), value)))
    const free = (n: number) => absent(keys.records(base.index + n, base.index + n + 1))
    if (depth === 1) {
      const position = at(1)
      const success = [...beside, record(1)]
      const answer = this.#log.transact({ compare: [...standing, free(1)], success, failure: [] }, copies)
      this.#nonce ??= this.#clock.bits()
      const { succeeded } = await answer
      // A process alone hardly ever loses a race: reading what was missed each time would cost more than reading it then.
      if (!succeeded) return this.#log.look(base)
      const written = { position, marks: marks(1), value: NOTHING }
      this.#log.saw(written)
      return { kind: 'found', records: [written], count: 1, revision: 0n }
    }
    const level = (n: number): EtcdTransaction => ({
      compare: [free(n)],
      success: [record(n)],
      failure: n < depth ? [{ request_txn: level(n + 1) }] : [],
    })
    const success = [...beside, { request_txn: level(1) }, this.#log.following(base, depth)]
    const { succeeded, responses = [] } = await this.#log.transact({ compare: standing, success, failure: [] }, copies)
    if (!succeeded) return this.#log.look(base)
    return this.#log.parseRange(base, responses.at(-1)!.response_range!)
  }

  async #done(position: Position, missed: readonly EtcdRecord[] | undefined): Promise<Appended> {
    // The record is in the log, even if fetching what was missed fails.
    const records = missed && fits(missed) ? await this.#log.records(missed).catch(() => undefined) : undefined
    return records && records.length === missed?.length ? { kind: 'appended', position, missed: records } : { kind: 'behind', position }
  }

  #won(level: number): void {
    if (level === this.#depth) this.#easy = 0
    else if (++this.#easy >= EASY && this.#depth > 1) {
      this.#depth--
      this.#easy = 0
    }
  }

  /** A process that is far behind was merely away: it has not lost a race. */
  #lost(met: number): void {
    this.#depth = Math.min(MAX_DEPTH, Math.max(this.#depth, met < MAX_DEPTH ? met : 0) + 1)
    this.#easy = 0
  }
}

/** Nothing was appended, as far as the log shows. A copy may have been appended and trimmed since. */
function unlessUncertain(answer: Rejected, { uncertain }: Copies): Rejected {
  if (uncertain) throw lostTrack()
  return answer
}

function lostTrack(): LeaseError {
  return new LeaseError('UNKNOWN', `the answer to an append was lost, and the log has changed since: ${MAYBE_DONE}`)
}

function fits(missed: readonly EtcdRecord[]): boolean {
  return missed.length <= MAX_RECORDS && missed.reduce((sum, { value }) => sum + value.length, 0) <= MAX_BYTES
}
