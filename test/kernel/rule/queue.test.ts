import { describe, expect, test } from 'vitest'
import { World } from '../../support/kernel/world.ts'

describe('the queue', () => {
  test('serves waiters in order of arrival, in the revision in which units became free', () => {
    const world = new World()
    let { lease } = world.acquire('a', 'x')
    for (const name of ['b', 'c', 'd']) world.queue(name, 'x')
    expect(world.waiters('x')).toEqual(['b', 'c', 'd'])
    for (const name of ['b', 'c', 'd']) {
      world.release(lease)
      expect(world.revisionEvents.map(event => [event.type, event.holder])).toEqual([
        ['released', expect.any(String)],
        ['granted', name],
      ])
      lease = world.state.resources.get('x')!.grants[0]!.lease.id
    }
  })

  test('reports the highest position of a waiter in its queues', () => {
    const world = new World()
    world.acquire('a', ['x', 'y'])
    expect(world.queue('b', 'x').position).toBe(0)
    expect(world.queue('c', ['x', 'y']).position).toBe(1)
    expect(world.queue('d', 'y').position).toBe(1)
    expect(world.queue('e', 'x', { priority: 1 }).position).toBe(0)
  })

  test('prevents overtaking: free units belong to the first waiter, even while it still waits for another resource', () => {
    const world = new World()
    const [x, y] = [world.acquire('a', 'x'), world.acquire('a', 'y')]
    world.queue('b', ['x', 'y'])
    world.release(x.lease)
    expect(world.holders('x')).toEqual([])
    world.refused(world.ask('c', 'x'), 'HELD', 'reserved')
    expect(world.queue('c', 'x').position).toBe(1)
    world.release(y.lease)
    expect([world.holders('x'), world.holders('y')]).toEqual([['b'], ['b']])
  })

  test('serves higher priority first, arrival within the same', () => {
    const world = new World()
    let { lease } = world.acquire('a', 'x')
    for (const [name, priority] of [
      ['low', -5],
      ['one', 0],
      ['two', 0],
      ['high', 1_000],
    ] as const)
      world.queue(name, 'x', { priority })
    expect(world.waiters('x')).toEqual(['high', 'one', 'two', 'low'])
    world.acquire('vip', 'y')
    world.release(lease)
    lease = world.state.resources.get('x')!.grants[0]!.lease.id
    world.release(lease)
    expect(world.holders('x')).toEqual(['one'])
  })

  test('grants a newcomer of higher priority what the waiters before it cannot take yet', () => {
    const world = new World()
    world.acquire('a', 'y')
    world.queue('b', ['x', 'y'])
    expect(world.ask('c', 'x', { priority: 1 })).toMatchObject({ kind: 'granted' })
  })

  test('with aging, serves a long wait before a higher priority', () => {
    const world = new World()
    world.policy('x', { aging: 1_000 })
    world.acquire('a', 'x')
    world.queue('old', 'x')
    world.queue('young', 'x', { priority: 3 })
    expect(world.waiters('x')).toEqual(['young', 'old'])
    world.do({ kind: 'tick', n: 1, elapsed: 2_999 })
    world.queue('three', 'x', { priority: 3 })
    expect(world.waiters('x')).toEqual(['young', 'three', 'old'])
    world.do({ kind: 'tick', n: 2, elapsed: 1 })
    world.queue('late', 'x', { priority: 3 })
    expect(world.waiters('x'), 'old is as important by now, and came first').toEqual(['young', 'three', 'old', 'late'])
  })

  test('drops a waiter that is dead, withdrawn or revoked, and serves the next', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'x')
    const [dead, left, revoked] = [world.queue('dead', 'x'), world.queue('left', 'x'), world.queue('revoked', 'x')]
    world.queue('b', 'x')
    world.due(dead.lease)
    world.release(left.lease)
    world.do({ kind: 'revoke', target: { lease: revoked.lease } })
    expect(world.eventsSince(5)).toEqual(['withdrawn x lapsed', 'withdrawn x released', 'withdrawn x revoked'])
    expect(world.waiters('x')).toEqual(['b'])
    for (const gone of [dead, left, revoked]) expect(world.renew(gone.lease)).toBe(-1)
    world.release(lease)
    expect(world.holders('x')).toEqual(['b'])
  })

  test('serves the waiters behind the first when that one leaves', () => {
    const world = new World()
    world.acquire('a', 'y')
    const first = world.queue('b', ['x', 'y'])
    world.queue('c', 'x')
    world.release(first.lease)
    expect(world.revisionEvents.map(event => [event.type, event.holder])).toEqual([
      ['withdrawn', 'b'],
      ['withdrawn', 'b'],
      ['granted', 'c'],
    ])
  })

  test('never deadlocks waiters for the same resources in another order', () => {
    const world = new World()
    let { lease } = world.acquire('a', ['x', 'y', 'z'])
    world.queue('b', ['x', 'y', 'z'])
    world.queue('c', ['z', 'y', 'x'])
    world.queue('d', ['y', 'x'])
    for (const name of ['b', 'c', 'd']) {
      world.release(lease)
      expect(world.holders('x')).toEqual([name])
      lease = world.state.resources.get('x')!.grants[0]!.lease.id
    }
  })

  test('serves many waiters after one release', () => {
    const world = new World()
    const { lease } = world.acquire('a', ['x', 'y'])
    world.queue('b', 'x~')
    world.queue('c', ['x~', 'y~'])
    world.queue('d', 'y~')
    world.queue('e', 'x')
    world.release(lease)
    expect([world.holders('x'), world.holders('y')]).toEqual([
      ['b', 'c'],
      ['c', 'd'],
    ])
    expect(world.waiters('x')).toEqual(['e'])
  })

  test('fit: a waiter that fits goes past one that wants more, also of several resources', () => {
    const world = new World()
    world.policy('p', { capacity: 4, queue: 'fit' })
    world.policy('q', { capacity: 2 })
    const p = world.acquire('a', 'p/1:3')
    const q = world.acquire('a', 'q:2')
    world.queue('big', 'p/1:4')
    world.queue('both', ['p/1', 'q'])
    expect(world.ask('small', 'p/1')).toMatchObject({ kind: 'granted' })
    world.release(p.lease)
    expect(world.holders('p/1')).toEqual(['small'])
    world.release(q.lease)
    expect(world.holders('p/1')).toEqual(['small', 'both'])
    expect(world.waiters('p/1')).toEqual(['big'])
  })

  test('fit: of several resources that become free at once, each goes to the first waiter that fits', () => {
    const world = new World()
    world.policy('', { queue: 'fit' })
    const { lease } = world.acquire('a', ['x', 'y'])
    world.queue('first', 'y')
    world.queue('both', ['x', 'y'])
    world.queue('last', 'x')
    world.release(lease)
    expect([world.holders('x'), world.holders('y')]).toEqual([['last'], ['first']])
  })

  test('fit: a waiter for any of them does not take what another stood before it for', () => {
    const world = new World()
    world.policy('', { queue: 'fit' })
    const { lease } = world.acquire('a', ['x', 'y'])
    world.queue('first', 'y')
    world.queue('any', ['y', 'x'], { any: 1 })
    world.queue('last', 'x')
    world.do({ kind: 'release', lease })
    expect([world.holders('x'), world.holders('y')]).toEqual([['any'], ['first']])
  })

  test('fit: a waiter that lets another go first is not passed over where it stood before others', () => {
    const world = new World()
    world.policy('', { queue: 'fit' })
    world.policy('y', { queue: 'fifo', capacity: 2 })
    const { lease } = world.acquire('a', ['x', 'y:2'])
    world.queue('first', 'y')
    world.queue('both', ['x', 'y'])
    world.queue('last', 'x')
    world.release(lease)
    expect([world.holders('x'), world.holders('y')]).toEqual([['both'], ['first', 'both']])
  })

  test('fit: a served waiter makes way elsewhere for one that stood before it here', () => {
    const world = new World()
    world.policy('p', { capacity: 2, queue: 'fit' })
    const hold = world.acquire('a', 'p:2')
    // w stands before v in the fifo queue of z; v stands before w in none.
    world.queue('w', ['p', 'z'], { priority: 1 })
    world.queue('v', ['p', 'z'])
    world.release(hold.lease)
    expect(world.holders('z')).toEqual(['w'])
    expect(world.waiters('z')).toEqual(['v'])
    world.release(world.state.resources.get('z')!.grants[0]!.lease.id)
    expect(world.holders('p')).toEqual(['v'])
  })
})

test('a policy that admits more, or changes the discipline, serves waiters at once', () => {
  const world = new World()
  world.policy('p', { capacity: 3 })
  world.acquire('a', 'p')
  world.queue('big', 'p:3')
  world.queue('small', 'p')
  world.policy('p', { capacity: 3, queue: 'fit' })
  expect(world.holders('p')).toEqual(['a', 'small'])
})

describe('waiting for a resource with aging and one without', () => {
  test('no waiter overtakes: it has one rank in every queue', () => {
    const world = new World()
    world.policy('aging', { aging: 1_000 })
    world.do({ kind: 'tick', n: 1, elapsed: 5_000 })
    const holder = world.acquire('holder', 'plain')
    world.queue('first', ['aging', 'plain'])
    world.queue('later', 'plain')
    world.release(holder.lease)
    expect(world.holders('plain')).toEqual(['first'])
  })

  test('removing the policy reorders no queue', () => {
    const world = new World()
    world.policy('r', { aging: 1_000 })
    world.do({ kind: 'tick', n: 1, elapsed: 5_000 })
    const holder = world.acquire('holder', 'r')
    world.queue('first', 'r')
    world.do({ kind: 'policy', prefix: 'r' })
    world.queue('later', 'r')
    world.release(holder.lease)
    expect(world.holders('r')).toEqual(['first'])
  })
})
