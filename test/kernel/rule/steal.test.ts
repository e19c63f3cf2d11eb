/** Which leases a steal ends: as few as possible. */
import { describe, expect, test } from 'vitest'
import { World } from '../../support/kernel/world.ts'

describe('a steal', () => {
  const steal = (world: World, names: string | readonly string[], more: object = {}) =>
    world.ask('thief', names, { wait: true, steal: 'after', ...more })

  test('of any of several resources ends no lease while enough of them are free', () => {
    for (const how of ['after', 'force'] as const) {
      const world = new World()
      world.acquire('ann', 'b')
      world.acquire('bob', 'c')
      expect(steal(world, ['b', 'a', 'c'], { any: 1, steal: how })).toMatchObject({ kind: 'granted', resources: ['a'] })
      expect([world.holders('b'), world.holders('c')]).toEqual([['ann'], ['bob']])
    }
  })

  test('of any of several resources ends as few leases as possible', () => {
    const world = new World()
    world.policy('pool', { capacity: 2 })
    world.acquire('ann', ['b', 'c'])
    world.acquire('bob', 'pool')
    world.acquire('cid', 'pool')
    expect(steal(world, ['pool:2', 'b', 'a', 'c'], { any: 2, steal: 'force' })).toMatchObject({ kind: 'granted', resources: ['b', 'a'] })
    expect(world.holders('pool')).toEqual(['bob', 'cid'])
    expect(world.holders('c')).toEqual([])
  })

  test('of units ends no lease while enough are free, and then as few as possible, the largest first and the newest of equals', () => {
    const world = new World()
    world.policy('x', { capacity: 10 })
    world.acquire('one', 'x:1')
    world.acquire('two', 'x:1')
    world.acquire('big', 'x:4')
    world.acquire('three', 'x:1')
    expect(steal(world, 'x:3')).toMatchObject({ kind: 'granted' })
    expect(world.holders('x')).toEqual(['one', 'two', 'big', 'three', 'thief'])
    expect(steal(world, 'x:4')).toMatchObject({ kind: 'queued' })
    expect(world.holders('x')).toEqual(['one', 'two', 'big*', 'three', 'thief'])
    // What comes free is promised to the first thief.
    expect(steal(world, 'x:1', { steal: 'after' })).toMatchObject({ kind: 'queued' })
    expect(world.holders('x')).toEqual(['one', 'two', 'big*', 'three', 'thief*'])
  })

  test('by force takes frozen units before it ends another lease', () => {
    const world = new World()
    world.policy('x', { capacity: 3 })
    const { lease } = world.acquire('ann', 'x:1')
    world.acquire('bob', 'x:2')
    world.do({ kind: 'revoke', target: { lease } })
    expect(steal(world, 'x:1', { steal: 'force' })).toMatchObject({ kind: 'granted' })
    expect(world.holders('x')).toEqual(['bob', 'thief'])
  })

  test('waits for frozen units, and ends no other lease', () => {
    const world = new World()
    world.policy('x', { capacity: 3 })
    const { lease } = world.acquire('ann', 'x:1')
    world.acquire('bob', 'x:2')
    world.do({ kind: 'revoke', target: { lease } })
    expect(steal(world, 'x:1')).toMatchObject({ kind: 'queued' })
    expect(world.holders('x')).toEqual(['ann*', 'bob'])
  })

  test('of an exclusive resource ends all sharers, and of a shared one all others', () => {
    const world = new World()
    world.acquire('ann', 'x~')
    world.acquire('bob', 'x~')
    world.acquire('cid', 'y')
    expect(steal(world, ['x', 'y~'], { steal: 'force' })).toMatchObject({ kind: 'granted' })
    expect([world.holders('x'), world.holders('y')]).toEqual([['thief'], ['thief']])
    expect(steal(world, 'y~')).toMatchObject({ kind: 'granted' })
    expect(world.holders('y')).toEqual(['thief', 'thief'])
  })

  test('does not end an ancestor of the thief while others suffice', () => {
    const world = new World()
    world.policy('x', { capacity: 3 })
    const parent = world.acquire('boss', 'x:2')
    world.acquire('ann', 'x:1')
    expect(steal(world, 'x:1', { parent: parent.lease, steal: 'force' })).toMatchObject({ kind: 'granted' })
    expect(world.holders('x')).toEqual(['boss', 'thief'])
    world.refused(steal(world, 'x:2', { parent: parent.lease, steal: 'force' }), 'INVALID', 'steals-from-parent')
  })

  test('needs the right to end its victims, and prefers those that it may end', () => {
    const world = new World()
    world.policy('x', { capacity: 2 })
    const key = world.key('t', 'acquire:', 'break:x')
    world.acquire('ann', ['x', 'other'])
    world.acquire('bob', 'x')
    expect(steal(world, 'x', { key })).toMatchObject({ kind: 'queued' })
    expect(world.holders('x')).toEqual(['ann', 'bob*'])
    world.refused(steal(world, 'x:2', { key }), 'FORBIDDEN')
  })
})
