import { describe, expect, test } from 'vitest'
import { under } from '../../../src/kernel/name.ts'
import { World } from '../../support/kernel/world.ts'

describe('scopes', () => {
  test.each([
    ['', 'anything', true],
    ['jobs', 'jobs', true],
    ['jobs/', 'jobs', true],
    ['jobs', 'jobs/nightly', true],
    ['jobs/', 'jobs/nightly/1', true],
    ['job', 'jobs/nightly', false],
    ['jobs/nightly', 'jobs', false],
    ['jobs/n', 'jobs/nightly', false],
    ['jobs/', 'job', false],
  ])('are by whole segments: "%s" over "%s" is %s', (prefix, name, expected) => {
    expect(under(prefix, name)).toBe(expected)
    const world = new World()
    const key = world.key('k', `acquire:${prefix}`)
    expect(world.ask('a', name, { key }).kind).toBe(expected ? 'granted' : 'refused')
  })

  test('all of several resources must be allowed, or nothing is', () => {
    const world = new World()
    const key = world.key('k', 'acquire:jobs')
    world.refused(world.ask('a', ['jobs/1', 'other'], { key }), 'FORBIDDEN', 'forbidden', { name: 'other' })
    expect(world.state.resources.size).toBe(0)
  })

  test('the leases of a key are limited, and ended leases do not count', () => {
    const world = new World()
    world.do({ kind: 'policy', prefix: '', rules: { leasesPerKey: 2 } })
    const [key, other] = [world.key('k', 'acquire:'), world.key('o', 'acquire:')]
    const { lease } = world.acquire('a', 'x', { key })
    world.acquire('a', 'y', { key })
    world.refused(world.ask('a', 'z', { key }), 'LIMIT', 'too-many-key-leases', { limit: 2 })
    expect(world.ask('b', 'z', { key: other }).kind).toBe('granted')
    world.do({ kind: 'release', lease }, { key })
    expect(world.ask('a', 'x', { key }).kind).toBe('granted')
  })

  test('each verb for itself', () => {
    const world = new World()
    const key = world.key('k', 'acquire:jobs')
    const admin = world.key('root', 'admin:')
    const { lease } = world.acquire('a', 'jobs/1', { key: admin })
    world.refused(world.ask('a', [], { key, entries: [{ key: 'jobs/e', value: '' }] }), 'FORBIDDEN', 'forbidden', {
      action: 'register',
      verb: 'register',
    })
    world.refused(world.do({ kind: 'break', resource: 'jobs/1' }, { key }), 'FORBIDDEN')
    world.refused(world.ask('a', 'jobs/1', { key, wait: true, steal: 'after' }), 'FORBIDDEN', 'forbidden', { action: 'steal' })
    world.refused(world.do({ kind: 'policy', prefix: 'jobs', rules: {} }, { key }), 'FORBIDDEN')
    world.refused(world.do({ kind: 'key', name: 'n', hash: '0'.repeat(64), allow: [] }, { key }), 'FORBIDDEN')
    world.refused(world.do({ kind: 'unkey', id: admin }, { key }), 'FORBIDDEN')
    world.refused(world.do({ kind: 'recall', resource: 'x' }, { key }), 'FORBIDDEN')
    world.refused(world.do({ kind: 'fence', resource: 'x', token: 1 }, { key }), 'FORBIDDEN')
    expect(world.do({ kind: 'recall', resource: 'jobs/1' }, { key })).toMatchObject({ kind: 'done' })
    expect(world.do({ kind: 'unkey', id: key }, { key: admin })).toMatchObject({ kind: 'done' })
    expect(world.renew(lease, admin)).toBe(10_000)
  })

  test('an administrator can end a lease, and cannot say for its holder that it has stopped', () => {
    const world = new World()
    const [user, admin] = [world.key('u', 'acquire:'), world.key('root', 'admin:')]
    for (const [name, end] of [
      ['x', (lease: number) => world.release(lease, undefined, admin)],
      ['y', (lease: number) => world.release(lease, 'y', admin)],
      ['z', (lease: number) => world.do({ kind: 'transfer', lease, to: 'b', stopped: true }, { key: admin })],
    ] as const) {
      const { lease } = world.acquire('a', name, { key: user })
      expect(end(lease)).toMatchObject({ kind: 'done' })
      expect(world.holders(name), name).toEqual(['a*'])
      expect(world.release(lease, undefined, user)).toMatchObject({ kind: 'done' })
    }
    expect(world.holders('z')).toEqual(['b'])
  })

  test('admin of a prefix acts on every lease there, and creates no keys', () => {
    const world = new World()
    const [user, admin] = [world.key('u', 'acquire:'), world.key('a', 'admin:jobs')]
    const inside = world.acquire('a', 'jobs/1', { key: user })
    const partly = world.acquire('a', ['jobs/2', 'x'], { key: user })
    expect(world.renew(inside.lease, admin)).toBe(10_000)
    expect(world.renew(partly.lease, admin)).toBe(-1)
    world.refused(world.do({ kind: 'key', name: 'n', hash: '0'.repeat(64), allow: [] }, { key: admin }), 'FORBIDDEN')
  })
})

describe('a lease answers to the key that made it', () => {
  function two() {
    const world = new World({ wall: 1_000 }) // ids that are found in no other number
    const [mine, other] = [world.key('mine', 'acquire:', 'register:'), world.key('other', 'acquire:', 'register:', 'revoke:jobs')]
    const { lease } = world.acquire('a', 'x', { key: mine, entries: [{ key: 'svc/a', value: '1' }] })
    return { world, mine, other, lease }
  }

  test('for any other key, a lease looks gone', () => {
    const { world, other, lease } = two()
    const ghost = world.acquire('g', 'g').lease
    world.release(ghost)
    const said = (id: number) =>
      [
        world.do({ kind: 'renew', leases: [id] }, { key: other }),
        world.release(id, undefined, other),
        world.release(id, 'x', other),
        world.do({ kind: 'put', lease: id, key: 'svc/b', value: '' }, { key: other }),
        world.do({ kind: 'transfer', lease: id, to: 'b' }, { key: other }),
        world.do({ kind: 'revoke', target: { lease: id } }, { key: other }),
        world.ask('b', 'y', { parent: id, key: other }),
      ].map(outcome => JSON.stringify(outcome).replaceAll(String(id), 'ID'))
    const foreign = said(lease)
    expect(foreign.join()).not.toMatch(/FORBIDDEN/)
    expect(foreign).toEqual(said(ghost))
    expect(world.holders('x')).toEqual(['a'])
  })

  test('another key does not take over an entry, even with the same holder name', () => {
    const { world, mine, other } = two()
    world.refused(world.ask('a', [], { key: other, entries: [{ key: 'svc/a', value: '2' }] }), 'HELD')
    expect(world.ask('a', [], { key: mine, entries: [{ key: 'svc/a', value: '2' }] })).toMatchObject({ kind: 'granted' })
  })

  test('a key without the right to register learns nothing about an entry', () => {
    const world = new World()
    const key = world.key('k', 'acquire:', 'register:mine')
    world.ask('a', [], { entries: [{ key: 'svc/a', value: '1' }] })
    const said = (name: string, lease?: number) =>
      JSON.stringify(world.do({ kind: 'delete', key: name, ...(lease !== undefined && { lease }) }, { key })).replaceAll(name, 'NAME')
    expect(said('svc/a')).toBe(said('svc/b'))
    expect(said('svc/a', 1)).toBe(said('svc/b', 1))
    expect(said('svc/a', 9)).toBe(said('svc/b', 9))
    expect(world.entries()).toHaveLength(1)
  })

  test('revoking by holder or prefix passes over what one has no right to, without a word', () => {
    const world = new World()
    const key = world.key('k', 'revoke:jobs')
    world.acquire('a', 'jobs/1')
    world.acquire('a', 'x')
    world.do({ kind: 'revoke', target: { holder: 'a' } }, { key })
    expect([world.holders('jobs/1'), world.holders('x')]).toEqual([['a*'], ['a']])
    world.refused(world.do({ kind: 'revoke', target: { prefix: 'x' } }, { key }), 'NOT_FOUND')
  })
})

describe('a key that was revoked', () => {
  test('may do nothing any more, not even renew what it has: that lapses', () => {
    const world = new World()
    const key = world.key('k', 'acquire:', 'register:')
    const { lease } = world.acquire('a', 'x', { key })
    expect(world.renew(lease, key)).toBe(10_000)
    world.do({ kind: 'unkey', id: key })
    expect(world.renew(lease, key)).toBe(-1)
    world.refused(world.release(lease, undefined, key), 'GONE')
    world.refused(world.ask('a', 'y', { key }), 'FORBIDDEN')
    world.refused(world.ask('a', [], { key }), 'FORBIDDEN')
    world.refused(world.do({ kind: 'put', lease, key: 'e', value: '' }, { key }), 'GONE')
    world.due(lease)
    expect(world.holders('x')).toEqual([])
  })

  test('waits for nothing any more: its waiters end in the same revision, and the waiters behind them move up', () => {
    const world = new World()
    const [key, other] = [world.key('k', 'acquire:'), world.key('o', 'acquire:')]
    const first = world.acquire('a', 'x')
    const second = world.queue('b', 'x', { key })
    world.queue('c', 'x', { key: other })
    const held = world.acquire('d', 'y', { key })
    world.do({ kind: 'unkey', id: key })
    expect(world.revisionEvents.map(({ type, holder, cause }) => [type, holder, cause])).toEqual([
      ['key', undefined, 'revoked'],
      ['withdrawn', 'b', 'unkeyed'],
    ])
    expect(world.lease(second.lease)).toBeUndefined()
    expect(world.lease(held.lease), 'what it holds runs out by itself').toBeDefined()
    world.release(first.lease)
    expect(world.holders('x')).toEqual(['c'])
  })

  test('frees what only its place in a queue had kept from the next one', () => {
    const world = new World()
    const key = world.key('k', 'acquire:')
    world.do({ kind: 'policy', prefix: 'x', rules: { capacity: 2 } })
    world.acquire('a', 'x')
    world.do({ kind: 'acquire', holder: 'b', ttl: 10_000, wait: true, wants: [{ resource: 'x', units: 2 }] }, { key })
    world.queue('c', 'x')
    world.do({ kind: 'unkey', id: key })
    expect(world.holders('x')).toEqual(['a', 'c'])
  })

  test('is not there to be revoked again, and its number is never given again', () => {
    const world = new World()
    const key = world.key('k', 'acquire:')
    world.do({ kind: 'unkey', id: key })
    world.refused(world.do({ kind: 'unkey', id: key }), 'NOT_FOUND')
    expect(world.key('l', 'acquire:')).toBeGreaterThan(key)
  })
})

describe('a transfer to a name that no process is known by', () => {
  const given = (stopped = true) => {
    const world = new World()
    const [giver, recipient, stranger] = [
      world.key('giver', 'acquire:x'),
      world.key('recipient', 'acquire:x'),
      world.key('stranger', 'acquire:y', 'read:x'),
    ]
    const { lease } = world.acquire('a', 'x', { key: giver })
    const outcome = world.do({ kind: 'transfer', lease, to: 'b', ...(stopped && { stopped }) }, { key: giver })
    const heir = (outcome as { readonly id: number }).id
    return { world, giver, recipient, stranger, heir, lease }
  }

  test('answers to the key that renews it first, of those that may acquire it, and to no other from then on', () => {
    const { world, giver, recipient, stranger, heir } = given()
    expect(world.renew(heir, stranger)).toBe(-1)
    expect(world.renew(heir, recipient)).toBe(10_000)
    expect(world.renew(heir, giver)).toBe(-1)
    world.refused(world.release(heir, undefined, giver), 'GONE')
    expect(world.release(heir, undefined, recipient)).toMatchObject({ kind: 'done' })
    expect(world.revisionEvents.map(({ type }) => type)).toEqual(['released'])
    expect([...world.state.keyUse]).toEqual([])
  })

  test("can be used by no key before that except an administrator's, not even by its giver's", () => {
    const { world, giver, recipient, heir } = given()
    for (const key of [giver, recipient]) {
      world.refused(world.release(heir, undefined, key), 'GONE')
      world.refused(world.do({ kind: 'put', lease: heir, key: 'e', value: '' }, { key }), 'GONE')
      world.refused(world.do({ kind: 'transfer', lease: heir, to: 'c', stopped: true }, { key }), 'GONE')
    }
    expect(world.holders('x')).toEqual(['b'])
    expect(world.release(heir, undefined, world.key('admin', 'admin:'))).toMatchObject({ kind: 'done' })
  })

  test('is judged by the key that claimed it: revoked, it renews no more', () => {
    const { world, recipient, heir } = given()
    world.renew(heir, recipient)
    world.do({ kind: 'unkey', id: recipient })
    expect(world.renew(heir, recipient)).toBe(-1)
  })

  test('stands first in the queue where the giver did not stop, and is claimed while it waits', () => {
    const { world, recipient, heir, lease } = given(false)
    expect(world.waiters('x')).toEqual(['b'])
    expect(world.renew(heir, recipient)).toBe(10_000)
    world.release(lease)
    expect(world.holders('x')).toEqual(['b'])
    expect(world.renew(heir, recipient)).toBe(10_000)
  })

  test('is granted without an owner if its turn comes before it is claimed', () => {
    const { world, recipient, heir, lease } = given(false)
    world.release(lease)
    expect(world.holders('x')).toEqual(['b'])
    expect(world.renew(heir, recipient)).toBe(10_000)
  })

  test('can be renewed by every client where there are no keys', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'x')
    const { id } = world.do({ kind: 'transfer', lease, to: 'b', stopped: true }) as { readonly id: number }
    expect(world.state.leases.get(id - world.state.origin)!.key).toBe(0)
  })
})
