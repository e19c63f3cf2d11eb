/** Places in queues that were asked for without a key. */
import { expect, test } from 'vitest'
import { connect } from '../../src/index.ts'
import { propose } from '../../src/lessor/propose.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { acquire, granted } from '../support/replica/rig.ts'
import { place } from '../support/resp-place.ts'

test('the place of a waiter without a key ends when the first key is created', async () => {
  const clock = new ManualClock()
  await using here = await place({ clock })
  const { lessor, server, port } = here
  const { lease } = granted(await propose(lessor, acquire('holder', 'x', { ttl: 600_000 })))
  await propose(lessor, { kind: 'renew', leases: [lease] })
  const queue = async () => (await lessor.read({ kind: 'resource', resource: 'x' }, { consistent: true })).value.queue
  const leases = await connect(`leasehold://127.0.0.1:${port}`, { holder: 'waiter' })
  const waiting = leases.acquire('x', { ttl: 60_000, wait: 600_000 }).catch(error => error.code)
  while ((await queue()).length === 0) await clock.settle()
  const allow = [{ verb: 'admin', prefix: '' }] as const
  await server.guarded.propose({ key: 0, name: 'test', operator: true }, { kind: 'key', name: 'ops', hash: '0'.repeat(64), allow })
  expect(await waiting).toBe('UNAUTHENTICATED')
  await leases.close()
  await clock.advance(1_000)
  expect(await queue()).toEqual([])
})
