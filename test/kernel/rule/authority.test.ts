import { describe, expect, test } from 'vitest'
import type { Scope } from '../../../src/kernel/command.ts'
import { FENCES_PER_KEY, MAX_FENCES } from '../../../src/kernel/rule/fence.ts'
import { reload, World } from '../../support/kernel/world.ts'

type Allow = `${Scope['verb']}:${string}`

describe('a lease without resources', () => {
  test.each<[Allow[], boolean]>([
    [[], false],
    [['read:', 'watch:', 'renew:', 'release:', 'break:', 'revoke:', 'policy:'], false],
    [['acquire:jobs'], true],
    [['register:services'], true],
    [['admin:jobs'], true],
  ])('is opened with a key for %j: %s', (allow, may) => {
    const world = new World()
    const outcome = world.ask('a', [], { key: world.key('k', ...allow) })
    if (may) expect(outcome).toMatchObject({ kind: 'granted' })
    else world.refused(outcome, 'FORBIDDEN', 'forbidden-lease')
  })
})

describe('what was handed to a key by a transfer', () => {
  function handed(...allow: Allow[]) {
    const world = new World()
    const [giver, key] = [world.key('giver', 'acquire:'), world.key('k', ...allow)]
    const give = (names: string | string[]) => {
      const { lease } = world.acquire('a', names, { key: giver })
      return (world.do({ kind: 'transfer', lease, to: 'b', stopped: true }, { key: giver }) as { readonly id: number }).id
    }
    return { world, key, giver, give }
  }

  test('is kept with renew, and given back or passed on only with release or acquire', () => {
    const { world, key, give } = handed('renew:jobs')
    const lease = give('jobs/1')
    expect(world.renew(lease, key)).toBe(10_000)
    world.state = reload(world.state)
    expect(world.renew(lease, key)).toBe(10_000)
    world.refused(world.release(lease, undefined, key), 'FORBIDDEN', 'forbidden-whole', { action: 'release' })
    world.refused(world.release(lease, 'jobs/1', key), 'FORBIDDEN')
    world.refused(world.do({ kind: 'transfer', lease, to: 'c', stopped: true }, { key }), 'FORBIDDEN', 'forbidden-whole')
    world.refused(world.ask('b', 'jobs/2', { key }), 'FORBIDDEN')
    expect(world.holders('jobs/1')).toEqual(['b'])
  })

  test('is not even kept where renew does not reach all that it holds', () => {
    const { world, key, give } = handed('renew:jobs', 'release:')
    const lease = give(['jobs/1', 'x'])
    expect(world.renew(lease, key)).toBe(-1)
  })

  test('is given back and passed on with release, and both with acquire', () => {
    for (const allow of [['renew:', 'release:jobs'], ['acquire:jobs']] as Allow[][]) {
      const { world, key, give } = handed(...allow)
      const [one, two] = [give('jobs/1'), give('jobs/2')]
      expect([world.renew(one, key), world.renew(two, key)]).toEqual([10_000, 10_000])
      expect(world.release(one, undefined, key)).toMatchObject({ kind: 'done' })
      expect(world.do({ kind: 'transfer', lease: two, to: 'c', stopped: true }, { key })).toMatchObject({ kind: 'done' })
    }
  })

  test('is renewed no more when the right to it goes no further than to another name', () => {
    const { world, key, give } = handed('release:jobs', 'renew:other')
    const lease = give('jobs/1')
    expect(world.renew(lease, key)).toBe(-1)
    expect(world.lease(lease)!.key).not.toBe(key)
  })

  test('is granted to a key that may renew it, though it could not have asked for it; and its place in the queue may be given up', () => {
    for (const leaves of [true, false]) {
      const { world, key, giver } = handed('renew:jobs')
      const { lease } = world.acquire('a', 'jobs/1', { key: giver })
      const { id } = world.do({ kind: 'transfer', lease, to: 'b' }, { key: giver }) as { readonly id: number }
      expect(world.renew(id, key)).toBe(10_000)
      if (leaves) expect(world.release(id, undefined, key)).toMatchObject({ kind: 'done' })
      world.release(lease, undefined, giver)
      expect(world.holders('jobs/1')).toEqual(leaves ? [] : ['b'])
    }
  })

  test('and holds nothing any more can be claimed only by a key with any such right', () => {
    const { world, key, give } = handed('renew:elsewhere')
    const lease = give(['jobs/1', 'jobs/2'])
    world.release(lease, 'jobs/1')
    world.release(lease, 'jobs/2')
    expect(world.renew(lease, 99)).toBe(-1)
    expect(world.renew(lease, world.key('reader', 'read:'))).toBe(-1)
    expect(world.renew(lease, key)).toBe(10_000)
  })
})

test('a lease whose key was revoked can be transferred to any holder, and never to that key', () => {
  for (const others of [true, false]) {
    const world = new World()
    const key = world.key('k', 'acquire:')
    if (others) world.key('other', 'acquire:')
    const { lease } = world.acquire('a', 'x', { key })
    world.do({ kind: 'unkey', id: key })
    const { id } = world.do({ kind: 'transfer', lease, to: 'b' }) as { readonly id: number }
    expect(world.lease(id)!.key).not.toBe(key)
    world.due(lease)
    expect(world.holders('x')).toEqual(['b'])
    expect(world.renew(id)).toBe(10_000)
  }
})

test('what a key acquired it renews, gives back and passes on without any other verb', () => {
  const world = new World()
  const key = world.key('k', 'acquire:jobs', 'register:services')
  const [one, two] = [world.acquire('a', ['jobs/1', 'jobs/2'], { key }), world.acquire('a', 'jobs/3', { key })]
  const three = world.ask('s', [], { key, entries: [{ key: 'services/web/1', value: '' }] }) as { readonly lease: number }
  for (const { lease } of [one, two, three]) expect(world.renew(lease, key)).toBe(10_000)
  expect(world.release(one.lease, 'jobs/1', key)).toMatchObject({ kind: 'done' })
  for (const { lease } of [one, three]) expect(world.release(lease, undefined, key)).toMatchObject({ kind: 'done' })
  expect(world.do({ kind: 'transfer', lease: two.lease, to: 'b' }, { key })).toMatchObject({ kind: 'done' })
})

describe('a key that ends a lease by one of its names', () => {
  function victim() {
    const world = new World()
    const owner = world.key('owner', 'acquire:', 'register:')
    const { lease } = world.acquire('victim', ['shared/x', 'jobs/secret'], { key: owner, entries: [{ key: 'services/web/1', value: '' }] })
    return { world, owner, lease }
  }

  test('needs the right to break all that it holds', () => {
    const { world, lease } = victim()
    const breaks = (key: number) => world.do({ kind: 'break', resource: 'shared/x' }, { key })
    const blind = world.refused(breaks(world.key('b', 'break:shared')), 'FORBIDDEN', 'forbidden-hidden', { lease })
    expect(JSON.stringify(blind)).not.toContain('secret')
    world.refused(breaks(world.key('r', 'break:shared', 'read:jobs')), 'FORBIDDEN', 'forbidden-reach', { verb: 'break' })
    world.refused(world.do({ kind: 'break', resource: 'shared/x', after: 5_000 }, { key: world.key('l', 'break:shared') }), 'FORBIDDEN')
    expect(world.holders('jobs/secret')).toEqual(['victim'])
    expect(breaks(world.key('all', 'break:shared', 'break:jobs'))).toMatchObject({ kind: 'done' })
    expect(world.holders('jobs/secret')).toEqual(['victim*'])
  })

  test('needs it for a steal as well, be it by force or not; frozen or not', () => {
    for (const steal of ['after', 'force'] as const) {
      const { world } = victim()
      const thief = (...more: Allow[]) =>
        world.ask('thief', 'shared/x', { wait: true, steal, key: world.key('t', 'acquire:', 'break:shared', ...more) })
      expect(JSON.stringify(world.refused(thief(), 'FORBIDDEN'))).not.toContain('secret')
      world.do({ kind: 'break', resource: 'shared/x' })
      // A forced steal takes frozen units, too; any other does not touch them.
      if (steal === 'force') world.refused(thief(), 'FORBIDDEN')
      else expect(thief()).toMatchObject({ kind: 'queued' })
      expect(thief('break:jobs')).toMatchObject({ kind: steal === 'force' ? 'granted' : 'queued' })
    }
  })

  test('needs the right to revoke all its resources and all its entries', () => {
    const { world, lease } = victim()
    const revokes = (...allow: Allow[]) => world.do({ kind: 'revoke', target: { lease } }, { key: world.key('k', ...allow) })
    world.refused(revokes('revoke:shared'), 'FORBIDDEN', 'forbidden-hidden', { lease })
    world.refused(revokes('revoke:shared', 'revoke:jobs', 'read:services'), 'FORBIDDEN', 'forbidden-reach', { verb: 'revoke', lease: 1 })
    world.refused(revokes('revoke:elsewhere'), 'GONE')
    world.refused(
      world.do({ kind: 'revoke', target: { prefix: 'shared' } }, { key: world.key('p', 'revoke:shared', 'revoke:jobs') }),
      'NOT_FOUND',
    )
    world.refused(world.do({ kind: 'revoke', target: { holder: 'victim' } }, { key: world.key('h', 'revoke:shared') }), 'NOT_FOUND')
    expect(revokes('revoke:shared', 'revoke:jobs', 'revoke:services')).toMatchObject({ kind: 'done' })
  })

  test('needs it for all descendants: they end with it', () => {
    const world = new World()
    const owner = world.key('owner', 'acquire:')
    const top = world.acquire('a', 'shared/x', { key: owner })
    const middle = world.ask('a', [], { key: owner, parent: top.lease }) as { readonly lease: number }
    const deep = world.acquire('a', 'jobs/secret', { key: owner, parent: middle.lease })
    const [breaker, revoker, admin] = [world.key('b', 'break:shared'), world.key('r', 'revoke:shared'), world.key('a', 'admin:shared')]
    world.refused(world.do({ kind: 'break', resource: 'shared/x' }, { key: breaker }), 'FORBIDDEN', 'forbidden-hidden', {
      lease: deep.lease,
    })
    world.refused(world.do({ kind: 'revoke', target: { lease: top.lease } }, { key: revoker }), 'FORBIDDEN')
    world.refused(world.release(top.lease, undefined, admin), 'FORBIDDEN')
    world.refused(world.do({ kind: 'transfer', lease: top.lease, to: 'b' }, { key: admin }), 'FORBIDDEN')
    expect(world.holders('jobs/secret')).toEqual(['a'])
  })

  test('may end its own lease by any of its names', () => {
    const world = new World()
    const key = world.key('k', 'acquire:', 'break:shared')
    world.acquire('a', ['shared/x', 'jobs/1'], { key })
    expect(world.do({ kind: 'break', resource: 'shared/x' }, { key })).toMatchObject({ kind: 'done' })
  })
})

describe('a registration, which holds nothing', () => {
  function registered() {
    const world = new World()
    const owner = world.key('owner', 'register:services')
    const outcome = world.ask('web/1', [], { key: owner, entries: [{ key: 'services/web/1', value: '' }] })
    return { world, lease: (outcome as { readonly lease: number }).lease }
  }

  test('can be revoked by a key that may revoke its entries', () => {
    for (const target of ['lease', 'prefix', 'holder'] as const) {
      const { world, lease } = registered()
      const by = { lease: { lease }, prefix: { prefix: 'services/web' }, holder: { holder: 'web/1' } }[target]
      expect(world.do({ kind: 'revoke', target: by }, { key: world.key('other', 'revoke:services/db') }).kind).toBe('refused')
      expect(world.do({ kind: 'revoke', target: by }, { key: world.key('k', 'revoke:services') })).toMatchObject({ kind: 'done' })
      expect(world.entries()).toEqual([])
    }
  })

  test('ends, and loses its entries, by a key that administers their prefix', () => {
    const { world, lease } = registered()
    const [admin, other] = [world.key('a', 'admin:services'), world.key('o', 'admin:services/db', 'register:services')]
    world.refused(world.do({ kind: 'delete', key: 'services/web/1' }, { key: other }), 'FORBIDDEN')
    world.refused(world.release(lease, undefined, other), 'GONE')
    expect(world.do({ kind: 'delete', key: 'services/web/1' }, { key: admin })).toMatchObject({ kind: 'done' })
    const { world: second, lease: again } = registered()
    expect(second.release(again, undefined, second.key('a', 'admin:services'))).toMatchObject({ kind: 'done' })
    expect(second.entries()).toEqual([])
  })
})

describe('fences', () => {
  const fenced = (world: World, resource: string, key = 0) => world.do({ kind: 'fence', resource, token: 1 }, { key })

  test('are limited per key, at no cost to other keys; also after a restart', () => {
    const world = new World({ strict: false })
    const [greedy, honest] = [world.key('greedy', 'acquire:jobs'), world.key('honest', 'acquire:')]
    world.acquire('a', 'x')
    for (let i = 0; i < FENCES_PER_KEY; i++) expect(fenced(world, `jobs/${i}`, greedy).kind).toBe('fenced')
    for (let i = 0; i < 2; i++) {
      world.refused(fenced(world, 'jobs/more', greedy), 'LIMIT', 'too-many-key-fences')
      // What it has named it goes on using, and what another has named as well.
      expect(fenced(world, 'jobs/7', greedy).kind).toBe('fenced')
      expect(fenced(world, `jobs/of-the-honest`, honest).kind).toBe('fenced')
      expect(fenced(world, 'jobs/of-the-honest', greedy).kind).toBe('fenced')
      world.state = reload(world.state)
    }
    expect([...world.state.fencedWith]).toEqual([
      [greedy, FENCES_PER_KEY],
      [honest, 1],
    ])
  })

  test('are limited in all, which is the only limit for callers with direct access to the store', () => {
    const world = new World({ strict: false })
    world.acquire('a', 'x')
    for (let i = 0; i < MAX_FENCES; i++) fenced(world, `x/${i}`)
    expect(world.state.fences.size).toBe(MAX_FENCES)
    world.refused(fenced(world, 'more'), 'LIMIT', 'too-many-fences', { limit: 100000 })
    expect(fenced(world, 'x/1').kind).toBe('fenced')
  })

  test('accept no token that was never given: it would lock out all holders', () => {
    const world = new World()
    const { tokens } = world.acquire('a', 'x')
    world.refused(world.do({ kind: 'fence', resource: 'x', token: tokens[0]! + 1 }), 'INVALID', 'never-given')
    expect(world.state.fences.size).toBe(0)
  })
})

describe('the last key that administers everything', () => {
  test('cannot be revoked by another key, and can be with direct access to the store', () => {
    const world = new World()
    const [first, second, user] = [world.key('first', 'admin:'), world.key('second', 'admin:'), world.key('user', 'admin:jobs')]
    expect(world.do({ kind: 'unkey', id: second }, { key: first })).toMatchObject({ kind: 'done' })
    world.refused(world.do({ kind: 'unkey', id: first }, { key: first }), 'INVALID', 'last-admin', { name: 'first' })
    expect(world.do({ kind: 'unkey', id: user }, { key: first })).toMatchObject({ kind: 'done' })
    expect(world.do({ kind: 'unkey', id: first })).toMatchObject({ kind: 'done' })
    expect(world.state.keys.size).toBe(0)
  })
})
