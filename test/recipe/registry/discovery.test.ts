import { describe, expect, test } from 'vitest'
import { connect } from '../../../src/connect/connect.ts'
import { propose } from '../../../src/lessor/propose.ts'
import { hashSecret } from '../../../src/server/key-secret.ts'
import { silentLessor } from '../../../src/testing/in-memory.ts'
import { address } from '../../support/registry-scenes.ts'
import { place } from '../../support/resp-place.ts'

describe('discovery', () => {
  test('keeps its list while the lessor does not answer, and reports how old it is', async () => {
    const { clock, leases, lessor, log } = silentLessor({ holder: 'a' })
    const server = silentLessor({ clock, log, holder: 'b' })
    await server.leases.registry.register({ service: 's', address })
    const found = leases.registry.discover({ service: 's' })
    const strict = leases.registry.discover({ service: 's', maxStale: '10s' })
    expect(await found.pick()).toMatchObject({ service: 's' })
    await clock.advance(60_000)
    expect(found.age).toBeLessThanOrEqual(5_100)
    expect(await strict.pick()).toMatchObject({ service: 's' })
    lessor.stopAnswering()
    await clock.advance(30_000)
    expect(found.age).toBeGreaterThanOrEqual(30_000)
    expect(found.age).toBeLessThanOrEqual(35_100)
    expect(await found.pick()).toMatchObject({ service: 's' })
    await expect(strict.pick()).rejects.toMatchObject({ code: 'UNAVAILABLE', facts: { maxStale: 10_000 } })
    expect(() => strict.listNow()).toThrow(/old/)
    lessor.answer()
    await clock.advance(6_000)
    expect(found.age).toBeLessThanOrEqual(5_100)
    expect(await strict.pick()).toMatchObject({ service: 's' })
    await Promise.all([leases, server.leases].map(each => each[Symbol.asyncDispose]()))
  })

  test('counts the time that the machine slept as age', async () => {
    const { clock, leases } = silentLessor()
    const found = await leases.registry.discover({}).ready()
    clock.sleepMachine(600_000)
    expect(found.age).toBeGreaterThanOrEqual(600_000)
    await leases[Symbol.asyncDispose]()
  })

  test('waits for the first load, and pickNow throws UNAVAILABLE before it', async () => {
    const { clock, leases, lessor } = silentLessor()
    lessor.stopAnswering()
    const found = leases.registry.discover({ service: 's' })
    expect(() => found.pickNow()).toThrow(expect.objectContaining({ code: 'UNAVAILABLE' }))
    await expect(found.ready({ signal: AbortSignal.abort('enough') })).rejects.toBe('enough')
    const failed = found.list().catch(error => error)
    await clock.advance(10_000)
    expect(await failed).toMatchObject({ code: 'UNAVAILABLE' })
    expect(found.age).toBe(Number.POSITIVE_INFINITY)
    lessor.answer()
    await clock.advance(3_000)
    expect(await found.list()).toEqual([])
    await leases[Symbol.asyncDispose]()
  })

  test('uses one watch for all discoveries of a process', async () => {
    const { leases, lessor } = silentLessor()
    let watches = 0
    const watch = lessor.watch.bind(lessor)
    lessor.watch = (...given) => {
      watches++
      return watch(...given)
    }
    for (let i = 0; i < 100; i++) await leases.registry.discover({ capability: `c${i}` }).list()
    expect(watches).toBe(1)
    await leases[Symbol.asyncDispose]()
  })

  test('reads everything again after a resync, and reports the differences', async () => {
    const { clock, leases, lessor, log } = silentLessor({ holder: 'a' })
    const other = silentLessor({ clock, log, holder: 'b' })
    const watch = lessor.watch.bind(lessor)
    let gap = false
    lessor.watch = async function* (prefix, options) {
      for await (const events of watch(prefix, options)) {
        if (gap) {
          gap = false
          yield [{ type: 'resync', revision: events[0]!.revision, lease: 0, at: 0 }]
        } else yield events
      }
    }
    const found = await leases.registry.discover({ service: 's' }).ready()
    const changes = found.changes()
    const first = await other.leases.registry.register({ service: 's', instance: '1', address })
    expect((await changes.next()).value).toMatchObject({ type: 'added', instance: { instance: '1' } })
    gap = true
    await other.leases.registry.register({ service: 's', instance: '2', address })
    expect((await changes.next()).value).toMatchObject({ type: 'added', instance: { instance: '2' } })
    await first.deregister()
    expect((await changes.next()).value).toMatchObject({ type: 'removed', instance: { instance: '1' } })
    await changes.return()
    await Promise.all([leases, other.leases].map(each => each[Symbol.asyncDispose]()))
  })

  test('ends its changes when the signal fires, when it is closed or when the leases are closed', async () => {
    const { leases } = silentLessor()
    const stop = new AbortController()
    const found = leases.registry.discover({})
    const run = async (signal?: AbortSignal) => {
      for await (const _ of found.changes(signal === undefined ? {} : { signal })) expect.unreachable()
      return 'over'
    }
    const other = leases.registry.discover({})
    const [one, two, three] = [run(stop.signal), run(), other.changes().next()]
    await found.ready()
    stop.abort()
    expect(await one).toBe('over')
    await other.close()
    expect(await three).toEqual({ done: true, value: undefined })
    await expect(other.list()).rejects.toMatchObject({ code: 'UNAVAILABLE', message: 'this discovery was closed' })
    await leases[Symbol.asyncDispose]()
    expect(await two).toBe('over')
  })

  test('reports why a service is in self-preservation', async () => {
    const { clock, leases, log, lessor } = silentLessor({ holder: 'a' })
    const other = silentLessor({ clock, log, holder: 'b' })
    for (let i = 0; i < 6; i++) await leases.registry.register({ service: 's', instance: `${i}`, address, ttl: 10_000 })
    const found = await other.leases.registry.discover({ service: 's' }).ready()
    expect(found.preserved('s')).toBeUndefined()
    lessor.stopAnswering()
    await clock.advance(40_000)
    expect(found.preserved('s')).toMatch(/of 6 missed a renewal/)
    expect(await other.leases.registry.services()).toMatchObject([{ service: 's', instances: 6, suspect: 6, preserving: true }])
    expect((await found.list()).map(({ status }) => status)).toEqual(new Array(6).fill('suspect'))
    const late = await other.leases.registry.discover({ service: 's' }).ready()
    expect(late.preserved('s')).toBeDefined()
    lessor.answer()
    await clock.advance(10_000)
    expect(found.preserved('s')).toBeUndefined()
    expect((await found.list()).map(({ status }) => status)).toEqual(new Array(6).fill('passing'))
    await Promise.all([leases, other.leases].map(each => each[Symbol.asyncDispose]()))
  })

  test('refuses an unknown strategy, and a hash without a key', async () => {
    const { leases } = silentLessor()
    const found = await leases.registry.discover({}).ready()
    expect(() => found.pickNow({ strategy: 'best' as never })).toThrow(/no strategy best/)
    expect(() => found.pickNow({ strategy: 'hash' })).toThrow(/needs a key/)
    await leases[Symbol.asyncDispose]()
  })
})

describe('with API keys', () => {
  async function guarded() {
    const here = await place()
    const allow = { root: 'admin', reader: 'read', stranger: 'acquire' } as const
    for (const [name, verb] of Object.entries(allow))
      await propose(here.lessor, {
        kind: 'key',
        name,
        hash: hashSecret(name),
        allow: [{ verb, prefix: verb === 'admin' ? '' : 'services' }],
      })
    await expect.poll(() => here.server.guarded.access.keyRequired).toBe(true)
    return { here, open: (apiKey: string) => connect(`leasehold://127.0.0.1:${here.port}`, { apiKey }) }
  }

  test('discovery by a key that may not read services is FORBIDDEN at once', async () => {
    const { here, open } = await guarded()
    await using _ = here
    await using stranger = await open('stranger')
    const found = stranger.registry.discover({ service: 's' })
    await expect(found.list()).rejects.toMatchObject({ code: 'FORBIDDEN' })
    await expect(found.ready()).rejects.toMatchObject({ code: 'FORBIDDEN' })
  })

  test('discovery by a key that may read and not watch reads again and again', async () => {
    const { here, open } = await guarded()
    await using _ = here
    await using root = await open('root')
    await using reader = await open('reader')
    const found = await reader.registry.discover({ service: 's' }).ready()
    expect(await found.list()).toEqual([])
    await using _me = await root.registry.register({ service: 's', address: 'tcp://h:1' })
    await expect.poll(() => found.list()).toHaveLength(1)
  })
})

test('discovery is UNAVAILABLE after the leases were closed', async () => {
  const { leases } = silentLessor()
  const found = await leases.registry.discover({}).ready()
  await leases[Symbol.asyncDispose]()
  await expect(found.list()).rejects.toMatchObject({ code: 'UNAVAILABLE' })
})

test('discovery from closed leases is UNAVAILABLE at once', async () => {
  const { leases } = silentLessor()
  const { registry } = leases
  await leases[Symbol.asyncDispose]()
  const found = registry.discover({ service: 's' })
  for (const call of [found.list(), found.pick(), found.ready(), found.changes().next()])
    await expect(call).rejects.toMatchObject({ code: 'UNAVAILABLE', message: expect.stringContaining('were closed') })
})
