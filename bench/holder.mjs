// Benchmark of the holder's side: what a held lease costs in addition to the lessor's work, on `memory:`.
import { readFileSync } from 'node:fs'
import { connect } from '../dist/index.js'
import { percentile, seconds, using } from './measure.mjs'

/** Microseconds per call of `each`, one at a time. */
async function microseconds(each, rounds = 50) {
  const began = seconds()
  for (let i = 0; i < rounds; i++) await each()
  return ((seconds() - began) / rounds) * 1e6
}

/** Alternates short turns and keeps the undisturbed ones of each, so that other work on the machine is not measured. */
async function requests(report) {
  await using(connect('memory:bench-request'), async leases => {
    const { lessor } = leases
    const bare = []
    const ours = []
    for (let turn = 0; turn < 400; turn++) {
      bare.push(
        await microseconds(async () => {
          const granted = await lessor.propose({ kind: 'acquire', holder: 'bare', ttl: 30_000, wants: [{ resource: 'bare' }] })
          await lessor.propose({ kind: 'release', lease: granted.lease })
        }),
      )
      ours.push(await microseconds(() => leases.request('ours', () => {})))
    }
    for (const list of [bare, ours]) list.sort((a, b) => a - b)
    report('request on a free name, in addition to acquire and release', percentile(ours, 0.05) - percentile(bare, 0.05), 'µs', {
      target: 'under 20',
    })
    report('request on a free name, in total', percentile(ours, 0.05), 'µs')
  })
}

/** How long this thread has waited for a core, in ms, to exclude turns that other work on the machine disturbed. 0 where the system does not tell. */
function queued() {
  try {
    return Number(readFileSync(`/proc/self/task/${process.pid}/schedstat`, 'utf8').split(' ')[1]) / 1e6
  } catch {
    return 0
  }
}

async function handOver(report) {
  await using(connect('memory:bench-hand-over'), async leases => {
    const took = []
    let holder = await leases.acquire('k')
    for (let i = -300; i < 1_000; i++) {
      const waiting = leases.acquire('k')
      while ((await leases.lessor.read({ kind: 'resource', resource: 'k' })).value.queue.length === 0) await new Promise(setImmediate)
      const before = queued()
      const began = seconds()
      void holder.release()
      holder = await waiting
      const ms = (seconds() - began) * 1_000
      // The first rounds would measure the compiler.
      if (i >= 0) took.push(ms - (queued() - before))
    }
    await holder.release()
    took.sort((a, b) => a - b)
    report('from release to the next in the queue: p50', percentile(took, 0.5), 'ms', { target: 'under 2' })
    report('from release to the next in the queue: p99', percentile(took, 0.99), 'ms', { target: 'under 2' })
  })
}

async function renewing(report) {
  const count = 100_000
  await using(connect('memory:bench-renewing'), async leases => {
    const held = []
    for (let i = 0; i < count; i += 1_000)
      held.push(...(await Promise.all(Array.from({ length: 1_000 }, (_, j) => leases.acquire(`n/${i + j}`, { ttl: '30s' })))))
    const before = { ...leases.stats }
    const cpu = process.cpuUsage()
    const began = seconds()
    await new Promise(resolve => setTimeout(resolve, 30_000))
    const took = seconds() - began
    const { user, system } = process.cpuUsage(cpu)
    const { messages, renewals } = leases.stats
    if (held.some(lease => lease.signal.aborted)) throw new Error('a lease was lost')
    report('100,000 leases at ttl 30 s: of one core', (user + system) / 1e4 / took, '%', { target: 'under 5, replica included' })
    report('100,000 leases at ttl 30 s: leases in a message', (renewals - before.renewals) / (messages - before.messages), 'leases', {
      target: '10,000',
    })
  })
}

export async function holder(report) {
  await requests(report)
  await handOver(report)
  await renewing(report)
}
