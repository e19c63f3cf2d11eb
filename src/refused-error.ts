/** The error of a refusal, for callers that get no outcome. */
import { LeaseError } from './errors.ts'
import type { Refused } from './kernel/outcome.ts'

export function refusedError(refused: Refused): LeaseError {
  return new LeaseError(refused.code, sentenceOf(refused), { facts: refused.facts })
}

export function sentenceOf({ message }: Refused): string {
  return message
}
