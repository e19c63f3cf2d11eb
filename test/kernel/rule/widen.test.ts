import { describe, expect, test } from 'vitest'
import { StateLoader, saveState, stateHash } from '../../../src/kernel/codec/snapshot.ts'
import { timerOf } from '../../../src/kernel/state/timers.ts'
import { CAP } from '../../../src/kernel/state.ts'
import { World } from '../../support/kernel/world.ts'

const any = (world: World, holder: string, names: readonly string[], count = 1, more = {}) =>
  world.queue(holder, names, { any: count, ...more }).lease
const widen = (world: World, lease: number, ...names: string[]) =>
  world.do({ kind: 'widen', lease, wants: names.map(resource => ({ resource })) })

describe('a waiter for any of several resources', () => {
  test('is granted a free resource at once when it adds it', () => {
    const world = new World()
    world.acquire('a', 'p/1')
    const lease = any(world, 'b', ['p/1'])
    expect(widen(world, lease, 'p/2')).toMatchObject({ kind: 'done' })
    expect(world.revisionEvents.map(({ type, resource }) => [type, resource])).toEqual([
      ['queued', 'p/2'],
      ['granted', 'p/2'],
      ['withdrawn', 'p/1'],
    ])
    expect(world.waiters('p/1')).toEqual([])
  })

  test('gets the place in the new queue that it would have had from the start, before later waiters', () => {
    const world = new World()
    world.acquire('a', 'p/1')
    const held = world.acquire('a', 'p/2').lease
    const early = any(world, 'early', ['p/1'])
    any(world, 'late', ['p/2'])
    any(world, 'urgent', ['p/2'], 1, { priority: 1 })
    widen(world, early, 'p/2')
    expect(world.waiters('p/2')).toEqual(['urgent', 'early', 'late'])
    world.release(held)
    expect(world.waiters('p/2')).toEqual(['early', 'late'])
  })

  test('gets as many as it wants and no more, each once, however often it is widened', () => {
    const world = new World()
    world.acquire('a', ['p/1', 'p/2'])
    const lease = any(world, 'b', ['p/1', 'p/2'], 2)
    widen(world, lease, 'p/3')
    expect(world.waiters('p/3')).toEqual(['b'])
    widen(world, lease, 'p/3', 'p/3', 'p/1')
    expect(world.waiters('p/3')).toEqual(['b'])
    widen(world, lease, 'p/4', 'p/5')
    expect(world.state.leases.get(lease)!.grants.map(({ resource }) => resource.name)).toEqual(['p/3', 'p/4'])
    expect(widen(world, lease, 'p/5')).toMatchObject({ kind: 'done' })
    expect(world.state.resources.get('p/5')).toBeUndefined()
  })
})

describe('a wait is not widened', () => {
  test('for all of several resources, beyond the capacity or the limits, or when it is over', () => {
    const world = new World()
    const held = world.acquire('a', ['x', 'p/1'])
    const all = world.queue('b', 'x').lease
    world.refused(widen(world, all, 'y'), 'INVALID')
    const some = any(world, 'b', ['p/1'])
    world.refused(world.do({ kind: 'widen', lease: some, wants: [{ resource: 'p/2', units: 2 }] }), 'INVALID')
    world.refused(widen(world, some, ''), 'INVALID')
    world.refused(widen(world, some, ...Array.from({ length: 256 }, (_, i) => `q/${i}`)), 'INVALID')
    world.do({ kind: 'policy', prefix: 'full', rules: { waiters: 1 } })
    world.acquire('a', 'full/1')
    world.queue('c', 'full/1')
    world.refused(widen(world, some, 'full/1'), 'LIMIT')
    world.do({ kind: 'policy', prefix: 'few', rules: { quota: 1 } })
    world.acquire('b', 'few/1')
    world.refused(widen(world, some, 'few/2'), 'LIMIT')
    expect(world.state.leases.get(some)!.extras!.wants.map(({ resource }) => resource)).toEqual(['p/1'])
    world.release(some)
    world.refused(widen(world, some, 'p/3'), 'GONE')
    world.release(held.lease)
  })

  test('beyond the rights of its key, nor with another key', () => {
    const world = new World()
    const id = (outcome: unknown) => (outcome as { id: number }).id
    const allow = (prefix: string) => [{ verb: 'acquire', prefix } as const]
    const mine = id(world.do({ kind: 'key', name: 'mine', hash: 'a'.repeat(64), allow: allow('p') }))
    const other = id(world.do({ kind: 'key', name: 'other', hash: 'b'.repeat(64), allow: allow('p') }))
    world.acquire('a', 'p/1')
    const waiting = world.do(
      { kind: 'acquire', holder: 'b', ttl: 1_000, wants: [{ resource: 'p/1' }], any: 1, wait: true },
      { key: mine },
    ) as { lease: number }
    const wants = (resource: string) => ({ kind: 'widen', lease: waiting.lease, wants: [{ resource }] }) as const
    world.refused(world.do(wants('q'), { key: mine }), 'FORBIDDEN')
    world.refused(world.do(wants('q')), 'FORBIDDEN')
    world.refused(world.do(wants('p/2'), { key: other }), 'GONE')
    expect(world.do(wants('p/2'), { key: mine })).toMatchObject({ kind: 'done' })
  })
})

test('a snapshot being taken has the wait as it was before it was widened, and a later one as it is now', () => {
  const world = new World()
  world.acquire('a', ['p/1', 'p/2'])
  const lease = any(world, 'b', ['p/1'])
  const before = stateHash(world.state)
  const chunks = saveState(world.state)
  const first = chunks.next().value as Uint8Array
  widen(world, lease, 'p/2')
  expect(loaded([first, ...chunks])).toBe(before)
  expect(loaded([...saveState(world.state)])).toBe(stateHash(world.state))
  expect(stateHash(world.state)).not.toBe(before)
})

function loaded(chunks: readonly Uint8Array[]): string {
  const loader = new StateLoader()
  for (const chunk of chunks) loader.add(chunk)
  return stateHash(loader.finish())
}

test('the policies for a name also apply to a waiter that adds it later', () => {
  const world = new World()
  world.policy('gpu/b', { ttlMax: 5_000 })
  world.policy('gpu/c', { maxLife: 60_000 })
  world.acquire('ann', 'gpu/a')
  const lease = any(world, 'bob', ['gpu/a'], 1, { ttl: 20_000 })
  world.refused(widen(world, lease, 'gpu/b'), 'INVALID')
  widen(world, lease, 'gpu/c')
  expect(world.holders('gpu/c')).toEqual(['bob'])
  expect(timerOf(world.lease(lease)!, CAP)?.duration).toBe(60_000)
})
