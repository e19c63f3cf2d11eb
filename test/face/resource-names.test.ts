/** A map of names: names of several protocols stand for one resource, by whole segments, and a map that means nothing is refused. */
import { describe, expect, test } from 'vitest'
import { consulFace } from '../../src/face/consul/face.ts'
import { etcdFace } from '../../src/face/etcd/gateway.ts'
import type { Face } from '../../src/face/face.ts'
import { kubernetesFace } from '../../src/face/kubernetes/kubernetes-face.ts'
import { redisFace } from '../../src/face/redis/commands.ts'
import { parseNameMap, ResourceNames } from '../../src/face/resource-names.ts'
import { propose } from '../../src/lessor/propose.ts'
import { faceWorld } from '../support/face-world.ts'
import { place, Raw } from '../support/resp-place.ts'

describe('a map', () => {
  test('changes whole segments, and the longest rule decides', () => {
    const names = new ResourceNames(parseNameMap(['redis/jobs/=jobs/,redis/jobs/nightly=cron/nightly', 'consul=', 'etcd/one=all']))
    expect(names.resource('redis/jobs/weekly')).toBe('jobs/weekly')
    expect(names.resource('redis/jobs')).toBe('jobs')
    expect(names.resource('redis/jobs/nightly')).toBe('cron/nightly')
    expect(names.resource('redis/jobs/nightly/2')).toBe('cron/nightly/2')
    expect(names.resource('redis/jobsx')).toBe('redis/jobsx')
    expect(names.resource('consul/a/b')).toBe('a/b')
    expect(names.resource('etcd/one')).toBe('all')
    expect(names.resource('kubernetes/default/x')).toBe('kubernetes/default/x')
    expect(names.under('redis')).toEqual(['redis', 'cron/nightly', 'jobs'])
    expect(names.under('redis/jobs/weekly')).toEqual(['jobs/weekly'])
  })

  test('that names no face, or no resource, is refused with what is wrong', () => {
    const wrong = (text: string) => () => new ResourceNames(parseNameMap([text]))
    expect(wrong('jobs=redis/jobs')).toThrow(/"jobs=redis\/jobs" maps no name of a face: it begins with redis\//)
    expect(wrong('redis//a=b')).toThrow(/maps no name of a face/)
    expect(wrong('redis/a=b//c')).toThrow(/maps to no name of a resource: it has an empty segment/)
    expect(wrong('redis/a')).toThrow(/write NAME=RESOURCE, as in redis\/jobs=jobs/)
    const many = Object.fromEntries(Array.from({ length: 257 }, (_, i) => [`redis/${i}`, `${i}`]))
    expect(() => new ResourceNames(many)).toThrow(/at most 256 rules/)
  })
})

const NAMES = new ResourceNames({
  'redis/nightly': 'jobs/nightly',
  'kubernetes/default/nightly': 'jobs/nightly',
  'consul/nightly': 'jobs/nightly',
  'etcd/nightly': 'jobs/nightly',
})
const WANT = { kind: 'acquire', holder: 'ann', ttl: 60_000, wants: [{ resource: 'jobs/nightly' }] } as const

/** Each face takes and gives back what it names `nightly`. */
const KUBE = '/apis/coordination.k8s.io/v1/namespaces/default/leases'
const JSON_BODY = { headers: { 'content-type': 'application/json' } }
const spec = { holderIdentity: 'elector', leaseDurationSeconds: 15 }

test('an elector of Kubernetes and a holder of the library exclude each other under the name that both are given', async () => {
  await using world = await faceWorld(kubernetesFace() as Face, NAMES)
  const body = { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata: { name: 'nightly' }, spec }
  const created = await world.ask('POST', KUBE, body, JSON_BODY)
  expect(created.status).toBe(201)
  expect(await propose(world.lessor, WANT)).toMatchObject({ kind: 'refused', code: 'HELD', facts: { holder: 'elector' } })
  const given = { ...created.json, spec: { ...spec, holderIdentity: '' } }
  const released = await world.ask('PUT', `${KUBE}/nightly`, given, JSON_BODY)
  expect(released.status).toBe(200)
  expect(await propose(world.lessor, WANT)).toMatchObject({ kind: 'granted' })
  const again = await world.ask('PUT', `${KUBE}/nightly`, { ...released.json, spec }, JSON_BODY)
  expect(again.status).toBe(409)
  expect(again.text).toMatch(/jobs\/nightly is held by ann/)
})

test('a session of Consul holds the mapped resource, sees who else does, and a blocking query ends when that changes', async () => {
  await using world = await faceWorld(consulFace(), NAMES)
  const { ID } = (await world.ask('PUT', '/v1/session/create', { TTL: '20s', LockDelay: '0s' })).json
  expect((await world.ask('PUT', `/v1/kv/nightly?acquire=${ID}`, 'me')).text).toBe('true')
  expect(await propose(world.lessor, WANT)).toMatchObject({ kind: 'refused', code: 'HELD' })
  expect((await world.ask('GET', '/v1/kv/?recurse')).json).toMatchObject([{ Key: 'nightly', Session: ID }])
  expect((await world.ask('PUT', `/v1/kv/nightly?release=${ID}`, 'me')).text).toBe('true')
  const before = await world.ask('GET', '/v1/kv/nightly')
  const waiting = world.ask('GET', `/v1/kv/nightly?index=${before.headers['X-Consul-Index']}&wait=60s`)
  const waitingForAll = world.ask('GET', `/v1/kv/?recurse&index=${before.headers['X-Consul-Index']}&wait=60s`)
  expect(await propose(world.lessor, WANT)).toMatchObject({ kind: 'granted' })
  expect((await waiting).json[0].Session).toMatch(/^00000000-0000-0000-0000-/)
  expect((await waitingForAll).status).toBe(200)
  expect((await world.ask('PUT', `/v1/kv/nightly?acquire=${ID}`, 'me')).text).toBe('false')
})

test('a lock of etcd holds the mapped resource, and its key stays where etcd has it', async () => {
  await using world = await faceWorld(etcdFace(), NAMES)
  const name = Buffer.from('nightly').toString('base64')
  const { ID } = (await world.ask('POST', '/v3/lease/grant', { TTL: 60 })).json
  const { key } = (await world.ask('POST', '/v3/lock/lock', { name, lease: ID })).json
  expect(Buffer.from(key, 'base64').toString()).toMatch(/^nightly\//)
  expect(await propose(world.lessor, WANT)).toMatchObject({ kind: 'refused', code: 'HELD' })
  expect((await world.ask('POST', '/v3/election/leader', { name })).json.kv.key).toBe(key)
  expect((await world.ask('POST', '/v3/lock/unlock', { key })).status).toBe(200)
  expect(await propose(world.lessor, WANT)).toMatchObject({ kind: 'granted' })
})

test('a key of Redis is the mapped resource over the wire, also with several keys in one lock', async () => {
  await using here = await place({ faces: [redisFace()], faceNames: NAMES })
  using raw = new Raw(here.port)
  expect(await raw.ask('SET', 'nightly', 'v', 'NX', 'PX', 5_000)).toBe('OK')
  expect(await propose(here.lessor, WANT)).toMatchObject({ kind: 'refused', code: 'HELD' })
  expect(await raw.ask('GET', 'nightly')).toBe('v')
  expect(await raw.ask('DELIFEQ', 'nightly', 'v')).toBe(1)
  const both =
    'if redis.call("exists", KEYS[1], KEYS[2]) > 0 then return 0 end for i, k in ipairs(KEYS) do redis.call("set", k, "v", "PX", 5000) end return 2'
  expect(await raw.ask('EVAL', both, 2, 'nightly', 'other')).toBe(2)
  expect((await here.lessor.read({ kind: 'resource', resource: 'redis/other' })).value.grants).toHaveLength(1)
  expect(await raw.ask('DEL', 'nightly')).toBe(1)
  expect(await raw.ask('GET', 'other')).toBe('v')
  expect(await propose(here.lessor, WANT)).toMatchObject({ kind: 'granted' })
  expect(await raw.ask('SET', 'nightly', 'v', 'NX', 'PX', 5_000)).toBe(null)
  expect(await raw.ask('GET', 'nightly')).toBe('leasehold:ann')
})
