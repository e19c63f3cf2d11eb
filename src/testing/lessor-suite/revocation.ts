/** The contract of a lessor: leases that their holder does not end: revocations, transfers, breaks and recalls. */
import assert from 'node:assert/strict'
import { GONE } from '../../kernel/outcome.ts'
import { propose } from '../../lessor/propose.ts'
import { acquire, done, granted, holders, LONG, queued, refused, renew, SHORT, status } from './expectations.ts'
import type { LessorCases } from './lessor-log.ts'

export const revocationCases: LessorCases = {
  'a lease, a holder and a prefix can be revoked; without a match it is NOT_FOUND': async log => {
    const lessor = await log.open()
    const a = granted(await propose(lessor, acquire('ann', ['jobs/a'])))
    granted(await propose(lessor, acquire('bob', ['jobs/b', 'other'])))
    granted(await propose(lessor, acquire('eve', ['jobs/c'])))
    granted(await propose(lessor, acquire('eve', ['jobsuite'])))
    refused('NOT_FOUND', await propose(lessor, { kind: 'revoke', target: { holder: 'absent' } }))
    refused('GONE', await propose(lessor, { kind: 'revoke', target: { lease: a.lease + 1_000 } }))
    done(await propose(lessor, { kind: 'revoke', target: { lease: a.lease }, force: true }))
    done(await propose(lessor, { kind: 'revoke', target: { holder: 'bob' }, force: true }))
    done(await propose(lessor, { kind: 'revoke', target: { prefix: 'jobs/' }, force: true }))
    const { value } = await lessor.read({ kind: 'leases' }, { consistent: true })
    assert.deepEqual(
      value.flatMap(({ grants }) => grants.map(({ resource }) => resource)),
      ['jobsuite'],
    )
    const { value: past } = await lessor.read({ kind: 'history', resource: 'jobs/a' }, { consistent: true })
    assert.deepEqual(
      past.map(({ lease, cause }) => [lease, cause]),
      [[a.lease, 'revoked']],
    )
  },

  'a transfer by a holder that has stopped takes effect at once, under a new lease and a new token': async log => {
    const lessor = await log.open()
    const lease = granted(await propose(lessor, acquire('ann', ['a'])))
    queued(await propose(lessor, acquire('eve', ['a'], { wait: true })))
    const received = done(await propose(lessor, { kind: 'transfer', lease: lease.lease, to: 'bob', stopped: true })).id!
    const { value } = await lessor.read({ kind: 'resource', resource: 'a' }, { consistent: true })
    assert.equal(value.grants[0]?.lease, received)
    assert.equal(value.grants[0].holder, 'bob')
    assert.ok(value.grants[0].token > lease.tokens[0]!)
    assert.deepEqual(await renew(lessor, lease.lease), [GONE])
    refused('GONE', await propose(lessor, { kind: 'transfer', lease: lease.lease, to: 'bob' }))
  },

  'a transfer that the holder did not ask for waits until the holder has stopped, and goes before all waiters': async log => {
    const lessor = await log.open()
    const lease = granted(await propose(lessor, acquire('ann', ['a'], { ttl: SHORT })))
    queued(await propose(lessor, acquire('eve', ['a'], { wait: true })))
    const received = done(await propose(lessor, { kind: 'transfer', lease: lease.lease, to: 'bob' })).id!
    assert.equal((await status(lessor, received)) ?? 'none', 'waiting')
    assert.equal((await status(lessor, lease.lease)) ?? 'none', 'frozen')
    await log.advance(SHORT / 2, { late: false })
    assert.deepEqual(await renew(lessor, received), [SHORT])
    assert.equal((await status(lessor, lease.lease)) ?? 'none', 'frozen')
    await log.advance(SHORT / 2)
    assert.deepEqual(await holders(lessor, 'a'), ['bob'])
  },

  'a break ends the holder when its time is over, and a second break can only shorten the time': async log => {
    const lessor = await log.open()
    const lease = granted(await propose(lessor, acquire('ann', ['a'], { ttl: LONG })))
    await renew(lessor, lease.lease)
    done(await propose(lessor, { kind: 'break', resource: 'a', after: SHORT, by: 'ops' }))
    done(await propose(lessor, { kind: 'break', resource: 'a', after: LONG, by: 'ops' }))
    assert.equal((await status(lessor, lease.lease)) ?? 'none', 'live')
    await log.advance(SHORT)
    assert.equal((await status(lessor, lease.lease)) ?? 'none', 'frozen')
    assert.deepEqual(await renew(lessor, lease.lease), [GONE])
    refused('NOT_FOUND', await propose(lessor, { kind: 'break', resource: 'free/resource' }))
  },

  'a recall tells the holder and takes nothing away': async log => {
    const lessor = await log.open()
    const lease = granted(await propose(lessor, acquire('ann', ['a'])))
    await using watcher = log.watch(lessor, 'a', lease.revision)
    const { revision } = done(await propose(lessor, { kind: 'recall', resource: 'a', by: 'bob' }))
    const [event] = await watcher.at(revision)
    assert.equal(event?.type, 'recalled')
    assert.equal(event.by, 'bob')
    assert.equal((await lessor.read({ kind: 'lease', lease: lease.lease }, { atLeast: revision })).value?.recalled, true)
    refused('NOT_FOUND', await propose(lessor, { kind: 'recall', resource: 'b' }))
  },
}
