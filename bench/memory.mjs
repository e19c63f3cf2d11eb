// What a million leases cost: bytes each, and the price of a renewal beside that with a thousand.
import { Replica } from '../dist/replica/replica.js'
import { MemoryStore } from '../dist/store/memory.js'
import { heapInUse, seconds, using } from './measure.mjs'

async function fill(replica, count, from = 0) {
  const ids = new Float64Array(count)
  for (let i = 0; i < count; i += 5_000) {
    const outcomes = await Promise.all(
      Array.from({ length: Math.min(5_000, count - i) }, (_, j) =>
        replica.propose({ kind: 'acquire', holder: 'bench', ttl: 86_400_000, wants: [{ resource: `lease/${from + i + j}` }] }),
      ),
    )
    for (const [j, { lease }] of outcomes.entries()) ids[i + j] = lease
  }
  // The first renewal goes to the log and makes the term a long one.
  for (let i = 0; i < count; i += 5_000) await replica.propose({ kind: 'renew', leases: [...ids.subarray(i, i + 5_000)] })
  return ids
}

/** ns for one renewal, in batches of a hundred in random order. */
async function renewals(replica, ids, forSeconds = 2) {
  let n = 12_345
  const batch = () =>
    Array.from({ length: 100 }, () => {
      n = (Math.imul(n, 1_103_515_245) + 12_345) >>> 0
      return ids[n % ids.length]
    })
  const began = seconds()
  let done = 0
  while (seconds() - began < forSeconds) {
    const outcome = await replica.propose({ kind: 'renew', leases: batch() })
    if (outcome.ttls.some(ttl => ttl < 0)) throw new Error('a lease is gone')
    done += 100
  }
  return ((seconds() - began) / done) * 1e9
}

export async function memory(report) {
  const open = () =>
    Replica.open(new MemoryStore({ own: { name: 'bench' } }), { owned: true, events: 1_000, snapshotEntries: 1e9, snapshotBytes: 1e15 })
  const few = await using(open(), async replica => {
    const ids = await fill(replica, 1_000)
    await renewals(replica, ids, 0.5)
    return renewals(replica, ids)
  })
  report('renewal with 1,000 leases', few, 'ns')
  await using(open(), async replica => {
    const before = heapInUse()
    const ids = await fill(replica, 1_000_000)
    // The heap alone: the bytes of the log, which are on disk anywhere else, lie outside of it.
    report('a million live leases: memory for each', (heapInUse() - before) / 1e6, 'bytes', { target: 'at most 700' })
    await renewals(replica, ids, 0.5)
    const many = await renewals(replica, ids)
    report('renewal with 1,000,000 leases', many, 'ns', { target: 'at most 3', ratio: many / few, against: 'that with 1,000' })
  })
}
