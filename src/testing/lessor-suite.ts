/**
 * The contract of a lessor as test cases, for a local replica or a remote server on any store. The suite needs no test runner: each case has
 * a name that is a sentence, and a `run` that throws.
 *
 * ```ts
 * for (const { name, run } of lessorSuite(openFixture)) test(name, run)
 * ```
 *
 * The suite uses lessors only through their contract, and lets time pass only through the fixture. With a manual clock that takes no time,
 * with a real one a few seconds.
 */
import { closingCases } from './lessor-suite/closing.ts'
import { entriesCases } from './lessor-suite/entries.ts'
import type { LessorFixture } from './lessor-suite/fixture.ts'
import { leasesCases } from './lessor-suite/leases.ts'
import { type LessorCases, LessorLog } from './lessor-suite/lessor-log.ts'
import { malformedCases } from './lessor-suite/malformed.ts'
import { orderCases } from './lessor-suite/order.ts'
import { permissionsCases } from './lessor-suite/permissions.ts'
import { queuesCases } from './lessor-suite/queues.ts'
import { readingCases } from './lessor-suite/reading.ts'
import { revocationCases } from './lessor-suite/revocation.ts'
import { timeCases } from './lessor-suite/time.ts'
import { watchingCases } from './lessor-suite/watching.ts'
import type { SuiteCase } from './suite-case.ts'

export type { LessorFixture } from './lessor-suite/fixture.ts'

const cases: LessorCases = {
  ...leasesCases,
  ...queuesCases,
  ...entriesCases,
  ...revocationCases,
  ...permissionsCases,
  ...malformedCases,
  ...orderCases,
  ...readingCases,
  ...watchingCases,
  ...timeCases,
  ...closingCases,
}

export function lessorSuite(open: () => Promise<LessorFixture>): SuiteCase[] {
  return Object.entries(cases).map(([name, check]) => ({
    name,
    run: async () => {
      await using fixture = await open()
      await using log = new LessorLog(fixture)
      await check(log)
    },
  }))
}
