/** What the referee expects of features that meet on one lease: transfers, notices, claims, limited lives and delays. */
import { describe, expect, test } from 'vitest'
import type { PolicyRules } from '../../src/kernel/command.ts'
import { extrasOf, findLease } from '../../src/kernel/state/leases.ts'
import { BREAK, CAP, PREEMPT, TERM } from '../../src/kernel/state.ts'
import { RefereedWorld } from '../support/sim/refereed-world.ts'

/** A world with a pool `g` of one member. */
function poolWorld(rules: PolicyRules = {}): RefereedWorld {
  const world = new RefereedWorld()
  world.policy('g', { preempt: 'marked', preemptNotice: 300, ...rules })
  world.acquire('host', [], { ttl: 60_000, entries: [{ key: 'pool/g/a', value: '{}' }] })
  return world
}

function transfer(world: RefereedWorld, lease: number, to: string): number {
  world.referee.givenUp.add(lease)
  const outcome = world.do({ kind: 'transfer', lease, to, stopped: true })
  return outcome.kind === 'done' ? outcome.id! : 0
}

describe('a transfer', () => {
  test('that covers what the recipient waits for is accepted', () => {
    const world = new RefereedWorld()
    const held = world.acquire('a', 'x')
    world.acquire('b', 'x', { wait: true })
    transfer(world, held, 'b')
    expect([world.violations, world.known]).toEqual([[], []])
  })

  test('to a name that waits for nothing stays open, and is accepted', () => {
    const world = new RefereedWorld()
    expect(transfer(world, world.acquire('a', 'x'), 'b')).toBeGreaterThan(0)
    expect([world.violations, world.known]).toEqual([[], []])
  })

  test.each([
    ['other names', { wants: [{ resource: 'x' }, { resource: 'y' }] }],
    ['another mode', { wants: [{ resource: 'x', shared: true }] }],
  ])('leaves a request for %s waiting, and is accepted', (_, request) => {
    const world = new RefereedWorld()
    world.acquire('c', 'y')
    const held = world.acquire('a', 'x')
    world.acquire('b', [], { ...request, wait: true })
    transfer(world, held, 'b')
    expect([world.violations, world.known]).toEqual([[], []])
  })

  test('that answers a request under a parent is accepted, and reported if it takes the parent away', () => {
    const world = new RefereedWorld()
    const held = world.acquire('a', 'x')
    const parent = world.acquire('b', [])
    const waits = world.acquire('b', 'x', { wait: true, parent })
    expect(transfer(world, held, 'b')).toBe(waits)
    expect([world.violations, world.known]).toEqual([[], []])
    const other = world.acquire('a', 'y')
    world.acquire('b', 'y', { wait: true, parent })
    world.tamper = (state, _events, outcome) => {
      if (outcome.kind === 'done') extrasOf(findLease(state, outcome.id!)!).parent = undefined
      return undefined
    }
    transfer(world, other, 'b')
    expect(world.violations).toEqual(['S14'])
  })

  test('that loses the priority of a claim on a pool is reported', () => {
    const world = poolWorld()
    const held = world.acquire('a', [], { priority: 5, pool: { pool: 'g' } })
    world.tamper = (state, _events, outcome) => {
      if (outcome.kind === 'done') extrasOf(findLease(state, outcome.id!)!).priority = 0
      return undefined
    }
    transfer(world, held, 'b')
    expect(world.violations).toEqual(['S14'])
  })

  test.each([
    ['grace', { grace: 0 }],
    ['limited life', { maxLife: 0 }],
  ])('that loses the %s of the lease is reported', (_, lost) => {
    const world = new RefereedWorld()
    const held = world.acquire('a', 'x', { grace: 500, maxLife: 9_000 })
    world.tamper = (state, _events, outcome) => {
      if (outcome.kind === 'done') Object.assign(extrasOf(findLease(state, outcome.id!)!), lost)
      return undefined
    }
    transfer(world, held, 'b')
    expect(world.violations).toEqual(['S14'])
  })

  test('that loses its parent is reported', () => {
    const world = new RefereedWorld()
    const held = world.acquire('a', 'x', { parent: world.acquire('a', []) })
    world.tamper = (state, _events, outcome) => {
      if (outcome.kind === 'done') extrasOf(findLease(state, outcome.id!)!).parent = undefined
      return undefined
    }
    transfer(world, held, 'b')
    expect(world.violations).toEqual(['S14'])
  })

  test('in which an announced break begins again is reported', () => {
    const world = poolWorld()
    const held = world.acquire('a', [], { pool: { pool: 'g' } })
    world.do({ kind: 'break', resource: 'g/a', after: 500 })
    world.tamper = (state, _events, outcome) => {
      const timers = outcome.kind === 'done' ? findLease(state, outcome.id!)?.extras?.timers : undefined
      if (timers?.[BREAK] !== undefined) timers[BREAK] = { ...timers[BREAK], duration: 900 }
      return undefined
    }
    transfer(world, held, 'b')
    expect(world.violations).toEqual(['S5'])
  })
})

describe('preemption', () => {
  function noticed(): { world: RefereedWorld; held: number; urgent: number } {
    const world = poolWorld()
    const held = world.acquire('a', [], { pool: { pool: 'g', preemptible: true }, entries: [{ key: 'jobs/a', value: '' }] })
    const urgent = world.acquire('b', [], { wait: true, priority: 5, pool: { pool: 'g' } })
    return { world, held, urgent }
  }

  test('of a lease that still holds the member is accepted', () => {
    const { world, held } = noticed()
    world.due(held, PREEMPT)
    expect([world.violations, world.known]).toEqual([[], []])
  })

  test('of a lease that gave the member back is not due any more', () => {
    const { world, held } = noticed()
    world.do({ kind: 'release', lease: held, resource: 'g/a' })
    expect(findLease(world.state, held)!.extras!.timers![PREEMPT]).toBeUndefined()
    expect([world.violations, world.known]).toEqual([[], []])
  })

  test('for a waiter that has gone is reported', () => {
    const { world, held, urgent } = noticed()
    world.tamper = state => {
      findLease(state, held)!.extras!.pool!.notice = urgent + 1_000
      return undefined
    }
    world.renew(held)
    world.tamper = () => undefined
    world.due(held, PREEMPT)
    expect(world.violations).toEqual(['S14'])
  })

  test('whose notice begins again with a transfer is reported', () => {
    const { world, held } = noticed()
    const timer = findLease(world.state, held)!.extras!.timers![PREEMPT]!
    timer.aged = 200
    world.tamper = (state, _events, outcome) => {
      const timers = outcome.kind === 'done' ? findLease(state, outcome.id!)?.extras?.timers : undefined
      if (timers?.[PREEMPT] !== undefined) timers[PREEMPT] = { ...timers[PREEMPT], aged: 0 }
      return undefined
    }
    transfer(world, held, 'c')
    expect(world.violations).toEqual(['S14'])
  })

  test('of a lease that stands before the waiter is reported', () => {
    const world = poolWorld({ queue: 'backfill' })
    const given = transfer(world, world.acquire('a', [], { wait: true, priority: 9, pool: { pool: 'g' } }), 'c')
    const waits = world.acquire('b', [], { wait: true, priority: 5, pool: { pool: 'g' } })
    world.tamper = (state, events) => {
      const lease = findLease(state, given)!
      Object.assign(lease.extras!.pool!, { yields: true, notice: waits })
      events.push({ type: 'recalled', lease: given, resource: 'g/a', cause: 'preempt', revision: state.revision, at: 0 })
      return undefined
    }
    world.do({ kind: 'put', lease: given, key: 'jobs/c', value: '' })
    expect(world.violations).toEqual(['S14'])
  })
})

test('a reservation that two processes take is reported, and one that the first process takes is not', () => {
  const world = poolWorld()
  const reserved = world.acquire('ann', [], { wait: true, maxLife: 60_000, pool: { pool: 'g', from: 1_000 } })
  const other = world.acquire('ann', 'x')
  world.do({ kind: 'tick', n: 1, elapsed: 2_000 })
  world.do({ kind: 'claim', lease: reserved, incarnation: other })
  world.renew(reserved)
  expect(world.violations).toEqual([])
  extrasOf(findLease(world.state, reserved)!).open = true
  world.do({ kind: 'claim', lease: reserved, incarnation: other })
  expect(world.violations).toEqual(['S7'])
})

test('a transferred lease that two processes take is reported', () => {
  const world = new RefereedWorld()
  const given = transfer(world, world.acquire('a', 'x'), 'b')
  world.renew(given)
  extrasOf(findLease(world.state, given)!).open = true
  world.do({ kind: 'claim', lease: given })
  expect([world.violations, world.known]).toEqual([['S7'], []])
})

test('a limited life that ends too early is reported, also after a transfer', () => {
  const world = new RefereedWorld()
  const early = world.acquire('a', 'x', { maxLife: 5_000 })
  const passed = transfer(world, world.acquire('a', 'y', { maxLife: 5_000 }), 'b')
  const inTime = world.acquire('a', 'z', { maxLife: 5_000 })
  world.now = 1_000
  world.due(early, CAP)
  world.due(passed, CAP)
  expect(world.violations).toEqual(['S4', 'S4'])
  world.now = 5_000
  world.due(inTime, CAP)
  expect(world.violations).toHaveLength(2)
})

test('a lease that is renewed long after the end of its life is reported', () => {
  const world = new RefereedWorld()
  const held = world.acquire('a', 'x', { maxLife: 5_000 })
  world.now = 20_000
  world.renew(held)
  expect(world.violations).toEqual([])
  world.now = 60_000
  world.renew(held)
  expect(world.violations).toEqual(['S5'])
})

test('a lock-delay that is over too early is reported', () => {
  const world = new RefereedWorld()
  world.policy('x', { lockDelay: 400 })
  const held = world.acquire('a', 'x')
  world.now = 1_100
  world.due(held)
  world.now = 1_200
  world.due(held, TERM)
  expect(world.violations).toEqual(['S4'])
})

test.each(['x', 'e'])('a renewal that goes beyond what a policy allows for a resource or an entry is reported', name => {
  const world = new RefereedWorld()
  const held = world.acquire('a', 'x', { entries: [{ key: 'e/1', value: '' }] })
  world.do({ kind: 'renew', leases: [held], ttl: 5_000 })
  expect(world.violations).toEqual([])
  world.policy(name, { ttlMax: 3_000 })
  world.do({ kind: 'renew', leases: [held], ttl: 5_000 })
  expect(world.violations).toEqual(['S5'])
})
