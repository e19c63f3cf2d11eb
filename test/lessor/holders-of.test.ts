/** The holders that an error names, without the queue behind them. */
import { expect, test } from 'vitest'
import { holdersOf } from '../../src/lessor/holders-of.ts'
import { propose } from '../../src/lessor/propose.ts'
import { Replica } from '../../src/replica/replica.ts'
import { MemoryLog, MemoryStore } from '../../src/store/memory.ts'

test('the holders are read without the waiters, however many wait', async () => {
  await using replica = await Replica.open(new MemoryStore({ log: new MemoryLog() }))
  for (const holder of ['ann', 'bob', 'eve'])
    await propose(replica, { kind: 'acquire', holder, ttl: 60_000, wants: [{ resource: 'a' }], wait: true })
  const queues: number[] = []
  const lessor = {
    read: (async (query, options) => {
      const view = await replica.read(query, options)
      queues.push((view.value as { readonly queue: readonly unknown[] }).queue.length)
      return view
    }) as Replica['read'],
  }
  expect(await holdersOf(lessor, ['a', 'free'])).toEqual(['ann'])
  expect(queues).toEqual([0, 0])
  const { value } = await replica.read({ kind: 'resource', resource: 'a', waiters: 1 })
  expect(value.queue.map(({ holder }) => holder)).toEqual(['bob'])
})
