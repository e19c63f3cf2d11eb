// Waiting: from a release, and from the death of a holder, to the next grant; and what no lease service on this machine can go below, a sync of the disk and a round trip
// to another process.

import { fork } from 'node:child_process'
import { once } from 'node:events'
import { closeSync, fdatasyncSync, openSync, writeSync } from 'node:fs'
import { connect as connectTo } from 'node:net'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { connect } from '../dist/index.js'
import { propose } from '../dist/lessor/propose.js'
import { startEcho } from './echo-child.mjs'
import { endsWithRun, folder } from './engine.mjs'
import { acquireOf, startServer } from './leasehold.mjs'
import { queuedTime } from './loop-time.mjs'
import { percentile, seconds, using } from './measure.mjs'
import { microseconds } from './rounds.mjs'
import { atMost } from './row.mjs'

const self = fileURLToPath(import.meta.url)

/** From a release to the grant of the next in the queue. */
export async function handOver(report, { quick }) {
  const times = quick ? 300 : 1_000
  await using(connect('memory:bench-hand-over'), async leases => {
    const took = []
    let holder = await leases.acquire('k')
    for (let i = -300; i < times; i++) {
      const waiting = leases.acquire('k')
      while ((await leases.lessor.read({ kind: 'resource', resource: 'k' })).value.queue.length === 0) await new Promise(setImmediate)
      const before = queuedTime()
      const began = seconds()
      void holder.release()
      holder = await waiting
      const ms = (seconds() - began) * 1_000
      // The first rounds would measure the compiler.
      if (i >= 0) took.push(ms - (queuedTime() - before))
    }
    await holder.release()
    took.sort((a, b) => a - b)
    report({ name: 'from a release to the next in the queue, in memory: p50', unit: 'ms', value: percentile(took, 0.5), want: atMost(2) })
    report({ name: 'from a release to the next in the queue, in memory: p99', unit: 'ms', value: percentile(took, 0.99), want: atMost(2) })
  })
}

/** Holders in processes of their own die right after a renewal, the worst moment. Each has a waiter. */
export async function takeover(report, { quick }) {
  const holders = quick ? 5 : 20
  const ttl = 2_000
  await using(startServer(), server =>
    using(server.connect(), async lessor => {
      const late = []
      await Promise.all(
        Array.from({ length: holders }, async (_, i) => {
          await sleep(i * 100)
          const child = endsWithRun(fork(self, ['holder', server.url, `takeover/${i}`, String(ttl)]))
          const [{ lease }] = await once(child, 'message')
          const granted = new Promise((resolve, reject) => {
            const stop = AbortSignal.timeout(ttl * 10)
            stop.addEventListener('abort', () => reject(new Error('the waiter was not granted the lease')))
            ;(async () => {
              for await (const events of lessor.watch(`takeover/${i}`, { signal: stop }))
                if (events.some(event => event.type === 'granted' && event.lease !== lease)) return resolve(seconds())
            })().catch(reject)
          })
          await propose(lessor, { ...acquireOf(`takeover/${i}`, 60_000), wait: true })
          child.send('renew')
          await once(child, 'message')
          const died = seconds()
          child.kill('SIGKILL')
          late.push(((await granted) - died) * 1_000 - ttl)
        }),
      )
      late.sort((a, b) => a - b)
      const name = "from a holder's death to the next grant, beyond the ttl"
      report({ name: `${name}: median of ${holders}`, unit: 'ms', value: percentile(late, 0.5), want: atMost(20) })
      report({ name: `${name}: slowest`, unit: 'ms', value: late.at(-1), want: atMost(20) })
    }),
  )
}

/** A sync of the disk, and a round trip between two processes. */
export async function limits(report, { rounds, forSeconds }) {
  const file = openSync(join(folder('limits'), 'file'), 'a')
  const bytes = Buffer.alloc(4_096, 7)
  try {
    const took = []
    for (const end = seconds() + forSeconds; seconds() < end; ) {
      writeSync(file, bytes)
      const began = seconds()
      fdatasyncSync(file)
      took.push((seconds() - began) * 1e6)
    }
    took.sort((a, b) => a - b)
    report({ name: 'the disk: fdatasync after a write of 4 KiB, p50', unit: 'µs', value: percentile(took, 0.5) })
    report({ name: 'the disk: fdatasync after a write of 4 KiB, p99', unit: 'µs', value: percentile(took, 0.99) })
  } finally {
    closeSync(file)
  }
  const { child, port } = await startEcho()
  try {
    const socket = connectTo(port, '127.0.0.1').setNoDelay()
    await once(socket, 'connect')
    let answered = () => {}
    socket.on('data', () => answered())
    const trip = () =>
      new Promise(resolve => {
        answered = resolve
        socket.write(bytes.subarray(0, 64))
      })
    const trips = []
    for (let round = 0; round < rounds; round++) trips.push(await microseconds(trip, { forSeconds: forSeconds / 4 }))
    socket.destroy()
    report({ name: 'loopback: 64 bytes to another process of Node and back, p50', unit: 'µs', rounds: trips })
  } finally {
    child.kill('SIGKILL')
  }
}

if (process.argv[1] === self && process.argv[2] === 'holder') {
  const [, , , url, resource, ttl] = process.argv
  const { lessor } = await connect(url)
  const { lease } = await propose(lessor, { ...acquireOf(resource, Number(ttl)), holder: `holder of ${resource}` })
  process.on('message', async () => {
    await propose(lessor, { kind: 'renew', leases: [lease] })
    process.send({ renewed: true })
  })
  process.send({ lease })
}
