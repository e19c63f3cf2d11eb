// Many leases, connections and watchers at once: what each costs, and whether leases are kept and end in time.
import { once } from 'node:events'
import { connect as connectTo } from 'node:net'
import { connect } from '../dist/index.js'
import { propose } from '../dist/lessor/propose.js'
import { inMemory } from './embedded.mjs'
import { acquireOf, startServer } from './leasehold.mjs'
import { percentile, seconds, using } from './measure.mjs'
import { atMost } from './row.mjs'

/** Measures how late the ends of many leases without renewals come. */
export async function lapses(report, { quick }) {
  const count = quick ? 20_000 : 100_000
  const setUp = quick ? 3 : 6
  const within = quick ? 2 : 10
  const due = new Map()
  const late = []
  const stop = new AbortController()
  await using(inMemory(), async replica => {
    const watching = (async () => {
      for await (const events of replica.watch('', { signal: stop.signal })) {
        const now = seconds()
        for (const { type, lease } of events) if (type === 'lapsed') late.push((now - due.get(lease)) * 1_000)
        if (late.length >= count) return
      }
    })()
    const began = seconds()
    for (let i = 0; i < count; i += 1_000) {
      await Promise.all(
        Array.from({ length: 1_000 }, async (_, j) => {
          const ttl = setUp * 1_000 + Math.floor(((i + j) / count) * within * 1_000)
          const { lease } = await propose(replica, acquireOf(`n/${i + j}`, ttl))
          due.set(lease, seconds() + ttl / 1_000)
        }),
      )
    }
    if (seconds() - began > setUp) throw new Error('too slow to set up: nothing can be said about lateness')
    await watching
    stop.abort()
  })
  late.sort((a, b) => a - b)
  const name = `${count.toLocaleString('en')} leases end within ${within} s: lateness`
  report({ name: `${name}, p50`, unit: 'ms', value: percentile(late, 0.5) })
  report({ name: `${name}, p99`, unit: 'ms', value: percentile(late, 0.99), want: atMost(50) })
}

/** Measures what it costs a process to keep its leases. */
export async function renewing(report, { quick }) {
  const count = quick ? 20_000 : 100_000
  const forSeconds = quick ? 5 : 30
  await using(connect('memory:bench-renewing'), async leases => {
    const held = []
    for (let i = 0; i < count; i += 1_000)
      held.push(...(await Promise.all(Array.from({ length: 1_000 }, (_, j) => leases.acquire(`n/${i + j}`, { ttl: '30s' })))))
    const before = { ...leases.stats }
    const cpu = process.cpuUsage()
    const began = seconds()
    await new Promise(resolve => setTimeout(resolve, forSeconds * 1_000))
    const took = seconds() - began
    const { user, system } = process.cpuUsage(cpu)
    const { messages, renewals } = leases.stats
    if (held.some(lease => lease.signal.aborted)) throw new Error('a lease was lost')
    const name = `${count.toLocaleString('en')} leases with a ttl of 30 s, kept in memory`
    report({ name: `${name}: of one core`, unit: '%', value: (user + system) / 1e4 / took, want: atMost(5) })
    const value = (renewals - before.renewals) / Math.max(1, messages - before.messages)
    report({ name: `${name}: leases in a message`, unit: 'leases', value })
  })
}

const encode = (...words) => `*${words.length}\r\n${words.map(word => `$${String(word).length}\r\n${word}\r\n`).join('')}`

/** Each connection holds a lease and renews it for longer than its ttl. */
export async function connections(report, { quick }) {
  const count = quick ? 2_000 : 10_000
  const ttl = quick ? 4_000 : 12_000
  const forSeconds = quick ? 5 : 15
  await using(startServer(), async server => {
    const sockets = []
    let gone = 0
    let renewed = 0
    const late = []
    for (let i = 0; i < count; i++) {
      const socket = connectTo({ port: server.port, host: '127.0.0.1' })
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
    const { connections: open } = await server.figures()
    for (const { socket } of sockets) socket.destroy()
    if (open < count) throw new Error(`${open} connections were open`)
    if (renewed < count) throw new Error(`only ${renewed} renewals were answered`)
    late.sort((a, b) => a - b)
    const name = `${count.toLocaleString('en')} connections, each renewing`
    report({ name: `${name}: leases lost`, unit: 'leases', value: gone, want: atMost(0) })
    report({ name: `${name}: a renewal is answered within, p99`, unit: 'ms', value: percentile(late, 0.99) * 1_000 })
  })
}

/** Watchers that do not read must cost the server nothing. */
export async function watchers(report, { quick }) {
  const watching = 100
  const events = quick ? 5_000 : 100_000
  // Until the server keeps as many events for watches that resume as it ever will.
  const before = 100_000
  await using(startServer(), async server => {
    const sockets = Array.from({ length: watching }, () => connectTo({ port: server.port, host: '127.0.0.1' }))
    for (const socket of sockets) {
      socket.on('error', () => {}) // the server cuts a watcher that does not read
      socket.write(encode('LEASE.WATCH', ''))
      await once(socket, 'data')
      socket.pause()
    }
    await using(server.connect(), async lessor => {
      const { lease } = await propose(lessor, acquireOf('watched', 3_600_000))
      await propose(lessor, { kind: 'renew', leases: [lease] })
      const value = 'v'.repeat(100)
      const pour = async count => {
        for (let i = 0; i < count; i += 1_000)
          await Promise.all(
            Array.from({ length: 1_000 }, (_, j) => propose(lessor, { kind: 'put', lease, key: `k/${(i + j) % 100}`, value })),
          )
      }
      const inUse = async () => {
        const { heapUsed, external } = await server.inUse()
        return heapUsed + external
      }
      await pour(before)
      const used = await inUse()
      await pour(events)
      const grown = ((await inUse()) - used) / (1 << 20)
      const name = `${watching} watchers that do not read: growth over ${events.toLocaleString('en')} events`
      report({ name, unit: 'MiB', value: grown, want: atMost(4) })
    })
    for (const socket of sockets) socket.destroy()
  })
}
