/**
 * The contract of a store as test cases. The suite needs no test runner: each case has a name that is a sentence, and a `run` that throws.
 *
 * ```ts
 * for (const { name, run } of storeSuite(openFixture)) test(name, run)
 * ```
 */
import { appendingCases } from './store-suite/appending.ts'
import { closingCases } from './store-suite/closing.ts'
import { divergenceCases } from './store-suite/divergence.ts'
import type { StoreFixture } from './store-suite/fixture.ts'
import { lostAnswersCases } from './store-suite/lost-answers.ts'
import { owningCases } from './store-suite/owning.ts'
import { passingCases } from './store-suite/passing.ts'
import { snapshotsCases } from './store-suite/snapshots.ts'
import { type StoreCases, StoreLog } from './store-suite/store-log.ts'
import { waitingCases } from './store-suite/waiting.ts'
import { wakingCases } from './store-suite/waking.ts'
import type { SuiteCase } from './suite-case.ts'

export type { LinkedStore, LinkFailure, StoreFixture } from './store-suite/fixture.ts'

const cases: StoreCases = {
  ...appendingCases,
  ...divergenceCases,
  ...passingCases,
  ...waitingCases,
  ...wakingCases,
  ...snapshotsCases,
  ...owningCases,
  ...lostAnswersCases,
  ...closingCases,
}

export function storeSuite(open: () => Promise<StoreFixture>): SuiteCase[] {
  return Object.entries(cases).map(([name, check]) => ({
    name,
    run: async () => {
      await using fixture = await open()
      await using log = new StoreLog(fixture)
      await check(log)
    },
  }))
}
