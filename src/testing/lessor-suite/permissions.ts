/** The contract of a lessor: policies, keys and fences. */
import assert from 'node:assert/strict'
import { GONE } from '../../kernel/outcome.ts'
import { propose } from '../../lessor/propose.ts'
import { acquire, createKey, done, granted, policy, refused, ttls } from './expectations.ts'
import type { LessorCases } from './lessor-log.ts'

export const permissionsCases: LessorCases = {
  'a policy limits later commands, for whole segments, until it is deleted': async log => {
    const lessor = await log.open()
    done(await propose(lessor, policy('jobs', { ttlMax: 5_000 })))
    refused('INVALID', await propose(lessor, acquire('ann', ['jobs/a'], { ttl: 5_001 })))
    granted(await propose(lessor, acquire('ann', ['jobs/a'], { ttl: 5_000 })))
    granted(await propose(lessor, acquire('ann', ['jobsuite'], { ttl: 5_001 })))
    assert.deepEqual((await lessor.read({ kind: 'policies' }, { consistent: true })).value, [{ prefix: 'jobs', rules: { ttlMax: 5_000 } }])
    done(await propose(lessor, { kind: 'policy', prefix: 'jobs' }))
    refused('NOT_FOUND', await propose(lessor, { kind: 'policy', prefix: 'jobs' }))
    granted(await propose(lessor, acquire('ann', ['jobs/b'], { ttl: 5_001 })))
  },

  'a key may do what its scopes say, on its own leases, until it is revoked': async log => {
    const lessor = await log.open()
    const jobs = done(await propose(lessor, createKey('ci', [{ verb: 'acquire', prefix: 'jobs' }]))).id!
    const other = done(await propose(lessor, createKey('cd', [{ verb: 'acquire', prefix: '' }]))).id!
    const lease = granted(await propose(lessor, acquire('ann', ['jobs/a']), { key: jobs }))
    refused('FORBIDDEN', await propose(lessor, acquire('ann', ['jobsuite']), { key: jobs }))
    refused('FORBIDDEN', await propose(lessor, policy('jobs', { capacity: 2 }), { key: jobs }))
    assert.deepEqual(ttls(await propose(lessor, { kind: 'renew', leases: [lease.lease] }, { key: other })), [GONE])
    refused('GONE', await propose(lessor, { kind: 'release', lease: lease.lease }, { key: other }))
    assert.notDeepEqual(ttls(await propose(lessor, { kind: 'renew', leases: [lease.lease] }, { key: jobs })), [GONE])
    done(await propose(lessor, { kind: 'unkey', id: jobs }))
    refused('FORBIDDEN', await propose(lessor, acquire('ann', ['jobs/b']), { key: jobs }))
    assert.deepEqual(ttls(await propose(lessor, { kind: 'renew', leases: [lease.lease] }, { key: jobs })), [GONE])
    refused('NOT_FOUND', await propose(lessor, { kind: 'unkey', id: jobs }))
    assert.deepEqual(
      (await lessor.read({ kind: 'keys' }, { consistent: true })).value.map(({ name }) => name),
      ['cd'],
    )
  },

  'a fence accepts a token until it has seen a newer one': async log => {
    const lessor = await log.open()
    const tokens: number[] = []
    for (const holder of ['ann', 'bob']) {
      const lease = granted(await propose(lessor, acquire(holder, ['a'])))
      tokens.push(lease.tokens[0]!)
      done(await propose(lessor, { kind: 'release', lease: lease.lease }))
    }
    const show = (token: number) => propose(lessor, { kind: 'fence', resource: 'a', token })
    assert.equal((await show(tokens[0]!)).kind, 'fenced')
    assert.equal((await show(tokens[1]!)).kind, 'fenced')
    assert.equal(refused('STALE', await show(tokens[0]!)).facts.highest, tokens[1])
    assert.equal((await show(tokens[1]!)).kind, 'fenced')
    refused('INVALID', await show(tokens[1]! + 1_000))
    assert.equal((await lessor.read({ kind: 'resource', resource: 'a' }, { consistent: true })).value.fence, tokens[1])
  },
}
