/** Explanations of waits, on views made by hand: each reason, the leases in the way, and what to ask for instead. */
import { describe, expect, test } from 'vitest'
import type { PoolRequest } from '../../src/kernel/command.ts'
import type { PoolGrantView, PoolMemberView, PoolView, PoolWaiterView } from '../../src/lessor.ts'
import { explainPool, explainWaiter } from '../../src/pool/explain.ts'
import { startText } from '../../src/pool/wait-sentences.ts'
import { silentLessor } from '../../src/testing/in-memory.ts'

const HOUR = 3_600_000

function grant(holder: string, changes: Partial<PoolGrantView> = {}): PoolGrantView {
  return {
    lease: 100 + holder.charCodeAt(0),
    holder,
    incarnation: 1,
    account: holder,
    units: 1,
    shared: false,
    token: 1,
    status: 'live',
    since: 0,
    start: 0,
    held: HOUR,
    expect: 2 * HOUR,
    maxLife: 0,
    priority: 0,
    preemptible: false,
    yields: false,
    borrows: false,
    recalled: false,
    class: '',
    ...changes,
  }
}

function member(
  name: string,
  labels: Record<string, string>,
  grants: readonly PoolGrantView[] = [],
  changes: Partial<PoolMemberView> = {},
): PoolMemberView {
  const used = grants.reduce((sum, { units }) => sum + units, 0)
  return {
    member: name,
    resource: `gpus/${name}`,
    labels,
    units: 1,
    used,
    status: 'live',
    offer: 1,
    offeredBy: 'host',
    grants,
    waiting: 0,
    ...changes,
  }
}

function waiter(lease: number, request: Partial<PoolRequest> = {}, changes: Partial<PoolWaiterView> = {}): PoolWaiterView {
  const holder = `waiter-${lease}`
  const full = { pool: 'gpus', count: 1, account: holder, ...request }
  return {
    lease,
    holder,
    incarnation: 1,
    account: holder,
    request: full,
    position: 0,
    priority: 0,
    rank: 0,
    since: 0,
    maxLife: 0,
    possible: true,
    class: '',
    ...changes,
  }
}

function view(members: readonly PoolMemberView[], queue: readonly PoolWaiterView[], changes: Partial<PoolView> = {}): PoolView {
  return {
    pool: 'gpus',
    elapsed: 10 * HOUR,
    members,
    waiting: queue.length,
    queue: queue.map((one, position) => ({ ...one, position })),
    reservations: [],
    accounts: [],
    rules: {
      ...{ queue: 'fifo', aging: 0, waiters: 10_000, maxLife: 0, maxHold: 0, shareHalfLife: HOUR, sharePenalty: 0, preempt: 'none' },
      ...{ minHold: 0, preemptNotice: 30_000, ttlMin: 100, ttlMax: 24 * HOUR },
    },
    ...changes,
  }
}

const causes = (of: PoolView, lease: number) => explainWaiter(of, lease)!.reasons.map(({ cause }) => cause)

describe('an explanation', () => {
  test('names the holders in the way, those that probably end first before the others', () => {
    const busy = view(
      [
        member('a', { model: 'a100' }, [grant('ann', { held: 0 })]),
        member('b', { model: 'a100' }, [grant('bob', { maxLife: HOUR + 60_000 })]),
        member('c', { model: 'h100' }, [grant('cat')]),
      ],
      [waiter(1, { match: [{ label: 'model', test: 'in', values: ['a100'] }] })],
    )
    const { blockers, reasons, start, text } = explainWaiter(busy, 1)!
    expect(blockers.map(({ holder }) => holder)).toEqual(['bob', 'ann'])
    expect(blockers[0]!.likelyEnd).toBeLessThanOrEqual(60_000)
    expect(reasons).toEqual([{ cause: 'held', text: '0 of 2 matching members are free, and it needs 1' }])
    expect(start!.high).toBeLessThanOrEqual(60_000)
    expect(text[0]).toBe('waiter-1 is number 1 of 1 waiting for gpus.')
    expect(text.join('\n')).toContain('b: bob, held for 60 min, ends in about')
  })

  test('counts only those that wait, and not the reservations between them', () => {
    const all = [waiter(1), waiter(2, { from: HOUR }), waiter(3, { from: 2 * HOUR }), waiter(4), waiter(5)]
    const full = view([member('a', {}, [grant('ann')])], all)
    const reserved = { ...full, reservations: full.queue.filter(({ request }) => (request.from ?? 0) > 0) }
    const { reasons, text } = explainWaiter(reserved, 5)!
    expect(reasons.find(({ cause }) => cause === 'ahead')!.text).toBe('2 waiting before it: waiter-1, waiter-4')
    expect(text[0]).toBe('waiter-5 is number 3 of 3 waiting for gpus.')
    expect(explainWaiter(reserved, 2)!.text[0]).toBe('waiter-2 has a reservation of gpus.')
  })

  test('says who is ahead, and counts their work', () => {
    const busy = view(
      [member('a', {}, [grant('ann', { maxLife: HOUR + 1_000 })])],
      [waiter(1, {}, { maxLife: 5_000 }), waiter(2, {}, { maxLife: 5_000 }), waiter(3)],
    )
    expect(causes(busy, 3)).toEqual(['held', 'ahead'])
    expect(explainWaiter(busy, 3)!.start!.high).toBeLessThanOrEqual(11_000)
    expect(explainPool(busy).map(({ position }) => position)).toEqual([0, 1, 2])
  })

  test('says that the present members can never serve a waiter', () => {
    const { reasons, start, text } = explainWaiter(view([member('a', {})], [waiter(1, { count: 2 }, { possible: false })]), 1)!
    expect(reasons.map(({ cause }) => cause)).toEqual(['impossible'])
    expect(start).toBeUndefined()
    expect(text.at(-1)).toBe('It cannot start with the present members.')
  })

  test('gives the quota, the share, the window, suspect members and missing neighbours as reasons', () => {
    const account = { usage: 5, weight: 100, leases: 1, waiting: 1, borrow: 0 }
    const accounts = [
      { ...account, account: 'waiter-1', held: 2, quota: 2 },
      { ...account, account: 'dan', usage: 1, held: 0, quota: 0 },
    ]
    const one = view([member('a', {}, [], { status: 'suspect' }), member('b', {}, [grant('ann')])], [waiter(1)], { accounts })
    expect(causes({ ...one, rules: { ...one.rules, queue: 'fair' } }, 1)).toEqual(['quota', 'held', 'suspect', 'share'])
    const apart = view(
      [member('a', { host: 'x' }), member('b', { host: 'y' }), member('c', { host: 'y' }, [grant('ann')])],
      [waiter(1, { count: 2, near: 'host' })],
    )
    expect(explainWaiter(apart, 1)!.reasons).toEqual([
      { cause: 'near', text: '2 matching members are free, at most 1 of them with the same host, and it needs 2 of the same host' },
    ])
    const later = view([member('a', {})], [waiter(1, { from: HOUR }, { maxLife: HOUR })])
    expect(causes(later, 1)).toEqual(['window'])
    expect(explainWaiter(later, 1)!.start).toEqual({ low: HOUR, median: HOUR, high: HOUR })
  })

  test('gives the quotas for a kind and for the week as reasons, and when some of the week is free again', () => {
    const account = { account: 'waiter-1', usage: 5, weight: 100, held: 1, leases: 1, waiting: 1, quota: 0, borrow: 0 }
    const members = [member('a', { kind: 'h100' }, [grant('waiter-1')]), member('b', { kind: 'h100' }), member('c', { model: 'a100' })]
    const full = (kind: string, held: number) => [{ ...account, kinds: [{ kind, held, quota: 1 }] }]
    const texts = (of: PoolView) => explainWaiter(of, 1)!.reasons.map(({ cause, text }) => `${cause}: ${text}`)
    expect(texts(view(members, [waiter(1)], { accounts: full('h100', 1) }))).toEqual([
      'quota: waiter-1 holds 1 of the 1 units of the kind h100 that its quota allows: a request that leaves h100 out need not wait',
    ])
    const only = waiter(1, { match: [{ label: 'kind', test: 'in', values: ['h100'] }] })
    expect(texts(view(members, [only], { accounts: full('h100', 1) }))).toEqual([
      'quota: waiter-1 holds 1 of the 1 units of the kind h100 that its quota allows',
    ])
    expect(texts(view(members, [only], { accounts: full('a100', 1) }))).toEqual([])
    // Its own lease has been held for 1 h of about 2 h. A member that is free does not help before that ends.
    const start = (of: PoolView) => explainWaiter(of, 1)!.start!
    expect(start(view(members, [only], { accounts: full('a100', 1) })).high).toBe(0)
    const bound = start(view(members, [only], { accounts: full('h100', 1) }))
    expect(bound.low).toBeGreaterThan(0)
    expect(bound.median).toBeGreaterThan(HOUR / 4)
    expect([bound.low, bound.median, bound.high].toSorted((a, b) => a - b)).toEqual([bound.low, bound.median, bound.high])
    expect(start(view(members, [only], { accounts: [{ ...account, quota: 1 }] }))).toEqual(bound)
    expect(start(view(members, [only], { accounts: [{ ...account, quota: 1, borrow: 1 }] })).high).toBe(0)
    const used = view(members, [waiter(1)], { accounts: [{ ...account, week: { used: 2 * HOUR, quota: HOUR, again: 3 * HOUR } }] })
    expect(texts(used)).toEqual([
      'quota: waiter-1 has used the 60 min of units that its quota allows in a week; some of it is free again in 3 h at the earliest',
    ])
    expect(explainWaiter(used, 1)!.start!.low).toBe(3 * HOUR)
  })

  test('tries smaller and wider requests, and lists those that start much sooner', () => {
    const busy = view(
      [
        member('a', { model: 'a100', host: 'x' }),
        member('b', { model: 'a100', host: 'x' }, [grant('ann')]),
        member('c', { model: 'h100', host: 'y' }),
        member('d', { model: 'k80', host: 'y' }, [grant('cat')]),
      ],
      [waiter(1, { count: 2, match: [{ label: 'model', test: 'in', values: ['a100'] }] })],
    )
    const { alternatives, text } = explainWaiter(busy, 1, { whatIf: true })!
    expect(alternatives.map(({ change }) => change)).toEqual(['1 instead of 2', 'with model h100 too', 'with model k80 too'])
    expect(alternatives.map(({ start }) => start.median > 0)).toEqual([false, false, true])
    expect(text).toContain('With another request, 1 instead of 2: now.')
    expect(explainWaiter(busy, 1)!.alternatives).toEqual([])
  })

  test('counts a frozen lease as ending within a ttl, and says that its holder may not have stopped', () => {
    const busy = view([member('a', {}, [grant('ann', { status: 'frozen', expect: 0 })])], [waiter(1)])
    const { start, text } = explainWaiter(busy, 1)!
    expect(start!.high).toBeLessThanOrEqual(30_000)
    expect(text.join('\n')).toContain('its holder may not have stopped yet')
  })

  test('passes over waiters that cannot be served', () => {
    const busy = view([member('a', {})], [waiter(1, { count: 9 }, { possible: false }), waiter(2)])
    expect(explainWaiter(busy, 2)!.start).toEqual({ low: 0, median: 0, high: 0 })
  })

  test('of an unknown lease does not exist', () => {
    expect(explainWaiter(view([], []), 7)).toBeUndefined()
  })
})

test('a start is written for people', () => {
  expect(startText({ low: 0, median: 0, high: 0 })).toBe('now')
  expect(startText({ low: 240_000, median: 720_000, high: 3_960_000 })).toBe('in about 12 min (80 %: 4 min to 66 min)')
  expect(startText({ low: 60_000, median: 120_000, high: Number.POSITIVE_INFINITY })).toBe('in about 2 min (80 %: from 60 s on)')
  expect(startText({ low: 3_600_000, median: 3_600_000, high: 3_600_100 })).toBe('in 60 min')
})

test('under `backfill`, a waiter that would delay the first one is not said to start before it', async () => {
  const { leases, lessor, clock } = silentLessor()
  await using _ = leases
  await leases.setPolicy('g', { queue: 'backfill' })
  const pool = leases.pool('g')
  const offers = [await pool.offer('a'), await pool.offer('b')]
  const running = await pool.take(1, { expect: 30_000 })
  pool.take(2, { expect: 10_000 }).catch(() => {})
  await clock.settle()
  pool.take(1, { expect: 60_000 }).catch(() => {})
  await clock.settle()
  const { value } = await lessor.read({ kind: 'pool', pool: 'g' }, { consistent: true })
  const [first, second] = value!.queue
  expect([first?.request.count, second?.request.count]).toEqual([2, 1])
  const start = explainWaiter(value!, second!.lease)!.start!
  expect([running, ...offers].every(({ held }) => held)).toBe(true) // one member is free, and neither waiter has it
  expect(start.median).toBeGreaterThan(0)
})
