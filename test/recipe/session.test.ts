import { expect, test } from 'vitest'
import { silentLessor } from '../../src/testing/in-memory.ts'
import { eventually } from '../support/eventually.ts'
import { everywhere } from '../support/recipe-places.ts'

everywhere('leases and entries under a session end with it, in one revision', async ({ open }) => {
  await using a = await open('a')
  await using b = await open('b')
  const session = await a.session({ ttl: '20m', labels: { user: 'ada' } })
  const agent = await session.begin({ ttl: '10m' })
  const lease = await agent.acquire('file/readme', { ttl: '1m' })
  await agent.put('agents/7', 'working')
  expect(await b.tryAcquire('file/readme')).toBeUndefined()
  const { revision } = await a.read({ kind: 'summary' }, { consistent: true })
  await session.end()
  expect((await a.read({ kind: 'summary' }, { consistent: true })).revision).toBe(revision + 1)
  expect(await agent.ended).toMatchObject({ code: 'LOST', facts: { cause: 'parent' } })
  expect(lease.held).toBe(false)
  expect((await b.read({ kind: 'leases' }, { consistent: true })).value).toEqual([])
  expect((await b.read({ kind: 'entries', prefix: 'agents' }, { consistent: true })).value).toEqual([])
  expect(await b.tryAcquire('file/readme')).toBeDefined()
})

test('activity keeps a session, inactivity ends it, and ended resolves once', async () => {
  const { clock, leases, lessor } = silentLessor()
  const session = await leases.session({ ttl: '20m' })
  const file = await session.acquire('file/a', { ttl: '1m' })
  let ends = 0
  void session.ended.then(() => ends++)
  for (let i = 0; i < 12; i++) {
    await clock.advance(600_000)
    session.touch()
  }
  expect(session.active).toBe(true)
  lessor.proposals.length = 0
  const { revision } = await leases.read({ kind: 'summary' })
  await clock.advance(1_500_000)
  expect(session.active).toBe(false)
  expect(lessor.proposals.filter(({ kind }) => kind === 'release')).toHaveLength(1)
  expect((await leases.read({ kind: 'summary' })).revision).toBe(revision + 1)
  expect(ends).toBe(1)
  expect(await session.ended).toMatchObject({ code: 'LOST', facts: { cause: 'inactive' } })
  expect(file.signal.reason).toMatchObject({ facts: { cause: 'parent' } })
  await clock.settle()
  expect((await leases.query()).held).toEqual([])
})

test('a session lasts no longer than maxLife, however active', async () => {
  const { clock, leases } = silentLessor()
  await using session = await leases.session({ ttl: '20m', maxLife: '1h' })
  for (let i = 0; i < 8; i++) {
    session.touch()
    await clock.advance(600_000)
  }
  expect(session.active).toBe(false)
})

everywhere('a wait under a session that ends rejects with GONE, and so does a request that is made while it ends', async ({ open }) => {
  await using a = await open('a')
  await using b = await open('b')
  await using _busy = await b.acquire('busy')
  const session = await a.session()
  let onQueued = (_: number) => {}
  const queued = new Promise<number>(resolve => (onQueued = resolve))
  const waiting = session.acquire('busy', { advanced: { onQueued } }).catch((error: unknown) => error)
  await queued
  const late = [session.acquire('free', { ttl: 10_000 }), session.begin()].map(pending => pending.catch((error: unknown) => error))
  await session.end()
  expect(await waiting).toMatchObject({ code: 'GONE', facts: { cause: 'parent' } })
  for (const error of await Promise.all(late)) expect(error).toMatchObject({ code: 'GONE' })
  await eventually(async () => expect(await b.query()).toMatchObject({ held: [{ resource: 'busy' }], pending: [] }))
})

test('a lease under a session whose onLost has work to stop is released after that, and its units are not free before', async () => {
  const { clock, leases } = silentLessor()
  const session = await leases.session({ ttl: '20m' })
  let stopped = () => {}
  const stopping = new Promise<void>(resolve => (stopped = resolve))
  await session.acquire('slow', { ttl: '1m', onLost: () => stopping })
  await session.acquire('quick', { ttl: '1m' })
  await session.end()
  await clock.settle()
  expect(await leases.tryAcquire('slow')).toBeUndefined()
  await using _quick = await leases.acquire('quick', { ifAvailable: true })
  stopped()
  await clock.settle()
  await using _slow = await leases.acquire('slow', { ifAvailable: true })
})

test('a session that the lessor has ended already leaves no frozen resource behind', async () => {
  const { clock, leases } = silentLessor()
  const session = await leases.session({ ttl: '20m' })
  await session.acquire('x', { ttl: '1h' })
  const ended = session.ended
  await leases.revoke({ lease: session.id })
  await clock.advance(700_000)
  session.touch()
  await clock.advance(700_000)
  expect(await ended).toMatchObject({ code: 'LOST' })
  await clock.settle()
  await using _again = await leases.acquire('x', { ifAvailable: true })
})
