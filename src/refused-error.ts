/** The error of a refusal, for callers that get no outcome. */
import { LeaseError } from './errors.ts'
import type { Refused } from './kernel/outcome.ts'
import { sentenceOf } from './wording.ts'

export function refusedError(refused: Refused): LeaseError {
  const { code, reason, facts } = refused
  return new LeaseError(code, sentenceOf(refused), { reason, facts })
}
