/**
 * Rules that version 2 corrects. Each is shown as it is now; and as it was, where a log of version 1 must be replayed as it was decided.
 */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { saveState } from '../../src/kernel/codec/snapshot.ts'
import { BREAK, COUNTER_LIMIT, SLOTS, type Slot } from '../../src/kernel/state.ts'
import { reload, World } from '../support/kernel/world.ts'

function old(): World {
  const world = new World()
  world.state.rules = 1
  return world
}

const LOSS = { kind: 'generation', lease: 1, token: 1, revision: 1, quiet: 0 } as const

describe('in the quiet period after a loss', () => {
  test('a transferred lease is granted when the quiet period is over, before all waiters', () => {
    const world = new World()
    const { lease } = world.acquire('ann', 'x')
    world.do(LOSS)
    const waiter = world.queue('cid', 'x')
    const { nextToken } = world.state
    const heir = world.do({ kind: 'transfer', lease, to: 'bob', stopped: true }) as { id: number }
    expect(world.state.nextToken).toBe(nextToken)
    expect(world.holders('x')).toEqual([])
    expect(world.waiters('x')).toEqual(['bob', 'cid'])
    expect(world.renew(heir.id)).toBeGreaterThan(0)
    world.do({ kind: 'due', timer: 0, epoch: world.state.quietEpochs })
    expect(world.holders('x')).toEqual(['bob'])
    expect(world.lease(waiter.lease)!.grants).toEqual([])
  })

  test('under rules version 1 it was granted at once', () => {
    const world = old()
    const { lease } = world.acquire('ann', 'x')
    world.do(LOSS)
    world.do({ kind: 'transfer', lease, to: 'bob', stopped: true })
    expect(world.holders('x')).toEqual(['bob'])
  })
})

describe('the quiet period after a loss', () => {
  test.each([
    [2, 10_000],
    [1, 1_200_000],
  ])('by the rules of version %i, after a session of 20 minutes that holds nothing, is %i ms', (rules, quiet) => {
    const world = new World()
    world.state.rules = rules
    world.acquire('ann', 'x')
    const { lease } = world.acquire('eve', [], { ttl: 1_200_000 })
    world.renew(lease)
    world.release(lease)
    world.do(LOSS)
    expect(world.state.quiet!.duration).toBe(quiet)
  })

  test('is as long as the longest term of a lease with grants', () => {
    const world = new World()
    const { lease } = world.acquire('ann', 'x', { ttl: 100_000 })
    world.renew(lease)
    world.release(lease)
    world.do(LOSS)
    expect(world.state.quiet!.duration).toBe(100_000)
  })
})

describe('an announced break', () => {
  function broken(world: World): number {
    const { lease } = world.acquire('ann', 'x', { ttl: 100_000 })
    for (let i = 0; i < 5; i++) world.do({ kind: 'break', resource: 'x', after: 10_000 - i })
    return lease
  }

  test('is refused if it would be the sixth and the shortest, and not ignored', () => {
    const world = new World()
    const lease = broken(world)
    world.refused(world.do({ kind: 'break', resource: 'x', after: 1_000 }), 'LIMIT', /x .*at once/)
    // One that could change nothing needs no room.
    expect(world.do({ kind: 'break', resource: 'x', after: 20_000 }).kind).toBe('done')
    expect(world.do({ kind: 'break', resource: 'x' }).kind).toBe('done')
    expect(world.holders('x')).toEqual(['ann*'])
    expect(world.lease(lease)!.status).toBe(3)
  })

  test('changes no holder if one of them has no free slot for it', () => {
    const world = new World()
    world.policy('x', { capacity: 2 })
    const lease = broken(world)
    const other = world.acquire('bob', 'x')
    world.refused(world.do({ kind: 'break', resource: 'x', after: 1_000 }), 'LIMIT')
    expect(world.lease(other.lease)!.rare?.timers).toBeUndefined()
    world.release(lease)
    expect(world.do({ kind: 'break', resource: 'x', after: 1_000 }).kind).toBe('done')
    expect(world.lease(other.lease)!.rare!.timers![BREAK]!.duration).toBe(1_000)
  })

  test('is over in time if it was accepted, and would have been if it was refused', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 1, max: 2_000 }), { maxLength: 20 }), announced => {
        const world = new World({ strict: false })
        const { lease } = world.acquire('ann', 'x', { ttl: 100_000 })
        let soonest = Number.POSITIVE_INFINITY
        for (const after of announced) {
          const isDone = world.do({ kind: 'break', resource: 'x', after }).kind === 'done'
          expect(isDone || after < soonest).toBe(true)
          if (isDone) soonest = Math.min(soonest, after)
          const running = world
            .lease(lease)!
            .rare!.timers!.slice(BREAK)
            .map(timer => timer?.duration ?? Number.POSITIVE_INFINITY)
          expect(Math.min(...running)).toBe(soonest)
        }
      }),
    )
  })

  test('under rules version 1 was accepted and had no effect', () => {
    const world = old()
    const lease = broken(world)
    expect(world.do({ kind: 'break', resource: 'x', after: 1_000 }).kind).toBe('done')
    const running = Array.from({ length: SLOTS }, (_, slot) => world.lease(lease)!.rare!.timers![slot as Slot]?.duration)
    expect(running.slice(BREAK)).toEqual([10_000, 9_999, 9_998, 9_997, 9_996])
  })
})

describe('when the counters are exhausted', () => {
  const asks = (world: World) => {
    const { lease } = world.acquire('ann', 'x')
    const waiter = world.queue('bob', 'x')
    return { lease, waiter: waiter.lease }
  }

  test.each(['nextLease', 'nextToken', 'revision'] as const)(
    'of %s, what needs one is refused with LIMIT, and the rest goes on',
    counter => {
      const world = new World({ strict: false })
      const { lease, waiter } = asks(world)
      const registered = world.acquire('reg', [], { entries: [{ key: 'e', value: '' }] })
      world.state[counter] = COUNTER_LIMIT
      world.refused(world.ask('cid', 'y'), 'LIMIT', /number/)
      world.refused(world.ask('cid', 'x', { wait: true }), 'LIMIT')
      world.refused(world.ask('cid', []), 'LIMIT')
      world.refused(world.do({ kind: 'transfer', lease, to: 'cid', stopped: true }), 'LIMIT')
      if (counter === 'revision') {
        world.refused(world.do({ kind: 'put', lease: registered.lease, key: 'f', value: '' }), 'LIMIT')
        world.refused(world.do({ kind: 'policy', prefix: 'p', rules: { capacity: 1 } }), 'LIMIT')
      }
      expect(world.renew(lease)).toBe(10_000)
      expect(world.release(lease).kind).toBe('done')
      // What waits already is still served, with a number of its own.
      expect(world.holders('x')).toEqual(['bob'])
      expect(Number.isSafeInteger(world.lease(waiter)!.grants[0]!.token)).toBe(true)
      expect(world.due(waiter).kind).toBe('done')
      expect(Number.isSafeInteger(COUNTER_LIMIT * SLOTS)).toBe(true)
      expect(world.state.revision).toBeLessThan(Number.MAX_SAFE_INTEGER / 2)
    },
  )

  test('a key is refused when the key ids are exhausted', () => {
    const world = new World({ strict: false })
    world.state.nextKey = COUNTER_LIMIT
    world.refused(world.do({ kind: 'key', name: 'k', hash: '0'.repeat(64), allow: [] }), 'LIMIT')
  })

  test('a generation that leaves no room is refused', () => {
    const world = new World({ strict: false })
    for (const field of ['lease', 'token', 'revision', 'key']) world.refused(world.do({ ...LOSS, [field]: COUNTER_LIMIT }), 'INVALID')
  })

  test('under rules version 1 they went on', () => {
    const world = new World({ strict: false })
    world.state.rules = 1
    world.state.nextToken = COUNTER_LIMIT
    expect(world.ask('cid', 'y').kind).toBe('granted')
    expect(reload(world.state).nextToken).toBe(COUNTER_LIMIT + 1)
  })
})

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
    world.refused(steal(world, 'x:2', { parent: parent.lease, steal: 'force' }), 'INVALID', /end with it/)
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

  test('under rules version 1 ended every holder', () => {
    const world = old()
    world.acquire('ann', 'b')
    world.acquire('bob', 'c')
    steal(world, ['b', 'a', 'c'], { any: 1 })
    expect([world.holders('b'), world.holders('c')]).toEqual([['ann*'], ['bob*']])
  })
})

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
    expect(world.lease(waiter.lease)!.rare!.wants[0]!.units).toBe(4)
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

  test('under rules version 1 stayed in front, until the rules were raised', () => {
    const world = old()
    world.policy('x', { capacity: 3 })
    const { lease } = world.acquire('ann', 'x:3')
    world.queue('big', 'x:3')
    world.queue('bob', 'x:1')
    world.policy('x', { capacity: 1 })
    world.release(lease)
    expect(world.holders('x')).toEqual([])
    world.do({ kind: 'upgrade', rules: 2 })
    expect(world.holders('x')).toEqual(['bob'])
  })
})

describe('the entries of a waiter', () => {
  const entry = (key: string, value = 'v') => ({ entries: [{ key, value }] })

  test('are attached with the grant, and not before', () => {
    const world = new World()
    const { lease } = world.acquire('ann', 'x')
    world.queue('bob', 'x', entry('e'))
    expect(world.entries()).toEqual([])
    const before = world.events.length
    world.release(lease)
    expect(world.entries()).toEqual(['e=v@2'])
    expect(world.eventsSince(before)).toEqual(['released x released', 'put e', 'granted x'])
    expect(new Set(world.events.slice(before).map(({ revision }) => revision)).size).toBe(1)
  })

  test('are waited for if another lease has the key: a second candidate with the same key waits', () => {
    const world = new World()
    const { lease } = world.acquire('ann', 'x', entry('leader', 'ann'))
    world.queue('bob', 'x', entry('leader', 'bob'))
    world.queue('cid', 'x', entry('leader', 'cid'))
    world.refused(world.ask('dan', 'y', entry('leader')), 'HELD', /leader/)
    world.release(lease)
    expect(world.entries()).toEqual(['leader=bob@2'])
    world.release(2)
    expect(world.entries()).toEqual(['leader=cid@3'])
  })

  test('are waited for even if the resource is free, and attached as soon as the key is free', () => {
    const world = new World()
    world.acquire('ann', [], entry('k'))
    world.queue('bob', 'x', entry('k', 'bob'))
    expect(world.holders('x')).toEqual([])
    world.do({ kind: 'delete', key: 'k' })
    expect(world.holders('x')).toEqual(['bob'])
    expect(world.entries()).toEqual(['k=bob@2'])
  })

  test('are attached when their owner hands over, or is silent too long in the registry', () => {
    const world = new World()
    const { lease } = world.acquire('ann', [], { ...entry('services/s/1'), grace: 1_000 })
    world.queue('bob', 'x', entry('services/s/1', 'bob'))
    expect(world.due(lease).kind).toBe('done')
    expect(world.holders('x')).toEqual(['bob'])
    expect(world.entries()).toEqual(['services/s/1=bob@2'])
  })

  test('of an older generation are refused at once, as for a request that does not wait', () => {
    const world = new World()
    world.acquire('ann', [], { entries: [{ key: 'k', value: '', generation: 5 }] })
    world.acquire('eve', 'x')
    world.refused(world.ask('bob', 'x', { wait: true, entries: [{ key: 'k', value: '', generation: 4 }] }), 'STALE')
  })

  test('are kept by a snapshot, however large they are', () => {
    const world = new World({ strict: false })
    const { lease } = world.acquire('ann', 'x')
    const entries = Array.from({ length: 64 }, (_, i) => ({ key: `e/${i}`, value: 'v'.repeat(16_000), ...(i === 3 && { generation: 7 }) }))
    world.queue('bob', 'x', { entries })
    for (const chunk of saveState(world.state)) expect(chunk.length).toBeLessThan(768 * 1_024)
    world.state = reload(world.state)
    world.release(lease)
    expect(world.state.entries.size).toBe(64)
    expect(world.state.entries.get('e/3')).toMatchObject({ generation: 7 })
    expect([...world.state.entries.keys()]).toEqual(entries.map(({ key }) => key))
    expect(world.state.pending.size).toBe(0)
  })

  test('end with it: when it withdraws, and when it is revoked by their prefix', () => {
    const world = new World()
    world.acquire('ann', 'x')
    const { lease } = world.queue('bob', 'x', entry('e/1'))
    world.release(lease)
    world.queue('cid', 'x', entry('e/2'))
    expect(world.state.pending.size).toBe(1)
    expect(world.do({ kind: 'revoke', target: { prefix: 'e' } })).toMatchObject({ kind: 'done' })
    expect(world.waiters('x')).toEqual([])
    expect(world.state.pending.size).toBe(0)
  })

  test('under rules version 1 were attached while it waited', () => {
    const world = old()
    world.acquire('ann', 'x')
    world.queue('bob', 'x', entry('e'))
    expect(world.entries()).toEqual(['e=v@2'])
    world.refused(world.ask('cid', 'x', { wait: true, ...entry('e') }), 'HELD')
  })
})
