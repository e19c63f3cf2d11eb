/** The demonstration in virtual time: every part of it moves within two minutes, and it ends when it is told to. */
import { expect, test } from 'vitest'
import { turn } from '../../src/clock.ts'
import { runDemo } from '../../src/demo/demo.ts'
import { parseReport, reportPrefix } from '../../src/devices/report.ts'
import type { Event } from '../../src/kernel/event.ts'
import { Replica } from '../../src/replica/replica.ts'
import { MemoryLog, MemoryStore } from '../../src/store/memory.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

test('within two minutes, jobs queue and lapse, leaders change, agents come and go, GPUs are queued for, and files are claimed', async () => {
  const clock = new ManualClock()
  await using lessor = await Replica.open(new MemoryStore({ log: new MemoryLog({ clock }), clock }), { clock })
  const stop = new AbortController()
  const events: Event[] = []
  const watching = (async () => {
    for await (const each of lessor.watch('', { signal: stop.signal })) events.push(...each)
  })()
  const demo = runDemo(lessor, { clock, signal: stop.signal })
  const services = new Set<string>()
  let queued = 0
  let reserved = 0
  let unleased = 0
  for (let seconds = 0; seconds < 120; seconds++) {
    await clock.advance(1_000)
    await turn()
    const { value } = await lessor.read({ kind: 'pool', pool: 'gpus' })
    queued = Math.max(queued, value.queue.length)
    reserved = Math.max(reserved, value.reservations.length)
    const { value: reports } = await lessor.read({ kind: 'entries', prefix: reportPrefix('gpus') })
    unleased += reports.filter(({ value: text }) => (parseReport(text)?.unleased ?? 0) > 0).length
    for (const { service } of (await lessor.read({ kind: 'services' })).value) services.add(service)
  }
  const of = (type: string, prefix: string) =>
    events.filter(event => event.type === type && (event.resource ?? event.key ?? '').startsWith(prefix))
  expect(of('granted', 'jobs/').length).toBeGreaterThan(40)
  expect(of('queued', 'jobs/').length).toBeGreaterThan(5)
  expect(of('lapsed', '').length).toBeGreaterThan(3)
  expect(new Set(of('granted', 'election/').map(({ holder }) => holder)).size).toBeGreaterThan(1)
  expect([...services].sort()).toEqual(['critic', 'planner', 'search'])
  expect(of('suspected', 'services/').length).toBeGreaterThan(0)
  expect(of('granted', 'gpus/').length).toBeGreaterThan(10)
  expect([queued > 0, reserved]).toEqual([true, 1])
  // A process uses a GPU without a lease for some of the time.
  expect(unleased).toBeGreaterThan(10)
  expect(unleased).toBeLessThan(120)
  const { value: past } = await lessor.read({ kind: 'history', resource: 'jobs/send-mail' })
  expect(new Set(past.map(({ exit }) => exit))).toContain(0)
  const runs = await Promise.all(
    ['jobs/nightly-report', 'jobs/send-mail', 'jobs/thumbnails', 'jobs/reindex'].map(resource =>
      lessor.read({ kind: 'history', resource }),
    ),
  )
  expect(runs.flatMap(({ value }) => value).some(({ exit = 0 }) => exit !== 0)).toBe(true)
  expect(of('granted', 'repo/shop/').length).toBeGreaterThan(10)
  expect(of('granted', 'deploy/prod/').length).toBeGreaterThan(4)
  stop.abort()
  let ended = false
  void demo.then(() => (ended = true))
  for (let rounds = 0; rounds < 60 && !ended; rounds++) await clock.advance(1_000)
  expect(ended).toBe(true)
  await watching.catch(() => {})
})
