// Benchmark of the etcd face: a lock and unlock as etcd3gw makes them (a transaction that creates a key on a lease, and one that deletes it), through the JSON
// gateway, beside a real etcd with one member.
import http from 'node:http'
import { engine } from './contenders.mjs'
import { compareFace } from './face-redis.mjs'
import { startServer } from './leasehold.mjs'
import { using } from './measure.mjs'
import { base64, gatewayCaller } from './peers/etcd.mjs'
import { atLeast } from './row.mjs'

async function etcd3gwLock(port) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: 64 })
  const gateway = gatewayCaller(agent)
  const call = (path, body) => gateway(port, `/${path}`, body)
  const { ID: lease } = await call('lease/grant', { TTL: 600 })
  let locks = 0
  return {
    async acquire(name) {
      const key = base64(name)
      const value = base64(`${++locks}`)
      const { succeeded } = await call('kv/txn', {
        compare: [{ key, result: 'EQUAL', target: 'CREATE', create_revision: 0 }],
        success: [{ request_put: { key, value, lease } }],
        failure: [{ request_range: { key } }],
      })
      if (!succeeded) throw new Error(`${name} is held`)
      return value
    },
    async release(name, value) {
      const key = base64(name)
      const { succeeded } = await call('kv/txn', {
        compare: [{ key, result: 'EQUAL', target: 'VALUE', value }],
        success: [{ request_delete_range: { key } }],
      })
      if (!succeeded) throw new Error(`${name} was lost`)
    },
    async [Symbol.asyncDispose]() {
      agent.destroy()
    },
  }
}

export async function faceEtcd(report, settings) {
  const running = await engine('etcd', settings)
  await using(startServer({ faces: 'etcd' }), server =>
    using(etcd3gwLock(server.port), face =>
      using(etcd3gwLock(running.ports[0]), peer =>
        compareFace(report, {
          name: 'etcd face: lock and unlock as etcd3gw does',
          want: atLeast(1),
          face: { ...face, pids: server.pids },
          peer: { ...peer, pids: running.pids, name: 'etcd, one member, through its gateway', about: `etcd ${running.version}` },
          settings,
        }),
      ),
    ),
  )
}
