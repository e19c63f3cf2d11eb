/** Leases that were taken through a face and end, or lose their resource, by other commands. */
import { expect, test } from 'vitest'
import { consulFace } from '../../src/face/consul/face.ts'
import { etcdFace } from '../../src/face/etcd/gateway.ts'
import { type FaceCaller, type FaceLessor, SAME_NAMES } from '../../src/face/face.ts'
import { kubernetesFace } from '../../src/face/kubernetes/kubernetes-face.ts'
import { Locks } from '../../src/face/redis/locks.ts'
import { Registrations } from '../../src/face/registrations.ts'
import { propose } from '../../src/lessor/propose.ts'
import { stateOf } from '../../src/registry/entry.ts'
import { type FaceWorld, faceWorld } from '../support/face-world.ts'
import { submitting } from '../support/submitting.ts'

const MINUTE = 60_000
const bytes = (text: string) => Buffer.from(text).toString('base64')

/** An operator releases this resource of its lease by the native commands, and another client acquires it. */
async function handOver({ lessor }: FaceWorld, resource: string): Promise<void> {
  const { value } = await lessor.read({ kind: 'resource', resource }, { consistent: true })
  expect(value.grants).toHaveLength(1)
  expect(await propose(lessor, { kind: 'release', lease: value.grants[0]!.lease, resource })).toMatchObject({ kind: 'done' })
  expect(await propose(lessor, { kind: 'acquire', holder: 'native', ttl: MINUTE, wants: [{ resource }] })).toMatchObject({
    kind: 'granted',
  })
}

/** A lessor that ends a lease just before its first renewal, as an operator may. */
function endingBeforeRenewal(lessor: FaceLessor): FaceLessor & { readonly ended: readonly number[] } {
  const ended: number[] = []
  return {
    ended,
    submit: submitting(async (command, options) => {
      if (command.kind === 'renew' && ended.length === 0)
        for (const lease of command.leases) {
          ended.push(lease)
          await propose(lessor, { kind: 'revoke', target: { lease }, force: true })
        }
      return propose(lessor, command, options)
    }),
    read: (query, options) => lessor.read(query, options),
    watch: (prefix, options) => lessor.watch(prefix, options),
  }
}

function callerOf({ clock }: FaceWorld, lessor: FaceLessor): FaceCaller {
  return { lessor, key: 0, holder: 'client', address: '10.1.1.1', clock, names: SAME_NAMES, signal: new AbortController().signal }
}

async function holders({ lessor }: FaceWorld, resource: string): Promise<readonly string[]> {
  const { value } = await lessor.read({ kind: 'resource', resource }, { consistent: true })
  return value.grants.filter(({ status }) => status === 'live').map(({ holder }) => holder)
}

test('a Kubernetes elector whose resource was released and is held by another is not renewed', async () => {
  await using here = await faceWorld(kubernetesFace())
  const path = '/apis/coordination.k8s.io/v1/namespaces/default/leases'
  const object = (renewTime: string, resourceVersion?: string) => ({
    ...{ apiVersion: 'coordination.k8s.io/v1', kind: 'Lease' },
    metadata: { name: 'ctl', namespace: 'default', ...(resourceVersion !== undefined && { resourceVersion }) },
    spec: { holderIdentity: 'elector', leaseDurationSeconds: 15, renewTime },
  })
  const created = await here.ask('POST', path, object('2026-01-01T00:00:00.000000Z'))
  expect(created.status).toBe(201)
  await handOver(here, 'kubernetes/default/ctl')
  const { resourceVersion } = created.json.metadata
  const renewed = await here.ask('PUT', `${path}/ctl`, object('2026-01-01T00:00:05.000000Z', resourceVersion))
  expect(await holders(here, 'kubernetes/default/ctl')).toEqual(['native'])
  expect(renewed.status).not.toBe(200)
})

test('after records of the log were lost, a Kubernetes elector is not told that it leads because the log names it, until the quiet period is over', async () => {
  await using here = await faceWorld(kubernetesFace())
  const path = '/apis/coordination.k8s.io/v1/namespaces/default/leases'
  const spec = { holderIdentity: 'elector', leaseDurationSeconds: 15, renewTime: '2026-01-01T00:00:00.000000Z' }
  const metadata = { name: 'ctl', namespace: 'default' }
  const created = await here.ask('POST', path, { apiVersion: 'coordination.k8s.io/v1', kind: 'Lease', metadata, spec })
  expect(created.status).toBe(201)
  const object = { ...created.json, spec: { ...spec, renewTime: '2026-01-01T00:00:05.000000Z' } }
  const quiet: FaceLessor = {
    submit: (command, options, completion) => here.lessor.submit(command, options, completion),
    read: async (query, options) => {
      const view = await here.lessor.read(query, options)
      return query.kind === 'summary' ? { ...view, value: { ...view.value, quiet: true } } : view
    },
    watch: (prefix, options) => here.lessor.watch(prefix, options),
  }
  const refused = await here.ask('PUT', `${path}/ctl`, object, { lessor: quiet })
  expect(refused.status).toBe(409)
  expect(refused.json.message).toMatch(/records of the log were lost/)
  expect((await here.ask('PUT', `${path}/ctl`, object)).status).toBe(200)
})

test('an etcd lock whose resource was released and is held by another loses its key or is not kept alive', async () => {
  await using here = await faceWorld(etcdFace())
  const { ID: lease } = (await here.ask('POST', '/v3/lease/grant', { TTL: 20 })).json
  const { key } = (await here.ask('POST', '/v3/lock/lock', { name: bytes('jobs'), lease })).json
  expect((await here.ask('POST', '/v3/kv/range', { key })).json.kvs).toHaveLength(1)
  await handOver(here, 'etcd/jobs')
  const { result } = (await here.ask('POST', '/v3/lease/keepalive', { ID: lease })).json
  const { kvs = [] } = (await here.ask('POST', '/v3/kv/range', { key })).json
  expect(kvs.length > 0 && result.TTL !== undefined).toBe(false)
})

test('a Redis lock for longer than 30 s is not said to be held if it ended before its renewal', async () => {
  await using here = await faceWorld(consulFace())
  const lessor = endingBeforeRenewal(here.lessor)
  const taken = await new Locks(callerOf(here, lessor)).take(['jobs'], 'mine', MINUTE).catch(() => false)
  expect(lessor.ended).toHaveLength(1)
  const isHeld = (await holders(here, 'redis/jobs')).length > 0
  expect(taken).toBe(isHeld)
})

test('an etcd lease for longer than 30 s is not granted if it ended before its renewal', async () => {
  await using here = await faceWorld(etcdFace())
  const lessor = endingBeforeRenewal(here.lessor)
  const { status, json } = await here.ask('POST', '/v3/lease/grant', { TTL: 60 }, { lessor })
  expect(lessor.ended).toHaveLength(1)
  const { value } = await here.lessor.read({ kind: 'lease', lease: Number(json.ID ?? 0) }, { consistent: true })
  expect(status === 200).toBe(value !== undefined)
})

test('a Consul session for longer than 30 s is not created if it ended before its renewal', async () => {
  await using here = await faceWorld(consulFace())
  const lessor = endingBeforeRenewal(here.lessor)
  const created = await here.ask('PUT', '/v1/session/create', { TTL: '60s' }, { lessor })
  expect(lessor.ended).toHaveLength(1)
  const found = created.status === 200 ? (await here.ask('GET', `/v1/session/info/${created.json.ID}`)).json : []
  expect(created.status === 200).toBe(found.length > 0)
})

test('a Consul lock for longer than 30 s has its whole term with its grant, without a renewal that it could miss', async () => {
  await using here = await faceWorld(consulFace())
  const { ID } = (await here.ask('PUT', '/v1/session/create', { TTL: '60s' })).json
  const lessor = endingBeforeRenewal(here.lessor)
  expect((await here.ask('PUT', `/v1/kv/jobs?acquire=${ID}`, 'v', { lessor })).text).toBe('true')
  expect(lessor.ended).toEqual([])
  const { value } = await here.lessor.read({ kind: 'resource', resource: 'consul/jobs' }, { consistent: true })
  expect(value.grants[0]!.remaining).toBeGreaterThan(30_000)
})

test('an instance is not registered for longer than 30 s if it ended before its renewal', async () => {
  await using here = await faceWorld(consulFace())
  const lessor = endingBeforeRenewal(here.lessor)
  const names = { service: 'web', instance: 'web-1' }
  const registrations = new Registrations(callerOf(here, lessor))
  const registered = await registrations
    .register(
      {
        ...names,
        addresses: ['10.1.1.1:80'],
        capabilities: [],
        tags: [],
        metadata: {},
        weight: 1,
        zone: '',
        generation: 0,
        check: undefined,
      },
      stateOf({}),
      { ttl: MINUTE, grace: 0 },
    )
    .then(
      () => true,
      () => false,
    )
  expect(lessor.ended).toHaveLength(1)
  const found = await new Registrations(callerOf(here, here.lessor)).find(names)
  expect(registered).toBe(found !== undefined)
})
