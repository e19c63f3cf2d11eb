/** Scenarios of the registry that must work on every store and over every wire. */
import { expect } from 'vitest'
import { LeaseError } from '../../src/errors.ts'
import type { Leases } from '../../src/leases.ts'
import type { RegistrationEvent } from '../../src/recipe/registry/registry.ts'
import type { Place } from './recipe-places.ts'

export const address = 'http://10.0.0.7:8080'

/** The registered instances in the log, with the status of their leases. */
export async function listed(leases: Leases): Promise<string[]> {
  const { value } = await leases.read({ kind: 'entries', prefix: 'services' }, { consistent: true })
  return value.filter(({ key }) => key.split('/').length === 3).map(({ key, status }) => `${key.slice(9)} ${status}`)
}

export const scenes: Readonly<Record<string, (place: Place) => Promise<void>>> = {
  'an instance is listed while it is registered, and removed in one revision by deregister': async ({ open }) => {
    await using a = await open('a')
    await using b = await open('b')
    const metadata = { name: 'Planner', skills: [{ id: 'plan' }] }
    const me = await a.registry.register({ service: 'planner', address, capabilities: ['plan'], metadata, generation: 2 })
    const planners = b.registry.discover({ capability: 'plan' })
    expect(await planners.list()).toEqual([
      expect.objectContaining({
        service: 'planner',
        instance: 'a',
        address,
        metadata,
        generation: 2,
        status: 'passing',
        holder: 'a',
        lease: me.lease,
      }),
    ])
    const changes = planners.changes()
    const next = async () => (await changes.next()).value
    expect(await next()).toMatchObject({ type: 'added', instance: { instance: 'a' } })
    await me.update({ status: 'warning', load: 3 })
    expect(await next()).toMatchObject({ type: 'changed', instance: { status: 'warning', load: 3 } })
    await me.drain()
    expect(await next()).toMatchObject({ type: 'changed', instance: { status: 'draining' } })
    expect(await planners.pick()).toBeUndefined()
    await me.deregister()
    expect(await next()).toMatchObject({ type: 'removed' })
    expect(await planners.list()).toEqual([])
    expect(await listed(a)).toEqual([])
    expect(me.signal.aborted).toBe(true)
    await changes.return()
  },

  'a name is HELD by its holder until a newer generation takes it over': async ({ open }) => {
    await using a = await open('a')
    await using b = await open('b')
    const what = { service: 's', instance: '1', address }
    const events: RegistrationEvent[] = []
    const first = await a.registry.register({ ...what, ttl: '4s', onEvent: event => events.push(event) })
    const refused = await b.registry.register(what).catch(error => error)
    expect(refused).toBeInstanceOf(LeaseError)
    expect(refused).toMatchObject({ code: 'HELD', facts: { holder: 'a' } })
    await using second = await b.registry.register({ ...what, generation: 1 })
    await new Promise(resolve => first.signal.addEventListener('abort', resolve))
    expect(first.signal.reason).toMatchObject({ code: 'STALE', facts: { holder: 'b', generation: 1 } })
    expect(events.map(({ type }) => type)).toEqual(['lapsed', 'ended'])
    expect(await listed(a)).toEqual(['s/1 live'])
    expect(second.registered).toBe(true)
  },

  'several instances on one lease are registered and removed together': async ({ open }) => {
    await using a = await open('a')
    const all = await a.registry.register([
      { service: 'planner', address, capabilities: ['plan'] },
      { service: 'reviewer', address, capabilities: ['review'], status: 'warning' },
    ])
    expect(await listed(a)).toEqual(['planner/a live', 'reviewer/a live'])
    const { revision } = await a.read({ kind: 'summary' })
    await all.update({ weight: 7 }, { service: 'reviewer' })
    expect((await a.registry.discover({}).list()).map(({ service, weight, status }) => [service, weight, status])).toEqual([
      ['planner', 1, 'passing'],
      ['reviewer', 7, 'warning'],
    ])
    await all.deregister()
    expect((await a.read({ kind: 'summary' }, { consistent: true })).revision).toBe(revision + 2)
    expect(await listed(a)).toEqual([])
  },
}
