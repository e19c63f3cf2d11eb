/** `/mcp` of a server: the official clients over streamable HTTP, keys, names, limits and hostile requests. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { propose } from '../../src/lessor/propose.ts'
import { mcpRoute } from '../../src/mcp/http-route.ts'
import { httpListener } from '../../src/server/http/http-listener.ts'
import { hashSecret } from '../../src/server/key-secret.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { CLIENTS, McpClient } from '../support/mcp.ts'
import { type Place, place } from '../support/resp-place.ts'

let open: Place

beforeAll(async () => {
  open = await place({ http: httpListener({ routes: [mcpRoute()] }) })
})

afterAll(() => open[Symbol.asyncDispose]())

const REPOSITORY = 'github.com/acme/app'

function url({ port }: Place, agent?: string, repository = REPOSITORY): string {
  const query = { ...(agent !== undefined && { agent }), ...(repository !== '' && { repository }) }
  return `http://127.0.0.1:${port}/mcp?${new URLSearchParams(query)}`
}

function post({ port }: Place, body: unknown, headers: Record<string, string> = {}): Promise<Response> {
  const all = { 'content-type': 'application/json', accept: 'application/json, text/event-stream', ...headers }
  return fetch(`http://127.0.0.1:${port}/mcp?agent=raw&repository=${REPOSITORY}`, {
    method: 'POST',
    headers: all,
    body: typeof body === 'string' ? body : JSON.stringify(body),
  })
}

const LIST = { jsonrpc: '2.0', id: 1, method: 'tools/list', params: {} }

describe.each(CLIENTS)('the client %s', kind => {
  test('claims, is queued, and finds its claims again by its name, over another connection', async () => {
    const prefix = `name-${CLIENTS.indexOf(kind)}`
    const [a, b] = [`${prefix}-a`, `${prefix}-b`]
    {
      await using one = await McpClient.http(kind, url(open, a))
      expect(await one.call('whoami')).toMatchObject({ agent: a, alive_by: 'calls', ttl_seconds: 900 })
      expect(await one.call('claim', { names: [`${prefix}/x`], purpose: 'edit' })).toMatchObject({ status: 'held' })
    }
    await using again = await McpClient.http(kind, url(open, a))
    expect((await again.call('mine')).held).toMatchObject([{ names: [`${prefix}/x`], purpose: 'edit' }])
    await using two = await McpClient.http(kind, url(open), { 'Leasehold-Agent': b })
    expect(await two.call('claim', { names: [`${prefix}/x`], purpose: 'test' })).toMatchObject({ status: 'queued', position: 0 })
    const waiting = two.call('claim', { names: [`${prefix}/x`], purpose: 'test', wait_seconds: 40 })
    expect((await again.call('release')).released).toEqual([`${prefix}/x`])
    expect(await waiting).toMatchObject({ status: 'held' })
    expect(await two.call('look', { name: prefix })).toMatchObject({ names: [{ holders: [{ holder: b, purpose: 'test' }] }] })
    expect(await again.call('ask', { name: `${prefix}/x`, message: 'please' })).toMatchObject({ status: 'asked' })
    expect((await two.call('mine')).notices).toMatchObject([{ kind: 'asked', by: a }])
    expect(await two.call('take', { pool: 'none' })).toMatchObject({ error: { code: 'NOT_FOUND' } })
  })
})

describe('a path', () => {
  test('has the same name as over stdio, where the address names the repository', async () => {
    await using one = await McpClient.http('1.x', url(open, 'same-path'))
    expect(await one.call('claim', { names: ['src/same.ts', 'name:deploy/same'], purpose: 'x' })).toMatchObject({ status: 'held' })
    const names = (await open.lessor.read({ kind: 'resources', prefix: '' })).value.flatMap(({ resource, grants }) =>
      grants.length > 0 ? [resource] : [],
    )
    expect(names).toContain('repo/github.com/acme/app/src/same.ts')
    expect(names).toContain('deploy/same')
  })

  test('without a repository is refused with what to write, and a free name is not', async () => {
    await using one = await McpClient.http('1.x', url(open, 'no-repository', ''))
    const refused = await one.call('claim', { names: ['src/a.ts'], purpose: 'x' })
    expect(refused.error).toMatchObject({
      code: 'INVALID',
      message: expect.stringMatching(/add \?repository=HOST\/OWNER\/NAME.*name:src\/a\.ts/),
    })
    const names = ['repo/github.com/acme/app/src/b.ts', 'name:deploy/b']
    expect(await one.call('claim', { names, purpose: 'x' })).toMatchObject({ status: 'held', names })
  })

  test('that is a pattern is refused', async () => {
    await using one = await McpClient.http('1.x', url(open, 'patterns'))
    for (const name of ['lib/*.ts', 'lib/**', 'repo/github.com/acme/app/a?.ts'])
      expect((await one.call('claim', { names: [name], purpose: 'x' })).error?.message).toMatch('is a pattern')
  })
})

describe('a request', () => {
  test('without a name of the agent lists tools, and every call says how to give one', async () => {
    await using client = await McpClient.http('1.x', url(open))
    expect(client.tools).toHaveLength(7)
    const answer = await client.call('mine')
    expect(answer.error).toMatchObject({ code: 'INVALID', message: expect.stringContaining('?agent=NAME') })
  })

  test('with a wrong name, 5,000 names or a wrong order of tools is answered with a code', async () => {
    await using wrong = await McpClient.http('1.x', url(open, '../root'))
    expect((await wrong.call('mine')).error?.code).toBe('INVALID')
    await using client = await McpClient.http('1.x', url(open, 'hostile'))
    const many = Array.from({ length: 5_000 }, (_, i) => `f${i}`)
    expect((await client.call('claim', { names: many, purpose: 'all' })).error).toMatchObject({
      code: 'LIMIT',
      message: '5000 names in one claim, more than 256: claim the folder that contains them, or only what you edit next',
    })
    expect(await client.call('release')).toMatchObject({ status: 'ok', released: [] })
    expect(await client.call('release', { names: ['never/claimed'] })).toMatchObject({ released: [], not_held: ['never/claimed'] })
    for (const name of ['/etc/passwd', '/home/other/.ssh/id', '~other/x', '../x', 'a\u0000b', 'a//../..', '', 'x'.repeat(600)])
      expect((await client.call('claim', { names: [name], purpose: 'x' })).error?.code, name).toBe('INVALID')
    const marked = await client.call('claim', { names: ['<script>alert(1)</script>'.replace('/', '-')], purpose: '<b>\u001b[31mred' })
    expect(marked).toMatchObject({ status: 'held', purpose: '<b> [31mred' })
  })

  test('from a page of another site, with another content type, too large or no JSON is refused by the rules of the server', async () => {
    expect((await post(open, LIST, { origin: 'https://evil.example' })).status).toBe(403)
    expect((await post(open, LIST, { 'content-type': 'text/plain' })).status).toBe(415)
    expect((await post(open, { ...LIST, padding: 'x'.repeat(300_000) })).status).toBe(413)
    expect((await post(open, '{"jsonrpc":')).status).toBe(400)
    expect((await post(open, '[]')).status).toBe(400)
    expect((await post(open, 'null')).status).toBe(400)
    expect((await fetch(url(open, 'x'))).status).toBe(405)
    expect((await fetch(url(open, 'x'), { method: 'DELETE' })).status).toBe(405)
  })

  test('of one agent beyond eight at a time is answered with LIMIT', async () => {
    await using holder = await McpClient.http('1.x', url(open, 'busy-holder'))
    await holder.call('claim', { names: ['busy'], purpose: 'x' })
    await using client = await McpClient.http('1.x', url(open, 'busy-waiter'))
    const waits = Array.from({ length: 9 }, () => client.call('claim', { names: ['busy'], purpose: 'y', wait_seconds: 3 }))
    const codes = (await Promise.all(waits)).map(({ status, error }) => error?.code ?? status)
    expect(codes.filter(code => code === 'LIMIT')).toHaveLength(1)
    expect(codes.filter(code => code === 'queued')).toHaveLength(8)
  })
})

describe('with keys', () => {
  test('an agent needs a key, acts only within its scopes, and cannot touch an agent of another key', async () => {
    await using server = await place({ http: httpListener({ routes: [mcpRoute()] }) })
    const create = (name: string, prefix: string) =>
      propose(server.lessor, {
        kind: 'key',
        name,
        hash: hashSecret(`secret-of-${name}`),
        allow: ['agents', prefix].flatMap(under =>
          (['acquire', 'renew', 'release', 'read', 'register'] as const).map(verb => ({ verb, prefix: under })),
        ),
      })
    await create('ann', 'repo/a')
    await create('bob', 'repo/a')
    expect((await post(server, LIST)).status).toBe(401)
    const bearer = (name: string) => ({ Authorization: `Bearer secret-of-${name}` })
    await using ann = await McpClient.http('1.x', url(server, 'worker', ''), bearer('ann'))
    expect(await ann.call('claim', { names: ['repo/a/x'], purpose: 'edit' })).toMatchObject({ status: 'held' })
    expect((await ann.call('claim', { names: ['repo/b/x'], purpose: 'edit' })).error?.code).toBe('FORBIDDEN')
    await using unnamed = await McpClient.http('1.x', url(server, undefined, ''), bearer('bob'))
    expect(await unnamed.call('whoami')).toMatchObject({ agent: 'bob' })
    expect(await unnamed.call('claim', { names: ['repo/a/x'], purpose: 'mine!' })).toMatchObject({ status: 'queued' })
    await using impostor = await McpClient.http('1.x', url(server, 'worker', ''), bearer('bob'))
    const HELD = { error: { code: 'HELD' } }
    for (const tool of ['mine', 'whoami', 'release'] as const) expect(await impostor.call(tool), tool).toMatchObject(HELD)
    await using below = await McpClient.http('1.x', url(server, 'worker/tests', ''), bearer('bob'))
    expect(await below.call('whoami')).toMatchObject(HELD)
    for (const name of ['agents/carl', 'name:agents/carl', 'agents', 'agents/worker'])
      expect(await unnamed.call('claim', { names: [name], purpose: 'squat' }), name).toMatchObject({ error: { code: 'INVALID' } })
    expect((await unnamed.call('look', { name: 'name:agents' })).status).toBe('ok')
    await using carl = await McpClient.http('1.x', url(server, 'carl', ''), bearer('ann'))
    expect(await carl.call('whoami')).toMatchObject({ agent: 'carl' })
    expect((await ann.call('mine')).held).toHaveLength(1)
  })
})

describe('between calls', () => {
  test('a place in a queue is kept for 15 minutes, and a grant waits for the agent as long', async () => {
    const clock = new ManualClock()
    await using server = await place({ clock, http: httpListener({ routes: [mcpRoute()] }) })
    await using one = await McpClient.http('1.x', url(server, 'one'))
    await using two = await McpClient.http('1.x', url(server, 'two'))
    await one.call('claim', { names: ['a'], purpose: 'x' })
    await two.call('claim', { names: ['a'], purpose: 'y' })
    await clock.advance(10 * 60_000)
    expect((await one.call('mine')).held).toHaveLength(1)
    await one.call('release')
    await clock.advance(4 * 60_000)
    expect((await two.call('mine')).held).toMatchObject([{ names: ['a'] }])
    await clock.advance(16 * 60_000)
    expect(await one.call('look', { name: 'a' })).toMatchObject({ names: [] })
    const back = await two.call('mine')
    expect(back.held).toMatchObject([{ names: ['a'] }])
    expect(back.notices).toMatchObject([{ kind: 'resumed' }])
  })
})
