/** What learning costs on traces that are hard to learn from, and the bound that is kept (docs/learned-terms.md). */
import { describe, expect, test } from 'vitest'
import { adversarialTrace, SYNTHETIC, syntheticTrace } from '../../../sim/replay/synthetic.ts'
import { bestExpected, expectedFixedCost, expectedLearnedCost, fixedCost, learnedTerms, replayTerms } from '../../../sim/replay/terms.ts'
import type { Trace } from '../../../sim/replay/trace.ts'

const DEFAULT = 30_000
const DYING = 0.1
const COSTS = [0.1, 1, 10] as const
/** Learning costs at most what so many jobs of the trace cost with the default ttl. */
const LEARNED_BY = 10

/** What the learned terms cost, and the most that they may cost. */
function judged(trace: Trace, c: number): { readonly cost: number; readonly bound: number } {
  const price = (Math.min(LEARNED_BY, trace.jobs.length) / trace.jobs.length) * expectedFixedCost(trace, c, DYING, DEFAULT)
  return { cost: expectedLearnedCost(trace, c, DYING), bound: 1.05 * bestExpected(trace, c, DYING).cost + price }
}

describe('learned terms cost at most 1.05 times the best fixed ttl, and what 10 jobs cost with the default ttl', () => {
  test.each(SYNTHETIC.map((name, i) => [name, COSTS[i % COSTS.length]!] as const))('on 100 jobs: %s, c = %d s', (name, c) => {
    const { cost, bound } = judged(syntheticTrace(name, 100, 7), c)
    expect(cost).toBeLessThanOrEqual(bound)
  })

  test.each([1, 2, 5, 10, 30])('on %i jobs of each kind', count => {
    for (const name of SYNTHETIC) {
      const { cost, bound } = judged(syntheticTrace(name, count, 5), 1)
      expect(cost, name).toBeLessThanOrEqual(bound)
    }
  })
})

test.each([
  ['falling from 10 h to 10 s', 10],
  ['growing from 10 s to 10 h', 0.1],
  ['all 300 days', 1],
] as const)(
  'on 1,000 jobs that change or are absurdly long, learned terms cost at most 1.05 times the best ttl: %s, c = %d s',
  (name, c) => {
    const trace = syntheticTrace(name, 1_000, 7)
    expect(expectedLearnedCost(trace, c, DYING)).toBeLessThanOrEqual(1.05 * bestExpected(trace, c, DYING).cost)
  },
)

test('an adversary that knows the rule makes each job end just after a renewal, and learned terms cost less than three times the best ttl', () => {
  const trace = adversarialTrace(100, 7, 1)
  const ratio = expectedLearnedCost(trace, 1, DYING) / bestExpected(trace, 1, DYING).cost
  expect(ratio).toBeGreaterThan(1.05)
  expect(ratio).toBeLessThan(3)
})

test('arithmetic counts what the kernel counts, if it knows who dies', () => {
  const trace = syntheticTrace('heavy tail', 60, 7, 0)
  expect(expectedLearnedCost(trace, 1, 0)).toBeCloseTo(replayTerms(trace, 1, learnedTerms(1)).cost, 0)
})

test('no rule has a bound by a factor alone: of a job that does not die, the best fixed ttl costs nothing', () => {
  const [job] = syntheticTrace('always 1 h', 1, 7, 0).jobs
  expect(fixedCost([job!], 1, 7_200_002)).toBe(0)
  expect(fixedCost([job!], 1, DEFAULT)).toBeGreaterThan(200)
})
