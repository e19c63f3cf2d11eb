/** The contract of a lessor: reads and lists. */
import assert from 'node:assert/strict'
import type { ListPart } from '../../lessor/list-part.ts'
import { propose } from '../../lessor/propose.ts'
import type { Query } from '../../lessor.ts'
import { rejectsWith } from '../suite-case.ts'
import { acquire, done, granted, holders, queued } from './expectations.ts'
import type { LessorCases } from './lessor-log.ts'

export const readingCases: LessorCases = {
  "one reads what one was told: at least the revision of one's own answer": async log => {
    const [a, b] = await log.pair()
    for (let i = 0; i < 5; i++) {
      const lease = granted(await propose(a, acquire('ann', [`a/${i}`])))
      const local = await a.read({ kind: 'lease', lease: lease.lease })
      assert.ok(local.revision >= lease.revision)
      assert.equal(local.value?.lease, lease.lease)
      const elsewhere = await b.read({ kind: 'lease', lease: lease.lease }, { atLeast: lease.revision })
      assert.ok(elsewhere.revision >= lease.revision)
      assert.equal(elsewhere.value?.lease, lease.lease)
    }
  },

  'a consistent read sees everything that any lessor acknowledged before it': async log => {
    const [a, b] = await log.pair()
    for (let i = 0; i < 5; i++) {
      const lease = granted(await propose(a, acquire('ann', ['a'])))
      assert.deepEqual(await holders(b, 'a'), ['ann'])
      done(await propose(b, { kind: 'release', lease: lease.lease }))
      assert.deepEqual(await holders(a, 'a'), [])
    }
  },

  'a read at a revision that was never reached is UNAVAILABLE': async log => {
    const lessor = await log.open()
    const { revision } = granted(await propose(lessor, acquire('ann', ['a'])))
    await rejectsWith('UNAVAILABLE', lessor.read({ kind: 'summary' }, { atLeast: revision + 1_000_000 }))
  },

  'a list ends at its limit, says that there are more items, and contains only names within its prefixes': async log => {
    const lessor = await log.open()
    for (const name of ['a/1', 'a/2', 'b/1', 'b/2', 'c'])
      granted(await propose(lessor, { ...acquire('ann', [name]), entries: [{ key: `${name}/e`, value: '' }] }))
    const asked = async (query: Query, names: number, more?: true) => {
      const view = await lessor.read<'leases'>(query as Extract<Query, { kind: 'leases' }>, { consistent: true })
      assert.deepEqual([view.value.length, view.more], [names, more], JSON.stringify(query))
    }
    for (const list of [{ kind: 'leases' }, { kind: 'resources', prefix: '' }, { kind: 'entries', prefix: '' }] as const) {
      await asked({ ...list, limit: 2 }, 2, true)
      await asked({ ...list, limit: 5 }, 5)
      await asked({ ...list, within: ['a', 'c/'] }, 3)
      await asked({ ...list, within: ['a', 'c'], limit: 2 }, 2, true)
      await asked({ ...list, prefix: 'b', within: ['a', 'b/1'], limit: 1 }, 1)
      await asked({ ...list, within: [] }, 0)
    }
    await asked({ kind: 'leases', within: [], own: { key: 7, claims: [] } }, 0)
    const { value } = await lessor.read({ kind: 'entries', prefix: 'a/1/e', limit: 1 })
    assert.deepEqual(
      value.map(({ key }) => key),
      ['a/1/e'],
    )
  },

  'a page of a list, where a lessor has them, is its part of the list in the order asked for': async log => {
    const lessor = await log.open()
    if (lessor.page === undefined) return
    for (const [i, name] of ['b/2', 'a/1', 'c', 'b/1', 'a/2'].entries())
      granted(await propose(lessor, acquire(i % 2 === 0 ? 'ann' : 'bob', [name])))
    const asked = async (page: ListPart, within?: readonly string[]) => {
      const { total, value } = await lessor.page!<'resources'>({ kind: 'resources', prefix: '', ...(within && { within }) }, page)
      return [total, value.map(({ resource }) => resource).join()]
    }
    assert.deepEqual(await asked({ sort: 'name' }), [5, 'a/1,a/2,b/1,b/2,c'])
    assert.deepEqual(await asked({ sort: '-token', offset: 1, limit: 2 }), [5, 'b/1,c'])
    assert.deepEqual(await asked({ sort: '-name', holder: 'bob' }), [2, 'b/1,a/1'])
    assert.deepEqual(await asked({ sort: 'holder', text: 'B/' }), [2, 'b/2,b/1'])
    assert.deepEqual(await asked({ sort: 'name', offset: 9 }, ['a', 'c']), [3, ''])
    assert.deepEqual(await asked({ sort: 'name' }, []), [0, ''])
    await rejectsWith('INVALID', lessor.page({ kind: 'leases' }, { sort: 'colour' as 'name' }))
  },

  'every query has an answer on an empty log and on one in use': async log => {
    const lessor = await log.open()
    const ask = async () => ({
      summary: (await lessor.read({ kind: 'summary' }, { consistent: true })).value,
      lease: (await lessor.read({ kind: 'lease', lease: 1 })).value,
      leases: (await lessor.read({ kind: 'leases' })).value,
      under: (await lessor.read({ kind: 'leases', prefix: 'a' })).value,
      resource: (await lessor.read({ kind: 'resource', resource: 'a/b' })).value,
      resources: (await lessor.read({ kind: 'resources', prefix: 'a' })).value,
      entries: (await lessor.read({ kind: 'entries', prefix: '' })).value,
      services: (await lessor.read({ kind: 'services' })).value,
      history: (await lessor.read({ kind: 'history', resource: 'a/b' })).value,
      policies: (await lessor.read({ kind: 'policies' })).value,
      keys: (await lessor.read({ kind: 'keys' })).value,
    })
    const empty = await ask()
    assert.equal(empty.summary.leases, 0)
    assert.equal(empty.lease, undefined)
    assert.deepEqual(empty.resource, { resource: 'a/b', capacity: 1, grants: [], queue: [], fence: 0 })
    for (const list of [
      empty.leases,
      empty.under,
      empty.resources,
      empty.entries,
      empty.services,
      empty.history,
      empty.policies,
      empty.keys,
    ])
      assert.deepEqual(list, [])
    const first = granted(await propose(lessor, acquire('ann', ['a/b', 'ab'], { entries: [{ key: 'k', value: 'v' }] })))
    const second = queued(await propose(lessor, acquire('bob', ['a/b'], { wait: true })))
    const used = await ask()
    assert.deepEqual([used.summary.leases, used.summary.waiting, used.summary.resources, used.summary.entries], [2, 1, 2, 1])
    assert.deepEqual(
      used.leases.map(({ lease, status }) => [lease, status]),
      [
        [first.lease, 'live'],
        [second.lease, 'waiting'],
      ],
    )
    assert.deepEqual(
      used.resources.map(({ resource }) => resource),
      ['a/b'],
    )
    assert.equal(used.resource.queue[0]?.holder, 'bob')
    assert.equal(used.entries[0]?.value, 'v')
    assert.deepEqual(used.leases[1]?.wants, [{ resource: 'a/b', units: 1, shared: false, position: 0 }])
  },
}
