/** A transfer over a server, with a key of its own on each side: afterwards the lease belongs to the recipient's key. */
import { expect, test } from 'vitest'
import { open } from '../../src/connect/connect.ts'
import { Leases } from '../../src/leases.ts'
import { propose } from '../../src/lessor/propose.ts'
import { hashSecret } from '../../src/server/key-secret.ts'
import { place } from '../support/resp-place.ts'

test('a lease that is transferred to a name belongs to the key that adopts it', async () => {
  await using here = await place()
  const allow = (['acquire', 'renew', 'release'] as const).map(verb => ({ verb, prefix: 'jobs' }))
  for (const name of ['giver', 'recipient', 'rival']) await propose(here.lessor, { kind: 'key', name, hash: hashSecret(name), allow })
  await expect.poll(() => here.server.guarded.access.keyRequired).toBe(true)
  const connect = async (name: string) =>
    new Leases(await open(`leasehold://127.0.0.1:${here.port}`, { apiKey: name }), { holder: name, ttl: 5_000 })
  await using giver = await connect('giver')
  await using recipient = await connect('recipient')
  await using rival = await connect('rival')
  const lease = await giver.acquire('jobs/nightly')
  const number = await lease.transfer('recipient')
  await expect(rival.adopt(number)).rejects.toMatchObject({ code: 'INVALID' })
  const adopted = await recipient.adopt(number)
  expect(adopted.token).toBeGreaterThan(lease.token)
  await adopted.renew()
  expect(adopted.held).toBe(true)
  for (const other of [giver, rival]) {
    expect(await propose(other.lessor, { kind: 'renew', leases: [number] })).toMatchObject({ ttls: [-1] })
    expect(await propose(other.lessor, { kind: 'release', lease: number })).toMatchObject({ kind: 'refused', code: 'GONE' })
  }
  expect(adopted.held).toBe(true)
  await adopted.release()
  const { value } = await here.lessor.read({ kind: 'history', resource: 'jobs/nightly' }, { consistent: true })
  expect(value.map(({ holder, cause }) => [holder, cause])).toEqual([
    ['giver', 'transferred'],
    ['recipient', 'released'],
  ])
})
