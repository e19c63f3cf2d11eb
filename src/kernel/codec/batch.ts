/**
 * Batches: the contents of a log record. A batch carries all commands that arrived while the last append was under way, their proposer, and how far the proposer
 * had read.
 *
 * A record is resent, byte for byte, when its answer was lost. So it may be in the log twice; it is applied once. A record that comes more than WINDOW records
 * late is void, so a proposer that was silent for WINDOW records can be forgotten. (Every command-line call is a proposer: otherwise the list of proposers would
 * grow without bound, or a delayed copy would be applied twice.)
 */
import { apply } from '../apply.ts'
import type { Command, Proposal } from '../command.ts'
import { copyOf } from '../copy.ts'
import { EVENT_TYPES, type EventType } from '../event.ts'
import type { Outcome, Refused } from '../outcome.ts'
import { REASONS } from '../reason.ts'
import type { Effects } from '../rule/effects.ts'
import { whileOpen } from '../rule/move.ts'
import { refuse } from '../rule/refuse.ts'
import type { Answer } from '../state/answers.ts'
import { beginLog, RULES, type State } from '../state.ts'
import { workOf } from '../work.ts'
import { Damaged, NewerFormatError, Reader, Writer } from './bytes.ts'
import { OUTCOMES, readProposal, writeProposal } from './encode.ts'
import { FORMAT, refuseNewer, refuseOlder } from './format.ts'

export const WINDOW = 8_192
const EVENT_NUMBERS = Object.fromEntries(EVENT_TYPES.map((type, number) => [type, number])) as Readonly<Record<EventType, number>>

/** The first two letters distinguish all outcomes. */
const OUTCOME_NUMBERS = Object.fromEntries(OUTCOMES.map(kind => [kind, kind.charCodeAt(0) * 256 + kind.charCodeAt(1)])) as Readonly<
  Record<Outcome['kind'], number>
>

const MAGIC = 0x4c
/** Bytes that a writer begins with, and the most that it keeps for the next record. */
const FIRST_SIZE = 4_096
const MAX_KEPT = 1 << 20
/** A record that cannot be the first of a log names this: every build knows this version. */
const FIRST_RULES = 1

export interface Header {
  /** A random number that identifies the proposer. */
  readonly proposer: number
  /** 1, 2, 3, … for each record of this proposer. */
  readonly seq: number
  /** The last record that the proposer had applied, and its decision hash then: replicas that differ are detected. */
  readonly applied: number
  /** `applied` is a record that the proposer wrote behind others which it has not read (replica/passing.ts): it knows no decision hash of it. */
  readonly unread?: true
  readonly decisionHash: readonly [number, number]
  readonly wall: number
  /** The rules version that the log begins with, if this is its first record. */
  readonly rules: number
  /** The commands were decided in the log that leases are moving from, after they were copied: they are applied although this log decides nothing yet. */
  readonly carried?: true
  /** A renewal of a proposer that reads the log at each of its renewals, so that idle processes need not. */
  readonly reads?: true
}

/** Bits of one byte. */
const CARRIED = 1
const UNREAD = 2
const READS = 4

export interface Batch<P extends Proposal = Proposal> extends Header {
  readonly proposals: readonly P[]
}

/** A batch whose rules version defaults to RULES. Tests set `rules` to write a log as a build of other rules would. */
type WithDefaultRules<Of extends Header> = Omit<Of, 'rules'> & Partial<Pick<Of, 'rules'>>

/** Encodes proposals as they come, so that no work is left when the log is ready for the next record. */
export class BatchWriter<P extends Proposal = Proposal> {
  readonly #head = new Writer(64)
  #body = new Writer(FIRST_SIZE)
  /** Only `add` and `take` change it. */
  proposals: P[] = []
  /** Of the proposals. */
  bytes = 0
  /** Of the proposals: see work.ts. */
  work = 0

  /** Throws RangeError if the proposal cannot be encoded (see form.ts); then nothing of it was written. */
  add(proposal: P): void {
    const start = this.#body.length
    try {
      writeProposal(this.#body, proposal)
    } catch (error) {
      this.#body.length = start
      throw error
    }
    this.proposals.push(proposal)
    this.bytes = this.#body.length
    this.work += workOf(proposal.command)
  }

  /** Returns the record, and the batch that decoding it would give. The writer is empty again. */
  take({ rules: founding = RULES, ...header }: WithDefaultRules<Header>): { readonly bytes: Uint8Array; readonly batch: Batch<P> } {
    const to = this.#head
    const { proposals } = this
    to.length = 0
    to.byte(MAGIC)
    to.byte(FORMAT)
    // Builds that do not know the newest rules refuse a record that names them: no more records than necessary may do so.
    const rules = header.applied === 0 ? founding : FIRST_RULES
    to.uint(rules)
    to.uint(header.proposer)
    to.uint(header.seq)
    to.uint(header.applied)
    to.uint32(header.decisionHash[0])
    to.uint32(header.decisionHash[1])
    to.uint(header.wall)
    to.byte((header.carried ? CARRIED : 0) | (header.unread ? UNREAD : 0) | (header.reads ? READS : 0))
    to.uint(proposals.length)
    const bytes = to.sealed(this.#body)
    // Do not keep the memory of one huge record forever.
    if (this.#body.length > MAX_KEPT) this.#body = new Writer(FIRST_SIZE)
    this.#body.length = 0
    this.bytes = 0
    this.work = 0
    this.proposals = []
    return { bytes, batch: { ...header, rules, proposals } }
  }
}

export function encodeBatch({ proposals, ...header }: WithDefaultRules<Batch>): Uint8Array {
  const writer = new BatchWriter()
  for (const proposal of proposals) writer.add(proposal)
  return writer.take(header).bytes
}

/** Throws Damaged, OlderFormatError or NewerFormatError. */
export function decodeBatch(bytes: Uint8Array): Batch {
  if (bytes[0] === MAGIC) refuseNewer(bytes[1])
  const from = Reader.unseal(bytes)
  if (from.byte() !== MAGIC) throw new NewerFormatError('a record of a format not known here')
  refuseOlder(from.byte())
  const rules = from.uint()
  if (rules > RULES) throw new NewerFormatError(`rules of version ${rules}`)
  const header = {
    rules,
    proposer: from.uint(),
    seq: from.uint(),
    applied: from.uint(),
    decisionHash: [from.uint32(), from.uint32()] as const,
    wall: from.uint(),
    ...readFlags(from),
  }
  const proposals = from.list(() => readProposal(from))
  from.finish()
  return { ...header, proposals }
}

function readFlags(from: Reader): Pick<Header, 'carried' | 'unread' | 'reads'> {
  const flags = from.byte()
  if (flags > (CARRIED | UNREAD | READS)) throw new Damaged('a flag that does not exist')
  if (flags === 0) return {}
  return {
    ...((flags & CARRIED) > 0 && { carried: true }),
    ...((flags & UNREAD) > 0 && { unread: true }),
    ...((flags & READS) > 0 && { reads: true }),
  }
}

export type Applied =
  | { readonly kind: 'applied'; readonly outcomes: readonly Outcome[] }
  | { readonly kind: 'again' }
  | { readonly kind: 'void' }

/** Applies the record at `index`, which must be the next one. Calls `each` after every command. */
export function applyBatch(state: State, index: number, batch: Batch, effects: Effects, each?: (outcome: Outcome) => void): Applied {
  if (index !== state.index + 1) throw new Error(`record-out-of-order ${index} ${state.index}`)
  if (index === 1) beginLog(state, batch.wall, batch.rules)
  state.index = index
  for (const [proposer, { index: last }] of state.proposers) {
    if (index - last <= WINDOW) break
    state.proposers.delete(proposer)
  }
  const known = state.proposers.get(batch.proposer)
  if (known !== undefined && batch.seq <= known.seq) return { kind: 'again' }
  if (index - batch.applied > WINDOW || batch.applied >= index) {
    mix(state, 0, index)
    return { kind: 'void' }
  }
  // Moves to the end: the proposer that was silent longest is forgotten first.
  state.proposers.delete(batch.proposer)
  state.proposers.set(batch.proposer, { seq: batch.seq, index })
  if (batch.carried && state.floor === undefined) {
    // The copy of the leases was not loaded here. It will be, before they are in force (replica/log.ts).
    mix(state, 0, index)
    return { kind: 'void' }
  }
  if (batch.wall > state.wall) state.wall = batch.wall
  const outcomes = batch.carried ? whileOpen(state, () => applyAll(state, batch, effects, each)) : applyAll(state, batch, effects, each)
  mix(state, index, state.nextLease + state.nextToken)
  return { kind: 'applied', outcomes }
}

function applyAll(state: State, batch: Batch, effects: Effects, each: ((outcome: Outcome) => void) | undefined): readonly Outcome[] {
  const outcomes: Outcome[] = []
  for (const proposal of batch.proposals) {
    const before = effects.events.length
    const outcome = proposal.op === undefined ? apply(state, proposal, effects) : applyOnce(state, proposal, effects)
    for (let i = before; i < effects.events.length; i++) {
      const event = effects.events[i]!
      mix(state, EVENT_NUMBERS[event.type], event.lease)
      if (event.token !== undefined) mix(state, 0, event.token)
    }
    mix(state, outcome.kind === 'refused' ? REASONS[outcome.reason].number : OUTCOME_NUMBERS[outcome.kind], outcome.revision)
    outcomes.push(outcome)
    each?.(outcome)
  }
  return outcomes
}

/** Two streams of 32 bits: cheap, and enough to detect replicas that decided differently. */
function mix(state: State, a: number, b: number): void {
  const low = b | 0 // the lowest 32 bits
  state.decisionHashA = Math.imul(state.decisionHashA ^ a ^ low, 0x01000193) >>> 0
  state.decisionHashB = (Math.imul(state.decisionHashB ^ low, 0x85ebca6b) + state.decisionHashA) >>> 0
}

/** Applies an operation once, and returns the same answer to every repetition with the same key. */
function applyOnce(state: State, proposal: Proposal, effects: Effects): Outcome {
  const { command, op, key = 0 } = proposal
  const { session, seq, acked, asked = 0 } = op!
  const known = state.answers.session(key, session)?.find(seq)
  if (known === 'forgotten') return refuse(state, 'answer-forgotten', { session, seq })
  if (known !== undefined) return repeated(state, known, asked)
  const outcome = apply(state, proposal, effects)
  // A repetition is sent to the log that has the leases now, and decided there.
  if (state.moved !== undefined && outcome.kind === 'refused') return outcome
  // A repeated renewal is just another renewal: no answer is kept.
  // A copy: the caller receives the outcome itself, and may change it.
  if (command.kind !== 'renew' && !(outcome.kind === 'refused' && isForbiddenForGood(command, outcome)))
    state.answers.keep(key, session, seq, acked, { outcome: copyOf(outcome), asked })
  return outcome
}

/**
 * A key never changes, so a refusal that depends on the key alone will be the same when repeated, and need not be kept. Refusals that depend on the state
 * are different; so are those of a deletion and of a transaction, which do not say what they depend on.
 */
function isForbiddenForGood({ kind }: Command, { code, reason, facts }: Refused): boolean {
  if (code !== 'FORBIDDEN' || reason === 'forbidden-entry') return false
  return facts.lease === undefined && kind !== 'delete' && kind !== 'transaction'
}

/** The answer that a repeated operation was given, if it is kept. */
export function answered(state: State, { op, key = 0 }: Proposal): Outcome | undefined {
  if (op === undefined) return undefined
  const { session, seq, asked = 0 } = op
  const known = state.answers.session(key, session)?.find(seq)
  return known === undefined || known === 'forgotten' ? undefined : repeated(state, known, asked)
}

/** The answer to a repetition that asks for `asked`. */
function repeated(state: State, answer: Answer, asked: number): Outcome {
  return answer.asked === asked ? copyOf(answer.outcome) : refuse(state, 'op-reused', {})
}
