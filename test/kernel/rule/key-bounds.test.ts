import { describe, expect, test } from 'vitest'
import type { Command, CreateKey, PoolRequest } from '../../../src/kernel/command.ts'
import { World } from '../../support/kernel/world.ts'

/** A pool `gpus` of two members, and what a key is made of. */
function lab() {
  const world = new World()
  world.do({
    ...{ kind: 'acquire', holder: 'host', ttl: 10_000, wants: [] },
    entries: [1, 2].map(n => ({ key: `pool/gpus/${n}`, value: '{}' })),
  })
  const key = (more: Partial<CreateKey>, ...verbs: readonly ['acquire' | 'break', string][]) => {
    const allow = [['acquire', ''] as const, ...verbs].map(([verb, prefix]) => ({ verb, prefix }))
    const outcome = world.do({ kind: 'key', name: 'k', hash: '0'.repeat(64), allow, ...more })
    expect(outcome, JSON.stringify(outcome)).toMatchObject({ kind: 'done' })
    return (outcome as { id: number }).id
  }
  const take = (holder: string, by: number, pool: Partial<PoolRequest> = {}, more: object = {}) =>
    world.do({ kind: 'acquire', holder, ttl: 10_000, wants: [], pool: { pool: 'gpus', ...pool }, ...more }, { key: by })
  return { world, key, take }
}

describe('accounts', () => {
  test('a key uses its own accounts only, and the first one where a request names none', () => {
    const { world, key, take } = lab()
    const ann = key({ accounts: ['ann', 'lab-*'] })
    world.refused(take('ann', ann, { account: 'ben' }), 'FORBIDDEN', 'forbidden-account', { account: 'ben', accounts: ['ann', 'lab-*'] })
    world.refused(take('ann', ann, { account: 'lab' }), 'FORBIDDEN', 'forbidden-account')
    expect(take('ann', ann, { account: 'lab-7' }).kind).toBe('granted')
    expect(take('whatever', ann).kind).toBe('granted')
    expect([...world.state.pools.get('gpus')!.accounts.keys()].sort()).toEqual(['ann', 'lab-7'])
  })

  test('a reservation is bound as a request is', () => {
    const { world, key, take } = lab()
    const ann = key({ accounts: ['ann'] })
    const window = { wait: true, maxLife: 60_000 }
    world.refused(take('a', ann, { account: 'ben', from: 5_000 }, window), 'FORBIDDEN', 'forbidden-account')
    expect(take('a', ann, { from: 5_000 }, window).kind).toBe('queued')
  })

  test('members that were passed on as another account are claimed by no key that is bound to its own', () => {
    const { world, key, take } = lab()
    const [ann, ben, any] = [key({ accounts: ['ann'] }), key({ accounts: ['ben'] }), key({})]
    const { lease } = take('ann', ann) as { lease: number }
    const { id } = world.do({ kind: 'transfer', lease, to: 'ben', stopped: true }, { key: ann }) as { id: number }
    world.refused(world.do({ kind: 'claim', lease: id }, { key: ben }), 'GONE')
    expect(world.renew(id, ben)).toBe(-1)
    expect(world.renew(id, any)).toBeGreaterThan(0)
  })

  test('a transfer does not answer a waiter whose key may not use the account of the giver', () => {
    const { world, key, take } = lab()
    const [ann, ben, any] = [key({ accounts: ['ann'] }), key({ accounts: ['ben'] }), key({})]
    const pass = (by: number) => {
      const { lease } = take('ann', ann, { match: [] }) as { lease: number }
      const member = world.lease(lease)!.grants[0]!.resource.name
      const { lease: waiter } = world.queue('ben', member, { key: by })
      const { id } = world.do({ kind: 'transfer', lease, to: 'ben', stopped: true }, { key: ann }) as { id: number }
      return id === waiter
    }
    expect(pass(ben)).toBe(false)
    expect(pass(any)).toBe(true)
  })
})

describe('holder names', () => {
  test('a key acts under its own names only, exact or by their beginning', () => {
    const { world, key } = lab()
    const ann = key({ holders: ['ann', 'ci/*'] })
    world.refused(world.ask('ben', 'x', { key: ann }), 'FORBIDDEN', 'forbidden-holder', { holder: 'ben', holders: ['ann', 'ci/*'] })
    world.refused(world.ask('anna', 'x', { key: ann }), 'FORBIDDEN', 'forbidden-holder')
    expect(world.ask('ann', 'x', { key: ann }).kind).toBe('granted')
    expect(world.ask('ci/1', 'y', { key: ann }).kind).toBe('granted')
    expect(world.ask('k', 'the-name-of-the-key', { key: ann }).kind).toBe('granted')
  })

  test('a lease that was passed on to another name is not claimed', () => {
    const { world, key } = lab()
    const [ann, ben] = [key({ holders: ['ann'] }), key({ holders: ['ben'] })]
    const { lease } = world.acquire('ann', 'x', { key: ann })
    const { id } = world.do({ kind: 'transfer', lease, to: 'ben', stopped: true }, { key: ann }) as { id: number }
    expect(world.renew(id, ann)).toBe(-1)
    expect(world.renew(id, ben)).toBeGreaterThan(0)
  })
})

describe('priorities', () => {
  test('a key asks with priorities of its range only, and with the nearest to 0 where it names none', () => {
    const { world, key } = lab()
    const low = key({ priority: { low: -10, high: -1 } })
    world.acquire('x', 'x')
    for (const priority of [0, 1_000, -11])
      world.refused(world.ask('a', 'x', { key: low, wait: true, priority }), 'FORBIDDEN', 'forbidden-priority', {
        priority,
        low: -10,
        high: -1,
      })
    const { lease } = world.queue('a', 'x', { key: low })
    expect(world.lease(lease)!.extras!.priority).toBe(-1)
    const { lease: chosen } = world.queue('a', 'x', { key: low, priority: -5 })
    expect(world.lease(chosen)!.extras!.priority).toBe(-5)
    const high = key({ priority: { low: 0, high: 10 } })
    const { lease: plain } = world.queue('a', 'x', { key: high })
    expect(world.lease(plain)!.extras!.priority).toBe(0)
  })
})

describe('members of pools', () => {
  test('a key without the right to name members gets them from their pool only', () => {
    const { world, key, take } = lab()
    const student = key({ noMembers: true }, ['break', ''])
    for (const name of ['gpus/1', 'gpus/9', 'gpus/1/mig'])
      world.refused(world.ask('s', name, { key: student }), 'FORBIDDEN', 'forbidden-member', { name, pool: 'gpus' })
    world.refused(world.ask('s', 'gpus/1', { key: student, wait: true, steal: 'force' }), 'FORBIDDEN', 'forbidden-member')
    expect(take('s', student).kind).toBe('granted')
    expect(world.ask('s', 'gpus', { key: student }).kind).toBe('granted')
    world.acquire('x', ['jobs/1'])
    const { lease } = world.queue('s', ['jobs/1'], { key: student, any: 1 })
    world.refused(world.do({ kind: 'widen', lease, wants: [{ resource: 'gpus/2' }] }, { key: student }), 'FORBIDDEN', 'forbidden-member')
    expect(world.ask('t', 'gpus/2', { key: key({}) }).kind).toBe('granted')
  })
})

test.each<[Partial<CreateKey>, string, string]>([
  [{ accounts: [''] }, 'empty', 'accounts[0]'],
  [{ accounts: Array.from({ length: 65 }, (_, i) => `a${i}`) }, 'too-many', 'accounts'],
  [{ holders: ['a//b'] }, 'empty-segment', 'holders[0]'],
  [{ holders: ['/a*'] }, 'leading-slash', 'holders[0]'],
  [{ priority: { low: 2, high: 1 } }, 'above', 'priority.low'],
  [{ priority: { low: -1_001, high: 1 } }, 'out-of-range', 'priority.low'],
  [{ priority: { low: 0, high: 1e9 } }, 'out-of-range', 'priority.high'],
  [{ group: '/' }, 'leading-slash', 'group'],
  [{ limits: { leases: -1 } }, 'out-of-range', 'limits.leases'],
  [{ limits: { leases: 1e12 } }, 'out-of-range', 'limits.leases'],
  [{ limits: { bytes: 2 ** 50 } }, 'out-of-range', 'limits.bytes'],
  [{ limits: { requests: 0 } }, 'out-of-range', 'limits.requests'],
  [{ limits: { burst: 5 } }, 'needs', 'limits.burst'],
  [{ expires: -1 }, 'out-of-range', 'expires'],
  [{ expires: 2 ** 52 }, 'out-of-range', 'expires'],
])('a key with %j is refused as %s of %s', (more, reason, field) => {
  const world = new World()
  const command: Command = { kind: 'key', name: 'k', hash: '0'.repeat(64), allow: [], ...more }
  expect(world.do(command)).toMatchObject({ kind: 'refused', code: 'INVALID', reason, facts: { field } })
})
