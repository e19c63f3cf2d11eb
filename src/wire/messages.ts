/**
 * The messages between a Leasehold client and a server, and their encoding: everything a Lessor can do. Each request has an id, its answer
 * carries the same id and is sent as soon as it is known, so that a slow request does not delay others.
 *
 * Commands and outcomes are encoded as in the log; rare and human-readable parts are JSON. Neither side trusts the other's bytes: a message
 * that cannot be read is `Damaged` or `NewerFormatError`, and ends the connection.
 */
import { LeaseError } from '../errors.ts'
import { Damaged, NewerFormatError, Reader, type Writer } from '../kernel/codec/bytes.ts'
import { readOutcome, readProposal, writeOutcome, writeProposal } from '../kernel/codec/encode.ts'
import type { Proposal } from '../kernel/command.ts'
import { EVENT_TYPES, type Event, type EventType } from '../kernel/event.ts'
import type { Outcome, Refused } from '../kernel/outcome.ts'
import type { Lessor, View } from '../lessor.ts'
import { knownSentence } from '../wording.ts'
import { errorFrom, refusalFrom, withReason } from './received-error.ts'

/**
 * The version of these messages. Client and server must have the same one, which each names in the greeting: clients in other languages use the `LEASE.*` commands.
 * Version 1 had sentences in its outcomes, version 2 no backups that continue and no profiles.
 */
export const MESSAGES_VERSION = 3

/** The error of a client and a server with different versions, on either side. */
export function otherMessages(where: string, { client, server }: { readonly client: number; readonly server: number }): LeaseError {
  const older = client < server ? 'client' : 'server'
  return new LeaseError(
    'UNSUPPORTED',
    `${where}: the client has version ${client} of the messages of leasehold://, and the server version ${server}. Upgrade the ${older}, or connect with http:// or https://`,
    { reason: 'messages', facts: { client, server } },
  )
}

/** From a client to a server. */
export type ClientMessage =
  | { readonly kind: 'propose'; readonly id: number; readonly proposal: Proposal }
  | { readonly kind: 'read'; readonly id: number; readonly query: unknown; readonly consistent: boolean; readonly atLeast: number }
  | { readonly kind: 'watch'; readonly id: number; readonly prefix: string; readonly after?: number; readonly types?: readonly EventType[] }
  | { readonly kind: 'backup'; readonly id: number; readonly follow: boolean }
  /** Ends a watch or a backup. */
  | { readonly kind: 'stop'; readonly id: number }
  /** A heartbeat, answered at once. */
  | { readonly kind: 'beat'; readonly id: number }

/** From a server to a client. */
export type ServerMessage =
  | { readonly kind: 'outcome'; readonly id: number; readonly outcome: Outcome }
  | { readonly kind: 'failed'; readonly id: number; readonly error: LeaseError }
  /** `json`: the view as JSON, if the server already has it. */
  | { readonly kind: 'view'; readonly id: number; readonly view: View; readonly json?: string }
  /** A watch has begun, and will report what comes after this revision. */
  | { readonly kind: 'watching'; readonly id: number; readonly revision: number }
  | { readonly kind: 'events'; readonly id: number; readonly events: readonly Event[] }
  | { readonly kind: 'chunk'; readonly id: number; readonly bytes: Uint8Array }
  | { readonly kind: 'over'; readonly id: number }
  | { readonly kind: 'beat'; readonly id: number }
  /** The log has come this far. It contains everything answered before. Only for clients that asked for it. */
  | { readonly kind: 'witness'; readonly id: number; readonly witness: string }
  /** The store promises this, before the first answer of a connection and whenever it has changed: holders may require it. */
  | { readonly kind: 'profile'; readonly id: number; readonly profile: Lessor['profile'] }

/**
 * The index in these lists is the number on the wire: append only. `refused` is an outcome, with its reason as text: the number of a reason that a later server has,
 * as in the log, would end the connection.
 */
const CLIENT_KINDS = ['propose', 'read', 'watch', 'backup', 'stop', 'beat'] as const satisfies readonly ClientMessage['kind'][]
const SERVER_KINDS = [
  ...(['outcome', 'failed', 'view', 'watching', 'events', 'chunk', 'over', 'beat'] as const),
  ...(['witness', 'refused', 'profile'] as const),
] as const satisfies readonly (ServerMessage['kind'] | 'refused')[]

export function writeClientMessage(to: Writer, message: ClientMessage): void {
  to.byte(CLIENT_KINDS.indexOf(message.kind))
  to.uint(message.id)
  switch (message.kind) {
    case 'propose':
      to.bool(message.proposal.op?.again === true)
      return writeProposal(to, message.proposal)
    case 'read':
      to.bool(message.consistent)
      to.uint(message.atLeast)
      return to.text(JSON.stringify(message.query))
    case 'watch':
      to.text(message.prefix)
      to.uint(message.after === undefined ? 0 : message.after + 1)
      to.bool(message.types !== undefined)
      return to.list(message.types ?? [], type => to.byte(EVENT_TYPES.indexOf(type)))
    case 'backup':
      return to.bool(message.follow)
  }
}

/** Returns whether the first message of a batch proposes a renewal. */
export function beginsWithRenewal(batch: Uint8Array): boolean {
  try {
    const first = readClientMessage(new Reader(batch))
    return first.kind === 'propose' && first.proposal.command.kind === 'renew'
  } catch {
    return false
  }
}

/** Reads the next message of a batch. */
export function readClientMessage(from: Reader): ClientMessage {
  const kind = CLIENT_KINDS[from.byte()]
  if (kind === undefined) throw new NewerFormatError('a request of another kind')
  const id = from.uint()
  switch (kind) {
    case 'propose': {
      const again = from.bool()
      const proposal = readProposal(from)
      return { kind, id, proposal: again && proposal.op !== undefined ? { ...proposal, op: { ...proposal.op, again } } : proposal }
    }
    case 'read':
      return { kind, id, consistent: from.bool(), atLeast: from.uint(), query: parseQuery(from.text()) }
    case 'watch': {
      const prefix = from.text()
      const after = from.uint()
      const hasTypes = from.bool()
      const types = from.list(() => typeAt(from.byte()), EVENT_TYPES.length)
      return { kind, id, prefix, ...(after > 0 && { after: after - 1 }), ...(hasTypes && { types }) }
    }
    case 'backup':
      return { kind, id, follow: from.bool() }
    default:
      return { kind, id }
  }
}

export function writeServerMessage(to: Writer, message: ServerMessage): void {
  if (message.kind === 'outcome' && message.outcome.kind === 'refused') return writeRefusal(to, message.id, message.outcome)
  to.byte(SERVER_KINDS.indexOf(message.kind))
  to.uint(message.id)
  switch (message.kind) {
    case 'outcome':
      return writeOutcome(to, message.outcome)
    case 'failed':
      to.text(message.error.code)
      to.text(ownSentence(message.error))
      return to.text(JSON.stringify(withReason(message.error)))
    case 'view':
      return to.text(message.json ?? JSON.stringify(message.view))
    case 'watching':
      return to.uint(message.revision)
    case 'events':
      return to.text(JSON.stringify(message.events))
    case 'chunk':
      to.uint(message.bytes.length)
      return to.raw(message.bytes)
    case 'witness':
      return to.text(message.witness)
    case 'profile':
      return to.text(JSON.stringify(message.profile))
  }
}

function writeRefusal(to: Writer, id: number, { revision, code, reason, facts }: Refused): void {
  to.byte(SERVER_KINDS.indexOf('refused'))
  to.uint(id)
  to.uint(revision)
  to.text(code)
  to.text(reason)
  to.text(JSON.stringify(facts))
}

/** Empty where the client makes the same sentence of the reason and the facts. */
function ownSentence({ message, reason, facts }: LeaseError): string {
  return reason !== undefined && knownSentence(reason, facts) === message ? '' : message
}

/** Reads the next message of a batch. */
export function readServerMessage(from: Reader): ServerMessage {
  const kind = SERVER_KINDS[from.byte()]
  if (kind === undefined) throw new NewerFormatError('an answer of another kind')
  const id = from.uint()
  switch (kind) {
    case 'outcome':
      return { kind, id, outcome: readOutcome(from) }
    case 'refused': {
      const refused = refusalFrom({ revision: from.uint(), code: from.text(), reason: from.text(), facts: json(from.text()) })
      return refused instanceof LeaseError ? { kind: 'failed', id, error: refused } : { kind: 'outcome', id, outcome: refused }
    }
    case 'failed':
      return { kind, id, error: errorFrom(from.text(), from.text(), json(from.text())) }
    case 'view': {
      const view = json(from.text()) as View
      if (!isWhole(view?.revision)) throw new Damaged('a view without a revision')
      // JSON has no undefined: an absent value is left out.
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
    case 'profile':
      return { kind, id, profile: profileFrom(json(from.text())) }
    default:
      return { kind, id }
  }
}

function profileFrom(value: unknown): Lessor['profile'] {
  if (typeof (value as Lessor['profile'] | null)?.store !== 'string') throw new Damaged('a profile without a store')
  return value as Lessor['profile']
}

function typeAt(i: number): EventType {
  const type = EVENT_TYPES[i]
  if (type === undefined) throw new NewerFormatError('an event of another type')
  return type
}

function eventsFrom(value: unknown): readonly Event[] {
  if (!Array.isArray(value) || value.length === 0) throw new Damaged('a list of events that is none, or empty')
  for (const event of value as readonly (Event | null)[])
    if (typeof event !== 'object' || !isWhole(event?.revision) || typeof event.type !== 'string')
      throw new Damaged('an event without a revision')
  return value as readonly Event[]
}

export function isWhole(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0
}

/** Refuse longer queries without parsing them: that would take long, and no real query is as large. */
const MAX_QUERY = 64 << 10

function parseQuery(text: string): unknown {
  return text.length > MAX_QUERY ? undefined : json(text)
}

function json(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch (cause) {
    throw new Damaged('not JSON', { cause })
  }
}
