// Benchmark of the registry on a server in its own process, on a file: 100,000 instances with heartbeats in batches of 100, lists among them, how soon a
// watching client learns that an instance died or left, and 20,000 agents that return at once after an outage.
//
// It measures the heartbeats of a whole ttl and waits for an outage of 90 seconds, so it takes minutes. A quick run has fewer instances and a short outage.
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { Agent, request } from 'node:http'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { cpuOf } from './cpu.mjs'
import { endsWithRun, folder, freePort, start } from './engine.mjs'
import { percentile, seconds } from './measure.mjs'
import { atMost } from './row.mjs'

const SERVICES = 1_000
const BATCH = 100
const TTL = 30
const program = fileURLToPath(new URL('../dist/cli/leasehold.js', import.meta.url))

/** Starts `leasehold serve` on a file in this folder, on this port. */
async function serve(cwd, port) {
  const args = ['serve', '--store', `file:${join(cwd, 'leases.db')}`, '--listen', `127.0.0.1:${port}`, '--log-level', 'error']
  const agent = new Agent({ keepAlive: true, maxSockets: 64 })
  const ask = (...asked) => send(agent, port, ...asked)
  const answers = async () => (await ask('GET', '/healthz')).status === 200
  const running = await start(process.execPath, [program, ...args], { cwd, answers })
  return {
    ask,
    pids: running.pids,
    async [Symbol.asyncDispose]() {
      agent.destroy()
      await running[Symbol.asyncDispose]()
    },
  }
}

function send(agent, port, method, path, body) {
  const text = body === undefined ? undefined : JSON.stringify(body)
  const headers = text === undefined ? {} : { 'content-type': 'application/json', 'content-length': Buffer.byteLength(text) }
  return new Promise((resolve, reject) => {
    const asked = request({ agent, port, method, path, headers, host: '127.0.0.1' }, reply => {
      const chunks = []
      reply.on('data', chunk => chunks.push(chunk))
      reply.on('error', reject)
      reply.on('end', () => resolve({ status: reply.statusCode, text: Buffer.concat(chunks).toString() }))
    })
    // The server may close an idle connection at the moment when it is used again.
    asked.on('error', error => (asked.reusedSocket ? resolve(send(agent, port, method, path, body)) : reject(error)))
    asked.end(text)
  })
}

const names = i => ({ service: `s${i % SERVICES}`, instance: `i${i}` })

async function register(ask, i) {
  const { service, instance } = names(i)
  const said = { address: `http://10.0.${i % 256}.1:8080`, capabilities: ['all', `c${i % SERVICES}`], tags: ['blue'], zone: `eu/${i % 3}` }
  const { status, text } = await ask('PUT', `/v1/services/${service}/${instance}`, { ...said, ttl: `${TTL}s` })
  if (status !== 201 && status !== 200) throw new Error(`registering was answered ${status}: ${text}`)
}

/** Sends one request for a hundred instances. Those that are gone register again, as agents do. Returns how many were gone. */
async function beat(ask, first) {
  const { status, text } = await ask('POST', '/v1/heartbeats', { instances: Array.from({ length: BATCH }, (_, i) => names(first + i)) })
  if (status !== 200) throw new Error(`heartbeats were answered ${status}: ${text}`)
  const { gone } = JSON.parse(text)
  await inLanes(gone.length, 8, i => register(ask, Number(gone[i].instance.slice(1))))
  return gone.length
}

/** Calls `each` for 0 to `count` - 1, with `lanes` calls in progress at once. */
async function inLanes(count, lanes, each) {
  let next = 0
  await Promise.all(
    Array.from({ length: Math.min(lanes, count) }, async () => {
      while (next < count) await each(next++)
    }),
  )
}

/** Sends the heartbeats of `count` instances, each twice per ttl, evenly spread, until it is stopped. */
function keepAlive(ask, count) {
  const seen = { gone: 0, batches: 0 }
  let stopped = false
  const beats = (async () => {
    const underWay = new Set()
    let due = seconds()
    for (let first = 0; !stopped; first += BATCH) {
      if (first >= count()) first = 0
      due += (TTL / 2) * (BATCH / Math.max(BATCH, count()))
      await sleep(Math.max(0, due - seconds()) * 1e3)
      if (count() === 0) continue
      const one = beat(ask, first).then(gone => {
        seen.gone += gone
        seen.batches++
        underWay.delete(one)
      })
      one.catch(() => {}) // reported by the function that stops it
      underWay.add(one)
      if (underWay.size >= 32) await Promise.race(underWay)
    }
    await Promise.all(underWay)
  })()
  beats.catch(() => {}) // reported by the function that stops it
  return {
    seen,
    stop() {
      stopped = true
      return beats
    },
  }
}

/** Milliseconds of each call, sorted. */
async function timed(times, run) {
  const took = []
  for (let i = 0; i < times; i++) {
    const began = seconds()
    await run(i)
    took.push((seconds() - began) * 1e3)
  }
  return took.sort((a, b) => a - b)
}

async function lists(report, ask, instances) {
  for (const [what, query] of [
    ['by service', 'service=s7'],
    ['by capabilities, tag and status', 'capability=all,c7&tag=blue&status=passing'],
  ]) {
    const took = await timed(100, async () => {
      const { text } = await ask('GET', `/v1/discover?${query}`)
      if (JSON.parse(text).instances.length !== instances / SERVICES) throw new Error(`the list is not of ${instances / SERVICES}`)
    })
    const name = `GET ${instances / SERVICES} of ${instances.toLocaleString('en')} ${what}`
    report({ name: `${name}, p50`, unit: 'ms', value: percentile(took, 0.5), want: atMost(5) })
    report({ name: `${name}, p99`, unit: 'ms', value: percentile(took, 0.99) })
  }
}

/** Measures how long after an instance fell silent or left a watching client learns of it. */
async function ends(report, ask, port) {
  const program = fileURLToPath(new URL('./registry-watcher.mjs', import.meta.url))
  const watcher = endsWithRun(fork(program, [`leasehold://127.0.0.1:${port}`, 'mortal']))
  const gone = once(watcher, 'exit')
  try {
    const [{ ready }] = await once(watcher, 'message')
    report({ name: 'a client has loaded all instances and watches', unit: 'ms', value: ready * 1e3 })
    const removed = new Map()
    // Both processes read the machine's monotonic clock.
    watcher.on('message', ({ lost, at }) => removed.get(lost)?.(at))
    const end = async (i, silent) => {
      const path = `/v1/services/mortal-${i}/m${i}`
      const lost = new Promise(resolve => removed.set(`m${i}`, resolve))
      await ask('PUT', path, { address: 'a:1', capabilities: ['mortal'], ttl: '2s', grace: 0 })
      let sent = seconds()
      await ask('POST', `${path}/heartbeat`)
      if (!silent) {
        await sleep(50)
        sent = seconds()
        await ask('DELETE', path)
      }
      return ((await lost) - sent) * 1e3
    }
    const deaths = await Promise.all(Array.from({ length: 10 }, (_, i) => sleep(i * 150).then(() => end(i, true))))
    report({
      name: 'a client learns of a dead instance after its ttl, slowest of 10',
      unit: 'ms',
      value: Math.max(...deaths) - 2_000,
      want: atMost(100),
    })
    const leaves = []
    for (let i = 100; i < 120; i++) leaves.push(await end(i, false))
    leaves.sort((a, b) => a - b)
    report({ name: 'a client learns that an instance left, p50', unit: 'ms', value: percentile(leaves, 0.5), want: atMost(50) })
    report({ name: 'a client learns that an instance left, slowest of 20', unit: 'ms', value: leaves.at(-1) })
  } finally {
    if (watcher.connected) watcher.disconnect()
    await gone
  }
}

async function many(report, { quick }) {
  const instances = quick ? 5_000 : 100_000
  const said = instances.toLocaleString('en')
  const port = await freePort()
  const server = await serve(folder('registry'), port)
  // Instances that are registered send heartbeats while the others register.
  let registered = 0
  const kept = keepAlive(server.ask, () => Math.floor(registered / BATCH) * BATCH)
  try {
    let began = seconds()
    await inLanes(instances, 64, async i => {
      await register(server.ask, i)
      registered++
    })
    report({ name: `PUT ${said} instances, 64 connections`, unit: 'instances/s', value: instances / (seconds() - began) })
    await sleep(quick ? 1e3 : 5e3) // until the backlog is done
    Object.assign(kept.seen, { gone: 0, batches: 0 })
    const used = cpuOf(server.pids[0])
    began = seconds()
    await sleep((quick ? TTL / 6 : TTL) * 1e3)
    const share = (cpuOf(server.pids[0]) - used) / (seconds() - began) / 10
    const name = `${said} instances of ttl 30 s, heartbeats in batches of 100`
    report({ name: `${name}: of one core`, unit: '%', value: share, want: atMost(60) })
    report({ name: `${name}: sent`, unit: 'beats/s', value: (kept.seen.batches * BATCH) / (seconds() - began) })
    report({ name: `${name}: lapsed`, unit: 'instances', value: kept.seen.gone, want: atMost(0) })
    await lists(report, server.ask, instances)
    await ends(report, server.ask, port)
    await kept.stop()
  } finally {
    await kept.stop().catch(() => {})
    await server[Symbol.asyncDispose]()
  }
}

/** All at once, without jitter: worse than real agents behave. */
async function returning(report, { quick }) {
  const count = quick ? 2_000 : 20_000
  const outage = quick ? 1 : 90
  const port = await freePort()
  const place = folder('returning')
  const before = await serve(place, port)
  await inLanes(count, 64, i => register(before.ask, i))
  await before[Symbol.asyncDispose]()
  await sleep(outage * 1e3)
  const server = await serve(place, port)
  try {
    const began = seconds()
    let gone = 0
    await inLanes(count / BATCH, count / BATCH, async i => {
      const lapsed = await beat(server.ask, i * BATCH)
      gone += lapsed
    })
    const listed = async () =>
      JSON.parse((await server.ask('GET', '/v1/services')).text).services.reduce((sum, { instances }) => sum + instances, 0)
    const found = await listed()
    const name = `${count.toLocaleString('en')} agents return after ${outage} s`
    report({ name: `${name}: all heartbeats answered`, unit: 's', value: seconds() - began, want: atMost(30) })
    report({ name: `${name}: missing in the list`, unit: 'instances', value: count - found, want: atMost(0) })
    report({ name: `${name}: had lapsed`, unit: 'instances', value: gone, want: atMost(0) })
    if (quick) return
    const kept = keepAlive(server.ask, () => count)
    await sleep(TTL * 1.2 * 1e3)
    await kept.stop()
    report({ name: `${name}: lapsed in the ttl after that`, unit: 'instances', value: kept.seen.gone, want: atMost(0) })
  } finally {
    await server[Symbol.asyncDispose]()
  }
}

export async function registryServer(report, settings) {
  await many(report, settings)
  await returning(report, settings)
}
