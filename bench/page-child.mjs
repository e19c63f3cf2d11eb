// A server in memory with a load of its own, for measuring the page: `node bench/page-child.mjs`. It is told by messages what to do.
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { propose } from '../dist/lessor/propose.js'
import { Replica } from '../dist/replica/replica.js'
import { httpListener } from '../dist/server/http/http-listener.js'
import { serve } from '../dist/server/serve.js'
import { MemoryStore } from '../dist/store/memory.js'
import { heapInUse } from './heap.mjs'

/** Names that the load takes and frees. */
const NAMES = 400
/** Ms between two bursts of the load: events come in small groups, as from many clients. */
const BEAT = 20

const replica = await Replica.open(new MemoryStore({ own: { name: 'bench' } }), { owned: true })
const server = await serve({ lessor: replica, listen: '127.0.0.1:0', http: httpListener(), figures: () => replica.figures })
const delay = monitorEventLoopDelay({ resolution: 5 })
delay.enable()

async function fill(count) {
  await propose(replica, { kind: 'policy', prefix: '', rules: { leases: 2_000_000 } })
  for (let i = 0; i < count; i += 1_000)
    await Promise.all(
      Array.from({ length: 1_000 }, (_, n) =>
        propose(replica, {
          kind: 'acquire',
          holder: `worker-${(i + n) % 997}`,
          ttl: 86_400_000,
          // In no order, as names come in life.
          wants: [{ resource: `jobs/${String(((i + n) * 7_919) % count).padStart(6, '0')}` }],
          labels: [['purpose', `batch ${(i + n) % 50}`]],
        }),
      ),
    )
}

let done = 0
let load

/** Takes and frees names, so that this many events happen each second; one in 50 leases has a waiter. */
function begin(perSecond) {
  const began = performance.now()
  const from = done
  load = setInterval(() => {
    while (done - from < ((performance.now() - began) / 1_000) * perSecond) {
      const n = done
      const resource = `load/${n % NAMES}`
      done += 2
      void propose(replica, {
        kind: 'acquire',
        holder: `worker-${n % 31}`,
        ttl: 30_000,
        wants: [{ resource }],
        labels: [['purpose', 'load']],
      }).then(async ({ kind, lease }) => {
        if (kind !== 'granted') return
        if (n % 50 === 0) {
          const waiting = await propose(replica, { kind: 'acquire', holder: 'waiter', ttl: 30_000, wants: [{ resource }], wait: true })
          setTimeout(() => propose(replica, { kind: 'release', lease: waiting.lease }), 300)
          done += 3
        }
        // A few stay for a while, so that the tables have rows that come and go.
        setTimeout(() => propose(replica, { kind: 'release', lease }), n % 10 === 0 ? 200 : 0)
      })
    }
  }, BEAT)
}

process.on('message', async ({ ask, value }) => {
  if (ask === 'fill') await fill(value)
  if (ask === 'load') begin(value)
  if (ask === 'stop') clearInterval(load)
  const { heapUsed } = ask === 'figures' && value === 'collected' ? heapInUse() : process.memoryUsage()
  process.send({ cpu: process.cpuUsage(), heapUsed, rss: process.memoryUsage().rss, events: done, longest: delay.max / 1e6 })
  delay.reset()
})
process.on('SIGTERM', async () => {
  clearInterval(load)
  await server.close()
  await replica[Symbol.asyncDispose]()
  process.exit(0)
})
process.send({ port: Number(server.addresses[0].split(':').at(-1)) })
