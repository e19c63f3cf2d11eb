// Benchmark of the Kubernetes face: 10,000 node Leases that are renewed every 10 seconds, as kubelets do, with protobuf bodies. What it costs is the share of one core
// that the server uses, beside the share for as many requests that do nothing.
import { Agent, request } from 'node:http'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { cpuOf } from './cpu.mjs'
import { folder, freePort, start } from './engine.mjs'
import { percentile, seconds } from './measure.mjs'
import { atMost } from './row.mjs'

const PERIOD = 10
const LANES = 64
const program = fileURLToPath(new URL('../dist/cli/leasehold.js', import.meta.url))
const PATH = '/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases'
const TYPE = 'application/vnd.kubernetes.protobuf'

export async function kubernetes(report, { quick }) {
  const port = await freePort()
  const cwd = folder('kubernetes')
  const args = [
    'serve',
    '--face',
    'kubernetes',
    '--store',
    `file:${join(cwd, 'leases.db')}`,
    '--listen',
    `127.0.0.1:${port}`,
    '--log-level',
    'error',
  ]
  const agent = new Agent({ keepAlive: true, maxSockets: LANES })
  const ask = (...asked) => send(agent, port, ...asked)
  const server = await start(process.execPath, [program, ...args], {
    cwd,
    answers: async () => (await ask('GET', '/healthz')).status === 200,
  })
  try {
    await measured(report, ask, server.pids[0], quick ? { nodes: 2_000, forSeconds: 3 } : { nodes: 10_000, forSeconds: 30 })
  } finally {
    agent.destroy()
    await server[Symbol.asyncDispose]()
  }
}

async function measured(report, ask, pid, { nodes, forSeconds }) {
  const { encodeObject, decodeObject } = await import('../dist/face/kubernetes/messages.js')
  const leases = []
  const lease = i => ({
    kind: 'Lease',
    apiVersion: 'coordination.k8s.io/v1',
    metadata: { name: `node-${i}`, namespace: 'kube-node-lease' },
    spec: { holderIdentity: `node-${i}`, leaseDurationSeconds: 40, renewTime: now() },
  })
  await inLanes(nodes, async i => {
    const { status, bytes } = await ask('POST', PATH, encodeObject(lease(i)))
    if (status !== 201) throw new Error(`creating was answered ${status}`)
    leases[i] = decodeObject(bytes)
  })
  const waits = []
  const renew = async i => {
    const node = leases[i]
    node.spec.renewTime = now()
    const began = seconds()
    const { status, bytes } = await ask('PUT', `${PATH}/node-${i}`, encodeObject(node))
    if (status !== 200) throw new Error(`a renewal was answered ${status}`)
    waits.push((seconds() - began) * 1_000)
    leases[i] = decodeObject(bytes)
  }
  await paced(nodes, Math.min(PERIOD, forSeconds), renew)
  waits.length = 0
  const share = await shareOf(pid, () => paced(nodes, forSeconds, renew))
  const bare = await shareOf(pid, () => paced(nodes, forSeconds, () => ask('GET', '/healthz')))
  const rate = (nodes / PERIOD).toLocaleString('en')
  report({
    name: `${nodes.toLocaleString('en')} node leases renewed every ${PERIOD} s: of one core`,
    unit: '%',
    value: share,
    want: atMost(10),
    peers: [{ name: `${rate} requests/s that do nothing`, value: bare }],
  })
  waits.sort((a, b) => a - b)
  report({ name: 'a node lease is renewed and durable: p50', unit: 'ms', value: percentile(waits, 0.5) })
  report({ name: 'a node lease is renewed and durable: p99', unit: 'ms', value: percentile(waits, 0.99) })
}

function now() {
  return `${new Date().toISOString().slice(0, 23)}000Z`
}

/** Renews every node once in each period, evenly, for so many seconds. */
async function paced(nodes, forSeconds, each) {
  const began = seconds()
  const running = new Set()
  for (let next = 0; seconds() - began < forSeconds; ) {
    const due = Math.floor(((seconds() - began) / PERIOD) * nodes)
    for (; next < due; next++) {
      const one = each(next % nodes).finally(() => running.delete(one))
      running.add(one)
    }
    await sleep(2)
  }
  await Promise.all(running)
}

async function shareOf(pid, work) {
  const used = cpuOf(pid)
  const began = seconds()
  await work()
  return (cpuOf(pid) - used) / (seconds() - began) / 10
}

async function inLanes(count, each) {
  let next = 0
  const lane = async () => {
    while (next < count) await each(next++)
  }
  await Promise.all(Array.from({ length: LANES }, lane))
}

function send(agent, port, method, path, body) {
  const headers = { accept: TYPE, ...(body !== undefined && { 'content-type': TYPE, 'content-length': body.length }) }
  return new Promise((resolve, reject) => {
    const asked = request({ agent, port, method, path, headers, host: '127.0.0.1' }, reply => {
      const chunks = []
      reply.on('data', chunk => chunks.push(chunk))
      reply.on('error', reject)
      reply.on('end', () => resolve({ status: reply.statusCode, bytes: Buffer.concat(chunks) }))
    })
    // The server may close an idle connection at the moment when it is used again.
    asked.on('error', error => (asked.reusedSocket ? resolve(send(agent, port, method, path, body)) : reject(error)))
    asked.end(body)
  })
}
