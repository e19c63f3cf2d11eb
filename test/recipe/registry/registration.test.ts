import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { describe, expect, expectTypeOf, test, vi } from 'vitest'
import { LeaseError } from '../../../src/errors.ts'
import { OwnRegistration } from '../../../src/recipe/registry/registration.ts'
import type { RegistrationEvent } from '../../../src/recipe/registry/registry.ts'
import { silentLessor } from '../../../src/testing/in-memory.ts'
import { everywhere } from '../../support/recipe-places.ts'
import { address, listed, scenes } from '../../support/registry-scenes.ts'
import { intercept } from '../../support/submitting.ts'

for (const [name, scene] of Object.entries(scenes)) everywhere(name, scene)

describe('a registration', () => {
  test('has no type for what only its registrar uses', async () => {
    const { leases } = silentLessor()
    await using _ = leases
    const registration = await leases.registry.register({ service: 's', address })
    type Names = 'ttl' | 'lease' | 'registered' | 'instances' | 'signal' | 'update' | 'drain' | 'deregister' | 'close'
    expectTypeOf<keyof typeof registration>().toEqualTypeOf<Names | typeof Symbol.asyncDispose>()
    expect(registration.registered).toBe(true)
  })

  test('is renewed together with all others in one message, and unchanged values are not written', async () => {
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

  test('that names an instance of others of the same process takes it from them, and looks at no others', async () => {
    const { leases } = silentLessor()
    await using _ = leases
    const looked = vi.spyOn(OwnRegistration.prototype, 'replacedBy')
    const both = await leases.registry.register([
      { service: 's', instance: 'a', address },
      { service: 's', instance: 'b', address },
    ])
    const others = await Promise.all(
      Array.from({ length: 50 }, (_, i) => leases.registry.register({ service: 's', instance: `${i}`, address })),
    )
    expect(looked).not.toHaveBeenCalled()
    const a = await leases.registry.register({ service: 's', instance: 'a', address })
    expect(both.instances.map(({ instance }) => instance)).toEqual(['b'])
    const b = await leases.registry.register({ service: 's', instance: 'b', address })
    expect(both.signal.reason).toMatchObject({ code: 'GONE', message: expect.stringContaining('s/b was registered again by this process') })
    const again = await leases.registry.register({ service: 's', instance: 'b', address })
    expect(looked).toHaveBeenCalledTimes(3)
    expect([a, b, again, ...others].map(({ signal }) => signal.aborted)).toEqual([false, true, false, ...others.map(() => false)])
    await again.deregister()
    await leases.registry.register({ service: 's', instance: 'b', address })
    expect(looked).toHaveBeenCalledTimes(3)
    looked.mockRestore()
  })

  test('is renewed every third of its ttl, or as often as heartbeat says, which is at most half of it', async () => {
    for (const [options, least, most] of [
      [{ ttl: '30s' }, 29, 34],
      [{ ttl: '30s', heartbeat: '5s' }, 58, 67],
      [{ ttl: '30s', heartbeat: '15s' }, 19, 23],
    ] as const) {
      const { clock, leases, lessor } = silentLessor()
      await using _ = leases
      await leases.registry.register({ service: 's', address, ...options })
      lessor.proposals.length = 0
      await clock.advance(300_000)
      const renewals = lessor.proposals.filter(({ kind }) => kind === 'renew').length
      expect([renewals >= least, renewals <= most, renewals]).toEqual([true, true, renewals])
      await expect(leases.registry.register({ service: 's', instance: 'b', address, ttl: '30s', heartbeat: '20s' })).rejects.toThrow(
        'heartbeat must be above 0 and at most half of the ttl of 30 s, which is 15 s',
      )
    }
  })

  test('without renewals is suspect after a ttl, gone half a ttl later, and registers again when the lessor answers', async () => {
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

  test('keeps its instance when an earlier registration of it, whose outcome was unknown, is carried out later', async () => {
    const { clock, leases, lessor } = silentLessor({ holder: 'a' })
    await using _ = leases
    const what = { service: 's', address, ttl: 10_000 }
    let phase: 'delayed' | 'unanswered' | 'answered' = 'delayed'
    intercept(lessor, async (ask, command, options) => {
      const isFirst = options.op?.seq === 1
      if (isFirst && phase === 'delayed') throw new LeaseError('UNKNOWN', 'no answer')
      const outcome = await ask(command, options)
      if (isFirst && phase === 'unanswered') throw new LeaseError('UNKNOWN', 'no answer')
      return outcome
    })
    const first = leases.registry.register(what)
    const failed = expect(first).rejects.toMatchObject({ code: 'UNKNOWN' })
    await clock.advance(30_000)
    await failed
    const second = leases.registry.register(what)
    await clock.advance(1_000)
    phase = 'unanswered'
    await clock.advance(6_000)
    phase = 'answered'
    await clock.advance(5_000)
    const me = await second
    await clock.advance(60_000)
    expect(await listed(leases)).toEqual(['s/a live'])
    expect(me.signal.aborted).toBe(false)
  })

  test('that is renewed within its grace keeps its lease', async () => {
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

  test('writes a status at once, and a load at most about once a second', async () => {
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

  test('writes a change again after a write failed', async () => {
    const { clock, leases, lessor } = silentLessor()
    const me = await leases.registry.register({ service: 's', address, ttl: '1h' })
    const refusing = intercept(lessor, async (ask, command, options) => {
      if (command.kind === 'put') throw new LeaseError('LIMIT', 'not now')
      return ask(command, options)
    })
    const change = { capabilities: ['plan'], status: 'warning' } as const
    for (let i = 0; i < 2; i++) await expect(me.update(change)).rejects.toMatchObject({ code: 'LIMIT' })
    refusing.mockRestore()
    await me.update(change)
    await clock.advance(1_000)
    expect(await leases.registry.discover({}).list()).toMatchObject([change])
    await leases[Symbol.asyncDispose]()
  })

  test('is listed with its last status, even if an earlier write had to be repeated', async () => {
    const { clock, leases, lessor } = silentLessor()
    const me = await leases.registry.register({ service: 's', address, ttl: '1h' })
    let broken = false
    intercept(lessor, async (ask, command, options) => {
      if (broken || command.kind !== 'put') return ask(command, options)
      broken = true
      throw new LeaseError('UNKNOWN', 'the connection broke')
    })
    const written = Promise.all([me.update({ status: 'critical', tags: ['old'] }), me.update({ status: 'passing', tags: ['new'] })])
    await clock.advance(5_000)
    await written
    expect(await leases.registry.discover({}).list()).toMatchObject([{ status: 'passing', tags: ['new'] }])
    await leases[Symbol.asyncDispose]()
  })

  test('waits until the outcome of an earlier request for its name is known, which would take the name from it otherwise', async () => {
    const { clock, leases, lessor } = silentLessor()
    const first: (string | undefined)[] = []
    let isCut = true
    // The first request does not arrive until the second one was made.
    intercept(lessor, async (ask, command, options) => {
      if (command.kind !== 'acquire') return ask(command, options)
      const op = `${options.op?.session} ${options.op?.seq}`
      if (first.length === 0) first.push(op)
      if (isCut && op === first[0]) throw new LeaseError('UNKNOWN', 'the connection broke')
      return ask(command, options)
    })
    const failed = leases.registry.register({ service: 's', instance: 'a', address, ttl: '10m' }).catch(error => error.code)
    await clock.advance(1_000_000)
    expect(await failed).toBe('UNKNOWN')
    const registering = leases.registry.register({ service: 's', instance: 'a', address, ttl: '10m' })
    await clock.settle()
    isCut = false
    await clock.advance(9_000)
    const me = await registering
    expect(await listed(leases)).toHaveLength(1)
    const { lease } = me
    await clock.advance(1_200_000)
    expect(await listed(leases)).toHaveLength(1)
    expect(me.lease).toBe(lease)
    await leases[Symbol.asyncDispose]()
  })

  test('that changed while it was being registered again is listed with the change', async () => {
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

  test('is renewed as soon as its machine wakes up, however long its ttl is', async () => {
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

  test('is listed as draining for the time of the drain option before deregister removes it', async () => {
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

  test('with the wait option waits until the name is free, and its predecessor does not take it back', async () => {
    const { clock, leases, log, lessor } = silentLessor({ holder: 'old' })
    const next = silentLessor({ clock, log, holder: 'new' })
    await leases.registry.register({ service: 's', instance: '1', address, ttl: 10_000 })
    lessor.stopAnswering()
    const registering = next.leases.registry.register({ service: 's', instance: '1', address, wait: '1m' })
    await clock.advance(15_000)
    expect((await registering).registered).toBe(true)
    // The predecessor returns, finds its name taken, and does not compete for it.
    lessor.answer()
    await clock.advance(10_000)
    expect(await listed(next.leases)).toEqual(['s/1 live'])
    expect((await next.leases.registry.discover({}).list())[0]!.holder).toBe('new')
    await Promise.all([leases, next.leases].map(each => each[Symbol.asyncDispose]()))
  })

  test('reports its events on a diagnostics channel, and is renewed although its onEvent throws', async () => {
    const { clock, leases, lessor } = silentLessor()
    const seen: string[] = []
    const listener = (message: unknown) => seen.push((message as RegistrationEvent).type)
    subscribe('leasehold:registry', listener)
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
      unsubscribe('leasehold:registry', listener)
      await leases[Symbol.asyncDispose]()
    }
  })

  test('with invalid input is refused before a proposal is sent', async () => {
    const { leases, lessor } = silentLessor()
    await expect(leases.registry.register({ service: 'a/b', address })).rejects.toMatchObject({ code: 'INVALID' })
    await expect(leases.registry.register([])).rejects.toMatchObject({ code: 'INVALID' })
    await expect(leases.registry.register({ service: 's', address: 'nowhere' })).rejects.toMatchObject({ code: 'INVALID' })
    expect(lessor.proposals).toEqual([])
    await leases[Symbol.asyncDispose]()
  })

  test('ends when the leases of its process are closed', async () => {
    const { clock, leases, log } = silentLessor({ holder: 'a' })
    const other = silentLessor({ clock, log, holder: 'b' })
    await leases.registry.register({ service: 's', address })
    await leases[Symbol.asyncDispose]()
    expect(await listed(other.leases)).toEqual([])
    await other.leases[Symbol.asyncDispose]()
    await clock.settle()
    expect(clock.waiting, 'no timer is left behind').toBe(0)
  })

  test('is deregistered by close, and by close of its registry', async () => {
    const { leases } = silentLessor()
    await using _ = leases
    const one = await leases.registry.register({ service: 's', instance: '1', address })
    const two = await leases.registry.register({ service: 's', instance: '2', address })
    await one.close()
    expect(one.signal.aborted).toBe(true)
    expect(await listed(leases)).toEqual(['s/2 live'])
    await leases.registry.close()
    expect(two.signal.reason).toMatchObject({ code: 'GONE' })
    expect(await listed(leases)).toEqual([])
  })
})

test('of two registrations under one name in one process, the first ends with GONE', async () => {
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
