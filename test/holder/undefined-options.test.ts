/** An option that is `undefined` is one that was left out: callers pass on what they may not have. */
import { expect, test } from 'vitest'
import { connect } from '../../src/connect/connect.ts'
import type { AcquireOptions } from '../../src/holder/acquire-options.ts'

const ACQUIRE: AcquireOptions = {
  ...{ ttl: undefined, wait: undefined, mode: undefined, units: undefined, priority: undefined, steal: undefined },
  ...{ renew: undefined, parent: undefined, labels: undefined, entries: undefined, maxHold: undefined, signal: undefined },
  ...{ onWait: undefined, onLost: undefined, advanced: undefined, ifAvailable: undefined },
}

test('undefined options are options that were left out', async () => {
  const connecting = { holder: undefined, clock: undefined, clockError: undefined, ttl: undefined, heartbeat: undefined, apiKey: undefined }
  await using leases = await connect('memory:', { ...connecting, maxStall: undefined, retry: undefined, logger: undefined })
  const lease = await leases.acquire('jobs/nightly', ACQUIRE)
  expect({ ttl: lease.ttl, held: lease.held }).toEqual({ ttl: 30_000, held: true })
  await leases.request('other', ACQUIRE, other => expect(other?.held).toBe(true))
  await leases.lock('third', { ttl: undefined, wait: undefined }).run(third => expect(third.held).toBe(true))
  await using session = await leases.session({ ttl: undefined, labels: undefined })
  expect(session).toBeDefined()
  const listed = { service: 'planner', address: 'http://127.0.0.1:1' }
  const registering = { ttl: undefined, heartbeat: undefined, grace: undefined, wait: undefined, onEvent: undefined }
  await using registered = await leases.registry.register({ ...listed, ...registering })
  expect(registered).toBeDefined()
})
