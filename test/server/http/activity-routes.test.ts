/** The routes that the page is made of: what happened lately, tables, and what an action would do. */
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, expect, test } from 'vitest'
import { LeaseError } from '../../../src/errors.ts'
import type { Acquire } from '../../../src/kernel/command.ts'
import type { Granted } from '../../../src/kernel/outcome.ts'
import { propose } from '../../../src/lessor/propose.ts'
import type { FailedAppend } from '../../../src/server/store-watch.ts'
import { type World, world } from '../../support/http-world.ts'

const open: AsyncDisposable[] = []
const folders: string[] = []
afterEach(async () => {
  for (const each of open.splice(0)) await each[Symbol.asyncDispose]()
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true })
})

async function serving(options: Parameters<typeof world>[0] = {}): Promise<World> {
  const place = await world(options)
  open.push(place)
  return place
}

async function acquire({ lessor }: World, holder: string, names: readonly string[], more: Partial<Acquire> = {}): Promise<Granted> {
  const command: Acquire = { kind: 'acquire', holder, ttl: 30_000, wants: names.map(resource => ({ resource })), ...more }
  return (await propose(lessor, command)) as Granted
}

/** Waits until the observer has seen everything that the lessor decided. */
async function observed({ ask, lessor }: World): Promise<void> {
  const { revision } = await lessor.read({ kind: 'summary' })
  await expect.poll(async () => (await ask('GET', '/v1/events')).json.revision).toBeGreaterThanOrEqual(revision)
}

const sum = (values: readonly (number | null)[]) => values.reduce<number>((total, value) => total + (value ?? 0), 0)

test('activity counts grants, releases, lapses and waits, and knows how many leases there are', async () => {
  const place = await serving()
  const first = await acquire(place, 'a', ['db/main'])
  await acquire(place, 'b', ['db/main'], { wait: true })
  await propose(place.lessor, { kind: 'release', lease: first.lease })
  await acquire(place, 'c', ['db/other'], { ttl: 5_000 })
  await observed(place)
  await place.clock.advance(7_000)
  await observed(place)
  const { json } = await place.ask('GET', '/v1/activity?last=1m')
  expect(json.step).toBe(1_000)
  expect(json.series.granted).toHaveLength(60)
  expect(sum(json.series.granted)).toBe(3)
  expect(sum(json.series.queued)).toBe(1)
  expect(sum(json.series.released)).toBe(1)
  expect([sum(json.series.lapsed), sum(json.series.lost)]).toEqual([1, 1])
  expect(json.from + 60_000).toBeGreaterThan(json.now)
  await expect.poll(async () => (await place.ask('GET', '/v1/activity?step=1m&last=1m')).json.series.live.at(-1)).toBe(1)
})

test('the overview names the oldest wait under each prefix, the most contended name and what was lost', async () => {
  const place = await serving()
  await acquire(place, 'a', ['db/main'], { ttl: 60_000 })
  await acquire(place, 'early', ['db/main'], { wait: true })
  await place.clock.advance(1_000)
  await acquire(place, 'late', ['db/main'], { wait: true })
  await acquire(place, 'b', ['web/x'], { ttl: 5_000 })
  await place.clock.advance(8_000)
  await observed(place)
  const { json } = await place.ask('GET', '/v1/overview')
  expect(json.waits).toMatchObject([{ prefix: 'db', resource: 'db/main', holder: 'early' }])
  expect(json.contended).toEqual([{ resource: 'db/main', waiters: 2, holder: 'a' }])
  expect(json.lost.causes).toEqual([{ cause: 'lapsed', count: 1 }])
  expect(json.lost.last).toMatchObject([{ resource: 'web/x', holder: 'b', cause: 'lapsed', held: 5_000 }])
  expect(json.leases).toEqual({ live: 1, waiting: 2, suspect: 0, frozen: 0 })
  expect(json.store).toEqual({ up: true, quiet: false })
})

test('an episode says behind whom a client waited, and how its wait ended', async () => {
  const place = await serving()
  const holder = await acquire(place, 'holder', ['db/main'])
  await acquire(place, 'waiter', ['db/main'], { wait: true })
  await place.clock.advance(2_000)
  await propose(place.lessor, { kind: 'release', lease: holder.lease })
  await acquire(place, 'third', ['db/main'], { wait: true })
  await observed(place)
  const { episodes } = (await place.ask('GET', '/v1/episodes/db/main')).json
  expect(episodes).toMatchObject([
    { waiter: { holder: 'third' }, behind: [{ holder: 'waiter' }] },
    { waiter: { holder: 'waiter' }, ended: 'granted', behind: [{ holder: 'holder' }] },
  ])
  expect(episodes[0].until).toBeUndefined()
  expect(episodes[1].until - episodes[1].from).toBe(2_000)
})

test('events begin with what the server still knows, and a watch continues after them without a gap', async () => {
  const place = await serving()
  for (let i = 0; i < 5; i++) await acquire(place, 'a', [`x/${i}`])
  await acquire(place, 'a', ['y/1'])
  await observed(place)
  const all = (await place.ask('GET', '/v1/events')).json
  expect(all.events.map(({ resource }: { resource: string }) => resource)).toEqual(['x/0', 'x/1', 'x/2', 'x/3', 'x/4', 'y/1'])
  expect((await place.ask('GET', '/v1/events?prefix=x&limit=2')).json.events).toMatchObject([{ resource: 'x/3' }, { resource: 'x/4' }])
  expect(all.revision).toBe(all.events.at(-1).revision)
})

test('the status of an instance is kept as a strip, also after it has gone', async () => {
  const place = await serving()
  const register = await place.ask('PUT', '/v1/services/critic/one', { ttl: '30s', addresses: ['10.0.0.1:80'] })
  expect(register.status).toBe(201)
  await place.ask('POST', '/v1/services/critic/one/heartbeat', { status: 'draining' })
  await expect.poll(async () => (await place.ask('GET', '/v1/strips/critic')).json.instances[0]?.changes.length).toBe(2)
  await place.ask('DELETE', '/v1/services/critic/one')
  const statuses = async () =>
    (await place.ask('GET', '/v1/strips/critic')).json.instances[0].changes.map(({ status }: { status: string }) => status)
  await expect.poll(statuses).toEqual(['passing', 'draining', 'gone'])
})

test('rows are filtered, sorted and paged by the server', async () => {
  const place = await serving()
  for (let i = 0; i < 30; i++) {
    await acquire(place, `h${i % 3}`, [`jobs/${String(i).padStart(2, '0')}`], { labels: [['purpose', `run ${i}`]] })
    await place.clock.advance(10)
  }
  await acquire(place, 'other', ['web/x'])
  await acquire(place, 'waiter', ['jobs/05'], { wait: true })
  const rows = async (query: string) => (await place.ask('GET', `/v1/rows?${query}`)).json
  const all = await rows('of=resources&limit=2')
  expect(all).toMatchObject({ total: 31, offset: 0, rows: [{ resource: 'jobs/00', status: 'held', holder: 'h0', purpose: 'run 0' }, {}] })
  expect((await rows('of=resources&prefix=jobs&sort=-name&offset=1&limit=1')).rows).toMatchObject([{ resource: 'jobs/28' }])
  expect((await rows('of=resources&sort=-waiters&limit=1')).rows).toMatchObject([{ resource: 'jobs/05', waiters: 1 }])
  expect((await rows('of=resources&holder=h1')).total).toBe(10)
  expect((await rows('of=resources&text=WEB')).rows).toMatchObject([{ resource: 'web/x' }])
  expect((await rows('of=leases&state=waiting')).rows).toMatchObject([{ holder: 'waiter', wants: ['jobs/05'], resources: [] }])
  expect((await rows('of=leases&label=purpose%3Drun%207')).rows).toMatchObject([{ resources: ['jobs/07'], purpose: 'run 7', ttl: 30_000 }])
  expect((await rows('of=leases&sort=since&limit=1')).rows).toMatchObject([{ resources: ['jobs/00'] }])
  expect((await place.ask('GET', '/v1/rows?of=resources&sort=color')).status).toBe(400)
})

test('rows say how much time is left now, not when they were read', async () => {
  const place = await serving()
  await acquire(place, 'a', ['x'])
  const first = (await place.ask('GET', '/v1/rows?of=resources')).json.rows[0]
  await place.clock.advance(1_000)
  const second = (await place.ask('GET', '/v1/rows?of=resources')).json.rows[0]
  expect(first.remaining - second.remaining).toBe(1_000)
})

test('a preview says what ends and who is next, and changes nothing', async () => {
  const place = await serving()
  const parent = await acquire(place, 'ci-7', ['db/main'])
  await acquire(place, 'ci-7', ['db/test'], { parent: parent.lease })
  await acquire(place, 'next', ['db/main'], { wait: true })
  const { json } = await place.ask('POST', '/v1/preview', { action: 'revoke', lease: parent.lease })
  expect(json).toMatchObject({
    allowed: true,
    endsTotal: 2,
    next: [{ resource: 'db/main', holder: 'next' }],
    says: 'ends 2 leases of ci-7; next gets db/main',
  })
  expect((await place.ask('POST', '/v1/preview', { action: 'break', resource: 'db/test' })).json.says).toBe(
    'ends 1 lease of ci-7; no waiter gets anything',
  )
  expect((await place.ask('POST', '/v1/preview', { action: 'revoke', holder: 'ci-7' })).json.endsTotal).toBe(2)
  expect((await place.ask('POST', '/v1/preview', { action: 'recall', resource: 'db/main' })).json).toMatchObject({
    endsTotal: 0,
    says: expect.stringContaining('ci-7'),
  })
  expect((await place.ask('POST', '/v1/preview', { action: 'break' })).status).toBe(400)
  expect((await place.ask('POST', '/v1/preview', { action: 'revoke' })).status).toBe(400)
  expect((await place.lessor.read({ kind: 'summary' })).value.leases).toBe(3)
})

test('a key sees only what it may read, and a preview says what it may not do', async () => {
  const place = await serving()
  await acquire(place, 'a', ['mine/x'], { ttl: 5_000 })
  await acquire(place, 'a', ['other/x'], { ttl: 5_000 })
  await acquire(place, 'w', ['mine/x'], { wait: true, ttl: 60_000 })
  await acquire(place, 'w', ['other/x'], { wait: true, ttl: 60_000 })
  const admin = await place.key('admin', [{ verb: 'admin', prefix: '' }])
  const limited = await place.key('limited', [
    { verb: 'read', prefix: 'mine' },
    { verb: 'watch', prefix: 'mine' },
  ])
  const as = (key: string) => (method: string, path: string, body?: unknown) =>
    place.ask(method, path, body, { authorization: `Bearer ${key}` })
  const [all, few] = [as(admin), as(limited)]
  await expect.poll(async () => (await all('GET', '/v1/overview')).json.waits.length).toBe(2)
  const text = async (path: string) => (await few('GET', path)).text
  for (const path of ['/v1/overview', '/v1/events?prefix=mine', '/v1/rows?of=resources&prefix=mine', '/v1/rows?of=leases', '/v1/losses'])
    expect(await text(path)).not.toContain('other/x')
  expect((await few('GET', '/v1/overview')).json).toMatchObject({ waits: [{ resource: 'mine/x' }] })
  expect((await few('GET', '/v1/overview')).json.leases).toBeUndefined()
  expect((await few('GET', '/v1/activity')).status).toBe(403)
  expect((await few('GET', '/v1/episodes/other/x')).status).toBe(403)
  expect((await few('GET', '/v1/whoami')).json).toMatchObject({
    name: 'limited',
    open: false,
    allow: [{ verb: 'read', prefix: 'mine' }, {}],
  })
  expect((await few('POST', '/v1/preview', { action: 'break', resource: 'mine/x' })).json).toMatchObject({
    allowed: false,
    why: 'limited may not break mine/x',
  })
  expect((await few('POST', '/v1/preview', { action: 'break', resource: 'other/x' })).status).toBe(403)
  expect((await place.ask('GET', '/v1/whoami')).status).toBe(401)
})

test('trees come whole, newest first, in pages, and only as far as a key may read them', async () => {
  const place = await serving()
  for (let i = 0; i < 3; i++) {
    const session = await acquire(place, `user-${i}`, [])
    const step = await acquire(place, `user-${i}`, [`steps/${i}`], { parent: session.lease })
    await acquire(place, 'helper', [`steps/${i}/part`], { parent: step.lease })
    await place.clock.advance(1_000)
  }
  await acquire(place, 'alone', ['jobs/x'])
  const { json } = await place.ask('GET', '/v1/trees?limit=2')
  const holders = json.trees.map(({ leases }: { leases: { holder: string }[] }) => leases.map(({ holder }) => holder))
  expect([json.total, holders]).toEqual([
    3,
    [
      ['user-2', 'user-2', 'helper'],
      ['user-1', 'user-1', 'helper'],
    ],
  ])
  expect((await place.ask('GET', '/v1/trees?offset=2')).json.trees).toHaveLength(1)
  expect((await place.ask('GET', '/v1/trees?limit=100000')).status).toBe(400)
  const few = await place.key('few', [{ verb: 'read', prefix: 'steps/1' }])
  const seen = await place.ask('GET', '/v1/trees', undefined, { authorization: `Bearer ${few}` })
  expect([seen.json.total, seen.text.includes('steps/1/part'), seen.text.includes('steps/2')]).toEqual([1, true, false])
})

test('a tree of more leases than are shown says so', async () => {
  const place = await serving()
  const session = await acquire(place, 'user', [])
  for (let i = 0; i < 200; i++) await acquire(place, 'user', [`steps/${i}`], { parent: session.lease })
  const { json } = await place.ask('GET', '/v1/trees')
  expect([json.trees[0].leases.length, json.trees[0].more]).toEqual([200, true])
})

test('a preview allows exactly what the server then allows', async () => {
  const place = await serving()
  const verbs = ['acquire', 'release', 'revoke', 'break', 'admin'] as const
  const keys = new Map<string, string>()
  for (const verb of verbs)
    keys.set(
      verb,
      await place.key(verb, [
        { verb, prefix: 'a' },
        { verb: 'read', prefix: '' },
      ]),
    )
  const as = (verb: string) => (method: string, path: string, body?: unknown) =>
    place.ask(method, path, body, { authorization: `Bearer ${keys.get(verb)}` })
  let made = 0
  const take = async (by: string) => {
    const name = `a/${made++}`
    const { json } = await as(by)('POST', '/v1/leases', { resources: [name], holder: by })
    return { name, lease: json.lease as number }
  }
  type Request = readonly [method: string, path: string, body: object | undefined, about: object]
  const actions: Readonly<Record<string, (taken: { readonly lease: number; readonly name: string }) => Request>> = {
    release: ({ lease }) => ['DELETE', `/v1/leases/${lease}`, undefined, { lease }],
    revoke: ({ lease }) => ['POST', '/v1/revoke', { lease }, { lease }],
    break: ({ name }) => ['POST', '/v1/break', { resource: name }, { resource: name }],
  }
  for (const owner of ['acquire', 'admin'])
    for (const verb of verbs)
      for (const [action, requestOf] of Object.entries(actions)) {
        const [method, path, body, about] = requestOf(await take(owner))
        const said = (await as(verb)('POST', '/v1/preview', { action, ...about })).json
        const done = (await as(verb)(method, path, body)).status
        expect([owner, verb, action, done < 300]).toEqual([owner, verb, action, said.allowed])
      }
})

test('a lease says that it belongs to the key that asks, and for how long it may be held in all', async () => {
  const place = await serving()
  const mine = await place.key('mine', [{ verb: 'admin', prefix: '' }])
  const other = await place.key('other', [{ verb: 'admin', prefix: '' }])
  const as = (key: string) => (method: string, path: string, body?: unknown) =>
    place.ask(method, path, body, { authorization: `Bearer ${key}` })
  const { json } = await as(mine)('POST', '/v1/leases', { resources: ['x'], holder: 'a', maxLife: '4h' })
  expect((await as(mine)('GET', `/v1/leases/${json.lease}`)).json).toMatchObject({ own: true, maxLife: 14_400_000 })
  const seen = (await as(other)('GET', `/v1/leases/${json.lease}`)).json
  expect([seen.own, seen.maxLife]).toEqual([undefined, 14_400_000])
  expect((await as(other)('GET', '/v1/rows?of=leases')).json.rows).toMatchObject([{ maxLife: 14_400_000 }])
})

test('without keys, every caller may do everything', async () => {
  const place = await serving()
  expect((await place.ask('GET', '/v1/whoami')).json).toEqual({
    key: 0,
    name: 'anonymous',
    open: true,
    allow: [{ verb: 'admin', prefix: '' }],
  })
})

test('with a file, the last day outlives the server, and a damaged file is ignored', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-activity-'))
  folders.push(folder)
  const activityFile = join(folder, 'leases.db.activity')
  const place = await world({ httpOptions: { activityFile } })
  await acquire(place, 'a', ['x/1'], { ttl: 5_000 })
  await acquire(place, 'b', ['x/1'], { wait: true, ttl: 60_000 })
  await place.clock.advance(8_000)
  await observed(place)
  await place[Symbol.asyncDispose]()
  expect(statSync(activityFile).mode & 0o777).toBe(0o600)
  const again = await serving({ httpOptions: { activityFile } })
  expect((await again.ask('GET', '/v1/losses')).json.losses).toMatchObject([{ resource: 'x/1', holder: 'a', cause: 'lapsed' }])
  expect(sum((await again.ask('GET', '/v1/activity?step=1m')).json.series.granted)).toBe(2)
  expect((await again.ask('GET', '/v1/episodes/x/1')).json.episodes).toMatchObject([{ waiter: { holder: 'b' }, ended: 'granted' }])
  for (const damaged of ['', '{', '[]', readFileSync(activityFile, 'utf8').replace('"losses":[', '"losses":[7,')]) {
    writeFileSync(activityFile, damaged)
    const empty = await serving({ httpOptions: { activityFile } })
    expect((await empty.ask('GET', '/v1/losses')).json.losses).toEqual([])
  }
})

test('GET /v1/state says since when the store is down and whether renewals are answered, and why to keys that may read everything', async () => {
  let failed: FailedAppend | undefined
  await using place = await world({ failedAppend: () => failed })
  const before = (await place.ask('GET', '/v1/state')).json
  expect(before).toMatchObject({ stopping: false, quiet: false, store: { up: true } })
  await place.clock.advance(60_000)
  failed = { error: new LeaseError('UNAVAILABLE', 'no space left on the disk', { reason: 'full' }), at: place.clock.now() }
  const secret = {
    all: await place.key('all', [{ verb: 'read', prefix: '' }]),
    few: await place.key('few', [{ verb: 'read', prefix: 'mine' }]),
  }
  const ask = async (key: string) => (await place.ask('GET', '/v1/state', undefined, { authorization: `Bearer ${key}` })).json
  const down = await ask(secret.all)
  expect(down.store).toEqual({ up: false, since: down.now, renewals: !place.lessor.profile.shared, reason: 'no space left on the disk' })
  await place.clock.advance(10_000)
  expect((await ask(secret.few)).store).toEqual({ up: false, since: down.now, renewals: !place.lessor.profile.shared })
  expect((await place.ask('GET', '/v1/state')).status).toBe(401)
  failed = undefined
  const after = await ask(secret.all)
  expect(after.store).toEqual({ up: true, since: after.now, renewals: !place.lessor.profile.shared })
})
