import { describe, expect, test } from 'vitest'
import { timerOf } from '../../../src/kernel/state/timers.ts'
import { CAP } from '../../../src/kernel/state.ts'
import { World } from '../../support/kernel/world.ts'

const entry = (key: string, value = '') => ({ key, value })

describe('entries', () => {
  test('come with a lease or are put on it later, and go with it in the same revision', () => {
    const world = new World()
    const { lease } = world.acquire('a', 'x', { entries: [entry('svc/a', '1')] })
    world.do({ kind: 'put', lease, key: 'svc/b', value: '2' })
    world.do({ kind: 'put', lease, key: 'svc/a', value: '3' })
    expect(world.entries()).toEqual([`svc/a=3@${lease}`, `svc/b=2@${lease}`])
    expect(world.state.entries.get('svc/a')!.revision).toBe(3)
    world.due(lease)
    expect(world.revisionEvents.map(({ type, key, cause }) => [type, key, cause])).toEqual([
      ['lapsed', undefined, 'lapsed'],
      ['deleted', 'svc/a', 'lapsed'],
      ['deleted', 'svc/b', 'lapsed'],
    ])
    expect(world.entries()).toEqual([])
  })

  test('another holder cannot take one', () => {
    const world = new World()
    world.acquire('a', [], { entries: [entry('svc/1')] })
    const refused = world.refused(world.ask('b', [], { entries: [entry('svc/1')] }), 'HELD', 'entry-held', { holder: 'a' })
    expect(refused.facts).toMatchObject({ key: 'svc/1', holder: 'a' })
    const own = world.acquire('b', [])
    world.refused(world.do({ kind: 'put', lease: own.lease, key: 'svc/1', value: '' }), 'HELD')
  })

  test('a holder takes its own from an older incarnation, never from a newer one', () => {
    const world = new World()
    const old = world.acquire('a', [], { entries: [entry('svc/a', 'old')] })
    const young = world.acquire('a', [], { entries: [entry('svc/a', 'young')] })
    expect(world.entries()).toEqual([`svc/a=young@${young.lease}`])
    world.refused(world.do({ kind: 'put', lease: old.lease, key: 'svc/a', value: 'late' }), 'STALE', 'older-incarnation')
    world.refused(world.ask('a', [], { incarnation: old.incarnation, entries: [entry('svc/a', 'late')] }), 'STALE')
    world.refused(world.do({ kind: 'delete', key: 'svc/a', lease: old.lease }), 'STALE', 'taken-over')
    world.release(old.lease)
    expect(world.entries(), 'the end of the old one leaves it alone').toEqual([`svc/a=young@${young.lease}`])
  })

  test('the same incarnation may move it between its leases', () => {
    const world = new World()
    const one = world.acquire('a', [], { entries: [entry('svc/a', '1')] })
    const two = world.acquire('a', [], { incarnation: one.incarnation })
    world.do({ kind: 'put', lease: two.lease, key: 'svc/a', value: '2' })
    world.release(one.lease)
    expect(world.entries()).toEqual([`svc/a=2@${two.lease}`])
  })

  test('are deleted by name, and only once', () => {
    const world = new World()
    const { lease } = world.acquire('a', [], { entries: [entry('svc/a')] })
    world.refused(world.do({ kind: 'delete', key: 'svc/a', lease: lease + 5 }), 'STALE')
    world.do({ kind: 'delete', key: 'svc/a', lease })
    expect(world.eventsSince(1)).toEqual(['deleted svc/a deleted'])
    world.refused(world.do({ kind: 'delete', key: 'svc/a' }), 'NOT_FOUND')
  })

  test('are not put on what waits, is frozen or has ended', () => {
    const world = new World()
    const held = world.acquire('a', 'x')
    const waiting = world.queue('b', 'x')
    world.refused(world.do({ kind: 'put', lease: waiting.lease, key: 'k', value: '' }), 'GONE')
    world.do({ kind: 'revoke', target: { lease: held.lease } })
    world.refused(world.do({ kind: 'put', lease: held.lease, key: 'k', value: '' }), 'GONE')
    world.refused(world.do({ kind: 'put', lease: 99, key: 'k', value: '' }), 'GONE')
  })

  test('nothing is attached when anything about the request is refused', () => {
    const world = new World()
    world.acquire('a', 'x', { entries: [entry('svc/a')] })
    world.refused(world.ask('b', ['x'], { entries: [entry('svc/b')] }), 'HELD')
    world.refused(world.ask('b', ['y'], { entries: [entry('svc/b'), entry('svc/a')] }), 'HELD')
    expect(world.state.entries.size).toBe(1)
    expect(world.state.resources.size).toBe(1)
  })
})

test('the policies for a name also apply to entries that are put there later', () => {
  const world = new World()
  world.policy('services', { ttlMax: 60_000, maxLife: 600_000 })
  const long = world.acquire('x', [], { ttl: 86_400_000 })
  world.refused(world.do({ kind: 'put', lease: long.lease, key: 'services/api/1', value: '' }), 'INVALID')
  expect(world.entries()).toEqual([])
  const short = world.acquire('x', [], { ttl: 60_000 })
  world.do({ kind: 'put', lease: short.lease, key: 'services/api/1', value: '' })
  const cap = timerOf(world.lease(short.lease)!, CAP)
  expect(cap?.duration).toBe(600_000)
  world.do({ kind: 'put', lease: short.lease, key: 'services/api/1', value: 'again' })
  expect(timerOf(world.lease(short.lease)!, CAP)?.epoch).toBe(cap?.epoch)
})
