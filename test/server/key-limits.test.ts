/** Limits, expiry and rotation of keys, as servers enforce and show them. */
import { describe, expect, test } from 'vitest'
import type { CreateKey } from '../../src/kernel/command.ts'
import type { Caller } from '../../src/server/access-control.ts'
import { httpListener } from '../../src/server/http/http-listener.ts'
import { hashSecret } from '../../src/server/key-secret.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { type World, world } from '../support/http-world.ts'
import { place, Raw } from '../support/resp-place.ts'

const OPERATOR: Caller = { key: 0, name: 'test', operator: true }
const ALL = (['acquire', 'register', 'read', 'watch'] as const).map(verb => ({ verb, prefix: '' }))
const DAY = 86_400_000

function bearer(secret: string): { authorization: string } {
  return { authorization: `Bearer ${secret}` }
}

/** Creates a key whose secret is its name. Returns its id. */
async function keyOf({ server }: Pick<World, 'server'>, name: string, more: Partial<CreateKey> = {}): Promise<number> {
  const outcome = await server.guarded.propose(OPERATOR, { kind: 'key', name, hash: hashSecret(name), allow: ALL, ...more })
  expect(outcome).toMatchObject({ kind: 'done' })
  return (outcome as { id: number }).id
}

async function acquire(here: World, secret: string, resource: string) {
  const body = { resources: [resource], holder: 'h', ttl: '10s' }
  return here.ask('POST', '/v1/leases', body, bearer(secret))
}

describe('limits that the kernel counts', () => {
  test('are answered with 429 and their facts, over RESP with the same, and shown with what the key has', async () => {
    await using here = await world()
    await keyOf(here, 'root', { allow: [{ verb: 'admin', prefix: '' }] })
    await keyOf(here, 'k', { limits: { leases: 1 }, group: 'g' })
    expect((await acquire(here, 'k', 'a')).status).toBe(201)
    const refused = await acquire(here, 'k', 'b')
    expect([refused.status, refused.headers['retry-after']]).toEqual([429, '1'])
    const facts = { reason: 'key-limit', what: 'leases', limit: 1, used: 1 }
    expect(refused.json.error).toMatchObject({ code: 'LIMIT', ...facts })
    using raw = new Raw(here.port)
    await raw.ask('AUTH', 'k')
    const [message, json] = String(await raw.ask('LEASE.ACQUIRE', 'b', 'TTL', '1000')).split('\t')
    expect(message).toMatch(/LIMIT this key has 1 leases, and its limit is 1/)
    expect(JSON.parse(json!)).toEqual(facts)
    const { json: listed } = await here.ask('GET', '/v1/keys', undefined, bearer('root'))
    expect(listed.keys[1]).toMatchObject({
      ...{ name: 'k', limits: { leases: 1 }, use: { leases: 1, waiters: 0 }, group: 'g', groupUse: { leases: 1 } },
    })
    expect(listed.keys[1]).not.toHaveProperty('hash')
  })

  test('are set over HTTP and RESP for a key and for a group', async () => {
    await using here = await world()
    await keyOf(here, 'root', { allow: [{ verb: 'admin', prefix: '' }] })
    const id = await keyOf(here, 'k', { group: 'g' })
    const put = (path: string, body: object) => here.ask('PUT', path, body, bearer('root'))
    expect((await put(`/v1/keys/${id}/limits`, { leases: 0 })).status).toBe(200)
    expect((await acquire(here, 'k', 'a')).status).toBe(429)
    expect((await put(`/v1/keys/${id}/limits`, {})).status).toBe(200)
    expect((await put('/v1/key-groups/g', { leases: 1 })).status).toBe(200)
    expect((await acquire(here, 'k', 'a')).status).toBe(201)
    expect((await acquire(here, 'k', 'b')).json.error).toMatchObject({ reason: 'group-limit', group: 'g', limit: 1, used: 1 })
    expect((await put('/v1/key-groups/missing', { leases: 1 })).json.error).toMatchObject({ code: 'NOT_FOUND', reason: 'no-group' })
    expect((await put('/v1/keys/99/limits', { leases: 1 })).status).toBe(404)
    expect((await put(`/v1/keys/${id}/limits`, { leases: -1 })).status).toBe(400)
    expect((await put(`/v1/keys/${id}/limits`, { leases: 1e12 })).json.error).toMatchObject({ reason: 'out-of-range' })
    expect((await put(`/v1/keys/${id}/limits`, { fun: 1 })).status).toBe(400)
    expect((await here.ask('PUT', `/v1/keys/${id}/limits`, {}, bearer('k'))).status).toBe(403)
    using raw = new Raw(here.port)
    await raw.ask('AUTH', 'root')
    expect(await raw.ask('LEASE.KEY', 'LIMIT', 'GROUP', 'g', 'leases', 2)).toBe('OK')
    expect((await acquire(here, 'k', 'b')).status).toBe(201)
    expect(String(await raw.ask('LEASE.KEY', 'LIMIT', 'GROUP', 'g', 'leases'))).toMatch(/INVALID/)
    expect(String(await raw.ask('LEASE.KEY', 'LIMIT', id, 'fun', 3))).toMatch(/INVALID/)
    expect(await raw.ask('LEASE.KEY', 'LIMIT', id)).toBe('OK')
  })
})

describe('requests in a second', () => {
  test('may come in a burst, then at their rate; renewals and releases are not counted, nor other keys', async () => {
    await using here = await world()
    await keyOf(here, 'k', { limits: { requests: 10, burst: 3 } })
    await keyOf(here, 'other')
    const { json: granted } = await acquire(here, 'k', 'a')
    for (const name of ['b', 'c']) expect((await acquire(here, 'k', name)).status).toBe(201)
    const refused = await acquire(here, 'k', 'd')
    expect([refused.status, refused.headers['retry-after']]).toEqual([429, '1'])
    expect(refused.json.error).toMatchObject({ code: 'LIMIT', what: 'requests', limit: 10, burst: 3, retryAfter: 100 })
    expect((await here.ask('POST', `/v1/leases/${granted.lease}/renew`, {}, bearer('k'))).status).toBe(200)
    expect((await acquire(here, 'other', 'd')).status).toBe(201)
    await here.clock.advance(99)
    expect((await acquire(here, 'k', 'e')).status).toBe(429)
    await here.clock.advance(1)
    expect((await acquire(here, 'k', 'e')).status).toBe(201)
    expect((await acquire(here, 'k', 'f')).status).toBe(429)
    using raw = new Raw(here.port)
    await raw.ask('AUTH', 'k')
    const [message, json] = String(await raw.ask('LEASE.ACQUIRE', 'g', 'TTL', '1000')).split('\t')
    expect(message).toMatch(/LIMIT the key k sent more than 10 requests a second, its limit on this server/)
    expect(JSON.parse(json!)).toMatchObject({ what: 'requests', limit: 10, burst: 3, retryAfter: 100 })
  })

  test('of a group are counted together', async () => {
    await using here = await world()
    for (const name of ['one', 'two']) await keyOf(here, name, { group: 'g' })
    await here.server.guarded.propose(OPERATOR, { kind: 'limit', group: 'g', limits: { requests: 1 } })
    expect((await acquire(here, 'one', 'a')).status).toBe(201)
    expect((await acquire(here, 'two', 'b')).json.error).toMatchObject({ code: 'LIMIT', what: 'requests', limit: 1, retryAfter: 1_000 })
  })
})

test('connections of a key are limited, over both wires together, and one that closes makes room', async () => {
  await using here = await place({ http: httpListener() })
  await keyOf(here, 'k', { limits: { connections: 2 } })
  using one = new Raw(here.port)
  using two = new Raw(here.port)
  using three = new Raw(here.port)
  expect(await one.ask('AUTH', 'k')).toBe('OK')
  expect(await one.ask('AUTH', 'k')).toBe('OK')
  expect(await two.ask('AUTH', 'k')).toBe('OK')
  const [message, json] = String(await three.ask('AUTH', 'k')).split('\t')
  expect(message).toMatch(/LIMIT the key k has 2 connections to this server, its limit: close one first/)
  expect(JSON.parse(json!)).toMatchObject({ what: 'connections', limit: 2, used: 2, retryAfter: 1_000 })
  expect(String(await three.ask('LEASE.ACQUIRE', 'x', 'TTL', '1000'))).toMatch(/NOAUTH|UNAUTHENTICATED/)
  const get = () => fetch(`http://127.0.0.1:${here.port}/v1/resources/x`, { headers: { ...bearer('k'), connection: 'close' } })
  const refused = await get()
  expect([refused.status, refused.headers.get('retry-after')]).toEqual([429, '1'])
  two.socket.destroy()
  await expect.poll(async () => (await get()).status).toBe(200)
})

describe('a key that expires', () => {
  test('is refused from that moment on with a sentence, its watches end, and its lease runs out by its term', async () => {
    await using here = await world()
    await keyOf(here, 'k', { expires: here.clock.wall() + 5_000 })
    const { json: granted } = await acquire(here, 'k', 'a')
    const renew = () => here.ask('POST', `/v1/leases/${granted.lease}/renew`, {}, bearer('k'))
    expect((await renew()).status).toBe(200)
    const { guarded } = here.server
    const caller = guarded.access.identify('k')
    const watching = (async () => {
      for await (const _ of guarded.watch(caller, 'zzz', { signal: new AbortController().signal }));
    })()
    const ended = expect(watching).rejects.toMatchObject({
      code: 'UNAUTHENTICATED',
      message: expect.stringMatching(/the key k expired at/),
    })
    await here.clock.advance(4_999)
    expect((await renew()).status).toBe(200)
    await here.clock.advance(1)
    await ended
    const refused = await renew()
    expect([refused.status, refused.json.error.message]).toEqual([401, expect.stringMatching(/the key k expired at .*Z\. Ask an/)])
    expect(() => guarded.access.admit(caller)).toThrow(/expired/)
    expect((await here.lessor.read({ kind: 'resource', resource: 'a' })).value.grants).toHaveLength(1)
    await here.clock.advance(10_001)
    await expect.poll(async () => (await here.lessor.read({ kind: 'resource', resource: 'a' })).value.grants).toHaveLength(0)
  })

  test('expires by the wall clock: a step forward ends it, a step back makes it valid again', async () => {
    const clock = new (class extends ManualClock {
      step = 0
      override wall(): number {
        return super.wall() + this.step
      }
    })()
    await using here = await place({ clock })
    await keyOf(here, 'k', { expires: clock.wall() + DAY })
    const { access } = here.server.guarded
    expect(access.identify('k')).toMatchObject({ name: 'k' })
    clock.step = DAY
    expect(() => access.identify('k')).toThrow(/expired/)
    clock.step = 0
    expect(access.identify('k')).toMatchObject({ name: 'k' })
  })

  test.each([
    ['10m', 201],
    ['2999-01-01T00:00:00Z', 201],
    ['2001-01-01', 400],
    ['0s', 400],
    ['-1d', 400],
    ['soon', 400],
    ['9999-99-99T00:00:00Z', 400],
  ])('is given %s over HTTP: %i', async (expires, status) => {
    await using here = await world()
    const made = await here.ask('POST', '/v1/keys', { name: 'k', allow: [{ verb: 'admin', prefix: '' }], expires })
    expect(made.status, made.text).toBe(status)
    if (status === 201) {
      const { json } = await here.ask('GET', '/v1/keys', undefined, bearer(made.json.key))
      expect(json.keys[0].expires).toMatch(/^\d{4}-.*Z$/)
    }
  })
})

describe('a rotation', () => {
  test('keeps the leases: both secrets renew them during the overlap, then the former one ends with its watches', async () => {
    await using here = await world()
    await keyOf(here, 'root', { allow: [{ verb: 'admin', prefix: '' }] })
    const id = await keyOf(here, 'k')
    const { json: granted } = await acquire(here, 'k', 'a')
    const { guarded } = here.server
    const before = guarded.access.identify('k')
    const rotated = await here.ask('POST', `/v1/keys/${id}/rotate`, { overlap: '1h' }, bearer('root'))
    expect(rotated).toMatchObject({ status: 200, json: { id, key: expect.stringMatching(/^lh_/) } })
    const renew = (secret: string) => here.ask('POST', `/v1/leases/${granted.lease}/renew`, {}, bearer(secret))
    for (const secret of ['k', rotated.json.key]) expect((await renew(secret)).status).toBe(200)
    const again = await here.ask('POST', `/v1/keys/${id}/rotate`, { overlap: '1h' }, bearer('root'))
    expect(again.json.error).toMatchObject({ code: 'INVALID', reason: 'rotating', name: 'k', left: 3_600_000 })
    const { json: listed } = await here.ask('GET', '/v1/keys', undefined, bearer('root'))
    expect(listed.keys[1].formerUntil).toMatch(/Z$/)
    const ended = new Promise<string>(resolve => guarded.access.onRevoked(before, error => resolve(error.message)))
    for (let i = 0; i < 720; i++) {
      await here.clock.advance(5_000)
      if (i < 719 && i % 100 === 0) expect((await renew('k')).status).toBe(200)
      else guarded.propose({ key: id, name: 'k' }, { kind: 'renew', leases: [granted.lease] }).catch(() => {})
    }
    expect(await ended).toMatch(/the key k was rotated, and this secret is not valid any more since .*Use its new secret/)
    expect((await renew('k')).json.error.message).toMatch(/was rotated/)
    expect((await renew(rotated.json.key)).status).toBe(200)
  })

  test('without an overlap ends every former secret at once', async () => {
    await using here = await world()
    await keyOf(here, 'root', { allow: [{ verb: 'admin', prefix: '' }] })
    const id = await keyOf(here, 'k')
    using raw = new Raw(here.port)
    await raw.ask('AUTH', 'root')
    using old = new Raw(here.port)
    await old.ask('AUTH', 'k')
    const [, , , secret = ''] = (await raw.ask('LEASE.KEY', 'ROTATE', id)) as string[]
    expect(String(await old.ask('LEASE.ACQUIRE', 'x', 'TTL', '1000'))).toMatch(/NOAUTH|UNAUTHENTICATED/)
    expect((await acquire(here, 'k', 'a')).status).toBe(401)
    expect((await acquire(here, secret, 'a')).status).toBe(201)
    expect((await here.ask('POST', '/v1/keys/99/rotate', {}, bearer('root'))).status).toBe(404)
    expect((await here.ask('POST', `/v1/keys/${id}/rotate`, {}, bearer(secret))).status).toBe(403)
    expect((await here.ask('POST', `/v1/keys/${id}/rotate`, { op: 'x' }, bearer('root'))).status).toBe(400)
  })
})

test('a revoked key keeps its leases until their terms are over, and they count for its group no more', async () => {
  await using here = await world()
  const [one] = [await keyOf(here, 'one', { group: 'g' }), await keyOf(here, 'two', { group: 'g' })]
  await here.server.guarded.propose(OPERATOR, { kind: 'limit', group: 'g', limits: { leases: 1 } })
  expect((await acquire(here, 'one', 'a')).status).toBe(201)
  expect((await acquire(here, 'two', 'b')).status).toBe(429)
  await here.server.guarded.propose(OPERATOR, { kind: 'unkey', id: one! })
  expect((await acquire(here, 'two', 'a')).status).toBe(409)
  expect((await acquire(here, 'two', 'b')).status).toBe(201)
})

test('metrics count requests, refusals, connections, leases, waiters and entries of each key, and sum the newest of many', async () => {
  await using here = await world()
  await keyOf(here, 'k')
  await acquire(here, 'k', 'a')
  await acquire(here, 'k', 'a')
  using raw = new Raw(here.port)
  await raw.ask('AUTH', 'k')
  await raw.ask('LEASE.ACQUIRE', 'a', 'TTL', '1000')
  for (let i = 0; i < 101; i++) await keyOf(here, `more-${i}`)
  await acquire(here, 'more-0', 'b')
  for (const name of ['more-99', 'more-100']) await acquire(here, name, `of/${name}`)
  const { text } = await here.ask('GET', '/metrics', undefined, bearer('k'))
  const series = text.split('\n').filter(line => line.startsWith('leasehold_key_'))
  expect(series).toEqual(
    expect.arrayContaining([
      'leasehold_key_requests_total{key="k",code="OK"} 2',
      'leasehold_key_requests_total{key="k",code="HELD"} 2',
      'leasehold_key_requests_total{key="other",code="OK"} 2',
      'leasehold_key_leases{key="k"} 1',
      'leasehold_key_leases{key="more-0"} 1',
      'leasehold_key_leases{key="other"} 2',
      'leasehold_key_waiters{key="k"} 0',
      'leasehold_key_entries{key="k"} 0',
      'leasehold_key_bytes{key="k"} 0',
    ]),
  )
  expect(series.filter(line => line.startsWith('leasehold_key_leases'))).toHaveLength(101)
  // That of the raw connection, and those of the requests over HTTP that are still open.
  expect(Number(/leasehold_key_connections\{key="k"\} (\d+)/.exec(text)?.[1])).toBeGreaterThanOrEqual(1)
  expect(series.filter(line => line.startsWith('leasehold_key_connections')).length).toBeLessThanOrEqual(101)
})
