/** Waits for a pool: a waiter waits for the name of the pool, and is granted members of it. */
import { expect, test } from 'vitest'
import type { Granted } from '../../../src/kernel/outcome.ts'
import { propose } from '../../../src/lessor/propose.ts'
import { acquire } from '../../support/dashboard-world.ts'
import { world } from '../../support/http-world.ts'

test('the wait for a pool ends when its members are granted', async () => {
  await using here = await world()
  await here.ask('GET', '/v1/overview')
  const pool = { pool: 'gpus' }
  await propose(here.lessor, acquire('host', [], { entries: [{ key: 'pool/gpus/0', value: JSON.stringify({ labels: {}, units: 1 }) }] }))
  const { lease } = (await propose(here.lessor, acquire('ann', [], { pool }))) as Granted
  await propose(here.lessor, acquire('bob', [], { pool, wait: true }))
  const waits = async () => (await here.ask('GET', '/v1/overview')).json.contended
  await expect.poll(waits).toMatchObject([{ resource: 'gpus', waiters: 1 }])
  await propose(here.lessor, { kind: 'release', lease })
  await expect.poll(waits).toEqual([])
  const { json } = await here.ask('GET', '/v1/episodes/gpus')
  expect(json.episodes).toMatchObject([{ waiter: { holder: 'bob' }, ended: 'granted' }])
})
