import { setMaxListeners } from 'node:events'
import { describe, expect, test } from 'vitest'
import { turn } from '../../src/clock.ts'
import type { Acquire } from '../../src/kernel/command.ts'
import { propose } from '../../src/lessor/propose.ts'
import { Replica } from '../../src/replica/replica.ts'
import { anonymousCaller } from '../../src/server/access-control.ts'
import { GuardedLessor } from '../../src/server/guarded-lessor.ts'
import { hashSecret } from '../../src/server/key-secret.ts'
import { MemoryLog, MemoryStore } from '../../src/store/memory.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

const acquire = (holder: string, resource: string, options: Partial<Acquire> = {}): Acquire => ({
  kind: 'acquire',
  holder,
  ttl: 1_000,
  wants: [{ resource }],
  ...options,
})

const HASH = 'a'.repeat(64)

async function opened({ clock = new ManualClock(), log = new MemoryLog({ clock }) } = {}) {
  const lessor = await Replica.open(new MemoryStore({ log, clock }), { clock })
  const audited: unknown[] = []
  const guarded = await GuardedLessor.open({ lessor, clock, audit: done => audited.push(done.command) })
  return {
    clock,
    lessor,
    guarded,
    audited,
    async [Symbol.asyncDispose]() {
      await guarded[Symbol.asyncDispose]()
      await lessor[Symbol.asyncDispose]()
    },
  }
}

test('a waiter keeps its place while its connection is open, far beyond its ttl, and is granted the released resource', async () => {
  await using world = await opened()
  const { guarded, clock, lessor } = world
  const first = await guarded.acquire(anonymousCaller(), acquire('ann', 'a'), { wait: 0 })
  if (first.kind !== 'granted') throw new Error(first.kind)
  const second = guarded.acquire(anonymousCaller(), acquire('bob', 'a'), { wait: 60_000 })
  for (let i = 0; i < 40; i++) {
    await propose(lessor, { kind: 'renew', leases: [first.lease] })
    await clock.advance(250)
  }
  expect(guarded.waiting).toBe(1)
  await guarded.propose(anonymousCaller(), { kind: 'release', lease: first.lease })
  expect(await second).toMatchObject({ kind: 'granted', waited: true, resources: ['a'], tokens: [first.tokens[0]! + 1] })
  expect(guarded.waiting).toBe(0)
})

test('a wait that is over ends with TIMEOUT and leaves no place in the queue', async () => {
  await using world = await opened()
  const { guarded, clock, lessor } = world
  await guarded.acquire(anonymousCaller(), acquire('ann', 'a', { ttl: 60_000 }), { wait: 0 })
  const second = guarded.acquire(anonymousCaller(), acquire('bob', 'a'), { wait: 500 })
  const assertions = expect(second).rejects.toMatchObject({ code: 'TIMEOUT' })
  await clock.advance(600)
  await assertions
  await turn()
  expect((await lessor.read({ kind: 'resource', resource: 'a' })).value.queue).toEqual([])
})

test('a waiter loses its place when its connection closes', async () => {
  await using world = await opened()
  const { guarded, lessor } = world
  await guarded.acquire(anonymousCaller(), acquire('ann', 'a', { ttl: 60_000 }), { wait: 0 })
  const connection = new AbortController()
  const waits = (ms: number) =>
    guarded.acquire(anonymousCaller(), acquire('bob', ms > 0 ? 'a' : 'free'), { wait: ms, signal: connection.signal })
  const assertions = [waits(60_000), waits(0)].map(sent => expect(sent).rejects.toThrow('cut'))
  connection.abort(new Error('cut')) // while the question is on its way
  await Promise.all(assertions)
  await turn()
  expect((await lessor.read({ kind: 'leases', holder: 'bob' })).value).toEqual([])
  expect((await lessor.read({ kind: 'resource', resource: 'a' })).value.queue).toEqual([])
})

test('a waiter whose lease is revoked learns the cause', async () => {
  await using world = await opened()
  const { guarded, lessor } = world
  await guarded.acquire(anonymousCaller(), acquire('ann', 'a', { ttl: 60_000 }), { wait: 0 })
  const assertions = expect(guarded.acquire(anonymousCaller(), acquire('bob', 'a'), { wait: 60_000 })).rejects.toMatchObject({
    code: 'GONE',
  })
  await turn()
  await propose(lessor, { kind: 'revoke', target: { holder: 'bob' } })
  await assertions
})

test('a waiter that repeats its operation after the grant learns of the grant', async () => {
  await using world = await opened()
  const { guarded } = world
  const first = await guarded.acquire(anonymousCaller(), acquire('ann', 'a', { ttl: 60_000 }), { wait: 0 })
  if (first.kind !== 'granted') throw new Error(first.kind)
  const op = { session: 's', seq: 1, acked: 0 }
  const keeps = guarded.acquire(anonymousCaller(), acquire('eve', 'b'), { wait: 0 })
  void guarded.acquire(anonymousCaller(), acquire('eve', 'b'), { wait: 60_000 }).catch(() => {}) // so that a watch is open all the time
  await keeps
  const once = guarded.acquire(anonymousCaller(), acquire('bob', 'a', { ttl: 60_000 }), { wait: 60_000, op })
  await turn()
  await guarded.propose(anonymousCaller(), { kind: 'release', lease: first.lease })
  const granted = await once
  const again = await guarded.acquire(anonymousCaller(), acquire('bob', 'a', { ttl: 60_000 }), { wait: 60_000, op: { ...op, again: true } })
  expect(again).toMatchObject({ lease: (granted as { lease: number }).lease, tokens: (granted as { tokens: readonly number[] }).tokens })
})

test('a wait that is repeated under the same operation survives the loss of the first connection', async () => {
  await using world = await opened()
  const { guarded, lessor } = world
  const first = await guarded.acquire(anonymousCaller(), acquire('ann', 'a', { ttl: 60_000 }), { wait: 0 })
  if (first.kind !== 'granted') throw new Error(first.kind)
  const op = { session: 's', seq: 1, acked: 0, again: true }
  const dead = new AbortController()
  const once = guarded.acquire(anonymousCaller(), acquire('bob', 'a', { ttl: 60_000 }), { wait: 60_000, op, signal: dead.signal })
  const assertions = expect(once).rejects.toThrow('cut')
  await turn()
  const again = guarded.acquire(anonymousCaller(), acquire('bob', 'a', { ttl: 60_000 }), { wait: 60_000, op })
  await turn()
  dead.abort(new Error('cut'))
  await assertions
  expect(guarded.waiting).toBe(1)
  await guarded.propose(anonymousCaller(), { kind: 'release', lease: first.lease })
  const granted = await again
  expect(granted).toMatchObject({ kind: 'granted', waited: true })
  await turn()
  expect((await lessor.read({ kind: 'resource', resource: 'a' })).value.grants.map(({ holder }) => holder)).toEqual(['bob'])
})

test('a grant under an operation is not released because the first request lost its connection', async () => {
  await using world = await opened()
  const { guarded, lessor } = world
  const op = { session: 's', seq: 1, acked: 0, again: true }
  const dead = new AbortController()
  const once = guarded.acquire(anonymousCaller(), acquire('bob', 'a'), { wait: 0, op, signal: dead.signal })
  dead.abort(new Error('cut'))
  await once.catch(() => {})
  const again = await guarded.acquire(anonymousCaller(), acquire('bob', 'a'), { wait: 0, op })
  await turn()
  expect(again).toMatchObject({ kind: 'granted' })
  expect((await lessor.read({ kind: 'leases', holder: 'bob' })).value).toHaveLength(1)
})

test('once a key exists every caller needs one, even callers that were admitted before', async () => {
  await using world = await opened()
  const { guarded, lessor, audited } = world
  const before = guarded.access.identify(undefined)
  const created = await guarded.propose(before, { kind: 'key', name: 'root', hash: HASH, allow: [{ verb: 'admin', prefix: '' }] })
  expect(created.kind).toBe('done')
  expect(audited).toHaveLength(1)
  expect(() => guarded.access.identify(undefined)).toThrow(expect.objectContaining({ code: 'UNAUTHENTICATED' }))
  expect(() => guarded.access.identify('guess')).toThrow(expect.objectContaining({ code: 'UNAUTHENTICATED' }))
  await expect(guarded.propose(before, acquire('ann', 'a'))).rejects.toMatchObject({ code: 'UNAUTHENTICATED' })
  await expect(guarded.read(before, { kind: 'summary' })).rejects.toMatchObject({ code: 'UNAUTHENTICATED' })
  await propose(lessor, { kind: 'unkey', id: (created as { id: number }).id })
  await turn()
  expect(guarded.access.identify(undefined).key).toBe(0)
})

test('a caller sees only what its key may read', async () => {
  await using world = await opened()
  const { guarded, lessor } = world
  const { id } = (await propose(lessor, {
    kind: 'key',
    name: 'jobs',
    hash: HASH,
    allow: [
      { verb: 'acquire', prefix: '' },
      { verb: 'read', prefix: 'jobs' },
      { verb: 'watch', prefix: 'jobs' },
    ],
  })) as { id: number }
  await turn()
  const caller = { key: id, name: 'jobs' }
  const theirs = await propose(lessor, acquire('ann', 'secret/a'))
  const own = await guarded.propose(caller, acquire('me', 'other/mine'))
  await propose(lessor, acquire('ann', 'jobs/a'))
  const resources = await guarded.read(caller, { kind: 'resources', prefix: '' })
  expect(resources.value.map(({ resource }) => resource)).toEqual(['jobs/a'])
  await expect(guarded.read(caller, { kind: 'resource', resource: 'secret/a' })).rejects.toMatchObject({ code: 'FORBIDDEN' })
  await expect(guarded.read(caller, { kind: 'history', resource: 'secret/a' })).rejects.toMatchObject({ code: 'FORBIDDEN' })
  await expect(guarded.read(caller, { kind: 'keys' })).rejects.toMatchObject({ code: 'FORBIDDEN' })
  expect((await guarded.read(caller, { kind: 'lease', lease: (theirs as { lease: number }).lease })).value).toBeUndefined()
  expect((await guarded.read(caller, { kind: 'lease', lease: (own as { lease: number }).lease })).value).toBeDefined()
  const stop = new AbortController()
  const seen: (string | undefined)[] = []
  for await (const events of guarded.watch(caller, '', { after: 0, signal: stop.signal })) {
    if (events[0]!.type === 'resync') continue
    seen.push(...events.map(event => event.resource ?? event.key))
    if (events.some(({ resource }) => resource === 'jobs/b')) stop.abort()
    else if (events.some(({ resource }) => resource === 'jobs/a'))
      void propose(lessor, acquire('ann', 'secret/b')).then(() => propose(lessor, acquire('ann', 'jobs/b')))
  }
  expect(seen).toEqual(['jobs/a', 'jobs/b'])
})

test('a lease with a name that the caller may not read is hidden, and services are listed by what the caller may read', async () => {
  await using world = await opened()
  const { guarded, lessor } = world
  const allow = ['jobs', 'services/api'].map(prefix => ({ verb: 'read', prefix }) as const)
  const { id } = (await propose(lessor, { kind: 'key', name: 'reader', hash: HASH, allow })) as { id: number }
  await turn()
  const caller = { key: id, name: 'reader' }
  const held = async (command: Partial<Acquire>) => ((await propose(lessor, acquire('ann', 'jobs/a', command))) as { lease: number }).lease
  const entry = (service: string) => [{ key: `services/${service}/1`, value: '{"address":"a:1"}' }]
  const plain = await held({})
  const mixed = await held({ wants: [{ resource: 'jobs/b' }, { resource: 'secret/b' }] })
  const waits = await held({ wants: [{ resource: 'jobs/c' }, { resource: 'secret/b' }], wait: true })
  const hidden = await held({ wants: [{ resource: 'jobs/d' }], entries: entry('secret') })
  const open = await held({ wants: [{ resource: 'jobs/e' }], entries: entry('api') })
  for (const lease of [mixed, waits, hidden]) expect((await guarded.read(caller, { kind: 'lease', lease })).value).toBeUndefined()
  const query = { kind: 'leases' } as const
  expect((await guarded.read(caller, query)).value.map(({ lease }) => lease)).toEqual([plain, open])
  // The result is filtered once more, even if the query was not narrowed.
  const all = await lessor.read(query)
  expect(all.value).toHaveLength(5)
  expect(guarded.access.filter(caller, query, all).value.map(({ lease }) => lease)).toEqual([plain, open])
  expect((await lessor.read({ kind: 'services' })).value.map(({ service }) => service)).toEqual(['api', 'secret'])
  expect((await guarded.read(caller, { kind: 'services' })).value.map(({ service }) => service)).toEqual(['api'])
})

test('once the lessor has ended no caller is admitted by a key that was known before', async () => {
  await using world = await opened()
  const { guarded, lessor, clock } = world
  await propose(lessor, { kind: 'key', name: 'root', hash: hashSecret('secret'), allow: [{ verb: 'admin', prefix: '' }] })
  await turn()
  expect(guarded.access.identify('secret').name).toBe('root')
  await lessor[Symbol.asyncDispose]()
  await clock.advance(1_000)
  expect(() => guarded.access.identify('secret')).toThrow(/unknown or was revoked/)
  expect(() => guarded.access.identify(undefined)).toThrow(/requires a key/)
})

test('a waiter learns of its grant at once, even if the event was dropped from the buffer', async () => {
  const clock = new ManualClock()
  await using lessor = await Replica.open(new MemoryStore({ clock }), { clock, events: 5 })
  await using guarded = await GuardedLessor.open({ lessor, clock })
  const first = await guarded.acquire(anonymousCaller(), acquire('ann', 'a', { ttl: 60_000 }), { wait: 0 })
  if (first.kind !== 'granted') throw new Error(first.kind)
  let told: unknown
  void guarded.acquire(anonymousCaller(), acquire('bob', 'a', { ttl: 60_000 }), { wait: 60_000 }).then(outcome => (told = outcome))
  await clock.settle()
  expect(guarded.waiting).toBe(1)
  // One record: before the watchers run, the grant has been dropped from the buffer.
  await Promise.all([
    propose(lessor, { kind: 'release', lease: first.lease }),
    ...Array.from({ length: 20 }, (_, i) => propose(lessor, acquire('eve', `b/${i}`))),
  ])
  await clock.settle()
  expect(told).toMatchObject({ kind: 'granted', resources: ['a'] })
})

test('the watches of one key, and of one connection without a key, are limited', async () => {
  await using world = await opened()
  const { guarded } = world
  const caller = anonymousCaller()
  const stop = new AbortController()
  setMaxListeners(0, stop.signal)
  const watches = Array.from({ length: guarded.limits.watches }, () => guarded.watch(caller, '', { signal: stop.signal }))
  const waiting = watches.map(watch => watch.next())
  await expect(guarded.watch(caller, '', { signal: stop.signal }).next()).rejects.toMatchObject({ code: 'LIMIT' })
  const other = guarded.watch(anonymousCaller(), '', { signal: stop.signal }).next()
  await turn()
  expect(guarded.watches).toBe(guarded.limits.watches + 1)
  stop.abort()
  await Promise.allSettled([...waiting, other])
  expect(guarded.watches).toBe(0)
})

describe('after a key is revoked', () => {
  /** Two servers on one store, and a key with a watch and waits on the second server. */
  async function guarded() {
    const clock = new ManualClock()
    const log = new MemoryLog({ clock })
    const [here, there] = [await opened({ clock, log }), await opened({ clock, log })]
    const allow = (['acquire', 'watch'] as const).map(verb => ({ verb, prefix: 'quiet' }))
    const { id } = (await propose(here.lessor, { kind: 'key', name: 'jobs', hash: HASH, allow })) as { id: number }
    await propose(here.lessor, { kind: 'key', name: 'root', hash: 'b'.repeat(64), allow: [{ verb: 'admin', prefix: '' }] })
    await propose(here.lessor, acquire('ann', 'quiet/q', { ttl: 60_000 }))
    await expect.poll(() => there.guarded.access.hasKeys).toBe(true)
    return {
      ...{ here, there, id, caller: { key: id, name: 'jobs' } },
      async [Symbol.asyncDispose]() {
        await here[Symbol.asyncDispose]()
        await there[Symbol.asyncDispose]()
      },
    }
  }
  const OUT = { code: 'UNAUTHENTICATED', message: expect.stringContaining('revoked') }

  test('its watches end at once on every server, even without events', async () => {
    await using world = await guarded()
    const { here, there, id, caller } = world
    const stop = new AbortController()
    const news = there.guarded.watch(caller, 'quiet', { signal: stop.signal }).next()
    const assertions = expect(news).rejects.toMatchObject(OUT)
    await turn()
    expect(there.guarded.watches).toBe(1)
    await here.guarded.propose({ key: 0, name: 'operator', operator: true }, { kind: 'unkey', id })
    await assertions
    expect(there.guarded.watches).toBe(0)
  })

  test('its waits end at once, and leave no place in the queue', async () => {
    await using world = await guarded()
    const { here, there, id, caller } = world
    const waits = there.guarded.acquire(caller, acquire('bob', 'quiet/q'), { wait: 60_000 })
    const queued = await there.guarded.propose(caller, acquire('eve', 'quiet/q', { wait: true }))
    if (queued.kind !== 'queued') throw new Error(queued.kind)
    const follows = there.guarded.follow(caller, queued, new AbortController().signal)
    const assertions = [waits, follows].map(sent => expect(sent).rejects.toMatchObject(OUT))
    await turn()
    expect(there.guarded.waiting).toBe(2)
    await here.guarded.propose({ key: 0, name: 'operator', operator: true }, { kind: 'unkey', id })
    await Promise.all(assertions)
    expect(there.guarded.waiting).toBe(0)
    expect((await here.lessor.read({ kind: 'resource', resource: 'quiet/q' })).value.queue).toEqual([])
  })

  test('watches and waits of other keys continue', async () => {
    await using world = await guarded()
    const { here, there, id } = world
    const stop = new AbortController()
    const operator = { key: 0, name: 'operator', operator: true } as const
    const news = there.guarded.watch(operator, 'quiet', { signal: stop.signal }).next()
    await here.guarded.propose(operator, { kind: 'unkey', id })
    await propose(here.lessor, acquire('ann', 'quiet/r'))
    expect((await news).value).toMatchObject([{ type: 'granted', resource: 'quiet/r' }])
  })

  test('watches and waits without a key end when the first key is created', async () => {
    await using world = await opened()
    const { guarded, lessor } = world
    await guarded.acquire(anonymousCaller(), acquire('ann', 'a', { ttl: 60_000 }), { wait: 0 })
    const signal = new AbortController().signal
    const news = guarded.watch(anonymousCaller(), '', { signal, types: ['lapsed'] }).next()
    const waits = guarded.acquire(anonymousCaller(), acquire('bob', 'a'), { wait: 60_000 })
    const assertions = [news, waits].map(sent => expect(sent).rejects.toMatchObject({ code: 'UNAUTHENTICATED' }))
    await turn()
    await propose(lessor, { kind: 'key', name: 'root', hash: HASH, allow: [{ verb: 'admin', prefix: '' }] })
    await Promise.all(assertions)
    await turn()
    expect((await lessor.read({ kind: 'resource', resource: 'a' })).value.queue).toEqual([])
  })
})

test('a server that other machines can reach admits only the operator after its last key is revoked', async () => {
  await using world = await opened()
  const { guarded, lessor } = world
  const { id } = (await propose(lessor, { kind: 'key', name: 'root', hash: HASH, allow: [{ verb: 'admin', prefix: '' }] })) as {
    id: number
  }
  await turn()
  guarded.access.expose()
  await propose(lessor, { kind: 'unkey', id })
  await turn()
  const refused = { code: 'UNAUTHENTICATED', message: expect.stringContaining('has no keys left') }
  expect(() => guarded.access.identify(undefined)).toThrow(expect.objectContaining(refused))
  await expect(guarded.propose(anonymousCaller(), acquire('ann', 'a'))).rejects.toMatchObject(refused)
  await expect(guarded.read(anonymousCaller(), { kind: 'resources', prefix: '' })).rejects.toMatchObject(refused)
  expect(guarded.access.may(anonymousCaller(), 'read', 'a')).toBe(false)
  expect(await guarded.propose({ key: 0, name: 'operator', operator: true }, acquire('ann', 'a'))).toMatchObject({ kind: 'granted' })
})

describe('a wait that is refused for a deadlock', () => {
  /** The key holds `mine/a` and wants `mine/b`, whose holder waits for `secret/x`, whose holder waits for `mine/a`. */
  async function ring(...allow: readonly { readonly verb: 'acquire' | 'read'; readonly prefix: string }[]) {
    const world = await opened()
    const { lessor, guarded } = world
    const made = await propose(lessor, { kind: 'key', name: 'k', hash: hashSecret('secret'), allow })
    if (made.kind !== 'done') throw new Error(made.kind)
    await guarded.access.reloadKeys()
    const caller = guarded.access.identify('secret')
    const held = async (key: number, holder: string, resource: string) => {
      const outcome = await propose(lessor, acquire(holder, resource, { ttl: 60_000 }), { key })
      if (outcome.kind !== 'granted') throw new Error(outcome.kind)
      return outcome.lease
    }
    const [a, b, x] = [await held(caller.key, 'me', 'mine/a'), await held(0, 'bob', 'mine/b'), await held(0, 'eve', 'secret/x')]
    await propose(lessor, acquire('bob', 'secret/x', { wait: true, holding: [b] }))
    await propose(lessor, acquire('eve', 'mine/a', { wait: true, holding: [x] }))
    const asks = acquire('me', 'mine/b', { wait: true, holding: [a] })
    return { ...world, [Symbol.asyncDispose]: () => world[Symbol.asyncDispose](), caller, asks }
  }

  test('names no resource that the key may not see, neither in its message nor in its facts', async () => {
    await using world = await ring({ verb: 'acquire', prefix: 'mine' })
    const { guarded, caller, asks } = world
    const outcomes = [await guarded.propose(caller, asks), await guarded.acquire(caller, asks, { wait: 100 })]
    for (const outcome of outcomes) {
      expect(outcome).toMatchObject({ kind: 'refused', code: 'DEADLOCK', facts: { cycle: ['mine/b', 'mine/a'] } })
      expect(JSON.stringify(outcome)).not.toContain('secret')
    }
  })

  test('names the whole cycle to a key that may read it, and to the operator', async () => {
    await using world = await ring({ verb: 'acquire', prefix: 'mine' }, { verb: 'read', prefix: 'secret' })
    const { guarded, caller, asks } = world
    expect(await guarded.propose(caller, asks)).toMatchObject({ facts: { cycle: ['mine/b', 'secret/x', 'mine/a'] } })
    const operator = { key: 0, name: 'operator', operator: true } as const
    expect(await guarded.propose(operator, asks)).toMatchObject({ facts: { cycle: ['mine/b', 'secret/x', 'mine/a'] } })
  })
})
