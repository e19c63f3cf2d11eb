import { expect, test } from 'vitest'
import { propose } from '../../../src/lessor/propose.ts'
import { world } from '../../support/http-world.ts'

/** Offers members with an entry for each, as `pool offer` does. */
async function offer(ask: Awaited<ReturnType<typeof world>>['ask'], members: Record<string, Record<string, string>>, headers = {}) {
  const entries = Object.entries(members).map(([member, labels]) => ({
    key: `pool/gpus/${member}`,
    value: JSON.stringify({ labels, units: 1 }),
  }))
  const { status, json } = await ask('POST', '/v1/leases', { holder: 'host-a', ttl: '1m', entries }, headers)
  expect(status).toBe(201)
  return json.lease as number
}

test('members of a pool are taken, shown and given back over HTTP', async () => {
  await using place = await world()
  const { ask } = place
  await offer(ask, { g0: { model: 'a100', mem: '40' }, g1: { model: 'h100', mem: '80' } })
  expect((await ask('GET', '/v1/pools')).json.pools).toEqual([{ pool: 'gpus', members: 2, units: 2, used: 0, waiting: 0, reservations: 0 }])
  const match = [
    { label: 'model', test: 'in', values: ['a100', 'h100'] },
    { label: 'mem', test: 'at-least', values: ['64'] },
  ]
  const taken = await ask('POST', '/v1/leases', { holder: 'ann@x', pool: { pool: 'gpus', match, account: 'ann', expect: '4h' } })
  expect([taken.status, Object.keys(taken.json.tokens)]).toEqual([201, ['gpus/g1']])
  const { json: pool } = await ask('GET', '/v1/pools/gpus')
  expect(pool).toMatchObject({
    pool: 'gpus',
    members: [
      { member: 'g0', used: 0, status: 'live', labels: { model: 'a100' } },
      { member: 'g1', used: 1, grants: [{ lease: taken.json.lease, account: 'ann', expect: 14_400_000 }] },
    ],
    queue: [],
    accounts: [{ account: 'ann', held: 1 }],
  })
  const second = await ask('POST', '/v1/leases', { holder: 'ben', pool: { pool: 'gpus', count: 2 } })
  expect([second.status, second.json.error.code]).toEqual([409, 'HELD'])
  const never = await ask('POST', '/v1/leases', { holder: 'ben', pool: { pool: 'gpus', count: 3 } })
  expect([never.json.error.code, never.json.error.message]).toEqual(['LIMIT', expect.stringMatching(/can never give 3 members/)])
  expect((await ask('DELETE', `/v1/leases/${taken.json.lease}`)).status).toBe(204)
  expect((await ask('GET', '/v1/pools/gpus')).json.members[1].used).toBe(0)
})

test('a waiter of a pool is granted when members are given back, and its timeout names the pool', async () => {
  await using place = await world()
  const { ask, clock } = place
  await offer(ask, { g0: {} })
  const { json } = await ask('POST', '/v1/leases', { holder: 'ann', pool: { pool: 'gpus' } })
  const waiting = ask('POST', '/v1/leases', { holder: 'ben', wait: '10s', pool: { pool: 'gpus' } })
  await expect.poll(async () => (await ask('GET', '/v1/pools/gpus')).json.queue.length).toBe(1)
  expect((await ask('GET', '/v1/pools/gpus')).json.queue[0]).toMatchObject({ holder: 'ben', account: 'ben', position: 0, possible: true })
  await ask('DELETE', `/v1/leases/${json.lease}`)
  expect(await waiting).toMatchObject({ status: 201, json: { waited: true, tokens: { 'gpus/g0': expect.any(Number) } } })
  const late = ask('POST', '/v1/leases', { holder: 'cid', wait: '5s', pool: { pool: 'gpus' } })
  await expect.poll(async () => (await ask('GET', '/v1/pools/gpus')).json.queue.length).toBe(1)
  await clock.advance(5_000)
  expect((await late).json.error).toMatchObject({ code: 'TIMEOUT', message: expect.stringMatching(/^gpus was not granted within 5000 ms/) })
})

test('a member has what its host reports, for keys that may read that', async () => {
  await using place = await world()
  const { ask, key } = place
  const lease = await offer(ask, { g0: {}, g1: {} })
  const report = { host: 'a', utilisation: 37, processes: [], more: 0, unleased: 0, idle: 0, stage: 'none' }
  await ask('PUT', '/v1/entries/devices/gpus/g0', { lease, value: JSON.stringify(report) })
  await ask('PUT', '/v1/entries/devices/gpus/g1', { lease, value: '{"host":7}' })
  const all = await ask('GET', '/v1/pools/gpus')
  expect(all.json.members.map((member: { report?: object }) => member.report)).toEqual([report, undefined])
  const authorization = { Authorization: `Bearer ${await key('user', [{ verb: 'read', prefix: 'gpus' }])}` }
  const some = await ask('GET', '/v1/pools/gpus', undefined, authorization)
  expect([some.status, some.json.members[0].member, some.json.members[0].report]).toEqual([200, 'g0', undefined])
})

test('keys apply: a pool is read, listed, taken and extended only with a scope on its name', async () => {
  await using place = await world()
  const { ask, key } = place
  const host = { Authorization: `Bearer ${await key('host', [{ verb: 'register', prefix: 'pool/gpus' }])}` }
  const other = { Authorization: `Bearer ${await key('other', [{ verb: 'admin', prefix: 'jobs' }])}` }
  const user = { Authorization: `Bearer ${await key('user', [{ verb: 'acquire', prefix: 'gpus' }])}` }
  await offer(ask, { g0: {} }, host)
  expect((await ask('GET', '/v1/pools/gpus', undefined, other)).status).toBe(403)
  expect((await ask('GET', '/v1/pools', undefined, other)).json.pools).toEqual([])
  expect((await ask('GET', '/v1/pools')).status).toBe(401)
  const request = { holder: 'x', maxLife: '1h', pool: { pool: 'gpus' } }
  expect((await ask('POST', '/v1/leases', request, other)).status).toBe(403)
  const taken = await ask('POST', '/v1/leases', request, user)
  expect(taken.status).toBe(201)
  const foreign = await ask('POST', `/v1/leases/${taken.json.lease}/extend`, { by: '1h' }, other)
  expect(foreign.status).toBeGreaterThanOrEqual(400)
})

test.each([
  [{ pool: 'gpus', count: 0 }, /count/],
  [{ pool: 'gpus', count: 257 }, /count/],
  [{ pool: '/x' }, /pool\.pool begins with a slash/],
  [{ pool: 'gpus', match: [{ label: 'mem', test: 'at-least', values: ['lots'] }] }, /plain decimal number/],
  [{ pool: 'gpus', match: [{ label: 'mem', test: 'like', values: ['x'] }] }, /test/],
  [{ pool: 'gpus', unknown: 1 }, /unknown/],
  [{ pool: 'gpus', total: 2, count: 1 }, /total cannot be given together with/],
  [{ pool: 'gpus', expect: 'soon' }, /expect/],
])('the request %j is refused with what is wrong', async (pool, message) => {
  await using place = await world()
  await offer(place.ask, { g0: {} })
  const { status, json } = await place.ask('POST', '/v1/leases', { holder: 'x', pool })
  expect([status, json.error.message]).toEqual([400, expect.stringMatching(message)])
  const both = await place.ask('POST', '/v1/leases', { holder: 'x', resources: ['a'], pool: { pool: 'gpus' } })
  expect([both.status, both.json.error.message]).toEqual([400, expect.stringMatching(/pool cannot be given together with/)])
})

test('the queue of a pool comes in pages, and one waiter is explained without the rest', async () => {
  await using place = await world()
  const { ask, lessor } = place
  await offer(ask, { g0: {} })
  for (let i = 0; i < 120; i++)
    await propose(lessor, { kind: 'acquire', holder: `u${i}`, ttl: 60_000, wants: [], wait: true, pool: { pool: 'gpus' } })
  const { json: first } = await ask('GET', '/v1/pools/gpus')
  expect([first.waiting, first.queue.length, first.queue[0].position]).toEqual([119, 100, 0])
  const { json: rest } = await ask('GET', '/v1/pools/gpus?limit=50&skip=100')
  expect([rest.queue.length, rest.queue[0].position]).toEqual([19, 100])
  expect((await ask('GET', '/v1/pools/gpus?limit=0')).json).toMatchObject({ waiting: 119, queue: [] })
  for (const bad of ['limit=-1', 'limit=1001', 'limit=x', 'skip=-1', 'after=3'])
    expect((await ask('GET', `/v1/pools/gpus?${bad}`)).status, bad).toBe(400)
  const last = rest.queue.at(-1)
  const { json } = await ask('GET', `/v1/pools/gpus/explain?lease=${last.lease}`)
  expect(json.waiters).toMatchObject([{ lease: last.lease, position: 118 }])
  expect((await ask('GET', '/v1/pools/gpus/explain?limit=2')).json.waiters).toHaveLength(2)
})

test("over HTTP, expect: 'auto' and explanations use how long such leases were held before", async () => {
  await using place = await world()
  const { ask, clock } = place
  const host = await offer(ask, { g0: {} })
  const take = (holder: string, more = {}) =>
    ask('POST', '/v1/leases', {
      ...{ holder, ttl: '1h', labels: { learn: 'gpus/etl' }, pool: { pool: 'gpus', account: 'ann', expect: 'auto' }, ...more },
    })
  for (let i = 0; i < 6; i++) {
    const { json } = await take('ann')
    await clock.advance(20_000)
    expect((await ask('DELETE', `/v1/leases/${json.lease}`)).status).toBe(204)
    await ask('POST', '/v1/leases/renew', { leases: [host] })
  }
  const { json } = await take('ann')
  expect((await ask('GET', '/v1/pools/gpus')).json.members[0].grants[0]).toMatchObject({
    class: 'gpus/etl',
    expect: expect.closeTo(20_000, -3),
  })
  const waiting = take('ben', { wait: '1h' })
  await expect.poll(async () => (await ask('GET', '/v1/pools/gpus')).json.queue.length).toBe(1)
  const { waiters } = (await ask('GET', '/v1/pools/gpus/explain')).json
  expect(waiters[0].start.high).toBeLessThan(60_000)
  await ask('DELETE', `/v1/leases/${json.lease}`)
  expect((await waiting).status).toBe(201)
  expect((await ask('POST', '/v1/leases', { holder: 'cid', pool: { pool: 'gpus', expect: 'soon' } })).status).toBe(400)
})
