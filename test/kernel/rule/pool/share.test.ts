import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { compareShares, halfLifeOf, LEAST_LEAD, mayExchange, penaltyOf, type Share } from '../../../../src/kernel/rule/pool/share.ts'

const share = (usage: number, held: number, weight = 100): Share => ({ usage, held, weight })

const anyShare = fc.record({
  usage: fc.integer({ min: 0, max: 10_000_000 }),
  held: fc.integer({ min: 0, max: 64 }),
  weight: fc.constantFrom(1, 50, 100, 100, 100, 300),
})

describe('which account comes first', () => {
  test('without preemption, the one with the least usage for its weight', () => {
    expect(compareShares(share(1_000, 5), share(2_000, 0), false)).toBeLessThan(0)
    expect(compareShares(share(1_000, 0, 50), share(1_500, 0, 100), false)).toBeGreaterThan(0)
  })

  test('without preemption, the one that holds less, if both used the same', () => {
    expect(compareShares(share(1_000, 1), share(1_000, 2), false)).toBeLessThan(0)
  })

  test('with preemption, the one that holds less for its weight; usage decides between equals', () => {
    expect(compareShares(share(9_000, 1), share(1_000, 2), true)).toBeLessThan(0)
    expect(compareShares(share(9_000, 2), share(1_000, 2), true)).toBeGreaterThan(0)
    expect(compareShares(share(0, 2, 200), share(0, 1, 50), true)).toBeLessThan(0)
  })

  test('the order is total: it has no cycles', () => {
    fc.assert(
      fc.property(anyShare, anyShare, anyShare, fc.boolean(), (a, b, c, preempts) => {
        const sign = (x: Share, y: Share) => Math.sign(compareShares(x, y, preempts))
        expect(sign(a, b)).toBe(0 - sign(b, a))
        if (sign(a, b) <= 0 && sign(b, c) <= 0) expect(sign(a, c)).toBeLessThanOrEqual(0)
      }),
      { numRuns: 2_000 },
    )
  })
})

describe('an exchange', () => {
  test('is allowed while the taker holds no more than the giver afterwards', () => {
    const exchange = { units: 1, loses: 1, refund: 0, penalty: 0 }
    expect(mayExchange({ taker: share(0, 3), giver: share(0, 5), ...exchange })).toBe(true)
    expect(mayExchange({ taker: share(0, 4), giver: share(0, 4), ...exchange })).toBe(false)
    expect(mayExchange({ taker: share(0, 4), giver: share(0, 5), ...exchange })).toBe(false)
    // With three times the weight, it may hold three times as much.
    expect(mayExchange({ taker: share(0, 2, 300), giver: share(0, 2, 100), ...exchange })).toBe(true)
    expect(mayExchange({ taker: share(0, 3, 300), giver: share(0, 2, 100), ...exchange })).toBe(false)
  })

  test('of what cannot be divided needs a lead in usage, with the penalty counted', () => {
    const exchange = { units: 1, loses: 1, refund: 0, penalty: 60_000 }
    const taker = share(50_000, 0)
    expect(mayExchange({ taker, giver: share(110_000 + LEAST_LEAD, 1), ...exchange })).toBe(true)
    expect(mayExchange({ taker, giver: share(110_000 + LEAST_LEAD - 100, 1), ...exchange })).toBe(false)
    // The taker holds as much as the giver: nothing is owed, whatever was used before.
    expect(mayExchange({ taker: share(0, 1), giver: share(1e9, 1), ...exchange })).toBe(false)
  })

  test('cannot be reversed before either account has used more: a loser that asks again for what it lost does not get it back', () => {
    fc.assert(
      fc.property(
        anyShare,
        anyShare,
        fc.integer({ min: 1, max: 8 }),
        fc.integer({ min: 1, max: 8 }),
        fc.integer({ min: 0, max: 75_000 }),
        fc.integer({ min: 0, max: 75_000 }),
        (taker, giver, units, loses, penalty, refunded) => {
          const [charge, refund] = [units * penalty, loses * refunded]
          if (loses > giver.held || !mayExchange({ taker, giver, units, loses, refund, penalty: charge })) return
          const winner = { ...taker, held: taker.held + units, usage: taker.usage + charge }
          const loser = { ...giver, held: giver.held - loses, usage: Math.max(0, giver.usage - refund) }
          const way = { taker: loser, giver: winner, units: loses, loses: units, refund: charge, penalty: loses * penalty }
          expect(mayExchange(way)).toBe(false)
        },
      ),
      { numRuns: 5_000 },
    )
  })
})

test('the penalty counts at most a quarter of the half-life for each unit', () => {
  expect(penaltyOf(3, 60_000, 86_400_000)).toBe(180_000)
  expect(penaltyOf(3, 60_000, 100_000)).toBe(75_000)
})

test('with preemption the half-life is at most five minutes', () => {
  expect(halfLifeOf(86_400_000, true)).toBe(300_000)
  expect(halfLifeOf(86_400_000, false)).toBe(86_400_000)
  expect(halfLifeOf(60_000, true)).toBe(60_000)
})
