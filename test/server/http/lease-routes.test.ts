/** Fields of new leases, wishes for a ttl, and leases that a client without a memory gets back, over HTTP. */
import { describe, expect, test } from 'vitest'
import { propose } from '../../../src/lessor/propose.ts'
import { world } from '../../support/http-world.ts'

describe('ttl: { preferred, min, max }', () => {
  test('is adjusted to what policies allow instead of refused', async () => {
    await using here = await world()
    await here.ask('PUT', '/v1/policies/jobs', { ttlMin: '2s', ttlMax: '20s' })
    const ttlOf = async (resource: string, ttl: unknown) => {
      const { status, json } = await here.ask('POST', '/v1/leases', { resources: [resource], holder: 'ann', ttl })
      return status === 201 ? json.ttl : [status, json.error.code, json.error.message]
    }
    expect(await ttlOf('jobs/a', { preferred: '10s' })).toBe(10_000)
    expect(await ttlOf('jobs/b', { preferred: '1m' })).toBe(20_000)
    expect(await ttlOf('jobs/c', { preferred: 500 })).toBe(2_000)
    expect(await ttlOf('jobs/d', { preferred: '1m', min: '10s', max: '2m' })).toBe(20_000)
    expect(await ttlOf('jobs/e', '1m')).toEqual([400, 'INVALID', expect.stringContaining('outside 2 s to 20 s')])
    expect(await ttlOf('jobs/e', { preferred: '1m', min: '30s' })).toEqual([400, 'INVALID', expect.stringContaining('no ttl fits')])
    expect(await ttlOf('jobs/e', { preferred: '1m', max: '30s' })).toEqual([
      400,
      'INVALID',
      expect.stringContaining('min ≤ preferred ≤ max'),
    ])
    expect(await ttlOf('jobs/e', { min: '30s' })).toEqual([400, 'INVALID', expect.anything()])
    expect(await ttlOf('jobs/e', { preferred: '1s', most: 1 })).toEqual([400, 'INVALID', expect.anything()])
  })
})

test('a resource that is named twice is one resource', async () => {
  await using here = await world()
  const { status, json } = await here.ask('POST', '/v1/leases', { resources: ['a', 'b', 'a'], holder: 'ann', ttl: '10s' })
  expect([status, Object.keys(json.tokens)]).toEqual([201, ['a', 'b']])
})

test('ifAvailable does not wait: a held resource is answered with HELD, and a wait beside it is refused', async () => {
  await using here = await world()
  const ask = (more: object) => here.ask('POST', '/v1/leases', { resources: ['jobs/a'], holder: 'ann', ttl: '10s', ...more })
  expect((await ask({ ifAvailable: true })).status).toBe(201)
  const held = await ask({ ifAvailable: true })
  expect([held.status, held.json.error.code]).toEqual([409, 'HELD'])
  const both = await ask({ ifAvailable: true, wait: '5s' })
  expect([both.status, both.json.error.code, both.json.error.message]).toEqual([400, 'INVALID', expect.stringContaining('leave out wait')])
  expect((await ask({ ifAvailable: false, wait: '0s' })).json.error.code).toBe('HELD')
  expect((await ask({ ifAvailable: 'yes' })).status).toBe(400)
  expect((await here.ask('GET', '/v1/resources/jobs/a')).json.queue).toEqual([])
})

describe('reuse', () => {
  const acquire = { resources: ['a', 'b'], holder: 'ann', ttl: '10s' }

  test('the same holder and incarnation gets the lease that it has, renewed, with the same tokens', async () => {
    await using here = await world()
    const first = await here.ask('POST', '/v1/leases', acquire)
    const again = { ...acquire, incarnation: first.json.incarnation, reuse: true }
    await here.clock.advance(8_000)
    const second = await here.ask('POST', '/v1/leases', again)
    expect([second.status, second.json]).toEqual([
      201,
      expect.objectContaining({ lease: first.json.lease, tokens: first.json.tokens, token: first.json.token, reused: true, waited: false }),
    ])
    await here.clock.advance(8_000)
    expect((await here.ask('GET', `/v1/leases/${first.json.lease}`)).status).toBe(200)
  })

  test('gives no lease back in the quiet period after a loss: it may have been released in the lost records', async () => {
    await using here = await world()
    const first = await here.ask('POST', '/v1/leases', acquire)
    const again = { ...acquire, incarnation: first.json.incarnation, reuse: true }
    expect((await here.ask('POST', '/v1/leases', again)).json).toMatchObject({ lease: first.json.lease, reused: true })
    await propose(here.lessor, { kind: 'generation', lease: 0, token: 0, revision: 0, quiet: 60_000 })
    const { status, json } = await here.ask('POST', '/v1/leases', again)
    expect([status, json.error.code, json.error.reason]).toEqual([503, 'UNAVAILABLE', 'quiet'])
  })

  test('another incarnation, other resources, another mode and a request without reuse are refused as before', async () => {
    await using here = await world()
    const { incarnation } = (await here.ask('POST', '/v1/leases', acquire)).json
    const refused = async (more: object) => {
      const { status, json } = await here.ask('POST', '/v1/leases', { ...acquire, incarnation, reuse: true, ...more })
      return [status, json.error?.code]
    }
    const incarnationOf = async (holder: string, resource: string) =>
      (await here.ask('POST', '/v1/leases', { resources: [resource], holder, ttl: '10s' })).json.incarnation
    expect(await refused({ incarnation: await incarnationOf('ann', 'x') })).toEqual([409, 'HELD'])
    expect(await refused({ holder: 'bob', incarnation: await incarnationOf('bob', 'y') })).toEqual([409, 'HELD'])
    expect(await refused({ resources: ['a'] })).toEqual([409, 'HELD'])
    expect(await refused({ resources: ['a', 'b', 'c'] })).toEqual([409, 'HELD'])
    expect(await refused({ mode: 'shared' })).toEqual([409, 'HELD'])
    expect(await refused({ reuse: false })).toEqual([409, 'HELD'])
    expect(await refused({ incarnation: undefined })).toEqual([400, 'INVALID'])
    expect(await refused({ resources: [] })).toEqual([400, 'INVALID'])
  })

  test('a lease that has ended is not reused, and a key does not get the lease of another key', async () => {
    await using here = await world()
    const keys = [
      await here.key('one', [
        { verb: 'acquire', prefix: '' },
        { verb: 'read', prefix: '' },
      ]),
      await here.key('two', [
        { verb: 'acquire', prefix: '' },
        { verb: 'read', prefix: '' },
      ]),
    ]
    const as = (key: string) => ({ Authorization: `Bearer ${key}` })
    const first = await here.ask('POST', '/v1/leases', acquire, as(keys[0]!))
    const again = { ...acquire, incarnation: first.json.incarnation, reuse: true }
    const foreign = await here.ask('POST', '/v1/leases', again, as(keys[1]!))
    expect([foreign.status, foreign.json.error.code]).toEqual([409, 'HELD'])
    await here.ask('DELETE', `/v1/leases/${first.json.lease}`, undefined, as(keys[0]!))
    const anew = await here.ask('POST', '/v1/leases', again, as(keys[0]!))
    expect([anew.status, anew.json.reused]).toEqual([201, undefined])
    expect(anew.json.token).toBeGreaterThan(first.json.token)
  })
})

test('labels are an object, durations may be texts, and entries have generations', async () => {
  await using here = await world()
  const entry = (generation: number) => ({ key: 'services/web/a', value: 'up', generation })
  const { json } = await here.ask('POST', '/v1/leases', {
    ...{ holder: 'ann', labels: { task: 'night', learn: 'etl' }, grace: '5s', maxLife: '1h', entries: [entry(2)] },
  })
  expect((await here.ask('GET', `/v1/leases/${json.lease}`)).json).toMatchObject({
    labels: { task: 'night', learn: 'etl' },
    maxLife: 3_600_000,
    entries: [{ key: 'services/web/a', value: 'up' }],
  })
  expect((await here.ask('GET', '/v1/entries/services/web/a')).json.generation).toBe(2)
  expect((await here.ask('POST', '/v1/leases', { holder: 'bob', entries: [entry(1)] })).status).toBe(409)
  expect((await here.ask('POST', '/v1/leases', { holder: 'ann', grace: '5 parsecs' })).json.error.message).toContain('grace must be whole')
})

test('a covering claim holds the names below its own, and the views of these name it', async () => {
  await using here = await world()
  const ask = (holder: string, resource: string, more = {}) => here.ask('POST', '/v1/leases', { resources: [resource], holder, ...more })
  const held = await ask('ann', 'lib', { covers: true })
  expect(held.status).toBe(201)
  const refused = await ask('bob', 'lib/c.ts')
  expect([refused.status, refused.json.error]).toMatchObject([409, { code: 'HELD', holder: 'ann', claim: 'lib' }])
  expect(refused.json.error.message).toContain('lib/c.ts is held by ann through lib')
  const below = (await here.ask('GET', '/v1/resources/lib/c.ts')).json
  expect(below).toMatchObject({ grants: [], coveredBy: [{ resource: 'lib', holder: 'ann', covers: true, token: held.json.token }] })
  expect((await here.ask('GET', '/v1/resources/lib')).json).toMatchObject({ grants: [{ covers: true }] })
  expect((await ask('ann', 'lib/c.ts', { holding: [held.json.lease] })).status).toBe(201)
  expect((await ask('cid', 'x', { covers: true, units: 2 })).json.error.message).toContain('covers')
  const plain = { incarnation: held.json.incarnation, reuse: true }
  expect((await ask('ann', 'lib', plain)).status).toBe(409)
  expect((await ask('ann', 'lib', { ...plain, covers: true })).json.reused).toBe(true)
})

test('views tell what stands in the way around a name: covering requests above, and claims below one that waits', async () => {
  await using here = await world()
  const ask = (holder: string, resource: string, more = {}) => here.ask('POST', '/v1/leases', { resources: [resource], holder, ...more })
  await ask('ann', 'lib/a/b.ts')
  const waiting = await propose(here.lessor, {
    kind: 'acquire',
    holder: 'bob',
    ttl: 30_000,
    wants: [{ resource: 'lib' }],
    covers: true,
    wait: true,
  })
  const lease = waiting.kind === 'queued' ? waiting.lease : 0
  expect((await here.ask('GET', '/v1/resources/lib')).json).toMatchObject({
    queue: [{ holder: 'bob', covers: true }],
    heldBelow: [{ resource: 'lib/a/b.ts', holder: 'ann', expiresAt: expect.any(String) }],
  })
  const above = { resource: 'lib', holder: 'bob', lease, position: 0, covers: true }
  for (const name of ['lib/a/b.ts', 'lib/free'])
    expect((await here.ask('GET', `/v1/resources/${name}`)).json.waitersAbove).toMatchObject([above])
  expect((await here.ask('GET', '/v1/resources/libs')).json).not.toHaveProperty('waitersAbove')
  expect((await here.ask('GET', `/v1/leases/${lease}`)).json).toMatchObject({ covers: true, status: 'waiting' })
})

test('permits are stated by each request, and the views tell who states what', async () => {
  await using here = await world()
  const ask = (holder: string, permits: unknown) => here.ask('POST', '/v1/leases', { resources: ['downloads'], holder, permits })
  expect([(await ask('ann', 2)).status, (await ask('bob', 3)).status]).toEqual([201, 201])
  const refused = await ask('cid', 3)
  expect([refused.status, refused.json.error.limit]).toEqual([409, 2])
  expect((await here.ask('GET', '/v1/resources/downloads')).json).toMatchObject({ limit: 2, grants: [{ permits: 2 }, { permits: 3 }] })
  expect((await ask('cid', 0)).status).toBe(400)
})
