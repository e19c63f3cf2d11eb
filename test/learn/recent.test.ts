/** What a process knows of the last leases of a class, and that plans follow work that has changed. */
import { describe, expect, test } from 'vitest'
import { RecentLeases } from '../../src/learn/recent.ts'
import { Sketch } from '../../src/learn/sketch.ts'
import { explainTerm, planTerm } from '../../src/learn/term.ts'

const OPTIONS = { renewalCost: 1_000, min: 100, max: 86_400_000, fallback: 30_000 } as const

/** Counts, and gives copies of itself, as a log does. */
class Counting {
  readonly #sketch = new Sketch('jobs')

  add(count: number, ms: number): this {
    for (let i = 0; i < count; i++) this.#sketch.add(ms, i % 10 === 0)
    return this
  }

  read(): Sketch {
    return Sketch.from(this.#sketch.toJSON())
  }
}

describe('the last leases', () => {
  test('are those that ended between two readings, once there are fifty', () => {
    const [past, recent] = [new Counting().add(500, 36_000_000), new RecentLeases()]
    expect(recent.of([past.read()])).toEqual([])
    expect(recent.of([past.add(49, 10_000).read()])).toEqual([])
    const [last] = recent.of([past.add(1, 10_000).read()])
    expect([last!.class, last!.ended, last!.quantile(1)]).toEqual(['jobs', 50, 10_000])
  })

  test('are at most two windows, however long the process reads', () => {
    const [past, recent] = [new Counting(), new RecentLeases()]
    for (let i = 0; i < 40; i++) recent.of([past.add(25, 10_000).read()])
    expect(recent.of([past.read()])[0]!.ended).toBeLessThanOrEqual(100)
  })

  test('are unknown after a log that counts less than before', () => {
    const [past, recent] = [new Counting().add(500, 10_000), new RecentLeases()]
    recent.of([past.read()])
    expect(recent.of([new Counting().add(100, 10_000).read()])).toEqual([])
  })
})

describe('a plan', () => {
  test('follows the last leases if they are unlike those before, and says so', () => {
    const [past, recent] = [new Counting().add(500, 36_000_000), new RecentLeases()]
    recent.of([past.read()])
    const levels = [past.add(60, 10_000).read()]
    const last = recent.of(levels)
    const [before, after] = [planTerm(levels, OPTIONS), planTerm(levels, { ...OPTIONS, recent: last })]
    expect([before.isRecent, after.isRecent]).toEqual([undefined, true])
    expect(after.first).toBeLessThan(before.first / 2)
    expect(explainTerm(after, OPTIONS)).toMatch(/the last 60 leases of jobs differ from those before/)
  })

  test('is that of the whole past if the last leases are like those before', () => {
    const [past, recent] = [new Counting().add(500, 60_000), new RecentLeases()]
    recent.of([past.read()])
    const levels = [past.add(60, 60_000).read()]
    expect(planTerm(levels, { ...OPTIONS, recent: recent.of(levels) }).isRecent).toBeUndefined()
  })

  test('of a class is not changed by the last leases of other classes', () => {
    const [all, own] = [new Sketch(''), new Counting().add(30, 36_000_000).read()]
    for (let i = 0; i < 400; i++) all.add(36_000_000)
    const others = new Sketch('')
    for (let i = 0; i < 60; i++) others.add(10_000)
    const levels = [all, own]
    expect(planTerm(levels, { ...OPTIONS, recent: [others] })).toMatchObject({ class: 'jobs', first: planTerm(levels, OPTIONS).first })
  })

  test('of few leases that ran for hours begins with a short term, and gives terms of at most twice the age', () => {
    const levels = [new Counting().add(8, 36_000_000).read()]
    const plan = planTerm(levels, { ...OPTIONS, renewalCost: 10_000 })
    const { first, at } = plan
    expect(explainTerm(plan, OPTIONS)).toMatch(/^Terms start at .* and grow with the age of a lease: .*it takes 20 of them/)
    expect(first).toBeLessThanOrEqual(30_000 * 1.2 ** 8)
    expect(at(600_000, first)).toBeGreaterThan(first)
    for (const age of [60_000, 600_000, 3_600_000]) expect(at(age, first)).toBeLessThanOrEqual(Math.max(first, 2 * age))
  })
})
