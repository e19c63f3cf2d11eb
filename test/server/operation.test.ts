/** `op` over both wires: the same text for the same request is one operation. For another request it is refused. */
import { describe, expect, test } from 'vitest'
import { world } from '../support/http-world.ts'
import { place, Raw } from '../support/resp-place.ts'

const said = (answer: unknown) => (answer instanceof Error ? answer.message : JSON.stringify(answer))

describe('over HTTP, an op that was used', () => {
  test('is refused for another body, and answered for the same body with another wait', async () => {
    await using here = await world()
    const acquire = (body: object) => here.ask('POST', '/v1/leases', { resources: ['o/a'], holder: 'A', op: '1', ...body })
    const first = await acquire({})
    expect(first.status).toBe(201)
    for (const other of [{ resources: ['o/b'] }, { holder: 'B' }, { ttl: '31s' }, { mode: 'shared' }]) {
      const reply = await acquire(other)
      expect([reply.status, reply.json.error.code], JSON.stringify(other)).toEqual([400, 'INVALID'])
      expect(reply.json.error.reason).toBe('op-reused')
    }
    for (const same of [{}, { ttl: 30_000 }, { wait: '5s' }]) expect((await acquire(same)).json.lease).toBe(first.json.lease)
    expect((await here.ask('GET', '/v1/resources/o/b')).json.grants).toEqual([])
  })

  test('for a wait that timed out gets TIMEOUT again; for a place that was revoked it gets GONE', async () => {
    await using here = await world()
    const acquire = (body: object) => here.ask('POST', '/v1/leases', { resources: ['o/a'], holder: 'B', wait: 500, ...body })
    await here.ask('POST', '/v1/leases', { resources: ['o/a'], holder: 'A' })
    const timedOut = acquire({ op: '1' })
    await expect.poll(() => here.server.guarded.waiting).toBe(1)
    await here.clock.advance(600)
    const { status, text } = await timedOut
    expect(status).toBe(408)
    for (let i = 0; i < 2; i++) expect(await acquire({ op: '1' })).toMatchObject({ status, text })
    const revoked = acquire({ op: '2' })
    await expect.poll(() => here.server.guarded.waiting).toBe(1)
    await here.ask('POST', '/v1/revoke', { holder: 'B' })
    expect((await revoked).status).toBe(410)
    for (let i = 0; i < 2; i++) expect((await acquire({ op: '2' })).status).toBe(410)
  })

  test('is refused for another lease, policy or key', async () => {
    await using here = await world()
    const [a, b] = await Promise.all(
      ['a', 'b'].map(async name => (await here.ask('POST', '/v1/leases', { resources: [name], holder: 'A' })).json.lease),
    )
    const asked = async (method: string, path: string, body?: object) => (await here.ask(method, path, body)).status
    expect(await asked('DELETE', `/v1/leases/${a}?op=1`)).toBe(204)
    expect(await asked('DELETE', `/v1/leases/${b}?op=1`)).toBe(400)
    expect(await asked('DELETE', `/v1/leases/${a}?op=1`)).toBe(204)
    expect(await asked('PUT', '/v1/policies/jobs', { capacity: 2, op: '1' })).toBe(200)
    expect(await asked('PUT', '/v1/policies/jobs', { capacity: 3, op: '1' })).toBe(400)
    const key = (hash: string) => asked('POST', '/v1/keys', { name: 'root', allow: [{ verb: 'admin', prefix: '' }], hash, op: '1' })
    expect(await key('a'.repeat(64))).toBe(201)
    expect((await here.ask('GET', `/v1/leases/${b}`)).status, 'there are keys now').toBe(401)
  })
})

describe('over RESP, an op that was used', () => {
  test('for an acquire is refused for another acquire, and names a separate operation for a break', async () => {
    await using here = await place()
    using raw = new Raw(here.port)
    const first = said(await raw.ask('LEASE.ACQUIRE', 'op/x', 'TTL', '60000', 'OP', 'k1'))
    expect(said(await raw.ask('LEASE.ACQUIRE', 'op/y', 'TTL', '60000', 'OP', 'k1'))).toMatch(/^INVALID .*used for another command/)
    expect(said(await raw.ask('LEASE.ACQUIRE', 'op/x', 'TTL', '60000', 'OP', 'k1'))).toBe(first)
    expect(said(await raw.ask('LEASE.BREAK', 'op/x', 'OP', 'k1'))).not.toBe(first)
    const { value } = await here.lessor.read({ kind: 'resource', resource: 'op/x' })
    expect(value.grants.map(({ status }) => status)).toEqual(['frozen'])
    expect(said(await raw.ask('LEASE.BREAK', 'op/y', 'OP', 'k1'))).toMatch(/^INVALID .*used for another command/)
  })

  test('for a wait that timed out gets TIMEOUT again', async () => {
    await using here = await place()
    using raw = new Raw(here.port)
    const asked = ['LEASE.ACQUIRE', 'op/x', 'TTL', '60000', 'HOLDER', 'B', 'WAIT', '20', 'OP', 'k1'] as const
    await raw.ask('LEASE.ACQUIRE', 'op/x', 'TTL', '60000', 'HOLDER', 'A')
    const first = said(await raw.ask(...asked))
    expect(first).toMatch(/^TIMEOUT /)
    expect(said(await raw.ask(...asked))).toBe(first)
  })

  test('is the same operation on another connection, which has another default holder', async () => {
    await using here = await place()
    using one = new Raw(here.port)
    using two = new Raw(here.port)
    const words = ['op/x', 'TTL', '60000', 'OP', 'k1'] as const
    expect(said(await two.ask('LEASE.ACQUIRE', ...words))).toBe(said(await one.ask('LEASE.ACQUIRE', ...words)))
    expect(said(await two.ask('LEASE.ACQUIRE', ...words, 'HOLDER', 'me'))).toMatch(/^INVALID /)
  })
})

test('a key that may only read cannot open a lease, with or without an op', async () => {
  await using here = await world()
  const [mine, none] = [await here.key('mine', [{ verb: 'acquire', prefix: '' }]), await here.key('none', [{ verb: 'read', prefix: '' }])]
  const acquire = (secret: string, op: string) =>
    here.ask('POST', '/v1/leases', { resources: [], holder: 'h', op }, { authorization: `Bearer ${secret}` })
  expect((await acquire(mine, 'pay')).status).toBe(201)
  expect((await acquire(none, 'pay')).status, 'it may not even open a lease').toBe(403)
})
