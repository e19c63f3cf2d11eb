/** The second step of a face that takes a lease: a first term is 30 s at most, whatever ttl was asked for, and a longer one begins with a renewal. */
import { LeaseError } from '../errors.ts'
import { propose } from '../lessor/propose.ts'
import { refusedError } from '../refused-error.ts'
import type { FaceLessor } from './face.ts'

const FIRST_TERM = 30_000

/** Starts the whole term of leases that were just granted for `ttl`. False: one of them has ended since, so the client must not be told that it holds. */
export async function startWholeTerm(lessor: FaceLessor, ttl: number, ...leases: readonly number[]): Promise<boolean> {
  if (ttl <= FIRST_TERM) return true
  const outcome = await propose(lessor, { kind: 'renew', leases })
  if (outcome.kind === 'renewed') return outcome.ttls.every(ttl => ttl > 0)
  if (outcome.kind === 'refused') throw refusedError(outcome)
  throw new LeaseError('UNAVAILABLE', `nothing was done (the outcome was ${outcome.kind}): retry the request`)
}
