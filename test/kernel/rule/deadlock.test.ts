import { describe, expect, test } from 'vitest'
import { World } from '../../support/kernel/world.ts'

/** Each holds what is named like it, and says so when it waits. */
function holding(...names: readonly string[]) {
  const world = new World({ strict: names.length < 10 })
  const leases = new Map(names.map(name => [name, world.acquire(name, name).lease]))
  const wait = (who: string, forWhat: string | readonly string[]) => world.ask(who, forWhat, { wait: true, holding: [leases.get(who)!] })
  return { world, leases, wait }
}

describe('a waiter that would close a cycle is refused', () => {
  test('of two waiters that want what the other holds', () => {
    const { world, wait } = holding('a', 'b')
    expect(wait('a', 'b')).toMatchObject({ kind: 'queued' })
    const refused = world.refused(wait('b', 'a'), 'DEADLOCK', 'deadlock')
    expect(refused.facts.cycle).toEqual(['a', 'b'])
  })

  test('three in a ring', () => {
    const { world, wait } = holding('a', 'b', 'c')
    wait('a', 'b')
    wait('b', 'c')
    expect(world.refused(wait('c', 'a'), 'DEADLOCK').facts.cycle).toEqual(['a', 'b', 'c'])
  })

  test('two hundred and fifty in a ring', () => {
    const names = Array.from({ length: 250 }, (_, i) => `r/${i}`)
    const { world, wait } = holding(...names)
    for (const [i, name] of names.slice(0, -1).entries()) expect(wait(name, names[i + 1]!)).toMatchObject({ kind: 'queued' })
    expect(world.refused(wait(names.at(-1)!, names[0]!), 'DEADLOCK').facts.cycle).toEqual(names)
  })

  test('through a waiter that merely stands before it in a fifo queue', () => {
    // W stands before the newcomer for x and waits for y, which the newcomer keeps: neither would ever move.
    const { world, leases } = holding('y', 'h')
    world.queue('w', ['h', 'y'])
    const refused = world.refused(world.ask('y', 'h', { wait: true, holding: [leases.get('y')!] }), 'DEADLOCK')
    expect(refused.facts.cycle).toEqual(['h', 'y'])
  })

  test('with units, where one holder alone leaves too little', () => {
    const world = new World()
    world.policy('pool', { capacity: 3 })
    const a = world.acquire('a', 'pool:2')
    const b = world.acquire('b', 'x')
    world.queue('b', 'pool:2', { holding: [b.lease] })
    world.refused(world.ask('a', 'x', { wait: true, holding: [a.lease] }), 'DEADLOCK')
  })

  test('and once the cycle is open again, the same request may wait', () => {
    const { world, leases, wait } = holding('a', 'b')
    const waiter = wait('a', 'b')
    world.refused(wait('b', 'a'), 'DEADLOCK')
    world.release((waiter as { lease: number }).lease)
    expect(wait('b', 'a')).toMatchObject({ kind: 'queued' })
    world.release(leases.get('a')!)
    expect(world.holders('a')).toEqual(['b'])
  })
})

describe('no waiter is refused on a guess', () => {
  test('without a declaration, holding proves nothing: one process may be many', () => {
    const { world, wait } = holding('a', 'b')
    wait('a', 'b')
    world.queue('b', 'a')
  })

  test('a caller cannot make a cycle with a lease that is not its own', () => {
    const world = new World()
    const [us, them] = [world.key('us', 'acquire:'), world.key('them', 'acquire:')]
    const [a, b] = [world.acquire('a', 'x', { key: us }), world.acquire('b', 'y', { key: us })]
    world.queue('stranger', 'x', { key: them, holding: [b.lease, 99] })
    world.queue('a', 'y', { key: us, holding: [a.lease] })
    world.refused(world.ask('b', 'x', { key: us, wait: true, holding: [b.lease] }), 'DEADLOCK')
  })

  test('a waiter content with any of several may be served another way', () => {
    const { world, leases, wait } = holding('a', 'b', 'c')
    world.queue('a', ['b', 'c'], { any: 1, holding: [leases.get('a')!] })
    expect(wait('b', 'a')).toMatchObject({ kind: 'queued' })
    expect(world.ask('c', ['a', 'b'], { any: 1, wait: true, holding: [leases.get('c')!] })).toMatchObject({ kind: 'queued' })
  })

  test('sharers: any of them might make room', () => {
    const world = new World()
    const [a, b] = [world.acquire('a', 'x~'), world.acquire('b', 'y~')]
    world.acquire('c', 'x~')
    world.acquire('d', 'y~')
    world.queue('a', 'y', { holding: [a.lease] })
    world.queue('b', 'x', { holding: [b.lease] })
  })

  test('units: a waiter for another resource, while the pool has room, is not blocked by the pool', () => {
    const world = new World()
    world.policy('pool', { capacity: 3 })
    const a = world.acquire('a', 'pool')
    const b = world.acquire('b', 'x')
    const c = world.acquire('c', 'y')
    world.queue('b', ['pool', 'y'], { holding: [b.lease] })
    world.queue('a', 'x', { holding: [a.lease] })
    world.release(c.lease)
    expect(world.holders('pool')).toEqual(['a', 'b'])
  })

  test('frozen units become free by themselves', () => {
    const { world, leases, wait } = holding('a', 'b')
    wait('a', 'b')
    world.do({ kind: 'revoke', target: { lease: leases.get('b')! } })
    world.queue('b', 'a', { holding: [leases.get('b')!] })
  })

  test('in a fit queue, a waiter before it is no obstacle', () => {
    const { world, leases } = holding('y', 'h')
    world.policy('h', { queue: 'fit' })
    world.queue('w', ['h', 'y'])
    world.queue('y', 'h', { holding: [leases.get('y')!] })
  })

  test('a waiter behind it is no obstacle either', () => {
    const { world, leases } = holding('y', 'h')
    world.queue('w', ['h', 'y'], { priority: -1 })
    world.queue('y', 'h', { holding: [leases.get('y')!] })
  })
})

test('waiting for oneself is a mistake, not a wait', () => {
  const world = new World()
  world.policy('pool', { capacity: 3 })
  const mine = world.acquire('a', 'x').lease
  const shared = world.acquire('a', 's~').lease
  const units = world.acquire('a', 'pool:2').lease
  const ask = (name: string, holding: readonly number[]) => world.ask('a', name, { wait: true, holding })
  world.refused(ask('x', [mine]), 'INVALID', 'waits-for-itself')
  world.refused(ask('x~', [mine]), 'INVALID', 'waits-for-itself')
  world.refused(ask('s', [shared]), 'INVALID', 'waits-for-itself')
  world.refused(ask('pool:2', [units]), 'INVALID', 'waits-for-itself')
  expect(ask('s~', [shared])).toMatchObject({ kind: 'granted' })
  world.queue('b', 'x', { holding: [units] })
})

test('a chain of six thousand waiters is searched without a deep call stack', () => {
  const world = new World({ strict: false })
  const count = 6_000
  const held = Array.from({ length: count }, (_, i) => world.acquire('h', `r${i}`).lease)
  for (let i = count - 2; i > 0; i--) world.queue('h', `r${i + 1}`, { holding: [held[i]!] })
  world.queue('h', 'r1', { holding: [held[0]!] })
})

test('five thousand waiters in one queue are looked through once, not once for each of them', () => {
  const world = new World({ strict: false })
  world.acquire('h', 'x')
  const mine = world.acquire('m', 'm')
  for (let i = 0; i < 5_000; i++) world.queue('w', 'x')
  let looked = 0
  const { queue } = world.state.resources.get('x')!
  world.state.resources.get('x')!.queue = new Proxy(queue, {
    get(target, name) {
      if (typeof name === 'string' && /^\d+$/.test(name)) looked++
      return Reflect.get(target, name)
    },
  })
  world.queue('m', 'x', { holding: [mine.lease] })
  expect(looked).toBeLessThan(200_000)
})
