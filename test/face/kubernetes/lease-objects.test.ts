/** Leases of Kubernetes: objects with versions, and their holders, who exclude every other client of Leasehold. */
import { afterEach, describe, expect, test } from 'vitest'
import { connect } from '../../../src/connect/connect.ts'
import { propose } from '../../../src/lessor/propose.ts'
import { type KubernetesPlace, kubernetesPlace, leaseOf } from '../../support/kubernetes-place.ts'

const open: AsyncDisposable[] = []
afterEach(async () => {
  for (const each of open.splice(0)) await each[Symbol.asyncDispose]()
})

async function place(options: Parameters<typeof kubernetesPlace>[0] = {}): Promise<KubernetesPlace> {
  const here = await kubernetesPlace(options)
  open.push(here)
  return here
}

/** What an elector writes. */
function held(holderIdentity: string, more: object = {}): object {
  return { holderIdentity, leaseDurationSeconds: 15, renewTime: '2026-01-01T00:00:00.000001Z', ...more }
}

/** The claim of another identity, or the next renewal of the same, from the version that was read. */
async function claim(here: KubernetesPlace, name: string, identity: string, renewTime = '2026-01-01T00:00:01.000000Z') {
  const { json } = await here.kube('GET', `/${name}`)
  return here.kube('PUT', `/${name}`, { ...json, spec: { ...json.spec, holderIdentity: identity, renewTime } })
}

describe('objects', () => {
  test('an object is created, read, replaced, patched and deleted, and its version is our revision', async () => {
    const here = await place()
    const made = await here.kube('POST', '', leaseOf('a', { leaseTransitions: 1 }, { labels: { app: 'x' } }))
    expect(made.status).toBe(201)
    expect(made.json).toMatchObject({
      kind: 'Lease',
      metadata: { name: 'a', namespace: 'team', labels: { app: 'x' }, uid: expect.stringMatching(/^[0-9a-f-]{36}$/) },
      spec: { leaseTransitions: 1 },
    })
    const { value } = await here.lessor.read({ kind: 'entries', prefix: 'kubernetes/team/a' })
    expect(value.map(({ key, revision }) => [key, String(revision)])).toEqual([['kubernetes/team/a', made.json.metadata.resourceVersion]])
    expect((await here.kube('GET', '/a')).json).toEqual(made.json)
    const replaced = await here.kube('PUT', '/a', { ...made.json, spec: { leaseTransitions: 2 } })
    expect([replaced.status, replaced.json.spec]).toEqual([200, { leaseTransitions: 2 }])
    expect(replaced.json.metadata.uid).toBe(made.json.metadata.uid)
    expect(Number(replaced.json.metadata.resourceVersion)).toBeGreaterThan(Number(made.json.metadata.resourceVersion))
    const patched = await here.kube('PATCH', '/a', '{"metadata":{"labels":{"app":null,"b":"c"}}}', {
      'content-type': 'application/merge-patch+json',
    })
    expect(patched.json.metadata.labels).toEqual({ b: 'c' })
    const deleted = await here.kube('DELETE', '/a')
    expect(deleted.json).toMatchObject({ kind: 'Status', status: 'Success', details: { name: 'a', uid: made.json.metadata.uid } })
    expect((await here.kube('GET', '/a')).status).toBe(404)
    expect((await here.lessor.read({ kind: 'entries', prefix: 'kubernetes' })).value).toEqual([])
  })

  test('refusals are Status objects with the reasons that clients decide by', async () => {
    const here = await place()
    const missing = await here.kube('GET', '/a')
    expect(missing.json).toEqual({
      kind: 'Status',
      apiVersion: 'v1',
      metadata: {},
      status: 'Failure',
      message: 'leases.coordination.k8s.io "a" not found',
      reason: 'NotFound',
      details: { name: 'a', group: 'coordination.k8s.io', kind: 'leases' },
      code: 404,
    })
    const { json: made } = await here.kube('POST', '', leaseOf('a'))
    expect((await here.kube('POST', '', leaseOf('a'))).json).toMatchObject({ code: 409, reason: 'AlreadyExists' })
    await here.kube('PUT', '/a', { ...made, spec: { leaseTransitions: 1 } })
    expect((await here.kube('PUT', '/a', { ...made, spec: { leaseTransitions: 2 } })).json).toMatchObject({ code: 409, reason: 'Conflict' })
    expect((await here.kube('PUT', '/b', leaseOf('b', {}, { resourceVersion: '1' }))).json).toMatchObject({ code: 404, reason: 'NotFound' })
    expect((await here.kube('PUT', '/a', leaseOf('a'))).json).toMatchObject({
      code: 422,
      reason: 'Invalid',
      details: { causes: [{ field: 'metadata.resourceVersion' }] },
    })
    expect((await here.kube('PUT', '/a', leaseOf('b'))).json).toMatchObject({ code: 400, reason: 'BadRequest' })
    expect((await here.kube('POST', '', leaseOf('Upper_Case'))).json).toMatchObject({ code: 422, reason: 'Invalid' })
    expect((await here.kube('POST', '', leaseOf('c', { leaseDurationSeconds: 0 }))).json).toMatchObject({ code: 422, reason: 'Invalid' })
    expect((await here.kube('POST', '', leaseOf('c', { leaseDurationSeconds: 'x' }))).json).toMatchObject({
      code: 400,
      reason: 'BadRequest',
    })
    expect((await here.kube('POST', '', 'no json')).json).toMatchObject({ code: 400, reason: 'BadRequest' })
    expect((await here.kube('POST', '', 'a: b', { 'content-type': 'application/yaml' })).json).toMatchObject({ code: 415 })
    expect((await here.kube('GET', '/a', undefined, { accept: 'text/html' })).json).toMatchObject({ code: 406, reason: 'NotAcceptable' })
    expect((await here.kube('PATCH', '/a', '{}', { 'content-type': 'application/apply-patch+yaml' })).json).toMatchObject({
      code: 415,
      reason: 'UnsupportedMediaType',
    })
    expect((await here.kube('PUT', '')).json).toMatchObject({ code: 405, reason: 'MethodNotAllowed' })
    expect((await here.ask('GET', '/api/v1/pods')).json).toMatchObject({ code: 404, kind: 'Status' })
  })

  test('a write that changes nothing makes no version, and a dry run changes nothing', async () => {
    const here = await place()
    const { json: made } = await here.kube('POST', '', leaseOf('a', held('ann')))
    expect((await here.kube('PUT', '/a', made)).json).toEqual(made)
    const dry = await here.kube('PUT', '/a?dryRun=All', { ...made, spec: held('bob') })
    expect([dry.status, dry.json.spec.holderIdentity]).toEqual([200, 'bob'])
    expect((await here.kube('POST', '?dryRun=All', leaseOf('b', held('bob')))).status).toBe(201)
    expect((await here.kube('DELETE', '/a?dryRun=All')).status).toBe(200)
    expect((await here.kube('GET', '')).json.items).toEqual([made])
    expect([await here.holders('a'), await here.holders('b')]).toEqual([['ann'], []])
  })

  test('generateName makes a name, unknown fields are warned of or refused, and preconditions guard a deletion', async () => {
    const here = await place()
    const made = await here.kube('POST', '', { metadata: { generateName: 'x-' }, spec: { nonsense: 1 } })
    expect(made.json.metadata.name).toMatch(/^x-[a-z0-9]{5}$/)
    expect(made.headers.warning).toBe('299 - "unknown field \\"spec.nonsense\\""')
    expect((await here.kube('POST', '?fieldValidation=Strict', leaseOf('b', { nonsense: 1 }))).json).toMatchObject({ code: 400 })
    const path = `/${made.json.metadata.name}`
    const wrong = { kind: 'DeleteOptions', apiVersion: 'v1', preconditions: { uid: 'another' } }
    expect((await here.kube('DELETE', path, wrong)).json).toMatchObject({ code: 409, reason: 'Conflict' })
    expect((await here.kube('DELETE', path, { preconditions: { resourceVersion: '1' } })).json).toMatchObject({ code: 409 })
    const { uid, resourceVersion } = made.json.metadata
    expect((await here.kube('DELETE', path, { preconditions: { uid, resourceVersion } })).status).toBe(200)
  })

  test('an object with finalizers stays, marked as deleted, until the last one is taken away', async () => {
    const here = await place()
    await here.kube('POST', '', leaseOf('a', {}, { finalizers: ['example.com/keep'] }))
    const marked = await here.kube('DELETE', '/a')
    expect(marked.json.metadata.deletionTimestamp).toMatch(/Z$/)
    const { json: there } = await here.kube('GET', '/a')
    await here.kube('PUT', '/a', { ...there, metadata: { ...there.metadata, finalizers: [] } })
    expect((await here.kube('GET', '/a')).status).toBe(404)
  })

  test('lists select by label and field, come in pages, and as tables', async () => {
    const here = await place()
    for (const name of ['a', 'b', 'c', 'd']) await here.kube('POST', '', leaseOf(name, held(`h-${name}`), { labels: { odd: name } }))
    await here.ask('POST', '/apis/coordination.k8s.io/v1/namespaces/other/leases', { metadata: { name: 'z' } })
    const names = async (query: string) =>
      (await here.kube('GET', query)).json.items.map((item: { metadata: { name: string } }) => item.metadata.name)
    expect(await names('?labelSelector=odd')).toEqual(['a', 'b', 'c', 'd'])
    expect(await names('?labelSelector=odd+in+(a,c),odd!=c')).toEqual(['a'])
    expect(await names('?labelSelector=odd+notin+(a,c)')).toEqual(['b', 'd'])
    expect(await names('?labelSelector=!odd')).toEqual([])
    expect(await names('?fieldSelector=metadata.name%3Db')).toEqual(['b'])
    expect((await here.kube('GET', '?fieldSelector=spec.holderIdentity%3Db')).json).toMatchObject({ code: 400 })
    const first = (await here.kube('GET', '?limit=3')).json
    expect([first.items.length, first.metadata.remainingItemCount]).toEqual([3, 1])
    const next = (await here.kube('GET', `?limit=3&continue=${first.metadata.continue}`)).json
    expect([next.items.map((item: { metadata: { name: string } }) => item.metadata.name), next.metadata]).toEqual([
      ['d'],
      { resourceVersion: first.metadata.resourceVersion },
    ])
    expect((await here.kube('GET', '?limit=3&continue=bad')).json).toMatchObject({ code: 400 })
    const all = (await here.ask('GET', '/apis/coordination.k8s.io/v1/leases')).json
    expect(all.items.map(({ metadata }: { metadata: { namespace: string } }) => metadata.namespace)).toContain('other')
    const table = (await here.kube('GET', '', undefined, { accept: 'application/json;as=Table;v=v1;g=meta.k8s.io,application/json' })).json
    expect([table.kind, table.rows[0].cells, table.rows[0].object.kind]).toEqual(['Table', ['a', 'h-a', '0s'], 'PartialObjectMetadata'])
    const namespaces = (await here.ask('GET', '/api/v1/namespaces')).json
    expect(namespaces.items.map(({ metadata }: { metadata: { name: string } }) => metadata.name)).toEqual(['default', 'other', 'team'])
  })

  test('a list that is long is compressed for a client that asks for it', async () => {
    const here = await place()
    const note = 'x'.repeat(8_000)
    for (let i = 0; i < 20; i++) await here.kube('POST', '', leaseOf(`n-${i}`, {}, { annotations: { note } }))
    const plain = await here.kube('GET', '')
    const { headers } = await here.kube('GET', '', undefined, { 'accept-encoding': 'gzip' })
    expect([plain.headers['content-encoding'], headers['content-encoding']]).toEqual([undefined, 'gzip'])
    expect(Number(headers['content-length'])).toBeLessThan(Number(plain.headers['content-length']) / 10)
  })

  test('an object that is larger than an entry may be is refused, and so is one object too many', async () => {
    const here = await place()
    const large = await here.kube('POST', '', leaseOf('a', {}, { annotations: { note: 'x'.repeat(20_000) } }))
    expect(large.json).toMatchObject({ code: 413, reason: 'RequestEntityTooLarge' })
    const huge = await here.kube('POST', '', leaseOf('a', {}, { annotations: { note: 'x'.repeat(200_000) } }))
    expect(huge.json).toMatchObject({ kind: 'Status', code: 413, reason: 'RequestEntityTooLarge' })
    await propose(here.lessor, { kind: 'policy', prefix: 'kubernetes/team', rules: { freeEntries: 1 } })
    expect((await here.kube('POST', '', leaseOf('a'))).status).toBe(201)
    expect((await here.kube('POST', '', leaseOf('b'))).json).toMatchObject({ code: 403, reason: 'Forbidden' })
  })
})

describe('holders', () => {
  test('the holder of an object holds the resource of its name, with its duration, and gives it up with an empty holder', async () => {
    const here = await place()
    await here.kube('POST', '', leaseOf('a', held('ann')))
    const { value } = await here.lessor.read({ kind: 'resource', resource: 'kubernetes/team/a' })
    expect(value.grants).toMatchObject([{ holder: 'ann', status: 'live' }])
    await here.clock.advance(14_000)
    expect((await claim(here, 'a', 'ann')).status).toBe(200)
    await here.clock.advance(14_000)
    expect(await here.holders('a')).toEqual(['ann'])
    expect((await claim(here, 'a', '')).status).toBe(200)
    expect(await here.holders('a')).toEqual([])
    const { value: history } = await here.lessor.read({ kind: 'history', resource: 'kubernetes/team/a' })
    expect(history).toMatchObject([{ holder: 'ann' }])
  })

  test('an object whose holder has a long duration is held for all of it', async () => {
    const here = await place()
    await here.kube('POST', '', leaseOf('a', held('ann', { leaseDurationSeconds: 120 })))
    await here.clock.advance(110_000)
    expect(await here.holders('a')).toEqual(['ann'])
    await here.clock.advance(11_000)
    expect(await here.holders('a')).toEqual([])
    expect((await here.kube('GET', '/a')).json.spec.holderIdentity).toBe('ann')
  })

  test('another identity is refused while the holder may believe, and takes over when its term is over', async () => {
    const here = await place()
    await here.kube('POST', '', leaseOf('a', held('ann')))
    const refused = await claim(here, 'a', 'bob')
    expect(refused.json).toMatchObject({ code: 409, reason: 'Conflict', message: expect.stringContaining('is held by ann') })
    expect((await here.kube('GET', '/a')).json.spec.holderIdentity).toBe('ann')
    await here.clock.advance(15_100)
    expect((await claim(here, 'a', 'bob')).status).toBe(200)
    expect(await here.holders('a')).toEqual(['bob'])
    expect((await claim(here, 'a', 'ann')).json).toMatchObject({ code: 409 })
  })

  test('a change of metadata neither takes nor renews nor releases', async () => {
    const here = await place()
    await here.kube('POST', '', leaseOf('a', held('ann')))
    await here.clock.advance(10_000)
    const label = (name: string) =>
      here.kube('PATCH', '/a', JSON.stringify({ metadata: { labels: { [name]: 'x' } } }), {
        'content-type': 'application/merge-patch+json',
      })
    expect((await label('one')).status).toBe(200)
    expect(await here.holders('a')).toEqual(['ann'])
    await here.clock.advance(5_100)
    expect(await here.holders('a')).toEqual([])
    expect((await label('two')).status).toBe(200)
    expect(await here.holders('a')).toEqual([])
  })

  test('a holder of another client keeps electors out, and the object then shows who it is', async () => {
    const here = await place()
    await using leases = await connect(`leasehold://127.0.0.1:${here.port}`, { holder: 'typescript' })
    await here.kube('POST', '', leaseOf('a', held('')))
    const lease = await leases.acquire('kubernetes/team/a')
    expect((await claim(here, 'a', 'ann')).json).toMatchObject({ code: 409, reason: 'Conflict' })
    const shown = await here.kube('GET', '/a')
    expect(shown.json.spec).toMatchObject({ holderIdentity: 'typescript', leaseDurationSeconds: 15, leaseTransitions: 1 })
    // Refused again: the object shows it already, and is not written again.
    expect((await claim(here, 'a', 'ann')).json).toMatchObject({ code: 409 })
    expect((await here.kube('GET', '/a')).json).toEqual(shown.json)
    await lease.release()
    expect((await claim(here, 'a', 'ann')).status).toBe(200)
    expect(await leases.tryAcquire('kubernetes/team/a')).toBeUndefined()
  })

  test('an object cannot be created with a holder while another client holds its name, and is there with that client as holder', async () => {
    const here = await place()
    await using leases = await connect(`leasehold://127.0.0.1:${here.port}`, { holder: 'typescript' })
    await using _lease = await leases.acquire('kubernetes/team/a')
    expect((await here.kube('POST', '', leaseOf('a', held('ann')))).json).toMatchObject({ code: 409, reason: 'AlreadyExists' })
    expect((await here.kube('GET', '/a')).json.spec.holderIdentity).toBe('typescript')
  })

  test('an elector with the name of another client is not shown as the holder', async () => {
    const here = await place()
    await using leases = await connect(`leasehold://127.0.0.1:${here.port}`, { holder: 'ann' })
    await here.kube('POST', '', leaseOf('a', held('')))
    await using _lease = await leases.acquire('kubernetes/team/a')
    expect((await claim(here, 'a', 'ann')).json).toMatchObject({ code: 409 })
    expect((await here.kube('GET', '/a')).json.spec.holderIdentity).toBe('')
  })

  test('deleting the object does not let another identity in: only the holder may create it again before its term is over', async () => {
    const here = await place()
    await here.kube('POST', '', leaseOf('a', held('ann')))
    await here.kube('DELETE', '/a')
    expect((await here.kube('POST', '', leaseOf('a', held('bob')))).json).toMatchObject({ code: 409, reason: 'AlreadyExists' })
    await here.kube('DELETE', '/a')
    expect((await here.kube('POST', '', leaseOf('a', held('ann')))).status).toBe(201)
    await here.kube('DELETE', '/a')
    await here.clock.advance(15_100)
    expect((await here.kube('POST', '', leaseOf('a', held('bob')))).status).toBe(201)
  })

  test('a holder that an operator revoked cannot renew, and no other holds before its term is over', async () => {
    const here = await place()
    await here.kube('POST', '', leaseOf('a', held('ann')))
    await propose(here.lessor, { kind: 'revoke', target: { prefix: 'kubernetes/team/a' }, by: 'operator' })
    expect((await claim(here, 'a', 'ann')).json).toMatchObject({ code: 409 })
    expect((await claim(here, 'a', 'bob')).json).toMatchObject({ code: 409 })
    await here.clock.advance(15_100)
    expect((await claim(here, 'a', 'bob')).status).toBe(200)
  })

  test('a duration that policies do not allow is refused, at the first claim and at a renewal', async () => {
    const here = await place()
    await propose(here.lessor, { kind: 'policy', prefix: 'kubernetes/team', rules: { ttlMax: 20_000, freeEntries: 10 } })
    expect((await here.kube('POST', '', leaseOf('a', held('ann', { leaseDurationSeconds: 60 })))).json).toMatchObject({ code: 422 })
    const { json } = await here.kube('POST', '', leaseOf('a', held('ann')))
    const longer = await here.kube('PUT', '/a', { ...json, spec: held('ann', { leaseDurationSeconds: 60 }) })
    expect(longer.json).toMatchObject({ code: 422, details: { causes: [{ field: 'spec.leaseDurationSeconds' }] } })
  })
})

describe('keys', () => {
  test('a bearer token is a key, which may do here what it may do elsewhere', async () => {
    const here = await place()
    const team = await here.key('team', [{ verb: 'admin', prefix: 'kubernetes/team' }])
    const reader = await here.key('reader', [{ verb: 'read', prefix: 'kubernetes' }])
    const as = (secret: string) => ({ authorization: `Bearer ${secret}` })
    expect((await here.kube('GET', '')).json).toMatchObject({ kind: 'Status', code: 401, reason: 'Unauthorized' })
    expect((await here.kube('GET', '', undefined, as('wrong'))).json).toMatchObject({ code: 401, reason: 'Unauthorized' })
    expect((await here.kube('POST', '', leaseOf('a', held('ann')), as(team))).status).toBe(201)
    expect((await here.kube('GET', '/a', undefined, as(reader))).status).toBe(200)
    expect((await here.kube('POST', '', leaseOf('b'), as(reader))).json).toMatchObject({ code: 403, reason: 'Forbidden' })
    expect((await here.kube('DELETE', '/a', undefined, as(reader))).json).toMatchObject({ code: 403, reason: 'Forbidden' })
    const other = '/apis/coordination.k8s.io/v1/namespaces/other/leases'
    expect((await here.ask('POST', other, { metadata: { name: 'a' } }, as(team))).json).toMatchObject({ code: 403 })
    expect((await here.ask('GET', other, undefined, as(team))).json).toMatchObject({ code: 403 })
    expect((await here.ask('GET', '/apis/coordination.k8s.io/v1/leases', undefined, as(team))).json.items).toHaveLength(1)
  })

  test('a key of another identity neither renews the lease of a holder nor takes its object', async () => {
    const here = await place()
    const one = await here.key('one', [
      { verb: 'acquire', prefix: 'kubernetes' },
      { verb: 'read', prefix: 'kubernetes' },
      { verb: 'register', prefix: 'kubernetes' },
    ])
    const two = await here.key('two', [
      { verb: 'acquire', prefix: 'kubernetes' },
      { verb: 'read', prefix: 'kubernetes' },
      { verb: 'register', prefix: 'kubernetes' },
    ])
    const { json } = await here.kube('POST', '', leaseOf('a', held('ann')), { authorization: `Bearer ${one}` })
    const forged = { ...json, spec: held('ann', { renewTime: '2026-01-01T00:00:09.000000Z' }) }
    expect((await here.kube('PUT', '/a', forged, { authorization: `Bearer ${two}` })).json).toMatchObject({ code: 409 })
    const cleared = { ...json, spec: held('') }
    expect((await here.kube('PUT', '/a', cleared, { authorization: `Bearer ${two}` })).json).toMatchObject({ code: 403 })
    expect(await here.holders('a')).toEqual(['ann'])
  })
})
