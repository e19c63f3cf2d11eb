/** What can go wrong with Postgres, said so that a person knows what to do. `facts.reason` is for programs. */
import { LeaseError } from '../../errors.ts'
import { codeOf, isAnswer, NotSent } from './driver.ts'

/** Another transaction was in the way: the same again will do. */
export function isPassing(error: unknown): boolean {
  return codeOf(error) === '40001' || codeOf(error) === '40P01'
}

/** Tables, functions or the schema are not there. */
export function isAbsent(error: unknown): boolean {
  return ['42P01', '42883', '3F000'].includes(codeOf(error))
}

const reasons: readonly (readonly [pattern: RegExp, reason: string, advice: string])[] = [
  [/^28/, 'credentials', 'see the user and password in the URL, and pg_hba.conf'],
  [/^3D000/, 'database', 'there is no such database: create it, or name another in the URL'],
  [/^42501/, 'permission', 'the role lacks a right: docs/stores.md names those it needs'],
  [/^53100/, 'full', 'its disk is full: nothing more is accepted until there is room. What was acknowledged is kept'],
  [/^53300/, 'connections', 'it has no connection left: raise max_connections, or put a pooler before it'],
  [/^25006/, 'readonly', 'it takes no writes: a standby, or set to read only. Name the primary'],
  [/^57P0[1-3]/, 'restart', 'it is shutting down or starting: what is under way is asked for again'],
]

/** `done`: whether what was asked for may have happened all the same. */
export function postgresError(error: unknown, place: string, done: 'never' | 'perhaps'): LeaseError {
  if (error instanceof LeaseError) return error
  const { cause = error } = error instanceof NotSent ? error : {}
  const certain = done === 'never' || error instanceof NotSent || isAnswer(error)
  const [, reason = 'failed', advice = ''] = reasons.find(([pattern]) => pattern.test(codeOf(cause))) ?? []
  const said = cause instanceof Error && cause.message !== '' ? cause.message : codeOf(cause) || String(cause)
  const outcome = certain ? 'nothing was done' : 'it may or may not have been done'
  return new LeaseError(certain ? 'UNAVAILABLE' : 'UNKNOWN', `${place}: ${said}; ${outcome}${advice === '' ? '' : `. ${advice}`}`, {
    cause,
    facts: { place, reason },
  })
}
