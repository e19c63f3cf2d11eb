// The table of contenders: every server whose locks are compared with Leasehold's, each through the client that programs use. Engines are started once, used by all
// benchmarks of a group, and stopped at its end.
//
// A contender has a `name`, `about` (version, client and durability), `acquire(name)`, `release(name, what acquire returned)` and an asynchronous dispose.
import { leasehold, startServer } from './leasehold.mjs'
import { consul, startConsul } from './peers/consul.mjs'
import { antietcd, etcd, etcdLock, startAntietcd, startEtcd } from './peers/etcd.mjs'
import { postgresAdvisory, postgresRow, startPostgres } from './peers/postgres.mjs'
import { redis, redlock, startRedis, valkey } from './peers/redis.mjs'
import { startZookeeper, zookeeper } from './peers/zookeeper.mjs'
import { oneLine } from './row.mjs'

const engines = {
  leasehold: () => startServer(),
  redis: () => startRedis('redis'),
  valkey: () => startRedis('valkey'),
  etcd: options => startEtcd(1, options),
  etcd3: options => startEtcd(3, options),
  zookeeper: startZookeeper,
  consul: startConsul,
  postgres: startPostgres,
  antietcd: startAntietcd,
}

const running = new Map()

/** An engine, started at its first use. Its failure is remembered, too. */
export function engine(kind, options) {
  if (!running.has(kind)) running.set(kind, engines[kind](options))
  return running.get(kind)
}

export async function stopEngines() {
  const stopping = [...running.values()]
  running.clear()
  for (const starting of stopping) await starting.then(each => each[Symbol.asyncDispose]()).catch(() => {})
}

const LEASEHOLD = { name: 'Leasehold', engine: 'leasehold', open: leasehold }

/** The peers by a short name. */
export const peers = {
  redis: { name: 'Redis, SET NX PX and DEL', engine: 'redis', open: redis },
  redlock: { name: 'Redis, redlock', engine: 'redis', open: redlock },
  valkey: { name: 'Valkey, SET NX PX and DEL', engine: 'valkey', open: valkey },
  etcd: { name: 'etcd, one member, transaction', engine: 'etcd', open: etcd },
  'etcd-lock': { name: 'etcd, one member, lock()', engine: 'etcd', open: etcdLock },
  etcd3: { name: 'etcd, three members, transaction', engine: 'etcd3', open: etcd },
  zookeeper: { name: 'ZooKeeper', engine: 'zookeeper', open: zookeeper },
  consul: { name: 'Consul', engine: 'consul', open: consul },
  'postgres-row': { name: 'Postgres, lock in a row', engine: 'postgres', open: postgresRow },
  'postgres-advisory': { name: 'Postgres, advisory lock (not durable)', engine: 'postgres', open: postgresAdvisory },
  antietcd: { name: 'antietcd', engine: 'antietcd', open: antietcd },
}

/** Opens a contender, or returns one that says why it failed. */
async function opened({ name, engine: kind, open }, options) {
  if (!running.has(kind)) console.error(`starting ${name}`)
  try {
    const server = await engine(kind, options)
    return { pids: server.pids, ...(await open(server)), name }
  } catch (error) {
    return { name, failed: oneLine(error?.message ?? error), [Symbol.asyncDispose]: async () => {} }
  }
}

/** Opens Leasehold and the peers of these names, hands them to `work`, and closes them. */
export async function withContenders(names, options, work) {
  // One after the other: two cores cannot start nine servers at once in the time that each of them allows itself.
  const ours = await opened(LEASEHOLD, options)
  const others = []
  for (const name of names) others.push({ ...(await opened(peers[name], options)), key: name })
  try {
    return await work(ours, others)
  } finally {
    // A client that cannot say goodbye, because its server is gone, harms no other.
    for (const each of [ours, ...others]) await each[Symbol.asyncDispose]().catch(() => {})
  }
}
