/** Waiters that want more than a lowered capacity: they keep their place and block no other. */
import { describe, expect, test } from 'vitest'
import { reload, World } from '../../support/kernel/world.ts'

describe('a waiter that wants more than the capacity', () => {
  test('is passed over in a fifo queue, and keeps its place', () => {
    const world = new World()
    world.policy('x', { capacity: 3 })
    const { lease } = world.acquire('ann', 'x:3')
    world.queue('big', 'x:3')
    world.queue('bob', 'x:1')
    world.policy('x', { capacity: 1 })
    world.release(lease)
    expect(world.holders('x')).toEqual(['bob'])
    expect(world.waiters('x')).toEqual(['big'])
    world.refused(world.ask('cid', 'x'), 'HELD')
    world.policy('x', { capacity: 4 })
    expect(world.holders('x')).toEqual(['bob', 'big'])
  })

  test('does not block newcomers', () => {
    const world = new World()
    world.policy('x', { capacity: 3 })
    const { lease } = world.acquire('ann', 'x:3')
    world.queue('big', 'x:2')
    world.policy('x', { capacity: 1 })
    world.release(lease)
    expect(world.ask('bob', 'x')).toMatchObject({ kind: 'granted' })
  })

  test('and another resource does not block that one either, from the policy change on', () => {
    const world = new World()
    world.policy('x', { capacity: 3 })
    world.acquire('ann', 'x:3')
    world.queue('big', ['x:2', 'y'])
    world.queue('bob', 'y')
    expect(world.holders('y')).toEqual([])
    world.policy('x', { capacity: 1 })
    expect(world.holders('y')).toEqual(['bob'])
  })

  test('for any of several blocks only where it can be served', () => {
    const world = new World()
    world.policy('x', { capacity: 3 })
    const { lease } = world.acquire('ann', ['x:3', 'y'])
    world.queue('any', ['x:2', 'y'], { any: 1 })
    world.queue('bob', 'x')
    world.queue('cid', 'y')
    world.policy('x', { capacity: 1 })
    world.release(lease)
    expect([world.holders('x'), world.holders('y')]).toEqual([['bob'], ['any']])
  })

  test('is passed over after a snapshot as well', () => {
    const world = new World()
    world.policy('x', { capacity: 3 })
    const { lease } = world.acquire('ann', 'x:3')
    world.queue('big', 'x:3')
    world.queue('bob', 'x:1')
    world.policy('x', { capacity: 1 })
    world.state = reload(world.state)
    world.release(lease)
    expect(world.holders('x')).toEqual(['bob'])
  })

  test('may want less, and keeps its place', () => {
    const world = new World()
    world.policy('x', { capacity: 4 })
    const { lease } = world.acquire('ann', 'x:4')
    const waiter = world.queue('any', ['x:4', 'y:1'], { any: 2 })
    world.queue('bob', 'x')
    world.do({ kind: 'widen', lease: waiter.lease, wants: [{ resource: 'x', units: 2 }] })
    expect(world.lease(waiter.lease)!.extras!.wants[0]!.units).toBe(4)
    world.policy('x', { capacity: 2 })
    world.do({ kind: 'widen', lease: waiter.lease, wants: [{ resource: 'x', units: 2 }] })
    world.release(lease)
    expect(world.holders('x')).toEqual(['any'])
    expect(world.waiters('x')).toEqual(['bob'])
  })

  test('ends no holder with a limit on holding while others wait', () => {
    const world = new World()
    world.policy('x', { capacity: 2, maxHold: 1_000 })
    const { lease } = world.acquire('ann', 'x')
    world.queue('big', 'x:2')
    world.policy('x', { capacity: 1, maxHold: 1_000 })
    expect(world.due(lease, 2).kind).toBe('nothing')
    expect(world.holders('x')).toEqual(['ann'])
  })

  test('closes no waiting cycle', () => {
    const world = new World()
    world.policy('x', { capacity: 2 })
    const mine = world.acquire('ann', 'y')
    world.acquire('cid', 'x:2')
    world.queue('big', ['x:2', 'y'])
    world.policy('x', { capacity: 1 })
    expect(world.ask('ann', 'x', { wait: true, holding: [mine.lease] })).toMatchObject({ kind: 'queued' })
  })
})
