import { describe, expect, test } from 'vitest'
import { rule, ruledBy } from '../../../src/kernel/rule/policy.ts'
import { World } from '../../support/kernel/world.ts'

describe('a policy', () => {
  test('each rule is taken from the longest prefix that has it, by whole segments', () => {
    const world = new World()
    world.policy('', { capacity: 2, ttlMax: 50_000 })
    world.policy('gpu/', { capacity: 4 })
    world.policy('gpu/a100', { lockDelay: 7 })
    const rules = (name: string) => [
      rule(world.state, name, 'capacity'),
      rule(world.state, name, 'lockDelay'),
      rule(world.state, name, 'ttlMax'),
    ]
    expect(rules('gpu/a100/3')).toEqual([4, 7, 50_000])
    expect(rules('gpu/a100')).toEqual([4, 7, 50_000])
    expect(rules('gpu/a1000')).toEqual([4, 0, 50_000])
    expect(rules('gpus')).toEqual([2, 0, 50_000])
    expect(ruledBy(world.state, 'gpu/a100/3', 'capacity')).toBe('gpu')
    expect(ruledBy(world.state, 'gpu/a100/3', 'grace')).toBeUndefined()
  })

  test('is replaced as a whole, and can be removed', () => {
    const world = new World()
    world.policy('x', { capacity: 3, lockDelay: 5 })
    world.policy('x/', { capacity: 2 })
    expect([rule(world.state, 'x', 'capacity'), rule(world.state, 'x', 'lockDelay')]).toEqual([2, 0])
    expect(world.do({ kind: 'policy', prefix: 'x' })).toMatchObject({ kind: 'done' })
    expect(rule(world.state, 'x', 'capacity')).toBe(1)
    world.refused(world.do({ kind: 'policy', prefix: 'x' }), 'NOT_FOUND', 'no-policy', { prefix: 'x' })
    world.refused(world.do({ kind: 'policy', prefix: '' }), 'NOT_FOUND', 'no-policy')
  })

  test('bounds the ttl of new requests, and never shortens an acknowledged one', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'x', { ttl: 60_000 })
    world.renew(lease)
    world.policy('x', { ttlMin: 1_000, ttlMax: 5_000 })
    expect(world.lease(lease)!.term).toBe(60_000)
    expect(world.renew(lease)).toBe(60_000)
    world.refused(world.ask('b', 'x/2', { ttl: 5_001 }), 'INVALID', 'ttl-outside', { low: 1000, high: 5000 })
    world.refused(world.ask('b', ['y', 'x/2'], { ttl: 999 }), 'INVALID')
    world.refused(world.ask('b', [], { ttl: 999, entries: [{ key: 'x/e', value: '' }] }), 'INVALID')
    world.acquire('b', 'x/2', { ttl: 5_000 })
    world.policy('x/3', { ttlMin: 700, ttlMax: 700 })
    world.acquire('b', 'x/3', { ttl: 700 })
  })

  test('is announced by an event when it changes', () => {
    const world = new World()
    world.policy('x', { capacity: 2 })
    expect(world.events).toMatchObject([{ type: 'policy', key: 'x', lease: 0 }])
  })

  test('with several mistakes is refused for the same one, in whatever order its rules were written', () => {
    const said = [
      { flapHalfLife: 5, ttlMin: 0 },
      { ttlMin: 0, flapHalfLife: 5 },
    ].map(rules => new World().refused(new World().do({ kind: 'policy', prefix: 'a', rules }), 'INVALID'))
    expect(said[0]).toEqual(said[1])
  })
})
