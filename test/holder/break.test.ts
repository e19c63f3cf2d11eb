/** Breaking leases from the library, and when a lease in hand ends. */
import { expect, test } from 'vitest'
import { silentLessor } from '../../src/testing/in-memory.ts'

test('a break recalls the holder at once, and ends its lease after the given time', async () => {
  const first = silentLessor({ holder: 'ann' })
  const { clock, log } = first
  await using ann = first.leases
  await using bob = silentLessor({ holder: 'bob', clock, log }).leases
  const lease = await ann.acquire('deploy/prod', { ttl: '30s' })
  await clock.advance(300)
  await bob.break('deploy/prod', { after: '5s' })
  await clock.advance(100)
  expect([lease.recalled.aborted, lease.held]).toEqual([true, true])
  await clock.advance(5_000)
  expect(lease.held).toBe(false)
  expect(lease.signal.reason).toMatchObject({ code: 'LOST' })
  const { value } = await bob.read({ kind: 'history', resource: 'deploy/prod' })
  expect(value).toMatchObject([{ holder: 'ann', by: 'bob' }])
  await expect(bob.break('deploy/prod')).rejects.toMatchObject({ code: 'NOT_FOUND' })
  // @ts-expect-error: an option that does not exist
  await expect(bob.break('deploy/prod', { force: true })).rejects.toMatchObject({ code: 'INVALID' })
})

test('expiresAt is the wall time of the end, moves with renewals, and is undefined after the end', async () => {
  const { clock, leases } = silentLessor()
  await using _ = leases
  const lease = await leases.acquire('k', { ttl: '30s' })
  expect(lease.expiresAt).toBe(Math.round(clock.wall() + lease.remaining()))
  const first = lease.expiresAt!
  await clock.advance(20_000)
  expect(lease.expiresAt).toBeGreaterThan(first)
  await lease.release()
  expect(lease.expiresAt).toBeUndefined()
})
