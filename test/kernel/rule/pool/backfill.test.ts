import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { expectedEnd, expectedStart, mayOvertake } from '../../../../src/kernel/rule/pool/backfill.ts'

describe('the expected end of a lease', () => {
  test('is as long after its grant as it said, and at the latest at the end of its longest life', () => {
    expect(expectedEnd(100, 50, 0, 120)).toBe(150)
    expect(expectedEnd(100, 0, 80, 120)).toBe(180)
    expect(expectedEnd(100, 50, 80, 120)).toBe(150)
    expect(expectedEnd(100, 90, 80, 120)).toBe(180)
  })

  test('is now if it has overstayed, and unknown if it said nothing', () => {
    expect(expectedEnd(100, 50, 0, 400)).toBe(400)
    expect(expectedEnd(100, 0, 0, 400)).toBeUndefined()
  })
})

const running = fc.record({ ends: fc.option(fc.integer({ min: 10, max: 50 }), { nil: undefined }), units: fc.integer({ min: 1, max: 3 }) })
type Job = { readonly ends: number | undefined; readonly units: number }

describe('the expected start of the head', () => {
  const fits = (need: number) => (ended: readonly Job[]) => ended.reduce((sum, { units }) => sum + units, 0) >= need

  test('is the first expected end after which it fits, as a walk through all ends finds it', () => {
    fc.assert(
      fc.property(fc.array(running, { maxLength: 20 }), fc.nat(25), (jobs, need) => {
        const walk = (): number | undefined => {
          for (let now = 10; now <= 50; now++)
            if (fits(need)(jobs.filter(({ ends }) => ends !== undefined && ends <= now))) return need === 0 ? 10 : now
          return undefined
        }
        expect(expectedStart(jobs, 10, fits(need))).toBe(walk())
      }),
      { numRuns: 500 },
    )
  })

  test('is unknown if it needs a lease whose end is unknown', () => {
    expect(
      expectedStart(
        [
          { ends: undefined, units: 1 },
          { ends: 20, units: 1 },
        ],
        10,
        fits(2),
      ),
    ).toBeUndefined()
    expect(
      expectedStart(
        [
          { ends: undefined, units: 1 },
          { ends: 20, units: 1 },
        ],
        10,
        fits(1),
      ),
    ).toBe(20)
  })
})

test('a waiter overtakes if it expects to end before the head starts, or if it may be preempted', () => {
  expect(mayOvertake({ expect: 10, preemptible: false }, 100, 110)).toBe(true)
  expect(mayOvertake({ expect: 11, preemptible: false }, 100, 110)).toBe(false)
  expect(mayOvertake({ expect: 1, preemptible: false }, 100, undefined)).toBe(false)
  expect(mayOvertake({ expect: 0, preemptible: false }, 100, 110)).toBe(false)
  expect(mayOvertake({ expect: 0, preemptible: true }, 100, undefined)).toBe(true)
})
