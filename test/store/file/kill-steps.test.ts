/** Processes that die by kill -9 at each step of making a segment, appending, publishing, saving a snapshot and trimming. */
import { describe, expect, test } from 'vitest'
import { KilledLog, MOMENTS, STEPS } from '../../support/store/killed-log.mjs'

// The first of these calls may be one of opening the log.
describe.each([
  ['an owner', true, 2],
  ['a process that shares the log', false, 1],
])('%s', (_, own, count) => {
  test.each(STEPS)('killed at "%s", before, during and after it, loses and repeats no acknowledged record', async step => {
    using log = new KilledLog()
    for (const when of MOMENTS) {
      expect(await log.run({ own, step, when, count: step === 'remove log' ? 1 : count })).toBe(1)
      await log.check()
    }
    expect(await log.run({ own })).toBe(0)
    await log.check()
    expect(log.records).toBeGreaterThan(50)
  })
})

test('of two processes on one log, each killed at a step of its own, both leave it whole', async () => {
  using log = new KilledLog()
  for (const [i, step] of STEPS.entries()) {
    const other = STEPS[(i + 5) % STEPS.length]!
    await log.run({ step, when: MOMENTS[i % 3]! }, { step: other, when: MOMENTS[(i + 1) % 3]!, count: 2 })
    await log.check()
  }
  expect(log.records).toBeGreaterThan(50)
})
