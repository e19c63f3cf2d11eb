import { expect, test } from 'vitest'
import { pauseUnless } from '../../src/replica/retry.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

test('a pause with an aborted signal is over at once, and leaves no timer', async () => {
  const clock = new ManualClock()
  await pauseUnless(clock, 10_000, AbortSignal.abort())
  expect(clock.waiting).toBe(0)
})
