import { describe, expect, test } from 'vitest'
import type { CreateKey, KeyLimits } from '../../../src/kernel/command.ts'
import { reload, World } from '../../support/kernel/world.ts'

const ALL = (['acquire', 'register', 'read'] as const).map(verb => ({ verb, prefix: '' }))

function given(wall = 0) {
  const world = new World()
  world.state.wall = wall
  const key = (limits?: KeyLimits, more: Partial<CreateKey> = {}) =>
    (world.do({ kind: 'key', name: 'k', hash: '0'.repeat(64), allow: ALL, ...(limits && { limits }), ...more }) as { id: number }).id
  const limited = (outcome: ReturnType<World['do']>, what: string, limit: number, used: number) =>
    world.refused(outcome, 'LIMIT', 'key-limit', { what, limit, used })
  return { world, key, limited }
}

describe('the limits of a key', () => {
  test('leases count whether they wait or not, and until they end in whatever way', () => {
    const { world, key, limited } = given()
    const k = key({ leases: 2 })
    const { lease } = world.acquire('a', 'x', { key: k })
    const { lease: waiter } = world.queue('a', 'x', { key: k })
    limited(world.ask('a', 'y', { key: k }), 'leases', 2, 2)
    expect(world.ask('a', 'y', { key: key() }).kind).toBe('granted')
    world.release(waiter, undefined, k)
    world.acquire('a', 'z', { key: k })
    world.due(lease)
    expect(world.ask('a', 'w', { key: k }).kind).toBe('granted')
    limited(world.ask('a', 'v', { key: k }), 'leases', 2, 2)
    world.do({ kind: 'revoke', target: { holder: 'a' }, force: true })
    expect(world.ask('a', 'v', { key: k }).kind).toBe('granted')
  })

  test('a refusal that the limit has nothing to do with comes first', () => {
    const { world, key } = given()
    const k = key({ leases: 0 })
    world.acquire('b', 'x')
    world.refused(world.ask('a', 'x', { key: k }), 'HELD')
    world.refused(world.ask('a', 'y', { key: k }), 'LIMIT', 'key-limit', { limit: 0, used: 0 })
  })

  test('waiters are limited apart, and a waiter that is granted is none any more', () => {
    const { world, key, limited } = given()
    const k = key({ waiters: 1 })
    const { lease } = world.acquire('b', ['x', 'y'])
    world.queue('a', 'x', { key: k })
    limited(world.ask('a', 'y', { key: k, wait: true }), 'waiters', 1, 1)
    expect(world.ask('a', 'z', { key: k, wait: true }).kind).toBe('granted')
    world.release(lease)
    world.acquire('b', 'w')
    expect(world.ask('a', 'w', { key: k, wait: true }).kind).toBe('queued')
  })

  test('entries and their bytes count, attached, brought by a waiter, or without a lease', () => {
    const { world, key, limited } = given()
    world.policy('kv', { freeEntries: 100 })
    const k = key({ entries: 3, bytes: 30 })
    const put = (name: string, value: string, lease: number) => world.do({ kind: 'put', lease, key: name, value }, { key: k })
    const { lease } = world.acquire('a', 'x', { key: k, entries: [{ key: 'e/1', value: '12345' }] })
    world.acquire('b', 'y')
    const { lease: waiter } = world.queue('a', 'y', { key: k, entries: [{ key: 'e/2', value: '' }] })
    const write = (value: string, name = 'kv/1') => world.do({ kind: 'transaction', success: [{ key: name, value }] }, { key: k })
    expect(write('').kind).toBe('transacted')
    limited(write('', 'kv/2'), 'entries', 3, 3)
    limited(put('e/3', '', lease), 'entries', 3, 3)
    limited(world.ask('a', 'z', { key: k, entries: [{ key: 'e/3', value: '' }] }), 'entries', 3, 3)
    // The same entry again is no more entries: 8 + 3 + 4 bytes are there.
    expect(put('e/1', '1'.repeat(20), lease)).toMatchObject({ kind: 'done' })
    limited(put('e/1', '1'.repeat(21), lease), 'bytes', 30, 30)
    limited(write('1'), 'bytes', 30, 30)
    expect(put('e/1', '', lease)).toMatchObject({ kind: 'done' })
    world.release(waiter, undefined, k)
    expect(put('e/3', '', lease)).toMatchObject({ kind: 'done' })
    world.do({ kind: 'transaction', success: [{ key: 'kv/1', delete: true }] }, { key: k })
    expect(write('', 'kv/9').kind).toBe('transacted')
    world.state = reload(world.state)
    limited(write('', 'kv/2'), 'entries', 3, 3)
  })

  test('what another key wrote last counts for that key', () => {
    const { world, key, limited } = given()
    world.policy('kv', { freeEntries: 100 })
    const [k, other] = [key({ entries: 1 }), key()]
    const write = (by: number, name: string) => world.do({ kind: 'transaction', success: [{ key: name, value: 'v' }] }, { key: by })
    write(k, 'kv/1')
    limited(write(k, 'kv/2'), 'entries', 1, 1)
    write(other, 'kv/1')
    expect(write(k, 'kv/2').kind).toBe('transacted')
  })

  test('a lower limit ends nothing, and no limit lifts it', () => {
    const { world, key, limited } = given()
    const k = key()
    const { lease } = world.acquire('a', ['x'], { key: k })
    world.acquire('a', 'y', { key: k })
    expect(world.do({ kind: 'limit', id: k, limits: { leases: 1 } })).toMatchObject({ kind: 'done' })
    expect(world.renew(lease, k)).toBe(10_000)
    limited(world.ask('a', 'z', { key: k }), 'leases', 1, 2)
    world.do({ kind: 'limit', id: k })
    expect(world.ask('a', 'z', { key: k }).kind).toBe('granted')
  })

  test('a lease that is passed on counts for the recipient, and stays unclaimed while its key has no room', () => {
    const { world, key, limited } = given()
    const [giver, full] = [key({ leases: 1 }), key({ leases: 1 })]
    const { lease: own, incarnation } = world.acquire('b', 'own', { key: full })
    const { lease } = world.acquire('a', 'x', { key: giver })
    const pass = (id: number) =>
      (world.do({ kind: 'transfer', lease: id, to: 'b', incarnation, stopped: true }, { key: giver }) as { id: number }).id
    const first = pass(lease)
    expect(world.renew(first, full)).toBe(-1)
    const { id: named } = world.do(
      { kind: 'transfer', lease: world.acquire('a', 'y', { key: giver }).lease, to: 'b', stopped: true },
      { key: giver },
    ) as { id: number }
    limited(world.do({ kind: 'claim', lease: named }, { key: full }), 'leases', 1, 1)
    world.release(own, undefined, full)
    expect(world.renew(first, full)).toBeGreaterThan(0)
    limited(world.ask('b', 'z', { key: full }), 'leases', 1, 1)
    expect(world.ask('a', 'z', { key: giver }).kind).toBe('granted')
  })
})

describe('the limits of a group', () => {
  test('count all its keys together, also after a restart', () => {
    const { world, key } = given()
    const [one, two, outside] = [key(undefined, { group: 'g' }), key({ leases: 9 }, { group: 'g' }), key()]
    world.do({ kind: 'limit', group: 'g', limits: { leases: 2 } })
    world.acquire('a', 'x', { key: one })
    world.acquire('b', 'y', { key: two })
    for (const k of [one, two])
      world.refused(world.ask('c', 'z', { key: k }), 'LIMIT', 'group-limit', { group: 'g', what: 'leases', limit: 2, used: 2 })
    expect(world.ask('c', 'z', { key: outside }).kind).toBe('granted')
    world.state = reload(world.state)
    world.refused(world.ask('c', 'w', { key: two }), 'LIMIT', 'group-limit', { used: 2 })
  })

  test('do not count a revoked key, whose leases run out; a group without keys is none', () => {
    const { world, key } = given()
    const [one, two] = [key(undefined, { group: 'g' }), key(undefined, { group: 'g' })]
    world.do({ kind: 'limit', group: 'g', limits: { leases: 1 } })
    const { lease } = world.acquire('a', 'x', { key: one })
    world.do({ kind: 'unkey', id: one })
    expect(world.ask('b', 'y', { key: two }).kind).toBe('granted')
    world.due(lease)
    world.refused(world.ask('b', 'z', { key: two }), 'LIMIT', 'group-limit', { used: 1 })
    world.do({ kind: 'unkey', id: two })
    world.refused(world.do({ kind: 'limit', group: 'g', limits: {} }), 'NOT_FOUND', 'no-group', { group: 'g' })
    expect(world.state.groups.size).toBe(0)
  })

  test('are set by administrators only, for a key or a group that is there', () => {
    const { world, key } = given()
    const k = key(undefined, { group: 'g' })
    world.refused(world.do({ kind: 'limit', group: 'g' }, { key: k }), 'FORBIDDEN', 'forbidden-admin')
    world.refused(world.do({ kind: 'limit', id: 99 }), 'NOT_FOUND', 'no-key')
    world.refused(world.do({ kind: 'limit' }), 'INVALID', 'needs-one-of')
    world.refused(world.do({ kind: 'limit', id: k, limits: { waiters: -1 } }), 'INVALID', 'out-of-range')
  })
})

describe('the secret of a key', () => {
  const hash = 'f'.repeat(64)

  test('is replaced by a rotation, and the former one is kept for the overlap', () => {
    const { world, key } = given(1_000)
    const k = key(undefined, { expires: 5_000 })
    const { lease } = world.acquire('a', 'x', { key: k })
    expect(world.do({ kind: 'rotate', id: k, hash, overlap: 100 })).toMatchObject({ kind: 'done', id: k })
    expect(world.state.keys.get(k)).toMatchObject({ hash, expires: 5_000, former: { hash: '0'.repeat(64), until: 1_100 } })
    expect(world.renew(lease, k)).toBe(10_000)
    world.state = reload(world.state)
    world.refused(world.do({ kind: 'rotate', id: k, hash: 'e'.repeat(64), overlap: 100 }), 'INVALID', 'rotating', { left: 100 })
    world.state.wall = 1_100
    expect(world.do({ kind: 'rotate', id: k, hash: 'e'.repeat(64), overlap: 100, expires: 9_000 })).toMatchObject({ kind: 'done' })
    expect(world.state.keys.get(k)).toMatchObject({ expires: 9_000, former: { hash, until: 1_200 } })
  })

  test('and every former one end at once by a rotation without an overlap', () => {
    const { world, key } = given(1_000)
    const k = key()
    world.do({ kind: 'rotate', id: k, hash, overlap: 100 })
    expect(world.do({ kind: 'rotate', id: k, hash: 'e'.repeat(64) })).toMatchObject({ kind: 'done' })
    expect(world.state.keys.get(k)!.former).toBeUndefined()
  })

  test('is not changed by a bad rotation', () => {
    const { world, key } = given(1_000)
    const k = key()
    world.refused(world.do({ kind: 'rotate', id: 99, hash }), 'NOT_FOUND', 'no-key')
    world.refused(world.do({ kind: 'rotate', id: k, hash }, { key: k }), 'FORBIDDEN', 'forbidden-admin')
    world.refused(world.do({ kind: 'rotate', id: k, hash: 'x' }), 'INVALID', 'not-a-hash')
    world.refused(world.do({ kind: 'rotate', id: k, hash, overlap: 2 ** 50 }), 'INVALID', 'out-of-range')
    world.refused(world.do({ kind: 'rotate', id: k, hash, expires: 900 }), 'INVALID', 'expiry-past', { ago: 100 })
  })

  test('is not given to a key that has expired already', () => {
    const { world } = given(1_000)
    const command = { kind: 'key', name: 'k', hash, allow: [] } as const
    for (const expires of [1, 1_000]) world.refused(world.do({ ...command, expires }), 'INVALID', 'expiry-past', { ago: 1_000 - expires })
    expect(world.do({ ...command, expires: 1_001 })).toMatchObject({ kind: 'done' })
  })
})
