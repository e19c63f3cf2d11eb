// Part of the stores benchmark: etcd with three members. Its own lock creates a key if it is absent, bound to a lease, and deletes it, through the same
// gateway, spread over all members.
import http from 'node:http'
import { EtcdStore } from '../dist/store/etcd/etcd.js'
import { START } from '../dist/store.js'
import { folder, freePort, start } from './engine.mjs'
import { seconds } from './measure.mjs'

const MEMBERS = 3
/** The number of connections with the best result. */
const CONNECTIONS = 64

const at = port => `http://127.0.0.1:${port}`

async function members() {
  const ports = []
  while (ports.length < 2 * MEMBERS) ports.push(await freePort())
  const peers = ports.splice(MEMBERS)
  const cluster = peers.map((peer, i) => `m${i}=${at(peer)}`).join(',')
  const healthy = async port => (await (await fetch(`${at(port)}/health`)).json()).health === 'true'
  const running = await Promise.all(
    ports.map((port, i) => {
      const cwd = folder(`etcd-${i}`)
      const args = [
        ...['--name', `m${i}`, '--data-dir', cwd, '--logger=zap', '--initial-cluster', cluster],
        ...['--listen-client-urls', at(port), '--advertise-client-urls', at(port)],
        ...['--listen-peer-urls', at(peers[i]), '--initial-advertise-peer-urls', at(peers[i])],
      ]
      return start('etcd', args, { cwd, answers: () => healthy(port), signal: 'SIGKILL' })
    }),
  )
  return { ports, [Symbol.asyncDispose]: () => Promise.all(running.map(member => member[Symbol.asyncDispose]())) }
}

/** The bare gateway: connections that stay open, and nothing around the call. */
export function gatewayCaller(agent) {
  return (port, path, body) =>
    new Promise((resolve, reject) => {
      const request = http.request({ host: '127.0.0.1', port, method: 'POST', path: `/v3${path}`, agent }, response => {
        const pieces = []
        response.on('data', piece => pieces.push(piece))
        response.on('error', reject)
        response.on('end', () => {
          const text = Buffer.concat(pieces).toString()
          if (response.statusCode === 200) resolve(JSON.parse(text))
          else reject(new Error(text))
        })
      })
      request.on('error', reject)
      request.end(JSON.stringify(body))
    })
}

const base64 = text => Buffer.from(text).toString('base64')

export async function etcd() {
  const engine = await members()
  const { ports } = engine
  const agent = new http.Agent({ keepAlive: true, maxSockets: CONNECTIONS })
  const call = gatewayCaller(agent)
  const { ID: lease } = await call(ports[0], '/lease/grant', { TTL: 600 })
  const value = Buffer.alloc(100, 7).toString('base64')
  const on = (name, first = 0) => {
    const endpoints = ports.map((_, i) => `127.0.0.1:${ports[(first + i) % MEMBERS]}`)
    return Object.assign(new EtcdStore({ endpoints, name }), { bench: name })
  }
  let logs = 0
  return {
    store: ({ beside } = {}) => (beside === undefined ? on(`bench/${++logs}`) : on(beside.bench, 1)),
    loops: [
      {
        name: "etcd's own lock",
        target: 20,
        async each(lane, i) {
          const port = ports[lane % MEMBERS]
          const key = base64(`lock/${lane}/${i % 16}`)
          const { succeeded } = await call(port, '/kv/txn', {
            compare: [{ key, target: 'CREATE', create_revision: '0' }],
            success: [{ request_put: { key, value: '', lease } }],
            failure: [{ request_range: { key } }],
          })
          if (!succeeded) throw new Error(`${lane}/${i % 16} is held`)
          await call(port, '/kv/deleterange', { key })
        },
      },
    ],
    write: { name: 'a put', each: () => call(ports[0], '/kv/put', { key: base64('smallest'), value }) },
    push: 50,
    more: report =>
      together(
        report,
        [0, 1, 2].map(first => on('together', first)),
      ),
    async [Symbol.asyncDispose]() {
      agent.destroy()
      await engine[Symbol.asyncDispose]()
    },
  }
}

/** How often each of several competing proposers succeeds. */
async function together(report, stores) {
  await Promise.all(stores.map(store => store.open()))
  const end = seconds() + 2
  const turns = await Promise.all(
    stores.map(async store => {
      let [after, done] = [START, 0]
      for (; seconds() < end; done++) after = (await store.append(Buffer.alloc(100, 7), after)).position
      return done
    }),
  )
  for (const store of stores) await store[Symbol.asyncDispose]()
  report('etcd: three replicas append at once, total', turns.reduce((sum, n) => sum + n) / 2, 'appends/s')
  report('etcd: the busiest of them compared with the least busy', Math.max(...turns) / Math.min(...turns), '×')
}
