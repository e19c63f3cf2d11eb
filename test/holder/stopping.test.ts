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

test('what was revoked stays frozen until the work has stopped, and goes to the next one then', async () => {
  await using both = rivals()
  const { a, b, clock } = both
  let stop = () => {}
  let told: unknown
  const stopped = new Promise<void>(resolve => (stop = resolve))
  const lease = await a.acquire('k', {
    ttl: 10_000,
    onLost: reason => {
      told = reason
      return stopped
    },
  })
  expect(lease.recalled.aborted).toBe(false) // it listens from now on
  const next = b.acquire('k')
  await b.revoke({ lease: lease.id })
  await clock.advance(2_000)
  expect(lease.signal.aborted).toBe(true)
  expect(told).toBe(lease.signal.reason)
  expect((await b.query('k')).held).toMatchObject([{ holder: 'a', status: 'frozen' }])
  stop()
  await lease.release() // resolves when the lessor knows
  await using _next = await next
})

test('work that does not stop is not waited for beyond its last term, and one that throws has stopped', async () => {
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
