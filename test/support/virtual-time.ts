/** Virtual time beside real processes: a store's timeout, or a command's, is over when the test says so, and an answer of a busy machine is never late. */
import { pause, systemClock } from '../../src/clock.ts'
import type { ManualClock } from '../../src/testing/manual-clock.ts'

/** Lets virtual time pass until the promise settles: `step` ms each 5 ms. A step below 5 is slower than real time, for what must not be too late for a process. */
export async function whileTimePasses<T>(clock: ManualClock, promise: Promise<T>, step = 20): Promise<T> {
  let settled = false
  const seen = promise.finally(() => (settled = true))
  seen.catch(() => {}) // the caller gets it below
  while (!settled) {
    await clock.advance(step)
    await pause(systemClock, 5, undefined, { ref: true })
  }
  return seen
}
