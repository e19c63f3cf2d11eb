import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { Command, Scope } from '../../src/kernel/command.ts'
import { propose } from '../../src/lessor/propose.ts'
import type { LeaseView, Lessor, Query, View } from '../../src/lessor.ts'
import { ListReader } from '../../src/replica/lists.ts'
import { RecentEvents } from '../../src/replica/recent-events.ts'
import { Replica } from '../../src/replica/replica.ts'
import { anonymousCaller } from '../../src/server/access-control.ts'
import { GuardedLessor, MAX_LISTED } from '../../src/server/guarded-lessor.ts'
import { MemoryLog, MemoryStore } from '../../src/store/memory.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { HttpLessor } from '../../src/wire/http/client.ts'
import { RemoteLessor } from '../../src/wire/resp/client.ts'
import { serverAddressOf } from '../../src/wire/resp/dial.ts'
import { world as served } from '../support/http-world.ts'
import { World } from '../support/kernel/world.ts'

/** Lists of a kernel's state; between two strides `meanwhile` happens. Counts turns of the loop, and views: each asks what remains. */
function lists(world: World, { stride = 10, meanwhile = () => {} }: { readonly stride?: number; readonly meanwhile?: () => void } = {}) {
  const seen = { turns: 0, remaining: 0, lists: undefined as unknown as ListReader }
  class Between extends ManualClock {
    override soon(then: () => void): void {
      seen.turns++
      meanwhile()
      super.soon(then)
    }
  }
  const recent = new RecentEvents(world.state.revision)
  let kept = world.events.length
  seen.lists = new ListReader({
    ...{ clock: new Between(), stride },
    remaining: () => ++seen.remaining,
    log: {
      get state() {
        return world.state
      },
      named(after, each) {
        for (; kept < world.events.length; kept++) recent.push([world.events[kept]!])
        const filter = ({ lease, key }: { readonly lease: number; readonly key?: string | undefined }) => {
          each(lease, key)
          return false
        }
        return recent.after(after, filter) !== undefined
      },
    },
  })
  return seen
}

function many(count: number): World {
  const world = new World({ strict: false })
  for (let i = 0; i < count; i++) world.acquire(`h${i % 7}`, `${i % 2 === 0 ? 'even' : 'odd'}/${i}`)
  return world
}

const ids = ({ value }: View) => (value as readonly LeaseView[]).map(({ lease }) => lease)

describe('a list', () => {
  test('of entries by the last segment of their keys looks at no others', async () => {
    const world = new World()
    const { lease } = world.acquire('ann', 'a')
    const put = (key: string) => world.do({ kind: 'put', lease, key, value: '1' })
    for (const service of ['api', 'web']) for (let i = 0; i < 40; i++) put(`services/${service}/i${i}`)
    for (const key of ['services/web/i7/state', 'services/i7', 'other/web/i7']) put(key)
    const seen = lists(world, { stride: 100 })
    const named = async (more: object) => {
      const { value } = await seen.lists.read({ kind: 'entries', prefix: 'services', named: 'i7', ...more })
      return (value as readonly { readonly key: string }[]).map(({ key }) => key)
    }
    expect(await named({})).toEqual(['services/api/i7', 'services/web/i7'])
    expect(await named({ within: ['services/web'] })).toEqual(['services/web/i7'])
    expect(await named({ named: 'unknown' })).toEqual([])
    expect(seen.remaining).toBe(3)
  })

  test('of many entries is made in turns, and all of them are of one revision', async () => {
    const world = new World()
    const { lease } = world.acquire('ann', 'a')
    const put = (key: string, value: string) => world.do({ kind: 'put', lease, key, value })
    for (let i = 10; i < 60; i++) put(`e/${i}`, 'old')
    let changes = 0
    const meanwhile = () => {
      if (changes++ > 0) return
      put('e/10', 'new') // seen already
      put('e/59', 'new') // not seen yet
      put('e/70', 'new')
      world.do({ kind: 'delete', key: 'e/11' })
    }
    const seen = lists(world, { stride: 10, meanwhile })
    const { value, revision } = await seen.lists.read({ kind: 'entries', prefix: 'e' })
    const found = value as readonly { readonly key: string; readonly value: string; readonly revision: number }[]
    const present = [...world.state.entries.values()].filter(({ key }) => key.startsWith('e/'))
    expect(seen.turns).toBeGreaterThan(3)
    expect(revision).toBe(world.state.revision)
    expect(found.map(({ key, value, revision: at }) => [key, value, at])).toEqual(
      present.map(({ key, value, revision: at }) => [key, value, at]).sort(([a], [b]) => (a! < b! ? -1 : 1)),
    )
  })

  test('makes views only of the items that it returns', async () => {
    const seen = lists(many(1_000), { stride: 5_000 })
    const { value, more } = await seen.lists.read({ kind: 'leases', limit: 1 })
    expect([(value as unknown[]).length, more, seen.remaining]).toEqual([1, true, 2]) // the lease and its one grant
    await seen.lists.read({ kind: 'resources', prefix: 'odd', limit: 3 })
    expect(seen.remaining).toBe(2 + 3)
    await seen.lists.read({ kind: 'leases', within: ['odd/1', 'even/2'] })
    expect(seen.remaining).toBe(5 + 4)
    expect(await seen.lists.read({ kind: 'leases', limit: 1_000 })).not.toHaveProperty('more')
  })

  test('looks at nothing for a key that may see nothing, and stops at its limit', async () => {
    const seen = lists(many(1_000), { stride: 100 })
    expect(await seen.lists.read({ kind: 'leases', within: [], own: { key: 9, claims: [''] } })).toMatchObject({ value: [] })
    expect(await seen.lists.read({ kind: 'leases', prefix: 'odd', within: ['even'] })).toMatchObject({ value: [] })
    expect(await seen.lists.read({ kind: 'resources', prefix: '', within: [] })).toMatchObject({ value: [] })
    expect(await seen.lists.read({ kind: 'entries', prefix: '', within: [] })).toMatchObject({ value: [] })
    expect((await seen.lists.read({ kind: 'leases', limit: 4 })).value).toHaveLength(4)
    expect((await seen.lists.read({ kind: 'resources', prefix: '', limit: 4 })).value).toHaveLength(4)
    expect([seen.turns, seen.remaining]).toEqual([0, 8 + 4])
  })

  test('yields to other work between its strides when it is long, and long lists run one after the other', async () => {
    const seen = lists(many(1_000), { stride: 100 })
    const [leases, resources] = await Promise.all([
      seen.lists.read({ kind: 'leases', holder: 'h3' }),
      seen.lists.read({ kind: 'resources', prefix: 'none' }),
    ])
    expect([(leases.value as unknown[]).length, (resources.value as unknown[]).length]).toEqual([143, 0])
    expect(seen.turns).toBe(20)
  })

  test('ends when its caller aborts, and the lists behind it go on', async () => {
    const stop = new AbortController()
    const seen = lists(many(100), { meanwhile: () => stop.abort(new Error('gone')) })
    const gone = seen.lists.read({ kind: 'leases', holder: 'absent' }, stop.signal) as Promise<View>
    const next = seen.lists.read({ kind: 'leases', prefix: 'odd' }) as Promise<View>
    await expect(gone).rejects.toThrow('gone')
    expect((await next).value).toHaveLength(50)
  })

  test('shows one state, whatever changed while names were walked', async () => {
    const name = fc.constantFrom('a/1', 'a/2', 'b/1', 'b/2/x', 'c', 'd/9')
    const change = fc.record({ kind: fc.constantFrom('acquire', 'put', 'delete', 'release', 'release one'), name, at: fc.nat(30) })
    const query = fc.record(
      {
        prefix: fc.constantFrom('a', 'b/', 'b/2', 'c', ''),
        holder: fc.constantFrom('h0', 'h1'),
        within: fc.array(fc.constantFrom('a', 'b/2', 'c', 'd/9', ''), { maxLength: 3 }),
        own: fc.record({ key: fc.constantFrom(1, 2), claims: fc.constantFrom(['a'], [], ['']) }),
      },
      { requiredKeys: [] },
    )
    await fc.assert(
      fc.asyncProperty(fc.array(change, { minLength: 4, maxLength: 20 }), query, fc.boolean(), async (changes, asked, leases) => {
        const world = new World({ strict: false })
        world.policy('', { capacity: 5 })
        world.key('one', 'admin:')
        world.key('two', 'admin:')
        let next = 0
        const happen = () => {
          for (let n = 0; n < 2 && next < changes.length; n++) {
            const { kind, name, at } = changes[next++]!
            const all = [...world.state.leases.values()]
            const lease = all[at % Math.max(1, all.length)]
            if (kind === 'acquire' || lease === undefined) world.ask(`h${at % 2}`, name, { wait: true, key: 1 + (at % 2) })
            else if (kind === 'put') world.do({ kind: 'put', lease: lease.id, key: `${name}/e${at}`, value: '' })
            else if (kind === 'delete') world.do({ kind: 'delete', key: `${name}/e${at}` })
            else if (kind === 'release') world.do({ kind: 'release', lease: lease.id })
            else if (lease.grants[0] !== undefined) world.release(lease.id, lease.grants[0].resource.name)
          }
        }
        for (let i = 0; i < 12; i++) world.ask(`h${i % 2}`, ['a/1', 'b/1', 'c'][i % 3]!, { wait: true, key: 1 + (i % 2) })
        const query = (leases ? { kind: 'leases', ...asked } : { kind: 'resources', ...asked, prefix: asked.prefix ?? '' }) as Query
        const listed = await lists(world, { stride: 2, meanwhile: happen }).lists.read(query as never)
        const whole = await lists(world, { stride: 1_000 }).lists.read(query as never)
        const plain = (view: View) => JSON.parse(JSON.stringify(view, (field, value) => (field === 'remaining' ? 0 : value)))
        expect(plain(listed)).toEqual(plain(whole))
      }),
      { numRuns: 300 },
    )
  })
})

/** How many views each list brought here from the lessor. */
function counting(lessor: Lessor, brought: number[]): Lessor {
  return new Proxy(lessor, {
    get(target, name) {
      if (name !== 'read') {
        const value = Reflect.get(target, name, target)
        return typeof value === 'function' ? value.bind(target) : value
      }
      return async (query: Query, options: object) => {
        const view = await target.read(query as never, options)
        if (Array.isArray(view.value) && query.kind !== 'keys') brought.push(view.value.length)
        return view
      }
    },
  })
}

describe('at a server', () => {
  test('a list with a limit, or for a key that may read little, transfers no more than is shown', async () => {
    const brought: number[] = []
    const clock = new ManualClock()
    await using lessor = await Replica.open(new MemoryStore({ log: new MemoryLog({ clock }), clock }), { clock })
    await using here = await served({ lessor: counting(lessor, brought) })
    // The server reads the instances once, for its page.
    await expect.poll(() => brought).toEqual([0])
    brought.length = 0
    for (let i = 0; i < 50; i++)
      await propose(lessor, {
        ...({ kind: 'acquire', holder: 'ann', ttl: 30_000, wants: [{ resource: `jobs/${i}` }] } as const),
        entries: [{ key: `jobs/${i}/e`, value: '' }],
      })
    await propose(lessor, {
      kind: 'acquire',
      holder: 'bob',
      ttl: 30_000,
      wants: [{ resource: 'few/1' }],
      entries: [{ key: 'few/e', value: '' }],
    })
    const lists = ['leases', 'resources', 'entries']
    for (const list of lists) {
      const { json } = await here.ask('GET', `/v1/${list}?limit=1`)
      expect([json[list].length, json.more]).toEqual([1, true])
    }
    expect(brought).toEqual([1, 1, 1])
    const few = { authorization: `Bearer ${await here.key('few', [{ verb: 'read', prefix: 'few' }])}` }
    const none = { authorization: `Bearer ${await here.key('none', [])}` }
    brought.length = 0
    for (const list of lists) {
      const { json } = await here.ask('GET', `/v1/${list}`, undefined, few)
      expect([json[list].length, json.more]).toEqual([1, undefined])
    }
    expect(brought).toEqual([1, 1, 1])
    brought.length = 0
    expect((await here.ask('GET', '/v1/leases?limit=1', undefined, none)).json).toMatchObject({ leases: [] })
    for (const list of ['resources', 'entries']) expect((await here.ask('GET', `/v1/${list}`, undefined, none)).status).toBe(403)
    expect(brought).toEqual([0])
  })

  test('a long list is written in pieces, and is the same list', async () => {
    await using here = await served()
    for (let i = 0; i < 1_201; i++)
      await propose(here.lessor, {
        ...({ kind: 'acquire', holder: 'ann', ttl: 30_000, wants: [{ resource: `a/${i}` }] } as const),
        entries: [{ key: `a/${i}/e`, value: '"],{' }],
      })
    for (const name of ['leases', 'resources', 'entries']) {
      const { json, headers } = await here.ask('GET', `/v1/${name}?limit=1200`)
      expect([json[name].length, json.more, String(json.revision)]).toEqual([1_200, true, headers['leasehold-revision']])
      expect(headers['content-length']).toBeUndefined()
      const whole = (await here.ask('GET', `/v1/${name}`)).json
      expect([whole[name].length, whole.more]).toEqual([1_201, undefined])
    }
    await using ours = await RemoteLessor.open(serverAddressOf(`leasehold://127.0.0.1:${here.port}`))
    await using http = await HttpLessor.open(here.url)
    for (const query of [{ kind: 'leases' }, { kind: 'resources', prefix: '' }, { kind: 'entries', prefix: '' }] as const) {
      const view = await here.lessor.read(query)
      expect(view.value).toHaveLength(1_201)
      expect(await ours.read(query)).toEqual(view)
      expect(await http.read(query)).toEqual(view)
    }
  })

  test('a list has a maximum length: a longer one is cut for callers that set a limit, and refused to others', async () => {
    const clock = new ManualClock()
    await using lessor = await Replica.open(new MemoryStore({ log: new MemoryLog({ clock }), clock }), { clock })
    const limits: unknown[] = []
    const crowded = new Proxy(lessor, {
      get(target, name) {
        const value = Reflect.get(target, name, target)
        if (name !== 'read') return typeof value === 'function' ? value.bind(target) : value
        return async (query: Query & { readonly limit?: number }, options: object) => {
          const view = await target.read(query as never, options)
          if (query.kind !== 'leases' && query.kind !== 'resources') return view
          limits.push(query.limit)
          return { ...view, more: true }
        }
      },
    })
    await using desk = await GuardedLessor.open({ lessor: crowded, clock })
    for (const query of [{ kind: 'leases' }, { kind: 'resources', prefix: '' }] as const) {
      await expect(desk.read(anonymousCaller(), query)).rejects.toMatchObject({ code: 'LIMIT', facts: { limit: MAX_LISTED } })
      expect((await desk.read(anonymousCaller(), { ...query, limit: 1e9 })).more).toBe(true)
    }
    expect(limits).toEqual(Array(4).fill(MAX_LISTED))
  })

  test('a caller cannot widen what its key may see, and can narrow it', async () => {
    const clock = new ManualClock()
    await using lessor = await Replica.open(new MemoryStore({ log: new MemoryLog({ clock }), clock }), { clock })
    await using desk = await GuardedLessor.open({ lessor, clock })
    const allow: Scope[] = [
      { verb: 'read', prefix: 'jobs' },
      { verb: 'acquire', prefix: 'mine' },
    ]
    const key = async (name: string, hash: string) =>
      ((await propose(lessor, { kind: 'key', name, hash: hash.repeat(64), allow })) as { id: number }).id
    const caller = { key: await key('a', 'a'), name: 'a' }
    const other = { key: await key('b', 'b'), name: 'b' }
    await desk.access.reloadKeys()
    const acquire = (...names: string[]): Command => ({
      kind: 'acquire',
      holder: 'h',
      ttl: 30_000,
      wants: names.map(resource => ({ resource })),
    })
    const id = async (proposed: Promise<object>) => ((await proposed) as { lease: number }).lease
    const secret = await id(propose(lessor, acquire('secret/1')))
    const jobs = await id(propose(lessor, acquire('jobs/1')))
    await id(propose(lessor, acquire('jobs/2', 'secret/2')))
    const mine = await id(desk.propose(caller, acquire('mine/1')))
    const theirs = await id(desk.propose(other, acquire('mine/2')))
    const unclaimed = await id(propose(lessor, acquire('mine/3')))
    const given = (await propose(lessor, { kind: 'transfer', lease: unclaimed, to: 'another', stopped: true })) as { id: number }
    const seen = async (query: object) => ids(await desk.read(caller, { kind: 'leases', ...query } as never))
    expect(await seen({})).toEqual([jobs, mine, given.id])
    expect(await seen({ within: [''] })).toEqual([jobs])
    expect(await seen({ within: ['secret', 'jobs/1'] })).toEqual([jobs])
    expect(await seen({ own: { key: other.key, claims: [''] } })).toEqual([jobs, mine, given.id])
    expect(await seen({ within: [], own: { key: other.key, claims: [''] } })).toEqual([mine, given.id])
    expect(ids(await lessor.read({ kind: 'leases' }))).toContain(secret)
    expect(ids(await desk.read(other, { kind: 'leases' }))).toEqual([jobs, theirs, given.id])
    expect((await desk.read(caller, { kind: 'resources', prefix: '', within: ['secret', 'jobs/1'] })).value).toHaveLength(1)
  })
})
