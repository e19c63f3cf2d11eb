/** `ttl: { wish, min, max }` of the library. */
import { expect, test } from 'vitest'
import { connect } from '../../src/connect/connect.ts'
import type { TtlWish } from '../../src/holder/acquire-options.ts'

test('a wish is adjusted to what policies allow, and a range that they do not allow is refused', async () => {
  await using leases = await connect('memory:')
  await leases.setPolicy('jobs', { ttlMin: 2_000, ttlMax: 20_000 })
  const ttlOf = async (ttl: object) => {
    await using lease = await leases.acquire('jobs/a', { ttl: ttl as TtlWish })
    return lease.ttl
  }
  expect(await ttlOf({ wish: '10s' })).toBe(10_000)
  expect(await ttlOf({ wish: '1m' })).toBe(20_000)
  expect(await ttlOf({ wish: 500, max: '5s' })).toBe(2_000)
  await expect(ttlOf({ wish: '1m', min: '30s' })).rejects.toMatchObject({
    code: 'INVALID',
    message: expect.stringContaining('no ttl fits: at least 30000 ms'),
  })
  await expect(ttlOf({ wish: '1m', max: '30s' })).rejects.toMatchObject({ code: 'INVALID', message: 'ttl must have min ≤ wish ≤ max' })
  await expect(ttlOf({ wish: '1m', most: 1 })).rejects.toMatchObject({ code: 'INVALID' })
  await expect(ttlOf({})).rejects.toMatchObject({ code: 'INVALID' })
})

test('a request that was refused for another reason is not repeated', async () => {
  await using leases = await connect('memory:')
  await expect(leases.acquire('//', { ttl: { wish: '10s' } })).rejects.toMatchObject({ code: 'INVALID' })
})
