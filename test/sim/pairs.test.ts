/** The tracker of pairs: each feature acts and is in force where it should be, and a pair counts only once a judge has looked. */
import { describe, expect, test } from 'vitest'
import { FEATURE_ROWS, FEATURES, type Feature, MARKS_LABEL } from '../../sim/features.ts'
import { findings } from '../../sim/findings.ts'
import { impossiblePairs, whyImpossible } from '../../sim/impossible-pairs.ts'
import { allPairs, pairTable, reportPairs } from '../../sim/pair-table.ts'
import { pairName } from '../../sim/pairs.ts'
import type { Acquire } from '../../src/kernel/command.ts'
import { BREAK, CAP, PREEMPT } from '../../src/kernel/state.ts'
import { RefereedWorld } from '../support/sim/refereed-world.ts'

type History = (world: RefereedWorld) => void

function pool(world: RefereedWorld, members = ['a', 'b']): void {
  world.policy('g', { preempt: 'marked', preemptNotice: 300 })
  world.policy('g/accounts/a', { quotaUnits: 1, quotaBorrow: 1 })
  world.acquire('host', [], { ttl: 60_000, entries: members.map(name => ({ key: `pool/g/${name}`, value: '{}' })) })
}

function marked(...features: readonly Feature[]): Pick<Acquire, 'labels'> {
  return { labels: [[MARKS_LABEL, features.join(' ')]] }
}

function given(world: RefereedWorld, lease: number): number {
  world.referee.givenUp.add(lease)
  const outcome = world.do({ kind: 'transfer', lease, to: 'b', stopped: true })
  return outcome.kind === 'done' ? outcome.id! : 0
}

/** For each feature, a history in which it acts and is judged. */
const ACTS: Readonly<Record<Feature, History>> = {
  wait: world => void [world.acquire('a', 'x'), world.acquire('b', 'x', { wait: true })],
  'no-wait': world => void [world.acquire('a', 'x', { wait: true, grace: 100 }), world.acquire('b', 'y', { grace: 100 })],
  any: world => void world.acquire('a', ['x', 'y'], { any: 1 }),
  units: world => {
    world.policy('p', { capacity: 3 })
    world.acquire('a', [], { wants: [{ resource: 'p', units: 2 }] })
  },
  permits: world => void world.acquire('a', 'x', { permits: 2 }),
  covers: world => void world.acquire('a', 'x', { covers: true }),
  shared: world => void world.acquire('a', [], { wants: [{ resource: 'x', shared: true }] }),
  parent: world => void world.acquire('a', 'x', { parent: world.acquire('a', []) }),
  session: world => void world.acquire('a', 'x', { parent: world.acquire('a', [], marked('session')) }),
  entries: world => void world.register('a', 'e/1'),
  'pool-member': world => pool(world),
  reservation: world => {
    pool(world)
    world.acquire('a', [], { wait: true, maxLife: 900, pool: { pool: 'g', from: 500 } })
    world.do({ kind: 'tick', n: 1, elapsed: 600 })
  },
  preemptible: world => {
    pool(world, ['a'])
    const held = world.acquire('a', [], { pool: { pool: 'g', preemptible: true } })
    world.acquire('b', [], { wait: true, priority: 5, pool: { pool: 'g' } })
    world.due(held, PREEMPT)
  },
  quota: world => {
    world.policy('x', { quota: 5 })
    world.acquire('a', 'x/1')
  },
  borrowed: world => {
    pool(world)
    world.acquire('a', [], { wait: true, pool: { pool: 'g', account: 'a', count: 2 } })
  },
  transfer: world => void given(world, world.acquire('a', 'x')),
  break: world => {
    const held = world.acquire('a', 'x')
    world.do({ kind: 'break', resource: 'x', after: 100 })
    world.now = 200
    world.due(held, BREAK)
  },
  steal: world => void [world.acquire('a', 'x'), world.acquire('b', 'x', { wait: true, steal: 'after' })],
  revoke: world => void world.revoke(world.acquire('a', 'x')),
  widen: world => {
    world.acquire('a', ['x', 'y'])
    const waits = world.acquire('b', ['x', 'y'], { any: 1, wait: true })
    world.do({ kind: 'widen', lease: waits, wants: [{ resource: 'z' }] })
  },
  'partial-release': world => void world.do({ kind: 'release', lease: world.acquire('a', ['x', 'y']), resource: 'x' }),
  extend: world => {
    pool(world)
    world.do({ kind: 'extend', lease: world.acquire('a', [], { maxLife: 900, pool: { pool: 'g' } }), by: 100 })
  },
  'renew-with-ttl': world => void world.do({ kind: 'renew', leases: [world.acquire('a', 'x')], ttl: 2_000 }),
  'learned-term': world => void world.acquire('a', 'x', marked('learned-term')),
  'worker-renews': world => {
    const held = world.acquire('a', 'x', marked('worker-renews'))
    world.referee.pairs.acts('worker-renews', [held])
    world.referee.beliefs.begins(world.belief(held))
  },
  'renew-never': world => void world.acquire('a', 'x', marked('renew-never')),
  grace: world => {
    const held = world.acquire('a', 'x', { grace: 100 })
    world.now = 1_100
    world.due(held)
  },
  'lock-delay': world => {
    world.policy('x', { lockDelay: 100 })
    const held = world.acquire('a', 'x')
    world.now = 1_100
    world.due(held)
    world.now = 1_300
    world.due(held)
  },
  cap: world => {
    const held = world.acquire('a', 'x', { maxLife: 500 })
    world.now = 600
    world.due(held, CAP)
  },
  'adopt-by-name': world => void world.do({ kind: 'claim', lease: given(world, world.acquire('a', 'x')) }),
  restore: world => begin(world, 'restore'),
  migration: world => begin(world, 'migration'),
  rollback: world => {
    world.acquire('a', 'x')
    world.acquire('b', 'y')
    world.lose(1)
    world.do({ kind: 'generation', lease: 9_000_000, token: 9_000_000, revision: 9_000_000, quiet: 100 })
  },
  'face-lease': world => void world.acquire('a', 'kubernetes/default/ctl'),
  'short-lived': world => void world.acquire('cron', 'x', marked('short-lived')),
}

function begin(world: RefereedWorld, cause: 'restore' | 'migration'): void {
  world.acquire('a', 'x')
  const chunks = [...world.saved()]
  world.referee.beginWith({ chunks, index: world.state.index }, cause)
}

function counted(history: History): ReadonlyMap<string, number> {
  const world = new RefereedWorld()
  history(world)
  return world.referee.pairs.counts
}

describe('each feature', () => {
  test.each(FEATURES)('%s acts, is judged and is counted', feature => {
    const acted = [...counted(ACTS[feature]).keys()].filter(name => name.endsWith(` ${feature}`))
    expect(acted).not.toEqual([])
  })

  test('has its own code of two letters, and judges', () => {
    const codes = FEATURES.map(feature => FEATURE_ROWS[feature].code)
    expect(new Set(codes).size).toBe(FEATURES.length)
    expect(codes.filter(code => !/^[a-z]{2}$/.test(code))).toEqual([])
    expect(FEATURES.filter(feature => FEATURE_ROWS[feature].judges.length === 0)).toEqual([])
  })
})

describe('a pair', () => {
  test('of a lease with a parent that is transferred counts once', () => {
    const counts = counted(world => void given(world, world.acquire('a', 'x', { parent: world.acquire('a', []) })))
    expect(counts.get(pairName('parent', 'transfer'))).toBe(1)
  })

  test('of two leases for one resource counts, and of leases for different resources does not', () => {
    const near = counted(world => void [world.acquire('a', 'x', { grace: 100 }), world.acquire('b', 'x', { wait: true })])
    expect(near.get(pairName('grace', 'wait'))).toBe(1)
    const far = counted(world => {
      world.acquire('a', 'x', { grace: 100 })
      world.acquire('c', 'y')
      world.acquire('b', 'y', { wait: true })
    })
    expect(far.has(pairName('grace', 'wait'))).toBe(false)
  })

  test('does not count before a judge has looked at the lease', () => {
    const world = new RefereedWorld()
    const held = world.acquire('a', 'x', { grace: 100, ...marked('worker-renews') })
    world.referee.pairs.acts('worker-renews', [held])
    expect(world.referee.pairs.counts.has(pairName('grace', 'worker-renews'))).toBe(false)
    world.referee.beliefs.begins(world.belief(held))
    expect(world.referee.pairs.counts.get(pairName('grace', 'worker-renews'))).toBe(1)
  })

  test('of a refused transfer does not count', () => {
    const counts = counted(world => {
      const held = world.acquire('a', 'x', { grace: 100 })
      world.revoke(held)
      world.do({ kind: 'transfer', lease: held, to: 'b' })
    })
    expect(counts.has(pairName('grace', 'transfer'))).toBe(false)
  })
})

describe('the table', () => {
  test('fits a terminal of 120 columns and names every feature', () => {
    const lines = pairTable(new Map([[pairName('wait', 'transfer'), 250]]))
    expect(Math.max(...lines.map(({ length }) => length))).toBeLessThanOrEqual(120)
    expect(lines.length).toBe(FEATURES.length + 2)
    expect(lines.join('\n')).toContain('++')
  })

  test('a possible pair that never met is missing, and one that is listed as impossible must not meet', () => {
    const all = new Map(allPairs().map(([first, second]) => [pairName(first, second), 1]))
    const impossible = allPairs().filter(([first, second]) => whyImpossible(first, second) !== undefined)
    expect(reportPairs(all).wrong.length).toBe(impossible.length)
    expect(reportPairs(new Map()).missing.length).toBe(FEATURES.length ** 2 - impossible.length)
    expect(impossible.length).toBe(impossiblePairs().length)
  })

  test('the pairs of the known findings are pairs of features', () => {
    const known: ReadonlySet<string> = new Set(FEATURES)
    expect(Object.values(findings).flatMap(({ pairs }) => pairs.flat().filter(feature => !known.has(feature)))).toEqual([])
  })
})
