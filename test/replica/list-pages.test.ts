/** Pages of lists: the same as the whole list, filtered and sorted, but made only as far as they are read. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { LeaseError } from '../../src/errors.ts'
import { LIST_COLUMNS, LIST_STATES, type ListColumn, type ListPart } from '../../src/lessor/list-part.ts'
import { propose } from '../../src/lessor/propose.ts'
import type { LeaseView, ResourceView } from '../../src/lessor.ts'
import { ListPages } from '../../src/replica/list-pages.ts'
import { ListReader } from '../../src/replica/lists.ts'
import { Replica } from '../../src/replica/replica.ts'
import { MemoryLog, MemoryStore } from '../../src/store/memory.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { World } from '../support/kernel/world.ts'

/** Pages of a kernel's state, and what was done for them. Each turn of the loop takes a millisecond. */
function pagesOf(
  world: World,
  { stride = 5_000, meanwhile = () => {} }: { readonly stride?: number; readonly meanwhile?: () => void } = {},
) {
  const seen = { turns: 0, views: 0 }
  class Between extends ManualClock {
    override soon(then: () => void): void {
      seen.turns++
      meanwhile()
      super.soon(then)
    }
    override now(): number {
      return super.now() + seen.turns
    }
  }
  const clock = new Between()
  const log = {
    get state() {
      return world.state
    },
    named: () => true,
  }
  const remaining = () => {
    seen.views++
    return 30_000
  }
  const lists = new ListReader({ clock, log, remaining, stride })
  return { seen, clock, pages: new ListPages({ clock, log, remaining, lists }) }
}

function many(count: number): World {
  const world = new World({ strict: false })
  for (let i = 0; i < count; i++) world.acquire(`h${i % 7}`, `jobs/${String((i * 7_919) % count).padStart(6, '0')}`)
  return world
}

const names = (view: { readonly value: unknown }) => (view.value as readonly ResourceView[]).map(({ resource }) => resource)
const resources = { kind: 'resources', prefix: '' } as const

describe('a page of a list', () => {
  test('is the part of the whole list that a plain filter and a plain sort give', async () => {
    const clock = new ManualClock()
    await using replica = await Replica.open(new MemoryStore({ log: new MemoryLog({ clock }), clock }), { clock })
    const ask = (holder: string, resource: string, more: object = {}) =>
      propose(replica, { kind: 'acquire', holder, ttl: 20_000, wants: [{ resource }], wait: true, ...more })
    for (let i = 0; i < 60; i++) {
      await ask(`h${i % 5}`, `a/${(i * 13) % 17}`, { labels: [['k', String(i % 3)]], ttl: 10_000 + ((i * 37) % 11) * 1_000 })
      await clock.advance(7)
    }
    await propose(replica, { kind: 'acquire', holder: 'session', ttl: 20_000, wants: [] })
    const valuesOf = {
      leases: {
        ...{
          holder: (view: LeaseView) => view.holder,
          since: (view: LeaseView) => view.since,
          waiters: (view: LeaseView) => view.wants.length,
        },
        ...{ remaining: (view: LeaseView) => view.remaining, token: (view: LeaseView) => view.grants[0]?.token ?? 0 },
        name: ({ grants, wants }: LeaseView) => grants[0]?.resource ?? wants[0]?.resource ?? '',
      },
      resources: {
        ...{ name: (view: ResourceView) => view.resource, holder: (view: ResourceView) => view.grants[0]?.holder ?? '' },
        ...{ since: (view: ResourceView) => view.grants[0]?.since ?? 0, token: (view: ResourceView) => view.grants[0]?.token ?? 0 },
        remaining: (view: ResourceView) => view.grants[0]?.remaining ?? 0,
        waiters: (view: ResourceView) => view.queue.length,
      },
    }
    const leases = (await replica.read({ kind: 'leases' })).value
    const all = (await replica.read(resources)).value
    const page = fc.record(
      {
        sort: fc.constantFrom(...LIST_COLUMNS.flatMap(column => [column, `-${column}` as const])),
        ...{ offset: fc.nat(70), limit: fc.integer({ min: 1, max: 70 }) },
        ...{ text: fc.constantFrom('A/1', 'h2', 'none'), holder: fc.constantFrom('h0', 'h3') },
        state: fc.constantFrom(...LIST_STATES),
        label: fc.constantFrom(['k'] as const, ['k', '1'] as const, ['x'] as const),
      },
      { requiredKeys: ['sort'] },
    )
    const has = (text: string, ...texts: string[]) => texts.some(one => one.toLowerCase().includes(text.toLowerCase()))
    const compare = <V>(a: V, b: V) => (a === b ? 0 : a < b ? -1 : 1)
    await fc.assert(
      fc.asyncProperty(page, async asked => {
        const { sort, offset = 0, limit = 100, text = '', holder, state, label } = asked
        const column = sort.replace('-', '') as ListColumn
        const sign = sort.startsWith('-') ? -1 : 1
        const wanted = leases
          .filter(view => holder === undefined || view.holder === holder)
          .filter(view => state === undefined || view.status === state)
          .filter(view => text === '' || has(text, view.holder, ...[...view.grants, ...view.wants].map(({ resource }) => resource)))
          .filter(view => label === undefined || view.labels.some(([key, value]) => key === label[0] && (label[1] ?? value) === value))
          .sort((a, b) => sign * compare(valuesOf.leases[column](a), valuesOf.leases[column](b)) || a.lease - b.lease)
        const found = await replica.page({ kind: 'leases' }, asked)
        expect(found.total).toBe(wanted.length)
        expect(found.value.map(({ lease }) => lease)).toEqual(wanted.slice(offset, offset + limit).map(({ lease }) => lease))
        const stateOf = ({ grants }: ResourceView) =>
          grants[0] === undefined ? 'waited' : grants[0].status === 'frozen' ? 'frozen' : 'held'
        const held = all
          .filter(view => holder === undefined || view.grants.some(grant => grant.holder === holder))
          .filter(view => state === undefined || stateOf(view) === state)
          .filter(view => text === '' || has(text, view.resource, ...view.grants.map(grant => grant.holder)))
          .sort((a, b) => sign * compare(valuesOf.resources[column](a), valuesOf.resources[column](b)) || compare(a.resource, b.resource))
        expect(names(await replica.page(resources, asked))).toEqual(held.slice(offset, offset + limit).map(({ resource }) => resource))
      }),
      { numRuns: 300 },
    )
  })

  test('makes views only of the items that it returns, and gives way to other work while it looks for them', async () => {
    const { seen, pages } = pagesOf(many(60_000), { stride: 1_000 })
    const found = await pages.read(resources, { sort: 'name', offset: 30_000, limit: 3 })
    expect([names(found), found.total]).toEqual([['jobs/030000', 'jobs/030001', 'jobs/030002'], 60_000])
    expect(seen.views).toBe(3)
    expect(seen.turns).toBeGreaterThan(60)
  })

  test('of the same long list costs no second walk while nothing has happened, and soon after something has', async () => {
    const world = many(20_000)
    const { seen, pages, clock } = pagesOf(world, { stride: 1_000 })
    await pages.read(resources, { sort: 'holder' })
    const { turns } = seen
    await pages.read(resources, { sort: 'holder', offset: 100 })
    expect(seen.turns - turns).toBeLessThan(10)
    await clock.advance(14_000)
    await pages.read(resources, { sort: 'holder' })
    expect(seen.turns - turns).toBeLessThan(10)
    // Something happens: it is in the table as soon as making the order again would take a tenth of the time at most.
    world.acquire('first', 'jobs/!')
    await clock.advance(5_000)
    expect((await pages.read(resources, { sort: 'name', limit: 1 })).total).toBe(20_001)
    expect(names(await pages.read(resources, { sort: 'name', limit: 1 }))).toEqual(['jobs/!'])
  })

  test('is made again after 32 others, so that many different filters take no more memory than a few', async () => {
    const { seen, pages } = pagesOf(many(6_000), { stride: 1_000 })
    const cost = async (text: string) => {
      const { turns } = seen
      await pages.read(resources, { sort: 'name', text })
      return seen.turns - turns
    }
    const whole = await cost('jobs')
    expect(await cost('jobs')).toBe(0)
    for (let i = 0; i < 31; i++) await cost(`text ${i}`)
    expect(await cost('jobs')).toBe(0)
    for (let i = 0; i < 32; i++) await cost(`other ${i}`)
    expect(await cost('jobs')).toBeGreaterThanOrEqual(whole - 2)
  })

  test('of a short list is never old', async () => {
    const world = many(10)
    const { pages } = pagesOf(world)
    for (let i = 0; i < 20; i++) {
      world.acquire('new', `new/${i}`)
      expect((await pages.read(resources, { sort: '-token', limit: 1 })).total).toBe(11 + i)
      expect(names(await pages.read(resources, { sort: '-token', limit: 1 }))).toEqual([`new/${i}`])
    }
  })

  test('leaves out what has ended since the order was made', async () => {
    const world = many(20_000)
    const { pages } = pagesOf(world, { stride: 1_000 })
    const { value } = await pages.read({ kind: 'leases' }, { sort: 'name', limit: 5 })
    const [first] = value as readonly LeaseView[]
    world.do({ kind: 'release', lease: first!.lease })
    const again = await pages.read({ kind: 'leases' }, { sort: 'name', limit: 5 })
    expect(again.value).toHaveLength(4)
    expect((again.value as readonly LeaseView[]).map(({ lease }) => lease)).not.toContain(first!.lease)
  })

  test('is made one after another, and one that was given up does not hold up the next', async () => {
    const world = many(20_000)
    const stop = new AbortController()
    const { pages } = pagesOf(world, { stride: 1_000, meanwhile: () => stop.abort(new Error('gone')) })
    const gone = pages.read(resources, { sort: 'name' }, stop.signal)
    const next = pages.read(resources, { sort: '-name', limit: 1 })
    await expect(gone).rejects.toThrow('gone')
    expect(names(await next)).toEqual(['jobs/019999'])
    await expect(pages.read(resources, { sort: 'color' } as unknown as ListPart)).rejects.toThrow(LeaseError)
  })

  describe.each([
    ['closed', { code: 'UNAVAILABLE', message: expect.stringMatching(/clos/) }],
    ['moving', { code: 'UNAVAILABLE', facts: { moving: true } }],
  ] as const)('of a replica that is %s', (end, refusal) => {
    /** A replica with so many resources that a page takes turns of the loop. */
    async function opened() {
      const clock = new ManualClock()
      const replica = await Replica.open(new MemoryStore({ log: new MemoryLog({ clock }), clock }), { clock })
      for (let i = 0; i < 24; i++) {
        const wants = Array.from({ length: 256 }, (_, j) => ({ resource: `a/${i}/${j}` }))
        expect((await propose(replica, { kind: 'acquire', holder: 'ann', ttl: 20_000, wants })).kind).toBe('granted')
      }
      const stop = () => (end === 'closed' ? replica[Symbol.asyncDispose]() : propose(replica, { kind: 'move' }))
      return { replica, stop, [Symbol.asyncDispose]: () => replica[Symbol.asyncDispose]() }
    }

    test('is refused', async () => {
      await using here = await opened()
      await here.stop()
      await expect(here.replica.page(resources, { sort: 'name' })).rejects.toMatchObject(refusal)
    })

    test('is refused if that begins while the page is made', async () => {
      await using here = await opened()
      // One page is made after another.
      const pages = Array.from({ length: 20 }, (_, i) => here.replica.page(resources, { sort: 'name', text: `a/${i}` }))
      const made = Promise.allSettled(pages)
      await here.stop()
      await made
      await expect(pages.at(-1)).rejects.toMatchObject(refusal)
    })
  })

  test('has at most 1,000 items, however many were asked for', async () => {
    const { pages } = pagesOf(many(1_200))
    expect((await pages.read(resources, { sort: 'name', limit: 1_000_000 })).value).toHaveLength(1_000)
  })

  test('of roots has sessions and the tops of trees, and no registration', async () => {
    const clock = new ManualClock()
    await using replica = await Replica.open(new MemoryStore({ log: new MemoryLog({ clock }), clock }), { clock })
    const open = async (holder: string, more: object = {}) => {
      const outcome = await propose(replica, { kind: 'acquire', holder, ttl: 20_000, wants: [], ...more })
      return outcome.kind === 'granted' ? outcome.lease : 0
    }
    const session = await open('session')
    const parent = await open('parent', { wants: [{ resource: 'a' }] })
    await open('child', { wants: [{ resource: 'b' }], parent })
    await open('alone', { wants: [{ resource: 'c' }] })
    await open('host', { entries: [{ key: 'services/api/1', value: '{}' }] })
    const roots = async (within?: readonly string[]) => {
      const { value } = await replica.page({ kind: 'leases', ...(within && { within }) }, { sort: 'since', roots: true })
      return value.map(({ holder }) => holder)
    }
    expect([session > 0, await roots()]).toEqual([true, ['session', 'parent']])
    // Its parent is not in this list.
    expect(await roots(['b'])).toEqual(['child'])
  })
})
