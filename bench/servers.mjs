// Locks per second and the time of one lock, of every server that we can compare with, from one process with the client that programs use.
import { peers, withContenders } from './contenders.mjs'
import { throughput } from './measure.mjs'
import { inRounds, perSecond, timed } from './rounds.mjs'
import { atLeast, atMost } from './row.mjs'

const IN_FLIGHT = 256
/** Names that each lane uses in turn, so that no lane waits for another. */
const NAMES = 16

const nameOf = ({ key = 'leasehold' }, lane, i) => `${key}/${lane}/${i % NAMES}`
const wanting = (others, wants) => others.map(other => ({ ...other, want: wants[other.key] }))

const pairOf = contender => async (lane, i) => {
  const name = nameOf(contender, lane, i)
  await contender.release(name, await contender.acquire(name))
}

/** Acquire and release with 256 in flight. */
export async function inFlight(report, { quick, rounds, forSeconds }) {
  await withContenders(Object.keys(peers), { quick }, async (ours, others) => {
    const wants = { redis: atLeast(2.1), valkey: atLeast(1), zookeeper: atLeast(15), etcd: atLeast(40), 'postgres-row': atLeast(20) }
    const figures = await inRounds(ours, wanting(others, wants), {
      rounds,
      measure: contender => perSecond(() => throughput(pairOf(contender), { inFlight: IN_FLIGHT, forSeconds, warmUp: 0 })),
      slowAfter: 8_000 * forSeconds,
      // A new server of ours is still being compiled. Peers open their connections.
      warmUp: contender =>
        throughput(pairOf(contender), {
          ...(contender === ours ? { inFlight: IN_FLIGHT, forSeconds: 3 * forSeconds } : { inFlight: 16, forSeconds }),
          warmUp: 0,
        }),
    })
    report({ name: 'acquire and release, 256 in flight', unit: 'pairs/s', about: ours.about, ...figures })
  })
}

/** The time of an acquisition, with nothing else in flight. */
export async function oneAtATime(report, { quick, rounds, forSeconds }) {
  await withContenders(Object.keys(peers), { quick }, async (ours, others) => {
    const wants = { redis: atMost(1.6), valkey: atMost(2.2), 'postgres-row': atMost(1.1), zookeeper: atMost(1) }
    const measure = contender =>
      timed(i => contender.acquire(nameOf(contender, 'one', i)), {
        forSeconds: forSeconds / 2,
        after: (i, lease) => contender.release(nameOf(contender, 'one', i), lease),
      })
    const figures = await inRounds(ours, wanting(others, wants), { rounds, measure })
    report({ name: 'acquire, one at a time: p50', unit: 'µs', about: ours.about, ...figures })
    // Half of what a pair took when each append passed a thread with SQLite.
    const name = "the server's processor time for an acquire and release, one at a time"
    report({ name, unit: 'µs', rounds: figures.cpu, want: atMost(300) })
  })
}
