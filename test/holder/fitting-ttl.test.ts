/** `ttl: { preferred, min, max }` of the library. */
import { expect, test } from 'vitest'
import { connect } from '../../src/connect/connect.ts'
import type { PreferredTtl } from '../../src/holder/acquire-options.ts'

test('a preference is adjusted to what policies allow, and a range that they do not allow is refused', async () => {
  await using leases = await connect('memory:')
  await leases.setPolicy('jobs', { ttlMin: 2_000, ttlMax: 20_000 })
  const ttlOf = async (ttl: object) => {
    await using lease = await leases.acquire('jobs/a', { ttl: ttl as PreferredTtl })
    return lease.ttl
  }
  expect(await ttlOf({ preferred: '10s' })).toBe(10_000)
  expect(await ttlOf({ preferred: '1m' })).toBe(20_000)
  expect(await ttlOf({ preferred: 500, max: '5s' })).toBe(2_000)
  await expect(ttlOf({ preferred: '1m', min: '30s' })).rejects.toMatchObject({
    code: 'INVALID',
    message: expect.stringContaining('no ttl fits: at least 30000 ms'),
  })
  await expect(ttlOf({ preferred: '1m', max: '30s' })).rejects.toMatchObject({
    code: 'INVALID',
    message: 'ttl must have min ≤ preferred ≤ max',
  })
  await expect(ttlOf({ preferred: '1m', most: 1 })).rejects.toMatchObject({ code: 'INVALID' })
  await expect(ttlOf({})).rejects.toMatchObject({ code: 'INVALID' })
})

test('a request that was refused for another reason is not repeated', async () => {
  await using leases = await connect('memory:')
  await expect(leases.acquire('//', { ttl: { preferred: '10s' } })).rejects.toMatchObject({ code: 'INVALID' })
})
