/** Every recipe on every engine: normal use, the death of a holder, and an engine that is killed and restarted meanwhile. */
import { type ChildProcess, fork } from 'node:child_process'
import { once } from 'node:events'
import { fileURLToPath } from 'node:url'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { connect } from '../../src/connect/connect.ts'
import type { Leases } from '../../src/leases.ts'
import { describeEngine, engine } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import { ServerProcess } from '../support/server-process.ts'

const address = 'http://10.0.0.7:8080'

interface Where extends AsyncDisposable {
  url(name: string): string
  /** Kills the engine and starts it again on the same data. */
  crash(): Promise<void>
}

const stores = ['redis', 'postgres', 'etcd'] as const
for (const kind of stores)
  describeEngine(kind, 'recipes', () =>
    everyRecipe(async () => {
      const there = await engine(kind)
      return {
        url(name) {
          const url = new URL(there.url)
          url.searchParams.set('name', name)
          return url.href
        },
        async crash() {
          await there.kill9()
          await there.restart()
        },
        [Symbol.asyncDispose]: () => there[Symbol.asyncDispose](),
      }
    }),
  )

describe.each(['leasehold', 'http'])('recipes over %s://', scheme =>
  everyRecipe(async () => {
    const there = await ServerProcess.start()
    return {
      url: () => there.url.replace('leasehold', scheme),
      async crash() {
        await there.kill()
        await there.start()
      },
      [Symbol.asyncDispose]: () => there[Symbol.asyncDispose](),
    }
  }),
)

function everyRecipe(begin: () => Promise<Where>): void {
  let where: Where
  beforeAll(async () => {
    where = await begin()
  })
  afterAll(() => where?.[Symbol.asyncDispose]())

  test('a waiter gets everything that a killed process held', async () => {
    const url = where.url('killed')
    await using owner = await connect(url, { holder: 'owner' })
    await using next = await connect(url, { holder: 'next' })
    await using _offer = await owner.pool('gpu').offer('one')
    const [victim, { token }] = await victimOf(url)
    const ending = new AbortController()
    try {
      const leaders: number[] = []
      const observing = (async () => {
        for await (const leader of owner.election('seat').observe({ signal: ending.signal }))
          if (leader !== undefined) leaders.push(leader.token)
      })()
      const services = owner.registry.discover({ service: 's' })
      expect(await services.list()).toHaveLength(1)
      const cache = next.cache<string>('config', { load: () => 'old', save: () => {} })
      const waited = Promise.all([
        next.acquire('lock'),
        next.pool('gpu').take(),
        next.acquire('desk'),
        next.election('seat').terms({ signal: ending.signal }).next(),
        cache.write('a', 'new'),
      ])
      waited.catch(() => {})
      await eventually(async () => expect(await waitsOf(owner, 'next')).toEqual(['desk', 'election/seat', 'gpu', 'lock']))
      victim.kill('SIGKILL')
      const [lock, , , { value: term }] = await waited
      expect(lock.token).toBeGreaterThan(token)
      expect(term?.token).toBeGreaterThan(token)
      await eventually(async () => {
        expect(await services.list()).toEqual([])
        expect((await owner.read({ kind: 'entries', prefix: 'there' }, { consistent: true })).value).toEqual([])
        expect(leaders).toEqual([token, term?.token])
      })
      ending.abort()
      await observing
    } finally {
      victim.kill('SIGKILL')
    }
  })

  test('after a restart of the engine every holder still has its leases and goes on', async () => {
    const url = where.url('crashed')
    await using a = await connect(url, { holder: 'a' })
    await using b = await connect(url, { holder: 'b' })
    await using c = await connect(url, { holder: 'c' })
    const ending = new AbortController()
    const seen: string[] = []
    const leaders: number[] = []
    const observing = (async () => {
      for await (const leader of c.election('seat').observe({ signal: ending.signal })) if (leader !== undefined) leaders.push(leader.token)
    })()
    const lead = (leases: Leases) => leases.election('seat', { ttl: '20s' }).terms({ signal: ending.signal })
    const [terms, others] = [lead(a), lead(b)]
    const { value: first } = await terms.next()
    const elected = others.next()
    await using _offer = await a.pool('gpu').offer('one')
    const taken = await a.pool('gpu').take()
    const takers = [b, c].map(async (leases, i) => {
      await eventually(async () => expect((await a.query('gpu')).pending).toHaveLength(i))
      const lease = await leases.pool('gpu').take()
      seen.push(leases.holder)
      await lease.release()
    })
    await eventually(async () => expect((await a.query('gpu')).pending).toHaveLength(2))
    const slot = await a.slot('port', { from: 1, to: 2, ttl: '20s' })
    const [queued, shards] = [b.slot('port', { from: 1, to: 1 }), [a, b].map(leases => leases.shards('shard', { count: 4, ttl: '20s' }))]
    const joined = shards.map(group => group.join({ signal: ending.signal, onAssigned() {} }))
    await eventually(() => expect(shards.map(({ owned }) => owned.length)).toEqual([2, 2]))
    const session = await a.session({ ttl: '1m' })
    void session.ended.then(() => seen.push('session'))
    const me = await a.registry.register({ service: 's', instance: 'a', address, ttl: '20s' })
    const services = b.registry.discover({ service: 's' })
    expect(await services.list()).toHaveLength(1)
    const source = new Map([['k', 'old']])
    const cacheOf = (leases: Leases) =>
      leases.cache<string>('config', { load: key => source.get(key)!, save: (key, value) => void source.set(key, value), ttl: '20s' })
    const [mine, theirs] = [cacheOf(a), cacheOf(b)]
    expect([await mine.get('k'), await theirs.get('k')]).toEqual(['old', 'old'])

    await where.crash()

    await mine.write('k', 'new')
    expect(await theirs.get('k')).toBe('new')
    expect([first?.lease.held, taken.held, session.active, me.registered]).toEqual([true, true, true, true])
    expect(await services.list()).toMatchObject([{ instance: 'a' }])
    expect([slot.number, slot.lease.held, (await a.pool('gpu').state({ limit: 1 })).waiting]).toEqual([1, true, 2])
    await slot.release()
    await using next = await queued
    expect([next.number, next.token > slot.token]).toEqual([1, true])
    expect(shards.map(({ owned }) => owned.length)).toEqual([2, 2])
    await taken.release()
    await Promise.all(takers)
    expect(seen).toEqual(['b', 'c'])
    first?.resign()
    void terms.next() // its work has ended
    const { value: second } = await elected
    expect(second?.token).toBeGreaterThan(first?.token ?? 0)
    await eventually(() => expect(leaders).toEqual([first?.token, second?.token]))
    await session.end()
    await eventually(() => expect(seen).toEqual(['b', 'c', 'session']))
    ending.abort()
    await observing
    await Promise.all(joined)
  })
}

/** The resources that a holder holds or waits for. */
async function waitsOf(leases: Leases, name: string): Promise<string[]> {
  const { held, pending } = await leases.query()
  const all = [...held, ...pending].filter(({ holder, resource }) => holder === name && !resource.startsWith('config'))
  return all.map(({ resource }) => resource).sort()
}

async function victimOf(url: string): Promise<[ChildProcess, { readonly token: number }]> {
  const child = fork(fileURLToPath(new URL('../support/recipe-child.mjs', import.meta.url)), [url])
  const [said] = (await Promise.race([once(child, 'message'), once(child, 'exit').then(() => [undefined])])) as [
    { token: number } | undefined,
  ]
  if (said === undefined) throw new Error('the child did not start')
  return [child, said]
}
