/** A transfer meets a request that waits: it answers the request only if it covers all that was asked for. */
import { expect, test } from 'vitest'
import type { Lease } from '../../src/lease.ts'
import { silentLessor } from '../../src/testing/in-memory.ts'
import { world as httpWorld } from '../support/http-world.ts'
import { rivals } from '../support/rivals.ts'

const TTL = 10_000

/** Three processes on one log: a and b, and c, which keeps what b also wants. */
function three() {
  const two = rivals()
  const c = silentLessor({ holder: 'c', clock: two.clock, log: two.a.log })
  return {
    ...two,
    c,
    async [Symbol.asyncDispose]() {
      await c.leases.close()
      await two[Symbol.asyncDispose]()
    },
  }
}

/** What a request was answered with by now. */
async function answered(request: Promise<Lease>, clock: { settle(): Promise<void> }): Promise<Lease | 'waits' | 'refused'> {
  let answer: Lease | 'waits' | 'refused' = 'waits'
  request.then(
    lease => {
      answer = lease
    },
    () => {
      answer = 'refused'
    },
  )
  await clock.settle()
  return answer
}

/** `b` waits for two names: `a` holds the one that it will give away, and `c` the other. */
async function waitsForTwo({ a, b, c, clock }: ReturnType<typeof three>) {
  const given = await a.leases.acquire('a', { ttl: TTL })
  const kept = await c.leases.acquire('b', { ttl: TTL })
  const both = b.leases.acquire(['a', 'b'], { ttl: TTL, wait: 60_000 })
  expect(await answered(both, clock)).toBe('waits')
  return { given, kept, both }
}

test('a transfer of one name does not answer a request for two names', async () => {
  await using world = three()
  const { given, kept, both } = await waitsForTwo(world)
  await given.transfer('b')
  const answer = await answered(both, world.clock)
  expect(kept.held).toBe(true)
  expect(answer).toBe('waits')
})

test('a transfer of a shared grant does not answer an exclusive request', async () => {
  await using world = three()
  const { a, b, clock } = world
  const given = await a.leases.acquire('x', { ttl: TTL, mode: 'shared' })
  const exclusive = b.leases.acquire('x', { ttl: TTL, wait: 60_000 })
  expect(await answered(exclusive, clock)).toBe('waits')
  await given.transfer('b')
  const answer = await answered(exclusive, clock)
  const { held } = await a.leases.query('x')
  expect(held).toMatchObject([{ holder: 'b', shared: true }])
  expect(answer).toBe('waits')
})

test('a transfer of one unit does not answer a request for three units', async () => {
  await using world = three()
  const { a, b, c, clock } = world
  await a.leases.setPolicy('seats', { capacity: 4 })
  const given = await a.leases.acquire('seats', { ttl: TTL, units: 1 })
  const kept = await c.leases.acquire('seats', { ttl: TTL, units: 2 })
  const units = b.leases.acquire('seats', { ttl: TTL, units: 3, wait: 60_000 })
  expect(await answered(units, clock)).toBe('waits')
  await given.transfer('b')
  const answer = await answered(units, clock)
  const { held } = await a.leases.query('seats')
  expect(held.find(({ holder }) => holder === 'b')).toMatchObject({ units: 1 })
  expect(kept.held).toBe(true)
  expect(answer).toBe('waits')
})

/** How the request of b is answered: by a transfer, or as the control because a releases. */
type Given = 'transferred' | 'released'

test('a lease that answers a request of a session ends with the session', async () => {
  const afterSession = async (how: Given) => {
    await using world = three()
    const { a, b, c, clock } = world
    const given = await a.leases.acquire('a', { ttl: TTL })
    const session = await b.leases.session({ ttl: 60_000 })
    const request = session.acquire('a', { ttl: TTL })
    expect(await answered(request, clock)).toBe('waits')
    await (how === 'transferred' ? given.transfer('b') : given.release())
    const lease = await request
    expect(lease.held).toBe(true)
    await session.end()
    const next = await c.leases.tryAcquire('a', { ttl: TTL })
    return { held: lease.held, next: next?.held }
  }
  expect(await afterSession('released')).toEqual({ held: false, next: true })
  const outcome = await afterSession('transferred')
  expect(outcome).toEqual({ held: false, next: true })
})

test('a lease that answers a request has its entries, ttl and labels', async () => {
  const answeredBy = async (how: Given) => {
    await using world = three()
    const { a, b, clock } = world
    const given = await a.leases.acquire('a', { ttl: TTL, labels: { by: 'a' } })
    const request = b.leases.acquire('a', { ttl: 2 * TTL, wait: 60_000, labels: { by: 'b' }, entries: { 'who/a': 'b' } })
    expect(await answered(request, clock)).toBe('waits')
    await (how === 'transferred' ? given.transfer('b') : given.release())
    const lease = await request
    expect(lease.held).toBe(true)
    const { value } = await a.leases.read({ kind: 'lease', lease: lease.id }, { consistent: true })
    const { ttl, labels, entries } = value!
    return { ttl, labels, entries: entries.map(({ key }) => key) }
  }
  const asked = { ttl: 2 * TTL, labels: [['by', 'b']], entries: ['who/a'] }
  expect(await answeredBy('released')).toEqual(asked)
  const outcome = await answeredBy('transferred')
  expect(outcome).toEqual(asked)
})

test('a request for two names, one of which was transferred to its own process, ends with DEADLOCK and the lease', async () => {
  await using world = three()
  const { given, kept, both } = await waitsForTwo(world)
  const { pending } = await world.a.leases.query('a')
  const heir = await given.transfer('b', { incarnation: pending[0]!.incarnation })
  const outcome = await both.then(
    lease => ({ resources: lease.resources }),
    error => ({ code: error.code, lease: error.facts?.lease }),
  )
  expect(kept.held).toBe(true)
  expect(outcome).toEqual({ code: 'DEADLOCK', lease: heir })
})

test('a server does not answer a request for two names that waits with a transfer of one', async () => {
  await using here = await httpWorld()
  const { clock } = here
  const post = (path: string, body: object) => here.ask('POST', `/v1${path}`, body)
  const given = await post('/leases', { holder: 'a', ttl: 20_000, resources: ['a'] })
  const kept = await post('/leases', { holder: 'c', ttl: 20_000, resources: ['b'] })
  expect([given.status, kept.status]).toEqual([201, 201])
  let answer: string[] | number | undefined
  post('/leases', { holder: 'b', ttl: 20_000, resources: ['a', 'b'], wait: 8_000 }).then(({ status, json }) => {
    answer = status < 300 ? Object.keys(json.tokens) : status
  })
  const queue = async () => (await here.lessor.read({ kind: 'resource', resource: 'a' }, { consistent: true })).value.queue
  while ((await queue()).length === 0) await clock.settle()
  expect((await post('/transfer', { lease: given.json.lease, to: 'b', stopped: true })).status).toBeLessThan(300)
  // The wait ends at the latest when its time is over.
  for (let waited = 0; answer === undefined && waited < 10; waited++) await clock.advance(1_000)
  while (answer === undefined) await clock.settle()
  expect(answer).not.toEqual(['a'])
})
