/** CallerTurns refusals and failures into HTTP responses. */

import { type ErrorReason, type Facts, LeaseError } from '../../errors.ts'
import type { Outcome, Refused } from '../../kernel/outcome.ts'
import { sentenceOf } from '../../wording.ts'
import type { HttpResponse } from './route.ts'

const STATUS: Readonly<Record<string, number>> = {
  HELD: 409,
  STALE: 409,
  DEADLOCK: 409,
  TIMEOUT: 408,
  GONE: 410,
  INVALID: 400,
  UNAUTHENTICATED: 401,
  FORBIDDEN: 403,
  NOT_FOUND: 404,
  TOO_LARGE: 413,
  LIMIT: 429,
  UNSUPPORTED: 501,
  UNAVAILABLE: 503,
  DIVERGED: 503,
  UNKNOWN: 504,
}

const INTERNAL_ERROR = 'internal error: the request may or may not have been applied. See the log of the server'

/** The Retry-After header, in seconds, if the error does not name a time. */
const RETRY_AFTER = 1

/** An error of the HTTP request itself. `status` is set where HTTP has a more specific status than that of the code. */
export class HttpFailure extends Error {
  readonly code: string
  readonly status: number
  readonly reason: ErrorReason | undefined
  readonly facts: Facts
  readonly headers: Readonly<Record<string, string>>

  constructor(code: string, message: string, { status = STATUS[code]!, reason, facts = {}, headers = {} }: Partial<HttpFailure> = {}) {
    super(message)
    this.code = code
    this.status = status
    this.reason = reason
    this.facts = facts
    this.headers = headers
  }
}

export function refusalResponse(refused: Refused, more: Facts = {}): HttpResponse {
  const { code, reason, facts, revision } = refused
  const error = { code, reason, message: sentenceOf(refused), facts: { ...facts, ...more } }
  return errorResponse(error, { 'Leasehold-Revision': String(revision) })
}

/** Returns an outcome of the expected kind. Throws a refusal. */
export function expectOutcome<K extends Outcome['kind']>(outcome: Outcome, kind: K): Extract<Outcome, { readonly kind: K }> {
  if (outcome.kind === kind) return outcome as Extract<Outcome, { readonly kind: K }>
  if (outcome.kind === 'refused')
    throw new HttpFailure(outcome.code, sentenceOf(outcome), {
      reason: outcome.reason,
      facts: outcome.facts,
      headers: { 'Leasehold-Revision': String(outcome.revision) },
    })
  throw new HttpFailure('UNAVAILABLE', `nothing was done (the outcome was ${outcome.kind}): retry the request`)
}

export function failureResponse(error: unknown): HttpResponse {
  if (error instanceof HttpFailure) return errorResponse(error, error.headers, error.status)
  if (error instanceof LeaseError) return errorResponse(error)
  // A bug in the server. Its message goes to the log only. The request may or may not have been applied.
  return errorResponse({ code: 'UNKNOWN', message: INTERNAL_ERROR, facts: {} }, {}, 500)
}

export function isInternalError(error: unknown): boolean {
  return !(error instanceof HttpFailure) && !(error instanceof LeaseError)
}

interface SentError {
  readonly code: string
  readonly message: string
  readonly reason?: string | undefined
  readonly facts: Facts
}

function errorResponse(
  { code, message, reason, facts }: SentError,
  headers: Readonly<Record<string, string>> = {},
  status = STATUS[code] ?? 500,
): HttpResponse {
  const retry = status === 429 || status === 503 ? retryAfter(facts) : undefined
  return {
    status,
    code,
    headers: {
      ...headers,
      ...(retry !== undefined && { 'Retry-After': String(retry) }),
      ...(status === 401 && { 'WWW-Authenticate': 'Bearer' }),
    },
    // Code, reason and message are assigned first, for their place, and last: a fact of the same name must not replace them.
    body: JSON.stringify({ error: Object.assign({ code, reason, message }, facts, { code, reason, message }) }),
  }
}

function retryAfter({ retryAfter }: Facts): number {
  return typeof retryAfter === 'number' ? Math.max(1, Math.ceil(retryAfter / 1_000)) : RETRY_AFTER
}
