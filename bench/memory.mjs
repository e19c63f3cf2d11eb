// Benchmark of a million leases: bytes per lease, and the time of a renewal compared with a thousand leases.
import { propose } from '../dist/lessor/propose.js'
import { Replica } from '../dist/replica/replica.js'
import { MemoryStore } from '../dist/store/memory.js'
import { heapInUse } from './heap.mjs'
import { seconds, using } from './measure.mjs'
import { atMost } from './row.mjs'

async function fill(replica, count, from = 0) {
  const ids = new Float64Array(count)
  for (let i = 0; i < count; i += 5_000) {
    const outcomes = await Promise.all(
      Array.from({ length: Math.min(5_000, count - i) }, (_, j) =>
        propose(replica, { kind: 'acquire', holder: 'bench', ttl: 86_400_000, wants: [{ resource: `lease/${from + i + j}` }] }),
      ),
    )
    for (const [j, { lease }] of outcomes.entries()) ids[i + j] = lease
    // The first renewal is written to the log and makes the term a long one. Until then it is 30 s at most, and filling may take longer.
    await propose(replica, { kind: 'renew', leases: [...ids.subarray(i, i + outcomes.length)] })
  }
  return ids
}

/** Nanoseconds per renewal, with a hundred per message: of leases that were acquired together, like those of one holder, or of random ones. */
async function renewals(replica, ids, { together, forSeconds = 2 }) {
  let n = 12_345
  const random = most => {
    n = (Math.imul(n, 1_103_515_245) + 12_345) >>> 0
    return n % most
  }
  const batch = () => {
    const first = random(ids.length / 100) * 100
    return Array.from({ length: 100 }, (_, i) => ids[together ? first + i : random(ids.length)])
  }
  const began = seconds()
  let done = 0
  while (seconds() - began < forSeconds) {
    const outcome = await propose(replica, { kind: 'renew', leases: batch() })
    if (outcome.ttls.some(ttl => ttl < 0)) throw new Error('a lease is gone')
    done += 100
  }
  return ((seconds() - began) / done) * 1e9
}

export async function memory(report, { quick }) {
  const open = () =>
    Replica.open(new MemoryStore({ own: { name: 'bench' } }), { owned: true, events: 1_000, snapshotRecords: 1e9, snapshotBytes: 1e15 })
  const turns = quick ? 2 : 5
  const forSeconds = quick ? 0.4 : 1
  // Both states are kept, so that their rounds can take turns.
  await using(open(), small =>
    using(open(), async large => {
      const few = await fill(small, 1_000)
      const before = heapInUse().heapUsed
      const many = await fill(large, 1_000_000)
      // The heap only. The bytes of the log, which other stores have on disk, are outside of it.
      const value = (heapInUse().heapUsed - before) / 1e6
      report({ name: 'a million live leases: memory for each', unit: 'bytes', value, want: atMost(450) })
      for (const [order, together, want] of [
        ['those of a holder together', true, atMost(2)],
        ['in any order', false, undefined],
      ]) {
        await renewals(small, few, { together, forSeconds })
        await renewals(large, many, { together, forSeconds })
        const [rounds, base] = [[], []]
        for (let turn = 0; turn < turns; turn++) {
          base.push(await renewals(small, few, { together, forSeconds }))
          rounds.push(await renewals(large, many, { together, forSeconds }))
        }
        const name = `a renewal among a million leases, ${order}`
        report({ name, unit: 'ns', rounds, peers: [{ name: 'among a thousand', rounds: base, want }] })
      }
    }),
  )
}
