// Benchmark of a server in its own process on an owned file, with our client, with redis-benchmark and with thousands of connections, compared with Redis
// with its append-only file synced at every write, in one run. Every acknowledgement is durable on both sides.
import { execFile, fork } from 'node:child_process'
import { once } from 'node:events'
import { connect } from 'node:net'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { createClient } from 'redis'
import { RemoteLessor } from '../dist/wire/resp/client.js'
import { serverAddressOf } from '../dist/wire/resp/dial.js'
import { folder, freePort, start } from './engine.mjs'
import { percentile, scratch, seconds, throughput, using } from './measure.mjs'

const run = promisify(execFile)
const program = new URL('./server-child.mjs', import.meta.url)

async function leasehold(name) {
  const child = fork(program, [join(scratch, `${name}.db`)], { execArgv: ['--max-semi-space-size=64'] }) // as `npm start`
  const [{ port }] = await once(child, 'message')
  const ask = async what => {
    child.send(what)
    const [message] = await once(child, 'message')
    return message
  }
  return {
    port,
    connect: () => RemoteLessor.open(serverAddressOf(`leasehold://127.0.0.1:${port}`)),
    figures: () => ask('figures'),
    inUse: () => ask('in use'),
    async [Symbol.asyncDispose]() {
      const gone = once(child, 'exit')
      child.kill('SIGTERM')
      await gone
    },
  }
}

async function redis() {
  const port = await freePort()
  const cwd = folder('redis-server')
  const settings = { bind: '127.0.0.1', port, dir: cwd, appendonly: 'yes', appendfsync: 'always', save: '' }
  const connected = async () => {
    const client = createClient({ url: `redis://127.0.0.1:${port}`, socket: { reconnectStrategy: false } })
    client.on('error', () => {}) // while Redis starts
    return client.connect()
  }
  const answers = async () => {
    const client = await connected()
    client.destroy()
    return true
  }
  const args = Object.entries(settings).flatMap(([name, value]) => [`--${name}`, String(value)])
  const running = await start('redis-server', args, { cwd, answers })
  const client = await connected()
  return {
    port,
    client,
    async [Symbol.asyncDispose]() {
      client.destroy()
      await running[Symbol.asyncDispose]()
    },
  }
}

const acquire = (resource, ttl = 30_000) => ({ kind: 'acquire', holder: 'bench', ttl, wants: [{ resource }] })
const middle = list =>
  percentile(
    [...list].sort((a, b) => a - b),
    0.5,
  )

/** Alternates both, because a disk may be ten times slower a minute later. Returns the median of each. */
async function inTurns(ours, theirs, turns = 3) {
  const a = []
  const b = []
  for (let i = 0; i < turns; i++) {
    a.push(await ours())
    b.push(await theirs())
  }
  return [middle(a), middle(b)]
}

async function oneClient(report, server, other) {
  await using(server.connect(), async lessor => {
    const pair = async (lane, i) => {
      const granted = await lessor.propose(acquire(`lane/${lane}/${i % 16}`))
      await lessor.propose({ kind: 'release', lease: granted.lease })
    }
    const locked = async (lane, i) => {
      const key = `lane:${lane}:${i % 16}`
      await other.client.set(key, 'x', { condition: 'NX', expiration: { type: 'PX', value: 30_000 } })
      await other.client.del(key)
    }
    const each = { inFlight: 256, forSeconds: 2 }
    await throughput(pair, { ...each, forSeconds: 4 }) // a new server is still being compiled
    const [ours, theirs] = await inTurns(
      () => throughput(pair, each),
      () => throughput(locked, each),
    )
    report('server: acquire and release, one client, 256 in flight', 2 * ours, 'commands/s', {
      target: 'at least 3, about 100,000 a second',
      ratio: ours / theirs,
      against: 'SET NX PX and DEL with npm redis',
    })
    const latency = async ask => {
      const took = []
      const end = seconds() + 1
      for (let i = 0; seconds() < end; i++) {
        const began = seconds()
        await ask(i)
        took.push(seconds() - began)
      }
      return middle(took) * 1e6
    }
    const [p50, redis50] = await inTurns(
      () => latency(i => lessor.propose(acquire(`one/${i}`, 1_000))),
      () => latency(i => other.client.set(`one:${i}`, 'x', { condition: 'NX', expiration: { type: 'PX', value: 1_000 } })),
    )
    report('server: acquire one at a time, p50', p50, 'µs', {
      target: 'within 1.3',
      ratio: p50 / redis50,
      against: 'SET NX PX with npm redis',
    })
  })
}

async function renewals(report, server, other) {
  const count = 100_000
  await using(server.connect(), async lessor => {
    const ids = []
    for (let i = 0; i < count; i += 1_000)
      ids.push(
        ...(await Promise.all(Array.from({ length: 1_000 }, (_, j) => lessor.propose(acquire(`r/${i + j}`, 600_000))))).map(
          ({ lease }) => lease,
        ),
      )
    const batches = Array.from({ length: count / 1_000 }, (_, i) => ids.slice(i * 1_000, (i + 1) * 1_000))
    for (const leases of batches) await lessor.propose({ kind: 'renew', leases })
    for (let i = 0; i < 1_000; i++) await other.client.set(`p:${i}`, 'x', { expiration: { type: 'PX', value: 600_000 } })
    const [ours, theirs] = await inTurns(
      () =>
        throughput((lane, i) => lessor.propose({ kind: 'renew', leases: batches[(lane * 7 + i) % batches.length] }), {
          inFlight: 8,
          forSeconds: 1.5,
        }),
      () => throughput((lane, i) => other.client.pExpire(`p:${(lane * 31 + i) % 1_000}`, 600_000), { inFlight: 256, forSeconds: 1.5 }),
    )
    report('server: renewals in batches, 100,000 leases alive', 1_000 * ours, 'leases/s', {
      target: 'at least 25, about 1,000,000 a second',
      ratio: (1_000 * ours) / theirs,
      against: 'PEXPIRE with npm redis',
    })
    return ids
  })
}

async function benchmarked(report, server, other) {
  const { stdout } = await run('redis-cli', ['-p', String(server.port), '--json', '-3', 'LEASE.ACQUIRE', 'bench', 'TTL', '600000'])
  const { lease } = JSON.parse(stdout)
  await run('redis-cli', ['-p', String(other.port), 'SET', 'bench', 'x', 'PX', '600000'])
  const ask =
    (port, count, ...words) =>
    async () => {
      const args = ['-p', String(port), '-c', '50', '-P', '16', '-n', String(count), '-r', '1000000000', '-q', '--csv', ...words]
      const { stdout: csv, stderr } = await run('redis-benchmark', args)
      // Its last line: "name","requests per second",…
      const figure = Number(csv.trim().split('\n').at(-1).split('","')[1])
      if (!(figure > 0)) throw new Error(`redis-benchmark says ${csv}${stderr}`)
      return figure
    }
  const name = 'k/__rand_int__/__rand_int__'
  await ask(server.port, 100_000, 'LEASE.ACQUIRE', name, 'TTL', '600000')() // the server is still being compiled
  const [acquired, set] = await inTurns(
    ask(server.port, 40_000, 'LEASE.ACQUIRE', name, 'TTL', '600000'),
    ask(other.port, 40_000, 'SET', name, 'x', 'NX', 'PX', '600000'),
  )
  report('server: redis-benchmark -c 50 -P 16 LEASE.ACQUIRE', acquired, 'requests/s', {
    target: 'level',
    ratio: acquired / set,
    against: 'SET NX PX',
  })
  const [renewed, expired] = await inTurns(
    ask(server.port, 100_000, 'LEASE.RENEW', String(lease)),
    ask(other.port, 100_000, 'PEXPIRE', 'bench', '600000'),
  )
  report('server: redis-benchmark -c 50 -P 16 LEASE.RENEW', renewed, 'requests/s', {
    target: 'level',
    ratio: renewed / expired,
    against: 'PEXPIRE',
  })
}

const encode = (...words) => `*${words.length}\r\n${words.map(word => `$${String(word).length}\r\n${word}\r\n`).join('')}`

/** Each connection holds a lease and renews it for longer than its ttl. */
async function manyConnections(report, server, { count = 10_000, ttl = 12_000, forSeconds = 15 } = {}) {
  const sockets = []
  let gone = 0
  let renewed = 0
  const late = []
  for (let i = 0; i < count; i++) {
    const socket = connect({ port: server.port, host: '127.0.0.1' })
    // A connection that is cut counts as lapsed, below.
    socket.on('error', () => gone++)
    let text = ''
    let lease
    let asked = 0
    socket.on('data', chunk => {
      text += chunk
      if (!text.endsWith('\r\n')) return
      const [, number] = /lease\r\n:(\d+)/.exec(text) ?? []
      if (number !== undefined) lease = number
      else {
        renewed++
        late.push(seconds() - asked)
        if (!text.startsWith('*1\r\n:') || text.includes(':-1')) gone++
      }
      text = ''
    })
    sockets.push({
      socket,
      renew() {
        if (lease === undefined) return // the lease is not granted yet
        asked = seconds()
        socket.write(encode('LEASE.RENEW', lease))
      },
    })
    socket.write(encode('LEASE.ACQUIRE', `c/${i}`, 'TTL', ttl))
    if (i % 100 === 99) await new Promise(resolve => setImmediate(resolve))
    if (i % 1_000 === 999) await new Promise(resolve => setTimeout(resolve, 20))
  }
  const until = seconds() + forSeconds
  // One round takes a quarter of the ttl, evenly spread.
  const steps = 30
  for (let step = 0; seconds() < until; step++) {
    for (let i = step % steps; i < count; i += steps) sockets[i].renew()
    await new Promise(resolve => setTimeout(resolve, ttl / 4 / steps))
  }
  const { connections } = await server.figures()
  for (const { socket } of sockets) socket.destroy()
  if (connections < count) throw new Error(`${connections} connections were open`)
  late.sort((a, b) => a - b)
  report(`server: ${count.toLocaleString('en')} connections, each renewing: lapses`, gone, 'lapses', { target: 'none' })
  report('server: the same, renewals answered within, p99', percentile(late, 0.99) * 1_000, 'ms')
  if (renewed < count) throw new Error(`only ${renewed} renewals were answered`)
}

async function deafWatchers(report, server, { watchers = 100, events = 200_000 } = {}) {
  const sockets = Array.from({ length: watchers }, () => connect({ port: server.port, host: '127.0.0.1' }))
  for (const socket of sockets) {
    socket.write(encode('LEASE.WATCH', ''))
    await once(socket, 'data')
    socket.pause()
  }
  await using(server.connect(), async lessor => {
    const { lease } = await lessor.propose(acquire('watched', 3_600_000))
    await lessor.propose({ kind: 'renew', leases: [lease] })
    const value = 'v'.repeat(100)
    const pour = async count => {
      for (let i = 0; i < count; i += 1_000)
        await Promise.all(Array.from({ length: 1_000 }, (_, j) => lessor.propose({ kind: 'put', lease, key: `k/${(i + j) % 100}`, value })))
    }
    await pour(events / 2)
    const inUse = async () => {
      const { heapUsed, external } = await server.inUse()
      return heapUsed + external
    }
    const before = await inUse()
    await pour(events / 2)
    const after = await inUse()
    report(
      `server: ${watchers} watchers that do not read, growth over ${(events / 2).toLocaleString('en')} events`,
      (after - before) / (1 << 20),
      'MiB in use',
      { target: 'flat' },
    )
  })
  for (const socket of sockets) socket.destroy()
}

export async function server(report) {
  await using(redis(), async other => {
    await using(leasehold('one'), ours => oneClient(report, ours, other))
    await using(leasehold('renewals'), ours => renewals(report, ours, other))
    await using(leasehold('benchmark'), ours => benchmarked(report, ours, other))
  })
  await using(leasehold('connections'), ours => manyConnections(report, ours))
  await using(leasehold('watchers'), ours => deafWatchers(report, ours))
}
