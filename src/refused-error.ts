/** The error of a refusal, for callers that get no outcome. */
import { LeaseError } from './errors.ts'
import type { Refused } from './kernel/outcome.ts'
import { sentenceOf } from './wording.ts'

/** For a request whose own process got by the transfer of a lease what it waits for. */
export function selfWaitError(resource: string, lease: number): LeaseError {
  return refusedError({ kind: 'refused', revision: 0, code: 'DEADLOCK', reason: 'waits-for-transferred', facts: { resource, lease } })
}

export function refusedError(refused: Refused): LeaseError {
  const { code, reason, facts } = refused
  return new LeaseError(code, sentenceOf(refused), { reason, facts })
}
