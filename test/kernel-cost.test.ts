/** What commands cost, counted and not timed: work must not grow with what a command does not change. */
import { beforeEach, expect, test, vi } from 'vitest'
import { World } from './kernel/world.ts'

const counted = vi.hoisted(() => ({ tries: 0 }))
vi.mock('../src/kernel/queue.ts', async original => {
  const queue = await original<typeof import('../src/kernel/queue.ts')>()
  const choose: typeof queue.choose = (...asked) => {
    counted.tries++
    return queue.choose(...asked)
  }
  return { ...queue, choose }
})

beforeEach(() => {
  counted.tries = 0
})

const MEMBERS = Array.from({ length: 256 }, (_, i) => `pool/${i}`)

/** Every member of the pool is held, and each waiter waits for any of them. */
function pool(
  queue: 'fifo' | 'fit',
  waiters: number,
  rules: number,
): { readonly world: World; readonly holders: number[]; readonly waiting: number[] } {
  const world = new World({ strict: false })
  world.state.rules = rules
  world.policy('pool', { queue })
  const holders = MEMBERS.map(member => world.acquire('h', member).lease)
  const waiting = Array.from({ length: waiters }, (_, i) => world.queue(`w${i}`, MEMBERS, { any: 1 }).lease)
  counted.tries = 0
  return { world, holders, waiting }
}

for (const [queue, waiters] of [
  ['fifo', 200],
  ['fit', 200],
  ['fit', 1_000],
] as const)
  for (const rules of [1, 2])
    test(`a release in a pool of 256 members with ${waiters} ${queue} waiters tries each waiter at most once, under rules version ${rules}`, () => {
      const { world, holders, waiting } = pool(queue, waiters, rules)
      world.release(holders[77]!)
      expect(counted.tries).toBeLessThanOrEqual(rules === 1 ? waiters : 2)
      expect(world.state.resources.get('pool/77')!.grants.map(({ lease }) => lease.id)).toEqual([waiting[0]])
      expect(world.state.resources.get('pool/3')!.queue.map(({ id }) => id)).toEqual(waiting.slice(1))
      counted.tries = 0
      world.release(waiting[5]!) // a waiter withdraws: nothing is free
      expect(counted.tries).toBeLessThanOrEqual(rules === 1 ? waiters : 0)
    })
