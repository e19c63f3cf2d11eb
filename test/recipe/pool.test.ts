import { expect, test } from 'vitest'
import { connect } from '../../src/connect/connect.ts'
import type { Lease } from '../../src/lease.ts'
import { propose } from '../../src/lessor/propose.ts'
import { UNKNOWN_DURATION } from '../../src/pool/duration-model.ts'
import { hashSecret } from '../../src/server/key-secret.ts'
import { silentLessor } from '../../src/testing/in-memory.ts'
import { world } from '../support/http-world.ts'
import { everywhere } from '../support/recipe-places.ts'
import { place } from '../support/resp-place.ts'

everywhere('any of the matching members are taken, all at once, and released together', async ({ open }) => {
  await using owner = await open('owner')
  await using user = await open('user')
  const gpus = owner.pool('gpu')
  for (const [name, model] of [
    ['0', 'A100'],
    ['1', 'A100'],
    ['2', 'A100'],
    ['3', 'H100'],
  ] as const)
    await gpus.offer(name, { labels: { model, zone: 'b' } })
  const a100 = user.pool('gpu', { match: { model: 'A100' } })
  expect((await a100.members()).map(({ member }) => member)).toEqual(['0', '1', '2'])
  const two = await a100.take(2, { wait: '5s', expect: '20m' })
  expect(two.resources).toHaveLength(2)
  expect(two.resources.every(name => ['gpu/0', 'gpu/1', 'gpu/2'].includes(name))).toBe(true)
  expect(await a100.tryTake(2)).toBeUndefined()
  await using one = await a100.take(1, { ifAvailable: true })
  expect(two.resources).not.toContain(one.resources[0])
  await using other = await user.pool('gpu').take(1, { match: { model: 'H100' } })
  expect(other.resources).toEqual(['gpu/3'])
  const waiting = a100.take(2, { wait: '10s' })
  await two.release()
  await using again = await waiting
  expect([...again.resources].sort()).toEqual([...two.resources].sort())
  await expect(a100.take(4, { ifAvailable: true })).rejects.toMatchObject({ code: 'LIMIT', facts: { members: 4, matching: 3 } })
  expect(await a100.tryTake(4)).toBeUndefined()
})

everywhere('a member with units is shared out by weight', async ({ open }) => {
  await using owner = await open('owner')
  await using user = await open('user')
  await owner.pool('machine').offer('big', { units: 8 })
  const machines = user.pool('machine')
  await using five = await machines.take(1, { units: 5 })
  await using three = await machines.take(1, { units: 3, ifAvailable: true })
  expect(await machines.tryTake(1, { units: 1 })).toBeUndefined()
  await three.release()
  expect(await machines.tryTake(1, { units: 4 })).toBeUndefined()
  expect(await machines.tryTake(1)).toBeUndefined() // all of it
  await five.release()
  await using all = await machines.take()
  expect(all.held).toBe(true)
  await expect(machines.take(1, { units: 9, ifAvailable: true })).rejects.toMatchObject({ code: 'LIMIT' })
})

everywhere('a waiter gets a member that another process offers meanwhile', async ({ open }) => {
  await using owner = await open('owner')
  await using user = await open('user')
  await owner.pool('p').offer('a')
  await using _taken = await owner.pool('p').take()
  const waiting = user.pool('p').take(1, { wait: '20s' })
  await expect.poll(async () => (await owner.query('p')).pending.length).toBe(1)
  await owner.pool('p').offer('b')
  await using lease = await waiting
  expect(lease.resources).toEqual(['p/b'])
  expect((await owner.query('p')).pending).toEqual([])
})

everywhere('a member that is offered again with fewer units is granted to every taker that fits', async ({ open }) => {
  await using owner = await open('owner')
  await using user = await open('user')
  await using other = await open('other')
  const pool = owner.pool('p')
  const offer = await pool.offer('a', { units: 4 })
  const all = await pool.take()
  // One taker wants four units, the other all units of the member.
  const four = new AbortController()
  const fixed = user.pool('p').take(1, { units: 4, signal: four.signal })
  await expect.poll(async () => (await owner.query('p')).pending.length).toBe(1)
  const whole = other.pool('p').take(1, { wait: '20s' })
  await expect.poll(async () => (await owner.query('p')).pending.length).toBe(2)
  await offer.release()
  await using _again = await pool.offer('a', { units: 2 })
  await all.release()
  await using taken = await whole
  expect(taken.resources).toEqual(['p/a'])
  await taken.release()
  // A newcomer does not wait behind a taker that wants more units than there are.
  await using one = await other.pool('p').take(1, { units: 1, ifAvailable: true })
  expect(one.held).toBe(true)
  four.abort(new Error('enough'))
  await expect(fixed).rejects.toThrow('enough')
})

test('waiters are served in order: a taker of more members is not overtaken', async () => {
  const { leases, clock } = silentLessor()
  const pool = leases.pool('p')
  for (const name of ['a', 'b']) await pool.offer(name)
  const first = await pool.take(1)
  const order: string[] = []
  const both = pool.take(2).then(async lease => {
    order.push('both')
    await lease.release()
  })
  await clock.settle()
  const single = pool.take(1).then(async lease => {
    order.push('single')
    await lease.release()
  })
  await clock.settle()
  expect(order).toEqual([])
  await first.release()
  await Promise.all([both, single])
  expect(order).toEqual(['both', 'single'])
})

test('a member leaves the pool when its owner has died', async () => {
  const { leases, clock, lessor, log } = silentLessor({ holder: 'owner' })
  const user = silentLessor({ holder: 'user', clock, log })
  await leases.pool('p').offer('a', { ttl: 1_000 })
  expect(await user.leases.pool('p').members()).toHaveLength(1)
  lessor.stopAnswering()
  await clock.advance(1_100)
  expect(await user.leases.pool('p').members()).toEqual([])
  lessor.answer()
})

test('a member that is offered during a wait is taken, at once and once', async () => {
  const { leases, clock, log } = silentLessor({ holder: 'owner' })
  const user = silentLessor({ holder: 'user', clock, log }).leases
  const pool = leases.pool('p')
  await pool.offer('a')
  await using taken = await pool.take()
  const waiting = user.pool('p').take()
  await clock.settle()
  await pool.offer('b')
  await using lease = await waiting
  expect(lease.resources).toEqual(['p/b'])
  expect(lease.held).toBe(true)
  const { held, pending } = await user.query('p')
  expect(held.map(({ resource, holder }) => [resource, holder])).toEqual([
    ['p/a', 'owner'],
    ['p/b', 'user'],
  ])
  expect(pending).toEqual([])
  expect(taken.held).toBe(true)
})

test('a member that comes to match goes to the first waiter that it matches', async () => {
  const { leases, clock } = silentLessor()
  const pool = leases.pool('p')
  for (const name of ['a', 'b']) await pool.offer(name, { labels: { model: 'A100' } })
  const other = await pool.offer('c', { labels: { model: 'H100' } })
  await using _first = await pool.take(2, { match: { model: 'A100' } })
  await using _second = await pool.take(1, { match: { model: 'H100' } })
  const order: string[] = []
  const wait = async (name: string, model: string) => {
    const lease = await pool.take(1, { match: { model } })
    order.push(`${name} ${lease.resources[0]}`)
    return lease
  }
  const early = wait('early', 'A100')
  await clock.settle()
  const late = wait('late', 'A100')
  await clock.settle()
  void wait('another', 'H100')
  await clock.settle()
  await pool.offer('d', { labels: { model: 'A100' } })
  await clock.settle()
  expect(order).toEqual(['early p/d'])
  await pool.relabel(other, 'c', { model: 'A100' })
  await clock.settle()
  await (await early).release()
  expect((await late).resources).toEqual(['p/d'])
  await expect(pool.offer('rack/e')).rejects.toMatchObject({ code: 'INVALID' })
  await expect(pool.relabel(other, 'missing', {})).rejects.toMatchObject({ code: 'NOT_FOUND' })
})

test('members that are offered one by one add up for a waiter; members with too few units do not count', async () => {
  const { leases, clock } = silentLessor()
  const pool = leases.pool('p')
  for (const name of ['a', 'b']) await pool.offer(name, { units: 4 })
  const full = await pool.take(2)
  const waiting = pool.take(2, { units: 3 })
  await clock.settle()
  await pool.offer('small', { units: 2 })
  await pool.offer('c', { units: 4 })
  await clock.settle()
  expect((await leases.query('p')).pending).toHaveLength(1)
  await pool.offer('d', { units: 3 })
  await using lease = await waiting
  expect([...lease.resources].sort()).toEqual(['p/c', 'p/d'])
  await full.release()
})

test('an aborted wait leaves no waiter behind', async () => {
  const { leases, clock } = silentLessor()
  const pool = leases.pool('p')
  await pool.offer('a')
  const holder = await pool.take()
  const before = clock.waiting
  const stop = new AbortController()
  const waiting = pool.take(1, { signal: stop.signal })
  await clock.settle()
  expect((await leases.query('p')).pending).toMatchObject([{ position: 0 }])
  stop.abort(new Error('enough'))
  await expect(waiting).rejects.toThrow('enough')
  await clock.settle()
  expect((await leases.query('p')).pending).toEqual([])
  await pool.offer('b')
  await clock.settle()
  expect((await leases.query('p')).held).toHaveLength(1)
  expect(clock.waiting).toBeLessThanOrEqual(before + 2)
  await holder.release()
})

test('a request that all members could not serve is refused with the reason; a patient one waits for members', async () => {
  const { clock, leases } = silentLessor()
  await using _ = leases
  const pool = leases.pool('late')
  await expect(pool.take(1)).rejects.toMatchObject({
    code: 'LIMIT',
    reason: 'pool-impossible',
    facts: { pool: 'late', members: 0, count: 1 },
  })
  expect(await pool.tryTake()).toBeUndefined()
  const rejection = expect(pool.take(1, { wait: '2s', patient: true })).rejects.toMatchObject({ code: 'TIMEOUT' })
  await clock.advance(2_100)
  await rejection
  const pending = pool.take(2, { wait: '1m', patient: true })
  await clock.settle()
  await using _one = await pool.offer('one')
  await clock.advance(1_000)
  await using _two = await pool.offer('two')
  await clock.settle()
  await using both = await pending
  expect([...both.resources].sort()).toEqual(['late/one', 'late/two'])
  const stop = new AbortController()
  const left = expect(pool.take(3, { signal: stop.signal, patient: true })).rejects.toThrow('enough')
  await clock.settle()
  stop.abort(new Error('enough'))
  await left
})

everywhere('members are chosen by conditions, near each other and by total units', async ({ open }) => {
  await using owner = await open('owner')
  await using user = await open('user')
  const gpus = owner.pool('gpu')
  for (const [name, model, host, mem] of [
    ['0', 'a100', 'x', '40'],
    ['1', 'a100', 'y', '80'],
    ['2', 'h100', 'y', '80'],
    ['3', 'v100', 'y', '16'],
  ] as const)
    await gpus.offer(name, { labels: { model, host, mem }, units: 4 })
  const pool = user.pool('gpu')
  await using near = await pool.take(2, { match: 'model in (a100,h100), mem>=40', near: 'host' })
  expect([...near.resources].sort()).toEqual(['gpu/1', 'gpu/2'])
  await using some = await pool.take(undefined, { total: 5 })
  expect(some.resources).toHaveLength(2)
  const { members, queue } = await pool.state()
  expect(members.map(({ member, used }) => [member, used])).toEqual([
    ['0', 4],
    ['1', 4],
    ['2', 4],
    ['3', 1],
  ])
  expect(queue).toEqual([])
  await expect(pool.take(1, { match: 'mem>>4' })).rejects.toMatchObject({ code: 'INVALID' })
  const { value } = await user.lessor.read({ kind: 'pools' }, { consistent: true })
  expect(value).toEqual([{ pool: 'gpu', members: 4, units: 16, used: 13, waiting: 0, reservations: 0 }])
})

test('when the process that offers a member dies, the lease that holds the member ends; a release lets it drain', async () => {
  const { leases: user, clock, log } = silentLessor({ holder: 'user' })
  const { leases: host, lessor } = silentLessor({ holder: 'host', clock, log })
  await host.pool('p').offer('a', { ttl: 2_000 })
  const kept = await silentLessor({ holder: 'other', clock, log }).leases.pool('p').offer('b')
  await using taken = await user.pool('p').take(2, { ttl: 60_000 })
  await kept.release()
  expect(taken.held).toBe(true)
  void taken.signal // so that the client listens
  lessor.stopAnswering()
  await clock.advance(3_000)
  expect(taken.signal.aborted).toBe(true)
  expect(taken.signal.reason).toMatchObject({ code: 'LOST' })
})

test('a lease of a pool is extended unless another waits, and a reservation is adopted when its window begins', async () => {
  const { leases, clock } = silentLessor()
  const pool = leases.pool('p')
  await pool.offer('a')
  const first = await pool.take(1, { maxLife: '10s' })
  const extend = (lease: number, by: number) => propose(leases.lessor, { kind: 'extend', lease, by })
  expect(await extend(first.id, 10_000)).toMatchObject({ kind: 'done' })
  await clock.advance(15_000)
  expect(first.held).toBe(true)
  await clock.advance(5_100)
  expect(first.held).toBe(false)
  const reservation = await pool.reserve(1, { from: '60s', for: '30s', ttl: '20s' })
  const short = await pool.take(1, { maxLife: '50s' })
  expect(await extend(short.id, 20_000)).toMatchObject({ kind: 'refused', code: 'HELD' })
  await short.release()
  await expect(pool.take(1, { ifAvailable: true })).rejects.toMatchObject({ code: 'HELD' })
  await expect(pool.reserve(1, { from: '70s', for: '30s' })).rejects.toMatchObject({ code: 'HELD' })
  await clock.advance(62_000)
  await using mine = await leases.adopt(reservation.lease)
  expect(mine.resources).toEqual(['p/a'])
})

test('of two processes with one name, one adopts a reservation, even if the other made it', async () => {
  const { leases: made, lessor, clock, log } = silentLessor({ holder: 'worker' })
  const namesake = silentLessor({ holder: 'worker', clock, log }).leases
  const { id: incarnation } = await made.pool('p').offer('a')
  // A client of the protocol may name its process in a reservation.
  const pool = { pool: 'p', from: 60_000 }
  const reserved = await propose(lessor, {
    kind: 'acquire',
    holder: 'worker',
    incarnation,
    ttl: 20_000,
    wants: [],
    wait: true,
    maxLife: 30_000,
    pool,
  })
  const { lease } = reserved as Extract<typeof reserved, { kind: 'queued' }>
  await clock.advance(62_000)
  const pending = await Promise.allSettled([namesake.adopt(lease), made.adopt(lease)])
  expect(pending.map(({ status }) => status)).toEqual(['fulfilled', 'rejected'])
})

test('a member that is offered with one unit is exclusive again, even if its last owner shared it and died', async () => {
  const { clock, log, lessor, leases: dying } = silentLessor({ holder: 'dying' })
  await using next = silentLessor({ clock, log, holder: 'next' }).leases
  await dying.pool('gpu').offer('0', { units: 4, ttl: '1s' })
  lessor.end(new Error('killed'))
  await clock.advance(5_000)
  await next.pool('gpu').offer('0')
  await using first = await next.pool('gpu').take(1, { ifAvailable: true })
  expect(await next.pool('gpu').tryTake()).toBeUndefined()
  expect(first.held).toBe(true)
})

test('members that were offered while a waiter had lost its place count when it has queued again', async () => {
  const { clock, log, lessor, leases } = silentLessor({ holder: 'user' })
  await using owner = silentLessor({ clock, log, holder: 'owner' }).leases
  await owner.pool('p').offer('a', { ttl: '1h' })
  await using _taken = await owner.pool('p').take(1, { ttl: '1h' })
  const waiting = leases.pool('p').take(1, { ttl: '2s', wait: '1h' })
  await clock.advance(100)
  lessor.stopAnswering()
  await clock.advance(10_000)
  expect((await owner.query('p')).pending).toEqual([])
  await owner.pool('p').offer('b', { ttl: '1h' })
  await clock.advance(1_000)
  lessor.answer()
  await clock.advance(10_000)
  expect((await owner.query('p')).pending).toEqual([])
  await using lease = await waiting
  expect(lease.resources).toEqual(['p/b'])
  await leases[Symbol.asyncDispose]()
})

test('a foreign entry among the members is ignored, and takers are not disturbed', async () => {
  await using leases = silentLessor().leases
  await leases.pool('p').offer('a')
  await leases.grant({ entries: { 'pool/p/note': 'hello', 'pool/p/null': 'null', 'pool/p/no': '{"labels":{},"units":0}' } })
  expect((await leases.pool('p').members()).map(({ member }) => member)).toEqual(['a'])
  await using lease = await leases.pool('p').take()
  expect(lease.resources).toEqual(['p/a'])
})

test.each(['leasehold', 'http'])('a pool is used over %s as in the same process', async scheme => {
  await using here = await (scheme === 'http' ? world() : place())
  await using owner = await connect(`${scheme}://127.0.0.1:${here.port}`, { holder: 'owner' })
  await using user = await connect(`${scheme}://127.0.0.1:${here.port}`, { holder: 'user' })
  await using offer = await owner.pool('p').offer('a', { labels: { mem: '80', model: 'h100' } })
  await owner.setPolicy('p/accounts/team', { quotaWeek: 360_000_000 })
  await owner.setPolicy('p/kinds/h100/accounts/team', { quotaUnits: 1 })
  const first = await user.pool('p').take(1, { match: 'mem>=40', account: 'team', maxLife: '1h' })
  const waiting = owner.pool('p').take(1, { wait: '20s', expect: '10m' })
  await expect.poll(async () => (await user.pool('p').state()).queue.length).toBe(1)
  const { members, queue, accounts } = await user.pool('p').state()
  expect(members).toMatchObject([
    { member: 'a', labels: { mem: '80', model: 'h100' }, offer: offer.id, grants: [{ holder: 'user', account: 'team' }] },
  ])
  expect(queue).toMatchObject([{ holder: 'owner', position: 0, possible: true, request: { pool: 'p', count: 1, expect: 600_000 } }])
  expect(accounts).toMatchObject([
    { account: 'owner', waiting: 1 },
    { account: 'team', held: 1, week: { quota: 360_000_000, again: 0 }, kinds: [{ kind: 'h100', held: 1, quota: 1 }] },
  ])
  expect(await propose(user.lessor, { kind: 'extend', lease: first.id, by: 1_000 })).toMatchObject({ kind: 'refused', code: 'HELD' })
  await first.release()
  await using second = await waiting
  expect(second.resources).toEqual(['p/a'])
  expect((await user.lessor.read({ kind: 'pools' })).value).toMatchObject([{ pool: 'p', members: 1, used: 1 }])
})

test('a key that may not read can offer a member', async () => {
  await using here = await place()
  const allow = [{ verb: 'register', prefix: 'pool/p' }] as const
  await propose(here.lessor, { kind: 'key', name: 'owner', hash: hashSecret('owner'), allow })
  await expect.poll(() => here.server.guarded.access.keyRequired).toBe(true)
  await using owner = await connect(`leasehold://127.0.0.1:${here.port}`, { apiKey: 'owner' })
  await using offer = await owner.pool('p').offer('a')
  expect(offer.held).toBe(true)
  await using shared = await owner.pool('p').offer('b', { units: 4 })
  expect(shared.held).toBe(true)
})

test('a pool may have more members than one request can name: all of them can be taken, free ones first', async () => {
  const { leases } = silentLessor()
  const pool = leases.pool('gpu')
  const offers = await Promise.all(Array.from({ length: 300 }, (_, i) => pool.offer(`${i}`)))
  const taken: Lease[] = []
  for (let i = 0; i < 300; i++) taken.push(await pool.take(1, { ifAvailable: true }))
  expect(new Set(taken.flatMap(({ resources }) => resources)).size).toBe(300)
  await expect(pool.take(1, { ifAvailable: true })).rejects.toMatchObject({ code: 'HELD' })
  const waiting = pool.take(2, { wait: '10s' })
  for (const lease of taken) await lease.release()
  const got = await waiting
  expect(got.resources).toHaveLength(2)
  for (const lease of [got, ...offers]) await lease.release()
})

test("expect: 'auto' says how long such leases were held before, and nothing while too few are known", async () => {
  await using leases = await connect('memory:')
  const pool = leases.pool('gpus')
  await pool.offer('a')
  const past = async (account: string) => {
    await using lease = await pool.take(1, { account, expect: 'auto' })
    const { members } = await pool.state()
    return { expect: members[0]!.grants[0]!.expect, class: members[0]!.grants[0]!.class, lease: lease.id }
  }
  for (let i = 0; i < 5; i++) expect(await past('ann')).toMatchObject({ expect: 0, class: 'gpus/ann' })
  expect((await past('ann')).expect).toBeGreaterThan(0)
  // Another user learns from the pool.
  expect((await past('ben')).expect).toBeGreaterThan(0)
  expect((await leases.learned('gpus', { class: 'gpus/ann' })).expect).toBeGreaterThan(0)
  await using own = await pool.take(1, { account: 'ann', learn: { class: 'gpus/nightly' } })
  expect((await pool.state()).members[0]!.grants[0]).toMatchObject({ lease: own.id, class: 'gpus/nightly' })
  await expect(pool.take(1, { learn: { class: 'jobs/other' } })).rejects.toMatchObject({ code: 'INVALID' })
})

test('an explanation estimates starts by how long such leases were held before', async () => {
  await using leases = await connect('memory:')
  const pool = leases.pool('gpus')
  await pool.offer('a')
  for (let i = 0; i < 20; i++) await (await pool.take(1, { account: 'ann' })).release()
  await using _running = await pool.take(1, { account: 'ann' })
  const over = new AbortController()
  const waiting = pool.take(1, { account: 'ben', signal: over.signal })
  await expect.poll(async () => (await pool.state()).queue.length).toBe(1)
  const [known] = await pool.explain()
  const [unknown] = await pool.explain({ duration: () => UNKNOWN_DURATION })
  // All leases of ann were held for milliseconds. Without that knowledge, half of all work is taken to run for a minute.
  expect(known!.start!.median).toBeLessThan(unknown!.start!.median / 10)
  expect(await pool.explain({ lease: known!.lease })).toMatchObject({ start: { median: expect.any(Number) } })
  over.abort()
  await expect(waiting).rejects.toThrow()
})
