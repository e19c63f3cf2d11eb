import { describe, expect, test } from 'vitest'
import { BINS, EDGES, LONGEST_DURATION, MAX_COUNT } from '../../src/kernel/state/durations.ts'
import { Sketch } from '../../src/learn/sketch.ts'

function sketchOf(...ms: readonly number[]): Sketch {
  const sketch = new Sketch()
  for (const one of ms) sketch.add(one)
  return sketch
}

describe('a sketch', () => {
  test('has bins that grow by a fifth and end with a year', () => {
    expect(EDGES.slice(0, 4)).toEqual([0, 100, 120, 144])
    expect(EDGES.at(-1)).toBe(LONGEST_DURATION + 1)
    expect(BINS).toBeLessThan(120)
  })

  test('leaves out durations that cannot be right', () => {
    const sketch = sketchOf(-1, Number.NaN, Number.POSITIVE_INFINITY, LONGEST_DURATION + 1, -1e300)
    expect(sketch.ended).toBe(0)
    sketch.add(0)
    sketch.add(LONGEST_DURATION)
    expect(sketch.ended).toBe(2)
  })

  test('knows work that always takes the same time exactly', () => {
    expect(sketchOf(...Array.from({ length: 50 }, () => 12_345)).quantile(0.5)).toBe(12_345)
  })

  test('merged with another equals one that counted both', () => {
    const [a, b, both] = [sketchOf(5, 700, 90_000, 3), sketchOf(5, 1_000_000), sketchOf(5, 700, 90_000, 3, 5, 1_000_000)]
    a.merge(b)
    expect(a.toJSON()).toEqual(both.toJSON())
  })

  test('survives JSON, and ignores bins that do not exist and numbers that cannot be right', () => {
    const sketch = sketchOf(1, 50, 3_000, 3_100, 86_400_000)
    sketch.add(7_000, true)
    const view = JSON.parse(JSON.stringify(sketch))
    expect(Sketch.from(view).toJSON()).toEqual(sketch.toJSON())
    const hostile = { bin: 10_000, counts: [1, 1], sums: [1, 1], squares: [1, 1] }
    const negative = { bin: 3, counts: [-5, Number.NaN], sums: [-1, 1], squares: [] }
    expect(Sketch.from({ class: '', ended: 1e300, died: -4, bins: [hostile, negative] }).toJSON()).toMatchObject({
      ended: 0,
      died: 0,
      bins: [],
    })
  })

  test('stays bounded: what was counted long ago counts half', () => {
    const sketch = new Sketch()
    for (let i = 0; i < MAX_COUNT + 10; i++) sketch.add(i % 2 === 0 ? 1_000 : 60_000, i % 10 === 0)
    expect(sketch.ended).toBeLessThan(MAX_COUNT * 0.6)
    expect(sketch.died / sketch.ended).toBeCloseTo(0.1, 2)
    expect(sketch.quantile(1)).toBe(60_000)
  })
})
