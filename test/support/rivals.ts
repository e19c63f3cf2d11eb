/** Two holders on one log, for tests of leases under a manual clock. */
import type { LeaseError } from '../../src/errors.ts'
import type { Lease } from '../../src/lease.ts'
import { silentLessor } from '../../src/testing/in-memory.ts'

/** Each holder has a lessor of its own that can fall silent. */
export function rivals() {
  const a = silentLessor({ holder: 'a' })
  const b = silentLessor({ holder: 'b', clock: a.clock, log: a.log })
  return {
    clock: a.clock,
    a,
    b,
    async [Symbol.asyncDispose]() {
      a.lessor.answer()
      b.lessor.answer()
      await Promise.all([a.leases.close(), b.leases.close()])
    },
  }
}

/** Why a lease was lost. */
export function lossOf(lease: Lease) {
  const reason = lease.signal.reason as LeaseError
  return { code: reason.code, cause: reason.facts.cause, message: reason.message, facts: reason.facts }
}
