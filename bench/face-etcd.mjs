// Benchmark of the etcd face: a lock and unlock as etcd3gw makes them (a transaction that creates a key on a lease, and one that deletes it), through the JSON
// gateway, beside a real etcd with one member.
import http from 'node:http'
import { folder, freePort, start } from './engine.mjs'
import { beside, faceServer } from './face-redis.mjs'
import { throughput } from './measure.mjs'
import { gatewayCaller } from './stores-etcd.mjs'

const base64 = text => Buffer.from(text).toString('base64')

async function etcdServer() {
  const [port, peer] = [await freePort(), await freePort()]
  const at = number => `http://127.0.0.1:${number}`
  const cwd = folder('face-etcd-peer')
  const args = [
    ...['--name', 'm', '--data-dir', cwd, '--logger=zap', '--initial-cluster', `m=${at(peer)}`],
    ...['--listen-client-urls', at(port), '--advertise-client-urls', at(port)],
    ...['--listen-peer-urls', at(peer), '--initial-advertise-peer-urls', at(peer)],
  ]
  const answers = async () => (await (await fetch(`${at(port)}/health`)).json()).health === 'true'
  const running = await start('etcd', args, { cwd, answers, signal: 'SIGKILL' })
  return { port, [Symbol.asyncDispose]: () => running[Symbol.asyncDispose]() }
}

async function pairs({ port }, inFlight) {
  const agent = new http.Agent({ keepAlive: true, maxSockets: inFlight })
  try {
    const gateway = gatewayCaller(agent)
    const call = (path, body) => gateway(port, `/${path}`, body)
    const { ID: lease } = await call('lease/grant', { TTL: 600 })
    const each = async (lane, i) => {
      const key = base64(`/locks/${lane}/${i % 16}`)
      const value = base64(`${lane}-${i}`)
      const { succeeded } = await call('kv/txn', {
        compare: [{ key, result: 'EQUAL', target: 'CREATE', create_revision: 0 }],
        success: [{ request_put: { key, value, lease } }],
        failure: [{ request_range: { key } }],
      })
      if (!succeeded) throw new Error('the lock is held')
      const released = await call('kv/txn', {
        compare: [{ key, result: 'EQUAL', target: 'VALUE', value }],
        success: [{ request_delete_range: { key } }],
      })
      if (!released.succeeded) throw new Error('the lock was lost')
    }
    return await throughput(each, { inFlight })
  } finally {
    agent.destroy()
  }
}

export async function faceEtcd(report) {
  const what = { title: 'lock and unlock as etcd3gw does', target: 'at least 5 ×', against: 'etcd, through its gateway' }
  await beside(report, await faceServer('etcd'), await etcdServer(), pairs, what)
}
