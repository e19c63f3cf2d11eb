import { expect, test } from 'vitest'
import type { Event, EventType } from '../../src/kernel/event.ts'
import { propose } from '../../src/lessor/propose.ts'
import { MAX_POOL_PAGE } from '../../src/lessor.ts'
import { type PoolNotice, PoolNotices } from '../../src/pool/notices.ts'
import { silentLessor } from '../../src/testing/in-memory.ts'

interface Look {
  /** Events of this type are on the way: they arrive before the next look. */
  readonly without?: EventType
  /** Looks when an event of this type has arrived. */
  readonly after?: EventType
  readonly idle?: Readonly<Record<string, number>>
}

/** A pool `gpus` of two members, and what the notices say about it at this moment. Its leases last while time passes in steps below their term. */
async function lab(before = 600_000) {
  const { leases, clock } = silentLessor({ holder: 'ann' })
  const stop = new AbortController()
  const seen: Event[] = []
  const watching = (async () => {
    for await (const events of leases.watch('gpus', { signal: stop.signal })) seen.push(...events)
  })()
  const gpus = leases.pool('gpus')
  for (const name of ['g0', 'g1']) await gpus.offer(name)
  const notices = new PoolNotices(before)
  const view = async () => (await leases.read({ kind: 'pool', pool: 'gpus', limit: MAX_POOL_PAGE })).value
  const hasSeen = (wanted: EventType) => expect.poll(() => seen.some(({ type }) => type === wanted)).toBe(true)
  return {
    leases,
    gpus,
    pass: (ms: number) => clock.advance(ms),
    view,
    seen: hasSeen,
    async look({ after, without, idle = {} }: Look = {}): Promise<PoolNotice[]> {
      if (after !== undefined) await hasSeen(after)
      const late = seen.filter(({ type }) => type === without)
      notices.saw(seen.splice(0).filter(({ type }) => type !== without))
      seen.push(...late)
      return notices.update(await view(), new Map(Object.entries(idle)))
    },
    waiting: async () => (await view()).waiting,
    dueIn: async () => notices.dueIn(await view()),
    async [Symbol.asyncDispose]() {
      stop.abort()
      await watching
      await leases[Symbol.asyncDispose]()
    },
  }
}

test('a lease with --for has one notice before its end, and another one before the end that an extension gives it', async () => {
  await using here = await lab()
  const { look, pass } = here
  const lease = await here.gpus.take(2, { account: 'ann', maxLife: '1h' })
  expect(await look()).toEqual([])
  expect(await here.dueIn()).toBeGreaterThan(2_990_000)
  for (let minutes = 0; minutes < 51; minutes++) await pass(60_000)
  const [notice, ...others] = await look()
  expect(others).toEqual([])
  expect(notice).toMatchObject({ kind: 'ending', pool: 'gpus', lease: lease.id, account: 'ann', members: ['g0', 'g1'] })
  expect(notice!.text).toMatch(/^ann: your time with g0 and g1 of gpus ends in \d+ min .* leasehold pool extend \d+ 2h$/)
  expect(notice!.left).toBeLessThan(600_000)
  expect(await look()).toEqual([])
  await propose(here.leases.lessor, { kind: 'extend', lease: lease.id, by: 3_600_000 })
  expect(await look()).toEqual([])
  for (let minutes = 0; minutes < 60; minutes++) await pass(60_000)
  const again = await look()
  expect(again).toMatchObject([{ kind: 'ending', lease: lease.id }])
  expect(again[0]!.id).not.toBe(notice!.id)
})

test('a lease that is shorter than the notice has it at half of its time, not when it is granted', async () => {
  await using here = await lab()
  await here.gpus.take(1, { maxLife: '4m' })
  expect(await here.look()).toEqual([])
  for (let minutes = 0; minutes < 3; minutes++) await here.pass(60_000)
  expect(await here.look()).toMatchObject([{ kind: 'ending' }])
})

test('a request that waited has a notice when it is granted, also if it was queued and granted between two looks; others have none', async () => {
  await using here = await lab()
  const first = await here.gpus.take(2, { account: 'ann' })
  expect(await here.look()).toEqual([])
  const waiting = here.gpus.take(1, { account: 'ben' })
  const later = here.gpus.take(1, { account: 'cid' })
  await expect.poll(here.waiting).toBe(2)
  await here.pass(5_000)
  await first.release()
  await using ben = await waiting
  await using cid = await later
  const found = await here.look({ after: 'granted' })
  expect(found.map(({ kind, account, lease }) => [kind, account, lease]).sort()).toEqual([
    ['granted', 'ben', ben.id],
    ['granted', 'cid', cid.id],
  ])
  expect(found[0]!.waited).toBeGreaterThanOrEqual(5_000)
  expect(found[0]!.text).toMatch(/you have g\d of gpus now, after 5/)
  expect(await here.look()).toEqual([])
})

test('a recalled lease has one notice that says who asks and when it ends', async () => {
  await using here = await lab()
  await here.leases.setPolicy('gpus', { preempt: 'marked', preemptNotice: 90_000 })
  const yielding = await here.gpus.take(2, { account: 'ann', preemptible: true })
  expect(await here.look()).toEqual([])
  const waiting = here.gpus.take(1, { account: 'ben', priority: 5 })
  const [notice] = await here.look({ after: 'recalled' })
  expect(notice).toMatchObject({ kind: 'recalled', lease: yielding.id, by: 'ann', left: 90_000 })
  expect(notice!.text).toMatch(/ann asks for g0 and g1 of gpus back .* They are taken away in 90 s\.$/)
  expect(await here.look()).toEqual([])
  await yielding.release()
  await (await waiting).release()
})

test('a recall that a view shows before its event arrives has one notice, with who asks; without the event, the next view has it', async () => {
  await using here = await lab()
  await here.leases.setPolicy('gpus', { preempt: 'marked', preemptNotice: 90_000 })
  const yielding = await here.gpus.take(2, { account: 'ann', preemptible: true })
  expect(await here.look()).toEqual([])
  const waiting = here.gpus.take(1, { account: 'ben', priority: 5 })
  await here.seen('recalled')
  expect(await here.look({ without: 'recalled' })).toEqual([])
  expect(await here.look({ after: 'recalled' })).toMatchObject([{ kind: 'recalled', by: 'ann' }])
  const lost = new PoolNotices(0)
  expect(lost.update(await here.view(), new Map())).toMatchObject([{ kind: 'recalled', lease: yielding.id }])
  await yielding.release()
  await (await waiting).release()
})

test('a lease is idle when all its devices are, has one notice for each such time, and a new one after it was busy', async () => {
  await using here = await lab()
  const lease = await here.gpus.take(2, { account: 'ann' })
  expect(await here.look({ idle: { g0: 1_800_000 } })).toEqual([])
  const idle = { g0: 2_400_000, g1: 1_800_000 }
  const found = await here.look({ idle })
  expect(found).toMatchObject([{ kind: 'idle', lease: lease.id, idle: 1_800_000 }])
  expect(found[0]!.text).toMatch(/g0 and g1 of gpus have been idle for 30 min/)
  expect(await here.look({ idle: { g0: 2_700_000, g1: 2_100_000 } })).toEqual([])
  expect(await here.look({ idle: { g0: 2_700_000 } })).toEqual([])
  expect(await here.look({ idle })).toMatchObject([{ kind: 'idle' }])
})

test('the beginning of a reservation has a notice, with its members or with the word that it waits for them', async () => {
  await using here = await lab()
  const first = await here.gpus.reserve(1, { account: 'ann', from: '10m', for: '1h', ttl: '2h' })
  expect(await here.look()).toEqual([])
  expect(await here.dueIn()).toBeLessThanOrEqual(600_000)
  for (let minutes = 0; minutes < 11; minutes++) await here.pass(60_000)
  const begun = await here.look({ after: 'granted' })
  expect(begun).toMatchObject([{ kind: 'reservation', lease: first.lease, account: 'ann', members: [expect.stringMatching(/^g\d$/)] }])
  expect(begun[0]!.text).toMatch(/has begun, with g\d\. Use it: leasehold pool take gpus --reservation \d+ -- CMD$/)
  expect(await here.look()).toEqual([])
})

test('after a restart what still holds is told again, with the same id', async () => {
  await using here = await lab()
  await here.gpus.take(1, { maxLife: '8m' })
  for (let minutes = 0; minutes < 5; minutes++) await here.pass(60_000)
  const [before] = await here.look()
  const again = new PoolNotices(600_000)
  const { value } = await here.leases.read({ kind: 'pool', pool: 'gpus', limit: 0 })
  const [after] = again.update(value, new Map())
  expect(after!.id).toBe(before!.id)
})
