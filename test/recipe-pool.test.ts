import { expect, test } from 'vitest'
import { silentLessor } from '../src/testing/in-memory.ts'
import { everywhere } from './recipe-places.ts'

everywhere('any so many of those that match are taken, all at once, and given back together', async ({ open }) => {
  await using owner = await open('owner')
  await using user = await open('user')
  const gpus = owner.pool('gpu')
  for (const [name, model] of [
    ['0', 'A100'],
    ['1', 'A100'],
    ['2', 'A100'],
    ['3', 'H100'],
  ] as const)
    await gpus.offer(name, { labels: { model, zone: 'b' } })
  const a100 = user.pool('gpu', { match: { model: 'A100' } })
  expect((await a100.members()).map(({ member }) => member)).toEqual(['0', '1', '2'])
  const two = await a100.take(2, { wait: '5s', expect: '20m' })
  expect(two.resources).toHaveLength(2)
  expect(two.resources.every(name => ['gpu/0', 'gpu/1', 'gpu/2'].includes(name))).toBe(true)
  expect(await a100.tryTake(2)).toBeUndefined()
  await using one = await a100.take(1, { wait: 0 })
  expect(two.resources).not.toContain(one.resources[0])
  await using other = await user.pool('gpu').take(1, { match: { model: 'H100' } })
  expect(other.resources).toEqual(['gpu/3'])
  const waiting = a100.take(2, { wait: '10s' })
  await two.release()
  await using again = await waiting
  expect([...again.resources].sort()).toEqual([...two.resources].sort())
  await expect(a100.take(4)).rejects.toMatchObject({ code: 'NOT_FOUND', facts: { members: 3, count: 4 } })
})

everywhere('a member with units is shared out by weight', async ({ open }) => {
  await using owner = await open('owner')
  await using user = await open('user')
  await owner.pool('machine').offer('big', { units: 8 })
  const machines = user.pool('machine')
  await using five = await machines.take(1, { units: 5 })
  await using three = await machines.take(1, { units: 3, wait: 0 })
  expect(await machines.tryTake(1, { units: 1 })).toBeUndefined()
  await three.release()
  expect(await machines.tryTake(1, { units: 4 })).toBeUndefined()
  expect(await machines.tryTake(1)).toBeUndefined() // all of it
  await five.release()
  await using all = await machines.take()
  expect(all.held).toBe(true)
  await expect(machines.take(1, { units: 9 })).rejects.toMatchObject({ code: 'NOT_FOUND' })
})

test('those who wait are served in their order: whoever wants more is not overtaken', async () => {
  const { leases, clock } = silentLessor()
  const pool = leases.pool('p')
  for (const name of ['a', 'b']) await pool.offer(name)
  const first = await pool.take(1)
  const order: string[] = []
  const both = pool.take(2).then(async lease => {
    order.push('both')
    await lease.release()
  })
  await clock.settle()
  const single = pool.take(1).then(async lease => {
    order.push('single')
    await lease.release()
  })
  await clock.settle()
  expect(order).toEqual([])
  await first.release()
  await Promise.all([both, single])
  expect(order).toEqual(['both', 'single'])
})

test('a member whose owner has died is offered no more', async () => {
  const { leases, clock, lessor, log } = silentLessor({ holder: 'owner' })
  const user = silentLessor({ holder: 'user', clock, log })
  await leases.pool('p').offer('a', { ttl: 1_000 })
  expect(await user.leases.pool('p').members()).toHaveLength(1)
  lessor.stopAnswering()
  await clock.advance(1_100)
  expect(await user.leases.pool('p').members()).toEqual([])
  lessor.answer()
})
