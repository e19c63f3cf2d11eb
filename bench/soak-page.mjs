// `npm run soak -- page [--minutes 30] [--events 1000]`: whether the page stays in bounded memory and keeps its frames while events come for a long time.
//
// One tab visits every view in turn. Each minute it prints the heap of the page and of the server after a garbage collection, and the frames that were
// dropped. It fails if the heap of the page has grown by more than `MAX_GROWTH` since the first views were all visited.
import { parseArgs } from 'node:util'
import { percentile } from './measure.mjs'
import { DROPPED, frames, openPage, pageHeap, pageServer } from './page-browser.mjs'

const VIEWS = ['now', 'resources', 'leases', 'services', 'elections', 'pools', 'sessions', 'claims', 'events', 'policies']
/** Bytes. The lists of the page are full after its first round. */
const MAX_GROWTH = 2_000_000
/** Seconds in each view. The first and the last of a round are where people stay: longer. */
const STAY = 3
const STAY_LONG = 15

const { values } = parseArgs({
  allowPositionals: true,
  options: { minutes: { type: 'string', default: '30' }, events: { type: 'string', default: '1000' } },
})
const minutes = Number(values.minutes)
const perSecond = Number(values.events)

const server = await pageServer()
const tab = await openPage(`${server.url}/#/now`)
const samples = []
try {
  await server.ask('load', perSecond)
  const began = performance.now()
  let before = await server.ask('figures')
  console.log('minute    events/s  page heap  server heap  server rss  server CPU  frames dropped  longest frame  longest turn')
  while (performance.now() - began < minutes * 60_000) {
    const from = performance.now()
    const gaps = []
    for (const view of VIEWS) {
      await tab.page.evaluate(`location.hash = '#/${view}'`)
      gaps.push(...(await frames(tab.page, view === 'now' || view === 'events' ? STAY_LONG : STAY)))
    }
    gaps.sort((a, b) => a - b)
    const heap = await pageHeap(tab.page)
    const figures = await server.ask('figures', 'collected')
    const seconds = (performance.now() - from) / 1_000
    const cpu = (figures.cpu.user + figures.cpu.system - before.cpu.user - before.cpu.system) / 1e6
    const sample = {
      minute: (performance.now() - began) / 60_000,
      rate: (figures.events - before.events) / seconds,
      heap,
      server: figures.heapUsed,
      rss: figures.rss,
      cpu: (100 * cpu) / seconds,
      dropped: (100 * gaps.filter(gap => gap > DROPPED).length) / gaps.length,
      p99: percentile(gaps, 0.99),
      longest: gaps.at(-1),
      turn: before.longest,
    }
    before = figures
    samples.push(sample)
    const cells = [
      [sample.minute.toFixed(1), 6],
      [sample.rate.toFixed(0), 12],
      [`${(heap / 1e6).toFixed(2)} MB`, 11],
      [`${(sample.server / 1e6).toFixed(1)} MB`, 13],
      [`${(sample.rss / 1e6).toFixed(0)} MB`, 12],
      [`${sample.cpu.toFixed(0)} %`, 12],
      [`${sample.dropped.toFixed(2)} %`, 16],
      [`${sample.longest.toFixed(0)} ms`, 15],
      [`${figures.longest.toFixed(0)} ms`, 14],
    ]
    console.log(cells.map(([text, width]) => text.padStart(width)).join(''))
  }
} finally {
  await tab[Symbol.asyncDispose]()
  await server[Symbol.asyncDispose]()
}
const [first] = samples
const growth = Math.min(...samples.slice(-3).map(({ heap }) => heap)) - first.heap
console.log(`\nThe heap of the page has grown by ${(growth / 1e6).toFixed(2)} MB since the first round.`)
if (tab.errors.length > 0) console.log(`The page reported: ${tab.errors.join('; ')}`)
process.exitCode = growth > MAX_GROWTH || tab.errors.length > 0 ? 1 : 0
