/** What errors say: the right code, the right cause, and the present holders. */
import { expect, test } from 'vitest'
import { connect } from '../../src/connect/connect.ts'
import type { LeaseError } from '../../src/errors.ts'
import type { Done } from '../../src/kernel/outcome.ts'
import { propose } from '../../src/lessor/propose.ts'
import { httpListener } from '../../src/server/http/http-listener.ts'
import { hashSecret } from '../../src/server/key-secret.ts'
import { silentLessor } from '../../src/testing/in-memory.ts'
import { command, place, Raw } from '../support/resp-place.ts'

test('a manual renewal without an answer is not reported as a missing renewal', async () => {
  for (const renew of ['manual', 'on-activity'] as const) {
    const { clock, leases, lessor } = silentLessor()
    const lease = await leases.acquire('k', { ttl: 1_000, renew })
    lessor.stopAnswering()
    await clock.advance(300)
    const renewed = lease.renew().catch(error => error)
    await clock.advance(900)
    const reason = lease.signal.reason as LeaseError
    expect(reason).toMatchObject({ code: 'LOST', facts: { cause: 'unreachable' } })
    expect(reason.message).toMatch(/no renewal was answered for/)
    expect(await renewed).toBe(reason)
    lessor.answer()
    await leases[Symbol.asyncDispose]()
  }
})

test('a lease renewed by activity whose renewal was not answered is not reported as inactive', async () => {
  const { clock, leases, lessor } = silentLessor()
  const lease = await leases.acquire('k', { ttl: 1_000, renew: 'on-activity' })
  lessor.stopAnswering()
  lease.touch()
  await clock.advance(1_100)
  expect(lease.signal.reason).toMatchObject({ code: 'LOST', facts: { cause: 'unreachable' } })
  lessor.answer()
  await leases[Symbol.asyncDispose]()
})

test('a manual lease that was not renewed is reported as such, even after an earlier renewal was answered', async () => {
  const { clock, leases } = silentLessor()
  const lease = await leases.acquire('k', { ttl: 1_000, renew: 'manual' })
  await lease.renew()
  await clock.advance(1_100)
  expect(lease.signal.reason).toMatchObject({ facts: { cause: 'not-renewed' } })
  await leases[Symbol.asyncDispose]()
})

test('TIMEOUT names the present holders', async () => {
  const a = silentLessor({ holder: 'ann' })
  const { clock, log } = a
  const c = silentLessor({ holder: 'cleo', clock, log })
  const b = silentLessor({ holder: 'bob', clock, log })
  const kept = [await a.leases.acquire('k', { mode: 'shared' }), await c.leases.acquire('k', { mode: 'shared' })]
  for (const ask of [() => b.leases.acquire('k', { wait: 1_000 }), () => b.leases.request('k', { wait: 1_000 }, () => {})]) {
    const pending = ask().catch(error => error)
    await clock.advance(1_000)
    expect(await pending).toMatchObject({
      code: 'TIMEOUT',
      message: expect.stringMatching(/k was not granted within 1 s: it is held by ann, cleo/),
      facts: { resource: 'k', waited: 1_000, holder: 'ann', holders: ['ann', 'cleo'] },
    })
  }
  expect(kept.map(({ held }) => held)).toEqual([true, true])
  await Promise.all([a, b, c].map(({ leases }) => leases[Symbol.asyncDispose]()))
})

test('TIMEOUT is on time when the holders cannot be read', async () => {
  const a = silentLessor({ holder: 'ann' })
  const { clock, log } = a
  const b = silentLessor({ holder: 'bob', clock, log })
  const kept = await a.leases.acquire('k', { ttl: '1m' })
  const pending = b.leases.acquire('k', { ttl: '1m', wait: 1_000 }).catch(error => error)
  await clock.advance(500)
  b.lessor.stopAnswering()
  await clock.advance(1_000)
  expect(await pending).toMatchObject({ code: 'TIMEOUT' })
  b.lessor.answer()
  expect(kept.held).toBe(true)
  await Promise.all([a, b].map(({ leases }) => leases[Symbol.asyncDispose]()))
})

test('over HTTP and RESP, TIMEOUT names the present holders', async () => {
  await using here = await place({ http: httpListener({}) })
  await propose(here.lessor, { kind: 'acquire', holder: 'ann', ttl: 60_000, wants: [{ resource: 'k' }] })
  const answer = await fetch(`http://127.0.0.1:${here.port}/v1/leases`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ resources: ['k'], holder: 'bob', ttl: '30s', wait: '50ms' }),
  })
  expect(answer.status).toBe(408)
  expect(((await answer.json()) as { error: object }).error).toMatchObject({
    code: 'TIMEOUT',
    message: expect.stringContaining('held by ann'),
    holder: 'ann',
    holders: ['ann'],
  })
  using raw = new Raw(here.port)
  raw.send(command('LEASE.ACQUIRE', 'k', 'TTL', 30_000, 'HOLDER', 'bob', 'WAIT', 50))
  expect(String(await raw.next())).toContain('held by ann')
})

test('a waiter whose key is revoked rejects with UNAUTHENTICATED', async () => {
  await using here = await place({ http: httpListener({}) })
  const key = (name: string, secret: string, verb: 'admin' | 'acquire') =>
    propose(here.lessor, { kind: 'key', name, hash: hashSecret(secret), allow: [{ verb, prefix: '' }] })
  await key('root', 'root-secret', 'admin')
  await expect.poll(() => here.server.guarded.access.keyRequired).toBe(true)
  await using root = await connect(`leasehold://127.0.0.1:${here.port}`, { apiKey: 'root-secret', holder: 'root' })
  for (const [scheme, verb] of [
    ['leasehold', 'admin'],
    ['leasehold', 'acquire'],
    ['http', 'acquire'],
  ] as const) {
    const name = `${scheme}-${verb}`
    const { id } = (await key(name, `${name}-secret`, verb)) as Done
    await using held = await root.acquire(`k/${name}`)
    await using waiter = await connect(`${scheme}://127.0.0.1:${here.port}`, { apiKey: `${name}-secret`, holder: name })
    const queued = deferred()
    const pending = waiter.acquire(`k/${name}`, { advanced: { onQueued: () => queued.resolve(undefined) } }).catch(error => error)
    await queued.promise
    await propose(here.lessor, { kind: 'unkey', id: id! })
    expect(await pending, name).toMatchObject({ code: 'UNAUTHENTICATED' })
    expect(held.held).toBe(true)
  }
})

function deferred() {
  let resolve = (_: unknown) => {}
  const promise = new Promise(done => (resolve = done))
  return { promise, resolve }
}
