import { describe, expect, test } from 'vitest'
import { World } from '../../support/kernel/world.ts'

describe('permits', () => {
  test('as many hold a resource as its requests say, without a policy', () => {
    const world = new World()
    for (const name of ['a', 'b', 'c']) world.acquire(name, 's', { permits: 3 })
    world.refused(world.ask('d', 's', { permits: 3 }), 'HELD', 'held')
    expect(world.holders('s')).toEqual(['a', 'b', 'c'])
  })

  test('a request takes several permits, and waiters are not overtaken', () => {
    const world = new World()
    const { lease } = world.acquire('a', 's:2', { permits: 3 })
    world.queue('b', 's:2', { permits: 3 })
    world.refused(world.ask('c', 's', { permits: 3 }), 'HELD', 'held')
    world.queue('c', 's', { permits: 3 })
    world.release(lease)
    expect(world.holders('s')).toEqual(['b', 'c'])
  })

  test('the smallest number of all holders and of the request counts', () => {
    const world = new World()
    const few = world.acquire('few', 's', { permits: 2 })
    world.acquire('many', 's', { permits: 5 })
    const refused = world.refused(world.ask('more', 's', { permits: 5 }), 'HELD', 'held')
    expect(refused.facts).toMatchObject({ limit: 2 })
    world.release(few.lease)
    for (const name of ['x', 'y']) world.acquire(name, 's', { permits: 5 })
    world.refused(world.ask('few', 's', { permits: 3 }), 'HELD', 'held')
    expect(world.holders('s')).toEqual(['many', 'x', 'y'])
  })

  test('when the holder with the smallest number has gone, waiters are served up to the next one', () => {
    const world = new World()
    const one = world.acquire('one', 's', { permits: 1 })
    for (const name of ['a', 'b', 'c', 'd']) world.queue(name, 's', { permits: name === 'c' ? 3 : 4 })
    world.release(one.lease)
    expect(world.holders('s')).toEqual(['a', 'b', 'c'])
    expect(world.waiters('s')).toEqual(['d'])
  })

  test('a request without permits agrees to the capacity, and is alone by default', () => {
    const world = new World()
    const { lease } = world.acquire('lock', 's')
    world.refused(world.ask('a', 's', { permits: 3 }), 'HELD', 'held')
    world.release(lease)
    world.acquire('a', 's', { permits: 3 })
    world.refused(world.ask('lock', 's'), 'HELD', 'held')
    world.policy('s', { capacity: 3 })
    world.acquire('plain', 's')
  })

  test('a capacity that a policy sets bounds everyone', () => {
    const world = new World()
    world.policy('s', { capacity: 2 })
    world.refused(world.ask('a', 's:3', { permits: 5 }), 'INVALID', 'beyond-capacity')
    for (const name of ['a', 'b']) world.acquire(name, 's', { permits: 5 })
    world.refused(world.ask('c', 's', { permits: 5 }), 'HELD', 'held')
  })

  test.each([
    ['any', ['s', 't'], { permits: 2, any: 1 }, 'not-together'],
    ['a pool', [], { permits: 2, pool: { pool: 'g' } }, 'not-together'],
    ['a shared want', ['s~'], { permits: 2 }, 'not-together'],
    ['no resource', [], { permits: 2 }, 'needs'],
    ['no number', ['s'], { permits: 0 }, 'out-of-range'],
    ['more units than permits', ['s:3'], { permits: 2 }, 'beyond-capacity'],
  ] as const)('permits with %s are refused', (_, names, options, reason) => {
    const world = new World()
    world.refused(world.ask('a', names, options), 'INVALID', reason)
  })

  test('a frozen holder counts until it has stopped', () => {
    const world = new World()
    const { lease } = world.acquire('a', 's', { permits: 2 })
    world.acquire('b', 's', { permits: 2 })
    world.do({ kind: 'revoke', target: { lease } })
    world.queue('c', 's', { permits: 2 })
    expect(world.holders('s')).toEqual(['a*', 'b'])
    world.release(lease)
    expect(world.holders('s')).toEqual(['b', 'c'])
  })

  test('a lease that is transferred keeps its number', () => {
    const world = new World()
    const { lease } = world.acquire('a', 's', { permits: 2 })
    world.do({ kind: 'transfer', lease, to: 'heir', stopped: true })
    world.acquire('b', 's', { permits: 5 })
    world.refused(world.ask('c', 's', { permits: 5 }), 'HELD', 'held')
  })

  test('a transfer does not answer a waiter that states another number', () => {
    const world = new World()
    const { lease } = world.acquire('a', 's', { permits: 1 })
    const waiting = world.queue('b', 's', { permits: 4 })
    const passed = world.do({ kind: 'transfer', lease, to: 'b', incarnation: waiting.incarnation, stopped: true })
    expect(passed).toMatchObject({ kind: 'done' })
    expect(world.state.resources.get('s')!.grants.map(grant => grant.lease.extras?.permits)).toEqual([1])
  })

  test('a steal ends no holder that could stay, whichever number it states', () => {
    const world = new World()
    const strict = world.acquire('strict', 's', { permits: 2 })
    world.acquire('other', 's', { permits: 4 })
    world.acquire('thief', 's', { permits: 4, wait: true, steal: 'force' })
    expect(world.lease(strict.lease)).toBeDefined()
    expect(world.holders('s')).toEqual(['strict', 'thief'])
  })

  test('a client that keeps a permit cannot wait for more than there will be beside it', () => {
    const world = new World()
    const { lease } = world.acquire('a', 's', { permits: 2 })
    const ask = (units: number) => world.ask('a', `s:${units}`, { permits: 3, wait: true, holding: [lease] })
    world.refused(ask(2), 'INVALID', 'waits-for-itself')
    expect(ask(1)).toMatchObject({ kind: 'granted' })
  })
})
