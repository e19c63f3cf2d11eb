/** Transactions: comparisons, then puts and deletes of entries, with a lease or without one. */
import { describe, expect, test } from 'vitest'
import {
  type Comparison,
  type EntryChange,
  MAX_CHANGES,
  MAX_COMPARISONS,
  MAX_LEASE_ENTRIES,
  type Transaction,
} from '../../../src/kernel/command.ts'
import type { Outcome } from '../../../src/kernel/outcome.ts'
import type { Reason } from '../../../src/kernel/reason.ts'
import { reload, World } from '../../support/kernel/world.ts'

function allowing(freeEntries = 100, more: object = {}): World {
  const world = new World()
  world.policy('kv', { freeEntries, ...more })
  return world
}

function transact(world: World, transaction: Omit<Transaction, 'kind'>, key = 0): Outcome {
  return world.do({ kind: 'transaction', ...transaction }, { key })
}

function put(world: World, ...success: readonly EntryChange[]): Outcome {
  return transact(world, { success })
}

describe('a transaction', () => {
  test('puts entries that stay after every lease has ended, with the revisions that made and changed them', () => {
    const world = allowing()
    expect(put(world, { key: 'kv/a', value: '1' }, { key: 'kv/b', value: '2' })).toMatchObject({ kind: 'transacted', succeeded: true })
    const made = world.state.revision
    put(world, { key: 'kv/a', value: '3' })
    const { lease } = world.acquire('ann', 'x')
    world.release(lease)
    expect(world.state.free.get('kv/a')).toEqual({ key: 'kv/a', value: '3', created: made, revision: made + 1, version: 2, by: 0 })
    expect(world.state.free.get('kv/b')).toEqual({ key: 'kv/b', value: '2', created: made, revision: made, version: 1, by: 0 })
    expect(
      world.events.filter(({ type }) => type === 'put').map(({ key, value, lease: on, revision }) => [key, value, on, revision]),
    ).toEqual([
      ['kv/a', '1', 0, made],
      ['kv/b', '2', 0, made],
      ['kv/a', '3', 0, made + 1],
    ])
  })

  test('carries out success if every comparison is true, and failure otherwise', () => {
    const world = allowing()
    put(world, { key: 'kv/a', value: 'v' })
    const { revision, created } = world.state.free.get('kv/a')!
    const cases: readonly (readonly [Comparison, boolean])[] = [
      [{ key: 'kv/a', field: 'revision', is: 'equal', number: revision }, true],
      [{ key: 'kv/a', field: 'revision', is: 'equal', number: revision + 1 }, false],
      [{ key: 'kv/a', field: 'revision', is: 'less', number: revision + 1 }, true],
      [{ key: 'kv/a', field: 'revision', is: 'less', number: revision }, false],
      [{ key: 'kv/a', field: 'revision', is: 'greater', number: revision - 1 }, true],
      [{ key: 'kv/a', field: 'revision', is: 'greater', number: revision }, false],
      [{ key: 'kv/a', field: 'revision', is: 'unequal', number: revision }, false],
      [{ key: 'kv/a', field: 'created', is: 'equal', number: created }, true],
      [{ key: 'kv/a', field: 'version', is: 'equal', number: 1 }, true],
      [{ key: 'kv/a', field: 'lease', is: 'equal' }, true],
      [{ key: 'kv/a', field: 'value', is: 'equal', value: 'v' }, true],
      [{ key: 'kv/a', field: 'value', is: 'equal', value: 'w' }, false],
      [{ key: 'kv/a', field: 'value', is: 'unequal', value: 'w' }, true],
      [{ key: 'kv/absent', field: 'created', is: 'equal' }, true],
      [{ key: 'kv/absent', field: 'version', is: 'greater' }, false],
      [{ key: 'kv/absent', field: 'value', is: 'equal' }, false],
      [{ key: 'kv/absent', field: 'value', is: 'unequal', value: 'w' }, false],
    ]
    for (const [comparison, succeeded] of cases)
      expect(transact(world, { compare: [comparison] }), JSON.stringify(comparison)).toMatchObject({ succeeded })
    const both = cases.filter(([, holds]) => holds).map(([comparison]) => comparison)
    const success = [{ key: 'kv/then', value: '' }]
    const failure = [{ key: 'kv/else', value: '' }]
    expect(transact(world, { compare: both, success, failure })).toMatchObject({ succeeded: true })
    expect(transact(world, { compare: [...both, cases[1]![0]], success, failure })).toMatchObject({ succeeded: false })
    expect(world.entries()).toEqual(['kv/a=v', 'kv/else=', 'kv/then='])
  })

  test('that changes nothing makes no revision', () => {
    const world = allowing()
    const { revision } = world.state
    expect(put(world, { key: 'kv/absent', delete: true })).toMatchObject({ kind: 'transacted', revision })
    expect(transact(world, {})).toMatchObject({ succeeded: true, revision })
  })

  test('deletes entries, and one that is put again is a new entry', () => {
    const world = allowing()
    put(world, { key: 'kv/a', value: '1' })
    put(world, { key: 'kv/a', value: '2' })
    put(world, { key: 'kv/a', delete: true })
    expect(world.revisionEvents).toMatchObject([{ type: 'deleted', key: 'kv/a', lease: 0, cause: 'deleted' }])
    put(world, { key: 'kv/a', value: '3' })
    expect(world.state.free.get('kv/a')).toMatchObject({ version: 1, created: world.state.revision })
  })

  test('puts entries on a lease, which end with it in the same revision', () => {
    const world = allowing()
    const { lease } = world.acquire('ann', [])
    put(world, { key: 'kv/a', value: '1', lease }, { key: 'kv/b', value: '2' })
    expect(world.entries()).toEqual([`kv/a=1@${lease}`, 'kv/b=2'])
    expect(transact(world, { compare: [{ key: 'kv/a', field: 'lease', is: 'equal', number: lease }] })).toMatchObject({ succeeded: true })
    world.due(lease)
    expect(world.entries()).toEqual(['kv/b=2'])
    expect(world.revisionEvents.map(({ type, key }) => `${type} ${key ?? ''}`)).toEqual(['lapsed ', 'deleted kv/a'])
  })

  test('moves an entry from one lease to another, or to none, and counts its versions', () => {
    const world = allowing()
    const [ann, bob] = [world.acquire('ann', []).lease, world.acquire('bob', []).lease]
    put(world, { key: 'kv/a', value: '1', lease: ann })
    const created = world.state.revision
    put(world, { key: 'kv/a', value: '2', lease: bob })
    expect(world.entries()).toEqual([`kv/a=2@${bob}`])
    put(world, { key: 'kv/a', value: '3' })
    expect(world.entries()).toEqual(['kv/a=3'])
    put(world, { key: 'kv/a', value: '4', lease: ann })
    expect(world.state.entries.get('kv/a')).toMatchObject({ created, version: 4, revision: world.state.revision })
    world.release(bob)
    expect(world.entries()).toEqual([`kv/a=4@${ann}`])
    put(world, { key: 'kv/a', delete: true })
    expect(world.lease(ann)!.extras!.entries!.size).toBe(0)
  })

  test('on a lease that has ended, waits or is frozen changes nothing', () => {
    const world = allowing()
    const { lease: holder } = world.acquire('ann', 'x')
    const { lease: waiter } = world.queue('bob', 'x')
    for (const lease of [99, waiter]) world.refused(put(world, { key: 'kv/b', value: '' }, { key: 'kv/a', value: '', lease }), 'GONE')
    world.do({ kind: 'revoke', target: { lease: holder } })
    world.refused(put(world, { key: 'kv/a', value: '', lease: holder }), 'GONE')
    expect(world.entries()).toEqual([])
  })

  test('is refused where no policy allows free entries, in either branch', () => {
    const world = allowing()
    for (const transaction of [
      { success: [{ key: 'elsewhere/a', value: '' }] },
      { failure: [{ key: 'elsewhere/a', value: '' }] },
      { success: [{ key: 'elsewhere/a', delete: true }] },
      {
        success: [
          { key: 'kv/a', value: '' },
          { key: 'kvs', value: '' },
        ],
      },
    ])
      world.refused(transact(world, transaction), 'INVALID', 'no-free-entries')
    expect(world.entries()).toEqual([])
  })

  test('is refused under services/ and pool/, whatever the policy', () => {
    const world = new World()
    world.policy('', { freeEntries: 10 })
    for (const key of ['services/web/1', 'pool/gpus/1']) world.refused(put(world, { key, value: '' }), 'INVALID', 'leased-only')
  })

  test('is bounded in number and bytes by the policy of the prefix', () => {
    const world = allowing(2, { freeBytes: 20 })
    put(world, { key: 'kv/a', value: '1' }, { key: 'kv/b', value: '2' })
    world.refused(put(world, { key: 'kv/c', value: '' }), 'LIMIT', 'too-many-free-entries', { prefix: 'kv', limit: 2 })
    expect(put(world, { key: 'kv/c', value: '' }, { key: 'kv/a', delete: true })).toMatchObject({ succeeded: true })
    world.refused(put(world, { key: 'kv/c', value: 'x'.repeat(13) }), 'LIMIT', 'too-many-free-bytes', { limit: 20 })
    expect(put(world, { key: 'kv/c', value: 'x'.repeat(11) })).toMatchObject({ succeeded: true })
    // What is there may stay, shrink and be deleted under a stricter policy.
    world.policy('kv', { freeEntries: 1, freeBytes: 1 })
    expect(put(world, { key: 'kv/c', value: 'x' }, { key: 'kv/b', delete: true })).toMatchObject({ succeeded: true })
    world.policy('kv/deep', { freeEntries: 1, freeBytes: 100 })
    expect(put(world, { key: 'kv/deep/a', value: '' })).toMatchObject({ succeeded: true })
    world.refused(put(world, { key: 'kv/deep/b', value: '' }), 'LIMIT', 'too-many-free-entries')
  })

  test('respects the limits of a lease for all its changes together', () => {
    const world = allowing(10)
    const { lease } = world.acquire('ann', [])
    const some = (from: number, to: number): EntryChange[] =>
      Array.from({ length: to - from }, (_, i) => ({ key: `kv/${from + i}`, value: '', lease }))
    for (let from = 0; from < MAX_LEASE_ENTRIES - 2; from += 100) put(world, ...some(from, Math.min(from + 100, MAX_LEASE_ENTRIES - 2)))
    world.refused(put(world, ...some(MAX_LEASE_ENTRIES - 2, MAX_LEASE_ENTRIES + 1)), 'LIMIT', 'too-many-entries', { limit: 1024 })
    expect(put(world, ...some(MAX_LEASE_ENTRIES - 2, MAX_LEASE_ENTRIES))).toMatchObject({ succeeded: true })
    expect(put(world, ...some(MAX_LEASE_ENTRIES, MAX_LEASE_ENTRIES + 1), { key: 'kv/0', delete: true })).toMatchObject({ succeeded: true })
  })

  test('that is malformed is refused, and says what is wrong', () => {
    const world = allowing()
    const key = 'kv/a'
    const wrong: readonly (readonly [Omit<Transaction, 'kind'>, Reason])[] = [
      [
        {
          success: [
            { key, value: '' },
            { key, delete: true },
          ],
        },
        'named-twice',
      ],
      [{ success: [{ key: '/kv', value: '' }] }, 'leading-slash'],
      [{ failure: [{ key, value: 'x'.repeat(16_385) }] }, 'too-long'],
      [{ success: [{ key, value: 'x', delete: true }] }, 'not-together'],
      [{ success: [{ key, lease: 1, delete: true }] }, 'not-together'],
      [{ compare: [{ key, field: 'value', is: 'less' }] }, 'not-one-of'],
      [{ compare: [{ key, field: 'version', is: 'equal', value: '1' }] }, 'not-together'],
      [{ compare: Array(MAX_COMPARISONS + 1).fill({ key, field: 'version', is: 'equal' }) }, 'too-many'],
      [{ success: Array.from({ length: MAX_CHANGES + 1 }, (_, i) => ({ key: `kv/${i}` })) }, 'too-many'],
      [{ success: Array.from({ length: 70 }, (_, i) => ({ key: `kv/${i}`, value: 'x'.repeat(16_000) })) }, 'too-large'],
    ]
    for (const [transaction, reason] of wrong) world.refused(transact(world, transaction), 'INVALID', reason)
  })
})

describe('keys', () => {
  test('need read for what is compared, and register for what either branch changes', () => {
    const world = allowing()
    const key = world.key('app', 'read:kv/seen', 'register:kv/own')
    const compare = (name: string) => [{ key: name, field: 'version', is: 'equal' } as const]
    expect(transact(world, { compare: compare('kv/seen/a'), success: [{ key: 'kv/own/a', value: '' }] }, key)).toMatchObject({
      succeeded: true,
    })
    world.refused(transact(world, { compare: compare('kv/own/a') }, key), 'FORBIDDEN', 'forbidden', { action: 'read', verb: 'read' })
    world.refused(transact(world, { success: [{ key: 'kv/seen/a', value: '' }] }, key), 'FORBIDDEN', 'forbidden', {
      action: 'register',
      verb: 'register',
    })
    world.refused(transact(world, { failure: [{ key: 'kv/seen/a', value: '' }] }, key), 'FORBIDDEN', 'forbidden', {
      action: 'register',
      verb: 'register',
    })
  })

  test('do not reach entries and leases of another key by a transaction', () => {
    const world = allowing()
    const [ann, bob] = [world.key('ann', 'register:kv', 'read:kv'), world.key('bob', 'register:kv', 'read:kv')]
    const { lease } = world.acquire('ann', [], { key: ann })
    expect(transact(world, { success: [{ key: 'kv/a', value: '1', lease }] }, ann)).toMatchObject({ succeeded: true })
    world.refused(transact(world, { success: [{ key: 'kv/a', value: '2' }] }, bob), 'FORBIDDEN')
    world.refused(transact(world, { success: [{ key: 'kv/a', delete: true }] }, bob), 'FORBIDDEN')
    world.refused(transact(world, { success: [{ key: 'kv/b', value: '2', lease }] }, bob), 'GONE')
    expect(world.entries()).toEqual([`kv/a=1@${lease}`])
    // An entry on no lease belongs to no key.
    expect(transact(world, { success: [{ key: 'kv/c', value: '1' }] }, ann)).toMatchObject({ succeeded: true })
    expect(transact(world, { success: [{ key: 'kv/c', value: '2' }] }, bob)).toMatchObject({ succeeded: true })
  })
})

describe('an entry without a lease', () => {
  test('is not taken over by a put or an acquisition', () => {
    const world = allowing()
    put(world, { key: 'kv/a', value: '1' })
    const { lease } = world.acquire('ann', [])
    world.refused(world.do({ kind: 'put', lease, key: 'kv/a', value: '2' }), 'HELD', 'entry-without-lease')
    world.refused(world.ask('ann', 'x', { entries: [{ key: 'kv/a', value: '2' }] }), 'HELD', 'entry-without-lease')
  })

  test('lets the waiter that brings an entry of its key be served when it is deleted', () => {
    const world = allowing()
    put(world, { key: 'kv/a', value: '1' })
    const { lease } = world.queue('ann', 'x', { entries: [{ key: 'kv/a', value: '2' }] })
    put(world, { key: 'kv/a', delete: true })
    expect(world.entries()).toEqual([`kv/a=2@${lease}`])
    expect(world.holders('x')).toEqual(['ann'])
  })

  test('is deleted by the command delete, but not in the name of a lease', () => {
    const world = allowing()
    put(world, { key: 'kv/a', value: '1' })
    const { lease } = world.acquire('ann', [])
    world.refused(world.do({ kind: 'delete', key: 'kv/a', lease }), 'STALE', 'taken-over')
    expect(world.do({ kind: 'delete', key: 'kv/a' })).toMatchObject({ kind: 'done' })
    expect(world.entries()).toEqual([])
  })

  test('keeps the log from being moved into', () => {
    const world = allowing()
    put(world, { key: 'kv/a', value: '1' })
    world.do({ kind: 'policy', prefix: 'kv' })
    world.refused(world.do({ kind: 'move', into: 'begin' }), 'INVALID', 'target-not-empty', { entries: 1 })
  })

  test('of a newer generation is not replaced by a transaction', () => {
    const world = allowing()
    const { lease } = world.acquire('ann', [])
    world.do({ kind: 'put', lease, key: 'kv/a', value: '1', generation: 3 })
    world.refused(put(world, { key: 'kv/a', value: '2' }), 'STALE', 'older-generation', { generation: 3 })
  })

  test('is in every snapshot, as it was when the snapshot began', () => {
    const world = allowing(10_000)
    for (let i = 0; i < 300; i += 100)
      put(world, ...Array.from({ length: 100 }, (_, n) => ({ key: `kv/${i + n}`, value: 'x'.repeat(2_000) })))
    const copy = reload(world.state)
    expect([...copy.free.values()]).toEqual([...world.state.free.values()])
    expect(copy.free.under('kv')).toEqual({ entries: 300, bytes: 300 * 2_000 + 10 * 4 + 90 * 5 + 200 * 6 })
  })
})
