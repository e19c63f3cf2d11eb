// Benchmark of Leasehold on an engine, compared with the engine's own locks, in one run: leases per second, how soon another replica learns of a change, and
// the cost of one append.
//
// A store's part (`stores-NAME.mjs`) starts its engine and returns an object:
//   store()                  one more store on a new log, not opened
//   loops: [{ name, each, target? }]   the engine's own locks: `each(lane, i)` acquires and releases once, as users of the engine do
//   write: { name, each }    the engine's smallest durable write
//   push: ms                 the target for the p99 of news
//   more?(report)            further results of this engine
//   [Symbol.asyncDispose]()
import { Replica } from '../dist/replica/replica.js'
import { Missing } from './engine.mjs'
import { percentile, seconds, throughput, using } from './measure.mjs'
import { etcd } from './stores-etcd.mjs'
import { postgres } from './stores-postgres.mjs'
import { redis } from './stores-redis.mjs'

const parts = { etcd, postgres, redis }

const IN_FLIGHT = 1_024

const pair = replica => async (lane, i) => {
  const granted = await replica.propose({ kind: 'acquire', holder: 'bench', ttl: 30_000, wants: [{ resource: `lane/${lane}/${i % 16}` }] })
  await replica.propose({ kind: 'release', lease: granted.lease })
}

/** Alternates, because a disk may be ten times slower a minute later. */
async function locks(report, name, engine) {
  await using(Replica.open(engine.store()), async replica => {
    const ours = []
    const theirs = engine.loops.map(() => [])
    for (let turn = 0; turn < 2; turn++) {
      ours.push(await throughput(pair(replica), { inFlight: IN_FLIGHT, forSeconds: 2.5 }))
      for (const [i, { each }] of engine.loops.entries()) theirs[i].push(await throughput(each, { inFlight: IN_FLIGHT, forSeconds: 2.5 }))
    }
    for (const [i, loop] of engine.loops.entries()) {
      const [mine, bare] = [middle(ours), middle(theirs[i])]
      report(`${name}: ${loop.name}, 1,024 in flight`, bare, 'pairs/s')
      report(`${name}: acquire + release, 1,024 in flight`, mine, 'pairs/s', {
        ratio: mine / bare,
        against: loop.name,
        ...(loop.target !== undefined && { target: `at least ${loop.target} ×` }),
      })
    }
  })
}

/** Time from the answer on one replica until a watcher on another sees the change (0 if it is earlier), and from the request, including the append. */
async function news(report, name, engine) {
  const store = engine.store()
  await using(Replica.open(store), one =>
    using(Replica.open(engine.store({ beside: store })), async two => {
      const [whole, push] = [[], []]
      const stop = new AbortController()
      let seen = () => {}
      const watching = (async () => {
        for await (const events of two.watch('news', { signal: stop.signal })) if (events[0].type === 'granted') seen(seconds())
      })()
      for (let i = 0; i < 400; i++) {
        const arrived = new Promise(resolve => (seen = resolve))
        const began = seconds()
        await one.propose({ kind: 'acquire', holder: 'bench', ttl: 30_000, wants: [{ resource: `news/${i}` }] })
        const answered = seconds()
        const at = await arrived
        whole.push((at - began) * 1_000)
        push.push(Math.max(0, at - answered) * 1_000)
      }
      stop.abort()
      await watching
      for (const list of [whole, push]) list.sort((a, b) => a - b)
      report(`${name}: from asking to being seen on another replica: p50`, percentile(whole, 0.5), 'ms')
      report(`${name}: from asking to being seen on another replica: p99`, percentile(whole, 0.99), 'ms')
      report(`${name}: from the answer to being seen on another replica: p50`, percentile(push, 0.5), 'ms')
      report(`${name}: from the answer to being seen on another replica: p99`, percentile(push, 0.99), 'ms', {
        target: `under ${engine.push}`,
      })
    }),
  )
}

async function appends(report, name, engine) {
  await using(engine.store(), async store => {
    let { head } = await store.open()
    const entry = new Uint8Array(100).fill(7)
    const append = async () => {
      const answer = await store.append(entry, head)
      if (answer.kind !== 'appended') throw new Error(`not appended: ${answer.kind}`)
      head = answer.position
    }
    // Short turns, and the median: the speed of a shared disk changes from moment to moment, for both alike.
    const [ours, theirs] = [[], []]
    for (const end = seconds() + 6; seconds() < end; )
      for (const [list, each] of [
        [theirs, engine.write.each],
        [ours, append],
      ])
        for (let i = 0; i < 20; i++) {
          const began = seconds()
          await each()
          list.push((seconds() - began) * 1e6)
        }
    report(`${name}: ${engine.write.name}, one at a time`, middle(theirs), 'µs')
    report(`${name}: an append, one at a time`, middle(ours), 'µs', {
      ratio: middle(ours) / middle(theirs),
      against: engine.write.name,
      target: 'at most 1.3 ×',
    })
  })
}

function middle(list) {
  return percentile(
    [...list].sort((a, b) => a - b),
    0.5,
  )
}

/** STORES=postgres,redis in the environment measures only those. */
export async function stores(report) {
  const chosen = process.env.STORES?.split(',') ?? Object.keys(parts)
  for (const [name, start] of Object.entries(parts).filter(([name]) => chosen.includes(name))) {
    try {
      await using(start(), async engine => {
        await locks(report, name, engine)
        await news(report, name, engine)
        await appends(report, name, engine)
        await engine.more?.(report)
      })
    } catch (error) {
      if (!(error instanceof Missing)) throw error
      console.error(`NOT MEASURED: ${name}: ${error.message}`)
    }
  }
}
