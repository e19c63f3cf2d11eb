/** The contract of a lessor: leases that lapse. */
import assert from 'node:assert/strict'
import { GONE } from '../../kernel/outcome.ts'
import { propose } from '../../lessor/propose.ts'
import { acquire, done, granted, holders, LONG, queued, refused, renew, SHORT, status, types } from './expectations.ts'
import type { LessorCases } from './lessor-log.ts'

export const timeCases: LessorCases = {
  'a lease that is not renewed lapses, not before its deadline, and the next waiter is granted in the same revision': async log => {
    const lessor = await log.open()
    const first = granted(await propose(lessor, acquire('ann', ['a'], { ttl: SHORT, entries: [{ key: 'service/ann', value: 'up' }] })))
    const second = queued(await propose(lessor, acquire('bob', ['a'], { wait: true })))
    await using watcher = log.watch(lessor, '', second.revision)
    await log.advance(SHORT / 2, { late: false })
    assert.deepEqual(await holders(lessor, 'a'), ['ann'])
    await log.advance(SHORT / 2)
    const { value, revision } = await lessor.read({ kind: 'resource', resource: 'a' }, { consistent: true })
    assert.equal(value.grants[0]?.holder, 'bob')
    assert.ok(value.grants[0].token > first.tokens[0]!)
    await watcher.at(revision)
    assert.deepEqual(types(watcher.seen.find(events => events.some(({ type }) => type === 'lapsed'))!), [
      'lapsed a ann',
      'deleted service/ann ann',
      'granted a bob',
    ])
  },

  'a lease that is renewed in time, through any lessor, never lapses': async log => {
    const [a, b] = await log.pair()
    const lease = granted(await propose(a, acquire('ann', ['a'], { ttl: SHORT })))
    for (let i = 0; i < 12; i++) {
      await log.advance(SHORT / 2, { late: false })
      assert.deepEqual(await renew(i % 3 === 0 ? b : a, lease.lease), [SHORT])
    }
    const { value } = await b.read({ kind: 'resource', resource: 'a' }, { consistent: true })
    assert.equal(value.grants[0]?.token, lease.tokens[0])
  },

  'a holder that comes back too late gets GONE, and changes nothing of its successor': async log => {
    const [a, b] = await log.pair()
    const late = granted(await propose(a, acquire('ann', ['a'], { ttl: SHORT })))
    done(await propose(a, { kind: 'put', lease: late.lease, key: 'leader', value: 'ann' }))
    await log.advance(SHORT)
    const next = granted(await propose(b, acquire('bob', ['a'], { entries: [{ key: 'leader', value: 'bob' }] })))
    assert.deepEqual(await renew(a, late.lease), [GONE])
    refused('GONE', await propose(a, { kind: 'release', lease: late.lease }))
    refused('GONE', await propose(a, { kind: 'release', lease: late.lease, resource: 'a' }))
    refused('GONE', await propose(a, { kind: 'put', lease: late.lease, key: 'leader', value: 'ann' }))
    refused('STALE', await propose(a, { kind: 'delete', lease: late.lease, key: 'leader' }))
    refused('GONE', await propose(a, { kind: 'transfer', lease: late.lease, to: 'eve', stopped: true }))
    refused('GONE', await propose(a, acquire('ann', ['b'], { parent: late.lease })))
    const { value } = await b.read({ kind: 'lease', lease: next.lease }, { consistent: true })
    assert.equal(value?.status, 'live')
    assert.equal(value.grants[0]?.token, next.tokens[0])
    assert.deepEqual(value.entries, [{ key: 'leader', value: 'bob' }])
  },

  'a waiter that died is skipped': async log => {
    const lessor = await log.open()
    const first = granted(await propose(lessor, acquire('ann', ['a'], { ttl: LONG })))
    const dead = queued(await propose(lessor, acquire('bob', ['a'], { wait: true, ttl: SHORT })))
    const live = queued(await propose(lessor, acquire('eve', ['a'], { wait: true, ttl: 10 * SHORT })))
    await log.advance(SHORT)
    done(await propose(lessor, { kind: 'release', lease: first.lease }))
    assert.deepEqual(await holders(lessor, 'a'), ['eve'])
    assert.deepEqual(await renew(lessor, dead.lease, live.lease), [GONE, 10 * SHORT])
  },

  'children end with their parent in one revision, with their entries': async log => {
    const lessor = await log.open()
    const parent = granted(await propose(lessor, acquire('ann', ['p'], { ttl: SHORT })))
    const { incarnation } = parent
    const child = granted(
      await propose(lessor, acquire('ann', ['c'], { ttl: LONG, parent: parent.lease, incarnation, entries: [{ key: 'e', value: '' }] })),
    )
    const grandchild = granted(await propose(lessor, acquire('ann', ['g'], { ttl: LONG, parent: child.lease, incarnation })))
    await using watcher = log.watch(lessor, '', grandchild.revision)
    await log.advance(SHORT)
    const { value, revision } = await lessor.read({ kind: 'summary' }, { consistent: true })
    assert.equal(value.entries, 0)
    await watcher.at(revision)
    assert.equal(watcher.seen.length, 1)
    const all = types(watcher.seen[0]!)
    for (const event of ['lapsed p ann', 'revoked c ann', 'deleted e ann', 'revoked g ann', 'frozen c ann', 'frozen g ann'])
      assert.ok(all.includes(event), `${event} is missing from ${all.join(', ')}`)
    assert.deepEqual(await renew(lessor, parent.lease, child.lease, grandchild.lease), [GONE, GONE, GONE])
  },

  'after a revoke the units stay frozen until the last acknowledged ttl has expired, or their holder releases them': async log => {
    const lessor = await log.open()
    const first = granted(await propose(lessor, acquire('ann', ['a'], { ttl: 2 * SHORT })))
    await log.advance(SHORT, { late: false })
    assert.deepEqual(await renew(lessor, first.lease), [2 * SHORT])
    const second = granted(await propose(lessor, acquire('bob', ['b'], { ttl: 2 * SHORT })))
    for (const { lease } of [first, second]) done(await propose(lessor, { kind: 'revoke', target: { lease }, by: 'ops' }))
    assert.deepEqual(await renew(lessor, first.lease, second.lease), [GONE, GONE])
    for (const name of ['a', 'b']) refused('HELD', await propose(lessor, acquire('eve', [name])))
    done(await propose(lessor, { kind: 'release', lease: second.lease }))
    granted(await propose(lessor, acquire('eve', ['b'])))
    await log.advance(SHORT, { late: false })
    refused('HELD', await propose(lessor, acquire('eve', ['a']))) // its ttl has expired since the grant, but not since the renewal
    await log.advance(SHORT)
    granted(await propose(lessor, acquire('eve', ['a'])))
  },

  'a restart neither ends a lease that was just renewed nor keeps an abandoned one': async log => {
    let lessor = await log.open()
    const kept = granted(await propose(lessor, acquire('ann', ['kept'], { ttl: 4 * SHORT })))
    const left = granted(await propose(lessor, acquire('bob', ['left'], { ttl: 4 * SHORT })))
    let gone = false
    for (let i = 0; i < 6; i++) {
      await log.advance(2 * SHORT, { late: false })
      assert.deepEqual(await renew(lessor, kept.lease), [4 * SHORT])
      lessor = await log.restart()
      gone ||= (await status(lessor, left.lease)) === undefined
    }
    assert.ok(gone, 'an abandoned lease of 4 s was still there after 12 s')
    assert.deepEqual(await renew(lessor, kept.lease), [4 * SHORT])
  },
}
