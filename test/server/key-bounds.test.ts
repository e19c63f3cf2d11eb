/** What a key is bound to, over every way in: HTTP, RESP, the client of the library, the faces and MCP. The kernel decides; each row shows that its way asks it. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { connect, open } from '../../src/connect/connect.ts'
import { LeaseError } from '../../src/errors.ts'
import { consulFace } from '../../src/face/consul/face.ts'
import { etcdFace } from '../../src/face/etcd/gateway.ts'
import { kubernetesFace } from '../../src/face/kubernetes/kubernetes-face.ts'
import { redisFace } from '../../src/face/redis/commands.ts'
import { ResourceNames } from '../../src/face/resource-names.ts'
import { propose } from '../../src/lessor/propose.ts'
import { mcpRoute } from '../../src/mcp/http-route.ts'
import { httpListener } from '../../src/server/http/http-listener.ts'
import { hashSecret } from '../../src/server/key-secret.ts'
import { ask } from '../support/http-world.ts'
import { McpClient } from '../support/mcp.ts'
import { type Place, place, Raw } from '../support/resp-place.ts'

const SECRET = 'secret-of-ann'
const MEMBER = 'gpus/1'
/** Each face has a name that stands for a member of the pool. */
const NAMES = new ResourceNames({
  'redis/gpu': MEMBER,
  'kubernetes/team/gpu': MEMBER,
  'consul/gpu': MEMBER,
  'etcd/gpu': MEMBER,
})
const bearer = { authorization: `Bearer ${SECRET}` }
const allow = (['acquire', 'register', 'read', 'watch'] as const).map(verb => ({ verb, prefix: '' }))

let here: Place
/** A lease of the key, which it may transfer. */
let own = 0

beforeAll(async () => {
  const faces = [redisFace(), kubernetesFace(), consulFace(), etcdFace()]
  here = await place({ faces, faceNames: NAMES, http: httpListener({ routes: [mcpRoute()] }) })
  const { lessor } = here
  const entries = [1, 2, 3].map(n => ({ key: `pool/gpus/${n}`, value: '{}' }))
  await propose(lessor, { kind: 'acquire', holder: 'host', ttl: 3_600_000, wants: [], entries })
  const bounds = { accounts: ['ann'], holders: ['ann-*'], priority: { low: -10, high: 10 }, noMembers: true }
  const made = await propose(lessor, { kind: 'key', name: 'ann', hash: hashSecret(SECRET), allow, ...bounds })
  const key = (made as { id: number }).id
  const taken = await propose(lessor, { kind: 'acquire', holder: 'ann', ttl: 3_600_000, wants: [{ resource: 'jobs/own' }] }, { key })
  own = (taken as { lease: number }).lease
  await here.server.guarded.access.reloadKeys({ consistent: true })
})

afterAll(() => here[Symbol.asyncDispose]())

async function http(method: string, path: string, body?: unknown, headers: Record<string, string> = {}): Promise<string> {
  const { status, text } = await ask(here.port, undefined, method, path, body, { ...bearer, ...headers })
  return `${status} ${text}`
}

async function resp(...words: string[]): Promise<string> {
  using raw = new Raw(here.port)
  await raw.ask('AUTH', SECRET)
  return String(await raw.ask(...words))
}

/** The message and the reason of what it throws. */
async function thrown(work: Promise<unknown>): Promise<string> {
  const error = await work.then(
    () => 'nothing was thrown',
    (reason: unknown) => reason,
  )
  return error instanceof LeaseError ? `${error.code} ${error.reason} ${error.message}` : String(error)
}

async function library(holder: string, use: (leases: Awaited<ReturnType<typeof connect>>) => Promise<unknown>): Promise<string> {
  await using leases = await connect(`leasehold://127.0.0.1:${here.port}`, { apiKey: SECRET, holder })
  return await thrown(use(leases))
}

async function commands(command: Parameters<typeof propose>[1]): Promise<string> {
  const lessor = await open(`leasehold://127.0.0.1:${here.port}`, { apiKey: SECRET })
  try {
    return JSON.stringify(await propose(lessor, command))
  } finally {
    await lessor[Symbol.asyncDispose]()
  }
}

const lease = { resources: ['x'], holder: 'ann', ttl: '10s' }
const kernel = { kind: 'acquire', holder: 'ann', ttl: 10_000, wants: [{ resource: 'x' }] } as const
const taking = { kind: 'acquire', holder: 'ann', ttl: 10_000, wants: [] } as const

const REASONS = {
  holder: /forbidden-holder/,
  account: /forbidden-account/,
  priority: /forbidden-priority/,
  member: /forbidden-member/,
} as const

const WAYS: readonly (readonly [way: string, what: keyof typeof REASONS, run: () => Promise<string>])[] = [
  ['HTTP', 'holder', () => http('POST', '/v1/leases', { ...lease, holder: 'ben' })],
  ['HTTP', 'priority', () => http('POST', '/v1/leases', { ...lease, priority: 1_000 })],
  ['HTTP', 'member', () => http('POST', '/v1/leases', { ...lease, resources: [MEMBER] })],
  ['HTTP, a pool', 'account', () => http('POST', '/v1/leases', { holder: 'ann', pool: { pool: 'gpus', account: 'ben' } })],
  ['HTTP, a pool', 'priority', () => http('POST', '/v1/leases', { holder: 'ann', priority: 11, pool: { pool: 'gpus' } })],
  ['HTTP, commands', 'holder', () => http('POST', '/v1/propose', { proposals: [{ command: { ...kernel, holder: 'ben' } }] })],
  ['HTTP, commands', 'priority', () => http('POST', '/v1/propose', { proposals: [{ command: { ...kernel, priority: -11 } }] })],
  [
    'HTTP, commands',
    'member',
    () => http('POST', '/v1/propose', { proposals: [{ command: { ...kernel, wants: [{ resource: MEMBER }] } }] }),
  ],
  ['RESP', 'holder', () => resp('LEASE.ACQUIRE', 'x', 'TTL', '10000', 'HOLDER', 'ben')],
  ['RESP', 'priority', () => resp('LEASE.ACQUIRE', 'x', 'TTL', '10000', 'HOLDER', 'ann', 'PRIORITY', '1000')],
  ['RESP', 'member', () => resp('LEASE.ACQUIRE', MEMBER, 'TTL', '10000', 'HOLDER', 'ann')],
  ['RESP, a lease on nothing', 'holder', () => resp('LEASE.GRANT', 'TTL', '10000', 'HOLDER', 'ben')],
  ['the library', 'holder', () => library('ben', leases => leases.acquire('x'))],
  ['the library', 'priority', () => library('ann-1', leases => leases.acquire('x', { priority: 11 }))],
  ['the library', 'member', () => library('ann-1', leases => leases.acquire(MEMBER))],
  ['the library, a pool', 'account', () => library('ann-1', leases => leases.pool('gpus').take(1, { account: 'ben' }))],
  [
    'the library, a reservation',
    'account',
    () => library('ann-1', leases => leases.pool('gpus').reserve(1, { account: 'ben', from: '1h', for: '1h' })),
  ],
  ['a batch of our client', 'holder', () => commands({ ...kernel, holder: 'ben' })],
  ['a batch of our client', 'account', () => commands({ ...taking, pool: { pool: 'gpus', account: 'ben' } })],
  [
    'a batch of our client, a reservation',
    'priority',
    () => commands({ ...taking, priority: 11, wait: true, maxLife: 60_000, pool: { pool: 'gpus', from: 60_000 } }),
  ],
  ['a batch of our client, stealing', 'member', () => commands({ ...kernel, wants: [{ resource: MEMBER }], wait: true, recall: true })],
  ['MCP', 'holder', () => mcp('ben', 'claim', { names: ['name:a'], purpose: 'edit' })],
  ['MCP', 'member', () => mcp('ann-agent', 'claim', { names: [`name:${MEMBER}`], purpose: 'edit' })],
]

async function mcp(agent: string, tool: string, args: object): Promise<string> {
  await using client = await McpClient.http('1.x', `http://127.0.0.1:${here.port}/mcp?agent=${agent}`, bearer)
  return JSON.stringify(await client.call(tool, args as never))
}

describe('a key that is bound', () => {
  test.each(WAYS)('over %s is refused another %s', async (_, what, run) => {
    const said = await run()
    expect(said).toMatch(/FORBIDDEN/)
    expect(said).toMatch(new RegExp(`${REASONS[what].source}|${WORDS[what]}`))
  })

  test.each<[string, () => Promise<string>]>([
    ['Redis', () => resp('SET', 'gpu', 'mine', 'NX', 'PX', '10000')],
    ['Kubernetes', () => http('POST', '/apis/coordination.k8s.io/v1/namespaces/team/leases', k8sLease('ann-1'))],
    ['Consul', () => consulLock()],
    ['etcd', () => http('POST', '/v3/lock/lock', { name: Buffer.from('gpu').toString('base64'), lease: 0 })],
  ])('over the face of %s gets no member by a name that stands for it', async (_, run) => {
    expect(await run()).toMatch(/may not name gpus\/1/)
  })

  test('over faces with names of holders acts under its own', async () => {
    using raw = new Raw(here.port)
    await raw.ask('AUTH', SECRET)
    await raw.ask('CLIENT', 'SETNAME', 'ben')
    expect(String(await raw.ask('SET', 'other', 'mine', 'NX', 'PX', '10000'))).toMatch(/may not act as the holder ben/)
    await raw.ask('CLIENT', 'SETNAME', 'ann-7')
    expect(await raw.ask('SET', 'other', 'mine', 'NX', 'PX', '10000')).toBe('OK')
  })

  test('does not adopt what was passed on to another name, and may pass on its own', async () => {
    const passed = (await commands({ kind: 'transfer', lease: own, to: 'ben', stopped: true })) as string
    const { id } = JSON.parse(passed) as { id: number }
    expect(await commands({ kind: 'claim', lease: id })).toMatch(/GONE/)
    expect(await commands({ kind: 'renew', leases: [id] })).toMatch(/-1/)
  })

  test('does not extend members of another account', async () => {
    const taken = await propose(here.lessor, { ...taking, holder: 'ben', maxLife: 60_000, pool: { pool: 'gpus', account: 'ben' } })
    const { lease: theirs } = taken as { lease: number }
    expect(await commands({ kind: 'extend', lease: theirs, by: 60_000 })).toMatch(/GONE|FORBIDDEN/)
    expect(await http('POST', `/v1/leases/${theirs}/extend`, { by: '1m' })).toMatch(/^4(03|10)/)
  })

  test('uses what it may: its name, its account where it names none, its priorities and the pool', async () => {
    expect(await http('POST', '/v1/leases', { ...lease, priority: 10 })).toMatch(/^201|^200/)
    const said = await http('POST', '/v1/leases', { holder: 'ann-2', ttl: '10s', pool: { pool: 'gpus' } })
    expect(said).toMatch(/^20/)
    const { value } = await here.lessor.read({ kind: 'pool', pool: 'gpus' })
    expect(value.accounts.map(({ account }) => account)).toContain('ann')
  })
})

/** Where a way shows the sentence and not the reason. */
const WORDS: Readonly<Record<keyof typeof REASONS, string>> = {
  holder: 'may not act as the holder',
  account: 'may not use the account',
  priority: 'may not ask with priority',
  member: 'may not name gpus/1',
}

function k8sLease(holderIdentity: string): object {
  return {
    ...{ apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata: { name: 'gpu', namespace: 'team' } },
    spec: { holderIdentity, leaseDurationSeconds: 15 },
  }
}

async function consulLock(): Promise<string> {
  const said = await http('PUT', '/v1/session/create', { TTL: '15s' }, { 'x-consul-token': SECRET })
  const { ID } = JSON.parse(said.slice(4)) as { ID: string }
  return http('PUT', `/v1/kv/gpu?acquire=${ID}`, 'x', { 'x-consul-token': SECRET })
}
