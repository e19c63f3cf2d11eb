/** Compares the OpenAPI document with real responses: every status, type and field is as documented, and nothing is undocumented. */
import { Compile } from 'typebox/compile'
import { expect, test } from 'vitest'
import { turn } from '../../../src/clock.ts'
import { Router } from '../../../src/server/http/router.ts'
import { ROUTES } from '../../../src/server/http/routes.ts'
import { type Reply, type World, world } from '../../support/http-world.ts'

// biome-ignore lint/suspicious/noExplicitAny: the document is data
type Json = any

const router = new Router(ROUTES)

/** Closes objects that are not declared open, so that undocumented fields are found. */
function closed(schema: Json): Json {
  if (Array.isArray(schema)) return schema.map(closed)
  if (typeof schema !== 'object' || schema === null) return schema
  const inner = Object.fromEntries(Object.entries(schema).map(([name, value]) => [name, name === 'const' ? value : closed(value)]))
  return schema.type === 'object' && schema.properties !== undefined && schema.additionalProperties === undefined
    ? { ...inner, additionalProperties: false }
    : inner
}

class Described {
  readonly doc: Json
  readonly seen = new Set<string>()
  readonly #here: World
  headers: Record<string, string> = {}

  constructor(here: World, doc: Json) {
    this.#here = here
    this.doc = doc
  }

  static async open(here: World): Promise<Described> {
    return new Described(here, (await here.ask('GET', '/openapi.json')).json)
  }

  errors(schema: Json, value: unknown): unknown[] {
    const { $ref } = schema
    return [...Compile(closed($ref === undefined ? schema : this.doc.components.schemas[$ref.split('/').at(-1)])).Errors(value)]
  }

  /** Sends a request, and throws if the request or its response differs from the document. */
  async ask(status: number, method: string, path: string, body?: object): Promise<Reply> {
    const [target, query = ''] = path.split('?')
    const match = router.find(method, target!)
    if (match === undefined || !('route' in match)) throw new Error(`${method} ${path} is no route`)
    const operation = this.doc.paths[match.route.path][method.toLowerCase()]
    const at = `${method} ${path}`
    const reply = await this.#here.ask(method, path, body, this.headers)
    expect([at, reply.status, reply.text]).toEqual([at, status, reply.text])
    if (body !== undefined) expect([at, this.errors(operation.requestBody.content['application/json'].schema, body)]).toEqual([at, []])
    const parameters = operation.parameters.map(({ name }: { name: string }) => name)
    for (const pair of query.split('&').filter(Boolean)) expect(parameters).toContain(pair.split('=')[0])
    const described = operation.responses[status] ?? (status >= 400 ? operation.responses.default : undefined)
    expect([at, status, described]).toEqual([at, status, expect.anything()])
    this.seen.add(`${method} ${match.route.path} ${status}`)
    const type = reply.headers['content-type']?.toString().split(';')[0]
    if (described.content === undefined) expect([at, type, reply.text]).toEqual([at, undefined, ''])
    else {
      expect([at, Object.keys(described.content)]).toEqual([at, [type]])
      const { schema } = described.content[type!]
      if (type === 'application/json' && schema !== undefined) expect([at, this.errors(schema, reply.json)]).toEqual([at, []])
    }
    return reply
  }
}

test('every route answers as documented, field by field, and every documented response occurs', async () => {
  await using here = await world()
  const api = await Described.open(here)
  const acquire = (more: object) => ({ resources: ['api/a'], holder: 'ann', ttl: '1m', ...more })

  const { json: ann } = await api.ask(
    201,
    'POST',
    '/v1/leases',
    acquire({ resources: ['api/a', 'api/b'], labels: { x: 'y' }, entries: [{ key: 'api/e', value: 'v' }] }),
  )
  const { json: plain } = await api.ask(201, 'POST', '/v1/leases', acquire({ resources: [], parent: ann.lease }))
  await api.ask(409, 'POST', '/v1/leases', acquire({ holder: 'bob' }))
  const waiting = api.ask(201, 'POST', '/v1/leases', acquire({ holder: 'bob', wait: '5m', priority: 3, mode: 'shared' }))
  while (here.server.guarded.waiting === 0) await turn()
  await api.ask(200, 'GET', `/v1/leases/${ann.lease}`)
  await api.ask(200, 'GET', `/v1/leases/${plain.lease}?consistent=true`)
  await api.ask(200, 'GET', '/v1/leases?prefix=api&holder=bob&limit=1')
  await api.ask(200, 'GET', '/v1/leases?limit=1')
  await api.ask(200, 'GET', '/v1/resources?prefix=api')
  await api.ask(200, 'GET', '/v1/resources/api/a')
  await api.ask(200, 'POST', `/v1/leases/${ann.lease}/renew`, { op: 'r' })
  await api.ask(410, 'POST', '/v1/leases/3/renew')
  await api.ask(200, 'POST', '/v1/leases/renew', { leases: [ann.lease, 3] })
  await api.ask(200, 'GET', '/v1/entries?prefix=api')
  await api.ask(200, 'GET', '/v1/entries/api/e')
  await api.ask(404, 'GET', '/v1/entries/api/none')
  await api.ask(200, 'PUT', '/v1/entries/api/e2', { lease: ann.lease, value: 'z' })
  await api.ask(204, 'DELETE', '/v1/entries/api/e2?op=d')
  await api.ask(200, 'POST', '/v1/recall', { resource: 'api/a' })
  await api.ask(200, 'GET', `/v1/leases/${ann.lease}`)
  await api.ask(200, 'POST', '/v1/fence', { resource: 'api/a', token: ann.token })
  await api.ask(409, 'POST', '/v1/fence', { resource: 'api/a', token: ann.token - 1 })
  const { json: cat } = await api.ask(201, 'POST', '/v1/leases', acquire({ resources: ['api/c'], holder: 'cat' }))
  await api.ask(200, 'POST', '/v1/transfer', { lease: cat.lease, to: 'dan', stopped: true })
  await api.ask(200, 'POST', '/v1/break', { resource: 'api/c', by: 'ops' })
  await api.ask(200, 'GET', '/v1/resources')
  await api.ask(200, 'GET', '/v1/history/api/c')
  await api.ask(200, 'POST', '/v1/revoke', { lease: ann.lease, force: true })
  const { json: bob } = await waiting
  await api.ask(204, 'DELETE', `/v1/leases/${bob.lease}?op=x`)
  await api.ask(200, 'GET', '/v1/history/api/a')
  await api.ask(201, 'POST', '/v1/leases', acquire({ resources: ['api/d'] }))
  const timedOut = api.ask(408, 'POST', '/v1/leases', acquire({ resources: ['api/d'], holder: 'eve', wait: 500 }))
  while (here.server.guarded.waiting === 0) await turn()
  await here.clock.advance(500)
  await timedOut

  const member = { key: 'pool/gpus/g0', value: '{"labels":{"model":"a100"},"units":2}' }
  const { json: host } = await api.ask(201, 'POST', '/v1/leases', { holder: 'host', entries: [member] })
  const report = '{"host":"a","stage":"none","processes":[]}'
  await api.ask(200, 'PUT', '/v1/entries/devices/gpus/g0', { lease: host.lease, value: report })
  const pool = { pool: 'gpus', match: [{ label: 'model', test: 'in', values: ['a100'] }], account: 'ann', expect: '1h' }
  const { json: taker } = await api.ask(201, 'POST', '/v1/leases', { holder: 'ann', maxLife: '1h', pool })
  await api.ask(200, 'POST', `/v1/leases/${taker.lease}/extend`, { by: '1h', op: 'e' })
  const queued = api.ask(201, 'POST', '/v1/leases', { holder: 'bob', wait: '1m', pool })
  while (here.server.guarded.waiting === 0) await turn()
  await api.ask(200, 'GET', '/v1/pools')
  await api.ask(200, 'GET', '/v1/pools/gpus?consistent=true')
  const { json: explained } = await api.ask(200, 'GET', '/v1/pools/gpus/explain?whatIf=true')
  await api.ask(200, 'GET', `/v1/pools/gpus/explain?lease=${explained.waiters[0].lease}`)
  await api.ask(404, 'GET', '/v1/pools/gpus/explain?lease=3')
  await api.ask(204, 'DELETE', `/v1/leases/${taker.lease}`)
  await queued

  await api.ask(200, 'PUT', '/v1/policies/api', { capacity: 3, ttlMax: '2h', queue: 'fit', grace: '1s' })
  await api.ask(200, 'PUT', '/v1/policies/notes', { freeEntries: 10 })
  const change = { compare: [{ key: 'notes/a', field: 'version', is: 'equal' }], success: [{ key: 'notes/a', value: 'x' }] }
  await api.ask(200, 'POST', '/v1/transactions', change)
  await api.ask(200, 'POST', '/v1/transactions', change)
  await api.ask(200, 'GET', '/v1/entries/notes/a')
  await api.ask(200, 'GET', '/v1/policies')
  await api.ask(200, 'GET', '/v1/policies/api')
  await api.ask(204, 'DELETE', '/v1/policies/api?op=p')

  const agent = {
    address: 'http://127.0.0.1:1',
    capabilities: ['c'],
    tags: ['t'],
    metadata: { a: 1 },
    zone: 'eu/fra',
    generation: 2,
    load: 1.5,
  }
  await api.ask(201, 'PUT', '/v1/services/s/1', {
    ...agent,
    check: { url: 'http://127.0.0.1:1/', interval: 5_000, timeout: 1_000, fall: 2, rise: 1, endAfter: 60_000 },
  })
  await api.ask(200, 'GET', '/v1/services/s/1?consistent=true')
  await api.ask(200, 'PUT', '/v1/services/s/1', agent)
  await api.ask(409, 'PUT', '/v1/services/s/1', { ...agent, generation: 1 })
  await api.ask(200, 'GET', '/v1/services/s?consistent=true&capability=c')
  await api.ask(200, 'GET', '/v1/services/s/1?consistent=true')
  await api.ask(404, 'GET', '/v1/services/s/none')
  await api.ask(200, 'GET', '/v1/services')
  await api.ask(200, 'POST', '/v1/services/s/1/heartbeat', { generation: 2, load: 2, status: 'warning', op: 'h' })
  await api.ask(200, 'GET', '/v1/entries?prefix=services')
  const instances = [
    { service: 's', instance: '1', generation: 2 },
    { service: 's', instance: '2' },
    { service: 's', instance: '1', generation: 1 },
  ]
  await api.ask(200, 'POST', '/v1/heartbeats', { instances, op: 'hs' })
  await api.ask(200, 'GET', '/v1/discover?capability=c')
  await api.ask(200, 'GET', '/v1/http_sd?service=s')
  const { json: eds } = await api.ask(200, 'POST', '/v3/discovery:endpoints', { node: { id: 'x' } })
  await api.ask(304, 'POST', '/v3/discovery:endpoints', { version_info: eds.version_info })
  await api.ask(204, 'DELETE', '/v1/services/s/1?op=l&generation=2')

  await api.ask(200, 'GET', '/v1/whoami')
  await api.ask(200, 'GET', '/v1/activity?last=1m&step=1s')
  await api.ask(200, 'GET', '/v1/overview')
  await api.ask(200, 'GET', '/v1/state')
  await api.ask(200, 'GET', '/v1/losses?prefix=api&limit=5')
  await api.ask(200, 'GET', '/v1/events?limit=5')
  await api.ask(200, 'GET', '/v1/episodes/api/a')
  await api.ask(200, 'GET', '/v1/strips/s')
  await api.ask(200, 'GET', '/v1/rows?of=leases&sort=-since&limit=5')
  await api.ask(200, 'GET', '/v1/rows?of=resources&prefix=api')
  await api.ask(200, 'GET', '/v1/trees?limit=5')
  await api.ask(200, 'POST', '/v1/preview', { action: 'break', resource: 'api/d' })

  await api.ask(200, 'GET', '/v1/about')
  await api.ask(200, 'POST', '/v1/propose', { proposals: [{ command: { kind: 'renew', leases: [] } }, { command: { kind: 'no' } }, {}] })
  for (const query of [{ kind: 'summary' }, { kind: 'leases', limit: 1 }, { kind: 'services' }, { kind: 'lease', lease: 3 }])
    await api.ask(200, 'POST', '/v1/read', { query })
  await api.ask(200, 'GET', '/v1/watch?after=0')
  const { schema } = api.doc.paths['/v1/watch'].get.responses[200].content['text/event-stream']
  for (const event of await eventsAfter(here, ann.revision - 1, 20)) expect([event, api.errors(schema, event)]).toEqual([event, []])
  for (const path of ['/v1/backup', '/healthz', '/readyz', '/metrics', '/openapi.json', '/', '/page.js', '/page.css', '/page.svg'])
    await api.ask(200, 'GET', path)

  const { json: key } = await api.ask(201, 'POST', '/v1/keys', { name: 'root', allow: [{ verb: 'admin', prefix: '' }] })
  await api.ask(401, 'GET', '/v1/keys')
  api.headers = { authorization: `Bearer ${key.key}` }
  const { json: other } = await api.ask(201, 'POST', '/v1/keys', { name: 'ci', allow: [], group: 'g', hash: 'a'.repeat(64), op: 'k' })
  await api.ask(200, 'PUT', `/v1/keys/${other.id}/limits`, { leases: 5, connections: 10 })
  await api.ask(200, 'PUT', '/v1/key-groups/g', { waiters: 5 })
  await api.ask(200, 'POST', `/v1/keys/${other.id}/rotate`, { overlap: 60_000 })
  await api.ask(200, 'GET', '/v1/keys')
  await api.ask(204, 'DELETE', `/v1/keys/${other.id}`)

  const promised: string[] = []
  for (const [path, methods] of Object.entries<Json>(api.doc.paths))
    for (const [method, { responses }] of Object.entries<Json>(methods))
      for (const status of Object.keys(responses)) if (status !== 'default') promised.push(`${method.toUpperCase()} ${path} ${status}`)
  expect(promised.filter(answer => !api.seen.has(answer))).toEqual([])
})

test('responses about many instances are documented as well: suspects, suppressed and preserved services', async () => {
  await using here = await world()
  const api = await Described.open(here)
  for (let i = 0; i < 6; i++) await api.ask(201, 'PUT', `/v1/services/s/${i}`, { address: 'http://127.0.0.1:1', ttl: '10s' })
  await here.clock.advance(11_000)
  for (const path of [
    '/v1/services',
    '/v1/services/s?consistent=true',
    '/v1/services/s/1?consistent=true',
    '/v1/entries?prefix=services',
    '/v1/leases',
  ])
    await api.ask(200, 'GET', path)
})

async function eventsAfter(here: World, revision: number, count: number): Promise<readonly Json[]> {
  const { body } = await fetch(`${here.url}/v1/watch?after=${revision}`)
  let text = ''
  for await (const chunk of body!) {
    text += Buffer.from(chunk).toString()
    const lines = text.split('\n').slice(0, -1)
    const events = lines.filter(line => line.startsWith('data: ')).map(line => JSON.parse(line.slice(6)))
    if (events.length >= count) return events
  }
  throw new Error('the stream ended')
}
