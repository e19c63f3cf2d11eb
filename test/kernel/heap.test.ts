import fc from 'fast-check'
import { expect, test } from 'vitest'
import { Heap } from '../../src/kernel/heap.ts'

test('a heap gives its items in order, even when items are added in between', () => {
  fc.assert(
    fc.property(fc.array(fc.option(fc.nat(50), { nil: undefined }), { maxLength: 60 }), steps => {
      const heap = new Heap<number>((one, other) => one < other)
      const list: number[] = []
      for (const step of steps) {
        if (step === undefined) expect(heap.take()).toBe(list.shift())
        else {
          heap.add(step)
          list.push(step)
          list.sort((a, b) => a - b)
        }
      }
      while (list.length > 0) expect(heap.take()).toBe(list.shift())
      expect(heap.take()).toBeUndefined()
    }),
  )
})
