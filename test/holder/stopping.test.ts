import { expect, test } from 'vitest'
import { silentLessor } from '../../src/testing/in-memory.ts'

function rivals() {
  const a = silentLessor({ holder: 'a' })
  const b = silentLessor({ holder: 'b', clock: a.clock, log: a.log })
  return {
    ...{ clock: a.clock, a: a.leases, b: b.leases },
    async [Symbol.asyncDispose]() {
      await Promise.all([a.leases[Symbol.asyncDispose](), b.leases[Symbol.asyncDispose]()])
    },
  }
}

test('a revoked resource stays frozen until the work has stopped, then goes to the next waiter', async () => {
  await using both = rivals()
  const { a, b, clock } = both
  let stop = () => {}
  let reported: unknown
  const stopped = new Promise<void>(resolve => (stop = resolve))
  const lease = await a.acquire('k', {
    ttl: 10_000,
    onLost: reason => {
      reported = reason
      return stopped
    },
  })
  expect(lease.recalled.aborted).toBe(false) // it follows events from now on
  const next = b.acquire('k')
  await b.revoke({ lease: lease.id })
  await clock.advance(2_000)
  expect(lease.signal.aborted).toBe(true)
  expect(reported).toBe(lease.signal.reason)
  expect((await b.query('k')).held).toMatchObject([{ holder: 'a', status: 'frozen' }])
  stop()
  await lease.release() // resolves when the lessor knows
  await using _next = await next
})

test('a resource is not frozen beyond the last term if its work does not stop, and work that throws has stopped', async () => {
  await using both = rivals()
  const { a, b, clock } = both
  const slow = await a.acquire('slow', { ttl: 5_000, onLost: () => new Promise(() => {}) })
  const bad = await a.acquire('bad', { ttl: 5_000, onLost: () => Promise.reject(new Error('cannot stop')) })
  const next = Promise.all([b.acquire('slow'), b.acquire('bad')])
  await b.revoke({ holder: 'a' })
  await clock.advance(6_000)
  expect([slow, bad].map(({ held }) => held)).toEqual([false, false])
  for (const lease of await next) await lease.release()
})
