/** What /metrics says of request times, of limits, of what will expire and of the disk. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { mkdir } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { LeaseError } from '../../src/errors.ts'
import { FORMAT } from '../../src/kernel/codec/format.ts'
import type { CreateKey } from '../../src/kernel/command.ts'
import type { Outcome } from '../../src/kernel/outcome.ts'
import { RULES } from '../../src/kernel/state.ts'
import { DEFAULT_LIMITS } from '../../src/server/limits.ts'
import { RequestTimes, TimedCompletion } from '../../src/server/request-times.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { type World, world } from '../support/http-world.ts'
import { failingWith } from '../support/submitting.ts'

const OPERATOR = { key: 0, name: 'test', operator: true } as const
const DAY = 86_400_000
const READ = [{ verb: 'read', prefix: '' }] as const

/** The value of one series; undefined if there is none. */
async function metrics(here: World, authorization?: string): Promise<(series: string) => number | undefined> {
  const { text } = await here.ask('GET', '/metrics', undefined, authorization === undefined ? {} : { authorization })
  const values = new Map(
    text.split('\n').map(line => [line.slice(0, line.lastIndexOf(' ')), Number(line.slice(line.lastIndexOf(' ') + 1))]),
  )
  return series => values.get(`leasehold_${series}`)
}

const acquire = (here: World, resource: string, holder: string, more: object = {}) =>
  here.ask('POST', '/v1/leases', { resources: [resource], holder, ttl: '1m', ...more })

async function keyOf({ server }: World, name: string, more: Partial<CreateKey> = {}): Promise<void> {
  const { hashSecret } = await import('../../src/server/key-secret.ts')
  const made = await server.guarded.propose(OPERATOR, { kind: 'key', name, hash: hashSecret(name), allow: READ, ...more })
  expect(made).toMatchObject({ kind: 'done' })
}

test('the time of a request goes into the bucket of its operation and outcome', async () => {
  const clock = new ManualClock()
  const times = new RequestTimes(clock)
  const passed: unknown[] = []
  const completion = { settle: (outcome: Outcome) => passed.push(outcome.kind), fail: (error: unknown) => passed.push(error) }
  const refused = (code: 'HELD' | 'UNAVAILABLE') =>
    ({ kind: 'refused', revision: 1, code, reason: 'held', facts: {} }) as unknown as Outcome
  const endings: readonly [ms: number, outcome: Outcome | Error][] = [
    [2, { kind: 'renewed', revision: 1, ttls: [] }],
    [30, { kind: 'queued', revision: 1 } as unknown as Outcome],
    [30, refused('HELD')],
    [600, refused('UNAVAILABLE')],
    [60_000, new LeaseError('UNKNOWN', 'no answer')],
    [1, new LeaseError('LIMIT', 'too many')],
    [1, new TypeError('a mistake of ours')],
  ]
  for (const [ms, outcome] of endings) {
    const timed = new TimedCompletion(times, 'acquire', completion)
    await clock.advance(ms)
    if (outcome instanceof Error) timed.fail(outcome)
    else timed.settle(outcome)
  }
  expect(passed).toHaveLength(endings.length)
  const bucketsOf = (counts: readonly number[]) => counts.flatMap((count, i) => Array<number>(count).fill(i))
  expect([...times.all()].map(({ outcome, counts, ms }) => [outcome, bucketsOf(counts), ms])).toEqual([
    ['ok', [1], 2],
    ['queued', [5], 30],
    ['refused', [0, 5], 31],
    ['failed', [0, 9, 13], 60_601],
  ])
})

test('requests are timed over every route, and their series have no text from clients', async () => {
  await using here = await world()
  await acquire(here, 'a', 'ann')
  expect((await acquire(here, 'a', 'bob')).status).toBe(409)
  await here.server.guarded.propose(OPERATOR, { kind: 'made-up' } as never).catch(() => {})
  await here.ask('GET', '/v1/leases')
  const submit = here.lessor.submit
  here.lessor.submit = failingWith(new LeaseError('UNAVAILABLE', 'the store is away'))
  await acquire(here, 'b', 'ann')
  here.lessor.submit = submit
  const value = await metrics(here)
  expect(value('request_seconds_count{operation="acquire",outcome="ok"}')).toBe(1)
  expect(value('request_seconds_bucket{operation="acquire",outcome="ok",le="+Inf"}')).toBe(1)
  expect(value('request_seconds_count{operation="acquire",outcome="refused"}')).toBe(1)
  expect(value('request_seconds_count{operation="acquire",outcome="failed"}')).toBe(1)
  expect(value('request_seconds_count{operation="unknown",outcome="refused"}')).toBe(1)
  expect(value('request_seconds_count{operation="read",outcome="ok"}')).toBeGreaterThan(0)
  const { text } = await here.ask('GET', '/metrics')
  expect(text).not.toContain('made-up')
})

test('shares of limits grow with connections, leases and the queue that is closest to its own limit', async () => {
  await using here = await world({ limits: { ...DEFAULT_LIMITS, connections: 4 } })
  const policy = (prefix: string, rules: object) => here.server.guarded.propose(OPERATOR, { kind: 'policy', prefix, rules })
  await policy('', { leases: 20 })
  await policy('short', { waiters: 4 })
  for (const name of ['long', 'short']) await acquire(here, name, 'holder')
  const { guarded } = here.server
  const wants = (resource: string) => [{ resource, units: 1 }]
  for (const [resource, waiters] of [
    ['long', 5],
    ['short', 3],
  ] as const)
    for (let i = 0; i < waiters; i++)
      await guarded.propose(OPERATOR, { kind: 'acquire', holder: `w${i}`, wants: wants(resource), ttl: 60_000, wait: true } as never)
  const value = await metrics(here)
  expect(value('limit_used_ratio{what="connections"}')).toBe(0.25)
  expect(value('limit_used_ratio{what="leases"}')).toBe(0.5)
  expect(value('limit_used_ratio{what="waiters"}')).toBe(0.75)
})

test('a key shows the share of its tightest limit, also of its group, and the days until it expires', async () => {
  await using here = await world()
  const expires = here.clock.wall() + 3 * DAY
  await keyOf(here, 'root', { allow: [{ verb: 'admin', prefix: '' }] })
  await keyOf(here, 'app', { allow: [{ verb: 'acquire', prefix: '' }], limits: { leases: 4, waiters: 9 }, group: 'team', expires })
  await here.server.guarded.propose(OPERATOR, { kind: 'limit', group: 'team', limits: { leases: 2 } } as never)
  await here.ask('POST', '/v1/leases', { resources: ['a'], holder: 'h', ttl: '1m' }, { authorization: 'Bearer app' })
  const value = await metrics(here, 'Bearer root')
  expect(value('key_limit_used_ratio{key="app"}')).toBe(0.5)
  expect(value('key_days_left{key="app"}')).toBe(3)
  expect(value('key_days_left{key="root"}')).toBeUndefined()
  expect(value('key_limit_used_ratio{key="root"}')).toBeUndefined()
})

test('a server with a data file shows the size of its log and what is free on its disk, and another server neither', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-metrics-'))
  try {
    const path = join(folder, 'leases.db')
    await mkdir(`${path}-log`)
    writeFileSync(path, 'x'.repeat(100))
    writeFileSync(join(`${path}-log`, '1.log'), 'x'.repeat(1_000))
    writeFileSync(join(folder, 'other'), 'x'.repeat(5_000))
    await using here = await world({ dataFile: () => path })
    const value = await metrics(here)
    expect(value('log_bytes')).toBe(1_100)
    expect(value('disk_free_bytes')).toBeGreaterThan(0)
    await using other = await world()
    expect((await metrics(other))('log_bytes')).toBeUndefined()
    expect((await metrics(other))('disk_free_bytes')).toBeUndefined()
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})

test('the versions of rules and format are shown, and how late timers were proposed', async () => {
  await using here = await world()
  await acquire(here, 'a', 'ann', { ttl: '1s' })
  await here.clock.advance(2_000)
  await here.clock.settle()
  const value = await metrics(here)
  expect([value('rules'), value('rules_known'), value('format')]).toEqual([RULES, RULES, FORMAT])
  expect(value('timer_delay_seconds_count')).toBe(1)
  expect(value('records_since_snapshot')).toBeGreaterThan(1)
  expect(value('snapshot_failures')).toBe(0)
})
