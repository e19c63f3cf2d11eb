/** The etcd face: what it answers, what it refuses and with which error of etcd, and that nothing else is disturbed. */
import { once } from 'node:events'
import http2 from 'node:http2'
import { describe, expect, test } from 'vitest'
import { etcdFace } from '../../../src/face/etcd/gateway.ts'
import { keyOf, nameOf } from '../../../src/face/etcd/names.ts'
import { propose } from '../../../src/lessor/propose.ts'
import { type World, world } from '../../support/http-world.ts'
import { random } from '../../support/kernel/stream.ts'

const b64 = (text: string) => Buffer.from(text, 'latin1').toString('base64')
const open = (options = {}) => world({ faces: [etcdFace()], ...options })

async function said(here: World, path: string, body: object | string = {}, headers: Readonly<Record<string, string>> = {}) {
  const { status, text } = await here.ask('POST', `/v3/${path}`, body, headers)
  const json = JSON.parse(text)
  return { status, ...json, ...(status !== 200 && { header: undefined }) }
}

async function granted(here: World, TTL = 60): Promise<string> {
  return (await said(here, 'lease/grant', { TTL })).ID
}

/** A stream that is read line by line. */
class Lines implements AsyncDisposable {
  readonly #stop = new AbortController()
  readonly #lines: AsyncGenerator<string, void, void>

  constructor(here: World, path: string, body: object | string) {
    this.#lines = this.#read(here, path, typeof body === 'string' ? body : JSON.stringify(body))
  }

  async *#read(here: World, path: string, body: string): AsyncGenerator<string, void, void> {
    const response = await fetch(`${here.url}/v3/${path}`, { method: 'POST', body, signal: this.#stop.signal })
    let rest = ''
    for await (const piece of response.body!) {
      rest += Buffer.from(piece).toString()
      for (let end = rest.indexOf('\n'); end >= 0; end = rest.indexOf('\n')) {
        yield rest.slice(0, end)
        rest = rest.slice(end + 1)
      }
    }
  }

  // biome-ignore lint/suspicious/noExplicitAny: the test checks the shape
  async next(): Promise<any> {
    const { done, value } = await this.#lines.next()
    return done ? 'ended' : JSON.parse(value)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort()
    await this.#lines.return().catch(() => {})
  }
}

describe('names', () => {
  test('keys of any bytes have names of their own that can be read back, and text stays readable', () => {
    expect(nameOf('/service/db/leader')).toBe('etcd/%/service/db/leader')
    expect(nameOf(Buffer.from('caf\u00e9/100%').toString('latin1'))).toBe('etcd/caf\u00e9/100%25')
    const dice = random(7)
    const bytes = ['/', '.', '%', 'a', '\0', '\xff', '\xc3\xa9', '\xe9', '\x85', '\n', '2', 'F']
    const seen = new Map<string, string>()
    for (let n = 0; n < 5_000; n++) {
      const key = Array.from({ length: 1 + dice(6) }, () => bytes[dice(bytes.length)]!).join('')
      const name = nameOf(key)
      if (keyOf(name) !== key || (seen.get(name) ?? key) !== key) expect.fail(`${JSON.stringify(key)} is ${name}`)
      seen.set(name, key)
    }
  })

  test('an entry that is no key of etcd is not listed', async () => {
    await using here = await open()
    await propose(here.lessor, { kind: 'transaction', success: [{ key: 'etcd/a%2Fb' }, { key: 'etcd/a' }] })
    const { kvs } = await said(here, 'kv/range', { key: b64('\0'), range_end: b64('\0') })
    expect(kvs).toEqual([expect.objectContaining({ key: b64('a') })])
  })
})

describe('keys', () => {
  test('are entries: free ones, or on the lease that they name', async () => {
    await using here = await open()
    const lease = await granted(here)
    await said(here, 'kv/put', { key: b64('jobs/a'), value: b64('1') })
    await said(here, 'kv/put', { key: b64('jobs/b'), value: b64('\xff'), lease })
    const { value } = await here.lessor.read({ kind: 'entries', prefix: 'etcd' })
    expect(value).toMatchObject([
      { key: 'etcd/jobs/a', value: '1', lease: 0 },
      { key: 'etcd/jobs/b', value: 'base64:/w==', lease: Number(lease) },
    ])
  })

  test('of a past revision are compacted, of a coming one not there yet, and only the present one can be compacted', async () => {
    await using here = await open()
    const { header } = await said(here, 'kv/put', { key: b64('a') })
    const before = String(Number(header.revision) - 1)
    const after = String(Number(header.revision) + 1)
    expect(await said(here, 'kv/range', { key: b64('a'), revision: header.revision })).toMatchObject({ status: 200, count: '1' })
    for (const path of ['kv/range', 'kv/compaction']) {
      const key = path === 'kv/range' ? { key: b64('a') } : {}
      expect(await said(here, path, { ...key, revision: before })).toMatchObject({
        status: 400,
        code: 11,
        error: 'etcdserver: mvcc: required revision has been compacted',
      })
      expect(await said(here, path, { ...key, revision: after })).toMatchObject({
        status: 400,
        code: 11,
        error: 'etcdserver: mvcc: required revision is a future revision',
      })
    }
    expect(await said(here, 'kv/compaction', { revision: header.revision })).toMatchObject({ status: 200 })
  })

  test('more than one revision can delete are deleted in several', async () => {
    await using here = await open()
    for (let n = 0; n < 250; n += 50)
      await said(here, 'kv/txn', {
        success: Array.from({ length: 50 }, (_, i) => ({ request_put: { key: b64(`many/${n + i}`), value: b64('v') } })),
      })
    const asked = { key: b64('many/'), range_end: b64('many0') }
    expect(await said(here, 'kv/range', { ...asked, count_only: true })).toMatchObject({ count: '250' })
    expect(await said(here, 'kv/txn', { success: [{ request_delete_range: asked }] })).toMatchObject({
      status: 400,
      error: 'etcdserver: too many operations in txn request',
    })
    const { deleted, prev_kvs } = await said(here, 'kv/deleterange', { ...asked, prev_kv: true })
    expect([deleted, prev_kvs.length]).toEqual(['250', 250])
    expect(await said(here, 'kv/range', { ...asked })).not.toHaveProperty('kvs')
  })

  test('are bounded: long keys and values, and more than the policy allows', async () => {
    await using here = await open()
    expect(await said(here, 'kv/put', { key: b64('k'.repeat(508)) })).toMatchObject({ status: 400, code: 3 })
    expect(await said(here, 'kv/put', { key: b64('k'), value: b64('v'.repeat(16_385)) })).toMatchObject({
      status: 400,
      error: 'etcdserver: request is too large',
    })
    expect(await said(here, 'kv/put', { key: b64('k'), value: b64('v'.repeat(70_000)) })).toMatchObject({
      status: 400,
      error: 'etcdserver: request is too large',
    })
    await propose(here.lessor, { kind: 'policy', prefix: 'etcd', rules: { freeEntries: 1 } })
    await said(here, 'kv/put', { key: b64('a') })
    expect(await said(here, 'kv/put', { key: b64('b') })).toMatchObject({ status: 429, code: 8, details: expect.stringMatching(/policy/) })
  })

  test('of many clients at once: no transaction is lost or made twice', async () => {
    await using here = await open()
    const key = b64('count')
    const add = async () => {
      for (;;) {
        const { kvs = [] } = await said(here, 'kv/range', { key })
        const now = kvs.length === 0 ? 0 : Number(Buffer.from(kvs[0].value, 'base64').toString())
        const compare = [{ key, target: 'VERSION', result: 'LESS', version: now + 1 }]
        // A comparison of two fields, one of which only a plan can make.
        const whole =
          now === 0 ? compare : [...compare, { key, target: 'VALUE', result: 'LESS', value: b64(String(now + 1).padStart(3, '0')) }]
        const put = { request_put: { key, value: b64(String(now + 1).padStart(3, '0')), prev_kv: true } }
        const { succeeded } = await said(here, 'kv/txn', { compare: whole, success: [put] })
        if (succeeded) return
      }
    }
    await Promise.all(Array.from({ length: 12 }, add))
    const { kvs } = await said(here, 'kv/range', { key })
    expect(kvs).toMatchObject([{ version: '12', value: b64('012') }])
  })

  test('a comparison of a range is refused by name', async () => {
    await using here = await open()
    const compare = [{ key: b64('a'), range_end: b64('b'), target: 'CREATE' }]
    expect(await said(here, 'kv/txn', { compare })).toMatchObject({ status: 501, code: 12, error: expect.stringMatching(/range/) })
  })
})

describe('leases', () => {
  test('end with their keys when they are not kept alive, and not before', async () => {
    await using here = await open()
    const lease = await granted(here, 40)
    await said(here, 'kv/put', { key: b64('a'), lease })
    await here.clock.advance(39_000)
    expect(await said(here, 'lease/timetolive', { ID: lease, keys: true })).toMatchObject({ TTL: '1', grantedTTL: '40', keys: [b64('a')] })
    expect((await said(here, 'lease/keepalive', { ID: lease })).result).toMatchObject({ ID: lease, TTL: '40' })
    await here.clock.advance(39_000)
    expect(await said(here, 'kv/range', { key: b64('a') })).toMatchObject({ count: '1' })
    await here.clock.advance(2_000)
    expect(await said(here, 'kv/range', { key: b64('a') })).not.toHaveProperty('kvs')
    expect((await said(here, 'lease/keepalive', { ID: lease })).result).not.toHaveProperty('TTL')
    expect(await said(here, 'lease/timetolive', { ID: lease })).toMatchObject({ TTL: '-1' })
  })

  test('are at least 2 s and at most a day, have the ID that the server chooses, and are listed', async () => {
    await using here = await open()
    expect(await said(here, 'lease/grant', { TTL: 0 })).toMatchObject({ TTL: '2' })
    const { ID, TTL } = await said(here, 'lease/grant', { TTL: '1000000' })
    expect(TTL).toBe('86400')
    expect(await said(here, 'lease/grant', { TTL: 5, ID: '77' })).toMatchObject({ status: 501, code: 12 })
    await propose(here.lessor, { kind: 'acquire', holder: 'ann', ttl: 5_000, wants: [{ resource: 'other' }] })
    const { leases } = await said(here, 'lease/leases')
    expect(leases).toHaveLength(2)
    expect(leases).toContainEqual({ ID })
  })

  test('several keepalives of one stream are each answered', async () => {
    await using here = await open()
    const [a, b] = [await granted(here), await granted(here)]
    const { text } = await here.ask('POST', '/v3/lease/keepalive', `{"ID":"${a}"}\n{"ID":${b}}`)
    expect(
      text
        .trim()
        .split('\n')
        .map(line => JSON.parse(line).result.ID),
    ).toEqual([a, b])
  })
})

describe('watches', () => {
  test('tell every change of their keys with its revisions, versions and previous value, and nothing else', async () => {
    await using here = await open()
    await said(here, 'kv/put', { key: b64('jobs/old'), value: b64('0') })
    await using lines = new Lines(here, 'watch', { create_request: { key: b64('jobs/'), range_end: b64('jobs0'), prev_kv: true } })
    expect((await lines.next()).result).toMatchObject({ created: true })
    await said(here, 'kv/put', { key: b64('jobs'), value: b64('no') })
    const { header } = await said(here, 'kv/put', { key: b64('jobs/old'), value: b64('1') })
    expect((await lines.next()).result).toEqual({
      header: expect.objectContaining({ revision: header.revision }),
      events: [
        {
          kv: expect.objectContaining({ key: b64('jobs/old'), mod_revision: header.revision, version: '2', value: b64('1') }),
          prev_kv: expect.objectContaining({ version: '1', value: b64('0') }),
        },
      ],
    })
    const lease = await granted(here, 20)
    await said(here, 'kv/txn', {
      success: [{ request_put: { key: b64('jobs/a'), lease } }, { request_delete_range: { key: b64('jobs/old') } }],
    })
    const { events } = (await lines.next()).result
    expect(events).toEqual([
      { kv: expect.objectContaining({ key: b64('jobs/a'), version: '1', lease }) },
      {
        type: 'DELETE',
        kv: { key: b64('jobs/old'), mod_revision: expect.any(String) },
        prev_kv: expect.objectContaining({ version: '2' }),
      },
    ])
    await here.clock.advance(25_000)
    expect((await lines.next()).result.events).toMatchObject([{ type: 'DELETE', kv: { key: b64('jobs/a') } }])
  })

  test('begin in the past with what is still known, and are cancelled with the compacted revision otherwise', async () => {
    await using here = await open({ events: 20 })
    const key = b64('a')
    const { header } = await said(here, 'kv/put', { key, value: b64('1') })
    await said(here, 'kv/put', { key, value: b64('2') })
    await said(here, 'kv/deleterange', { key })
    await said(here, 'kv/put', { key, value: b64('3') })
    {
      await using lines = new Lines(here, 'watch', { create_request: { key, start_revision: header.revision } })
      await lines.next()
      expect((await lines.next()).result.events[0].kv).toMatchObject({ value: b64('1'), mod_revision: header.revision })
      expect((await lines.next()).result.events[0].kv).toMatchObject({ value: b64('2') })
      expect((await lines.next()).result.events[0]).toMatchObject({ type: 'DELETE' })
      expect((await lines.next()).result.events[0].kv).toMatchObject({ value: b64('3'), version: '1' })
      await said(here, 'kv/put', { key, value: b64('4') })
      expect((await lines.next()).result.events[0].kv).toMatchObject({ value: b64('4'), version: '2' })
    }
    for (let n = 0; n < 30; n++) await said(here, 'kv/put', { key, value: b64(String(n)) })
    await using lines = new Lines(here, 'watch', { createRequest: { key, startRevision: header.revision } })
    await lines.next()
    const { result } = await lines.next()
    expect(result).toMatchObject({ canceled: true })
    expect(Number(result.compact_revision)).toBeGreaterThan(Number(header.revision))
  })

  test('share a stream: created, filtered, asked for progress and cancelled by number', async () => {
    await using here = await open()
    const stream = [
      { create_request: { key: b64('a'), filters: ['NOPUT'] } },
      { create_request: { key: b64('a'), watch_id: 9 } },
      { progress_request: {} },
      { cancel_request: { watch_id: 9 } },
    ]
    await using lines = new Lines(here, 'watch', stream.map(item => JSON.stringify(item)).join('\n'))
    expect((await lines.next()).result).toEqual({ header: expect.any(Object), created: true })
    expect((await lines.next()).result).toMatchObject({ watch_id: '9', created: true })
    expect((await lines.next()).result).toMatchObject({ watch_id: '-1' })
    expect((await lines.next()).result).toMatchObject({ watch_id: '9', canceled: true })
    await said(here, 'kv/put', { key: b64('a') })
    await said(here, 'kv/deleterange', { key: b64('a') })
    expect((await lines.next()).result.events).toMatchObject([{ type: 'DELETE' }])
  })

  test('that cover too many keys together are refused, and the others go on', async () => {
    await using here = await open()
    await said(here, 'kv/put', { key: b64('a') })
    const many = Array.from({ length: 101 }, () => '{"create_request":{"key":"YQ=="}}').join('')
    await using lines = new Lines(here, 'watch', many)
    const items = []
    for (let item = await lines.next(); item !== 'ended' && items.length < 110; item = await lines.next()) items.push(item)
    expect(items.at(-1)).toMatchObject({ error: { message: expect.any(String) } })
  })
})

describe('locks', () => {
  test('hold etcd/NAME: they exclude each other and every other holder, and go to the next in turn', async () => {
    await using here = await open()
    const [a, b] = [await granted(here), await granted(here)]
    const { key } = await said(here, 'lock/lock', { name: b64('jobs'), lease: a })
    expect(Buffer.from(key, 'base64').toString()).toBe(`jobs/${Number(a).toString(16)}`)
    const want = { kind: 'acquire', holder: 'ann', ttl: 5_000, wants: [{ resource: 'etcd/jobs' }] } as const
    expect(await propose(here.lessor, want)).toMatchObject({ kind: 'refused', code: 'HELD' })
    expect(await said(here, 'lock/lock', { name: b64('jobs'), lease: a })).toMatchObject({ key })
    expect(await said(here, 'kv/range', { key })).toMatchObject({ count: '1' })
    const second = said(here, 'lock/lock', { name: b64('jobs'), lease: b })
    await expect.poll(async () => (await here.lessor.read({ kind: 'resource', resource: 'etcd/jobs' })).value.queue.length).toBe(1)
    await said(here, 'lock/unlock', { key })
    const { key: other } = await second
    expect(other).not.toBe(key)
    expect(await said(here, 'kv/range', { key })).not.toHaveProperty('kvs')
    await said(here, 'lease/revoke', { ID: b })
    expect(await propose(here.lessor, want)).toMatchObject({ kind: 'granted' })
  })

  test('end with their lease, live as long as it is kept alive, and leave the queue with their client', async () => {
    await using here = await open()
    const lease = await granted(here, 20)
    await said(here, 'lock/lock', { name: b64('jobs'), lease })
    const queue = async () => (await here.lessor.read({ kind: 'resource', resource: 'etcd/jobs' })).value
    {
      await using _waiting = new Lines(here, 'lock/lock', { name: b64('jobs'), lease: await granted(here) })
      const gone = _waiting.next().catch(() => 'gone')
      await expect.poll(async () => (await queue()).queue.length).toBe(1)
      void gone
    }
    const queuedLater = async () => {
      await here.clock.advance(500) // the server looks whether the client is still there
      return (await queue()).queue.length
    }
    await expect.poll(queuedLater).toBe(0)
    for (let n = 0; n < 4; n++) {
      await here.clock.advance(15_000)
      await said(here, 'lease/keepalive', { ID: lease })
    }
    expect((await queue()).grants).toHaveLength(1)
    await here.clock.advance(41_000)
    expect((await queue()).grants).toHaveLength(0)
  })

  test('need a lease that is there, or get one of 60 s', async () => {
    await using here = await open()
    expect(await said(here, 'lock/lock', { name: b64('jobs'), lease: '777' })).toMatchObject({
      status: 500,
      error: 'etcdserver: requested lease not found',
    })
    const { key } = await said(here, 'lock/lock', { name: b64('jobs') })
    const lease = Number.parseInt(Buffer.from(key, 'base64').toString().split('/')[1]!, 16)
    expect(await said(here, 'lease/timetolive', { ID: lease })).toMatchObject({ grantedTTL: '60' })
    expect(await said(here, 'lock/unlock', { key: b64('jobs/none') })).toMatchObject({ status: 200 })
  })
})

describe('elections', () => {
  test('have one leader, who proclaims values, is observed and resigns', async () => {
    await using here = await open()
    const name = b64('main')
    expect(await said(here, 'election/leader', { name })).toMatchObject({ status: 500, error: 'election: no leader' })
    await using lines = new Lines(here, 'election/observe', { name })
    const lease = await granted(here)
    const { leader } = await said(here, 'election/campaign', { name, lease, value: b64('one') })
    expect(leader).toMatchObject({ name, lease })
    const { kv } = await said(here, 'election/leader', { name })
    expect(kv).toMatchObject({ key: leader.key, value: b64('one'), create_revision: leader.rev })
    expect((await lines.next()).result.kv).toMatchObject({ value: b64('one') })
    expect(await said(here, 'election/proclaim', { leader, value: b64('two') })).toMatchObject({ status: 200 })
    expect((await lines.next()).result.kv).toMatchObject({ value: b64('two') })
    expect(await said(here, 'election/proclaim', { leader: { ...leader, rev: '1' }, value: b64('no') })).toMatchObject({
      status: 500,
      error: 'election: not leader',
    })
    const next = said(here, 'election/campaign', { name, lease: await granted(here), value: b64('three') })
    await said(here, 'election/resign', { leader: { ...leader, rev: '1' } })
    expect((await said(here, 'election/leader', { name })).kv).toMatchObject({ value: b64('two') })
    await said(here, 'election/resign', { leader })
    await next
    expect((await lines.next()).result.kv).toMatchObject({ value: b64('three') })
  })
})

describe('the rest of the gateway', () => {
  test('answers version, health, status, members and the older paths', async () => {
    await using here = await open()
    expect((await here.ask('GET', '/version')).json).toEqual({ etcdserver: expect.stringMatching(/^3\.4/), etcdcluster: '3.4.0' })
    expect((await here.ask('GET', '/health')).json).toEqual({ health: 'true' })
    expect(await said(here, 'maintenance/status')).toMatchObject({ version: expect.any(String), leader: expect.any(String) })
    const { members } = await said(here, 'cluster/member/list')
    expect(members).toMatchObject([{ clientURLs: [here.url] }])
    for (const root of ['v3beta', 'v3alpha'])
      expect((await here.ask('POST', `/${root}/kv/range`, { key: b64('a') })).json).toHaveProperty('header')
    expect((await here.ask('POST', '/v3/kv/none', {})).status).toBe(404)
    expect((await here.ask('GET', '/v3/kv/range')).status).toBe(405)
  })

  test('refuses gRPC clients with a status of gRPC that says why, and closes the connection', async () => {
    await using here = await open()
    const session = http2.connect(here.url)
    const closed = once(session, 'close')
    const stream = session.request({ ':method': 'POST', ':path': '/etcdserverpb.KV/Range', 'content-type': 'application/grpc' })
    const [headers] = (await once(stream, 'response')) as [Record<string, string>]
    expect(headers['grpc-status']).toBe('12')
    expect(headers['grpc-message']).toMatch(/JSON gateway/)
    await closed
    const { status } = await here.ask('GET', '/version')
    expect(status).toBe(200)
  })

  test('takes a key as password and as token, and lets it do what it may', async () => {
    await using here = await open()
    expect(await said(here, 'auth/authenticate', { name: 'u', password: 'p' })).toMatchObject({
      status: 412,
      error: 'etcdserver: authentication is not enabled',
    })
    const secret = await here.key('etcd', [
      { verb: 'acquire', prefix: 'etcd' },
      { verb: 'register', prefix: 'etcd/mine' },
      { verb: 'read', prefix: 'etcd/mine' },
    ])
    expect(await said(here, 'kv/range', { key: b64('a') })).toMatchObject({ status: 400, error: 'etcdserver: user name is empty' })
    expect(await said(here, 'kv/range', { key: b64('a') }, { authorization: 'wrong' })).toMatchObject({
      status: 401,
      error: 'etcdserver: invalid auth token',
    })
    for (const body of [{ name: 'u', password: 'wrong' }, {}, '{"password":1}', 'x'])
      expect(await said(here, 'auth/authenticate', body)).toMatchObject({
        status: 400,
        error: 'etcdserver: authentication failed, invalid user ID or password',
      })
    const { token } = await said(here, 'auth/authenticate', { name: 'u', password: secret })
    const headers = { authorization: token }
    expect(await said(here, 'kv/put', { key: b64('mine/a') }, headers)).toMatchObject({ status: 200 })
    expect(await said(here, 'kv/put', { key: b64('a') }, headers)).toMatchObject({
      status: 403,
      code: 7,
      error: 'etcdserver: permission denied',
    })
    const lease = (await said(here, 'lease/grant', { TTL: 20 }, headers)).ID
    expect(await said(here, 'kv/put', { key: b64('mine/b'), lease }, headers)).toMatchObject({ status: 200 })
    expect((await said(here, 'lease/leases', {}, headers)).leases).toEqual([{ ID: lease }])
  })
})
