import { describe, expect, test } from 'vitest'
import { randomFrom } from '../../sim/replay/trace.ts'
import { Sketch } from '../../src/learn/sketch.ts'
import { explainTerm, planTerm } from '../../src/learn/term.ts'

const OPTIONS = { renewalCost: 1_000, min: 100, max: 86_400_000, fallback: 30_000 } as const

function pastOf(count: number, ms: () => number, name = ''): Sketch {
  const random = randomFrom(3)
  const sketch = new Sketch(name)
  for (let i = 0; i < count; i++) sketch.add(ms(), random() < 0.1)
  return sketch
}

/** Half of the leases end within seconds, and the rest by a heavy tail. */
function heavyTail(): () => number {
  const random = randomFrom(8)
  return () => 2_000 * (1 - random()) ** -1.4
}

/** What leases of these durations cost, if a tenth of their holders die. */
function costOf(durations: readonly number[], first: number, at: (age: number, present: number) => number): number {
  let cost = 0
  for (const ms of durations) {
    let [age, term] = [0, first]
    while (age + term / 2 < ms) {
      age += term / 2
      cost += OPTIONS.renewalCost
      term = at(age, term)
    }
    cost += 0.1 * (age + term - ms)
  }
  return cost
}

describe('a plan', () => {
  test('without a past begins with the default, whatever the renewals cost', () => {
    for (const renewalCost of [1, 100, 1_000, 10_000])
      expect(planTerm([], { ...OPTIONS, renewalCost })).toMatchObject({ kind: 'cold', first: 30_000 })
  })

  test('without a past costs no more than the fixed default, for short, long and heavy-tailed work', () => {
    const plan = planTerm([], OPTIONS)
    const random = randomFrom(4)
    const works = [() => 5_000, () => 600_000, () => 7 * 86_400_000, heavyTail(), () => -3_600_000 * Math.log(1 - random())]
    for (const work of works) {
      const durations = Array.from({ length: 200 }, work)
      expect(costOf(durations, plan.first, plan.at)).toBeLessThanOrEqual(costOf(durations, 30_000, () => 30_000))
    }
  })

  test('of a class with one sample is close to that of the class above it', () => {
    const all = pastOf(1_000, heavyTail())
    const one = new Sketch('jobs')
    one.add(31_536_000_000)
    const [own, above] = [planTerm([all, one], OPTIONS).first, planTerm([all], OPTIONS).first]
    expect(own / above).toBeGreaterThan(0.7)
    expect(own / above).toBeLessThan(1.4)
  })

  test('never shortens a term, and stays within the bounds of the policy', () => {
    const plan = planTerm([pastOf(2_000, heavyTail())], { ...OPTIONS, min: 5_000, max: 90_000 })
    let term = plan.first
    for (let age = 0; age < 40_000_000; age += term / 2) {
      const next = plan.at(age, term)
      expect(next).toBeGreaterThanOrEqual(Math.max(term, 5_000))
      expect(next).toBeLessThanOrEqual(90_000)
      term = next
    }
    expect(term).toBe(90_000)
  })

  test('of work with a heavy tail grows with age, and costs less than the best single term', () => {
    const plan = planTerm([pastOf(2_000, heavyTail())], OPTIONS)
    expect(plan.kind).toBe('growing')
    expect(plan.at(3_600_000, plan.first)).toBeGreaterThan(3 * plan.first)
    expect(plan.cost).toBeLessThan(0.9 * plan.fixedCost)
  })

  test('of work that always takes the same time is one term, which needs no renewal if renewals are dear', () => {
    const plan = planTerm([pastOf(200, () => 10_000)], { ...OPTIONS, renewalCost: 10_000 })
    expect(plan.kind).toBe('fixed')
    expect(plan.first).toBeGreaterThanOrEqual(20_000)
    expect(plan.first).toBeLessThan(20_100)
  })

  test('of work that was always short grows for a lease that is older than all before it', () => {
    const plan = planTerm([pastOf(100, () => 0)], OPTIONS)
    expect(plan.first).toBeLessThan(1_000)
    expect(plan.at(60_000, plan.first)).toBeGreaterThan(10_000)
  })

  test.each(['cold', 'fixed', 'growing'] as const)('of kind %s is explained in one sentence with its numbers', kind => {
    const past = { cold: new Sketch('jobs'), fixed: pastOf(200, () => 10_000, 'jobs'), growing: pastOf(999, heavyTail(), 'jobs') }[kind]
    const plan = planTerm([past], OPTIONS)
    expect(plan.kind).toBe(kind)
    const sentence = explainTerm(plan, OPTIONS)
    expect(sentence).toMatch(/^[^.]*(\.\d[^.]*)*\.$/)
    expect(sentence).toContain(`${past.ended} leases of jobs`)
    expect(sentence).toContain('100 ms to 24 h')
  })
})
