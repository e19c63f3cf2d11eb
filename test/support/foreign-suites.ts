/**
 * Other people's own test suites, the only tests that may be repeated: they compare the clock of the test with terms of 5 to 200 ms, against any server, and a
 * machine that stalls exceeds that. `npm test` names each suite that was repeated.
 */
import { type TestContext, test } from 'vitest'

/** Every suite, and how often it may be repeated. */
const REPEATS = {
  "bsm/redislock's tests": 1,
  "redlock's tests": 1,
  "the tests of Consul's own Go client": 2,
} as const

export function foreignSuite(name: keyof typeof REPEATS, timeout: number, run: (context: TestContext) => Promise<void>): void {
  test(name, { timeout, retry: REPEATS[name] }, run)
}
