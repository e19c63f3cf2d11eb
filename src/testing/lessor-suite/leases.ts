/** The contract of a lessor: grants, renewals and releases. */
import assert from 'node:assert/strict'
import { GONE } from '../../kernel/outcome.ts'
import { propose } from '../../lessor/propose.ts'
import { acquire, done, granted, holders, LONG, queued, refused, renew, SHORT, ttls, types } from './expectations.ts'
import type { LessorCases } from './lessor-log.ts'

export const leasesCases: LessorCases = {
  'a grant has a lease, an incarnation, a ttl, and a token for each resource in the order asked for': async log => {
    const lessor = await log.open()
    const lease = granted(await propose(lessor, acquire('ann', ['b', 'a'], { ttl: SHORT })))
    assert.deepEqual(lease.resources, ['b', 'a'])
    assert.equal(lease.ttl, SHORT)
    assert.equal(lease.incarnation, lease.lease)
    assert.ok(lease.tokens[0]! < lease.tokens[1]!)
    const { value, revision } = await lessor.read({ kind: 'lease', lease: lease.lease }, { atLeast: lease.revision })
    assert.equal(revision, lease.revision)
    assert.equal(value?.holder, 'ann')
    assert.deepEqual(
      value.grants.map(({ resource, token }) => [resource, token]),
      [
        ['b', lease.tokens[0]],
        ['a', lease.tokens[1]],
      ],
    )
  },

  'a transaction changes entries in one revision, all or none, and only if its comparisons are true': async log => {
    const [one, other] = [await log.open(), await log.other()]
    const change = { kind: 'transaction', success: [{ key: 'kv/a', value: '1' }, { key: 'kv/b' }] } as const
    const refused = await propose(one, change)
    assert.ok(refused.kind === 'refused' && refused.code === 'INVALID', 'no policy allows it')
    await propose(one, { kind: 'policy', prefix: 'kv', rules: { freeEntries: 2 } })
    const lease = granted(await propose(one, acquire('ann', [], { ttl: LONG })))
    const made = await propose(one, change)
    assert.deepEqual(made, { kind: 'transacted', revision: lease.revision + 1, succeeded: true })
    const isNew = { key: 'kv/a', field: 'created', is: 'equal' } as const
    const failure = [
      { key: 'kv/a', value: '2', lease: lease.lease },
      { key: 'kv/b', delete: true },
    ]
    const second = await propose(other, { kind: 'transaction', compare: [isNew], success: [{ key: 'kv/c' }], failure })
    assert.deepEqual(second, { kind: 'transacted', revision: lease.revision + 2, succeeded: false })
    const { value } = await other.read({ kind: 'entries', prefix: 'kv' }, { consistent: true })
    assert.deepEqual(
      value.map(({ key, value: text, lease: on, created, revision, version }) => [key, text, on, created, revision, version]),
      [['kv/a', '2', lease.lease, made.revision, second.revision, 2]],
    )
    await propose(one, { kind: 'transaction', success: [{ key: 'kv/free', value: 'stays' }] })
    await propose(one, { kind: 'release', lease: lease.lease })
    const left = await other.read({ kind: 'entries', prefix: 'kv' }, { consistent: true })
    assert.deepEqual(
      left.value.map(({ key, lease: on, holder, status }) => [key, on, holder, status]),
      [['kv/free', 0, '', 'live']],
    )
  },

  'every change has a revision of its own, and a command that changed nothing has the last one': async log => {
    const lessor = await log.open()
    const first = granted(await propose(lessor, acquire('ann', ['a'])))
    const second = granted(await propose(lessor, acquire('ann', ['b'])))
    assert.equal(second.revision, first.revision + 1)
    const held = refused('HELD', await propose(lessor, acquire('bob', ['a'])))
    assert.equal(held.revision, second.revision)
    const renewed = await propose(lessor, { kind: 'renew', leases: [first.lease] })
    assert.equal(renewed.revision, second.revision)
    assert.equal(done(await propose(lessor, { kind: 'release', lease: first.lease })).revision, second.revision + 1)
  },

  'tokens and ids only grow, across releases, other resources and a restart': async log => {
    let lessor = await log.open()
    let last = { lease: 0, token: 0 }
    for (let i = 0; i < 12; i++) {
      if (i === 6) lessor = await log.restart()
      const lease = granted(await propose(lessor, acquire('ann', [i % 3 === 0 ? 'a' : `a/${i}`])))
      assert.ok(lease.lease > last.lease && lease.tokens[0]! > last.token, JSON.stringify({ lease, last }))
      last = { lease: lease.lease, token: lease.tokens[0]! }
      done(await propose(lessor, { kind: 'release', lease: lease.lease }))
    }
  },

  'a caller that changes a command object after proposing it changes nothing': async log => {
    const lessor = await log.open()
    const rules = { capacity: 2 }
    const wants = [{ resource: 'pool', units: 2 }]
    const answers = [
      propose(lessor, { kind: 'policy', prefix: 'pool', rules }),
      propose(lessor, { kind: 'acquire', holder: 'ann', ttl: LONG, wants }),
    ] as const
    rules.capacity = 1
    wants[0]!.resource = 'other'
    done(await answers[0])
    assert.deepEqual(granted(await answers[1]).resources, ['pool'])
    const { value } = await lessor.read({ kind: 'resource', resource: 'pool' }, { consistent: true })
    assert.equal(value.capacity, 2)
    const again = await log.restart()
    assert.deepEqual(await holders(again, 'pool'), ['ann'])
    assert.equal((await again.read({ kind: 'resource', resource: 'pool' }, { consistent: true })).value.capacity, 2)
  },

  'several resources are granted all or none': async log => {
    const lessor = await log.open()
    granted(await propose(lessor, acquire('ann', ['b'])))
    const held = refused('HELD', await propose(lessor, acquire('bob', ['a', 'b', 'c'])))
    assert.equal(held.facts.resource, 'b')
    assert.equal(held.facts.holder, 'ann')
    assert.deepEqual(await holders(lessor, 'a'), [])
    assert.deepEqual(await holders(lessor, 'c'), [])
    granted(await propose(lessor, acquire('bob', ['a', 'c'])))
  },

  'any k of a set are granted as soon as k are free': async log => {
    const lessor = await log.open()
    granted(await propose(lessor, acquire('ann', ['a'])))
    assert.deepEqual(granted(await propose(lessor, acquire('bob', ['a', 'b', 'c'], { any: 2 }))).resources, ['b', 'c'])
    refused('HELD', await propose(lessor, acquire('eve', ['a', 'b', 'c'], { any: 1 })))
  },

  'a lease without resources carries entries, labels and children': async log => {
    const lessor = await log.open()
    const parent = granted(
      await propose(lessor, acquire('ann', [], { entries: [{ key: 'service/a', value: 'here' }], labels: [['zone', 'x']] })),
    )
    const child = granted(await propose(lessor, acquire('ann', ['a'], { parent: parent.lease, incarnation: parent.incarnation })))
    const { value } = await lessor.read({ kind: 'lease', lease: parent.lease }, { consistent: true })
    assert.deepEqual(value?.entries, [{ key: 'service/a', value: 'here' }])
    assert.deepEqual(value.labels, [['zone', 'x']])
    assert.deepEqual(value.children, [child.lease])
    assert.equal(child.incarnation, parent.incarnation)
  },

  'a long grant begins with a short ttl, and has its whole ttl after the first renewal': async log => {
    const lessor = await log.open()
    const lease = granted(await propose(lessor, acquire('ann', ['a'], { ttl: LONG })))
    assert.equal(lease.ttl, 30_000)
    assert.deepEqual(await renew(lessor, lease.lease), [LONG])
  },

  'renewing many leases says for each, in order, its ttl or that it is gone': async log => {
    const lessor = await log.open()
    const a = granted(await propose(lessor, acquire('ann', ['a'], { ttl: 5_000 })))
    const b = granted(await propose(lessor, acquire('ann', ['b'], { ttl: 6_000 })))
    const c = granted(await propose(lessor, acquire('ann', ['c'], { ttl: 7_000 })))
    done(await propose(lessor, { kind: 'release', lease: b.lease }))
    assert.deepEqual(await renew(lessor, a.lease, b.lease, c.lease, c.lease + 1_000), [5_000, GONE, 7_000, GONE])
    assert.deepEqual(await renew(lessor), [])
    assert.deepEqual(await renew(lessor, c.lease, a.lease), [7_000, 5_000])
  },

  'a command with too many renewals is refused as a whole': async log => {
    const lessor = await log.open()
    const lease = granted(await propose(lessor, acquire('ann', ['a'])))
    assert.deepEqual(await renew(lessor, lease.lease), [LONG])
    refused('LIMIT', await propose(lessor, { kind: 'renew', leases: Array<number>(10_001).fill(lease.lease) }))
    assert.equal(ttls(await propose(lessor, { kind: 'renew', leases: Array<number>(10_000).fill(lease.lease) })).length, 10_000)
  },

  'renewing only waiting leases does not renew a lease that was granted meanwhile': async log => {
    const lessor = await log.open()
    const first = granted(await propose(lessor, acquire('ann', ['a'])))
    const second = queued(await propose(lessor, acquire('bob', ['a'], { wait: true, ttl: 5_000 })))
    const ask = { kind: 'renew', leases: [first.lease, second.lease], waiting: true } as const
    assert.deepEqual(ttls(await propose(lessor, ask)), [0, 5_000])
    done(await propose(lessor, { kind: 'release', lease: first.lease }))
    assert.deepEqual(ttls(await propose(lessor, ask)), [GONE, 0])
  },

  'a lease is released whole or grant by grant, and only once': async log => {
    const lessor = await log.open()
    const lease = granted(await propose(lessor, acquire('ann', ['a', 'b'])))
    done(await propose(lessor, { kind: 'release', lease: lease.lease, resource: 'a' }))
    refused('GONE', await propose(lessor, { kind: 'release', lease: lease.lease, resource: 'a' }))
    assert.deepEqual(await holders(lessor, 'a'), [])
    assert.deepEqual(await holders(lessor, 'b'), ['ann'])
    done(await propose(lessor, { kind: 'release', lease: lease.lease }))
    refused('GONE', await propose(lessor, { kind: 'release', lease: lease.lease }))
    assert.deepEqual(await renew(lessor, lease.lease), [GONE])
  },

  'one release ends a lease and its descendants in one revision, and frees those that their holder has stopped using': async log => {
    const lessor = await log.open()
    const parent = granted(await propose(lessor, acquire('ann', ['a'])))
    const child = granted(await propose(lessor, acquire('ann', ['b'], { parent: parent.lease, entries: [{ key: 'e', value: 'v' }] })))
    const grandchild = granted(await propose(lessor, acquire('ann', ['c'], { parent: child.lease })))
    const foreign = granted(await propose(lessor, acquire('bob', ['d'], { parent: parent.lease })))
    await using watcher = log.watch(lessor, '', foreign.revision)
    const stopped = [child.lease, grandchild.lease]
    const { revision } = done(await propose(lessor, { kind: 'release', lease: parent.lease, stopped }))
    assert.equal(revision, foreign.revision + 1)
    assert.deepEqual(types(await watcher.at(revision)), [
      'released a ann',
      'released b ann',
      'deleted e ann',
      'released c ann',
      'revoked d bob',
      'frozen d bob',
    ])
    granted(await propose(lessor, acquire('eve', ['a', 'b', 'c'])))
    // Its holder has not said that it stopped, so it may still use it.
    refused('HELD', await propose(lessor, acquire('eve', ['d'])))
    done(await propose(lessor, { kind: 'release', lease: foreign.lease }))
    granted(await propose(lessor, acquire('eve', ['d'])))
  },
}
