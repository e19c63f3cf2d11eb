// Leasehold on a shared engine, compared with the engine's own locks: leases per second, how soon another replica learns of a change, and the cost of one append beside
// the engine's smallest durable write.
import http from 'node:http'
import pg from 'pg'
import { Replica } from '../dist/replica/replica.js'
import { EtcdStore } from '../dist/store/etcd/etcd.js'
import { PostgresStore } from '../dist/store/postgres/postgres.js'
import { RedisStore } from '../dist/store/redis/redis.js'
import { START } from '../dist/store.js'
import { engine } from './contenders.mjs'
import { lessorLock } from './leasehold.mjs'
import { percentile, seconds, throughput, using } from './measure.mjs'
import { base64, etcd as etcdTransactions, gatewayCaller, gatewayLock } from './peers/etcd.mjs'
import { postgresAdvisory, postgresRow } from './peers/postgres.mjs'
import { redisLock } from './peers/redis.mjs'
import { inRounds } from './rounds.mjs'
import { atLeast, atMost } from './row.mjs'

const IN_FLIGHT = 1_024
const RECORD = Buffer.alloc(100, 7)

/**
 * The engines. Each is opened on its running servers and then has:
 * - `store(name, first)`: a store on the log of this name, not opened; `first` chooses the member that it asks
 * - `locks`: the engine's own locks, with what is wanted of the ratio
 * - `write`: the engine's smallest durable write
 * - `news`: the p99 wanted of a change that another replica sees, in ms
 */
const kinds = {
  etcd: {
    title: 'etcd, three members',
    engine: 'etcd3',
    async open({ ports, ...other }) {
      const agent = new http.Agent({ keepAlive: true, maxSockets: 64 })
      const call = gatewayCaller(agent)
      const value = RECORD.toString('base64')
      const locks = [
        { name: "etcd's own lock, npm etcd3", want: atLeast(30), ...(await etcdTransactions({ ports, ...other })) },
        { name: "etcd's own lock, JSON gateway", ...(await gatewayLock({ ports })) },
      ]
      return {
        store: (name, first = 0) =>
          new EtcdStore({ endpoints: ports.map((_, i) => `127.0.0.1:${ports[(first + i) % ports.length]}`), name }),
        locks,
        write: { name: 'a put', each: () => call(ports[0], '/kv/put', { key: base64('smallest'), value }) },
        news: 50,
        async [Symbol.asyncDispose]() {
          agent.destroy()
          for (const lock of locks) await lock[Symbol.asyncDispose]()
        },
      }
    },
  },
  postgres: {
    title: 'Postgres',
    engine: 'postgres',
    async open(running) {
      const pool = new pg.Pool({ connectionString: running.url, max: 1 })
      pool.on('error', () => {})
      await pool.query('create table if not exists bare (n bigint generated always as identity, bytes bytea)')
      const locks = [
        { name: 'a lock in a row with pg', want: atLeast(10), ...(await postgresRow(running)) },
        { name: 'an advisory lock with pg (not durable)', ...(await postgresAdvisory(running)) },
      ]
      return {
        store: name => new PostgresStore({ url: running.url, name }),
        locks,
        // Prepared, on its own connection, into a table without an index: the smallest possible write.
        write: {
          name: 'a prepared insert of one row with pg',
          each: () => pool.query({ name: 'bare', text: 'insert into bare (bytes) values ($1)', values: [RECORD] }),
        },
        news: 20,
        async [Symbol.asyncDispose]() {
          await pool.end()
          for (const lock of locks) await lock[Symbol.asyncDispose]()
        },
      }
    },
  },
  redis: {
    title: 'Redis, fsync always',
    engine: 'redis',
    async open(running) {
      const lock = await redisLock(running, { checked: true })
      return {
        store: name => new RedisStore({ url: running.url, name }),
        locks: [{ name: 'SET NX PX and the release script with npm redis', want: atLeast(3), ...lock }],
        write: { name: 'a SET with npm redis', each: () => lock.raw.set('bare', RECORD) },
        news: 20,
        [Symbol.asyncDispose]: lock[Symbol.asyncDispose],
      }
    },
  },
}

let logs = 0

async function pairs(report, title, on, { rounds, forSeconds }) {
  await using(Replica.open(on.store(`bench-${++logs}`)), async replica => {
    const measure = lock =>
      throughput(
        async (lane, i) => {
          const name = `lane/${lane}/${i % 16}`
          await lock.release(name, await lock.acquire(name))
        },
        { inFlight: IN_FLIGHT, forSeconds, warmUp: 0 },
      )
    const figures = await inRounds(lessorLock(replica), on.locks, { rounds, measure })
    report({ name: `${title}: acquire and release, 1,024 in flight`, unit: 'pairs/s', ...figures })
  })
}

/** From the answer on one replica until a watcher on another sees the change (0 if it is earlier). */
async function news(report, title, on, { quick }) {
  const log = `bench-${++logs}`
  await using(Replica.open(on.store(log)), one =>
    using(Replica.open(on.store(log, 1)), async two => {
      const took = []
      const stop = new AbortController()
      let seen = () => {}
      const watching = (async () => {
        for await (const events of two.watch('news', { signal: stop.signal })) if (events[0].type === 'granted') seen(seconds())
      })()
      const lock = lessorLock(one)
      for (let i = 0; i < (quick ? 100 : 400); i++) {
        const arrived = new Promise(resolve => (seen = resolve))
        await lock.acquire(`news/${i}`)
        const answered = seconds()
        took.push(Math.max(0, (await arrived) - answered) * 1_000)
      }
      stop.abort()
      await watching
      took.sort((a, b) => a - b)
      const name = `${title}: from the answer to being seen on another replica`
      report({ name: `${name}, p50`, unit: 'ms', value: percentile(took, 0.5) })
      report({ name: `${name}, p99`, unit: 'ms', value: percentile(took, 0.99), want: atMost(on.news) })
    }),
  )
}

async function appends(report, title, on, { quick }) {
  await using(on.store(`bench-${++logs}`), async store => {
    let { head } = await store.open()
    const append = async () => {
      const answer = await store.append(RECORD, head)
      if (answer.kind !== 'appended') throw new Error(`not appended: ${answer.kind}`)
      head = answer.position
    }
    // Short turns: the speed of a shared disk changes from moment to moment, for both alike.
    const [ours, theirs] = [[], []]
    for (const end = seconds() + (quick ? 1 : 6); seconds() < end; )
      for (const [list, each] of [
        [theirs, on.write.each],
        [ours, append],
      ])
        for (let i = 0; i < 20; i++) {
          const began = seconds()
          await each()
          list.push((seconds() - began) * 1e6)
        }
    report({
      name: `${title}: an append, one at a time`,
      unit: 'µs',
      ...typical(ours),
      peers: [{ name: on.write.name, want: atMost(1.3), ...typical(theirs) }],
    })
  })
}

/** The quartiles stand for the spread: single appends that waited for a core say nothing. */
function typical(times) {
  times.sort((a, b) => a - b)
  return { rounds: [0.25, 0.5, 0.75].map(part => percentile(times, part)) }
}

/** Measures how often each of three competing replicas appends. */
async function competing(report, title, on, { quick }) {
  const forSeconds = quick ? 0.5 : 2
  const log = `bench-${++logs}`
  const stores = [0, 1, 2].map(first => on.store(log, first))
  await Promise.all(stores.map(store => store.open()))
  const end = seconds() + forSeconds
  const turns = await Promise.all(
    stores.map(async store => {
      let [after, done] = [START, 0]
      for (; seconds() < end; done++) after = (await store.append(RECORD, after)).position
      return done
    }),
  )
  for (const store of stores) await store[Symbol.asyncDispose]()
  report({
    name: `${title}: three replicas append at once, total`,
    unit: 'appends/s',
    value: turns.reduce((sum, n) => sum + n) / forSeconds,
  })
}

/** A benchmark of one engine. */
function storeOn(kind) {
  return async (report, settings) => {
    const { title, engine: servers, open } = kinds[kind]
    await using(open(await engine(servers, settings)), async on => {
      await pairs(report, title, on, settings)
      await news(report, title, on, settings)
      await appends(report, title, on, settings)
      if (kind === 'etcd') await competing(report, title, on, settings)
    })
  }
}

export const etcd = storeOn('etcd')
export const postgres = storeOn('postgres')
export const redis = storeOn('redis')
