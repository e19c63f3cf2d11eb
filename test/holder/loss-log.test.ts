import { afterEach, expect, test, vi } from 'vitest'
import { rivals } from '../support/rivals.ts'

afterEach(() => vi.restoreAllMocks())

test('a loss is recorded with its cause, and shown with the history of the resource', async () => {
  await using both = rivals()
  const { a, b, clock } = both
  const lease = await a.leases.acquire('k', { ttl: 1_000 })
  a.lessor.stopAnswering()
  await clock.advance(1_100)
  a.lessor.answer()
  await using _next = await b.leases.acquire('k')
  const [past] = await a.leases.history('k')
  expect(past).toMatchObject({ lease: lease.id, holder: 'a', cause: 'lapsed', loss: { cause: 'unreachable', overlap: 0 } })
  expect(a.leases.losses).toHaveLength(1)
})
