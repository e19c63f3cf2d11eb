/** Watches of Leases: what a client hears, from which version on, and when it must list again. */
import { afterEach, expect, test } from 'vitest'
import { decodeObject } from '../../../src/face/kubernetes/messages.ts'
import { decodeMessage, type JsonObject, messageTable } from '../../../src/face/kubernetes/protobuf.ts'
import { propose } from '../../../src/lessor/propose.ts'
import { type KubernetesPlace, kubernetesPlace, leaseOf } from '../../support/kubernetes-place.ts'

const LEASES = '/apis/coordination.k8s.io/v1/namespaces/team/leases'

const open: AsyncDisposable[] = []
afterEach(async () => {
  for (const each of open.splice(0).reverse()) await each[Symbol.asyncDispose]()
})

async function place(options: Parameters<typeof kubernetesPlace>[0] = {}): Promise<KubernetesPlace> {
  const here = await kubernetesPlace(options)
  open.push(here)
  return here
}

async function watch(here: KubernetesPlace, query: string, headers: Readonly<Record<string, string>> = {}) {
  const watching = await here.watch(`${LEASES}?watch=true&${query}`, headers)
  open.push(watching)
  return watching
}

const label = (here: KubernetesPlace, name: string, labels: object) =>
  here.kube('PATCH', `/${name}`, JSON.stringify({ metadata: { labels } }), { 'content-type': 'application/merge-patch+json' })

test('a watch from a version brings every later write, in order, with the versions of the writes', async () => {
  const here = await place()
  const { json: made } = await here.kube('POST', '', leaseOf('a', { leaseTransitions: 1 }))
  const watching = await watch(here, `resourceVersion=${made.metadata.resourceVersion}`)
  const { json: changed } = await here.kube('PUT', '/a', { ...made, spec: { leaseTransitions: 2 } })
  const { json: second } = await here.kube('POST', '', leaseOf('b'))
  await here.kube('DELETE', '/a')
  await here.kube('POST', '', leaseOf('a'))
  expect(await watching.next()).toEqual({ type: 'MODIFIED', object: changed })
  expect(await watching.next()).toEqual({ type: 'ADDED', object: second })
  const deleted = await watching.next()
  expect(deleted).toMatchObject({
    type: 'DELETED',
    object: { metadata: { name: 'a', uid: made.metadata.uid }, spec: { leaseTransitions: 2 } },
  })
  expect(Number(deleted.object.metadata.resourceVersion)).toBeGreaterThan(Number(second.metadata.resourceVersion))
  expect(await watching.next()).toMatchObject({ type: 'ADDED', object: { metadata: { name: 'a' } } })
})

test('a watch without a version begins with what is there, and marks the end of it if it is asked to', async () => {
  const here = await place()
  await here.kube('POST', '', leaseOf('a'))
  await here.kube('POST', '', leaseOf('b'))
  const plain = await watch(here, '')
  expect([(await plain.next()).object.metadata.name, (await plain.next()).object.metadata.name]).toEqual(['a', 'b'])
  const listing = await watch(here, 'sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true')
  expect([(await listing.next()).type, (await listing.next()).type]).toEqual(['ADDED', 'ADDED'])
  expect(await listing.next()).toMatchObject({
    type: 'BOOKMARK',
    object: { kind: 'Lease', metadata: { annotations: { 'k8s.io/initial-events-end': 'true' } } },
  })
  await here.kube('POST', '', leaseOf('c'))
  expect(await listing.next()).toMatchObject({ type: 'ADDED', object: { metadata: { name: 'c' } } })
  const refused = await here.kube('GET', '?watch=true&sendInitialEvents=true')
  expect(refused.json).toMatchObject({ code: 422, reason: 'Invalid' })
})

test('a watch of one name, and one with a selector, tell only of what matches, and that something no longer does', async () => {
  const here = await place()
  const { json: a } = await here.kube('POST', '', leaseOf('a', {}, { labels: { app: 'x' } }))
  const from = `resourceVersion=${a.metadata.resourceVersion}`
  const selected = await watch(here, `${from}&labelSelector=app%3Dx`)
  const named = await here.watch(`${LEASES}/b?watch=true&${from}`)
  open.push(named)
  await here.kube('POST', '', leaseOf('b', {}, { labels: { app: 'y' } }))
  await label(here, 'a', { app: 'z' })
  await label(here, 'a', { more: 'z' })
  await label(here, 'b', { app: 'x' })
  expect(await named.next()).toMatchObject({ type: 'ADDED', object: { metadata: { name: 'b' } } })
  expect(await named.next()).toMatchObject({ type: 'MODIFIED', object: { metadata: { name: 'b' } } })
  expect(await selected.next()).toMatchObject({ type: 'DELETED', object: { metadata: { name: 'a', labels: { app: 'z' } } } })
  expect(await selected.next()).toMatchObject({ type: 'ADDED', object: { metadata: { name: 'b' } } })
})

test('a version whose events are no longer kept is answered with Expired', async () => {
  const here = await place({ events: 10 })
  const { json } = await here.kube('POST', '', leaseOf('a'))
  for (let i = 0; i < 30; i++) await label(here, 'a', { [`n${i}`]: 'x' })
  const watching = await watch(here, `resourceVersion=${json.metadata.resourceVersion}`)
  expect(await watching.next()).toMatchObject({ type: 'ERROR', object: { kind: 'Status', code: 410, reason: 'Expired' } })
})

test('a watch ends when its time is over, and sends bookmarks of what was delivered', async () => {
  const here = await place()
  const { json } = await here.kube('POST', '', leaseOf('a'))
  const watching = await watch(here, `resourceVersion=${json.metadata.resourceVersion}&allowWatchBookmarks=true&timeoutSeconds=100`)
  // Other names than this watch's: a bookmark tells that they are past.
  const { revision } = await propose(here.lessor, { kind: 'acquire', holder: 'h', ttl: 900_000, wants: [{ resource: 'other' }] })
  await here.clock.advance(30_100)
  expect(await watching.next()).toEqual({
    type: 'BOOKMARK',
    object: { kind: 'Lease', apiVersion: 'coordination.k8s.io/v1', metadata: { resourceVersion: json.metadata.resourceVersion }, spec: {} },
  })
  await here.clock.advance(30_100)
  const { object } = await watching.next()
  expect(Number(object.metadata.resourceVersion)).toBeGreaterThanOrEqual(revision)
  await here.clock.advance(40_100)
  await watching.next()
  expect((await watching.rest()).length).toBe(0)
})

test('a watch may be a stream of protobuf, or of tables', async () => {
  const here = await place()
  const { json } = await here.kube('POST', '', leaseOf('a', { holderIdentity: 'ann', leaseDurationSeconds: 15 }))
  const table = await watch(here, '', { accept: 'application/json;as=Table;v=v1;g=meta.k8s.io' })
  expect(await table.next()).toMatchObject({ type: 'ADDED', object: { kind: 'Table', rows: [{ cells: ['a', 'ann', '0s'] }] } })
  const binary = await watch(here, 'timeoutSeconds=1', { accept: 'application/vnd.kubernetes.protobuf' })
  await here.clock.advance(1_100)
  const bytes = await binary.rest()
  expect(bytes.readUInt32BE(0)).toBe(bytes.length - 4)
  const event = messageTable([
    { number: 1, name: 'type', type: 'string' },
    { number: 2, name: 'object', type: messageTable([{ number: 1, name: 'raw', type: 'bytes' }]) },
  ])
  const { type, object } = decodeMessage(event, bytes.subarray(4)) as { type: string; object: { raw: Buffer } }
  const { metadata, spec } = decodeObject(object.raw) as { metadata: JsonObject; spec: JsonObject }
  expect([type, { ...metadata }, { ...spec }]).toEqual(['ADDED', json.metadata, json.spec])
})

test('a watch needs the right to watch, and ends when the key is revoked', async () => {
  const here = await place()
  const reader = await here.key('reader', [{ verb: 'read', prefix: 'kubernetes' }])
  const watcher = await here.key('watcher', [
    { verb: 'read', prefix: 'kubernetes' },
    { verb: 'watch', prefix: 'kubernetes' },
  ])
  const refused = await here.kube('GET', '?watch=true&resourceVersion=1', undefined, { authorization: `Bearer ${reader}` })
  expect([refused.status, refused.json]).toEqual([403, expect.objectContaining({ kind: 'Status', code: 403, reason: 'Forbidden' })])
  const { revision, value } = await here.lessor.read({ kind: 'keys' })
  const watching = await watch(here, `resourceVersion=${revision}`, { authorization: `Bearer ${watcher}` })
  const { id } = value.find(({ name }) => name === 'watcher')!
  await here.server.guarded.propose({ key: 0, name: 'test', operator: true }, { kind: 'unkey', id })
  expect(await watching.next()).toMatchObject({ type: 'ERROR', object: { code: 401, reason: 'Unauthorized' } })
})

test('an entry that another client deletes is told as a deletion, and one that is no Lease is not told', async () => {
  const here = await place()
  const { json } = await here.kube('POST', '', leaseOf('a'))
  const watching = await watch(here, `resourceVersion=${json.metadata.resourceVersion}`)
  await propose(here.lessor, { kind: 'transaction', success: [{ key: 'kubernetes/team/odd', value: '={"spec":7}' }] })
  await propose(here.lessor, { kind: 'delete', key: 'kubernetes/team/a' })
  expect(await watching.next()).toMatchObject({ type: 'DELETED', object: { metadata: { name: 'a', namespace: 'team' } } })
  expect((await here.kube('GET', '')).json.items).toEqual([])
})
