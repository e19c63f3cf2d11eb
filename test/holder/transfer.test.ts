import { afterEach, expect, test, vi } from 'vitest'
import { propose } from '../../src/lessor/propose.ts'
import { silentLessor } from '../../src/testing/in-memory.ts'
import { lossOf, rivals } from '../support/rivals.ts'

afterEach(() => vi.restoreAllMocks())

test('a transfer goes to the process of that name that waits, which renews before it holds', async () => {
  await using both = rivals()
  const { a, b, clock } = both
  const lease = await a.leases.acquire('seat', { ttl: 10_000 })
  const pending = b.leases.acquire('seat', { ttl: 10_000 })
  await clock.settle()
  const heir = await lease.transfer('b')
  expect(lease.held).toBe(false)
  expect(lossOf(lease)).toMatchObject({ code: 'GONE' })
  await using got = await pending
  expect(got.id).toBe(heir)
  expect(got.token).toBeGreaterThan(lease.token)
  expect(b.lessor.proposals.some(command => command.kind === 'renew' && command.leases.includes(heir))).toBe(true)
  await clock.settle()
  expect((await a.leases.query('seat')).pending).toEqual([])
  await clock.advance(30_000)
  expect(got.held).toBe(true)
})

test('an operator may transfer a lease: its holder stops first, then the recipient gets it', async () => {
  await using both = rivals()
  const { a, b, clock } = both
  const lease = await a.leases.acquire('seat', { ttl: 10_000 })
  const acquiring = b.leases.acquire('seat', { ttl: 10_000 })
  await clock.advance(5_100)
  const { pending } = await a.leases.query('seat')
  const { incarnation } = pending[0]!
  await propose(a.lessor, { kind: 'transfer', lease: lease.id, to: 'b', incarnation })
  await using got = await acquiring
  expect(lossOf(lease)).toMatchObject({ code: 'LOST', cause: 'transferred' })
  expect(got.token).toBeGreaterThan(lease.token)
  await clock.settle()
  const { held, pending: left } = await a.leases.query('seat')
  expect({ held: held.map(grant => grant.lease), left }).toEqual({ held: [got.id], left: [] })
})

test('a transfer to a holder that does not wait is adopted by number', async () => {
  await using both = rivals()
  const { a, b } = both
  const lease = await a.leases.acquire('seat')
  const heir = await lease.transfer('b')
  await expect(a.leases.adopt(heir)).rejects.toMatchObject({ code: 'INVALID' })
  await using got = await b.leases.adopt(heir)
  expect(got.resources).toEqual(['seat'])
  expect(got.held).toBe(true)
  await expect(b.leases.adopt(heir)).rejects.toMatchObject({ code: 'INVALID' })
})

test('a lease of a living process is not adopted by another process of its name', async () => {
  const a = silentLessor({ holder: 'worker' })
  const namesake = silentLessor({ holder: 'worker', clock: a.clock, log: a.log })
  await using mine = await a.leases.acquire('seat', { ttl: 10_000 }) // its first lease decides its incarnation
  await expect(namesake.leases.adopt(mine.id)).rejects.toMatchObject({ code: 'HELD' })
  expect(mine.held).toBe(true)
})

test('of two processes with one name, one adopts a lease that was transferred to that name', async () => {
  const giver = silentLessor({ holder: 'giver' })
  const a = silentLessor({ holder: 'worker', clock: giver.clock, log: giver.log })
  const b = silentLessor({ holder: 'worker', clock: giver.clock, log: giver.log })
  const lease = await giver.leases.acquire('seat', { ttl: 10_000 })
  const heir = await lease.transfer('worker')
  const pending = await Promise.allSettled([a.leases.adopt(heir), b.leases.adopt(heir)])
  expect(pending.map(({ status }) => status).sort()).toEqual(['fulfilled', 'rejected'])
  expect(pending.find(({ status }) => status === 'rejected')).toMatchObject({ reason: { code: 'HELD' } })
})

test('a lease that was transferred to this very process is adopted by it', async () => {
  await using both = rivals()
  const { a, b } = both
  await using first = await b.leases.acquire('other')
  const lease = await a.leases.acquire('seat')
  await using mine = await b.leases.adopt(await lease.transfer('b', { incarnation: first.id }))
  expect(mine.held).toBe(true)
})

test('a lease that was transferred to one process is not adopted by another of its name', async () => {
  await using both = rivals()
  const { a, b, clock } = both
  const namesake = silentLessor({ holder: 'b', clock, log: a.log })
  const lease = await a.leases.acquire('seat')
  const pending = b.leases.acquire('seat')
  await clock.settle()
  const heir = await lease.transfer('b')
  await using got = await pending
  expect(got.id).toBe(heir)
  await expect(namesake.leases.adopt(heir)).rejects.toMatchObject({
    code: 'HELD',
    reason: 'claimed',
  })
  await namesake.leases[Symbol.asyncDispose]()
})

test('after a refused transfer, the lease is held again with the next renewal', async () => {
  const { leases, lessor, clock } = silentLessor()
  await using lease = await leases.acquire('k', { ttl: 10_000 })
  lessor.proposals.length = 0
  const refused = lease.transfer('bad\u0000name')
  await Promise.resolve()
  await expect(refused).rejects.toMatchObject({ code: 'INVALID' })
  expect(lessor.proposals.map(({ kind }) => kind)).toEqual(['transfer', 'renew'])
  expect(lease.held).toBe(true)
  await clock.advance(30_000)
  expect(lease.held).toBe(true)
})

test('no renewal is sent while a transfer is under way, and an older answer does not count', async () => {
  const { leases, lessor, clock } = silentLessor()
  await using lease = await leases.acquire('k', { ttl: 10_000 })
  lessor.loseAnswers()
  await clock.advance(5_000) // a renewal is under way
  lessor.proposals.length = 0
  const moved = lease.transfer('b', { incarnation: 1 })
  const rejection = expect(moved).rejects.toMatchObject({ code: 'UNKNOWN' })
  await clock.advance(4_900)
  expect(lessor.proposals.filter(({ kind }) => kind === 'renew')).toEqual([])
  expect(lease.held).toBe(false)
  await clock.advance(2_000)
  await rejection
  expect(lossOf(lease)).toMatchObject({ code: 'LOST', cause: 'transfer' })
  lessor.answer()
})
