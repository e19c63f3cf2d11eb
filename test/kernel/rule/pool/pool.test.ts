/** The rules of pools, one by one. */
import { describe, expect, test } from 'vitest'
import { stateHash } from '../../../../src/kernel/codec/snapshot.ts'
import type { PoolRequest } from '../../../../src/kernel/command.ts'
import type { Outcome } from '../../../../src/kernel/outcome.ts'
import type { Reason } from '../../../../src/kernel/reason.ts'
import { planAcquire } from '../../../../src/kernel/rule/acquire.ts'
import { poolsNeedTicks } from '../../../../src/kernel/rule/pool/waiters.ts'
import { CAP, HOLD, SUSPECT, TERM } from '../../../../src/kernel/state.ts'
import { type Options, World } from '../../../support/kernel/world.ts'

class PoolWorld extends World {
  offer(holder: string, names: readonly string[], { labels = {}, units = 1, ...options }: Omit<Options, 'labels'> & Offered = {}): number {
    const entries = names.map(name => ({ key: `pool/${name}`, value: JSON.stringify({ labels, units }) }))
    return this.acquire(holder, [], { entries, ...options }).lease
  }

  take(holder: string, pool: string | PoolRequest, options: Options = {}): Outcome {
    return this.ask(holder, [], { pool: typeof pool === 'string' ? { pool } : pool, wait: true, ...options })
  }

  taken(
    holder: string,
    pool: string | PoolRequest,
    options: Options = {},
  ): { readonly lease: number; readonly resources: readonly string[] } {
    const outcome = this.take(holder, pool, options)
    if (outcome.kind !== 'granted') throw new Error(JSON.stringify(outcome))
    return outcome
  }

  waits(holder: string, pool: string | PoolRequest, options: Options = {}): number {
    const outcome = this.take(holder, pool, options)
    if (outcome.kind !== 'queued') throw new Error(JSON.stringify(outcome))
    return outcome.lease
  }

  held(lease: number): readonly string[] {
    return this.lease(lease)?.grants.map(({ resource }) => resource.name) ?? []
  }

  tick(elapsed: number): void {
    this.do({ kind: 'tick', n: this.state.tick + 1, elapsed })
  }
}

interface Offered {
  /** Of the member, not of its lease. */
  readonly labels?: Readonly<Record<string, string>>
  readonly units?: number
}

test('no waiter overtakes another in a fifo pool; with fit, one that fits may', () => {
  const world = new PoolWorld()
  world.offer('host', ['g/a', 'g/b'])
  const one = world.taken('ann', 'g')
  const both = world.waits('bob', { pool: 'g', count: 2 })
  const behind = world.waits('cat', 'g')
  expect(world.lease(behind)!.status).toBe(0)
  world.policy('g', { queue: 'fit' })
  expect(world.held(behind)).toEqual(['g/b'])
  world.release(behind)
  world.release(one.lease)
  expect(world.held(both)).toEqual(['g/a', 'g/b'])
})

test('a priority goes first, and a waiter that has aged long enough goes before it', () => {
  const world = new PoolWorld()
  world.policy('g', { aging: 1_000 })
  world.offer('host', ['g/a'])
  const first = world.taken('ann', 'g')
  const old = world.waits('old', 'g')
  world.tick(5_000)
  const late = world.waits('late', 'g', { priority: 4 })
  const urgent = world.waits('urgent', 'g', { priority: 9 })
  const order: number[] = []
  for (let next = first.lease; ; next = order.at(-1)!) {
    world.release(next)
    const served = [old, late, urgent].find(lease => world.held(lease).length > 0)
    if (served === undefined) break
    order.push(served)
  }
  expect(order).toEqual([urgent, old, late])
})

test('what all members together could never give is refused with the numbers, and a waiter for it is passed over', () => {
  const world = new PoolWorld()
  world.refused(world.take('ann', 'g'), 'LIMIT', 'pool-impossible', { members: 0, matching: 0, units: 0 })
  const offer = world.offer('host', ['g/a', 'g/b'], { units: 2, labels: { model: 'x' } })
  world.refused(world.take('ann', { pool: 'g', count: 3 }), 'LIMIT', 'pool-impossible', { members: 2, matching: 2, units: 4, count: 3 })
  world.refused(world.take('ann', { pool: 'g', total: 5 }), 'LIMIT')
  const match = [{ label: 'model', test: 'in', values: ['y'] }] as const
  world.refused(world.take('ann', { pool: 'g', match }), 'LIMIT', 'pool-impossible', { members: 2, matching: 0, units: 0 })
  world.refused(world.take('ann', { pool: 'g', count: 2, near: 'host' }), 'LIMIT', 'pool-impossible', { near: 'host' })
  const all = world.taken('ann', { pool: 'g', count: 2 })
  const two = world.waits('bob', { pool: 'g', count: 2 })
  const one = world.waits('cat', { pool: 'g', units: 1 })
  expect(world.do({ kind: 'delete', key: 'pool/g/b' })).toMatchObject({ kind: 'done' })
  world.release(all.lease)
  expect(world.held(one)).toEqual(['g/a'])
  expect(world.held(two)).toEqual([])
  world.do({ kind: 'put', lease: offer, key: 'pool/g/b', value: '{}' })
  world.release(one)
  expect(world.held(two)).toEqual(['g/b', 'g/a'])
})

test('a request that is malformed is refused as such', () => {
  const world = new PoolWorld()
  world.offer('host', ['g/a'])
  const bad: readonly [Partial<PoolRequest>, Reason][] = [
    [{ count: 0 }, 'out-of-range'],
    [{ count: 257 }, 'out-of-range'],
    [{ total: 2, count: 1 }, 'not-together'],
    [{ from: 1_000 }, 'needs'],
    [{ near: '' }, 'empty'],
    [{ account: '/' }, 'leading-slash'],
    [{ match: [{ label: 'x', test: 'less', values: ['many'] }] }, 'not-decimal'],
    [{ match: [{ label: 'x', test: 'in', values: [] }] }, 'empty'],
    [{ match: [{ label: 'x', test: 'absent', values: ['y'] }] }, 'not-together'],
    [{ match: Array.from({ length: 17 }, () => ({ label: 'x', test: 'present' as const })) }, 'too-many'],
  ]
  for (const [request, reason] of bad) world.refused(world.take('ann', { pool: 'g', ...request }), 'INVALID', reason)
  world.refused(world.ask('ann', 'a', { pool: { pool: 'g' } }), 'INVALID', 'not-together')
  world.refused(world.ask('ann', [], { pool: { pool: 'g' }, wait: true, steal: 'after' }), 'INVALID')
})

test('a member drains when it is deleted or its offer is released, and vanishes when its offer lapses or is revoked', () => {
  const world = new PoolWorld()
  const offers = ['a', 'b', 'c', 'd'].map(name => world.offer(`host ${name}`, [`g/${name}`]))
  const leases = offers.map(() => world.taken('ann', 'g').lease)
  world.do({ kind: 'delete', key: 'pool/g/a' })
  world.release(offers[1]!)
  expect(leases.slice(0, 2).map(lease => world.lease(lease)!.status)).toEqual([1, 1])
  const since = world.events.length
  world.due(offers[2]!)
  expect(world.eventsSince(since)).toEqual(['lapsed lapsed', 'deleted pool/g/c lapsed', 'revoked g/c member', 'frozen g/c member'])
  world.do({ kind: 'revoke', target: { lease: offers[3]! } })
  expect(leases.slice(2).map(lease => world.lease(lease)!.status)).toEqual([3, 3])
  expect(world.state.history.get('g/c')).toMatchObject([{ cause: 'member', by: 'g/c' }])
  // Released or run out, nothing of the pool is left.
  for (const lease of leases) world.release(lease)
  expect(world.state.pools.size).toBe(0)
})

test('a member that the next incarnation of its host takes over has not vanished', () => {
  const world = new PoolWorld()
  const first = world.offer('host', ['g/a'])
  const taken = world.taken('ann', 'g')
  world.offer('host', ['g/a'])
  world.due(first)
  expect(world.held(taken.lease)).toEqual(['g/a'])
  expect(world.lease(taken.lease)!.status).toBe(1)
})

test('a member whose offer is suspect is not given out until the offer recovers', () => {
  const world = new PoolWorld()
  const offer = world.offer('host', ['g/a'], { grace: 5_000 })
  world.due(offer)
  const waiter = world.waits('ann', 'g')
  world.renew(offer)
  expect(world.held(waiter)).toEqual(['g/a'])
})

test('the units of a member are its capacity, unless a policy says otherwise; less than is used drains', () => {
  const world = new PoolWorld()
  const offer = world.offer('host', ['g/a'], { units: 4 })
  const three = world.taken('ann', { pool: 'g', units: 3 })
  world.do({ kind: 'put', lease: offer, key: 'pool/g/a', value: '{"units":2}' })
  expect(world.held(three.lease)).toEqual(['g/a'])
  const waiter = world.waits('bob', { pool: 'g', units: 1 })
  world.policy('g/a', { capacity: 8 })
  expect(world.held(waiter)).toEqual(['g/a'])
  expect(world.acquire('cat', 'g/a:4').resources).toEqual(['g/a'])
})

test('a client that waits for a member by its name comes before the waiters of the pool', () => {
  const world = new PoolWorld()
  world.offer('host', ['g/a'])
  const holder = world.taken('ann', 'g')
  const pooled = world.waits('bob', 'g')
  const named = world.queue('cat', 'g/a')
  world.release(holder.lease)
  expect([world.held(named.lease), world.held(pooled)]).toEqual([['g/a'], []])
})

test('a waiter that keeps members of the pool is refused: waiting for more could last for ever', () => {
  const world = new PoolWorld()
  world.offer('host', ['g/a', 'g/b'])
  const first = world.taken('ann', 'g')
  world.taken('bob', 'g')
  world.refused(world.take('ann', 'g', { holding: [first.lease] }), 'DEADLOCK', 'pool-deadlock')
  expect(world.take('ann', 'g')).toMatchObject({ kind: 'queued' })
})

test('a holder may keep a member for maxHold while another waits for it', () => {
  const world = new PoolWorld()
  world.policy('g', { maxHold: 5_000 })
  world.offer('host', ['g/a'], { labels: { model: 'x' } })
  world.offer('host', ['g/b'], { labels: { model: 'y' } })
  const of = (model: string) => ({ pool: 'g', match: [{ label: 'model', test: 'in', values: [model] }] }) as const
  const [x, y] = [world.taken('ann', of('x')).lease, world.taken('ann', of('y')).lease]
  const waiter = world.waits('bob', of('x'))
  world.due(y, HOLD)
  expect(world.lease(y)!.status).toBe(1)
  world.due(x, HOLD)
  world.due(x)
  expect(world.held(waiter)).toEqual(['g/a'])
})

test('a key needs acquire on the name of the pool, and nothing else', () => {
  const world = new PoolWorld()
  world.offer('host', ['g/a'])
  const key = world.key('user', 'acquire:g')
  world.refused(world.take('ann', 'h', { key }), 'FORBIDDEN')
  expect(world.take('ann', 'g', { key })).toMatchObject({ kind: 'granted' })
  const waiter = world.waits('ann', 'g', { key })
  const other = world.key('other', 'acquire:h')
  world.refused(world.release(waiter, undefined, other), 'GONE')
  expect(world.release(waiter, undefined, key)).toMatchObject({ kind: 'done' })
})

test('a lease is extended unless a waiter could use what it holds, and within the policy', () => {
  const world = new PoolWorld()
  world.policy('g', { maxLife: 60_000 })
  world.offer('host', ['g/a'], { labels: { model: 'x' } })
  world.offer('host', ['g/b'], { labels: { model: 'y' } })
  const of = (model: string) => ({ pool: 'g', match: [{ label: 'model', test: 'in', values: [model] }] }) as const
  const lease = world.taken('ann', of('x'), { maxLife: 10_000 }).lease
  const extend = (by: number) => world.do({ kind: 'extend', lease, by })
  world.do({ kind: 'aged', marks: [{ timer: lease * 8 + CAP, epoch: 1, ms: 4_000 }] })
  expect(extend(20_000)).toMatchObject({ kind: 'done' })
  expect(world.lease(lease)!.extras!.timers![CAP]).toMatchObject({ duration: 30_000, aged: 4_000, epoch: 2 })
  world.refused(extend(40_000), 'LIMIT', 'too-long-life', { limit: 60000 })
  world.refused(extend(0), 'INVALID')
  world.taken('bob', of('y'))
  world.waits('cat', of('y'))
  expect(extend(1)).toMatchObject({ kind: 'done' })
  world.waits('dan', of('x'))
  expect(world.refused(extend(1), 'HELD', 'needed-by-waiter', { holder: 'dan' }).facts).toMatchObject({ holder: 'dan' })
  world.refused(world.do({ kind: 'extend', lease: world.acquire('eve', 'z').lease, by: 1 }), 'INVALID', 'holds-no-members')
})

test('a reservation goes first when its window begins, and before that grants leave it its members', () => {
  const world = new PoolWorld()
  world.offer('host', ['g/a', 'g/b'])
  const reserved = world.waits('ann', { pool: 'g', count: 2, from: 60_000 }, { maxLife: 30_000, ttl: 20_000 })
  expect(world.lease(reserved)!.term).toBe(80_000)
  // Unlimited, or too long: it would still be there.
  const unlimited = world.waits('bob', 'g')
  world.refused(world.ask('cat', [], { pool: { pool: 'g' }, maxLife: 70_000 }), 'HELD')
  world.release(unlimited)
  const short = world.taken('cat', 'g', { maxLife: 50_000 })
  world.refused(world.do({ kind: 'extend', lease: short.lease, by: 20_000 }), 'HELD', 'needed-by-reservation', { holder: 'ann' })
  // Another window at the same time does not fit; one behind it does.
  world.refused(world.take('dan', { pool: 'g', from: 70_000 }, { maxLife: 30_000 }), 'HELD', 'pool-reserved')
  expect(world.take('dan', { pool: 'g', from: 90_000 }, { maxLife: 30_000 })).toMatchObject({ kind: 'queued' })
  const waiting = world.waits('eve', 'g')
  world.tick(30_000)
  expect(world.renew(reserved)).toBe(50_000)
  world.tick(30_000)
  expect(world.held(reserved)).toEqual([])
  world.release(short.lease)
  expect(world.held(reserved)).toEqual(['g/a', 'g/b'])
  expect(world.lease(reserved)).toMatchObject({ term: 20_000, confirmed: false })
  expect(world.held(waiting)).toEqual([])
})

test('members that a reservation has no use for are given out', () => {
  const world = new PoolWorld()
  world.offer('host', ['g/a'], { labels: { model: 'x' } })
  world.offer('host', ['g/b'], { labels: { model: 'y' } })
  world.waits('ann', { pool: 'g', match: [{ label: 'model', test: 'in', values: ['x'] }], from: 10_000 }, { maxLife: 5_000 })
  expect(world.taken('bob', 'g').resources).toEqual(['g/b'])
})

describe('a member that loses the label that the first waiter needs', () => {
  function blockedWorld() {
    const world = new PoolWorld()
    const offer = world.offer('host', ['g/a'], { labels: { model: 'x' } })
    world.offer('host', ['g/b'], {})
    const holder = world.taken('ann', { pool: 'g', match: [{ label: 'model', test: 'in', values: ['x'] }] })
    const first = world.waits('bob', { pool: 'g', match: [{ label: 'model', test: 'in', values: ['x'] }] })
    const second = world.waits('cat', { pool: 'g' })
    expect(holder.resources).toEqual(['g/a'])
    return { world, offer, first, second }
  }

  test('lets the waiters behind it be served, in the same revision', () => {
    const { world, offer, first, second } = blockedWorld()
    world.do({ kind: 'put', lease: offer, key: 'pool/g/a', value: '{"units":1}' })
    expect([world.held(first), world.held(second)]).toEqual([[], ['g/b']])
  })
})

test('the log needs no ticks for a pool without holders and waiters, so usage stays as it was over an idle night', () => {
  const world = new PoolWorld()
  world.offer('host', ['g/a'], {})
  const { lease } = world.taken('ann', 'g')
  expect(poolsNeedTicks(world.state)).toBe('slow')
  world.tick(3_600_000)
  world.release(lease)
  expect(poolsNeedTicks(world.state)).toBeUndefined()
  expect(world.state.pools.get('g')!.accounts.get('ann')!.usage).toBeGreaterThan(3_000_000)
})

test('a waiter gets the free member when its account gives back a member whose offer is suspect', () => {
  const world = new PoolWorld()
  world.policy('g/accounts/team', { quotaUnits: 1 })
  const offer = world.acquire('first', [], { ttl: 1_000, grace: 5_000, entries: [{ key: 'pool/g/a', value: '{}' }] })
  const held = world.taken('x', { pool: 'g', account: 'team' })
  world.offer('second', ['g/b'])
  const waiter = world.waits('y', { pool: 'g', account: 'team' })
  world.due(offer.lease, TERM)
  expect(world.lease(offer.lease)!.status).toBe(SUSPECT)
  world.release(held.lease)
  expect(world.held(waiter)).toEqual(['g/b'])
})

describe('a request without `wait` is granted as the same request with `wait` is', () => {
  function request(prepare: (world: PoolWorld) => void, pool: PoolRequest): readonly string[] {
    return [true, false].map(wait => {
      const world = new PoolWorld()
      for (const name of ['a', 'b']) world.offer('host', [`g/${name}`], { labels: { n: name } })
      prepare(world)
      const before = stateHash(world.state)
      const planned = planAcquire(world.state, { kind: 'acquire', holder: 'newcomer', ttl: 9_000, wants: [], wait, pool })
      expect(stateHash(world.state)).toBe(before)
      const outcome = world.ask('newcomer', [], { wait, pool })
      expect('kind' in planned).toBe(outcome.kind === 'refused')
      return outcome.kind
    })
  }

  const only = (n: string): PoolRequest => ({ pool: 'g', match: [{ label: 'n', test: 'in', values: [n] }] })

  test('when it borrows', () => {
    const borrows = (world: PoolWorld) => {
      world.policy('g/accounts/team', { quotaUnits: 1, quotaBorrow: 1 })
      world.taken('ann', { pool: 'g', account: 'team' })
    }
    expect(request(borrows, { pool: 'g', account: 'team' })).toEqual(['granted', 'granted'])
  })

  test('when it goes past a waiter, on a member that the waiter cannot use', () => {
    const waited = (world: PoolWorld) => {
      world.policy('g', { queue: 'backfill' })
      world.taken('holder', only('a'))
      world.waits('waiter', only('a'))
    }
    expect(request(waited, only('b'))).toEqual(['granted', 'granted'])
    expect(request(waited, only('a'))).toEqual(['queued', 'refused'])
  })

  test('when it overtakes the head of a `backfill` queue, and then it yields', () => {
    const world = new PoolWorld()
    world.policy('g', { queue: 'backfill' })
    world.offer('host', ['g/a', 'g/b'])
    world.taken('holder', { pool: 'g', expect: 60_000 })
    world.waits('head', { pool: 'g', count: 2 })
    world.refused(world.ask('long', [], { pool: { pool: 'g', expect: 90_000 } }), 'HELD', 'pool-held')
    const outcome = world.ask('short', [], { pool: { pool: 'g', expect: 30_000 } })
    if (outcome.kind !== 'granted') throw new Error(outcome.kind)
    expect(world.lease(outcome.lease)!.extras!.pool!.yields).toBe(true)
  })
})
