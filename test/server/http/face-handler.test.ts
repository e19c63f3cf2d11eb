/** The HTTP part of faces: which requests a face gets, with whose rights, and that it words every failure itself. The face of these tests keeps the bytes that it is sent. */
import { afterEach, expect, test } from 'vitest'
import { LeaseError } from '../../../src/errors.ts'
import type { Face, HttpFace } from '../../../src/face/face.ts'
import { propose } from '../../../src/lessor/propose.ts'
import { sentenceOf } from '../../../src/wording.ts'
import { world } from '../../support/http-world.ts'

const open: AsyncDisposable[] = []
afterEach(async () => {
  for (const each of open.splice(0)) await each[Symbol.asyncDispose]()
})

/** A face that keeps bytes of requests as free entries under its prefix. */
function bytesFace(more: Partial<HttpFace> = {}): Face {
  return {
    name: 'redis',
    rules: { freeEntries: 10 },
    http: {
      paths: ['/foreign/', '/foreign-version'],
      operations: [],
      async answer(request, { lessor, holder }) {
        const { method, path, query } = request
        if (path === '/foreign/fails') throw new LeaseError('INVALID', 'this path fails')
        if (path === '/foreign/breaks') throw new Error('a secret of the program')
        const value = Buffer.from(await request.body()).toString('base64')
        if (method !== 'PUT') return { status: 200, type: 'text/plain', body: `${path} ${query.get('wait')} ${holder} ${value}` }
        const outcome = await propose(lessor, { kind: 'transaction', success: [{ key: 'redis/bytes', value }] })
        if (outcome.kind === 'refused') throw new LeaseError(outcome.code, sentenceOf(outcome))
        return { status: 201, body: outcome.kind }
      },
      failure: ({ code, message, status }) => ({ status, type: 'text/plain', body: `${code}! ${message}` }),
      ...more,
    },
  }
}

async function serving(face: Face, options: Parameters<typeof world>[0] = {}) {
  const place = await world({ faces: [face], ...options })
  open.push(place)
  return place
}

test('a face answers its paths, and the paths below those that end in a slash, and no others', async () => {
  const place = await serving(bytesFace())
  const answer = await place.ask('GET', '/foreign/a%2Fb?wait=3s')
  expect(answer.text).toMatch(/^\/foreign\/a%2Fb 3s (127\.0\.0\.1|::ffff:127\.0\.0\.1) $/)
  expect(answer.headers['content-type']).toBe('text/plain')
  expect((await place.ask('GET', '/foreign-version')).status).toBe(200)
  expect((await place.ask('GET', '/foreign-version/more')).json.error.code).toBe('NOT_FOUND')
  expect((await place.ask('GET', '/v1/about')).json.name ?? 'leasehold').toBe('leasehold')
})

test('a path of our own is never given to a face', async () => {
  const place = await serving(bytesFace({ paths: ['/v1/', '/'] }))
  expect((await place.ask('GET', '/healthz')).text).not.toContain('/healthz')
  expect((await place.ask('GET', '/v1/leases')).json.leases).toEqual([])
  expect((await place.ask('GET', '/v1/kv/a')).text).toContain('/v1/kv/a')
})

test('the server allows free entries under the prefix of the face, and keeps what an operator has set there', async () => {
  const place = await serving(bytesFace())
  expect((await place.ask('PUT', '/foreign/x')).status).toBe(201)
  expect((await place.lessor.read({ kind: 'policies' })).value).toEqual([{ prefix: 'redis', rules: { freeEntries: 10 } }])
  await propose(place.lessor, { kind: 'policy', prefix: 'redis', rules: { freeEntries: 0, ttlMax: 60_000 } })
  const again = await world({ faces: [bytesFace()], lessor: place.lessor })
  expect((await place.lessor.read({ kind: 'policies' })).value).toEqual([{ prefix: 'redis', rules: { freeEntries: 0, ttlMax: 60_000 } }])
  expect((await again.ask('PUT', '/foreign/x')).status).toBe(400)
  await again.server.close()
})

test('a body that is no text arrives as its bytes, and one that is too large is refused by the face in its own words', async () => {
  const place = await serving(bytesFace())
  const bytes = Uint8Array.of(0, 255, 128, 10)
  const answer = await fetch(`${place.url}/foreign/x`, { method: 'POST', body: bytes })
  expect(await answer.text()).toContain(Buffer.from(bytes).toString('base64'))
  const large = await fetch(`${place.url}/foreign/x`, { method: 'POST', body: new Uint8Array(8 << 20) })
  expect([large.status, await large.text()]).toEqual([413, expect.stringMatching(/^TOO_LARGE! /)])
})

test('a failure is worded by the face, and an internal error says nothing of the program', async () => {
  const place = await serving(bytesFace())
  const failed = await place.ask('GET', '/foreign/fails')
  expect([failed.status, failed.text]).toEqual([400, 'INVALID! this path fails'])
  const broken = await place.ask('GET', '/foreign/breaks')
  expect([broken.status, broken.text]).toEqual([500, expect.not.stringContaining('secret')])
})

test('credentials of the protocol are a key, which may do in the face what it may do elsewhere', async () => {
  const place = await serving(bytesFace({ secret: request => request.header('x-foreign-token') }))
  const writer = await place.key('writer', [{ verb: 'admin', prefix: 'redis' }])
  const reader = await place.key('reader', [{ verb: 'read', prefix: 'redis' }])
  expect((await place.ask('GET', '/foreign/x')).status).toBe(401)
  expect((await place.ask('GET', '/foreign/x', undefined, { 'x-foreign-token': 'wrong' })).text).toMatch(/^UNAUTHENTICATED! /)
  expect((await place.ask('GET', '/foreign/x', undefined, { 'x-foreign-token': reader })).text).toContain(' reader ')
  expect((await place.ask('PUT', '/foreign/x', undefined, { 'x-foreign-token': reader })).status).toBe(403)
  expect((await place.ask('PUT', '/foreign/x', undefined, { 'x-foreign-token': writer })).status).toBe(201)
})

test('a page of another site does not reach a face', async () => {
  const place = await serving(bytesFace())
  expect((await place.ask('GET', '/foreign/x', undefined, { origin: 'http://evil.example' })).status).toBe(403)
})
