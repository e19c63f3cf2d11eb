/**
 * Errors as they arrive over a network: flat, with the reason and the facts beside the code and the message. A server of a later version may send reasons and
 * facts that this version does not know, and another program may send anything: what has no expected form or size is left out, and nothing throws.
 */

import { type ErrorCode, type ErrorReason, type Facts, LeaseError } from '../errors.ts'
import type { RefusalCode, Refused } from '../kernel/outcome.ts'
import { sentenceOf } from '../wording.ts'

const MAX_FACTS = 64
const MAX_NAME = 64
/** A path has up to 4,096 bytes. */
const MAX_TEXT = 4_096
const MAX_ITEMS = 1_024
const MAX_MESSAGE = 16 << 10

const CODES: ReadonlySet<string> = new Set<ErrorCode>([
  ...(['HELD', 'GONE', 'STALE', 'DEADLOCK', 'INVALID', 'FORBIDDEN', 'LIMIT', 'UNAVAILABLE', 'NOT_FOUND'] as const),
  ...(['TIMEOUT', 'UNCONFIRMED', 'LOST', 'UNKNOWN', 'UNAUTHENTICATED', 'UNSUPPORTED', 'DIVERGED'] as const),
])

/** Codes that only HTTP has, as codes of a LeaseError. */
const HTTP_CODES: Readonly<Record<string, ErrorCode>> = { TOO_LARGE: 'LIMIT' }

/** A code that this version does not know becomes UNKNOWN: the client can conclude nothing from it. */
export function codeFrom(code: string): ErrorCode {
  return CODES.has(code) ? (code as ErrorCode) : Object.hasOwn(HTTP_CODES, code) ? HTTP_CODES[code]! : 'UNKNOWN'
}

/** `rest`: an object with the facts, and the reason among them if the server sent one. Without a message, the sentence is made here. */
export function errorFrom(code: string, message: string, rest: unknown = {}): LeaseError {
  const [reason, facts] = [reasonFrom(rest), factsFrom(rest)]
  const text = message.length === 0 ? sentenceOf({ code, reason, facts }) : message.slice(0, MAX_MESSAGE)
  return new LeaseError(codeFrom(code), text, { reason, facts })
}

/** The reason in an error of a server. One that this version does not know is kept, for programs and for the log. */
export function reasonFrom(rest: unknown): ErrorReason | undefined {
  const { reason } = (typeof rest === 'object' && rest !== null ? rest : {}) as { readonly reason?: unknown }
  return typeof reason === 'string' && reason.length <= MAX_NAME && /^[a-z][a-z0-9-]*$/.test(reason) ? (reason as ErrorReason) : undefined
}

/** The facts in an error of a server, without `code`, `message` and `reason`. */
export function factsFrom(rest: unknown): Facts {
  if (typeof rest !== 'object' || rest === null || Array.isArray(rest)) return {}
  const facts: Record<string, Facts[string]> = {}
  let count = 0
  for (const [name, value] of Object.entries(rest)) {
    if (name === 'code' || name === 'message' || name === 'reason' || name === '__proto__' || name.length > MAX_NAME) continue
    if (!isFact(value)) continue
    if (count++ === MAX_FACTS) break
    facts[name] = value
  }
  return facts
}

function isFact(value: unknown): value is Facts[string] {
  if (!Array.isArray(value)) return isItem(value) || typeof value === 'boolean'
  return value.length <= MAX_ITEMS && value.every(item => isItem(item) && typeof item === typeof value[0])
}

function isItem(value: unknown): value is string | number {
  return typeof value === 'string' ? value.length <= MAX_TEXT : Number.isFinite(value)
}

const REFUSALS: ReadonlySet<string> = new Set<RefusalCode>([
  ...(['HELD', 'GONE', 'STALE', 'DEADLOCK', 'INVALID', 'FORBIDDEN', 'LIMIT', 'UNAVAILABLE', 'NOT_FOUND'] as const),
])

/**
 * A refusal of a server, with its sentence: the facts are in `facts`, or beside the code as in an error. A refusal with a code that this version does not know
 * is an error, from which the client can conclude nothing.
 */
export function refusalFrom(answer: object): Refused | LeaseError {
  const { revision, code, message, facts = answer, reason } = answer as Readonly<Record<string, unknown>>
  const text = typeof message === 'string' ? message.slice(0, MAX_MESSAGE) : ''
  if (typeof code !== 'string' || !REFUSALS.has(code)) return errorFrom(String(code), text, { ...factsFrom(facts), reason })
  const known = { kind: 'refused', revision: typeof revision === 'number' ? revision : 0, code: code as RefusalCode } as const
  return { ...known, reason: reasonFrom({ reason }), facts: factsFrom(facts), ...(text !== '' && { message: text }) } as unknown as Refused
}

/** The facts of an error as they are sent: with its reason, which no fact may replace. */
export function withReason({ reason, facts }: { readonly reason?: string | undefined; readonly facts: object }): object {
  return reason === undefined ? facts : { ...facts, reason }
}

/** An error of RESP: its code, its message, and after a tab a JSON object with the reason and the facts. */
export function parseRespError(text: string): { readonly code: string; readonly message: string; readonly rest: unknown } {
  const tab = text.indexOf('\t')
  const head = tab === -1 ? text : text.slice(0, tab)
  const [, code = '', message = head] = /^([A-Z_]+)(?: (.*))?$/s.exec(head) ?? []
  let rest: unknown = {}
  try {
    if (tab !== -1) rest = JSON.parse(text.slice(tab + 1))
  } catch {
    // Another program's text may have a tab.
  }
  return { code, message, rest }
}
