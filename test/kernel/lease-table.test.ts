import fc from 'fast-check'
import { expect, test } from 'vitest'
import { LeaseTable } from '../../src/kernel/state/lease-table.ts'
import type { LeaseState } from '../../src/kernel/state.ts'

const lease = (id: number) => ({ id }) as LeaseState

test('a table answers as a Map does to which numbers are added in ascending order', () => {
  const gap = fc.oneof(fc.integer({ min: 1, max: 5 }), fc.integer({ min: 1, max: 100 }), fc.constant(2 ** 33))
  const step = fc.oneof(fc.record({ add: gap }), fc.record({ remove: fc.nat({ max: 200 }) }))
  fc.assert(
    fc.property(fc.integer({ min: -(2 ** 40), max: 2 ** 40 }), fc.array(step, { maxLength: 300 }), (start, steps) => {
      const table = new LeaseTable<LeaseState>()
      const model = new Map<number, LeaseState>()
      let next = start
      for (const one of steps) {
        if ('add' in one) {
          next += one.add
          const made = lease(next)
          table.set(next, made)
          model.set(next, made)
        } else {
          const number = [...model.keys()][one.remove] ?? start
          table.delete(number)
          model.delete(number)
        }
        expect(table.size).toBe(model.size)
      }
      expect([...table.values()]).toEqual([...model.values()])
      for (let number = next - 100; number <= next; number++) {
        expect(table.get(number)).toBe(model.get(number))
        expect(table.has(number)).toBe(model.has(number))
      }
    }),
  )
})

test('a number that is set again is counted once', () => {
  const table = new LeaseTable<LeaseState>()
  const second = lease(1)
  table.set(1, lease(1))
  table.set(1, second)
  expect(table.size).toBe(1)
  expect(table.get(1)).toBe(second)
})

test('a walk goes on over leases that are removed and added meanwhile', () => {
  const table = new LeaseTable<LeaseState>()
  for (let i = 0; i < 100; i++) table.set(i, lease(i))
  const seen: number[] = []
  for (const { id } of table.values()) {
    seen.push(id)
    if (id === 10) for (let i = 11; i < 90; i++) table.delete(i)
    if (id === 95) for (let i = 100; i < 200; i++) table.set(i, lease(i))
  }
  expect(seen).toEqual([...Array.from({ length: 11 }, (_, i) => i), ...Array.from({ length: 110 }, (_, i) => 90 + i)])
})
