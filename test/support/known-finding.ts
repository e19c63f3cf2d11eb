/**
 * A test of a known finding (sim/findings.ts): it states the correct behaviour and is expected to fail. When the finding is fixed the test fails, so
 * that its mark is removed: `knownFinding(name, title, …)` becomes `test(title, …)`, and `await claim(() => …)` becomes its expectations.
 *
 * Only a failed expectation inside `claim` counts as the expected failure. Errors of the set-up, and errors of any other kind, fail the test as
 * always: otherwise a test that does not reach its subject would pass.
 */
import { chai, test } from 'vitest'
import type { FindingName } from '../../sim/findings.ts'

/** Runs the expectations that fail today. A test calls it once, and awaits it. */
export type Claim = (expectations: () => void | Promise<void>) => Promise<void>

export function knownFinding(name: FindingName, title: string, body: (claim: Claim) => Promise<void>, timeout?: number): void {
  test(`${title} (known finding: ${name})`, () => expectFailure(name, body), timeout)
}

/** Rejects unless `body` makes one claim, and that fails. */
export async function expectFailure(name: FindingName, body: (claim: Claim) => Promise<void>): Promise<void> {
  let claims = 0
  let failed: boolean | undefined
  await body(async expectations => {
    claims++
    try {
      await expectations()
      failed = false
    } catch (error) {
      if (!(error instanceof chai.AssertionError)) throw error
      failed = true
    }
  })
  if (claims !== 1 || failed === undefined) throw new Error(`a test of ${name} must make one claim and await it`)
  if (!failed) throw new Error(`${name} is fixed here: replace knownFinding by test`)
}
