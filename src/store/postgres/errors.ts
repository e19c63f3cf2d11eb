/** Errors of the Postgres store. The message tells operators what to do; the reason is for programs. */
import { type ErrorReason, LeaseError } from '../../errors.ts'
import { errnoOf, MAYBE_DONE, NOTHING_DONE, neverConnected, unreachableError } from '../../unreachable-error.ts'
import { codeOf, isAnswer, NoAnswer, NotSent } from './driver.ts'

/** A conflict with another transaction: a retry will succeed. */
export function isConflict(error: unknown): boolean {
  return codeOf(error) === '40001' || codeOf(error) === '40P01'
}

/** Tables, functions or the schema do not exist. */
export function isAbsent(error: unknown): boolean {
  return ['42P01', '42883', '3F000'].includes(codeOf(error))
}

const reasons: readonly (readonly [pattern: RegExp, reason: ErrorReason, advice: string])[] = [
  [/^28/, 'credentials', 'check the user and password in the URL, and pg_hba.conf'],
  [/^3D000/, 'database', 'this database does not exist: create it, or name another in the URL'],
  [/^42501/, 'permission', 'the role lacks a right: docs/stores/postgres.md names those it needs'],
  [/^53100/, 'full', 'its disk is full: no appends are accepted until there is room. Acknowledged records are kept'],
  [/^53300/, 'connections', 'it has no connection left: raise max_connections, or put a pooler before it'],
  [
    /^55P03/,
    'busy',
    'another transaction has locked the log: one that a client left open, or an append that waits for a synchronous standby. pg_stat_activity shows it',
  ],
  [/^54000/, 'full', 'if its NOTIFY queue is full: end the session that listens and stays in a transaction. pg_stat_activity shows it'],
  [/^57014/, 'failed', 'an operator cancelled it, or statement_timeout did: set that to 5 s or more for this role'],
  [/^25006/, 'readonly', 'it is read-only, or a standby: name the primary'],
  [/^57P0[1-3]/, 'restart', 'it is shutting down or starting: retry'],
]

const NO_CONNECTION = 'it is silent, or a pooler has no connection left: in session mode a replica needs up to five'

/** `done`: whether the statement may have taken effect if no answer came. */
export function postgresError(error: unknown, server: string, done: 'never' | 'perhaps'): LeaseError {
  if (error instanceof LeaseError) return error
  const { cause = error } = error instanceof NotSent ? error : {}
  const certain = done === 'never' || error instanceof NotSent || isAnswer(error)
  if (neverConnected(cause) || (error instanceof NotSent && errnoOf(cause) !== undefined))
    return unreachableError({ engine: 'postgres', where: server, cause, code: certain ? 'UNAVAILABLE' : 'UNKNOWN' })
  const noConnection = error instanceof NotSent && cause instanceof NoAnswer ? NO_CONNECTION : ''
  const [, reason = 'failed', advice = noConnection] = reasons.find(([pattern]) => pattern.test(codeOf(cause))) ?? []
  const text = cause instanceof Error && cause.message !== '' ? cause.message : codeOf(cause) || String(cause)
  const outcome = certain ? NOTHING_DONE : MAYBE_DONE
  return new LeaseError(certain ? 'UNAVAILABLE' : 'UNKNOWN', `${server}: ${text}; ${outcome}${advice === '' ? '' : `. ${advice}`}`, {
    cause,
    reason,
    facts: { where: server },
  })
}
