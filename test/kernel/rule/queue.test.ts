import { describe, expect, test } from 'vitest'
import { World } from '../../support/kernel/world.ts'

describe('the queue', () => {
  test('serves in the order of arrival, in the revision in which something came free', () => {
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

  test('says where one stands: the longest of its queues', () => {
    const world = new World()
    world.acquire('a', ['x', 'y'])
    expect(world.queue('b', 'x').position).toBe(0)
    expect(world.queue('c', ['x', 'y']).position).toBe(1)
    expect(world.queue('d', 'y').position).toBe(1)
    expect(world.queue('e', 'x', { priority: 1 }).position).toBe(0)
  })

  test('lets nobody barge in: what is free belongs to who waits first, even while that one still waits for something else', () => {
    const world = new World()
    const [x, y] = [world.acquire('a', 'x'), world.acquire('a', 'y')]
    world.queue('b', ['x', 'y'])
    world.release(x.lease)
    expect(world.holders('x')).toEqual([])
    world.refused(world.ask('c', 'x'), 'HELD', /those who waited before/)
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

  test('grants a newcomer of higher priority what those before it cannot take yet', () => {
    const world = new World()
    world.acquire('a', 'y')
    world.queue('b', ['x', 'y'])
    expect(world.ask('c', 'x', { priority: 1 })).toMatchObject({ kind: 'granted' })
  })

  test('with aging, who has waited long enough comes before who is more important', () => {
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

  test('drops a waiter that is dead, withdrawn or revoked, and goes on', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'x')
    const [dead, left, revoked] = [world.queue('dead', 'x'), world.queue('left', 'x'), world.queue('revoked', 'x')]
    world.queue('b', 'x')
    world.due(dead.lease)
    world.release(left.lease)
    world.do({ kind: 'revoke', target: { lease: revoked.lease } })
    expect(world.told(5)).toEqual(['withdrawn x lapsed', 'withdrawn x released', 'withdrawn x revoked'])
    expect(world.waiters('x')).toEqual(['b'])
    for (const gone of [dead, left, revoked]) expect(world.renew(gone.lease)).toBe(-1)
    world.release(lease)
    expect(world.holders('x')).toEqual(['b'])
  })

  test('when the first leaves, who stood behind it may go on at once', () => {
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

  test('never locks up those who want the same things in another order', () => {
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

  test('one release can serve many', () => {
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

  test('fit: whoever fits may go past one who waits for more, also of several things', () => {
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

  test('fit: of several things that come free at once, each goes to the first who fits', () => {
    const world = new World()
    world.policy('', { queue: 'fit' })
    const { lease } = world.acquire('a', ['x', 'y'])
    world.queue('first', 'y')
    world.queue('both', ['x', 'y'])
    world.queue('last', 'x')
    world.release(lease)
    expect([world.holders('x'), world.holders('y')]).toEqual([['last'], ['first']])
  })

  test('fit: nor does one who would take any of them take what another stood before it for', () => {
    const world = new World()
    world.policy('', { queue: 'fit' })
    const { lease } = world.acquire('a', ['x', 'y'])
    world.queue('first', 'y')
    world.queue('any', ['y', 'x'], { any: 1 })
    world.queue('last', 'x')
    world.do({ kind: 'release', lease })
    expect([world.holders('x'), world.holders('y')]).toEqual([['any'], ['first']])
  })

  test('fit: one who has to let another go first is not passed over where it stood before others', () => {
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

  test('fit: one that is served makes way elsewhere for one that stood before it here', () => {
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

test('a policy that lets more in, or changes the discipline, serves whom it can at once', () => {
  const world = new World()
  world.policy('p', { capacity: 3 })
  world.acquire('a', 'p')
  world.queue('big', 'p:3')
  world.queue('small', 'p')
  world.policy('p', { capacity: 3, queue: 'fit' })
  expect(world.holders('p')).toEqual(['a', 'small'])
})

describe('waiting for what ages and for what does not', () => {
  test('nobody overtakes: one rank is good in every queue', () => {
    const world = new World()
    world.policy('aging', { aging: 1_000 })
    world.do({ kind: 'tick', n: 1, elapsed: 5_000 })
    const holder = world.acquire('holder', 'plain')
    world.queue('first', ['aging', 'plain'])
    world.queue('later', 'plain')
    world.release(holder.lease)
    expect(world.holders('plain')).toEqual(['first'])
  })

  test('taking the policy away turns no queue round', () => {
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
