import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { describe, expect, test } from 'vitest'
import { connect } from '../../../src/connect/connect.ts'
import { LeaseError } from '../../../src/errors.ts'
import type { RegistrationEvent } from '../../../src/recipe/registry/registry.ts'
import { hashSecret } from '../../../src/server/key-secret.ts'
import { silentLessor } from '../../../src/testing/in-memory.ts'
import { everywhere } from '../../support/recipe-places.ts'
import { address, listed, scenes } from '../../support/registry-scenes.ts'
import { place } from '../../support/resp-place.ts'

for (const [name, scene] of Object.entries(scenes)) everywhere(name, scene)

describe('a registration', () => {
  test('is renewed with all others in one message, and nothing is written when nothing changed', async () => {
    const { clock, leases, lessor } = silentLessor()
    const all = await Promise.all(
      Array.from({ length: 50 }, (_, i) => leases.registry.register({ service: 's', instance: `${i}`, address })),
    )
    lessor.proposals.length = 0
    await clock.advance(300_000)
    const renewals = lessor.proposals.filter(({ kind }) => kind === 'renew')
    expect(lessor.proposals.length).toBe(renewals.length)
    expect(renewals.length).toBeLessThan(40)
    expect(await listed(leases)).toHaveLength(50)
    for (const each of all) await each.update({ status: 'passing', load: 0 })
    expect(lessor.proposals.filter(({ kind }) => kind === 'put')).toEqual([])
    await leases[Symbol.asyncDispose]()
  })

  test('that falls silent is suspect after a ttl, gone half a ttl later, and registers again when it can', async () => {
    const { clock, leases, lessor, log } = silentLessor({ holder: 'a' })
    const other = silentLessor({ clock, log, holder: 'b' })
    const events: string[] = []
    const onEvent = ({ type }: RegistrationEvent) => events.push(type)
    const me = await leases.registry.register({ service: 's', address, ttl: 10_000, onEvent })
    await me.update({ load: 5 })
    lessor.stopAnswering()
    await clock.advance(10_000)
    expect(await listed(other.leases)).toEqual(['s/a suspect'])
    await clock.advance(5_500)
    expect(await listed(other.leases)).toEqual([])
    expect(events).toEqual(['unreachable'])
    lessor.answer()
    await clock.advance(10_000)
    expect(await listed(other.leases)).toEqual(['s/a live'])
    expect(events).toEqual(['unreachable', 'lapsed', 'registered'])
    expect(await other.leases.registry.discover({ service: 's' }).list()).toMatchObject([{ load: 5, lease: me.lease }])
    await Promise.all([leases, other.leases].map(each => each[Symbol.asyncDispose]()))
  })

  test('that comes back within its grace was never gone', async () => {
    const { clock, leases, lessor, log } = silentLessor({ holder: 'a' })
    const other = silentLessor({ clock, log, holder: 'b' })
    const events: string[] = []
    const me = await leases.registry.register({ service: 's', address, ttl: 10_000, onEvent: ({ type }) => events.push(type) })
    const { lease } = me
    lessor.stopAnswering()
    await clock.advance(13_000)
    expect(await listed(other.leases)).toEqual(['s/a suspect'])
    lessor.answer()
    await clock.advance(3_000)
    expect(await listed(other.leases)).toEqual(['s/a live'])
    expect([me.lease, events]).toEqual([lease, ['unreachable', 'reached']])
    await Promise.all([leases, other.leases].map(each => each[Symbol.asyncDispose]()))
  })

  test('writes a status at once and a restless load once a second', async () => {
    const { clock, leases, lessor } = silentLessor()
    const me = await leases.registry.register({ service: 's', address })
    const puts = () => lessor.proposals.filter(({ kind }) => kind === 'put').length
    const writes: Promise<void>[] = []
    for (let i = 1; i <= 100; i++) {
      writes.push(me.update({ load: i }))
      await clock.advance(50)
    }
    await clock.advance(1_000)
    await Promise.all(writes)
    expect(puts()).toBeLessThanOrEqual(7)
    expect(puts()).toBeGreaterThanOrEqual(5)
    expect(await leases.registry.discover({}).list()).toMatchObject([{ load: 100 }])
    const before = puts()
    await me.update({ status: 'maintenance' })
    expect(puts()).toBe(before + 1)
    await leases[Symbol.asyncDispose]()
  })

  test('writes again what nobody knows to be written, and resolves when it is', async () => {
    const { clock, leases, lessor } = silentLessor()
    const me = await leases.registry.register({ service: 's', address, ttl: '1h' })
    const propose = lessor.propose.bind(lessor)
    lessor.propose = async (command, options) => {
      if (command.kind === 'put') throw new LeaseError('LIMIT', 'not now')
      return propose(command, options)
    }
    const change = { capabilities: ['plan'], status: 'warning' } as const
    for (let i = 0; i < 2; i++) await expect(me.update(change)).rejects.toMatchObject({ code: 'LIMIT' })
    lessor.propose = propose
    await me.update(change)
    await clock.advance(1_000)
    expect(await leases.registry.discover({}).list()).toMatchObject([change])
    await leases[Symbol.asyncDispose]()
  })

  test('is listed with the last status that it said, though an earlier one had to be sent again', async () => {
    const { clock, leases, lessor } = silentLessor()
    const me = await leases.registry.register({ service: 's', address, ttl: '1h' })
    const propose = lessor.propose.bind(lessor)
    let broken = false
    lessor.propose = async (command, options) => {
      if (broken || command.kind !== 'put') return propose(command, options)
      broken = true
      throw new LeaseError('UNKNOWN', 'the connection broke')
    }
    const written = Promise.all([me.update({ status: 'critical', tags: ['old'] }), me.update({ status: 'passing', tags: ['new'] })])
    await clock.advance(5_000)
    await written
    expect(await leases.registry.discover({}).list()).toMatchObject([{ status: 'passing', tags: ['new'] }])
    await leases[Symbol.asyncDispose]()
  })

  test('that changed while it was coming back is listed as it says now', async () => {
    const { clock, leases, lessor } = silentLessor()
    const me = await leases.registry.register({ service: 's', address, ttl: '2s' })
    lessor.stopAnswering()
    await clock.advance(4_000)
    lessor.answer()
    await clock.settle()
    for (let i = 0; i < 3_000 && me.registered; i++) await clock.advance(1)
    lessor.proposals.length = 0
    for (let i = 0; i < 3_000 && !lessor.proposals.some(({ kind }) => kind === 'acquire'); i++) {
      lessor.stopAnswering()
      await clock.advance(1)
    }
    expect(me.registered).toBe(false)
    await me.update({ capabilities: ['plan'] })
    lessor.answer()
    await clock.advance(1_000)
    expect(await leases.registry.discover({}).list()).toMatchObject([{ capabilities: ['plan'] }])
    await leases[Symbol.asyncDispose]()
  })

  test('whose machine slept is renewed as soon as it is awake, however long its ttl is', async () => {
    const { clock, leases, lessor } = silentLessor()
    await leases.registry.register({ service: 's', address, ttl: '8h' })
    await clock.advance(60_000)
    lessor.proposals.length = 0
    await clock.advance(60_000)
    expect(lessor.proposals).toEqual([])
    clock.sleepMachine(3_600_000)
    await clock.advance(1_000)
    expect(lessor.proposals).toMatchObject([{ kind: 'renew' }])
    await leases[Symbol.asyncDispose]()
  })

  test('drains for as long as it was asked to before it leaves', async () => {
    const { clock, leases } = silentLessor()
    const me = await leases.registry.register({ service: 's', instance: '1', address, drain: '5s' })
    const left = me.deregister()
    await clock.advance(4_900)
    expect(await leases.registry.discover({}).list()).toMatchObject([{ status: 'draining' }])
    await clock.advance(200)
    await left
    expect(await listed(leases)).toEqual([])
    await leases[Symbol.asyncDispose]()
  })

  test('waits for a name if it is asked to: its predecessor may just have been killed', async () => {
    const { clock, leases, log, lessor } = silentLessor({ holder: 'old' })
    const next = silentLessor({ clock, log, holder: 'new' })
    await leases.registry.register({ service: 's', instance: '1', address, ttl: 10_000 })
    lessor.stopAnswering()
    const registering = next.leases.registry.register({ service: 's', instance: '1', address, wait: '1m' })
    await clock.advance(15_000)
    expect((await registering).registered).toBe(true)
    // The old one comes back and finds its place taken: it is told so, and does not quarrel.
    lessor.answer()
    await clock.advance(10_000)
    expect(await listed(next.leases)).toEqual(['s/1 live'])
    expect((await next.leases.registry.discover({}).list())[0]!.holder).toBe('new')
    await Promise.all([leases, next.leases].map(each => each[Symbol.asyncDispose]()))
  })

  test('is told of by a diagnostics channel, and a listener that throws stops nothing', async () => {
    const { clock, leases, lessor } = silentLessor()
    const seen: string[] = []
    const hear = (message: unknown) => seen.push((message as RegistrationEvent).type)
    subscribe('leasehold:registry', hear)
    const warned = new Promise<Error>(resolve => process.once('warning', resolve))
    try {
      const me = await leases.registry.register({
        ...{ service: 's', address, ttl: 10_000 },
        onEvent: () => {
          throw new Error('not mine')
        },
      })
      lessor.stopAnswering()
      await clock.advance(9_000)
      expect(await warned).toMatchObject({ code: 'LEASEHOLD_EVENT' })
      lessor.answer()
      await clock.advance(3_000)
      expect(me.registered).toBe(true)
      expect(seen).toEqual(['unreachable', 'reached'])
    } finally {
      unsubscribe('leasehold:registry', hear)
      await leases[Symbol.asyncDispose]()
    }
  })

  test('refuses what is wrong before anything is asked', async () => {
    const { leases, lessor } = silentLessor()
    await expect(leases.registry.register({ service: 'a/b', address })).rejects.toMatchObject({ code: 'INVALID' })
    await expect(leases.registry.register([])).rejects.toMatchObject({ code: 'INVALID' })
    await expect(leases.registry.register({ service: 's', address: 'nowhere' })).rejects.toMatchObject({ code: 'INVALID' })
    expect(lessor.proposals).toEqual([])
    await leases[Symbol.asyncDispose]()
  })

  test('leaves with the process’s leases', async () => {
    const { clock, leases, log } = silentLessor({ holder: 'a' })
    const other = silentLessor({ clock, log, holder: 'b' })
    await leases.registry.register({ service: 's', address })
    await leases[Symbol.asyncDispose]()
    expect(await listed(other.leases)).toEqual([])
    await other.leases[Symbol.asyncDispose]()
    await clock.settle()
    expect(clock.waiting, 'no timer is left behind').toBe(0)
  })
})

describe('discovery', () => {
  test('goes on with what it knows when nobody answers, and says how old that is', async () => {
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

  test('a machine that slept knows that its picture is old', async () => {
    const { clock, leases } = silentLessor()
    const found = await leases.registry.discover({}).ready()
    clock.sleepMachine(600_000)
    expect(found.age).toBeGreaterThanOrEqual(600_000)
    await leases[Symbol.asyncDispose]()
  })

  test('before anything is known it waits, and says so when it is not to wait', async () => {
    const { clock, leases, lessor } = silentLessor()
    lessor.stopAnswering()
    const found = leases.registry.discover({ service: 's' })
    expect(() => found.pickNow()).toThrow(expect.objectContaining({ code: 'UNAVAILABLE' }))
    const failed = found.list().catch(error => error)
    await clock.advance(10_000)
    expect(await failed).toMatchObject({ code: 'UNAVAILABLE' })
    expect(found.age).toBe(Number.POSITIVE_INFINITY)
    lessor.answer()
    await clock.advance(3_000)
    expect(await found.list()).toEqual([])
    await leases[Symbol.asyncDispose]()
  })

  test('keeps one watch, whoever asks and however often', async () => {
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

  test('a watcher that fell behind reads anew and misses nothing that still holds', async () => {
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

  test('its changes end when the asker stops or the leases close', async () => {
    const { leases } = silentLessor()
    const stop = new AbortController()
    const found = leases.registry.discover({})
    const run = async (signal?: AbortSignal) => {
      for await (const _ of found.changes(signal === undefined ? {} : { signal })) expect.unreachable()
      return 'over'
    }
    const [one, two] = [run(stop.signal), run()]
    await found.ready()
    stop.abort()
    expect(await one).toBe('over')
    await leases[Symbol.asyncDispose]()
    expect(await two).toBe('over')
  })

  test('tells why a service is being preserved, through the library and to those who ask the log', async () => {
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

  test('a strategy nobody knows and a hash without a key are refused', async () => {
    const { leases } = silentLessor()
    const found = await leases.registry.discover({}).ready()
    expect(() => found.pickNow({ strategy: 'best' as never })).toThrow(/no strategy best/)
    expect(() => found.pickNow({ strategy: 'hash' })).toThrow(/needs a key/)
    await leases[Symbol.asyncDispose]()
  })
})

describe('with a key', () => {
  async function guarded() {
    const here = await place()
    const allow = { root: 'admin', reader: 'read', stranger: 'acquire' } as const
    for (const [name, verb] of Object.entries(allow))
      await here.lessor.propose({
        kind: 'key',
        name,
        hash: hashSecret(name),
        allow: [{ verb, prefix: verb === 'admin' ? '' : 'services' }],
      })
    await expect.poll(() => here.server.guarded.access.keyRequired).toBe(true)
    return { here, open: (apiKey: string) => connect(`leasehold://127.0.0.1:${here.port}`, { apiKey }) }
  }

  test('that may not read services, discovery is FORBIDDEN at once', async () => {
    const { here, open } = await guarded()
    await using _ = here
    await using stranger = await open('stranger')
    const began = performance.now()
    const found = stranger.registry.discover({ service: 's' })
    await expect(found.list()).rejects.toMatchObject({ code: 'FORBIDDEN' })
    await expect(found.ready()).rejects.toMatchObject({ code: 'FORBIDDEN' })
    expect(performance.now() - began).toBeLessThan(8_000) // timeout is 10 s
  })

  test('that may read them and not watch, discovery goes on by reading again', async () => {
    const { here, open } = await guarded()
    await using _ = here
    await using root = await open('root')
    await using reader = await open('reader')
    const found = await reader.registry.discover({ service: 's' }).ready()
    expect(await found.list()).toEqual([])
    await using _me = await root.registry.register({ service: 's', address: 'tcp://h:1' })
    await expect.poll(() => found.list(), { timeout: 10_000 }).toHaveLength(1)
  }, 60_000)
})

test('what was discovered is not listed any more once the leases are closed', async () => {
  const { leases } = silentLessor()
  const found = await leases.registry.discover({}).ready()
  await leases[Symbol.asyncDispose]()
  await expect(found.list()).rejects.toMatchObject({ code: 'UNAVAILABLE' })
})

test('of two registrations under one name in one process, the first is told that it was replaced', async () => {
  const { clock, leases } = silentLessor()
  await using _ = leases
  const events: string[] = []
  const first = await leases.registry.register({ service: 'w', address: 'tcp://h:1', onEvent: ({ type }) => events.push(type) })
  const second = await leases.registry.register({ service: 'w', address: 'tcp://h:2' })
  await clock.settle()
  expect(first.registered).toBe(false)
  expect(first.signal.reason).toMatchObject({ code: 'GONE' })
  expect(events).toEqual(['ended'])
  expect(second.registered).toBe(true)
  await clock.advance(60_000)
  expect((await leases.registry.discover({}).list()).map(({ addresses }) => addresses)).toEqual([['tcp://h:2']])
})

test('who asks leases that were closed for services is told so at once', async () => {
  const { leases } = silentLessor()
  const { registry } = leases
  await leases[Symbol.asyncDispose]()
  const found = registry.discover({ service: 's' })
  for (const asked of [found.list(), found.pick(), found.ready(), found.changes().next()])
    await expect(asked).rejects.toMatchObject({ code: 'UNAVAILABLE', message: expect.stringContaining('were closed') })
})
