/** How long work of a pool is held, from sketches made by hand. */
import { describe, expect, test } from 'vitest'
import { Sketch } from '../../src/learn/sketch.ts'
import type { PoolGrantView, PoolView } from '../../src/lessor.ts'
import { UNKNOWN_DURATION } from '../../src/pool/duration-model.ts'
import { classesIn, learnedDurations } from '../../src/pool/learned-durations.ts'

const MINUTE = 60_000

function viewOf(...running: readonly { readonly class: string; readonly held: number }[]): PoolView {
  const members = running.map((grant, i) => ({ grants: [{ ...grant, lease: i + 1 } as PoolGrantView] }))
  return { members, queue: [] } as unknown as PoolView
}

function pastOf(name: string, durations: readonly number[]) {
  const sketch = new Sketch(name)
  for (const ms of durations) sketch.add(ms)
  return sketch.toJSON()
}

const use = { holder: 'h', account: 'a', expect: 0, class: 'gpus/ann' } as const
const minutes = (...list: readonly number[]) => list.map(minute => minute * MINUTE)
const median = (model: { remaining(age: number): (chance: number) => number }, age = 0) => model.remaining(age)(0.5)

describe('learned durations', () => {
  test('are those of the class, close to its median', () => {
    const past = [pastOf('gpus', minutes(...Array(40).fill(10))), pastOf('gpus/ann', minutes(...Array(40).fill(10)))]
    const model = learnedDurations(viewOf(), new Map([['gpus/ann', past]]))(use)
    expect(median(model)).toBeGreaterThan(8 * MINUTE)
    expect(median(model)).toBeLessThan(12 * MINUTE)
    // It has run for 9 of about 10 minutes.
    expect(median(model, 9 * MINUTE)).toBeLessThan(3 * MINUTE)
  })

  test('of a class without a past are those of the level above it', () => {
    const past = [pastOf('gpus', minutes(...Array(40).fill(10)))]
    const durations = learnedDurations(viewOf(), new Map([['gpus/ann', past]]))
    expect(median(durations({ ...use, class: 'gpus/ben' }))).toBe(median(durations(use)))
  })

  test('are unknown with fewer than five leases, and what was stated counts then', () => {
    const durations = learnedDurations(viewOf(), new Map([['gpus/ann', [pastOf('gpus', minutes(10, 10, 10, 10))]]]))
    expect(durations(use)).toBe(UNKNOWN_DURATION)
    expect(median(durations({ ...use, expect: 100 * MINUTE }))).toBeCloseTo(70 * MINUTE, -3)
  })

  test('give way to a stated duration that is unlike the past, and not to one that is usual', () => {
    const past = [pastOf('gpus', minutes(...Array.from({ length: 100 }, (_, i) => 5 + i / 10)))]
    const durations = learnedDurations(viewOf(), new Map([['gpus/ann', past]]))
    expect(median(durations({ ...use, expect: 600 * MINUTE }))).toBeCloseTo(420 * MINUTE, -3)
    expect(median(durations({ ...use, expect: 10 * MINUTE }))).toBe(median(durations(use)))
  })

  test('do not forget work that still runs: it counts as far as it has come', () => {
    const past = new Map([['gpus/ann', [pastOf('gpus', minutes(...Array(10).fill(1)))]]])
    const longer = viewOf(...Array.from({ length: 20 }, () => ({ class: 'gpus/ann', held: 60 * MINUTE })))
    expect(median(learnedDurations(viewOf(), past)(use))).toBeLessThan(2 * MINUTE)
    expect(median(learnedDurations(longer, past)(use))).toBeGreaterThan(30 * MINUTE)
  })

  test('are looked up for at most 64 classes, those of many leases first', () => {
    const many = Array.from({ length: 100 }, (_, i) => ({ class: `gpus/${i}`, held: 0 }))
    const classes = classesIn(viewOf(...many, { class: 'gpus/99', held: 0 }, { class: '', held: 0 }))
    expect(classes).toHaveLength(64)
    expect(classes[0]).toBe('gpus/99')
  })

  test('of absurd pasts are numbers', () => {
    for (const past of [[0, 0, 0, 0, 0], Array(9).fill(31_536_000_000)]) {
      const model = learnedDurations(viewOf(), new Map([['gpus/ann', [pastOf('gpus', past)]]]))(use)
      for (const age of [0, 1, MINUTE, 31_536_000_000, 1e15])
        for (const chance of [1e-9, 0.5, 1 - 1e-9]) expect(model.remaining(age)(chance)).toBeGreaterThanOrEqual(0)
    }
  })
})
