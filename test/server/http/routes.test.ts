import { request } from 'node:http'
import { Compile } from 'typebox/compile'
import { expect, test } from 'vitest'
import { turn } from '../../../src/clock.ts'
import { policyRules } from '../../../src/kernel/command-table.ts'
import { openApi } from '../../../src/server/http/openapi.ts'
import { Router } from '../../../src/server/http/router.ts'
import { ROUTES } from '../../../src/server/http/routes.ts'
import { type Reply, type World, world } from '../../support/http-world.ts'

const router = new Router(ROUTES)

/** Sends a request, and checks every successful response against the schema of its route. */
async function ask(here: World, method: string, path: string, body?: unknown, headers?: Record<string, string>): Promise<Reply> {
  const reply = await here.ask(method, path, body, headers)
  const match = router.find(method, path.split('?')[0]!)
  if (reply.status >= 400) {
    expect(reply.json.error).toMatchObject({ code: expect.stringMatching(/^[A-Z_]+$/), message: expect.stringMatching(/.{10}/) })
    expect(reply.headers['content-type']).toBe('application/json')
  } else if (match !== undefined && 'route' in match && match.route.response !== undefined) {
    expect(reply.status).toBe(match.route.status ?? 200)
    expect(Compile(match.route.response).Errors(reply.json)).toEqual([])
  }
  expect(reply.headers['x-content-type-options']).toBe('nosniff')
  expect(Object.keys(reply.headers).filter(name => name.startsWith('access-control'))).toEqual([])
  return reply
}

const acquire = (here: World, holder: string, resources: readonly string[], more: object = {}) =>
  ask(here, 'POST', '/v1/leases', { resources, holder, ttl: '30s', ...more })

test('a lease is acquired, shown, renewed, refused to other holders, released once, and kept in the history', async () => {
  await using here = await world()
  const { json: lease, status, headers } = await acquire(here, 'ann', ['jobs/nightly', 'jobs/b'], { labels: { zone: 'x' } })
  expect(status).toBe(201)
  expect(lease).toMatchObject({ holder: 'ann', ttl: 30_000, waited: false, token: lease.tokens['jobs/nightly'] })
  expect(lease.tokens['jobs/b']).toBe(lease.token + 1)
  expect(Date.parse(lease.expiresAt)).toBe(here.clock.wall() + 30_000)
  expect(headers['leasehold-revision']).toBe(String(lease.revision))
  await here.clock.advance(10_000)
  const held = await acquire(here, 'bob', ['jobs/nightly'])
  expect(held.status).toBe(409)
  expect(held.json.error).toMatchObject({ code: 'HELD', resource: 'jobs/nightly', holder: 'ann', queue: 0, since: 1_700_000_000_000 })
  expect(held.json.error.remaining).toBeGreaterThan(19_000)
  expect(held.json.error.remaining).toBeLessThanOrEqual(20_000)
  const renewed = (await ask(here, 'POST', `/v1/leases/${lease.lease}/renew`)).json
  const expiresAt = new Date(here.clock.wall() + 30_000).toISOString()
  expect(renewed).toEqual({
    ttl: 30_000,
    expiresAt,
    renewed: [{ lease: lease.lease, ttl: 30_000 }],
    gone: [],
    revision: lease.revision,
  })
  expect((await ask(here, 'POST', '/v1/leases/renew', { leases: [lease.lease, 7] })).json).toMatchObject({
    renewed: [{ lease: lease.lease }],
    gone: [7],
  })
  const shown = { holder: 'ann', labels: { zone: 'x' }, status: 'live', expiresAt, grants: [{ expiresAt }, { expiresAt }] }
  expect((await ask(here, 'GET', `/v1/leases/${lease.lease}`)).json).toMatchObject(shown)
  expect((await ask(here, 'GET', '/v1/leases?holder=ann&prefix=jobs/')).json.leases).toHaveLength(1)
  expect((await ask(here, 'GET', '/v1/leases?holder=bob')).json.leases).toEqual([])
  expect((await ask(here, 'GET', '/v1/resources/jobs/nightly')).json.grants).toMatchObject([
    { holder: 'ann', token: lease.token, expiresAt },
  ])
  expect((await ask(here, 'GET', '/v1/resources?prefix=jobs')).json.resources).toHaveLength(2)
  expect((await ask(here, 'GET', '/v1/resources?limit=1')).json).toMatchObject({ more: true })
  expect((await ask(here, 'DELETE', `/v1/leases/${lease.lease}?resource=jobs/b`)).status).toBe(204)
  const released = await ask(here, 'DELETE', `/v1/leases/${lease.lease}`)
  expect([released.status, released.text]).toEqual([204, ''])
  expect((await ask(here, 'DELETE', `/v1/leases/${lease.lease}`)).status).toBe(410)
  expect((await ask(here, 'POST', `/v1/leases/${lease.lease}/renew`)).status).toBe(410)
  expect((await ask(here, 'GET', `/v1/leases/${lease.lease}`)).status).toBe(410)
  expect((await ask(here, 'GET', '/v1/history/jobs/nightly')).json.history).toMatchObject([{ holder: 'ann', cause: 'released' }])
})

test('waiters are granted in turn, or get TIMEOUT', async () => {
  await using here = await world()
  const { json: first } = await acquire(here, 'ann', ['a'], { ttl: '10m' })
  await ask(here, 'POST', `/v1/leases/${first.lease}/renew`)
  const timedOut = acquire(here, 'eve', ['a'], { wait: 500 })
  await until(() => here.server.guarded.waiting === 1)
  await here.clock.advance(600)
  expect(await timedOut).toMatchObject({ status: 408, json: { error: { code: 'TIMEOUT' } } })
  const granted = acquire(here, 'bob', ['a'], { wait: '5m' })
  await until(() => here.server.guarded.waiting === 1)
  expect((await ask(here, 'GET', '/v1/resources/a')).json.queue).toMatchObject([{ holder: 'bob', position: 0 }])
  await ask(here, 'DELETE', `/v1/leases/${first.lease}`)
  expect(await granted).toMatchObject({ status: 201, json: { holder: 'bob', waited: true } })
})

test('a waiter loses its place when its connection closes', async () => {
  await using here = await world()
  await acquire(here, 'ann', ['a'])
  const body = JSON.stringify({ resources: ['a'], holder: 'bob', wait: '5m' })
  const waiting = request({ port: here.port, method: 'POST', path: '/v1/leases', headers: { 'content-type': 'application/json' } })
  waiting.on('error', () => {})
  waiting.end(body)
  await until(() => here.server.guarded.waiting === 1)
  waiting.destroy()
  // The server sees only that the sending side is closed. It probes the client, and the second probe fails.
  await until(async () => {
    await here.clock.advance(100)
    return here.server.guarded.waiting === 0
  })
  await until(async () => (await ask(here, 'GET', '/v1/resources/a')).json.queue.length === 0)
})

test('a request that is repeated with its op has one effect and one answer, even if it was refused', async () => {
  await using here = await world()
  const { json: first, text } = await acquire(here, 'ann', ['a'], { op: 'x1' })
  expect((await acquire(here, 'ann', ['a'], { op: 'x1' })).text).toBe(text)
  const held = await acquire(here, 'bob', ['a'], { op: 'x2' })
  expect(held.status).toBe(409)
  // One op for two kinds of requests is two operations.
  expect((await ask(here, 'DELETE', `/v1/leases/${first.lease}?op=x1`)).status).toBe(204)
  expect((await ask(here, 'DELETE', `/v1/leases/${first.lease}?op=x1`)).status).toBe(204)
  expect((await acquire(here, 'bob', ['a'], { op: 'x2' })).json.error).toMatchObject({ code: 'HELD', holder: 'ann' })
  expect((await acquire(here, 'bob', ['a'], { op: 'x3' })).status).toBe(201)
})

test('names are the rest of the path, decoded exactly once', async () => {
  await using here = await world()
  for (const name of ['a/b c', 'a%2Fb', '%', 'ü/☃', 'a?b#c&d=e', '__proto__', 'constructor/x', 'a+b', "<script>'"]) {
    const { json } = await acquire(here, 'ann', [name])
    expect(json.tokens[name], name).toBe(json.token)
    const path = name.split('/').map(encodeURIComponent).join('/')
    const { json: shown } = await ask(here, 'GET', `/v1/resources/${path}`)
    expect([shown.resource, shown.grants.length]).toEqual([name, 1])
  }
  expect((await ask(here, 'GET', '/v1/resources/a%252Fb')).json.resource).toBe('a%2Fb')
  for (const bad of ['%', '%zz', '%ff', '%c3%28', 'a//b', '../a', 'a/../b', 'a/%2e%2e/b', '%00', 'a%0ab', 'a/', `${'x'.repeat(513)}`])
    expect((await ask(here, 'GET', `/v1/resources/${bad}`)).json.error.code, bad).toBe('INVALID')
})

test('a text that only looks like a repeated field is accepted', async () => {
  await using here = await world()
  for (const said of ['a":1,"a":2', '\\', '\\":', '":"', '', ' : ', '"', '{"a":1,"a":2}']) {
    const { json, status } = await acquire(here, 'ann', ['a'], { labels: { a: said, [said]: 'b', c: ':' } })
    expect(status, said).toBe(201)
    expect((await ask(here, 'GET', `/v1/leases/${json.lease}`)).json.labels[said]).toBe('b')
    await ask(here, 'DELETE', `/v1/leases/${json.lease}`)
  }
})

test('break, recall, revoke and transfer work, and the audit names the operator', async () => {
  await using here = await world()
  const { json: a } = await acquire(here, 'ann', ['a'])
  const { json: b } = await acquire(here, 'ann', ['b'])
  await acquire(here, 'ann', ['c'])
  expect((await ask(here, 'POST', '/v1/recall', { resource: 'a' })).status).toBe(200)
  expect((await ask(here, 'POST', '/v1/break', { resource: 'a', after: '10s', by: 'ops' })).status).toBe(200)
  expect((await ask(here, 'POST', '/v1/break', { resource: 'free' })).status).toBe(404)
  const { json: moved } = await ask(here, 'POST', '/v1/transfer', { lease: b.lease, to: 'bob', stopped: true })
  expect((await ask(here, 'GET', '/v1/resources/b')).json.grants).toMatchObject([{ holder: 'bob', lease: moved.lease }])
  expect((await ask(here, 'POST', '/v1/revoke', { lease: a.lease, prefix: 'c' })).json.error.code).toBe('INVALID')
  expect((await ask(here, 'POST', '/v1/revoke', { prefix: 'c' })).status).toBe(200)
  expect((await ask(here, 'GET', '/v1/resources/c')).json).toMatchObject({ frozen: true, grants: [{ status: 'frozen' }] })
  expect((await ask(here, 'POST', '/v1/revoke', { holder: 'ann', force: true })).status).toBe(200)
  expect(here.audited.map(({ command }) => command.kind)).toEqual(['recall', 'break', 'break', 'transfer', 'revoke', 'revoke'])
})

test('every rule that is a duration may be a text', async () => {
  await using here = await world()
  const durations = Object.entries(policyRules.fields).flatMap(([rule, { type }]) => (type.surface === 'duration' ? [rule] : []))
  for (const rule of durations)
    expect((await ask(here, 'PUT', '/v1/policies/gpu', { [rule]: '5m' })).json.rules, rule).toEqual({ [rule]: 300_000 })
})

test('policies, entries and fences are set, read and deleted', async () => {
  await using here = await world()
  expect((await ask(here, 'PUT', '/v1/policies/gpu/', { capacity: 2, ttlMax: '5m' })).json).toMatchObject({
    prefix: 'gpu',
    rules: { ttlMax: 300_000 },
  })
  expect((await ask(here, 'PUT', '/v1/policies/', { maxLife: '1d' })).json.prefix).toBe('')
  expect((await ask(here, 'PUT', '/v1/policies/gpu', { color: 1 })).json.error.message).toContain('color')
  expect((await ask(here, 'GET', '/v1/policies')).json.policies).toHaveLength(2)
  expect((await ask(here, 'GET', '/v1/policies/gpu')).json.rules).toEqual({ capacity: 2, ttlMax: 300_000 })
  expect((await ask(here, 'GET', '/v1/policies/none')).status).toBe(404)
  expect((await ask(here, 'DELETE', '/v1/policies/')).status).toBe(204)
  const { json: lease } = await acquire(here, 'ann', ['gpu/0'], { units: 2 })
  expect((await acquire(here, 'bob', ['gpu/0'], { ttl: '6m' })).status).toBe(400)
  expect((await ask(here, 'PUT', '/v1/entries/services/a/1', { lease: lease.lease, value: 'up' })).status).toBe(200)
  expect((await ask(here, 'GET', '/v1/entries/services/a/1')).json).toMatchObject({ value: 'up', holder: 'ann' })
  expect((await ask(here, 'GET', '/v1/entries?prefix=services')).json.entries).toHaveLength(1)
  expect((await ask(here, 'DELETE', '/v1/entries/services/a/1?lease=7')).status).toBe(409)
  expect((await ask(here, 'DELETE', '/v1/entries/services/a/1')).status).toBe(204)
  expect((await ask(here, 'GET', '/v1/entries/services/a/1')).status).toBe(404)
  const { json: newer } = await acquire(here, 'bob', ['x'])
  const fence = (token: number) => ask(here, 'POST', '/v1/fence', { resource: 'x', token })
  expect((await fence(newer.token)).json).toMatchObject({ accepted: true, highest: newer.token })
  expect((await fence(lease.token)).json.error).toMatchObject({ code: 'STALE', highest: newer.token })
})

test('a key is created, shown once, listed without its secret, required from then on, and revoked', async () => {
  await using here = await world()
  const { json: created } = await ask(here, 'POST', '/v1/keys', { name: 'root', allow: [{ verb: 'admin', prefix: '' }] })
  expect(created.key).toMatch(/^lh_[\w-]{43}$/)
  expect((await ask(here, 'GET', '/v1/keys')).status).toBe(401)
  const bearer = { authorization: `Bearer ${created.key}` }
  const listed = await ask(here, 'GET', '/v1/keys', undefined, bearer)
  expect(listed.json.keys).toEqual([
    { id: created.id, name: 'root', allow: [{ verb: 'admin', prefix: '' }], use: { leases: 0, waiters: 0, entries: 0, bytes: 0 } },
  ])
  expect((await ask(here, 'POST', '/v1/keys', { name: 'ci', allow: [], op: 'k' }, bearer)).json.error.message).toContain('hash')
  const hashed = { name: 'ci', allow: [], op: 'k', hash: 'a'.repeat(64) }
  const { json: ci } = await ask(here, 'POST', '/v1/keys', hashed, bearer)
  expect(ci.key).toBeUndefined()
  expect((await ask(here, 'POST', '/v1/keys', hashed, bearer)).json.id).toBe(ci.id)
  expect((await ask(here, 'DELETE', `/v1/keys/${ci.id}`, undefined, bearer)).status).toBe(204)
  expect((await ask(here, 'DELETE', `/v1/keys/${created.id}`, undefined, bearer)).json.error.message).toContain('the last key')
  expect((await ask(here, 'GET', '/v1/keys', undefined, bearer)).json.keys).toHaveLength(1)
})

test('a read is at least as new as its revision header', async () => {
  await using here = await world()
  const { json } = await acquire(here, 'ann', ['a'])
  expect((await ask(here, 'GET', '/v1/resources/a?consistent=true')).json.revision).toBe(json.revision)
  const seen = (revision: number | string) => ask(here, 'GET', '/v1/resources/a', undefined, { 'leasehold-revision': String(revision) })
  expect((await seen(json.revision)).status).toBe(200)
  expect(await seen(json.revision + 5)).toMatchObject({ status: 503, headers: { 'retry-after': '1' } })
  expect((await seen('soon')).status).toBe(400)
})

test('an error names the wrong field', async () => {
  await using here = await world()
  const wrong = async (body: unknown) => (await ask(here, 'POST', '/v1/leases', body)).json.error.message
  expect(await wrong({ resources: ['a'] })).toBe('the body: holder is missing')
  expect(await wrong({ resources: ['a'], holder: 'x', colour: 1 })).toContain('there is no field colour')
  expect(await wrong({ resources: 'a', holder: 'x' })).toBe("the body: resources must be array, not 'a'")
  expect(await wrong({ resources: ['a'], holder: 'x', mode: 'both' })).toContain('must be one of exclusive, shared')
  expect(await wrong({ resources: ['a'], holder: 'x', ttl: '30' })).toContain("write '30s' for seconds")
  expect(await wrong({ resources: ['a'], holder: 'x', entries: [{ key: 'a', value: 'b', c: 1 }] })).toContain('entries.0.c')
  expect(await wrong('[]')).toContain('must be object')
  expect(await wrong('{"resources":["a"],"holder":"x","ttl":9007199254740993}')).toContain('ttl must be')
  expect((await ask(here, 'GET', '/v1/resources?colour=1')).json.error.message).toContain('The parameters are prefix, consistent, limit')
  expect((await ask(here, 'GET', '/v1/resources?prefix=a&prefix=b')).json.error.message).toContain('twice')
  expect((await ask(here, 'GET', '/v1/leases/abc')).status).toBe(400)
  for (const prefix of ['/a', 'a//b', 'a/../b'])
    for (const list of ['leases', 'resources', 'entries'])
      expect((await ask(here, 'GET', `/v1/${list}?prefix=${prefix}`)).json.error, list).toMatchObject({ code: 'INVALID' })
  for (const path of ['/v1/services/', '/v1/services/..', '/v1/services/a/b/c', '/v1/resources/'])
    expect((await ask(here, 'GET', path)).json.error.code, path).toBe('INVALID')
  expect((await ask(here, 'GET', '/v1/nothing')).status).toBe(404)
  expect(await ask(here, 'PATCH', '/v1/leases')).toMatchObject({ status: 405, headers: { allow: 'POST, GET' } })
  expect((await ask(here, 'DELETE', '/v1/leases/1', { resource: 'a' })).json.error.message).toContain('takes no body')
})

test('the server is healthy while it runs, and ready while the log can be read to its end', async () => {
  await using here = await world()
  expect((await ask(here, 'GET', '/healthz')).json).toEqual({ ok: true })
  expect((await ask(here, 'GET', '/readyz')).json).toEqual({ ok: true })
  await here.lessor[Symbol.asyncDispose]()
  expect((await ask(here, 'GET', '/healthz')).status).toBe(200)
  expect((await ask(here, 'GET', '/readyz')).status).toBe(503)
})

test('metrics count requests and events, and labels contain no client text', async () => {
  await using here = await world()
  const { json } = await acquire(here, 'ann-with-a-name', ['secret/resource'])
  await acquire(here, 'bob', ['secret/resource'])
  await ask(here, 'DELETE', `/v1/leases/${json.lease}`)
  await here.ask('GET', '/v1/no/such/route')
  const { text, headers } = await here.ask('GET', '/metrics')
  expect(headers['content-type']).toBe('text/plain; version=0.0.4; charset=utf-8')
  for (const line of [
    'leasehold_events_total{type="granted"} 1',
    'leasehold_events_total{type="released"} 1',
    'leasehold_requests_total{wire="http",asked="POST /v1/leases",code="HELD"} 1',
    'leasehold_requests_total{wire="http",asked="none",code="NOT_FOUND"} 1',
    'leasehold_leases{state="live"} 0',
    'leasehold_store_up 1',
    'leasehold_commit_seconds_bucket{le="+Inf"} 2',
    'leasehold_commit_seconds_count 2',
    'leasehold_connections 1',
  ])
    expect(text).toContain(`${line}\n`)
  for (const name of ['stalls', 'lateness', 'watches', 'waits', 'appends']) expect(text).toMatch(new RegExp(`^leasehold_${name} `, 'm'))
  expect(text).toContain('nodejs_eventloop_lag_p99_seconds')
  expect(text).not.toMatch(/ann-with|secret\/resource|no\/such/)
})

test('every route is documented', async () => {
  await using here = await world()
  const { json } = await here.ask('GET', '/openapi.json')
  expect(json).toEqual(JSON.parse(JSON.stringify(openApi(ROUTES))))
  expect(json.openapi).toBe('3.1.0')
  const ids = new Set<string>()
  for (const { method, path, body, query } of ROUTES) {
    const found = json.paths[path][method.toLowerCase()]
    ids.add(found.operationId)
    // Newer versions of Envoy add fields to their requests: the one schema that is not ours is open.
    const closed = path.startsWith('/v3/')
    if (body !== undefined) expect(found.requestBody.content['application/json'].schema.additionalProperties).toBe(closed)
    for (const name of Object.keys(query?.properties ?? {}))
      expect(found.parameters.map((given: { name: string }) => given.name)).toContain(name)
  }
  expect(ids.size).toBe(ROUTES.length)
})

/** Waits for something that happens concurrently, bounded by the timeout of the test. */
async function until(is: () => boolean | Promise<boolean>): Promise<void> {
  while (!(await is())) await turn()
}
