/** What commands cost, counted and not timed: work must not grow with what a command does not change. */
import { beforeEach, expect, test, vi } from 'vitest'
import { World } from '../support/kernel/world.ts'

const counted = vi.hoisted(() => ({ tries: 0, looks: 0 }))
vi.mock('../../src/kernel/rule/queue.ts', async original => {
  const queue = await original<typeof import('../../src/kernel/rule/queue.ts')>()
  const choose: typeof queue.choose = (...asked) => {
    counted.tries++
    return queue.choose(...asked)
  }
  const positionOf: typeof queue.positionOf = (...asked) => {
    counted.looks++
    return queue.positionOf(...asked)
  }
  return { ...queue, choose, positionOf }
})

beforeEach(() => {
  counted.tries = counted.looks = 0
})

const MEMBERS = Array.from({ length: 256 }, (_, i) => `pool/${i}`)

/** Every member of the pool is held, and each waiter waits for any of them. */
function pool(queue: 'fifo' | 'fit', waiters: number): { readonly world: World; readonly holders: number[]; readonly waiting: number[] } {
  const world = new World({ strict: false })
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
  test(`a release in a pool of 256 members with ${waiters} ${queue} waiters tries no waiter that cannot be served`, () => {
    const { world, holders, waiting } = pool(queue, waiters)
    world.release(holders[77]!)
    expect(counted.tries).toBeLessThanOrEqual(2)
    expect(world.state.resources.get('pool/77')!.grants.map(({ lease }) => lease.id)).toEqual([waiting[0]])
    expect(world.state.resources.get('pool/3')!.queue.map(({ id }) => id)).toEqual(waiting.slice(1))
    counted.tries = 0
    world.release(waiting[5]!) // a waiter withdraws: nothing is free
    expect(counted.tries).toBe(0)
  })

test('a waiter that keeps a lease without waiters is not compared with all waiters before it', () => {
  const world = new World({ strict: false })
  world.acquire('h', 'x')
  const wait = (i: number) => world.queue(`w${i}`, 'x', { holding: [world.acquire(`w${i}`, `own/${i}`).lease] })
  for (let i = 0; i < 2_000; i++) wait(i)
  counted.looks = 0
  wait(2_000)
  expect(counted.looks).toBeLessThan(10)
  // A waiter for what it keeps, which leads to no cycle.
  const { lease } = world.acquire('last', 'own/last')
  world.queue('other', 'own/last')
  counted.looks = 0
  world.queue('last', 'x', { holding: [lease] })
  expect(counted.looks).toBeLessThan(10)
})

test('a cycle that closes through thousands of waiters is found', () => {
  const world = new World({ strict: false })
  const x = world.acquire('h', 'x').lease
  const { lease } = world.acquire('last', 'own/last')
  for (let i = 0; i < 1_000; i++) world.queue(`w${i}`, 'x', { holding: [world.acquire(`w${i}`, `own/${i}`).lease] })
  world.queue('h', 'own/last', { holding: [x] })
  world.refused(world.ask('last', 'x', { wait: true, holding: [lease] }), 'DEADLOCK')
})

/** The same list, which counts how often one of its places is read. */
function watched<T>(list: T[]): { readonly list: T[]; reads: number } {
  const seen = {
    reads: 0,
    list: new Proxy(list, {
      get(target, name) {
        if (typeof name === 'string' && /^\d+$/.test(name)) seen.reads++
        return Reflect.get(target, name)
      },
    }),
  }
  return seen
}

test('a new waiter does not visit holders whose hold timer already runs', () => {
  const world = new World({ strict: false })
  world.policy('x', { maxHold: 5_000 })
  for (let i = 0; i < 2_000; i++) world.acquire(`h${i}`, 'x~')
  world.queue('first', 'x')
  const resource = world.state.resources.get('x')!
  const seen = watched([...resource.grants])
  resource.held = seen.list
  for (let i = 0; i < 20; i++) world.queue(`w${i}`, 'x')
  expect(seen.reads).toBeLessThan(200)
})

test('one of many holders is released without a walk over the others', () => {
  const world = new World({ strict: false })
  const held = Array.from({ length: 20_000 }, (_, i) => world.acquire(`h${i}`, 'x~').lease)
  const resource = world.state.resources.get('x')!
  const seen = watched([...resource.grants])
  resource.held = seen.list
  world.release(held.at(-1)!) // the last: what a list moves up behind it is not counted
  expect(seen.reads).toBeLessThan(50)
})

test('a quota is counted: neither other leases nor those of the holder are walked, before and after a change of its size', () => {
  const world = new World({ strict: false })
  world.policy('q', { quota: 1_002 })
  for (let i = 0; i < 5_000; i++) world.acquire(`h${i}`, `r/${i}`)
  for (let i = 0; i < 1_000; i++) world.acquire('me', `q/${i}`)
  let looks = 0
  for (const lease of world.state.leases.values()) {
    const { grants } = lease
    Object.defineProperty(lease, 'grants', {
      get() {
        looks++
        return grants
      },
    })
  }
  for (let i = 1_000; i < 1_002; i++) world.acquire('me', `q/${i}`)
  world.refused(world.ask('me', 'q/x'), 'LIMIT', 'quota', { leases: 1_002, prefix: 'q' })
  world.policy('q', { quota: 1_003 })
  world.acquire('me', 'q/x')
  world.refused(world.ask('me', 'q/y'), 'LIMIT', 'quota', { leases: 1_003, prefix: 'q' })
  expect(looks).toBe(0)
})
