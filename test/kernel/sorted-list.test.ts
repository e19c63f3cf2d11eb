/** Names in order, in chunks. */
import { expect, test } from 'vitest'
import { SortedList } from '../../src/kernel/state/sorted-list.ts'

interface Item {
  readonly name: string
}

test('items are found, and come in the order of their names, whatever was added and deleted before', () => {
  const list = new SortedList<Item>()
  const there = new Map<string, Item>()
  // A fixed sequence that looks random: each number below 3,001 many times.
  let number = 1
  for (let i = 0; i < 12_000; i++) {
    number = (number * 1_103 + 12_345) % 3_001
    const name = `n${number}`
    const item = there.get(name)
    expect(list.get(name)).toBe(item)
    if (item === undefined) {
      const added = { name }
      there.set(name, added)
      list.add(added)
    } else if (i % 3 === 0) {
      there.delete(name)
      list.delete(item)
    }
    if (i % 1_000 === 0) expect([...list]).toEqual([...there.values()].sort((one, other) => (one.name < other.name ? -1 : 1)))
  }
  expect(there.size).toBeGreaterThan(1_500)
  for (const item of there.values()) list.delete(item)
  expect([...list]).toEqual([])
  expect(list.get('n1')).toBeUndefined()
})
