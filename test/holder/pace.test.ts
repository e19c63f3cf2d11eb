import { describe, expect, test } from 'vitest'
import { Pace } from '../../src/holder/pace.ts'

describe('the pace of renewals', () => {
  test('is that of the strategy while answers are fast', () => {
    const pace = new Pace()
    pace.answered(20)
    pace.fired(5)
    expect(pace.interval(5_000, 10_000, 9_900)).toBe(5_000)
  })

  test('becomes faster when round trips and stalls leave no time for three attempts, and never more than eight times a term', () => {
    const pace = new Pace()
    pace.answered(1_500)
    pace.fired(500)
    expect(pace.interval(5_000, 10_000, 9_900)).toBe(9_900 - 3 * 2_000)
    pace.answered(60_000)
    expect(pace.interval(5_000, 10_000, 9_900)).toBe(1_250)
  })

  test('forgets a slow answer after many fast ones, and ignores what cannot be', () => {
    const pace = new Pace()
    pace.answered(4_000)
    pace.fired(-50)
    pace.fired(Number.NEGATIVE_INFINITY)
    expect(pace.lateness).toBe(0)
    for (let i = 0; i < 320; i++) pace.answered(1)
    expect(pace.roundTrip).toBeLessThan(10)
    expect(pace.interval(5_000, 10_000, 9_900)).toBe(5_000)
  })
})
