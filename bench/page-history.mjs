// Measures the cost of the history that the server keeps for its page: CPU at a rate of events, with and without it, and the memory of a full day.
import { setTimeout as sleep } from 'node:timers/promises'
import { systemClock } from '../dist/clock.js'
import { propose } from '../dist/lessor/propose.js'
import { Replica } from '../dist/replica/replica.js'
import { ServerActivity } from '../dist/server/activity/activity.js'
import { Newest } from '../dist/server/activity/newest.js'
import { RateHistory } from '../dist/server/activity/rate-history.js'
import { StatusStrips } from '../dist/server/activity/status-strips.js'
import { Waits } from '../dist/server/activity/waits.js'
import { MemoryStore } from '../dist/store/memory.js'
import { heapInUse } from './heap.mjs'
import { percentile, using } from './measure.mjs'
import { atMost } from './row.mjs'

const BEAT = 20
const silent = { debug() {}, info() {}, warn() {}, error() {} }

/** CPU time of this process while this many events a second happen, in % of a core. */
async function cpu(replica, perSecond, forSeconds) {
  const before = process.cpuUsage()
  for (let beat = 0; beat < (forSeconds * 1_000) / BEAT; beat++) {
    const next = sleep(BEAT)
    for (let i = 0; i < (perSecond * BEAT) / 2_000; i++) {
      const wants = [{ resource: `load/${beat % 20}/${i}` }]
      void propose(replica, { kind: 'acquire', holder: `worker-${i}`, ttl: 30_000, wants }).then(({ lease }) =>
        propose(replica, { kind: 'release', lease }),
      )
    }
    await next
  }
  const { user, system } = process.cpuUsage(before)
  return (user + system) / (1e4 * forSeconds)
}

/** The same load with and without the history in turns, because machines are noisy. */
export async function historyCpu(report, perSecond, { quick }) {
  const [rounds, forSeconds] = quick ? [3, 1] : [5, 4]
  const differences = []
  const without = []
  await using(Replica.open(new MemoryStore({ own: { name: 'bench' } }), { owned: true }), async replica => {
    await cpu(replica, perSecond, forSeconds)
    for (let round = 0; round < rounds; round++) {
      const bare = await cpu(replica, perSecond, forSeconds)
      const closing = new AbortController()
      ServerActivity.of({}, { lessor: replica, clock: systemClock, log: silent, closing: closing.signal })
      await sleep(100)
      const observed = await cpu(replica, perSecond, forSeconds)
      closing.abort()
      without.push(bare)
      differences.push(observed - bare)
    }
  })
  report({
    name: `${perSecond.toLocaleString('en')} events/s without the history`,
    unit: '% of a core',
    value: percentile(without.sort(ascending), 0.5),
  })
  differences.sort(ascending)
  report({ name: 'the history: more than that, median', unit: '% of a core', value: percentile(differences, 0.5), want: atMost(1) })
  report({ name: 'the history: most of any round', unit: '% of a core', value: differences.at(-1) })
}

const ascending = (a, b) => a - b

/** Everything that is kept of the past, filled to its limits with names of 40 bytes. */
export function historyMemory(report) {
  const text = (kind, i) => `${kind}/${String(i).padStart(38 - kind.length, '0')}`
  const before = heapInUse()
  const rates = new RateHistory()
  const day = 86_400_000
  for (let at = 0; at < day; at += 30_000) rates.count('granted', at)
  const events = new Newest(2_000)
  const losses = new Newest(1_000)
  const waits = new Waits()
  const strips = new StatusStrips()
  for (let i = 0; i < 20_000; i++) {
    const event = { revision: i, at: i, type: 'granted', lease: i, holder: text('worker', i), resource: text('jobs', i), token: i }
    events.push(event)
    losses.push({ at: i, resource: text('lost', i), lease: i, holder: text('w', i), token: i, cause: 'lapsed' })
    waits.remember({ resource: text('wait', i), lease: i, holder: text('w', i), from: i, until: i + 1, ended: 'granted' })
  }
  for (let round = 0; round < 120; round++)
    for (let i = 0; i < 2_500; i++) strips.note(`service-${i % 50}`, text('i', i), round % 2 === 0 ? 'passing' : 'gone', round * 1_000)
  const after = heapInUse()
  const bytes = after.heapUsed - before.heapUsed + after.external - before.external
  report({ name: 'the history of a day, full', unit: 'MB', value: bytes / 1e6, want: atMost(8) })
  return [rates, events, losses, waits, strips]
}
