// The table of benchmarks: groups of parts. `npm run bench -- NAME` takes either. A part gets `report(row)` and settings: `quick`, the number of `rounds` in turns with
// its peers, and `forSeconds`, the length of a round.
import { agents } from './agents.mjs'
import { cold } from './cold.mjs'
import { filePairs, garbage, memoryPairs, reopen, requests } from './embedded.mjs'
import { faceConsul } from './face-consul.mjs'
import { faceEtcd } from './face-etcd.mjs'
import { faceRedis } from './face-redis.mjs'
import { http } from './http.mjs'
import * as idle from './idle.mjs'
import { kubernetes } from './kubernetes.mjs'
import { handOver, limits, takeover } from './latency.mjs'
import { library } from './library.mjs'
import { memory } from './memory.mjs'
import { redisBenchmark, renewals } from './native.mjs'
import { page } from './page.mjs'
import { pools } from './pools.mjs'
import { python } from './python.mjs'
import { registry } from './registry.mjs'
import { registryServer } from './registry-server.mjs'
import { connections, lapses, renewing, watchers } from './scale.mjs'
import { inFlight, oneAtATime } from './servers.mjs'
import { shell } from './shell.mjs'
import * as stores from './stores.mjs'

export const groups = {
  servers: {
    title: 'Locks per second, beside other servers',
    parts: { 'in-flight': inFlight },
    // Starting the peers takes longer than measuring them.
    keepsEnginesFor: 'latency',
  },
  latency: {
    title: 'The time of one lease, and of the next grant',
    parts: { 'one-at-a-time': oneAtATime, takeover, 'hand-over': handOver, cold, limits },
  },
  native: {
    title: 'The server, without our client',
    parts: { 'redis-benchmark': redisBenchmark, renewals, http },
  },
  embedded: {
    title: 'Inside one process',
    parts: { 'memory-pairs': memoryPairs, 'file-pairs': filePairs, request: requests, garbage, reopen, library, shell },
  },
  stores: {
    title: 'On a shared engine, beside its own locks',
    parts: { 'store-etcd': stores.etcd, 'store-postgres': stores.postgres, 'store-redis': stores.redis },
  },
  idle: {
    title: 'Processes that only hold a lease',
    parts: {
      'idle-cpu': idle.cpu,
      'idle-many': idle.many,
      'idle-transactions': idle.transactions,
      'idle-connections': idle.connections,
      'idle-takeover': idle.takeover,
    },
  },
  scale: {
    title: 'Many leases, connections and waiters',
    parts: { memory, lapses, renewing, connections, watchers, pools, page },
  },
  registry: {
    title: 'The registry',
    parts: { 'registry-cache': registry, 'registry-server': registryServer },
  },
  faces: {
    title: 'Other clients: Redis, etcd, Consul, Kubernetes, Python, agents',
    parts: { 'face-redis': faceRedis, 'face-etcd': faceEtcd, 'face-consul': faceConsul, kubernetes, python, agents },
  },
}

export const settingsOf = quick => (quick ? { quick, rounds: 2, forSeconds: 0.2 } : { quick, rounds: 5, forSeconds: 1.5 })
