import { describe, expect, test } from 'vitest'
import { agedOf, timerId, timerOf } from '../../../src/kernel/state/timers.ts'
import type { Slot } from '../../../src/kernel/state.ts'
import { BREAK, CAP, FROZEN, HOLD, LIVE, SLOTS, SUSPECT, TERM } from '../../../src/kernel/state.ts'
import { reload, World } from '../../support/kernel/world.ts'

const HOUR = 3_600_000

describe('a term', () => {
  test('a lease that is not renewed ends when its term is due', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'x')
    expect(world.due(lease)).toMatchObject({ kind: 'done' })
    expect(world.lease(lease)).toBeUndefined()
    expect(world.eventsSince(1)).toEqual(['lapsed x lapsed'])
    expect(world.renew(lease)).toBe(-1)
  })

  test('due counts only for the epoch that still runs', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'x')
    world.renew(lease)
    const hash = world.hash()
    for (const epoch of [0, 1, 3, 99]) expect(world.do({ kind: 'due', timer: lease * SLOTS, epoch })).toMatchObject({ kind: 'nothing' })
    expect(world.hash()).toBe(hash)
    world.do({ kind: 'due', timer: lease * SLOTS, epoch: 2 })
    expect(world.holders('x')).toEqual([])
  })

  test('a due for an unknown timer has no effect', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'x')
    const hash = world.hash()
    for (const timer of [0, 1, 7, lease * SLOTS + CAP, lease * SLOTS + BREAK, lease * SLOTS + 0.5, (lease + 1) * SLOTS, 2 ** 53 - 1])
      expect(world.do({ kind: 'due', timer, epoch: 1 })).toMatchObject({ kind: 'nothing' })
    expect(world.hash()).toBe(hash)
  })

  test('a long grant begins with a short term, until its holder has renewed once', () => {
    const world = new World()
    const granted = world.acquire('a', 'x', { ttl: HOUR })
    expect(granted.ttl).toBe(30_000)
    expect(world.lease(granted.lease)!.term).toBe(30_000)
    expect(world.renew(granted.lease)).toBe(HOUR)
    expect(world.lease(granted.lease)!.term).toBe(HOUR)
    expect(world.acquire('a', 'y', { ttl: 20_000 }).ttl).toBe(20_000)
  })

  test('a renewal while waiting confirms nothing: only a renewal after the grant does', () => {
    const world = new World()
    const first = world.acquire('a', 'x')
    const { lease, ttl } = world.queue('b', 'x', { ttl: HOUR })
    expect(ttl).toBe(30_000)
    expect(world.renew(lease)).toBe(30_000)
    world.release(first.lease)
    expect(world.lease(lease)).toMatchObject({ status: LIVE, confirmed: false, term: 30_000 })
    expect(world.renew(lease)).toBe(HOUR)
  })

  test('a server that keeps a waiter queued confirms no grant', () => {
    const world = new World()
    const first = world.acquire('a', 'x')
    const { lease } = world.queue('b', 'x', { ttl: HOUR })
    const keep = () => world.do({ kind: 'renew', leases: [lease, first.lease, 99], waiting: true })
    expect(keep()).toMatchObject({ ttls: [30_000, 0, -1] })
    world.release(first.lease)
    const { epoch } = world.lease(lease)!
    expect(keep()).toMatchObject({ ttls: [0, -1, -1] })
    expect(world.lease(lease)).toMatchObject({ confirmed: false, epoch })
  })

  test('the term of a waiter continues when it is granted: a lease whose holder never heard of it ends with that term', () => {
    const world = new World()
    const first = world.acquire('a', 'x')
    const { lease } = world.queue('b', 'x')
    const { epoch } = world.lease(lease)!
    world.release(first.lease)
    expect(world.lease(lease)!.epoch).toBe(epoch)
    world.do({ kind: 'due', timer: lease * SLOTS, epoch })
    expect(world.holders('x')).toEqual([])
  })

  test('a renewal answers for each lease, in order, and never revives an ended one', () => {
    const world = new World()
    const [a, b] = [world.acquire('a', 'x'), world.acquire('b', 'y')]
    world.release(a.lease)
    expect(world.do({ kind: 'renew', leases: [b.lease, a.lease, b.lease, 77] })).toMatchObject({ ttls: [10_000, -1, 10_000, -1] })
    expect(world.holders('x')).toEqual([])
    world.refused(world.do({ kind: 'renew', leases: new Array(10_001).fill(b.lease) }), 'LIMIT')
  })

  test('the kernel reports the timers that it started, restarted and cancelled', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'x', { maxLife: 5_000 })
    expect(world.timers.sort()).toEqual([`${lease}/${TERM}`, `${lease}/${CAP}`].sort())
    world.renew(lease)
    expect(world.timers).toEqual([`${lease}/${TERM}`])
    world.release(lease)
    expect(world.timers.sort()).toEqual([`${lease}/${TERM}`, `${lease}/${CAP}`].sort())
  })
})

describe('grace', () => {
  test('a lease with a grace period is suspect first: its grants are kept, and a renewal makes it live again', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'x', { grace: 5_000, entries: [{ key: 'svc/a', value: '1' }] })
    world.queue('b', 'x')
    world.due(lease)
    expect(world.lease(lease)).toMatchObject({ status: SUSPECT, term: 5_000, epoch: 2 })
    expect(world.revisionEvents.map(event => [event.type, event.resource ?? event.key])).toEqual([
      ['suspected', 'x'],
      ['suspected', 'svc/a'],
    ])
    expect(world.holders('x')).toEqual(['a?'])
    expect(world.entries()).toHaveLength(1)
    expect(world.renew(lease)).toBe(10_000)
    expect(world.lease(lease)!.status).toBe(LIVE)
    expect(world.eventsSince(-2)).toEqual(['recovered x', 'recovered svc/a'])
  })

  test('a suspect lease that is not renewed lapses when its grace period is over', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'x', { grace: 5_000 })
    world.queue('b', 'x')
    world.due(lease)
    world.due(lease)
    expect(world.holders('x')).toEqual(['b'])
    expect(world.renew(lease)).toBe(-1)
  })

  test('the grace period is the longer one of the request and the policy', () => {
    const world = new World()
    world.policy('x', { grace: 3_000 })
    expect(world.lease(world.acquire('a', 'x').lease)!.extras!.grace).toBe(3_000)
    expect(world.lease(world.acquire('a', 'x/y', { grace: 9_000 }).lease)!.extras!.grace).toBe(9_000)
    expect(world.lease(world.acquire('a', [], { entries: [{ key: 'x/e', value: '' }] }).lease)!.extras!.grace).toBe(3_000)
  })

  test('a waiter has no grace period: a dead waiter never stalls a queue', () => {
    const world = new World()
    const first = world.acquire('a', 'x')
    const dead = world.queue('b', 'x', { grace: 5_000 })
    world.queue('c', 'x')
    world.due(dead.lease)
    expect(world.eventsSince(-1)).toEqual(['withdrawn x lapsed'])
    world.release(first.lease)
    expect(world.holders('x')).toEqual(['c'])
  })
})

describe('lock-delay', () => {
  test('follows a lapse: the units are withheld, and nothing else', () => {
    const world = new World()
    world.policy('x', { lockDelay: 7_000 })
    const { lease } = world.acquire('a', 'x', { entries: [{ key: 'svc/a', value: '1' }] })
    world.queue('b', 'x')
    world.due(lease)
    expect(world.lease(lease)).toMatchObject({ status: FROZEN, term: 7_000, epoch: 2 })
    expect(world.entries()).toEqual([])
    expect(world.renew(lease)).toBe(-1)
    expect(world.do({ kind: 'due', timer: lease * SLOTS, epoch: 1 })).toMatchObject({ kind: 'nothing' })
    world.due(lease)
    expect(world.holders('x')).toEqual(['b'])
  })

  test('is the longest one of its resources, in whatever order they were named', () => {
    for (const names of [
      ['x', 'y', 'z'],
      ['z', 'y', 'x'],
      ['y', 'x', 'z'],
    ]) {
      const world = new World()
      world.policy('x', { lockDelay: 3_000 })
      world.policy('y', { lockDelay: 7_000 })
      const { lease } = world.acquire('a', names)
      world.due(lease)
      expect(world.lease(lease), names.join()).toMatchObject({ status: FROZEN, term: 7_000 })
    }
  })

  test('follows the end of a grace period as well', () => {
    const world = new World()
    world.policy('x', { lockDelay: 7_000 })
    const { lease } = world.acquire('a', 'x', { grace: 1_000 })
    world.due(lease)
    world.due(lease)
    expect(world.lease(lease)).toMatchObject({ status: FROZEN, term: 7_000 })
  })

  test('never follows a release, a transfer or a revoke', () => {
    const world = new World()
    world.policy('x', { lockDelay: 7_000 })
    world.release(world.acquire('a', 'x').lease)
    expect(world.holders('x')).toEqual([])
    const giver = world.acquire('a', 'x')
    world.do({ kind: 'transfer', lease: giver.lease, to: 'b', stopped: true })
    expect(world.holders('x')).toEqual(['b'])
    const revoked = world.acquire('a', 'x/2')
    world.do({ kind: 'revoke', target: { lease: revoked.lease } })
    expect(world.lease(revoked.lease)!.term).toBe(10_000)
    world.due(revoked.lease)
    expect(world.holders('x/2')).toEqual([])
  })

  test('a holder that returns too late may still release, which frees the withheld units', () => {
    const world = new World()
    world.policy('x', { lockDelay: 7_000 })
    const { lease } = world.acquire('a', 'x')
    world.due(lease)
    expect(world.release(lease)).toMatchObject({ kind: 'done' })
    expect(world.eventsSince(-1)).toEqual(['thawed x lapsed'])
    world.refused(world.release(lease), 'GONE')
  })
})

describe('a cap on life', () => {
  test('ends a lease that is renewed for ever, and freezes its units until its term is over', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'x', { maxLife: 60_000 })
    world.renew(lease)
    expect(timerOf(world.lease(lease)!, CAP)).toMatchObject({ duration: 60_000, epoch: 1 })
    world.queue('b', 'x')
    world.due(lease, CAP)
    expect(world.revisionEvents[0]).toMatchObject({ type: 'revoked', cause: 'cap' })
    expect(world.holders('x')).toEqual(['a*'])
    world.due(lease)
    expect(world.holders('x')).toEqual(['b'])
  })

  test('begins with the grant, not with the wait, and is the shortest one of the request and the policies', () => {
    const world = new World()
    world.policy('x', { maxLife: 5_000 })
    const first = world.acquire('a', 'x', { maxLife: 60_000 })
    expect(timerOf(world.lease(first.lease)!, CAP)!.duration).toBe(5_000)
    const { lease } = world.queue('b', 'x')
    expect(timerOf(world.lease(lease)!, CAP)).toBeUndefined()
    world.release(first.lease)
    expect(timerOf(world.lease(lease)!, CAP)!.duration).toBe(5_000)
  })
})

describe('a maximum hold while others wait', () => {
  test('begins when a waiter comes, and ends the lease if there is still a waiter', () => {
    const world = new World()
    world.policy('x', { maxHold: 2_000 })
    const { lease } = world.acquire('a', 'x')
    expect(timerOf(world.lease(lease)!, HOLD)).toBeUndefined()
    world.queue('b', 'x')
    expect(timerOf(world.lease(lease)!, HOLD)).toMatchObject({ duration: 2_000 })
    world.queue('c', 'x')
    expect(timerOf(world.lease(lease)!, HOLD)!.epoch).toBe(1)
    world.due(lease, HOLD)
    expect(world.holders('x')).toEqual(['a*'])
    world.due(lease)
    expect(world.holders('x')).toEqual(['b'])
    const heir = world.state.resources.get('x')!.grants[0]!.lease
    expect(timerOf(heir, HOLD), 'c still waits for b').toMatchObject({ duration: 2_000 })
  })

  test('has no effect when all waiters have left, and begins anew with the next one', () => {
    const world = new World()
    world.policy('x', { maxHold: 2_000 })
    const { lease } = world.acquire('a', 'x')
    world.release(world.queue('b', 'x').lease)
    expect(world.due(lease, HOLD)).toMatchObject({ kind: 'nothing' })
    expect(world.holders('x')).toEqual(['a'])
    expect(timerOf(world.lease(lease)!, HOLD)).toBeUndefined()
    world.queue('c', 'x')
    expect(timerOf(world.lease(lease)!, HOLD)).toMatchObject({ epoch: 2 })
  })

  test('counts for a suspect lease as well, also after it has recovered', () => {
    const world = new World()
    world.policy('x', { maxHold: 2_000 })
    const { lease } = world.acquire('a', 'x', { grace: 1_000 })
    world.due(lease)
    world.queue('b', 'x')
    world.renew(lease)
    expect(timerOf(world.lease(lease)!, HOLD)).toMatchObject({ duration: 2_000 })
  })

  test('begins at once when a policy introduces it while there is a waiter', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'x')
    world.queue('b', 'x')
    world.policy('x', { maxHold: 2_000 })
    expect(timerOf(world.lease(lease)!, HOLD)).toMatchObject({ duration: 2_000 })
  })

  test('does not count waiters for another resource of the holder without such a limit', () => {
    const world = new World()
    world.policy('x', { maxHold: 1_000 })
    const { lease } = world.acquire('a', ['x', 'y'])
    world.release(world.queue('b', 'x').lease)
    world.queue('c', 'y')
    expect(world.due(lease, HOLD)).toMatchObject({ kind: 'nothing' })
    expect(world.holders('x')).toEqual(['a'])
  })
})

describe('aging is logged', () => {
  const mark = (world: World, lease: number, ms: number, { slot = TERM as Slot, epoch = 1 } = {}) =>
    world.do({ kind: 'aged', marks: [{ timer: lease * SLOTS + slot, epoch, ms }] })
  const age = (world: World, lease: number, slot: Slot = TERM) => agedOf(world.state, timerOf(world.lease(lease)!, slot)!)

  test('a mark is a lower bound: it only grows, and ends nothing by itself', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'x')
    expect(mark(world, lease, 4_000)).toMatchObject({ kind: 'nothing' })
    expect(world.timers).toEqual([`${lease}/${TERM}`])
    mark(world, lease, 3_000)
    expect(world.timers).toEqual([])
    expect(age(world, lease)).toBe(4_000)
    mark(world, lease, 1e9)
    expect(world.holders('x')).toEqual(['a'])
  })

  test('a mark for an old epoch, or an unknown timer, is ignored', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'x', { maxLife: 9_000 })
    world.renew(lease)
    const hash = world.hash()
    mark(world, lease, 4_000)
    mark(world, lease, 4_000, { epoch: 3 })
    mark(world, lease, 4_000, { slot: CAP, epoch: 2 })
    mark(world, lease, 4_000, { slot: HOLD })
    mark(world, lease + 1, 4_000)
    expect(world.hash()).toBe(hash)
    mark(world, lease, 4_000, { epoch: 2 })
    mark(world, lease, 5_000, { slot: CAP })
    expect([age(world, lease), age(world, lease, CAP)]).toEqual([4_000, 5_000])
  })

  test('a renewal begins a new epoch with age 0', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'x')
    mark(world, lease, 4_000)
    world.renew(lease)
    expect(age(world, lease)).toBe(0)
  })

  test('a crash loop under an owner keeps no lease alive: each run adds its marks for all', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'x', { maxLife: 60_000 })
    for (let run = 1; run <= 5; run++) {
      world.do({ kind: 'run', owned: true })
      for (const ms of [500, 1_000, 700]) world.do({ kind: 'aged-together', run, ms })
      expect(age(world, lease)).toBe(run * 1_000)
      expect(age(world, lease, CAP)).toBe(run * 1_000)
      world.state = reload(world.state)
      expect(age(world, lease)).toBe(run * 1_000)
    }
    world.do({ kind: 'run', owned: false })
    expect(age(world, lease)).toBe(5_000)
  })

  test('a lease renewed in a run does not age by the marks of that run, and does by those of the next', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'x')
    world.do({ kind: 'run', owned: true })
    world.do({ kind: 'aged-together', run: 1, ms: 3_000 })
    world.renew(lease)
    world.do({ kind: 'aged-together', run: 1, ms: 5_000 })
    expect(age(world, lease)).toBe(0)
    const born = world.acquire('b', 'y').lease
    world.do({ kind: 'run', owned: true })
    expect([age(world, lease), age(world, born)]).toEqual([0, 0])
    world.do({ kind: 'aged-together', run: 2, ms: 1_000 })
    expect([age(world, lease), age(world, born)]).toEqual([1_000, 1_000])
  })

  test('marks of another run, and marks for all on a log without an owner, are ignored', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'x')
    world.do({ kind: 'aged-together', run: 0, ms: 1_000 })
    expect(age(world, lease)).toBe(0)
    world.do({ kind: 'run', owned: true })
    for (const run of [0, 2]) world.do({ kind: 'aged-together', run, ms: 1_000 })
    expect(age(world, lease)).toBe(0)
  })

  test('however single marks and marks for all are mixed, no time is counted twice', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'x')
    mark(world, lease, 2_000) // it is 2,000 old when the run begins
    world.do({ kind: 'run', owned: true })
    world.do({ kind: 'aged-together', run: 1, ms: 1_000 })
    mark(world, lease, 3_900) // 1,900 into the run
    expect(age(world, lease)).toBeLessThanOrEqual(3_900)
    world.do({ kind: 'aged-together', run: 1, ms: 2_000 })
    expect(age(world, lease)).toBeLessThanOrEqual(4_000)
    world.do({ kind: 'run', owned: false })
    expect(age(world, lease)).toBe(4_000)
    mark(world, lease, 4_500)
    expect(age(world, lease)).toBe(4_500)
  })

  test('a frozen lease goes on aging: a revoke does not restart its term', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'x')
    mark(world, lease, 4_000)
    world.do({ kind: 'revoke', target: { lease } })
    expect(age(world, lease)).toBe(4_000)
    expect(world.lease(lease)!.epoch).toBe(1)
  })
})

describe('ticks', () => {
  test('count only when they are the next one', () => {
    const world = new World()
    world.do({ kind: 'tick', n: 1, elapsed: 100 })
    for (const n of [1, 0, 3]) world.do({ kind: 'tick', n, elapsed: 100 })
    world.do({ kind: 'tick', n: 2, elapsed: 50 })
    expect(world.state).toMatchObject({ tick: 2, elapsed: 150 })
  })

  test('an absurdly long elapsed time is ignored', () => {
    const world = new World()
    for (const elapsed of [2 ** 53 - 1, Number.NaN, -1, 1.5]) world.do({ kind: 'tick', n: 1, elapsed })
    expect(world.state.elapsed).toBe(0)
  })
})

test('a timer id consists of its lease and its slot', () => {
  const world = new World()
  const { lease } = world.acquire('a', 'x', { maxLife: 5_000 })
  expect(timerId(world.lease(lease)!, CAP)).toBe(lease * SLOTS + CAP)
})
