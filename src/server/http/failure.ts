/** Refusals and failures as HTTP says them. */

import type { Facts } from '../../errors.ts'
import { LeaseError } from '../../errors.ts'
import type { Outcome, Refused } from '../../kernel/outcome.ts'
import type { HttpAnswer } from './route.ts'

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

/** Seconds after which it may be worth asking again, where nobody says otherwise. */
const RETRY_AFTER = 1

/** What is wrong with a request before any lease is concerned. `status` where HTTP has a finer word than the code. */
export class Failure extends Error {
  readonly code: string
  readonly status: number
  readonly facts: Facts
  readonly headers: Readonly<Record<string, string>>

  constructor(code: string, message: string, { status = STATUS[code]!, facts = {}, headers = {} }: Partial<Failure> = {}) {
    super(message)
    this.code = code
    this.status = status
    this.facts = facts
    this.headers = headers
  }
}

export function refusal({ code, message, facts, revision }: Refused, more: Facts = {}): HttpAnswer {
  return worded(code, message, { ...facts, ...more }, { 'Leasehold-Revision': String(revision) })
}

/** The outcome, or its refusal thrown. */
export function accepted<K extends Outcome['kind']>(outcome: Outcome, kind: K): Extract<Outcome, { readonly kind: K }> {
  if (outcome.kind === kind) return outcome as Extract<Outcome, { readonly kind: K }>
  if (outcome.kind === 'refused')
    throw new Failure(outcome.code, outcome.message, { facts: outcome.facts, headers: { 'Leasehold-Revision': String(outcome.revision) } })
  throw new Failure('UNAVAILABLE', `this was answered with ${outcome.kind}: nothing was done; ask again`)
}

export function failure(error: unknown): HttpAnswer {
  if (error instanceof Failure) return worded(error.code, error.message, error.facts, error.headers, error.status)
  if (error instanceof LeaseError) return worded(error.code, error.message, error.facts)
  // A mistake of ours: what it says is for the log, and whether anything was done nobody can know.
  return worded('UNKNOWN', 'the server made a mistake: whether this was done is not known', {}, {}, 500)
}

export function isOurMistake(error: unknown): boolean {
  return !(error instanceof Failure) && !(error instanceof LeaseError)
}

function worded(
  code: string,
  message: string,
  facts: Facts,
  headers: Readonly<Record<string, string>> = {},
  status = STATUS[code] ?? 500,
): HttpAnswer {
  const retry = status === 429 || status === 503 ? retryAfter(facts) : undefined
  return {
    status,
    code,
    headers: {
      ...headers,
      ...(retry !== undefined && { 'Retry-After': String(retry) }),
      ...(status === 401 && { 'WWW-Authenticate': 'Bearer' }),
    },
    // The code and the message come first and last: a fact of that name must not stand in their place.
    body: JSON.stringify({ error: Object.assign({ code, message }, facts, { code, message }) }),
  }
}

function retryAfter({ retryAfter }: Facts): number {
  return typeof retryAfter === 'number' ? Math.max(1, Math.ceil(retryAfter / 1_000)) : RETRY_AFTER
}
