/** Queues and maps of bounded size whose steps cost the same however long they are. */
import { expect, test } from 'vitest'
import { Fifo } from '../src/fifo.ts'
import { RecentMap } from '../src/recent-map.ts'

test('a queue gives its items in the order in which they came, however they are mixed', () => {
  const queue = new Fifo<number>()
  const taken: (number | undefined)[] = []
  let next = 0
  for (let round = 0; round < 50; round++) {
    for (let i = 0; i < (round * 7) % 11; i++) queue.push(next++)
    for (let i = 0; i < (round * 5) % 9 && queue.size > 0; i++) taken.push(queue.shift())
    expect(queue.items()).toEqual(Array.from({ length: queue.size }, (_, i) => taken.length + i))
  }
  while (queue.size > 0) taken.push(queue.shift())
  expect(taken).toEqual(Array.from({ length: next }, (_, i) => i))
  expect(queue.shift()).toBeUndefined()
})

test('a map of bounded size remembers what was set last, and at most twice as much', () => {
  const map = new RecentMap<number, number>(10)
  for (let i = 0; i < 1_000; i++) {
    map.set(i, i)
    for (let back = 0; back < Math.min(10, i); back++) expect(map.get(i - back)).toBe(i - back)
    expect(map.size).toBeLessThanOrEqual(20)
  }
  expect(map.get(900)).toBeUndefined()
  map.set(999, 1)
  expect(map.get(999)).toBe(1)
})
