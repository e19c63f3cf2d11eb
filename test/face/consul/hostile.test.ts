/** Hostile input of the faces that speak HTTP: recorded requests of real clients, mutated. Each is answered in the protocol's own words, and nothing else is disturbed. */
import { describe, expect, test } from 'vitest'
import { consulFace } from '../../../src/face/consul/face.ts'
import { eurekaFace } from '../../../src/face/eureka/face.ts'
import type { Face } from '../../../src/face/face.ts'
import { propose } from '../../../src/lessor/propose.ts'
import { limitsFrom } from '../../../src/server/limits.ts'
import { faceWorld } from '../../support/face-world.ts'
import { MUTATED_REQUESTS, mutated, type RecordedRequest } from '../../support/http-mutation.ts'
import { world } from '../../support/http-world.ts'
import { requestsIn } from '../../support/recorded-face.ts'
import { Dice } from '../../support/resp-mutation.ts'

const SEED = 17
/** Requests that are under way together. */
const MAX_BATCH = 50

/** by-hand.jsonl has what none of these clients sends: bodies in XML, and metadata. */
const FACES: readonly [string, () => Face, ...URL[]][] = [
  ['consul', consulFace, new URL('recorded.jsonl', import.meta.url)],
  ['eureka', eurekaFace, new URL('../eureka/recorded.jsonl', import.meta.url), new URL('../eureka/by-hand.jsonl', import.meta.url)],
]

describe.each(FACES)('mutated requests of %s clients', (name, face, ...files) => {
  test('get an answer of the protocol, and leave others as they were', { timeout: 900_000 + MUTATED_REQUESTS * 5 }, async () => {
    await using here = await faceWorld(face())
    // Blocking queries end soon: time passes in steps of ten seconds here.
    const corpus = files
      .flatMap(requestsIn)
      .map(([method, target, ...rest]) => [method, target.replace(/wait=\d+ms/, 'wait=1ms'), ...rest] as RecordedRequest)
    expect(corpus.length).toBeGreaterThan(10)
    const dice = new Dice(SEED)
    const kept = await propose(here.lessor, { kind: 'acquire', holder: 'ann', ttl: 86_400_000, wants: [{ resource: 'jobs' }] })
    if (kept.kind !== 'granted') throw new Error(kept.kind)
    let session = ''
    const statuses = new Set<number>()
    for (let sent = 0; sent < MUTATED_REQUESTS; sent += MAX_BATCH) {
      if (name === 'consul') session = (await here.ask('PUT', '/v1/session/create', { TTL: '10s' })).json.ID
      const batch = Array.from({ length: MAX_BATCH }, async () => {
        const [method, target, body, type = ''] = mutated(dice, corpus)
        const reply = await here.ask(method, target.replace('$SESSION', session), body, { headers: { 'content-type': type, accept: type } })
        statuses.add(reply.status)
        expect(reply.status, `${method} ${target} ${body}`).toBeGreaterThanOrEqual(200)
        expect(reply.status, `${method} ${target} ${body}`).toBeLessThan(504)
      })
      const all = Promise.all(batch)
      let isOver = false
      void all.finally(() => (isOver = true)).catch(() => {})
      // A blocking query may have lost its short time to a mutation.
      for (let i = 0; i < 5; i++) await new Promise(resolve => setImmediate(resolve))
      while (!isOver) {
        await here.clock.advance(10_000)
        await new Promise(resolve => setImmediate(resolve))
      }
      await all
      await propose(here.lessor, { kind: 'renew', leases: [kept.lease] })
    }
    expect([...statuses]).toEqual(expect.arrayContaining([200, 400, 404]))
    const { value } = await here.lessor.read({ kind: 'resource', resource: 'jobs' })
    expect(value.grants.map(({ holder }) => holder)).toEqual(['ann'])
    const names = (await here.lessor.read({ kind: 'entries', prefix: '' })).value.map(({ key }) => key.split('/')[0])
    expect([...new Set(names)].filter(root => root !== name && root !== 'services')).toEqual([])
  })
})

describe('over the wire', () => {
  test('oversized bodies and foreign credentials get errors of the protocol', async () => {
    await using here = await world({ faces: [consulFace(), eurekaFace()] })
    const big = 'x'.repeat(200_000)
    const tooLarge = await here.ask('PUT', '/v1/kv/k', big)
    expect([tooLarge.status, tooLarge.headers['content-type']]).toEqual([413, 'text/plain; charset=utf-8'])
    expect((await here.ask('POST', '/eureka/apps/a', big)).status).toBe(413)
    const secret = await here.key('app', [
      { verb: 'acquire', prefix: 'consul/app' },
      { verb: 'register', prefix: 'consul' },
      { verb: 'read', prefix: 'consul' },
    ])
    expect((await here.ask('GET', '/v1/kv/app')).status).toBe(403)
    expect((await here.ask('GET', '/v1/kv/app', undefined, { 'x-consul-token': 'wrong' })).text).toMatch(/^Permission denied/)
    expect((await here.ask('GET', '/eureka/apps')).status).toBe(401)
    const mine = { 'x-consul-token': secret }
    const { ID } = (await here.ask('PUT', '/v1/session/create', { TTL: '10s' }, mine)).json
    expect((await here.ask('PUT', `/v1/kv/app/a?acquire=${ID}`, 'v', mine)).text).toBe('true')
    expect((await here.ask('PUT', `/v1/kv/other?acquire=${ID}`, 'v', mine)).status).toBe(403)
    expect((await here.ask('PUT', `/v1/agent/service/register`, { Name: 'web' }, mine)).status).toBe(403)
    expect((await here.ask('GET', '/v1/kv/app/a', undefined, { authorization: `Bearer ${secret}` })).json[0].Session).toBe(ID)
    const other = await here.key('other', [
      { verb: 'acquire', prefix: 'consul' },
      { verb: 'register', prefix: 'consul' },
      { verb: 'read', prefix: 'consul' },
    ])
    const theirs = { 'x-consul-token': other }
    expect((await here.ask('PUT', `/v1/session/destroy/${ID}`, undefined, theirs)).status).toBe(403)
    expect((await here.ask('PUT', `/v1/session/renew/${ID}`, undefined, theirs)).status).toBe(404)
    await here.ask('DELETE', '/v1/kv/app/a', undefined, theirs)
    const { value } = await here.lessor.read({ kind: 'resource', resource: 'consul/app/a' })
    expect(value.grants).toHaveLength(1)
    const basic = Buffer.from(`user:${other}`).toString('base64')
    expect(
      (await here.ask('GET', '/eureka/apps', undefined, { authorization: `Basic ${basic}`, accept: 'application/json' })).status,
    ).not.toBe(401)
  })

  test('a key learns no names of services and sessions that it may not read', async () => {
    await using here = await world({ faces: [consulFace()] })
    const keyFor = async (name: string) => ({
      'x-consul-token': await here.key(name, [
        ...(['acquire', 'register', 'read', 'watch'] as const).flatMap(verb => [
          { verb, prefix: `consul/${name}` },
          { verb, prefix: `services/${name}` },
        ]),
        { verb: 'register', prefix: 'consul/.session' },
        { verb: 'read', prefix: 'consul/.session' },
      ]),
    })
    const a = await keyFor('a')
    const b = await keyFor('b')
    const ops = { 'x-consul-token': await here.key('ops', [{ verb: 'read', prefix: '' }]) }
    expect(
      (await here.ask('PUT', '/v1/agent/service/register', { Name: 'a', ID: 'a-1', Check: { TTL: '30s', CheckID: 'c-1' } }, a)).status,
    ).toBe(200)
    for (const [method, path] of [
      ['GET', '/v1/agent/service/a-1'],
      ['PUT', '/v1/agent/service/deregister/a-1'],
      ['PUT', '/v1/agent/service/maintenance/a-1?enable=true'],
      ['PUT', '/v1/agent/check/pass/c-1'],
      ['PUT', '/v1/agent/check/deregister/c-1'],
    ] as const) {
      // The second time, the face remembers where the ID is.
      await here.ask('GET', '/v1/agent/service/a-1', undefined, a)
      const refused = await here.ask(method, path, undefined, b)
      expect(refused.status, path).toBe(404)
      expect(refused.text, path).not.toContain('services/')
    }
    const { ID } = (await here.ask('PUT', '/v1/session/create', { Name: 'secret', TTL: '10s' }, a)).json
    const own = (await here.ask('PUT', '/v1/session/create', { Name: 'plain', TTL: '10s' }, b)).json.ID
    const listed = async (headers: Record<string, string>, path = '/v1/session/list') =>
      (await here.ask('GET', path, undefined, headers)).json.map((session: { ID: string }) => session.ID).sort()
    expect(await listed(a)).toEqual([ID])
    expect(await listed(b)).toEqual([own])
    expect(await listed(b, '/v1/session/node/leasehold')).toEqual([own])
    expect(await listed(ops)).toEqual([ID, own].sort())
    expect((await here.ask('PUT', `/v1/kv/b/lock?acquire=${own}`, 'v', b)).text).toBe('true')
  })

  test('one client has only so many blocking queries with its key', async () => {
    await using here = await world({ faces: [consulFace()], limits: limitsFrom({ watches: 3 }) })
    const secret = await here.key('app', [{ verb: 'admin', prefix: 'consul' }])
    const mine = { 'x-consul-token': secret }
    await here.ask('PUT', '/v1/kv/a', 'v', mine)
    const asked = Array.from({ length: 8 }, () => here.ask('GET', '/v1/kv/b?index=1&wait=5s', undefined, mine))
    const refused = await Promise.race(asked)
    expect(refused.status).toBe(429)
    await here.clock.advance(6_000)
    const replies = await Promise.all(asked)
    expect(replies.filter(({ status }) => status === 429).length).toBe(5)
  })
})
