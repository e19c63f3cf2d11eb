import { connect, type Socket } from 'node:net'
import { Writable } from 'node:stream'
import { describe, expect, test } from 'vitest'
import { turn } from '../../../src/clock.ts'
import { VERBS, type Verb } from '../../../src/kernel/command.ts'
import { VALUE_BYTES } from '../../../src/kernel/name.ts'
import { propose } from '../../../src/lessor/propose.ts'
import { OriginCheck } from '../../../src/server/http/origin-check.ts'
import { ROUTES } from '../../../src/server/http/routes.ts'
import { DEFAULT_LIMITS } from '../../../src/server/limits.ts'
import { auditTo, clean, serverLog } from '../../../src/server/log.ts'
import { type Reply, type World, world } from '../../support/http-world.ts'

/** A valid path and a valid body for each route. */
const BODIES: Readonly<Record<string, object>> = {
  'POST /v1/leases': { resources: ['mine/a'], holder: 'ann' },
  'POST /v1/leases/renew': { leases: [1] },
  'POST /v1/leases/{id}/renew': {},
  'POST /v1/break': { resource: 'mine/a' },
  'POST /v1/recall': { resource: 'mine/a' },
  'POST /v1/revoke': { prefix: 'mine' },
  'POST /v1/transfer': { lease: 1, to: 'bob' },
  'POST /v1/fence': { resource: 'mine/a', token: 1 },
  'PUT /v1/policies/{prefix}': { capacity: 1 },
  'PUT /v1/entries/{name}': { lease: 1, value: 'x' },
  'POST /v1/keys': { name: 'x', allow: [] },
  'POST /v1/keys/{id}/rotate': { overlap: 600_000 },
  'POST /v1/propose': { proposals: [{ command: { kind: 'release', lease: 1 } }] },
  'POST /v1/read': { query: { kind: 'leases' } },
}

function walk(here: World, headers: Record<string, string> = {}): Promise<readonly (readonly [string, Reply])[]> {
  return Promise.all(
    ROUTES.map(async ({ method, path, body }) => {
      const name = `${method} ${path}`
      const sentBody = body === undefined ? undefined : (BODIES[name] ?? {})
      return [name, await here.ask(method, path.replace('{id}', '1').replace(/\{\w+\}/, 'mine/a'), sentBody, headers)] as const
    }),
  )
}

const OPEN = ['GET /healthz', 'GET /readyz', 'GET /openapi.json', 'GET /', 'GET /page.js', 'GET /page.css', 'GET /page.svg']

describe('authentication and authorization', () => {
  test('once a key exists, every route needs one unless it is open, and all refuse with the same error', async () => {
    await using here = await world()
    await here.key('root', [{ verb: 'admin', prefix: '' }])
    for (const headers of [
      {},
      { authorization: 'Bearer nonsense' },
      { authorization: 'Basic YTpi' },
      { authorization: 'Bearer' },
    ] as Record<string, string>[]) {
      const answers = new Set<string>()
      for (const [name, { status, text }] of await walk(here, headers)) {
        expect([name, status === 401]).toEqual([name, !OPEN.includes(name)])
        if (status === 401) answers.add(text)
      }
      expect(answers.size).toBe(1)
      expect((await here.ask('GET', '/v1/no/such/thing', undefined, headers)).status).toBe(401)
    }
  })

  test.each(VERBS.map(verb => [verb]))('a key that may %s other names sees and changes nothing here', async (verb: Verb) => {
    await using here = await world()
    await here.key('root', [{ verb: 'admin', prefix: '' }])
    const secret = await here.key('foreign', [{ verb, prefix: 'elsewhere' }])
    const lessor = here.lessor
    await propose(lessor, { kind: 'policy', prefix: 'mine', rules: { capacity: 1 } })
    const lease = (await propose(lessor, {
      kind: 'acquire',
      holder: 'ann',
      ttl: 60_000,
      wants: [{ resource: 'mine/a' }],
      entries: [{ key: 'mine/entry', value: 'private' }],
    })) as { lease: number; tokens: readonly number[] }
    const waiter = (await propose(lessor, {
      kind: 'acquire',
      holder: 'bob',
      ttl: 60_000,
      wants: [{ resource: 'mine/a' }],
      wait: true,
    })) as {
      lease: number
    }
    const { revision } = await lessor.read({ kind: 'summary' })
    const bearer = { authorization: `Bearer ${secret}` }
    const id = lease.lease
    const asked: readonly (readonly [string, string, object?])[] = [
      ['POST', '/v1/leases', { resources: ['mine/a'], holder: 'eve' }],
      ['POST', '/v1/leases', { resources: ['mine/b'], holder: 'eve', wait: '1s' }],
      ['POST', '/v1/leases', { resources: [], holder: 'eve', entries: [{ key: 'mine/new', value: 'x' }] }],
      ['POST', '/v1/leases', { resources: [], holder: 'eve', parent: id }],
      ['POST', '/v1/leases', { resources: ['mine/a'], holder: 'eve', wait: '1s', steal: 'force' }],
      ['POST', `/v1/leases/${id}/renew`],
      ['POST', `/v1/leases/${waiter.lease}/renew`],
      ['DELETE', `/v1/leases/${id}`],
      ['DELETE', `/v1/leases/${waiter.lease}`],
      ['GET', `/v1/leases/${id}`],
      ['GET', '/v1/resources/mine/a'],
      ['GET', '/v1/history/mine/a'],
      ['GET', '/v1/entries/mine/entry'],
      ['GET', '/v1/policies/mine'],
      ['POST', '/v1/break', { resource: 'mine/a' }],
      ['POST', '/v1/recall', { resource: 'mine/a' }],
      ['POST', '/v1/revoke', { lease: id }],
      ['POST', '/v1/revoke', { holder: 'ann' }],
      ['POST', '/v1/revoke', { prefix: 'mine' }],
      ['POST', '/v1/transfer', { lease: id, to: 'eve' }],
      ['POST', '/v1/fence', { resource: 'mine/a', token: lease.tokens[0] }],
      ['PUT', '/v1/policies/mine', { capacity: 9 }],
      ['PUT', '/v1/policies/', { capacity: 9 }],
      ['DELETE', '/v1/policies/mine'],
      ['PUT', '/v1/entries/mine/entry', { lease: id, value: 'x' }],
      ['DELETE', '/v1/entries/mine/entry'],
      ['GET', '/v1/keys'],
      ['POST', '/v1/keys', { name: 'eve', allow: [{ verb: 'admin', prefix: '' }] }],
      ['DELETE', '/v1/keys/1'],
      ['GET', '/v1/backup'],
    ]
    for (const [method, path, body] of asked) {
      const reply = await here.ask(method, path, body, bearer)
      expect([method, path, reply.status], reply.text).toEqual([
        method,
        path,
        expect.toSatisfy((status: number) => [403, 404, 410].includes(status)),
      ])
      expect(reply.text).not.toMatch(/private|ann|bob/)
    }
    expect((await here.ask('POST', '/v1/leases/renew', { leases: [id, waiter.lease] }, bearer)).json.gone).toEqual([id, waiter.lease])
    const lists = ['/v1/leases', '/v1/leases?prefix=mine', '/v1/resources', '/v1/entries', '/v1/policies', '/metrics']
    for (const path of lists) expect((await here.ask('GET', path, undefined, bearer)).text).not.toMatch(/private|mine|ann|bob/)
    const commands = [
      { kind: 'revoke', target: { prefix: 'mine' } },
      { kind: 'generation', lease: 1, token: 1, revision: 1, quiet: 1 },
      { kind: 'upgrade', rules: 99 },
      { kind: 'put', lease: id, key: 'mine/entry', value: 'x' },
      { kind: 'due', timer: 1, epoch: 1 },
    ]
    const { json } = await here.ask('POST', '/v1/propose', { proposals: commands.map(command => ({ command })) }, bearer)
    for (const { outcome } of json.answers) expect(outcome.code).toMatch(/^(FORBIDDEN|NOT_FOUND|GONE|INVALID)$/)
    const spoken = await here.ask('POST', '/v1/propose', { proposals: [{ command: commands[0], key: 1 }] }, bearer)
    expect(spoken.json.answers[0].error.code).toBe('FORBIDDEN')
    for (const kind of ['leases', 'policies'])
      expect((await here.ask('POST', '/v1/read', { query: { kind } }, bearer)).json.value).toEqual([])
    for (const kind of ['resources', 'entries'])
      expect((await here.ask('POST', '/v1/read', { query: { kind, prefix: '' } }, bearer)).json.value ?? []).toEqual([])
    for (const kind of ['resource', 'history'])
      expect((await here.ask('POST', '/v1/read', { query: { kind, resource: 'mine/a' } }, bearer)).status).toBe(403)
    // None of it has changed anything, except what the key may do with its own leases.
    const after = await lessor.read({ kind: 'resource', resource: 'mine/a' })
    expect(after.value.grants.map(grant => [grant.lease, grant.status])).toEqual([[id, 'live']])
    expect(after.value.queue.map(({ lease }) => lease)).toEqual([waiter.lease])
    expect((await lessor.read({ kind: 'keys' })).value).toHaveLength(2)
    expect(after.revision).toBe(revision)
  })

  test('a key in a URL is refused with advice, and the response does not repeat it', async () => {
    await using here = await world()
    const canary = `lh_${'k'.repeat(43)}`
    for (const path of [
      `/v1/leases?key=${canary}`,
      `/v1/leases?api_key=x`,
      `/v1/resources/${canary}`,
      `/?access_token=x`,
      `/v1/watch?token=abc`,
    ]) {
      const { status, text } = await here.ask('GET', path)
      expect([path, status]).toEqual([path, 400])
      expect(text).toContain('Authorization: Bearer')
      expect(text).not.toContain(canary)
    }
  })

  test('a secret appears in no log, metric or response, and operator actions appear in the log', async () => {
    const lines: string[] = []
    const to = new Writable({
      write(chunk, _, done) {
        lines.push(String(chunk))
        done()
      },
    })
    const log = serverLog({ level: 'debug', to })
    await using here = await world({ log, audit: auditTo(log) })
    const { json } = await here.ask('POST', '/v1/keys', { name: 'ro\u001b[31mot\u202e', allow: [{ verb: 'admin', prefix: '' }] })
    expect(json.error.code).toBe('INVALID')
    const created = await here.ask('POST', '/v1/keys', { name: 'root', allow: [{ verb: 'admin', prefix: '' }] })
    const canary: string = created.json.key
    const bearer = { authorization: `Bearer ${canary}` }
    for (const [, { text }] of await walk(here, bearer)) expect(text).not.toContain(canary)
    const spare = await here.ask('POST', '/v1/keys', { name: 'spare', allow: [] }, bearer)
    expect((await here.ask('DELETE', `/v1/keys/${spare.json.id}`, undefined, bearer)).status).toBe(204)
    await here.ask('POST', '/v1/revoke', { holder: `${canary}\u202e` }, bearer)
    await here.ask('GET', `/v1/leases?key=${canary}`, undefined, bearer)
    await here.ask('POST', '/v1/leases', `{"${canary}`, bearer)
    const metrics = (await here.ask('GET', '/metrics', undefined, bearer)).text
    const logged = lines.join('')
    expect(metrics + logged).not.toContain(canary)
    expect(metrics + logged).not.toContain(canary.slice(3))
    const audit = lines.map(line => JSON.parse(line)).filter(line => line.audit)
    expect(audit.map(({ did, by }) => [did, by.name])).toContainEqual(['revoke', 'root'])
    expect(audit.map(({ did }) => did)).toEqual(expect.arrayContaining(['key', 'break', 'revoke', 'transfer', 'policy', 'unkey']))
    expect(logged).not.toMatch(/[\u202e\u001b]|\\u001b|\\u202e/)
    expect(logged).not.toContain('"hash"')
    expect(clean(`a\u001b[2Jb\u202ec\n${canary}`)).toBe('a\ufffd[2Jb\ufffdc\ufffd[key]')
  })
})

describe('host and origin', () => {
  test('an unknown host name gets 421 on every route, with or without keys', async () => {
    await using here = await world({ httpOptions: { hosts: ['leases.example'] } })
    for (const host of [
      'evil.example',
      'evil.example:80',
      'localhost.evil.example',
      '127.0.0.1.evil.example',
      '10.0.0.1',
      '-',
      'leases.example.',
      'a b',
    ])
      for (const [name, { status, text }] of await walk(here, { host })) {
        expect([name, host, status], text).toEqual([name, host, 421])
      }
    for (const host of ['localhost', 'LOCALHOST:99', '127.0.0.1', '127.9.9.9:1', '[::1]:7', 'leases.example', 'Leases.Example:443'])
      expect([host, (await here.ask('GET', '/v1/leases', undefined, { host })).status]).toEqual([host, 200])
    expect((await raw(here, 'GET /v1/leases HTTP/1.0\r\n\r\n')).split('\r\n')[0]).toContain('421')
    expect(
      (await raw(here, 'GET http://evil.example/v1/leases HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n')).split('\r\n')[0],
    ).toContain('421')
    expect(
      (await raw(here, 'GET http://localhost/v1/leases HTTP/1.1\r\nHost: evil\r\nConnection: close\r\n\r\n')).split('\r\n')[0],
    ).toContain('200')
  })

  test('a listener on [::] is reached by its IPv4 address, and by every form of its IPv6 address', () => {
    const originCheck = new OriginCheck()
    const check = (host: string, local: string) => {
      const ask = { method: 'GET', target: '/', hasBody: false, connection: {}, localAddress: local, header: () => undefined }
      return originCheck.check({ ...ask, body: () => Promise.resolve(''), gone: () => new AbortController().signal }, host, '/')
    }
    const mapped = '::ffff:192.0.2.7'
    for (const host of ['192.0.2.7', '192.0.2.7:7420', '[::ffff:192.0.2.7]:7420', '[::ffff:c000:207]']) check(host, mapped)
    for (const host of ['[2001:db8::7]:7420', '[2001:DB8:0::7]']) check(host, '2001:db8::7')
    for (const host of ['192.0.2.8', '192.0.2.7.example', '[::ffff:192.0.2.8]', '[2001:db8::7]', '[::]', '[::ffff:1.2.3]'])
      expect(() => check(host, mapped), host).toThrow('this server is not known as')
  })

  test('a page of another site is refused', async () => {
    await using here = await world()
    const own = `http://127.0.0.1:${here.port}`
    for (const headers of [
      { origin: 'https://evil.example' },
      { origin: 'null' },
      { origin: `http://127.0.0.1:${here.port + 1}` },
      { origin: `https://evil.example/${own}` },
      { 'sec-fetch-site': 'cross-site' },
      { 'sec-fetch-site': 'same-site' },
      { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'no-cors', 'sec-fetch-dest': 'script' },
      { 'sec-fetch-site': 'cross-site', accept: 'text/event-stream' },
    ] as Record<string, string>[])
      for (const [name, { status, headers: received }] of await walk(here, headers)) {
        expect([name, headers, status]).toEqual([name, headers, 403])
        expect(Object.keys(received).filter(header => header.startsWith('access-control'))).toEqual([])
      }
    const ok = await here.ask('GET', '/v1/leases', undefined, { origin: own, 'sec-fetch-site': 'same-origin' })
    expect(ok.status).toBe(200)
    const link = { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate', 'sec-fetch-dest': 'document' }
    expect((await here.ask('GET', '/', undefined, link)).status).toBe(200)
    expect((await here.ask('GET', '/v1/leases', undefined, link)).status).toBe(403)
    const preflight = await here.ask('OPTIONS', '/v1/leases', undefined, { 'access-control-request-method': 'POST' })
    expect([preflight.status, preflight.headers['access-control-allow-origin']]).toEqual([405, undefined])
    expect((await here.lessor.read({ kind: 'summary' })).value.leases).toBe(0)
  })

  test('a request that an HTML form can send changes nothing', async () => {
    await using here = await world()
    const body = JSON.stringify({ resources: ['a'], holder: 'x' })
    for (const type of [
      'application/x-www-form-urlencoded',
      'text/plain',
      'multipart/form-data; boundary=x',
      'application/jsonx',
      'text/plain; application/json',
      '',
    ])
      for (const { method, path } of ROUTES.filter(route => route.method !== 'GET')) {
        const target = path.replace('{id}', '1').replace(/\{\w+\}/, 'a')
        expect([path, type, (await here.ask(method, target, body, { 'content-type': type })).status]).toEqual([path, type, 415])
      }
    expect((await here.ask('POST', '/v1/leases/1/renew', '', { 'content-type': 'text/plain' })).status).toBe(415)
    expect((await here.ask('POST', '/v1/leases', body, { 'content-type': 'application/json; charset=utf-8' })).status).toBe(201)
  })

  test('every response has its security headers, and the page allows only its own script', async () => {
    await using here = await world()
    for (const [name, { headers, status }] of await walk(here)) {
      expect([name, headers['x-content-type-options']]).toEqual([name, 'nosniff'])
      if (status !== 204) expect([name, headers['content-type']]).toEqual([name, expect.stringMatching(/^[a-z]+\/[a-z.+-]+/)])
      if (!OPEN.includes(name)) expect(headers['content-type'] ?? '').not.toContain('html')
    }
    const { headers } = await here.ask('GET', '/')
    const policy = String(headers['content-security-policy'])
    expect(policy).toContain("default-src 'none'")
    expect(policy).toContain("script-src 'self'")
    expect(policy).toContain("frame-ancestors 'none'")
    expect(policy).not.toMatch(/unsafe|\*|https?:/)
    expect(headers['x-frame-options']).toBe('DENY')
  })
})

describe('bad input', () => {
  test('a body that is too large or too deeply nested is refused while it is read', async () => {
    await using here = await world()
    const large = await here.ask('POST', '/v1/leases', `{"holder":"${'x'.repeat(70_000)}"}`)
    expect([large.status, large.json.error.code, large.json.error.limit]).toEqual([413, 'TOO_LARGE', 65_536])
    const deep = (levels: number) =>
      here.ask('POST', '/v1/propose', `{"proposals":[{"command":${'['.repeat(levels)}${']'.repeat(levels)}}]}`)
    expect((await deep(14)).status).toBe(413)
    expect((await deep(13)).status).toBe(200)
    // An endless body without a length: the client is disconnected after the discarded bytes.
    const socket = connect(here.port, '127.0.0.1')
    socket.on('error', () => {})
    socket.write('POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n')
    const chunk = `4000\r\n${'x'.repeat(0x4000)}\r\n`
    let answer = ''
    socket.on('data', data => (answer += data))
    let sent = 0
    while (!socket.destroyed && sent < 64 << 20) {
      socket.write(chunk)
      sent += chunk.length
      await turn()
    }
    expect(sent).toBeLessThan(32 << 20)
    expect(answer).toContain('413')
  })

  test('names of built-in JavaScript properties are refused everywhere, and reach nothing', async () => {
    await using here = await world()
    const before = Object.getOwnPropertyNames(Object.prototype).sort()
    for (const name of ['__proto__', 'constructor', 'prototype', '\\u005f_proto__'])
      for (const body of [
        `{"resources":["a"],"holder":"x","${name}":{"polluted":1}}`,
        `{"resources":["a"],"holder":"x","labels":{"${name}":"y"}}`,
        `{"resources":["a"],"holder":"x","entries":[{"key":"a","value":"b","${name}":{}}]}`,
      ])
        expect((await here.ask('POST', '/v1/leases', body)).json.error).toMatchObject({
          code: 'INVALID',
          message: expect.stringMatching(/proto|constructor/),
        })
    expect((await here.ask('GET', '/v1/leases?__proto__=1')).status).toBe(400)
    expect((await here.ask('GET', '/v1/leases?constructor=1')).status).toBe(400)
    expect(Object.getOwnPropertyNames(Object.prototype).sort()).toEqual(before)
    expect(({} as { polluted?: number }).polluted).toBeUndefined()
  })

  test('ambiguous requests are refused', async () => {
    await using here = await world()
    const head = 'POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n'
    const body = '{"resources":["smuggled"],"holder":"x"}'
    for (const request of [
      `${head}Content-Length: 5\r\nContent-Length: ${body.length}\r\n\r\n${body}`,
      `${head}Content-Length: ${body.length}\r\nTransfer-Encoding: chunked\r\n\r\n${body}`,
      `${head}Transfer-Encoding: chunked, identity\r\n\r\n${body}`,
      `${head}Transfer-Encoding: xchunked\r\n\r\n${body}`,
      `${head}Content-Length: +${body.length}\r\n\r\n${body}`,
      `${head}Content-Length : ${body.length}\r\n\r\n${body}`,
      `${head} Content-Length: ${body.length}\r\n\r\n${body}`,
      `${head}X: a\rContent-Length: ${body.length}\r\n\r\n${body}`,
      `POST /v1/leases HTTP/1.1\nHost: localhost\n\n${body}`,
      `POST /v1/leases HTTP/3.7\r\nHost: localhost\r\n\r\n`,
      `POST  /v1/leases HTTP/1.1\r\nHost: localhost\r\n\r\n`,
      `${head}X: ${'x'.repeat(20_000)}\r\n\r\n`,
      head + Array.from({ length: 3_000 }, (_, i) => `x${i}: y\r\n`).join(''),
    ]) {
      const answer = await raw(here, request)
      expect(
        answer === '' || /^HTTP\/1\.1 4\d\d /.test(answer) || answer.startsWith('-'),
        `${request.slice(0, 160)} → ${answer.slice(0, 80)}`,
      ).toBe(true)
    }
    for (const body of [
      '{"resources":["a"],"holder":"x","holder":"y"}',
      '{"resources":["a"],"holder":"x","hold\\u0065r":"y"}',
      '{"resources":["a"],"holder":"x","labels":{"a":"b","a" \n:"c"}}',
      '{"resources":["a"],"holder":"\\\\","holder":"y"}',
    ])
      expect((await here.ask('POST', '/v1/leases', body)).json.error.message).toContain('twice')
    const invalid = Buffer.from('{"resources":["a\xff"],"holder":"x"}', 'latin1')
    expect((await here.ask('POST', '/v1/leases', invalid)).json.error.message).toContain('UTF-8')
    expect((await here.lessor.read({ kind: 'summary' })).value.leases).toBe(0)
  })

  test('slow headers and slow bodies time out, and other clients are served meanwhile', async () => {
    await using here = await world({ limits: { ...DEFAULT_LIMITS, headerTime: 300, bodyTime: 300 } })
    const slow = Array.from({ length: 50 }, (_, i) =>
      raw(
        here,
        i % 2 === 0
          ? 'GET /v1/leases HTTP/1.1\r\nHost: localhost\r\nX-Slow: '
          : 'POST /v1/leases HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"res',
      ),
    )
    expect((await here.ask('GET', '/v1/leases')).status).toBe(200)
    for (const answer of await Promise.all(slow)) {
      expect(answer).toMatch(/^HTTP\/1\.1 429 Too Many Requests\r\n.*"LIMIT"/s)
      expect(answer).toContain('Retry-After: 1\r\n')
      expect(answer).toContain('X-Content-Type-Options: nosniff\r\n')
    }
    expect((await here.ask('GET', '/v1/leases')).status).toBe(200)
  })
})

describe('limits', () => {
  test('a key above its rate gets Retry-After, may still renew and release, and does not affect other keys', async () => {
    await using here = await world({ limits: { ...DEFAULT_LIMITS, rate: 5 } })
    const mine = { authorization: `Bearer ${await here.key('mine', [{ verb: 'admin', prefix: '' }])}` }
    const theirs = { authorization: `Bearer ${await here.key('theirs', [{ verb: 'read', prefix: '' }])}` }
    const { json: lease } = await here.ask('POST', '/v1/leases', { resources: ['a'], holder: 'ann' }, mine)
    for (let i = 0; i < 4; i++) expect((await here.ask('GET', '/v1/leases', undefined, mine)).status).toBe(200)
    const refused = await here.ask('GET', '/v1/leases', undefined, mine)
    expect([refused.status, refused.json.error.code, refused.headers['retry-after']]).toEqual([429, 'LIMIT', '1'])
    expect((await here.ask('GET', '/v1/leases', undefined, theirs)).status).toBe(200)
    for (let i = 0; i < 10; i++) expect((await here.ask('POST', `/v1/leases/${lease.lease}/renew`, undefined, mine)).status).toBe(200)
    expect((await here.ask('DELETE', `/v1/leases/${lease.lease}`, undefined, mine)).status).toBe(204)
    await here.clock.advance(1_000)
    expect((await here.ask('GET', '/v1/leases', undefined, mine)).status).toBe(200)
  })

  test('one more than the limit is refused with a code: names, values, renewals, resources', async () => {
    await using here = await world()
    const lease = (await here.ask('POST', '/v1/leases', { resources: ['a'], holder: 'ann' })).json.lease
    const asked: readonly (readonly [string, string, object, string])[] = [
      ['POST', '/v1/leases', { resources: ['x'.repeat(513)], holder: 'ann' }, 'INVALID'],
      ['POST', '/v1/leases', { resources: Array.from({ length: 257 }, (_, i) => `r${i}`), holder: 'ann' }, 'INVALID'],
      ['POST', '/v1/leases', { resources: ['b'], holder: 'ann', ttl: '2d' }, 'INVALID'],
      [
        'POST',
        '/v1/leases',
        { resources: ['b'], holder: 'ann', labels: Object.fromEntries(Array.from({ length: 33 }, (_, i) => [`l${i}`, 'x'])) },
        'INVALID',
      ],
      ['PUT', '/v1/entries/e', { lease, value: 'x'.repeat(VALUE_BYTES + 1) }, 'INVALID'],
      ['POST', '/v1/leases/renew', { leases: Array.from({ length: 10_001 }, () => 1) }, 'LIMIT'],
      ['POST', '/v1/propose', { proposals: Array.from({ length: 1_001 }, () => ({})) }, 'INVALID'],
    ]
    for (const [method, path, body, code] of asked) expect((await here.ask(method, path, body)).json.error.code).toBe(code)
    expect((await here.lessor.read({ kind: 'summary' })).value.leases).toBe(1)
  })
})

/** Everything that the server sends until it closes the connection. */
function raw(here: World, text: string): Promise<string> {
  return new Promise(resolve => {
    const socket: Socket = connect(here.port, '127.0.0.1')
    let answer = ''
    socket.on('data', data => (answer += data))
    socket.on('error', () => {})
    socket.on('close', () => resolve(answer))
    socket.write(text)
    // One test sends an endless pipeline: end it, so that the server closes the connection.
    if (text.endsWith('\r\n\r\n') || text.endsWith('}')) socket.end()
  })
}
