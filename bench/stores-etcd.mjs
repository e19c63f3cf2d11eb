// Leasehold on three members of etcd beside etcd's own transactions, on the same members in the same run.
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import http from 'node:http'
import { createServer } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { Replica } from '../dist/replica/replica.js'
import { EtcdStore } from '../dist/store/etcd.js'
import { START } from '../dist/store.js'
import { percentile, scratch, seconds, throughput, using } from './measure.mjs'

const IN_FLIGHT = 1_024
const MEMBERS = 3

async function freePorts(count) {
  const probes = Array.from({ length: count }, () => createServer().listen(0, '127.0.0.1'))
  await Promise.all(probes.map(probe => once(probe, 'listening')))
  const ports = probes.map(probe => probe.address().port)
  await Promise.all(probes.map(probe => new Promise(resolve => probe.close(resolve))))
  return ports
}

/** Members of our own, gone with this process or at the end of `work`. */
async function withEtcd(work) {
  const all = await freePorts(2 * MEMBERS)
  const [ports, peers] = [all.slice(0, MEMBERS), all.slice(MEMBERS)]
  const at = port => `http://127.0.0.1:${port}`
  const cluster = peers.map((peer, i) => `m${i}=${at(peer)}`).join(',')
  const members = ports.map((port, i) =>
    spawn(
      'etcd',
      [
        ...['--name', `m${i}`, '--data-dir', join(scratch, `etcd-${port}`), '--logger=zap', '--initial-cluster', cluster],
        ...['--listen-client-urls', at(port), '--advertise-client-urls', at(port)],
        ...['--listen-peer-urls', at(peers[i]), '--initial-advertise-peer-urls', at(peers[i])],
      ],
      { stdio: 'ignore' },
    ),
  )
  const end = () => {
    for (const member of members) member.kill('SIGKILL')
  }
  process.once('exit', end)
  try {
    const healthy = async port => (await (await fetch(`${at(port)}/health`)).json()).health === 'true'
    for (
      const until = seconds() + 30;
      !(await Promise.all(ports.map(healthy)).then(
        answers => answers.every(Boolean),
        () => false,
      ));
    ) {
      if (seconds() > until) throw new Error('etcd does not come up')
      await sleep(50)
    }
    await work(ports)
  } finally {
    process.off('exit', end)
    end()
    await Promise.all(members.map(member => member.exitCode ?? member.signalCode ?? once(member, 'exit')))
  }
}

/** The gateway as plainly as can be: connections that stay open, nothing around the call. */
const agent = new http.Agent({ keepAlive: true, maxSockets: 64 })
function call(port, path, body) {
  return new Promise((resolve, reject) => {
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

function middle(list) {
  return percentile(
    list.sort((a, b) => a - b),
    0.5,
  )
}

/** etcd's lock: a key made if it is not there, bound to a lease that all share, and deleted. */
async function bareLocks(ports) {
  const { ID: lease } = await call(ports[0], '/lease/grant', { TTL: 60 })
  return throughput(
    async (lane, i) => {
      const port = ports[lane % MEMBERS]
      const key = base64(`lock/${lane}/${i % 16}`)
      const { succeeded } = await call(port, '/kv/txn', {
        compare: [{ key, target: 'CREATE', create_revision: '0' }],
        success: [{ request_put: { key, value: '', lease } }],
        failure: [{ request_range: { key } }],
      })
      if (!succeeded) throw new Error('held')
      await call(port, '/kv/deleterange', { key })
    },
    { inFlight: IN_FLIGHT, forSeconds: 2 },
  )
}

function leases(replica) {
  return throughput(
    async (lane, i) => {
      const wants = [{ resource: `lane/${lane}/${i % 16}` }]
      const granted = await replica.propose({ kind: 'acquire', holder: 'bench', ttl: 30_000, wants })
      await replica.propose({ kind: 'release', lease: granted.lease })
    },
    { inFlight: IN_FLIGHT, forSeconds: 2 },
  )
}

async function locks(report, ports, endpoints) {
  const [bare, ours] = [[], []]
  await using(Replica.open(new EtcdStore({ endpoints, name: 'locks' })), async replica => {
    // In turns, since a disk may be ten times slower a minute later.
    for (let turn = 0; turn < 2; turn++) {
      bare.push(await bareLocks(ports))
      ours.push(await leases(replica))
    }
  })
  report('etcd itself: create a key if absent, delete it, 1,024 in flight', middle(bare), 'pairs/s')
  report('etcd: acquire + release, 1,024 in flight', middle(ours), 'pairs/s', {
    target: 'at least 20',
    ratio: middle(ours) / middle(bare),
    against: 'etcd itself',
  })
}

/** From the question at one replica to the event at another. */
async function push(report, endpoints) {
  const open = first => Replica.open(new EtcdStore({ endpoints: [...endpoints.slice(first), ...endpoints.slice(0, first)], name: 'push' }))
  await using(open(0), one =>
    using(open(1), async other => {
      const took = []
      const stop = new AbortController()
      let asked = 0
      let heard = () => {}
      const watching = (async () => {
        for await (const _ of other.watch('', { signal: stop.signal })) {
          took.push((seconds() - asked) * 1_000)
          heard()
        }
      })()
      await sleep(100)
      for (let i = 0; i < 500; i++) {
        const told = new Promise(resolve => (heard = resolve))
        asked = seconds()
        await Promise.all([one.propose({ kind: 'acquire', holder: 'bench', ttl: 60_000, wants: [{ resource: `n/${i}` }] }), told])
      }
      stop.abort()
      await watching
      took.sort((a, b) => a - b)
      report('etcd: from asking one replica to the news at another: p50', percentile(took, 0.5), 'ms')
      report('etcd: from asking one replica to the news at another: p99', percentile(took, 0.99), 'ms', { target: 'under 50' })
    }),
  )
}

async function one(report, ports, endpoints) {
  const store = new EtcdStore({ endpoints, name: 'one' })
  await store.open()
  const bytes = Buffer.alloc(80, 'x')
  const value = bytes.toString('base64')
  let after = START
  const bare = () => call(ports[0], '/kv/put', { key: base64('smallest'), value })
  const ours = async () => (after = (await store.append(bytes, after)).position)
  const took = new Map([bare, ours].map(each => [each, []]))
  // One after the other, in both orders: what disturbs the machine disturbs both.
  for (const end = seconds() + 6; seconds() < end; )
    for (const each of [bare, ours, ours, bare]) {
      const began = seconds()
      await each()
      took.get(each).push((seconds() - began) * 1_000)
    }
  await store[Symbol.asyncDispose]()
  const [put, append] = [middle(took.get(bare)), middle(took.get(ours))]
  report('etcd itself: one put, p50', put, 'ms')
  report('etcd: one append, p50', append, 'ms', {
    target: 'at most 1.3',
    ratio: append / put,
    against: 'the time of a put',
  })
}

/** How often each of several replicas gets its turn while all of them want it. */
async function together(report, endpoints) {
  const stores = endpoints.map((_, i) => new EtcdStore({ endpoints: [...endpoints.slice(i), ...endpoints.slice(0, i)], name: 'together' }))
  await Promise.all(stores.map(store => store.open()))
  const end = seconds() + 2
  const turns = await Promise.all(
    stores.map(async store => {
      let [after, done] = [START, 0]
      for (; seconds() < end; done++) after = (await store.append(Buffer.alloc(80, 'x'), after)).position
      return done
    }),
  )
  for (const store of stores) await store[Symbol.asyncDispose]()
  report('etcd: three that append at once, together', turns.reduce((sum, n) => sum + n) / 2, 'appends/s')
  report('etcd: three that append at once, the busiest beside the least', Math.max(...turns) / Math.min(...turns), '×')
}

export async function etcd(report) {
  await withEtcd(async ports => {
    const endpoints = ports.map(port => `127.0.0.1:${port}`)
    await locks(report, ports, endpoints)
    await push(report, endpoints)
    await one(report, ports, endpoints)
    await together(report, endpoints)
  })
  agent.destroy()
}
