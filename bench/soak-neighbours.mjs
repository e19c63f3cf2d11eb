// `npm run soak -- neighbours [--copies 8] [--part 1] [--only TEXT] [--held 200000 [--for 600]]`: what every operation of the server costs a client of another key, in milliseconds.
//
// A server in a process of its own has the large state of test/support/neighbours/ (`--part 0.1`: a tenth of it). Each operation is asked for in several copies
// at once, by a key that may do everything and by one that may do nothing, while a client of a third key holds leases with a ttl of 2 s and renews one every 25 ms.
// It prints, for each operation, the longest turn of the server's event loop and the latencies of that client. It fails if the client loses a lease: if the server
// says that a lease is gone. A renewal without an answer after 3 s is counted apart: on a busy machine, that says nothing.
//
// `--held N`: instead, N leases with a ttl of 30 s are acquired on 500 connections of RESP and renewed for `--for` seconds, while the dashboard is read and a backup
// is taken again and again. It fails if one of them is lost.
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { Agent, request } from 'node:http'
import { connect } from 'node:net'
import { setTimeout as pause } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { parseArgs } from 'node:util'
import { operationsFor } from '../test/support/neighbours/operations.mjs'

const { values } = parseArgs({
  allowPositionals: true,
  options: {
    copies: { type: 'string', default: '8' },
    part: { type: 'string', default: '1' },
    only: { type: 'string', default: '' },
    held: { type: 'string', default: '' },
    for: { type: 'string', default: '600' },
  },
})
const copies = Number(values.copies)
const TTL = 2_000
const HELD = 20
const EVERY = 25
/** A client that has no whole answer by then leaves. */
const PATIENCE = 3_000
const secretOf = key => `secret-of-${key}`

const child = fork(fileURLToPath(new URL('neighbours-server.mjs', import.meta.url)), [values.part], { stdio: 'inherit', execArgv: [] })
const [{ port, ids }] = await once(child, 'message')
const agent = new Agent({ keepAlive: true, maxSockets: 64 })
process.on('exit', () => child.kill())

function http(key, { method, target, body, headers = {} }) {
  const text = body === undefined ? undefined : JSON.stringify(body)
  return new Promise(resolve => {
    const asked = request({
      ...{ port, method, path: target, agent, timeout: PATIENCE },
      headers: { authorization: `Bearer ${secretOf(key)}`, ...(text !== undefined && { 'content-type': 'application/json' }), ...headers },
    })
    const leave = setTimeout(() => asked.destroy(), PATIENCE)
    asked.on('response', response => {
      let first = ''
      response.on('data', chunk => (first ||= String(chunk)))
      response.on('error', () => {})
      response.on('close', () => resolve({ status: response.statusCode, text: first }))
    })
    asked.on('error', () => resolve({ status: 0, text: '' }))
    asked.on('close', () => clearTimeout(leave))
    asked.end(text)
  })
}

async function resp(key, words) {
  const socket = connect(port, '127.0.0.1').on('error', () => {})
  const write = parts =>
    socket.write(`*${parts.length}\r\n${parts.map(part => `$${Buffer.byteLength(String(part))}\r\n${part}\r\n`).join('')}`)
  write(['AUTH', secretOf(key)])
  write(words)
  let bytes = 0
  let quiet = 0
  socket.on('data', chunk => {
    bytes += chunk.length
    quiet = 0
  })
  // Replies have no common end: the client leaves when nothing more comes.
  for (let waited = 0; waited < PATIENCE && !socket.destroyed && (bytes <= 5 || quiet++ < 4); waited += 20) await pause(20)
  socket.destroy()
}

const ask = (key, asked) => (asked.words === undefined ? http(key, asked) : resp(key, asked.words))

/** The neighbour: it holds leases, and renews one after another. */
const held = []
for (let i = 0; i < HELD; i++) {
  const { status, text } = await http('neighbour', {
    method: 'POST',
    target: '/v1/leases',
    body: { holder: 'neighbour', resources: [`neighbour/${i}`], ttl: TTL },
  })
  if (status !== 201) throw new Error(`the neighbour got ${status}: ${text}`)
  held.push(JSON.parse(text).lease)
}
let latencies = []
let lost = 0
let unanswered = 0
let over = false
async function renewAll() {
  for (let i = 0; !over; i = (i + 1) % HELD) {
    const began = performance.now()
    void http('neighbour', { method: 'POST', target: `/v1/leases/${held[i]}/renew` }).then(({ status }) => {
      latencies.push(performance.now() - began)
      if (status === 0) unanswered++
      else if (status !== 200) lost++
    })
    await pause(EVERY)
  }
}
const renewing = renewAll()

const at = (sorted, share) => sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? 0
async function longestTurn() {
  child.send('longest')
  const [{ longest }] = await once(child, 'message')
  return longest
}

if (values.held !== '') {
  const { holdFill } = await import('./soak-fill.mjs')
  const result = await holdFill({
    port,
    secret: secretOf('rich'),
    leases: Number(values.held),
    seconds: Number(values.for),
    ask: target => http('rich', { method: 'GET', target }),
  })
  over = true
  await renewing
  console.log(
    `${result.acquired} leases on ${result.connections} connections, acquired in ${result.fillSeconds.toFixed(0)} s and held for ${values.for} s: ` +
      `${result.renewals} renewals, ${result.lost} leases lost; ${result.reads} reads of the dashboard and ${result.backups} backups meanwhile; ` +
      `longest turn ${(await longestTurn()).toFixed(0)} ms; of the neighbour, ${unanswered} without an answer, ${lost} lost`,
  )
  agent.destroy()
  child.kill()
  process.exit(lost + result.lost > 0 || result.acquired < Number(values.held) ? 1 : 0)
}

const all = []
console.log('longest turn   p50     p99   of the neighbour, in ms; lost   operation')
for (const key of ['rich', 'poor'])
  for (const [index, { part, name, way = '' }] of operationsFor(ids, 0).entries()) {
    const title = `${part} ${name}${way === '' ? '' : ` (${way})`}, ${key} key`
    if (!title.includes(values.only)) continue
    await longestTurn()
    latencies = []
    const before = lost
    await Promise.all(
      Array.from({ length: copies }, (_, copy) => ask(key, operationsFor(ids, key === 'rich' ? copy : copy + copies)[index])),
    )
    await pause(4 * EVERY)
    const sorted = latencies.sort((a, b) => a - b)
    all.push(...sorted)
    const figures = [await longestTurn(), at(sorted, 0.5), at(sorted, 0.99)].map(ms => ms.toFixed(1).padStart(8))
    console.log(`${figures.join('')} ${String(lost - before).padStart(8)}   ${title}`)
  }
over = true
await renewing
await pause(PATIENCE)
all.sort((a, b) => a - b)
console.log(
  `${all.length} renewals: p50 ${at(all, 0.5).toFixed(1)} ms, p99 ${at(all, 0.99).toFixed(1)} ms (the aim is 250 ms), longest ${at(all, 1).toFixed(0)} ms; ${unanswered} without an answer, ${lost} lost`,
)
agent.destroy()
child.kill()
process.exitCode = lost > 0 ? 1 : 0
