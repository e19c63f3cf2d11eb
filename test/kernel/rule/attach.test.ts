/** The entries of a waiter: they are attached with its grant. */
import { describe, expect, test } from 'vitest'
import { saveState } from '../../../src/kernel/codec/snapshot.ts'
import { reload, World } from '../../support/kernel/world.ts'

describe('the entries of a waiter', () => {
  const entry = (key: string, value = 'v') => ({ entries: [{ key, value }] })

  test('are attached with the grant, and not before', () => {
    const world = new World()
    const { lease } = world.acquire('ann', 'x')
    world.queue('bob', 'x', entry('e'))
    expect(world.entries()).toEqual([])
    const before = world.events.length
    world.release(lease)
    expect(world.entries()).toEqual(['e=v@2'])
    expect(world.eventsSince(before)).toEqual(['released x released', 'put e', 'granted x'])
    expect(new Set(world.events.slice(before).map(({ revision }) => revision)).size).toBe(1)
  })

  test('are waited for if another lease has the key: a second candidate with the same key waits', () => {
    const world = new World()
    const { lease } = world.acquire('ann', 'x', entry('leader', 'ann'))
    world.queue('bob', 'x', entry('leader', 'bob'))
    world.queue('cid', 'x', entry('leader', 'cid'))
    world.refused(world.ask('dan', 'y', entry('leader')), 'HELD', 'entry-held', { key: 'leader' })
    world.release(lease)
    expect(world.entries()).toEqual(['leader=bob@2'])
    world.release(2)
    expect(world.entries()).toEqual(['leader=cid@3'])
  })

  test('are waited for even if the resource is free, and attached as soon as the key is free', () => {
    const world = new World()
    world.acquire('ann', [], entry('k'))
    world.queue('bob', 'x', entry('k', 'bob'))
    expect(world.holders('x')).toEqual([])
    world.do({ kind: 'delete', key: 'k' })
    expect(world.holders('x')).toEqual(['bob'])
    expect(world.entries()).toEqual(['k=bob@2'])
  })

  test('are attached when their owner hands over, or is silent too long in the registry', () => {
    const world = new World()
    const { lease } = world.acquire('ann', [], { ...entry('services/s/1'), grace: 1_000 })
    world.queue('bob', 'x', entry('services/s/1', 'bob'))
    expect(world.due(lease).kind).toBe('done')
    expect(world.holders('x')).toEqual(['bob'])
    expect(world.entries()).toEqual(['services/s/1=bob@2'])
  })

  test('of an older generation are refused at once, as for a request that does not wait', () => {
    const world = new World()
    world.acquire('ann', [], { entries: [{ key: 'k', value: '', generation: 5 }] })
    world.acquire('eve', 'x')
    world.refused(world.ask('bob', 'x', { wait: true, entries: [{ key: 'k', value: '', generation: 4 }] }), 'STALE')
  })

  test('are kept by a snapshot, however large they are', () => {
    const world = new World({ strict: false })
    const { lease } = world.acquire('ann', 'x')
    const entries = Array.from({ length: 64 }, (_, i) => ({ key: `e/${i}`, value: 'v'.repeat(16_000), ...(i === 3 && { generation: 7 }) }))
    world.queue('bob', 'x', { entries })
    for (const chunk of saveState(world.state)) expect(chunk.length).toBeLessThan(768 * 1_024)
    world.state = reload(world.state)
    world.release(lease)
    expect(world.state.entries.size).toBe(64)
    expect(world.state.entries.get('e/3')).toMatchObject({ generation: 7 })
    expect([...world.state.entries.keys()]).toEqual(entries.map(({ key }) => key))
    expect(world.state.pending.size).toBe(0)
  })

  test('end with it: when it withdraws, and when it is revoked by their prefix', () => {
    const world = new World()
    world.acquire('ann', 'x')
    const { lease } = world.queue('bob', 'x', entry('e/1'))
    world.release(lease)
    world.queue('cid', 'x', entry('e/2'))
    expect(world.state.pending.size).toBe(1)
    expect(world.do({ kind: 'revoke', target: { prefix: 'e' } })).toMatchObject({ kind: 'done' })
    expect(world.waiters('x')).toEqual([])
    expect(world.state.pending.size).toBe(0)
  })
})

test('a renewal with ttl gets no more than the `ttlMax` of the entries of its lease', () => {
  const world = new World()
  world.policy('agents', { ttlMax: 30_000 })
  const entries = [{ key: 'agents/7', value: 'busy' }]
  expect(world.ask('x', 'free', { ttl: 40_000, entries })).toMatchObject({ kind: 'refused', code: 'INVALID' })
  const { lease } = world.acquire('x', 'free', { ttl: 10_000, entries })
  expect(world.do({ kind: 'renew', leases: [lease], ttl: 86_400_000 })).toMatchObject({ ttls: [30_000] })
})

test('an entry that two waiters bring in one revision has one version of it', () => {
  const world = new World()
  world.policy('seats', { capacity: 2 })
  const wants = (units: number) => [{ resource: 'seats', units }]
  world.do({ kind: 'acquire', holder: 'a', ttl: 10_000, wants: wants(2) })
  const entries = [{ key: 'e/1', value: 'v' }]
  for (let i = 0; i < 2; i++) world.do({ kind: 'acquire', holder: 'b', ttl: 10_000, wants: wants(1), wait: true, entries })
  world.release(1)
  const { created, revision, version } = world.state.entries.get('e/1')!
  expect([version, created]).toEqual([1, revision])
})
