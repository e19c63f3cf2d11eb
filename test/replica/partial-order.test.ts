/** Orders that are made only as far as they are read. */
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { PartialOrder } from '../../src/replica/partial-order.ts'

function drain<T>(steps: Generator<void, T, void>): { readonly value: T; readonly yields: number } {
  for (let yields = 0; ; yields++) {
    const { done, value } = steps.next()
    if (done) return { value, yields }
  }
}

/** A source of numbers in [0, 1) that is the same in every run. */
function pseudoRandom(seed = 1): () => number {
  let n = seed
  return () => {
    n = (Math.imul(n, 1_103_515_245) + 12_345) >>> 0
    return n / 2 ** 32
  }
}

const byKey = (keys: readonly number[]) => (a: number, b: number) => keys[a]! - keys[b]! || a - b

test('every page, in whatever order pages are read, has what a full sort has there', () => {
  const page = fc.record({ from: fc.nat(6_000), length: fc.nat(400) })
  fc.assert(
    fc.property(
      fc.array(fc.nat(50), { maxLength: 5_000, minLength: 1 }),
      fc.array(page, { maxLength: 8 }),
      fc.integer({ min: 1 }),
      (keys, pages, seed) => {
        const compare = byKey(keys)
        const sorted = keys.map((_, i) => i).sort(compare)
        const order = new PartialOrder({ length: keys.length, compare, random: pseudoRandom(seed) })
        for (const { from, length } of pages)
          expect(drain(order.range(from, from + length)).value).toEqual(sorted.slice(from, from + length))
      },
    ),
    { numRuns: 60 },
  )
})

test.each([
  ['ascending', (i: number) => i],
  ['descending', (i: number) => -i],
  ['equal', () => 7],
  ['organ pipes', (i: number) => Math.min(i, 100_000 - i)],
  ['made to be bad for the middle', (i: number) => (i % 2 === 0 ? i : 100_000 - i)],
])('a page of 100,000 items that are %s takes a few passes over them, in short steps', (_, keyOf) => {
  const keys = Array.from({ length: 100_000 }, (_, i) => keyOf(i))
  let compared = 0
  let most = 0
  const compare = (a: number, b: number) => {
    compared++
    return byKey(keys)(a, b)
  }
  const order = new PartialOrder({ length: keys.length, compare, random: pseudoRandom(42) })
  const steps = order.range(50_000, 50_100)
  for (let before = 0; !steps.next().done; before = compared) most = Math.max(most, compared - before)
  expect(compared).toBeLessThan(1_200_000)
  expect(most).toBeLessThan(30_000)
  const first = compared
  drain(order.range(50_100, 50_200))
  expect(compared - first).toBeLessThan(first / 4)
})

test('a page behind the end is empty', () => {
  const order = new PartialOrder({ length: 0, compare: (a, b) => a - b, random: pseudoRandom() })
  expect(drain(order.range(0, 10)).value).toEqual([])
  const three = new PartialOrder({ length: 3, compare: (a, b) => b - a, random: pseudoRandom() })
  expect(drain(three.range(2, 99)).value).toEqual([0])
  expect(drain(three.range(7, 99)).value).toEqual([])
})
