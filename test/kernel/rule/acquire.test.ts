import { describe, expect, test } from 'vitest'
import { refusal } from '../../../src/kernel/apply.ts'
import { World, wants } from '../../support/kernel/world.ts'

describe('all or nothing', () => {
  test('several resources are granted together, each with a token of its own, in one revision', () => {
    const world = new World()
    const granted = world.acquire('a', ['x', 'y', 'z'])
    expect(granted).toMatchObject({ resources: ['x', 'y', 'z'], tokens: [1, 2, 3], revision: 1 })
    expect(world.events.map(event => [event.type, event.resource, event.token, event.revision])).toEqual([
      ['granted', 'x', 1, 1],
      ['granted', 'y', 2, 1],
      ['granted', 'z', 3, 1],
    ])
  })

  test('all resources are refused if one is held', () => {
    const world = new World()
    world.acquire('a', 'y')
    const refused = world.refused(world.ask('b', ['x', 'y', 'z']), 'HELD', 'held', { resource: 'y', holder: 'a' })
    expect(refused.facts).toMatchObject({ resource: 'y', holder: 'a', lease: 1, token: 1, queue: 0 })
    expect([...world.state.resources.keys()]).toEqual(['y'])
  })

  test('a lease may hold nothing at all: it is there to be renewed, and to hang things on', () => {
    const world = new World()
    const { lease, tokens } = world.acquire('a', [])
    expect(tokens).toEqual([])
    expect(world.eventsSince(0)).toEqual(['granted'])
    expect(world.renew(lease)).toBe(10_000)
    world.release(lease)
    expect(world.eventsSince(1)).toEqual(['released released'])
  })

  test('an empty list of entries is as good as none', () => {
    const [one, other] = [new World(), new World()]
    one.ask('a', [], { entries: [] })
    other.ask('a', [])
    expect(one.hash()).toBe(other.hash())
  })

  test('a refusal predicted before writing equals the one that applying gives', () => {
    const world = new World()
    world.acquire('a', 'x')
    const command = { kind: 'acquire', holder: 'b', ttl: 1_000, wants: wants('x') } as const
    expect(refusal(world.state, { command })).toEqual(world.do(command))
    expect(refusal(world.state, { command: { ...command, wait: true } })).toBeUndefined()
    expect(refusal(world.state, { command: { kind: 'release', lease: 1 } })).toBeUndefined()
    expect(refusal(world.state, { command: { kind: 'release', lease: 2 } })).toMatchObject({ code: 'GONE' })
  })
})

describe('units', () => {
  test('never exceed the capacity', () => {
    const world = new World()
    world.policy('pool', { capacity: 5 })
    world.acquire('a', 'pool:2')
    world.acquire('b', 'pool:2')
    world.refused(world.ask('c', 'pool:2'), 'HELD')
    world.acquire('c', 'pool')
    expect(world.state.resources.get('pool')!.used).toBe(5)
  })

  test('more than there are in all can never be granted, and says so', () => {
    const world = new World()
    world.policy('pool', { capacity: 5 })
    world.refused(world.ask('a', 'pool:6', { wait: true }), 'INVALID', 'beyond-capacity', { capacity: 5 })
    world.refused(world.ask('a', 'x:2'), 'INVALID', 'beyond-capacity', { capacity: 1 })
  })

  test('a waiter for many is not overtaken by waiters for few, unless the queue says fit', () => {
    for (const [queue, served] of [
      ['fifo', ['a', 'a']],
      ['fit', ['a', 'a', 'few']],
    ] as const) {
      const world = new World()
      world.policy('pool', { capacity: 3, queue })
      world.acquire('a', 'pool')
      const second = world.acquire('a', 'pool:2')
      world.queue('many', 'pool:3')
      world.queue('few', 'pool')
      world.release(second.lease)
      world.acquire('a', 'pool', queue === 'fifo' ? { priority: 1 } : {})
      expect(world.holders('pool').sort()).toEqual([...served].sort())
    }
  })

  test('after the capacity was lowered nothing is granted until usage is below it, and no lease ends for it', () => {
    const world = new World()
    world.policy('pool', { capacity: 3 })
    const held = [world.acquire('a', 'pool'), world.acquire('b', 'pool'), world.acquire('c', 'pool')]
    world.queue('d', 'pool')
    world.policy('pool', { capacity: 1 })
    expect(world.holders('pool')).toEqual(['a', 'b', 'c'])
    world.release(held[0]!.lease)
    world.release(held[1]!.lease)
    expect(world.holders('pool')).toEqual(['c'])
    world.release(held[2]!.lease)
    expect(world.holders('pool')).toEqual(['d'])
  })

  test('raising the capacity serves the waiters in the same revision', () => {
    const world = new World()
    world.acquire('a', 'pool')
    world.queue('b', 'pool')
    world.queue('c', 'pool')
    world.policy('pool', { capacity: 2 })
    expect(world.revisionEvents.map(event => event.type)).toEqual(['policy', 'granted'])
    expect(world.holders('pool')).toEqual(['a', 'b'])
  })
})

describe('shared and exclusive', () => {
  test('sharers exclude the exclusive, not each other', () => {
    const world = new World()
    const [a, b] = [world.acquire('a', 'x~'), world.acquire('b', 'x~')]
    world.refused(world.ask('c', 'x'), 'HELD')
    world.release(a.lease)
    world.refused(world.ask('c', 'x'), 'HELD')
    world.release(b.lease)
    world.acquire('c', 'x')
    world.refused(world.ask('a', 'x~'), 'HELD')
  })

  test('a waiting writer is not starved by later readers', () => {
    const world = new World()
    const reader = world.acquire('r1', 'x~')
    world.queue('w', 'x')
    world.refused(world.ask('r2', 'x~'), 'HELD')
    world.queue('r2', 'x~')
    world.queue('r3', 'x~')
    world.release(reader.lease)
    expect(world.holders('x')).toEqual(['w'])
    world.release(world.state.resources.get('x')!.grants[0]!.lease.id)
    expect(world.holders('x')).toEqual(['r2', 'r3'])
  })

  test('in a pool, sharers stand against every unit', () => {
    const world = new World()
    world.policy('pool', { capacity: 3 })
    world.acquire('a', 'pool~')
    world.refused(world.ask('b', 'pool'), 'HELD')
  })

  test('a resource that was closed is not shared either', () => {
    const world = new World()
    const first = world.acquire('a', 'x')
    world.queue('b', 'x~')
    world.policy('x', { capacity: 0 })
    world.release(first.lease)
    expect(world.holders('x')).toEqual([])
    world.refused(world.ask('c', 'x~'), 'INVALID', 'beyond-capacity', { capacity: 0 })
    world.policy('x', { capacity: 1 })
    expect(world.holders('x')).toEqual(['b'])
  })
})

describe('any of several', () => {
  test('takes the first that are free, in the order named', () => {
    const world = new World()
    world.acquire('a', 'g1')
    expect(world.acquire('b', ['g1', 'g2', 'g3', 'g4'], { any: 2 }).resources).toEqual(['g2', 'g3'])
    expect(world.acquire('c', ['g1', 'g4'], { any: 1 }).resources).toEqual(['g4'])
    const refused = world.refused(world.ask('d', ['g1', 'g2', 'g5'], { any: 2 }), 'HELD', 'held', { any: 2, of: 3 })
    expect(refused.facts.resource).toBe('g1')
  })

  test('waits in every queue, takes the first that come free and leaves the others', () => {
    const world = new World()
    const held = ['g1', 'g2', 'g3'].map(name => world.acquire('a', name).lease)
    world.queue('b', ['g1', 'g2', 'g3'], { any: 2 })
    world.release(held[2]!)
    expect(world.holders('g3'), 'one of two is not enough').toEqual([])
    world.release(held[0]!)
    expect([world.holders('g1'), world.holders('g3')]).toEqual([['b'], ['b']])
    expect(['g1', 'g2', 'g3'].flatMap(name => world.waiters(name))).toEqual([])
  })

  test('what it did not take goes on to the next in the same revision', () => {
    const world = new World()
    const [one, two] = [world.acquire('a', 'g1'), world.acquire('a', 'g2')]
    world.queue('b', ['g1', 'g2'], { any: 1 })
    world.queue('c', 'g1')
    world.release(two.lease)
    expect(world.holders('g2')).toEqual(['b'])
    world.release(one.lease)
    expect(world.holders('g1')).toEqual(['c'])
  })
})

describe('a refusal names the holder in the way', () => {
  test('even for one of the lowest priority that would not be first', () => {
    const world = new World()
    world.acquire('a', 'z')
    world.queue('b', ['y', 'z'], { priority: -1 })
    expect(world.refused(world.ask('c', ['x', 'y'], { priority: -2 }), 'HELD').facts).toMatchObject({ resource: 'y', queue: 1 })
  })

  test('and says when the lease has ended and its holder may not know yet', () => {
    const world = new World()
    world.do({ kind: 'revoke', target: { lease: world.acquire('a', 'x').lease } })
    world.refused(world.ask('b', 'x'), 'HELD', 'held')
  })
})

describe('holders and incarnations', () => {
  test('a holder without a number gets that of its lease; with it, it keeps it', () => {
    const world = new World()
    const first = world.acquire('a', 'x')
    expect(first.incarnation).toBe(first.lease)
    expect(world.acquire('a', 'y', { incarnation: first.incarnation }).incarnation).toBe(first.incarnation)
    expect(world.acquire('a', 'z').incarnation).toBe(3)
    world.refused(world.ask('a', 'u', { incarnation: 99 }), 'INVALID', 'never-given')
  })

  test('ids and tokens are never used again, whatever ends', () => {
    const world = new World()
    const seen = new Set<number>()
    for (let i = 0; i < 20; i++) {
      const { lease, tokens } = world.acquire('a', 'x')
      expect(seen.has(lease)).toBe(false)
      seen.add(lease)
      expect(tokens[0]).toBe(i + 1)
      if (i % 2 === 0) world.release(lease)
      else world.due(lease)
    }
  })
})

describe('the leases declared as held', () => {
  test('may name a lease twice without harm', () => {
    const world = new World()
    const mine = world.acquire('a', 'x').lease
    world.acquire('b', 'y')
    const waiter = world.queue('a', 'y', { holding: [mine, mine] })
    expect(world.release(waiter.lease)).toMatchObject({ kind: 'done' })
  })

  test('and was frozen meanwhile thaws by itself: one may wait for it', () => {
    const world = new World()
    const mine = world.acquire('a', 'x').lease
    world.do({ kind: 'revoke', target: { lease: mine } })
    world.queue('a', 'x', { holding: [mine] })
    world.due(mine)
    expect(world.holders('x')).toEqual(['a'])
  })
})

describe('limits', () => {
  test('a quota counts what a holder has and waits for under the prefix', () => {
    const world = new World()
    world.policy('gpu', { quota: 2 })
    world.acquire('a', 'gpu/1')
    world.acquire('b', 'gpu/2')
    world.queue('a', 'gpu/2')
    world.refused(world.ask('a', 'gpu/3'), 'LIMIT', 'quota', { holder: 'a', prefix: 'gpu', leases: 2, quota: 2 })
    world.acquire('a', 'gpus')
    world.acquire('c', 'gpu/3')
    world.acquire('c', 'gpu')
    world.refused(world.ask('c', 'gpu/4'), 'LIMIT', 'quota', { holder: 'c', leases: 2, quota: 2 })
    world.policy('', { quota: 3 })
    world.refused(world.ask('a', 'elsewhere'), 'LIMIT', 'quota', { holder: 'a', leases: 3, quota: 3 })
  })

  test('the waiters of a resource, and the leases in all, are limited', () => {
    const world = new World()
    world.policy('x', { waiters: 1 })
    world.acquire('a', 'x')
    world.queue('b', 'x')
    world.refused(world.ask('c', 'x', { wait: true }), 'LIMIT', 'too-many-waiters')
    world.policy('', { leases: 2 })
    world.refused(world.ask('c', 'y'), 'LIMIT', 'too-many-leases')
  })
})

describe('steal', () => {
  test('after: the holder is ended and its units are frozen; the thief is first in line', () => {
    const world = new World()
    const victim = world.acquire('a', 'x')
    world.queue('b', 'x', { priority: 1_000 })
    const thief = world.queue('t', 'x', { steal: 'after' })
    expect(thief.position).toBe(0)
    expect(world.holders('x')).toEqual(['a*'])
    expect(world.renew(victim.lease)).toBe(-1)
    world.release(victim.lease)
    expect(world.holders('x')).toEqual(['t'])
    expect(world.waiters('x')).toEqual(['b'])
  })

  test('force: at once, the one named exception', () => {
    const world = new World()
    world.acquire('a', 'x')
    const frozen = world.acquire('c', 'y')
    world.do({ kind: 'revoke', target: { lease: frozen.lease } })
    expect(world.ask('t', ['x', 'y'], { steal: 'force', wait: true })).toMatchObject({ kind: 'granted', tokens: [3, 4] })
  })

  test('a free resource is simply granted', () => {
    const world = new World()
    expect(world.ask('t', 'x', { steal: 'after', wait: true })).toMatchObject({ kind: 'granted' })
  })

  test('a thief cannot be a child of its victim, or of a descendant of it: it would end with it', () => {
    for (const steal of ['after', 'force'] as const) {
      const world = new World()
      const victim = world.acquire('p', 'x')
      const child = world.acquire('c', 'y', { parent: victim.lease })
      world.refused(world.ask('t', 'x', { parent: victim.lease, steal, wait: true }), 'INVALID', 'steals-from-parent')
      world.refused(world.ask('t', 'x', { parent: child.lease, steal, wait: true }), 'INVALID', 'steals-from-parent')
    }
  })

  test('a forced steal is granted at once, before all waiters', () => {
    const world = new World()
    const victim = world.acquire('v', 'x')
    world.queue('t', 'x', { steal: 'after' })
    world.acquire('giver', 'y')
    const heir = world.do({ kind: 'transfer', lease: victim.lease + 2, to: 'heir' })
    expect(heir).toMatchObject({ kind: 'done' })
    expect(world.ask('u', ['x', 'y'], { steal: 'force', wait: true })).toMatchObject({ kind: 'granted' })
    expect([world.waiters('x'), world.waiters('y')]).toEqual([['t'], ['heir']])
  })

  test('a steal must wait', () => {
    const world = new World()
    world.refused(world.ask('t', 'x', { steal: 'after' }), 'INVALID', 'needs', { other: 'wait' })
  })
})

test('a request with recall asks the holders to give the resource back', () => {
  const world = new World()
  const { lease } = world.acquire('a', 'x')
  world.queue('b', 'x', { recall: true })
  expect(world.revisionEvents.map(({ type, lease: id, by }) => [type, id, by])).toEqual([
    ['queued', 2, undefined],
    ['recalled', lease, 'b'],
  ])
  expect(world.lease(lease)!.extras!.recalled).toBe(true)
  expect(world.renew(lease), 'it may go on').toBe(10_000)
})
