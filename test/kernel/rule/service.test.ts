import { describe, expect, test } from 'vitest'
import { decayed } from '../../../src/kernel/rule/flap.ts'
import { SWEEP } from '../../../src/kernel/rule/service.ts'
import { RULES } from '../../../src/kernel/state.ts'
import { reload, World } from '../../support/kernel/world.ts'

const SUSPECT = 2

/** `n` registrations of one service, each on a lease of its own. */
function services(world: World, n: number, { service = 's', from = 0, grace = 5_000 } = {}): number[] {
  return Array.from(
    { length: n },
    (_, i) => world.acquire(`h${from + i}`, [], { grace, entries: [{ key: `services/${service}/${from + i}`, value: '{}' }] }).lease,
  )
}

function tick(world: World, elapsed: number): void {
  world.do({ kind: 'tick', n: world.state.tick + 1, elapsed })
}

/** What became of each: live, suspect or gone. */
function shape(world: World, leases: readonly number[]): string {
  return leases.map(id => ['?', 'l', 's', 'f'][world.lease(id)?.status ?? -1] ?? '.').join('')
}

describe('a generation', () => {
  const entry = (generation?: number) => ({ key: 'services/s/1', value: 'v', ...(generation !== undefined && { generation }) })

  test('that is newer takes the key over from a live holder, whose lease ends', () => {
    const world = new World()
    const old = world.acquire('a', [], { entries: [entry(1), { key: 'services/s/1/state', value: 'busy', generation: 1 }] })
    const young = world.acquire('b', [], { entries: [entry(2)] })
    expect(world.entries()).toEqual([`services/s/1=v@${young.lease}`])
    expect(world.lease(old.lease)).toBeUndefined()
    expect(world.revisionEvents.map(({ type, key, cause, by }) => [type, key, cause, by])).toEqual([
      ['put', 'services/s/1', undefined, undefined],
      ['revoked', undefined, 'replaced', 'b'],
      ['deleted', 'services/s/1/state', 'replaced', undefined],
    ])
  })

  test('that is older or missing never overwrites a newer one, not even its own', () => {
    const world = new World()
    const young = world.acquire('a', [], { entries: [entry(2)] })
    for (const holder of ['a', 'b']) {
      world.refused(world.ask(holder, [], { entries: [entry(1)] }), 'STALE', 'older-generation', { generation: 2 })
      world.refused(world.ask(holder, [], { entries: [entry()] }), 'STALE')
    }
    world.refused(world.do({ kind: 'put', lease: young.lease, ...entry(1) }), 'STALE')
    expect(world.do({ kind: 'put', lease: young.lease, ...entry(2) })).toMatchObject({ kind: 'done' })
  })

  test('that is equal leaves the key with its holder, which is named', () => {
    const world = new World()
    const { lease } = world.acquire('a', [], { entries: [entry(3)] })
    const refused = world.refused(world.ask('b', [], { entries: [entry(3)] }), 'HELD', 'entry-held', { holder: 'a' })
    expect(refused.facts).toMatchObject({ holder: 'a', lease, generation: 3 })
  })

  test('does not help a holder with another key', () => {
    const world = new World()
    const [mine, theirs] = [world.key('mine', 'register:services'), world.key('theirs', 'register:services')]
    world.acquire('a', [], { key: mine, entries: [entry(1)] })
    world.refused(world.ask('a', [], { key: theirs, entries: [entry(9)] }), 'HELD')
    expect(world.ask('b', [], { key: mine, entries: [entry(2)] })).toMatchObject({ kind: 'granted' })
  })

  test('is kept by a snapshot', () => {
    const world = new World()
    world.acquire('a', [], { entries: [entry(7)] })
    world.state = reload(world.state)
    world.refused(world.ask('a', [], { entries: [entry(6)] }), 'STALE')
  })

  test('takes only the entry: a lease with other registrations, a lock or children stays', () => {
    const world = new World()
    const both = world.acquire('a', [], { entries: [entry(1), { key: 'services/s/2', value: '' }] })
    const lock = world.acquire('a', 'x', { entries: [{ key: 'services/s/3', value: '' }] })
    world.acquire('b', [], { entries: [entry(2), { key: 'services/s/3', value: '', generation: 1 }] })
    expect(world.entries().filter(text => text.endsWith(`@${both.lease}`))).toEqual([`services/s/2=@${both.lease}`])
    expect(world.holders('x')).toEqual(['a'])
    expect(world.lease(lock.lease)).toBeDefined()
  })
})

describe('the key of a suspect registration', () => {
  test('may be taken by any holder, and by none while its lease is live', () => {
    const world = new World()
    const entry = { key: 'services/s/1', value: '' }
    const old = world.acquire('a', [], { grace: 5_000, entries: [entry, { key: 'services/s/1/state', value: '' }] })
    world.refused(world.ask('b', [], { entries: [entry] }), 'HELD')
    world.due(old.lease)
    const next = world.acquire('b', [], { entries: [entry, { key: 'services/s/1/state', value: 'new' }] })
    expect(world.entries()).toEqual([`services/s/1/state=new@${next.lease}`, `services/s/1=@${next.lease}`])
    expect(world.renew(old.lease)).toBe(-1)
  })

  test('is reported as suspected when it registers meanwhile: a watcher of that key alone sees it', () => {
    const world = new World()
    const { lease } = world.acquire('a', [], { grace: 5_000, entries: [{ key: 'services/s/1', value: '' }] })
    world.due(lease)
    for (const value of ['new', 'again']) world.do({ kind: 'put', lease, key: 'services/s/2', value })
    const types = () => world.events.filter(({ key }) => key === 'services/s/2').map(({ type }) => type)
    expect(types()).toEqual(['put', 'suspected', 'put'])
    world.renew(lease)
    expect(types()).toEqual(['put', 'suspected', 'put', 'recovered'])
  })

  test('outside the registry belongs to the suspect lease until it ends', () => {
    const world = new World()
    const { lease } = world.acquire('a', [], { grace: 5_000, entries: [{ key: 'svc/1', value: '' }] })
    world.due(lease)
    world.refused(world.ask('b', [], { entries: [{ key: 'svc/1', value: '' }] }), 'HELD')
  })
})

describe('self-preservation', () => {
  test('begins when more than fifteen of a hundred are silent, and is announced once', () => {
    const world = new World()
    const all = services(world, 20)
    for (const lease of all.slice(0, 3)) world.due(lease)
    expect(world.state.upkeep.size).toBe(0)
    world.due(all[3]!)
    expect(world.eventsSince(world.events.length - 1)).toEqual(['preserving services/s suspect 4/20'])
    world.due(all[4]!)
    expect(world.events.filter(({ type }) => type === 'preserving')).toHaveLength(1)
  })

  test('keeps registrations suspect after their grace period, for a ttl at a time and preserveMost in all', () => {
    const world = new World()
    world.policy('services', { preserveMost: 25_000 })
    const all = services(world, 10)
    for (const lease of all) world.due(lease)
    for (const expected of [10_000, 10_000, 5_000]) {
      world.due(all[0]!)
      expect(world.lease(all[0]!)).toMatchObject({ status: SUSPECT, term: expected })
    }
    world.due(all[0]!)
    expect(world.lease(all[0]!)).toBeUndefined()
    expect(world.entries()).toHaveLength(9)
  })

  test('a renewal makes a registration live again, and its delay counts from zero', () => {
    const world = new World()
    const all = services(world, 10)
    for (const lease of all) world.due(lease)
    world.due(all[0]!)
    expect(world.renew(all[0]!)).toBe(10_000)
    expect(world.lease(all[0]!)!.extras!.slowed).toBe(0)
    expect(world.eventsSince(world.events.length - 1)).toEqual(['recovered services/s/0'])
  })

  test('ends when enough have recovered, and the others then lapse', () => {
    const world = new World()
    const all = services(world, 20)
    for (const lease of all.slice(0, 6)) world.due(lease)
    expect(world.state.upkeep.get('services/s')).toMatchObject({ preserving: true })
    for (const lease of all.slice(0, 4)) world.renew(lease)
    expect(world.eventsSince(world.events.length - 1)).toEqual(['relaxed services/s suspect 2/20'])
    world.due(all[4]!)
    expect(shape(world, all.slice(0, 6))).toBe('llll.s')
  })

  test('does not apply to one or two, nor to a service of fewer than five', () => {
    const world = new World()
    for (const [service, n] of [
      ['one', 1],
      ['two', 2],
      ['four', 4],
    ] as const) {
      const all = services(world, n, { service })
      for (const lease of all) world.due(lease)
      world.due(all[0]!)
      expect(world.lease(all[0]!), service).toBeUndefined()
      expect(world.state.upkeep.get(`services/${service}`)?.preserving ?? false).toBe(false)
    }
  })

  test('never delays a lock, a lease with children, or a lease with anything else', () => {
    const world = new World()
    const all = services(world, 10)
    const at = (i: number) => [{ key: `services/s/x${i}`, value: '' }]
    const lock = world.acquire('a', 'x', { grace: 100, entries: at(1) })
    const parent = world.acquire('b', [], { grace: 100, entries: at(2) })
    world.acquire('b', 'y', { parent: parent.lease })
    const pool = world.acquire('c', [], { grace: 100, entries: [...at(3), { key: 'pool/gpu/1', value: '' }] })
    world.acquire('d', 'z')
    const waiter = world.queue('e', 'z', { entries: at(4) })
    for (const lease of [...all, lock.lease, parent.lease, pool.lease]) world.due(lease)
    expect(world.state.upkeep.get('services/s')).toMatchObject({ preserving: true })
    for (const { lease } of [lock, parent, pool, waiter]) {
      world.due(lease)
      expect(world.lease(lease)).toBeUndefined()
    }
    expect(world.holders('x')).toEqual([])
  })

  test('of one service affects no other service, and no release, revoke or cap', () => {
    const world = new World()
    const [a, b] = [services(world, 10, { service: 'a' }), services(world, 20, { service: 'b' })]
    for (const lease of a) world.due(lease)
    world.due(b[0]!)
    world.due(b[0]!)
    expect(world.lease(b[0]!)).toBeUndefined()
    world.release(a[0]!)
    world.do({ kind: 'revoke', target: { lease: a[1]! } })
    expect(shape(world, a)).toBe('..ssssssss')
  })

  test('is the same on a replica that starts from a snapshot', () => {
    const world = new World()
    const all = services(world, 10)
    for (const lease of all) world.due(lease)
    world.due(all[0]!)
    const before = world.hash()
    world.state = reload(world.state)
    expect(world.hash()).toBe(before)
    world.due(all[0]!)
    expect(world.lease(all[0]!)).toMatchObject({ status: SUSPECT })
    expect(world.lease(all[0]!)!.extras!.slowed).toBe(20_000)
  })

  test('can be turned off by a policy, which ends all delays', () => {
    const world = new World()
    const all = services(world, 10)
    for (const lease of all) world.due(lease)
    world.policy('services/s', { preserveShare: 0, sweepShare: 100 })
    expect(world.eventsSince(world.events.length - 2)).toEqual(['policy services/s', 'relaxed services/s suspect 10/10'])
    world.renew(all[9]!)
    for (const lease of all.slice(0, 9)) world.due(lease)
    expect(shape(world, all)).toBe('.........l')
  })
})

describe('a sweep', () => {
  test('takes at most fifteen of a hundred, the next one as many, and finally all', () => {
    const world = new World()
    world.policy('services', { preserveMost: 0 })
    const all = services(world, 40)
    for (const lease of all) world.due(lease)
    const gone: number[] = []
    for (let sweep = 0; world.entries().length > 0; sweep++) {
      for (const lease of all) if (world.lease(lease) !== undefined) world.due(lease)
      gone.push(40 - world.entries().length)
      tick(world, SWEEP)
      expect(sweep).toBeLessThan(10)
    }
    expect(gone).toEqual([6, 12, 18, 24, 30, 36, 40])
    tick(world, SWEEP)
    expect(world.state.upkeep.size, 'nothing is kept when nothing is swept').toBe(0)
  })

  test('ends even if log time stands still', () => {
    const world = new World()
    world.policy('services', { preserveMost: 0 })
    const all = services(world, 40)
    for (const lease of all) world.due(lease)
    let rounds = 0
    while (world.entries().length > 0) {
      for (const lease of all) if (world.lease(lease) !== undefined) world.due(lease)
      expect(++rounds).toBeLessThan(12)
    }
  })

  test('lets a service of one or two lapse at once', () => {
    const world = new World()
    const all = services(world, 2, { grace: 0 })
    for (const lease of all) world.due(lease)
    expect(shape(world, all)).toBe('..')
  })

  test('applies to registrations without a grace period, which become suspect first', () => {
    const world = new World()
    const all = services(world, 20, { grace: 0 })
    for (const lease of all) world.due(lease)
    expect(shape(world, all)).toBe(`...${'s'.repeat(17)}`)
  })
})

describe('flap damping', () => {
  test('halves a penalty in a half-life, by steps that are never too low and at most 4.4 % too high', () => {
    expect(decayed(1_000, 0, 120_000)).toBe(1_000)
    expect(decayed(1_000, 120_000, 120_000)).toBe(500)
    expect(decayed(12_000, 480_000, 120_000)).toBe(750)
    expect(decayed(1_000_000, 40 * 120_000, 120_000)).toBe(0)
    let last = 1_000_000
    for (let ms = 0; ms < 700_000; ms += 997) {
      const now = decayed(1_000_000, ms, 120_000)
      const exact = 1_000_000 * 2 ** (-ms / 120_000)
      expect(now).toBeLessThanOrEqual(last)
      expect(now).toBeGreaterThanOrEqual(Math.floor(exact) - 1)
      expect(now).toBeLessThan(exact * 1.0445 + 1)
      last = now
    }
  })

  /** Registers and lapses `times` times. */
  function flap(world: World, times: number, apart = 1_000): void {
    for (let i = 0; i < times; i++) {
      const [lease] = services(world, 1, { grace: 0 })
      world.due(lease!)
      tick(world, apart)
    }
  }

  test('allows two lapses and suppresses after the third, announced when the key comes back', () => {
    const world = new World()
    flap(world, 2)
    services(world, 1, { grace: 0 })
    expect(world.eventsSince(world.events.length - 1)).toEqual(['put services/s/0'])
    world.release([...world.state.leases.values()][0]!.id)
    flap(world, 1)
    services(world, 1)
    expect(world.eventsSince(world.events.length - 2)).toEqual(['put services/s/0', 'suppressed services/s/0'])
  })

  test('ends when the penalty has decayed to the reuse limit, and is then forgotten', () => {
    const world = new World()
    flap(world, 3, 0)
    services(world, 1)
    tick(world, 230_000)
    expect([...world.state.suppressed]).toEqual(['services/s/0'])
    tick(world, 15_000)
    expect(world.eventsSince(world.events.length - 1)).toEqual(['reused services/s/0'])
    tick(world, 200_000)
    expect(world.state.flaps.size).toBe(0)
  })

  test('never lasts more than four half-lives, however often the key flapped', () => {
    const world = new World()
    flap(world, 60)
    services(world, 1)
    expect(world.state.flaps.get('services/s/0')!.penalty).toBeLessThanOrEqual(12_000)
    tick(world, 4 * 120_000)
    expect(world.state.suppressed.size).toBe(0)
  })

  test('charges neither a release nor a revoke', () => {
    const world = new World()
    for (let i = 0; i < 5; i++) {
      const [lease] = services(world, 1)
      if (i % 2 === 0) world.release(lease!)
      else world.do({ kind: 'revoke', target: { lease: lease! } })
    }
    expect(world.state.flaps.size).toBe(0)
  })

  test('charges no silence that many instances share', () => {
    const world = new World()
    world.policy('services', { preserveMost: 1_000, sweepShare: 100 })
    const all = services(world, 10)
    for (const lease of all) world.due(lease)
    for (const lease of all) world.due(lease)
    for (const lease of all) world.due(lease)
    expect(world.entries()).toEqual([])
    expect(world.state.flaps.size).toBe(0)
  })

  test('counts a suspect whose key another holder takes as a lapse', () => {
    const world = new World()
    for (let i = 0; i < 4; i++) {
      const { lease } = world.acquire(`h${i}`, [], { grace: 5_000, entries: [{ key: 'services/s/0', value: '' }] })
      world.due(lease)
    }
    expect(world.state.suppressed.has('services/s/0')).toBe(true)
  })

  test('does not apply to other entries, and can be turned off by a policy', () => {
    const world = new World()
    world.policy('services/quiet', { flapPenalty: 0 })
    for (let i = 0; i < 5; i++)
      for (const key of ['svc/1', 'services/quiet/1', 'services/s/1/state'])
        world.due(world.acquire('a', [], { entries: [{ key, value: '' }] }).lease)
    expect(world.state.flaps.size).toBe(0)
  })

  test('is the same on a replica that starts from a snapshot', () => {
    const world = new World()
    flap(world, 4)
    const before = world.hash()
    world.state = reload(world.state)
    expect(world.hash()).toBe(before)
    services(world, 1)
    tick(world, 600_000)
    expect(world.eventsSince(world.events.length - 1)).toEqual(['reused services/s/0'])
  })
})

test('every rule of a policy passes the check of client requests, and is read back from bytes', async () => {
  const { malformed } = await import('../../../src/kernel/codec/form.ts')
  const { decodeBatch, encodeBatch } = await import('../../../src/kernel/codec/batch.ts')
  const rules = {
    ...{
      ttlMin: 100,
      ttlMax: 1_000,
      capacity: 2,
      lockDelay: 1,
      grace: 1,
      maxLife: 1,
      maxHold: 1,
      quota: 1,
      waiters: 1,
      aging: 1,
      leases: 9,
    },
    ...{ leasesPerKey: 9, flapPenalty: 1, flapHalfLife: 1_000, flapSuppress: 3, flapReuse: 2, queue: 'fit' as const },
    ...{ preserveShare: 50, preserveLeast: 3, preserveMost: 4, sweepShare: 20 },
  }
  const command = { kind: 'policy' as const, prefix: 'services', rules }
  expect(malformed(command)).toBeUndefined()
  const batch = { proposer: 1, seq: 1, applied: 0, decisionHash: [0, 0] as const, wall: 0, rules: RULES, proposals: [{ command, key: 0 }] }
  expect(decodeBatch(encodeBatch(batch))).toEqual(batch)
})
