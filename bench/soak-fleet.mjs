// `npm run soak -- fleet [--leases 100000] [--keys 50] [--for 1800] [--every 60]`: what clients notice when servers and members of etcd are restarted all the time.
//
// Three servers share an etcd of three members. Clients of `--keys` keys hold `--leases` leases with a ttl of 30 s. Every `--every` seconds the servers are restarted,
// one after the other, and a member of etcd is killed and started again. Meanwhile a client acquires and releases a free name in turn with each key, and the first list of
// the dashboard is read from each server that is up. It prints a line for each turn, and fails if a lease is lost.
import { spawn } from 'node:child_process'
import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { setTimeout as pause } from 'node:timers/promises'
import { parseArgs } from 'node:util'
import { connect } from '../dist/library/index.js'
import { endsWithRun, folder, freePort } from './engine.mjs'
import { percentile } from './measure.mjs'
import { startEtcd } from './peers/etcd.mjs'

const { values } = parseArgs({
  allowPositionals: true,
  options: {
    leases: { type: 'string', default: '100000' },
    keys: { type: 'string', default: '50' },
    for: { type: 'string', default: '1800' },
    every: { type: 'string', default: '60' },
  },
})
const [LEASES, KEYS, SECONDS, EVERY] = [values.leases, values.keys, values.for, values.every].map(Number)
const SERVERS = 3
const TTL = 30_000
/** Acquisitions under way in one client while the leases are made. */
const AT_ONCE = 32
/** Between two acquisitions of the client that measures pauses, in ms. */
const PROBE_EVERY = 50
const READ_EVERY = 1_000
/** The first list of the dashboard. */
const LIST = '/v1/rows?of=leases&sort=-waiters'
const PROGRAM = new URL('../dist/cli/leasehold.js', import.meta.url).pathname

const place = folder('fleet')
// Snapshots of many leases fill etcd's history, which its documentation recommends to compact.
const compacted = ['--auto-compaction-mode=periodic', '--auto-compaction-retention=1m', '--quota-backend-bytes=8000000000']
const etcd = await startEtcd(3, { more: compacted })
const store = `etcd://${etcd.ports.map(port => `127.0.0.1:${port}`).join(',')}`
const admin = `lh_${randomBytes(32).toString('base64url')}`
const secretFile = join(place, 'admin')
writeFileSync(secretFile, admin, { mode: 0o600 })

function run(...args) {
  return endsWithRun(spawn(process.execPath, [PROGRAM, ...args], { stdio: ['ignore', 'ignore', 'inherit'], cwd: place }))
}

const [created] = await once(
  run('key', 'create', '--store', store, '--name', 'admin', '--allow', 'admin', '--secret-file', secretFile),
  'exit',
)
if (created !== 0) throw new Error('the first key could not be created')

async function ask(port, target, { key = admin, body } = {}) {
  const answer = await fetch(`http://127.0.0.1:${port}${target}`, {
    headers: { authorization: `Bearer ${key}`, ...(body && { 'content-type': 'application/json' }) },
    ...(body && { method: 'POST', body: JSON.stringify(body) }),
  })
  const text = await answer.text()
  if (!answer.ok) throw new Error(`${target}: ${answer.status} ${text}`)
  return text
}

/** The other servers learn of a new key a moment after the one that created it. */
async function knows(port, key) {
  while (!(await ask(port, '/v1/whoami', { key }).catch(() => undefined))) await pause(10)
}

const servers = []
async function startServer(i) {
  const { port } = servers[i]
  const child = run('serve', '--store', store, '--listen', `127.0.0.1:${port}`, '--log-level', 'error')
  servers[i].child = child
  while (child.exitCode === null)
    try {
      await ask(port, '/readyz')
      servers[i].isUp = true
      return
    } catch {
      await pause(50)
    }
  throw new Error(`server ${i} ended with ${child.exitCode}`)
}

async function restartServer(i) {
  const server = servers[i]
  server.isUp = false
  const ended = once(server.child, 'exit')
  server.child.kill('SIGTERM')
  await ended
  await startServer(i)
}

for (let i = 0; i < SERVERS; i++) servers.push({ port: await freePort(), child: undefined, isUp: false })
await Promise.all(servers.map((_, i) => startServer(i)))
const url = `leasehold://${servers.map(({ port }) => `127.0.0.1:${port}`).join(',')}`

let over = false
let lost = 0
const clients = []
for (let i = 0; i < KEYS; i++) {
  const body = { name: `team-${i}`, allow: [{ verb: 'acquire', prefix: `team-${i}` }] }
  const { key } = JSON.parse(await ask(servers[0].port, '/v1/keys', { body }))
  await Promise.all(servers.map(({ port }) => knows(port, key)))
  clients.push(await connect(url, { apiKey: key, holder: `team-${i}` }))
}

const filling = performance.now()
const held = []
await Promise.all(
  clients.map(async (leases, i) => {
    const own = Math.floor((LEASES * (i + 1)) / KEYS) - Math.floor((LEASES * i) / KEYS)
    let next = 0
    const lane = async () => {
      while (next < own) {
        const lease = await leases.acquire(`team-${i}/${next++}`, { ttl: TTL })
        held.push(lease)
        lease.signal.addEventListener('abort', () => {
          if (!over) lost++
        })
      }
    }
    await Promise.all(Array.from({ length: AT_ONCE }, lane))
  }),
)
console.log(
  `${held.length} leases of ${KEYS} keys on ${SERVERS} servers, acquired in ${((performance.now() - filling) / 1_000).toFixed(0)} s`,
)

/** The times that a free name took, each until it was granted: a failed attempt is followed by the next. */
let pauses = []
let failed = 0
async function probe() {
  for (let i = 0; !over; i++) {
    const began = performance.now()
    for (;;) {
      try {
        const lease = await clients[i % KEYS].acquire(`team-${i % KEYS}/free`, { ttl: TTL })
        pauses.push(performance.now() - began)
        await lease.release()
        break
      } catch {
        failed++
        await pause(PROBE_EVERY)
      }
    }
    await pause(PROBE_EVERY)
  }
}

let lists = []
async function readLists() {
  while (!over) {
    for (const { port, isUp } of servers) {
      if (!isUp) continue
      const began = performance.now()
      await ask(port, LIST).then(
        () => lists.push(performance.now() - began),
        () => {}, // it is being restarted
      )
    }
    await pause(READ_EVERY)
  }
}

const background = [probe(), readLists()]
const all = { pauses: [], lists: [] }
console.log('turn   acquisitions  p50 ms  p99 ms  longest ms   lists  longest ms   failed  lost')
const began = performance.now()
for (let turn = 1; performance.now() - began < SECONDS * 1_000; turn++) {
  const next = pause(EVERY * 1_000)
  const member = turn % 3
  await etcd.kill(member)
  for (let i = 0; i < SERVERS; i++) await restartServer(i)
  await etcd.restart(member)
  await next
  const [taken, read] = [pauses.sort((a, b) => a - b), lists.sort((a, b) => a - b)]
  pauses = []
  lists = []
  all.pauses.push(...taken)
  all.lists.push(...read)
  const at = (sorted, share) => (percentile(sorted, share) ?? 0).toFixed(0)
  console.log(
    [
      ...[String(turn).padStart(4), String(taken.length).padStart(14), at(taken, 0.5).padStart(7), at(taken, 0.99).padStart(7)],
      ...[
        at(taken, 1).padStart(11),
        String(read.length).padStart(7),
        at(read, 1).padStart(11),
        String(failed).padStart(8),
        String(lost).padStart(5),
      ],
    ].join(' '),
  )
}
over = true
await Promise.all(background)
const longest = list => Math.max(0, ...list).toFixed(0)
console.log(
  `${all.pauses.length} acquisitions while everything was restarted in turn: longest pause ${longest(all.pauses)} ms (the aim is 3,000), ` +
    `longest first list ${longest(all.lists)} ms (the aim is 1,000), ${lost} of ${held.length} leases lost`,
)
process.exit(lost > 0 ? 1 : 0)
