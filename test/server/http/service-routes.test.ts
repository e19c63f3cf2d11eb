import { expect, test } from 'vitest'
import { turn } from '../../../src/clock.ts'
import { LeaseError } from '../../../src/errors.ts'
import { propose } from '../../../src/lessor/propose.ts'
import { anonymousCaller } from '../../../src/server/access-control.ts'
import { httpListener } from '../../../src/server/http/http-listener.ts'
import { limitsFrom } from '../../../src/server/limits.ts'
import { heartbeat } from '../../../src/server/registry/registration-requests.ts'
import { serve } from '../../../src/server/serve.ts'
import { ask, type World, world } from '../../support/http-world.ts'

const planner = { address: 'http://10.0.0.7:8080', capabilities: ['plan'], tags: ['blue'], zone: 'eu/fra', ttl: '10s' }

/** Waits until the catalog has this state. */
async function settled(): Promise<void> {
  for (let i = 0; i < 5; i++) await turn()
}

async function names(here: World, path: string): Promise<string[]> {
  await settled()
  const { json } = await here.ask('GET', path)
  return json.instances.map(({ instance }: { instance: string }) => instance)
}

test('an instance is listed while it sends heartbeats, suspect when they stop, and gone after its grace', async () => {
  await using here = await world()
  const made = await here.ask('PUT', '/v1/services/planner/a', planner)
  expect(made.status).toBe(201)
  expect(made.json).toMatchObject({ ttl: 10_000, lease: expect.any(Number) })
  expect((await here.ask('GET', '/v1/services/planner/a')).json).toMatchObject({ service: 'planner', instance: 'a', status: 'passing' })
  for (let i = 0; i < 5; i++) {
    await here.clock.advance(6_000)
    expect((await here.ask('POST', '/v1/services/planner/a/heartbeat')).status).toBe(200)
  }
  await here.clock.advance(11_000)
  await settled()
  expect((await here.ask('GET', '/v1/services/planner')).json.instances).toMatchObject([{ instance: 'a', status: 'suspect' }])
  await here.clock.advance(6_000)
  expect(await names(here, '/v1/services/planner')).toEqual([])
  const late = await here.ask('POST', '/v1/services/planner/a/heartbeat', {})
  expect(late).toMatchObject({ status: 410, json: { error: { code: 'GONE', service: 'planner', instance: 'a' } } })
})

test('a repeated registration changes the entry and keeps the lease; another ttl creates a new lease', async () => {
  await using here = await world()
  const first = await here.ask('PUT', '/v1/services/planner/a', planner)
  const second = await here.ask('PUT', '/v1/services/planner/a', { ...planner, tags: ['green'], load: 3 })
  expect(second).toMatchObject({ status: 200, json: { lease: first.json.lease } })
  await settled()
  expect((await here.ask('GET', '/v1/services/planner/a')).json).toMatchObject({ tags: ['green'], load: 3 })
  const third = await here.ask('PUT', '/v1/services/planner/a', { ...planner, ttl: '20s' })
  expect(third.status).toBe(201)
  expect(third.json.lease).toBeGreaterThan(first.json.lease)
  expect((await here.ask('GET', `/v1/leases/${first.json.lease}`)).status).toBe(410)
})

test('a heartbeat writes status and load only if they changed', async () => {
  await using here = await world()
  await here.ask('PUT', '/v1/services/planner/a', planner)
  const beat = (body: object) => here.ask('POST', '/v1/services/planner/a/heartbeat', body)
  await beat({ status: 'warning', load: 5 })
  const { revision } = (await here.ask('GET', '/v1/services/planner/a?consistent=true')).json
  await beat({ status: 'warning', load: 5 })
  await beat({})
  expect((await here.ask('GET', '/v1/services/planner/a?consistent=true')).json).toMatchObject({ revision, status: 'warning', load: 5 })
  await beat({ status: 'draining' })
  expect((await here.ask('GET', '/v1/services/planner/a?consistent=true')).json).toMatchObject({ status: 'draining', load: 5 })
})

test('heartbeats of many instances report which were renewed, gone and stale', async () => {
  await using here = await world()
  for (const instance of ['a', 'b', 'c']) await here.ask('PUT', `/v1/services/worker/${instance}`, { ...planner, generation: 2 })
  await settled()
  await here.ask('DELETE', '/v1/services/worker/b?generation=2')
  const instances = [
    { service: 'worker', instance: 'a', generation: 2 },
    { service: 'worker', instance: 'b', generation: 2 },
    { service: 'worker', instance: 'c', generation: 1 },
    { service: 'worker', instance: 'never', generation: 1 },
  ]
  const { json, status } = await here.ask('POST', '/v1/heartbeats', { instances })
  expect(status).toBe(200)
  expect(json.renewed).toMatchObject([{ service: 'worker', instance: 'a', ttl: 10_000 }])
  expect(json.gone).toEqual([
    { service: 'worker', instance: 'b' },
    { service: 'worker', instance: 'never' },
  ])
  expect(json.stale).toEqual([{ service: 'worker', instance: 'c', generation: 2 }])
})

test('an older generation changes nothing, a newer one takes over', async () => {
  await using here = await world()
  await here.ask('PUT', '/v1/services/planner/a', { ...planner, generation: 2 })
  for (const [method, path, body] of [
    ['PUT', '/v1/services/planner/a', { ...planner, generation: 1 }],
    ['POST', '/v1/services/planner/a/heartbeat', { generation: 1 }],
    ['DELETE', '/v1/services/planner/a?generation=1', undefined],
  ] as const)
    expect(await here.ask(method, path, body)).toMatchObject({ status: 409, json: { error: { code: 'STALE', generation: 2 } } })
  expect((await here.ask('PUT', '/v1/services/planner/a', { ...planner, generation: 3, address: 'http://new:1' })).status).toBe(201)
  await settled()
  expect((await here.ask('GET', '/v1/services/planner/a')).json).toMatchObject({ generation: 3, address: 'http://new:1' })
})

test('an instance without a generation neither renews, changes nor removes one with a generation', async () => {
  await using here = await world()
  const put = (generation: number) => here.ask('PUT', '/v1/services/planner/a', { ...planner, generation })
  const { lease } = (await put(1)).json
  const newer = (await put(2)).json
  expect(newer.lease).not.toBe(lease)
  await settled()
  const stale = { status: 409, json: { error: { code: 'STALE', generation: 2 } } }
  const beat = (body: object) => here.ask('POST', '/v1/services/planner/a/heartbeat', body)
  expect(await beat({ status: 'draining' })).toMatchObject(stale)
  expect(await beat({})).toMatchObject(stale)
  expect(await here.ask('DELETE', '/v1/services/planner/a')).toMatchObject(stale)
  expect(await here.ask('DELETE', '/v1/services/planner/a?op=x')).toMatchObject(stale)
  const many = await here.ask('POST', '/v1/heartbeats', { instances: [{ service: 'planner', instance: 'a', status: 'draining' }] })
  expect(many.json).toMatchObject({ renewed: [], stale: [{ service: 'planner', instance: 'a', generation: 2 }] })
  expect((await here.ask('GET', '/v1/services/planner/a?consistent=true')).json).toMatchObject({ status: 'passing', lease: newer.lease })
  // It names its generation, or renews its own lease.
  expect((await beat({ generation: 2, status: 'draining' })).status).toBe(200)
  expect((await here.ask('POST', `/v1/leases/${newer.lease}/renew`)).status).toBe(200)
  expect((await here.ask('DELETE', '/v1/services/planner/a?generation=2')).status).toBe(204)
  // Without any generation, none is needed.
  expect((await here.ask('PUT', '/v1/services/planner/a', planner)).status).toBe(201)
  expect((await beat({ status: 'draining' })).status).toBe(200)
  expect((await here.ask('DELETE', '/v1/services/planner/a')).status).toBe(204)
})

test('lists are filtered by capability, tag and status, and sorted by distance', async () => {
  await using here = await world()
  const put = (path: string, more: object) => here.ask('PUT', `/v1/services/${path}`, { ...planner, ...more })
  await put('planner/near', { zone: 'eu/fra' })
  await put('planner/far', { zone: 'us/nyc', capabilities: ['plan', 'review'] })
  await put('planner/ill', { status: 'critical', tags: ['red'] })
  await put('critic/x', { capabilities: ['review'] })
  expect(await names(here, '/v1/services/planner?zone=us/nyc')).toEqual(['far', 'ill', 'near'])
  expect(await names(here, '/v1/services/planner?capability=plan,review')).toEqual(['far'])
  expect(await names(here, '/v1/services/planner?status=critical,warning')).toEqual(['ill'])
  expect(await names(here, '/v1/services/planner?tag=red')).toEqual(['ill'])
  expect(await names(here, '/v1/discover?any=review')).toEqual(['x', 'far'])
  expect((await here.ask('GET', '/v1/discover?limit=2')).json).toMatchObject({ more: true, instances: [{}, {}] })
  expect((await here.ask('GET', '/v1/services')).json.services).toMatchObject([
    { service: 'critic', instances: 1 },
    { service: 'planner', instances: 3 },
  ])
  expect((await here.ask('GET', '/v1/services/planner?status=fine')).status).toBe(400)
})

test('an instance is removed in one revision, and other entries of its lease stay', async () => {
  await using here = await world()
  await here.ask('PUT', '/v1/services/planner/a', { ...planner, load: 1 })
  const left = await here.ask('DELETE', '/v1/services/planner/a')
  expect(left.status).toBe(204)
  expect((await here.ask('GET', '/v1/leases')).json.leases).toEqual([])
  expect((await here.ask('DELETE', '/v1/services/planner/a')).status).toBe(410)
})

test('a bad registration is refused, and the error names the field', async () => {
  await using here = await world()
  const deep = JSON.parse('['.repeat(15) + ']'.repeat(15))
  for (const [body, why] of [
    [{ ...planner, script: 'rm' }, /no field script/],
    [{ ...planner, address: 'http://user:pass@host' }, /name or a password/],
    [{ ...planner, address: 'nowhere' }, /neither a scheme nor a port/],
    [{ ...planner, metadata: 'x'.repeat(9_000) }, /8192/],
    ['{"address":"a:1","metadata":{"__proto__":{}}}', /__proto__/],
    [{ ...planner, check: { url: 'file:///etc/passwd' } }, /http:\/\//],
    [{ ...planner, ttl: 0 }, /ttl/],
  ] as const) {
    const { status, json } = await here.ask('PUT', '/v1/services/planner/a', body)
    expect([status, json.error.code]).toEqual([400, 'INVALID'])
    expect(json.error.message).toMatch(why)
  }
  expect((await here.ask('PUT', '/v1/services/planner/a', { ...planner, metadata: { a: [[deep]] } })).status).toBe(413)
  for (const path of ['/v1/services/planner', '/v1/services/planner/a/b', '/v1/services/..%2f/a'])
    expect((await here.ask('PUT', path, planner)).status).toBe(400)
  expect(Object.hasOwn(Object.prototype, 'polluted')).toBe(false)
})

test('a key sees, registers and sends heartbeats only within its scopes', async () => {
  await using here = await world()
  const key = async (name: string, ...allow: readonly [string, string][]) => ({
    Authorization: `Bearer ${await here.key(
      name,
      allow.map(([verb, prefix]) => ({ verb: verb as 'read', prefix })),
    )}`,
  })
  const planners = await key('planners', ['register', 'services/planner'], ['read', 'services/planner'])
  const critics = await key('critics', ['register', 'services/critic'], ['read', 'services/critic'])
  expect((await here.ask('PUT', '/v1/services/planner/a', planner)).status).toBe(401)
  expect((await here.ask('PUT', '/v1/services/planner/a', planner, planners)).status).toBe(201)
  await settled()
  expect((await here.ask('PUT', '/v1/services/planner/b', planner, critics)).status).toBe(403)
  expect((await here.ask('POST', '/v1/services/planner/a/heartbeat', {}, critics)).status).toBe(403)
  expect((await here.ask('DELETE', '/v1/services/planner/a', undefined, critics)).status).toBe(403)
  expect((await here.ask('GET', '/v1/services/planner/a', undefined, critics)).status).toBe(403)
  expect((await here.ask('GET', '/v1/services/planner', undefined, critics)).json.instances).toEqual([])
  expect((await here.ask('GET', '/v1/discover', undefined, critics)).json.instances).toEqual([])
  expect((await here.ask('GET', '/v1/http_sd', undefined, critics)).json).toEqual([])
  expect((await here.ask('POST', '/v3/discovery:endpoints', {}, critics)).json.resources).toEqual([])
  expect((await here.ask('GET', '/v1/services/planner', undefined, planners)).json.instances).toHaveLength(1)
  const many = { instances: [{ service: 'planner', instance: 'a' }] }
  expect((await here.ask('POST', '/v1/heartbeats', many, planners)).json.renewed).toHaveLength(1)
  expect((await here.ask('POST', '/v1/heartbeats', many, critics)).json?.renewed ?? []).toEqual([])
})

test('the feeds for Prometheus and Envoy list the same instances', async () => {
  await using here = await world()
  await here.ask('PUT', '/v1/services/planner/a', planner)
  await here.ask('PUT', '/v1/services/planner/six', { ...planner, address: 'https://[::1]', weight: 3, status: 'draining' })
  await here.ask('PUT', '/v1/services/planner/nowhere', { ...planner, address: 'queue://somewhere' })
  await settled()
  expect((await here.ask('GET', '/v1/http_sd?service=planner')).json).toMatchObject([
    { targets: ['10.0.0.7:8080'], labels: { __meta_leasehold_service: 'planner', __meta_leasehold_tags: ',blue,' } },
    { targets: ['[::1]:443'], labels: { __meta_leasehold_instance: 'six', __scheme__: 'https' } },
  ])
  const eds = await here.ask('POST', '/v3/discovery:endpoints', { resource_names: ['planner', 'none'], node: { id: 'x' } })
  expect(eds.json.resources).toMatchObject([
    {
      '@type': 'type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment',
      cluster_name: 'planner',
      endpoints: [
        {
          locality: { zone: 'eu/fra' },
          lb_endpoints: [
            { endpoint: { address: { socket_address: { address: '10.0.0.7', port_value: 8080 } } }, health_status: 'HEALTHY' },
            {
              endpoint: { address: { socket_address: { address: '::1', port_value: 443 } } },
              health_status: 'DRAINING',
              load_balancing_weight: 3,
            },
          ],
        },
      ],
    },
    { cluster_name: 'none', endpoints: [] },
  ])
  const again = { version_info: eds.json.version_info }
  expect((await here.ask('POST', '/v3/discovery:endpoints', { ...again, resource_names: ['planner', 'none'] })).status).toBe(304)
  const other = await here.ask('POST', '/v3/discovery:endpoints', { ...again, resource_names: ['planner'] })
  expect(other.json.resources).toHaveLength(1)
})

test('the feed for Prometheus lists every target, without a limit', async () => {
  await using here = await world()
  for (let i = 0; i < 200; i++) {
    const entries = Array.from({ length: 60 }, (_, at) => ({
      key: `services/many/${i}-${at}`,
      value: '{"addresses":["http://10.0.0.7:8080"]}',
    }))
    expect(await propose(here.lessor, { kind: 'acquire', holder: `h${i}`, ttl: 60_000, wants: [], entries })).toMatchObject({
      kind: 'granted',
    })
  }
  expect((await here.ask('GET', '/v1/http_sd')).json).toHaveLength(12_000)
  expect((await here.ask('GET', '/v1/http_sd?limit=3')).json).toHaveLength(3)
  expect((await here.ask('GET', '/v1/discover')).json).toMatchObject({ more: true })
})

test('a declared status is written even if a health check has found the same', async () => {
  await using here = await world()
  const { json } = await here.ask('PUT', '/v1/services/planner/a', planner)
  const check = (status: string) =>
    propose(here.lessor, { kind: 'put', lease: json.lease, key: 'services/planner/a/check', value: JSON.stringify({ status, reason: '' }) })
  await check('critical')
  await settled()
  expect((await here.ask('GET', '/v1/services/planner/a')).json.status).toBe('critical')
  const instances = [{ service: 'planner', instance: 'a', status: 'critical' }]
  expect((await here.ask('POST', '/v1/heartbeats', { instances })).json.renewed).toHaveLength(1)
  await check('passing')
  await settled()
  expect((await here.ask('GET', '/v1/services/planner/a')).json.status).toBe('critical')
})

test('a server that is restarted on the same leases lists instances that registered meanwhile', async () => {
  await using here = await world()
  expect(await names(here, '/v1/services/planner')).toEqual([])
  await here.server.close()
  const server = await serve({ lessor: here.lessor, clock: here.clock, listen: '127.0.0.1:0', http: httpListener({}) })
  try {
    const port = Number(server.addresses[0]!.split(':').at(-1))
    await ask(port, undefined, 'PUT', '/v1/services/planner/a', planner)
    await settled()
    expect((await ask(port, undefined, 'GET', '/v1/services/planner')).json.instances).toHaveLength(1)
  } finally {
    await server.close()
  }
})

test('a heartbeat that fails with its lessor fails once, without an unhandled rejection', async () => {
  await using here = await world()
  await here.ask('PUT', '/v1/services/planner/a', planner)
  const unheard: unknown[] = []
  const hear = (error: unknown) => unheard.push(error)
  process.on('unhandledRejection', hear)
  try {
    const guarded = Object.create(here.server.guarded, {
      propose: { value: async () => Promise.reject(new LeaseError('UNAVAILABLE', 'the store is gone')) },
    })
    const beat = { service: 'planner', instance: 'a', load: 3 }
    await expect(heartbeat({ guarded, caller: anonymousCaller() }, beat)).rejects.toThrow('the store is gone')
    await settled()
    expect(unheard).toEqual([])
  } finally {
    process.off('unhandledRejection', hear)
  }
})

test('the limits on metadata and on heartbeats and renewals per request apply', async () => {
  await using here = await world({ limits: limitsFrom({ metadata: 20, renewals: 2 }) })
  const put = (metadata: string) => here.ask('PUT', '/v1/services/planner/a', { ...planner, metadata })
  expect((await put('x'.repeat(18))).status).toBe(201)
  expect(await put('x'.repeat(19))).toMatchObject({ status: 413, json: { error: { code: 'TOO_LARGE', limit: 20 } } })
  const beat = { service: 'planner', instance: 'a' }
  expect((await here.ask('POST', '/v1/heartbeats', { instances: [beat, beat] })).status).toBe(200)
  expect((await here.ask('POST', '/v1/heartbeats', { instances: [beat, beat, beat] })).status).toBe(429)
  expect((await here.ask('POST', '/v1/leases/renew', { leases: [1, 2, 3] })).json.error).toMatchObject({ code: 'LIMIT', limit: 2 })
})

test('a registration that is repeated with its op gets the first answer', async () => {
  await using here = await world()
  const put = (op: string, more = {}) => here.ask('PUT', '/v1/services/planner/a', { ...planner, op, ...more })
  const first = await put('x')
  expect(first.status).toBe(201)
  expect(await put('x')).toMatchObject({ status: 201, json: { lease: first.json.lease } })
  for (let i = 0; i < 2; i++) expect(await put('y')).toMatchObject({ status: 200, json: { lease: first.json.lease } })
  expect((await put('x', { address: 'http://10.0.0.9' })).json.error.message).toContain('used for another command')
})

test('a removal that is repeated with its op gets the first answer, and does not remove a later registration', async () => {
  await using here = await world()
  const put = (generation = 0) => here.ask('PUT', '/v1/services/planner/a', { ...planner, generation })
  const leave = (query: string, name = 'a') => here.ask('DELETE', `/v1/services/planner/${name}?${query}`)
  await put()
  for (let i = 0; i < 2; i++) {
    expect((await here.ask('POST', '/v1/services/planner/a/heartbeat', { load: 1, op: 'beat' })).status).toBe(200)
    const { json } = await here.ask('POST', '/v1/heartbeats', { instances: [{ service: 'planner', instance: 'a' }], op: 'beats' })
    expect(json.renewed).toHaveLength(1)
  }
  const left = await leave('op=x')
  const again = await leave('op=x')
  expect([left.status, again.status]).toEqual([204, 204])
  expect(again.headers['leasehold-revision']).toBe(left.headers['leasehold-revision'])
  expect((await leave('op=y')).status).toBe(410)
  expect((await leave('op=x', 'b')).status).toBe(410)
  // An instance that registered meanwhile is another one, older or newer.
  await put()
  expect((await leave('op=x')).status).toBe(204)
  await put(2)
  expect((await leave('op=x&generation=1')).status).toBe(204)
  expect((await leave('op=z&generation=1')).json.error.code).toBe('STALE')
  expect((await leave('op=y')).json.error).toMatchObject({ code: 'GONE', service: 'planner', instance: 'a' })
  expect((await here.ask('GET', '/v1/services/planner?consistent=true')).json.instances).toHaveLength(1)
})

test('one of several instances on a lease is removed once, even if the removal is repeated', async () => {
  await using here = await world()
  const entries = ['a', 'b'].map(name => ({ key: `services/planner/${name}`, value: '{"addresses":["http://10.0.0.7:8080"]}' }))
  await propose(here.lessor, { kind: 'acquire', holder: 'ann', ttl: 60_000, wants: [], entries })
  for (let i = 0; i < 2; i++) expect((await here.ask('DELETE', '/v1/services/planner/a?op=x')).status).toBe(204)
  expect((await here.ask('GET', '/v1/services/planner?consistent=true')).json.instances).toMatchObject([{ instance: 'b' }])
})

test('a heartbeat above the rate limit still renews, and reports what was not written', async () => {
  await using here = await world({ limits: limitsFrom({ rate: 5 }) })
  const bearer = { authorization: `Bearer ${await here.key('mine', [{ verb: 'admin', prefix: '' }])}` }
  const put = () => here.ask('PUT', '/v1/services/planner/a', { ...planner, load: 70 }, bearer)
  expect((await put()).status).toBe(201)
  await settled()
  const beat = (load: number) => here.ask('POST', '/v1/services/planner/a/heartbeat', { load }, bearer)
  const answers = []
  for (let i = 0; i < 10; i++) answers.push(await beat(i))
  expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200))
  expect(answers.map(({ json }) => json.limited)).toEqual([...Array(4).fill(undefined), ...Array(6).fill(true)])
  for (const { json } of answers) expect(json.ttl).toBe(10_000)
  const { json } = await here.ask('POST', '/v1/heartbeats', { instances: [{ service: 'planner', instance: 'a', load: 99 }] }, bearer)
  expect(json).toMatchObject({ renewed: [{ instance: 'a', ttl: 10_000, limited: true }], gone: [] })
  // A registration is not a heartbeat: it is refused.
  expect(await put()).toMatchObject({ status: 429, headers: { 'retry-after': '1' } })
  await here.clock.advance(1_000)
  expect((await beat(99)).json.limited).toBeUndefined()
  await settled()
  expect((await here.ask('GET', '/v1/services/planner/a', undefined, bearer)).json.load).toBe(99)
})

test('one request renews ten thousand leases, one more is refused with LIMIT, and the limit can be configured', async () => {
  await using here = await world()
  await here.ask('PUT', '/v1/services/planner/a', planner)
  await settled()
  const { json } = await here.ask('POST', '/v1/leases', { resources: ['a'], holder: 'ann' })
  const renew = (count: number, to = here) => {
    const leases = Array.from({ length: count }, (_, i) => (i === 0 ? json.lease : 9_007_199_254_700_000 + i))
    return to.ask('POST', '/v1/leases/renew', JSON.stringify({ leases }, undefined, 2))
  }
  const beat = (count: number, to = here) => {
    const instances = Array.from({ length: count }, (_, i) => ({ service: 'planner', instance: i === 0 ? 'a' : `${'x'.repeat(300)}${i}` }))
    return to.ask('POST', '/v1/heartbeats', { instances })
  }
  for (const ask of [renew, beat]) {
    const { status, json: answer } = await ask(10_000)
    expect([status, answer.renewed.length, answer.gone.length]).toEqual([200, 1, 9_999])
    const over = await ask(10_001)
    expect([over.status, over.json.error.code, over.json.error.limit, over.headers['retry-after']]).toEqual([429, 'LIMIT', 10_000, '1'])
  }
  await using wide = await world({ limits: limitsFrom({ renewals: 12_000 }) })
  for (const ask of [renew, beat]) {
    expect((await ask(12_000, wide)).json.gone).toHaveLength(12_000)
    expect((await ask(12_001, wide)).json.error).toMatchObject({ code: 'LIMIT', limit: 12_000 })
  }
  const again = { leases: Array.from({ length: 10_001 }, (_, i) => i + 1), op: 'x' }
  expect((await wide.ask('POST', '/v1/leases/renew', again)).text).toBe((await wide.ask('POST', '/v1/leases/renew', again)).text)
})
