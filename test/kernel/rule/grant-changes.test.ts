/** Acquisitions and releases that bring comparisons and changes of entries: all of it in one revision, or nothing. */
import { describe, expect, test } from 'vitest'
import { malformed } from '../../../src/kernel/codec/form.ts'
import type { Acquire, Command, Comparison, GrantChange, Release } from '../../../src/kernel/command.ts'
import type { Granted, Outcome } from '../../../src/kernel/outcome.ts'
import { reload, World } from '../../support/kernel/world.ts'

function allowing(freeEntries = 100): World {
  const world = new World()
  world.policy('kv', { freeEntries })
  return world
}

const isNew: Comparison = { key: 'kv/a', field: 'created', is: 'equal' }

function unchanged(world: World, key = 'kv/a'): Comparison {
  return { key, field: 'revision', is: 'equal', number: (world.state.entries.get(key) ?? world.state.free.get(key))!.revision }
}

function writing(value: string, more: Partial<GrantChange> = {}): readonly GrantChange[] {
  return [{ key: 'kv/a', value, ...more }]
}

function release(world: World, { lease }: Granted, more: Partial<Release>, key = 0): Outcome {
  return world.do({ kind: 'release', lease, ...more }, { key })
}

describe('an acquisition with changes', () => {
  test('is granted, and its changes are made, in one revision', () => {
    const world = allowing()
    const { lease, revision } = world.acquire('ann', 'x', { compare: [isNew], changes: [...writing('1'), { key: 'kv/b', own: true }] })
    expect(world.entries()).toEqual(['kv/a=1', `kv/b=@${lease}`])
    expect(world.revisionEvents.map(({ type, revision: at }) => [type, at])).toEqual([
      ['granted', revision],
      ['put', revision],
      ['put', revision],
    ])
    world.release(lease)
    expect(world.entries()).toEqual(['kv/a=1'])
  })

  test('changes nothing if a comparison is not true, or the resource is held', () => {
    const world = allowing()
    world.acquire('ann', 'x', { compare: [isNew], changes: writing('1') })
    const compare = [unchanged(world)]
    world.refused(world.ask('bob', 'x', { compare, changes: writing('2') }), 'HELD', 'held')
    world.refused(world.ask('bob', 'y', { compare: [isNew], changes: writing('2') }), 'STALE', 'not-as-compared', {
      key: 'kv/a',
      field: 'created',
    })
    expect(world.entries()).toEqual(['kv/a=1'])
    expect(world.ask('bob', 'y', { compare, changes: writing('2') }).kind).toBe('granted')
    expect(world.entries()).toEqual(['kv/a=2'])
  })

  test('without changes is granted only if its comparisons are true', () => {
    const world = allowing()
    expect(world.ask('ann', 'x', { compare: [isNew] }).kind).toBe('granted')
    world.refused(world.ask('bob', 'y', { compare: [{ ...isNew, is: 'greater' }] }), 'STALE', 'not-as-compared')
  })

  test('has its whole term at once, as clients that read the entries rely on it', () => {
    const world = allowing()
    const before = world.acquire('ann', 'x', { ttl: 60_000, compare: [isNew] })
    expect(before.ttl).toBe(30_000)
    const { lease, ttl } = world.acquire('ann', 'y', { ttl: 60_000, changes: writing('1') })
    expect([ttl, world.renew(lease)]).toEqual([60_000, 60_000])
    expect(reload(world.state).leases.get(lease)).toMatchObject({ term: 60_000, confirmed: true })
  })

  test('takes over an entry of another lease, or of none, by its comparisons alone', () => {
    const world = allowing()
    const first = world.acquire('ann', 'x', { changes: writing('1', { own: true }) })
    const second = world.acquire('bob', 'y', { compare: [unchanged(world)], changes: writing('2', { own: true }) })
    expect(world.entries()).toEqual([`kv/a=2@${second.lease}`])
    world.release(first.lease)
    expect(world.entries()).toEqual([`kv/a=2@${second.lease}`])
    world.acquire('cleo', 'z', { changes: writing('3') })
    expect(world.entries()).toEqual(['kv/a=3'])
  })

  test('serves the waiter whose entry it makes room for, in the same revision', () => {
    const world = allowing()
    world.acquire('ann', 'x', { changes: writing('1') })
    const { lease } = world.queue('bob', 'y', { entries: [{ key: 'kv/a', value: '2' }] })
    world.acquire('cleo', 'z', { changes: [{ key: 'kv/a', delete: true }] })
    expect(world.holders('y')).toEqual(['bob'])
    expect(world.entries()).toEqual([`kv/a=2@${lease}`])
  })

  test('needs a policy for its entries, a ttl that suits them, and the rights of a transaction', () => {
    const world = allowing(1)
    world.refused(world.ask('ann', 'x', { changes: [{ key: 'elsewhere' }] }), 'INVALID', 'no-free-entries')
    world.refused(world.ask('ann', 'x', { changes: [{ key: 'kv/1' }, { key: 'kv/2' }] }), 'LIMIT', 'too-many-free-entries')
    world.policy('kv', { freeEntries: 1, ttlMax: 5_000 })
    world.refused(world.ask('ann', 'x', { changes: writing('1', { own: true }) }), 'INVALID', 'ttl-outside')
    const key = world.key('app', 'acquire:x', 'register:kv/own', 'read:kv')
    world.refused(world.ask('app', 'x', { key, changes: writing('1') }), 'FORBIDDEN', 'forbidden', { verb: 'register', name: 'kv/a' })
    world.refused(world.ask('app', 'x', { key, compare: [{ ...isNew, key: 'secret' }] }), 'FORBIDDEN', 'forbidden', { verb: 'read' })
    world.refused(world.ask('app', 'x', { key, changes: [{ key: 'kv/own/1', lease: 99 }] }), 'GONE')
    expect(world.ask('app', 'x', { key, compare: [isNew], changes: [{ key: 'kv/own/1' }] }).kind).toBe('granted')
  })

  test('counts against the limits of its key', () => {
    const world = allowing()
    const key = world.key('app', 'acquire:x', 'register:kv')
    world.do({ kind: 'limit', id: key, limits: { entries: 1 } })
    world.refused(world.ask('app', 'x', { key, changes: [{ key: 'kv/1', own: true }, { key: 'kv/2' }] }), 'LIMIT', 'key-limit', {
      what: 'entries',
    })
    expect(world.ask('app', 'x', { key, changes: [{ key: 'kv/1', own: true }] }).kind).toBe('granted')
    world.refused(world.ask('app', [], { key, changes: [{ key: 'kv/2' }] }), 'LIMIT', 'key-limit')
  })
})

describe('a release with changes', () => {
  test('makes them and gives the resource to the next waiter, in one revision', () => {
    const world = allowing()
    const held = world.acquire('ann', 'x', { changes: writing('1', { own: true }) })
    const { lease: next } = world.queue('bob', 'x')
    expect(release(world, held, { compare: [unchanged(world)], changes: writing('2') })).toMatchObject({ kind: 'done' })
    expect(world.entries()).toEqual(['kv/a=2'])
    expect(world.revisionEvents.map(({ type, lease }) => [type, lease])).toEqual([
      ['put', 0],
      ['released', held.lease],
      ['granted', next],
    ])
  })

  test('releases nothing if a comparison is not true', () => {
    const world = allowing()
    const held = world.acquire('ann', 'x', { changes: writing('1') })
    const compare = [unchanged(world)]
    world.do({ kind: 'transaction', success: writing('2') })
    world.refused(release(world, held, { compare, changes: writing('3') }), 'STALE', 'not-as-compared', { field: 'revision' })
    expect(world.holders('x')).toEqual(['ann'])
    expect(world.entries()).toEqual(['kv/a=2'])
  })

  test('of a lease that waits, has ended or is frozen changes nothing', () => {
    const world = allowing()
    const held = world.acquire('ann', 'x')
    const waiter = world.queue('bob', 'x')
    world.refused(world.do({ kind: 'release', lease: waiter.lease, changes: writing('1') }), 'GONE')
    world.do({ kind: 'revoke', target: { lease: held.lease } })
    world.refused(release(world, held, { changes: writing('1') }), 'GONE')
    expect(release(world, held, {})).toMatchObject({ kind: 'done' })
    world.refused(release(world, held, { changes: writing('1') }), 'GONE')
    expect(world.entries()).toEqual([])
  })

  test('needs the rights of a transaction', () => {
    const world = allowing()
    const key = world.key('app', 'acquire:x')
    const held = world.acquire('app', 'x', { key })
    world.refused(release(world, held, { changes: writing('1') }, key), 'FORBIDDEN', 'forbidden', { verb: 'register' })
    expect(world.holders('x')).toEqual(['app'])
  })
})

test('comparisons and changes come with neither a wait, a pool and entries nor a partial release', () => {
  const acquire: Acquire = {
    kind: 'acquire',
    holder: 'ann',
    ttl: 1_000,
    wants: [{ resource: 'x' }],
    compare: [isNew],
    changes: writing('1'),
  }
  const wrong: readonly Command[] = [
    { ...acquire, wait: true },
    { ...acquire, wants: [], pool: { pool: 'gpus' } },
    { ...acquire, compare: [], entries: [{ key: 'kv/b', value: '' }] },
    { kind: 'release', lease: 1, resource: 'x', changes: writing('1') },
  ]
  expect(malformed(acquire)).toBeUndefined()
  for (const command of wrong) expect(malformed(command), JSON.stringify(command)).toMatchObject({ reason: 'not-together' })
  const world = allowing()
  world.refused(world.do({ ...acquire, changes: writing('', { own: true, lease: 1 }) }), 'INVALID', 'not-together', {
    field: 'changes[0].own',
  })
  world.refused(world.do({ ...acquire, changes: writing('', { own: true, delete: true }) }), 'INVALID', 'not-together')
})
