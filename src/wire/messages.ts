/**
 * What our own client and a server say to each other, whatever carries it: everything a Lessor can do, as numbered messages. An answer names the
 * number of its question and comes as soon as it is known, so that one slow question holds up no other.
 *
 * Commands and outcomes are written as the log writes them; what is asked seldom, and what people look at, is JSON. Neither side trusts the
 * other's bytes: what cannot be read is `Damaged` or `FromTheFuture`, and ends the conversation.
 */
import { type ErrorCode, type Facts, LeaseError } from '../errors.ts'
import { Damaged, FromTheFuture, Reader, type Writer } from '../kernel/codec/bytes.ts'
import { readOutcome, readProposal, writeOutcome, writeProposal } from '../kernel/codec/encode.ts'
import type { Proposal } from '../kernel/command.ts'
import { EVENT_TYPES, type Event, type EventType } from '../kernel/event.ts'
import type { Outcome } from '../kernel/outcome.ts'
import type { View } from '../lessor.ts'

export const MESSAGES_VERSION = 1

/** A client's. */
export type ClientMessage =
  | { readonly kind: 'propose'; readonly id: number; readonly proposal: Proposal }
  | { readonly kind: 'read'; readonly id: number; readonly query: unknown; readonly consistent: boolean; readonly atLeast: number }
  | { readonly kind: 'watch'; readonly id: number; readonly prefix: string; readonly after?: number; readonly types?: readonly EventType[] }
  | { readonly kind: 'backup'; readonly id: number }
  /** No more of a watch or a backup. */
  | { readonly kind: 'stop'; readonly id: number }
  /** Are you there? */
  | { readonly kind: 'beat'; readonly id: number }

/** A server's. */
export type ServerMessage =
  | { readonly kind: 'outcome'; readonly id: number; readonly outcome: Outcome }
  | { readonly kind: 'failed'; readonly id: number; readonly error: LeaseError }
  /** `json`: the view, where it has been written out already. */
  | { readonly kind: 'view'; readonly id: number; readonly view: View; readonly json?: string }
  /** A watch has begun, after this revision. */
  | { readonly kind: 'watching'; readonly id: number; readonly revision: number }
  | { readonly kind: 'events'; readonly id: number; readonly events: readonly Event[] }
  | { readonly kind: 'chunk'; readonly id: number; readonly bytes: Uint8Array }
  | { readonly kind: 'over'; readonly id: number }
  | { readonly kind: 'beat'; readonly id: number }
  /** How far the log has come: all that was answered before is in it. Only to clients that asked for it. */
  | { readonly kind: 'witness'; readonly id: number; readonly witness: string }

/** The place in these lists is the number on the wire: append only. */
const QUESTIONS = ['propose', 'read', 'watch', 'backup', 'stop', 'beat'] as const satisfies readonly ClientMessage['kind'][]
const ANSWERS = [
  ...(['outcome', 'failed', 'view', 'watching', 'events', 'chunk', 'over', 'beat'] as const),
  'witness',
] as const satisfies readonly ServerMessage['kind'][]

export function writeClientMessage(to: Writer, question: ClientMessage): void {
  to.byte(QUESTIONS.indexOf(question.kind))
  to.uint(question.id)
  switch (question.kind) {
    case 'propose':
      to.bool(question.proposal.op?.again === true)
      return writeProposal(to, question.proposal)
    case 'read':
      to.bool(question.consistent)
      to.uint(question.atLeast)
      return to.text(JSON.stringify(question.query))
    case 'watch':
      to.text(question.prefix)
      to.uint(question.after === undefined ? 0 : question.after + 1)
      to.bool(question.types !== undefined)
      return to.list(question.types ?? [], type => to.byte(EVENT_TYPES.indexOf(type)))
  }
}

/** Reads one of several. */
export function readClientMessage(from: Reader): ClientMessage {
  const kind = QUESTIONS[from.byte()]
  if (kind === undefined) throw new FromTheFuture('a question of another kind')
  const id = from.uint()
  switch (kind) {
    case 'propose': {
      const again = from.bool()
      const proposal = readProposal(from)
      return { kind, id, proposal: again && proposal.op !== undefined ? { ...proposal, op: { ...proposal.op, again } } : proposal }
    }
    case 'read':
      return { kind, id, consistent: from.bool(), atLeast: from.uint(), query: queryIn(from.text()) }
    case 'watch': {
      const prefix = from.text()
      const after = from.uint()
      const some = from.bool()
      const types = from.list(() => typeAt(from.byte()), EVENT_TYPES.length)
      return { kind, id, prefix, ...(after > 0 && { after: after - 1 }), ...(some && { types }) }
    }
    default:
      return { kind, id }
  }
}

export function writeServerMessage(to: Writer, answer: ServerMessage): void {
  to.byte(ANSWERS.indexOf(answer.kind))
  to.uint(answer.id)
  switch (answer.kind) {
    case 'outcome':
      return writeOutcome(to, answer.outcome)
    case 'failed':
      to.text(answer.error.code)
      to.text(answer.error.message)
      return to.text(JSON.stringify(answer.error.facts))
    case 'view':
      return to.text(answer.json ?? JSON.stringify(answer.view))
    case 'watching':
      return to.uint(answer.revision)
    case 'events':
      return to.text(JSON.stringify(answer.events))
    case 'chunk':
      to.uint(answer.bytes.length)
      return to.raw(answer.bytes)
    case 'witness':
      return to.text(answer.witness)
  }
}

export function readServerMessages(bytes: Uint8Array, each: (answer: ServerMessage) => void): void {
  const from = new Reader(bytes)
  while (!from.ended) each(readAnswer(from))
}

function readAnswer(from: Reader): ServerMessage {
  const kind = ANSWERS[from.byte()]
  if (kind === undefined) throw new FromTheFuture('an answer of another kind')
  const id = from.uint()
  switch (kind) {
    case 'outcome':
      return { kind, id, outcome: readOutcome(from) }
    case 'failed':
      return { kind, id, error: errorFrom(from.text(), from.text(), json(from.text())) }
    case 'view': {
      const view = json(from.text()) as View
      if (!isWhole(view?.revision)) throw new Damaged('a view without a revision')
      // JSON has no undefined: what is not there is left out.
      return { kind, id, view: { revision: view.revision, value: view.value, ...(view.more === true && { more: true }) } as View }
    }
    case 'watching':
      return { kind, id, revision: from.uint() }
    case 'events':
      return { kind, id, events: eventsFrom(json(from.text())) }
    case 'chunk': {
      const length = from.uint()
      return { kind, id, bytes: from.raw(length) }
    }
    case 'witness':
      return { kind, id, witness: from.text() }
    default:
      return { kind, id }
  }
}

function typeAt(i: number): EventType {
  const type = EVENT_TYPES[i]
  if (type === undefined) throw new FromTheFuture('an event of another type')
  return type
}

function eventsFrom(value: unknown): readonly Event[] {
  if (!Array.isArray(value) || value.length === 0) throw new Damaged('events that are none')
  for (const event of value as readonly (Event | null)[])
    if (typeof event !== 'object' || !isWhole(event?.revision) || typeof event.type !== 'string')
      throw new Damaged('an event without a revision')
  return value as readonly Event[]
}

const CODES: ReadonlySet<string> = new Set<ErrorCode>([
  ...(['HELD', 'GONE', 'STALE', 'DEADLOCK', 'INVALID', 'FORBIDDEN', 'LIMIT', 'UNAVAILABLE', 'NOT_FOUND'] as const),
  ...(['TIMEOUT', 'LOST', 'UNKNOWN', 'UNAUTHENTICATED', 'UNSUPPORTED', 'DIVERGED'] as const),
])

/** A code that is not known here is UNKNOWN: nothing may be concluded from it. */
export function errorFrom(code: string, message: string, facts: unknown = {}): LeaseError {
  const known = CODES.has(code) ? (code as ErrorCode) : 'UNKNOWN'
  return new LeaseError(known, message, typeof facts === 'object' && facts !== null ? { facts: facts as Facts } : {})
}

export function isWhole(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0
}

/** A query of more characters is none: to parse it would take long, and no honest one is that large. */
const MAX_QUERY = 64 << 10

function queryIn(text: string): unknown {
  return text.length > MAX_QUERY ? undefined : json(text)
}

function json(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (cause) {
    throw new Damaged('not JSON', { cause })
  }
}
