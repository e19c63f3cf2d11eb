// Benchmark of the Redis face: a durable lock and unlock through redlock, beside Redis with its append-only file synced at every write.
import { engine } from './contenders.mjs'
import { startServer } from './leasehold.mjs'
import { throughput, using } from './measure.mjs'
import { redlock } from './peers/redis.mjs'
import { inRounds, perSecond } from './rounds.mjs'
import { atLeast } from './row.mjs'

const LANES = [1, 64]

/** Measures the same work through a face and with the real peer, one at a time and with many in flight. */
export async function compareFace(report, { name, want, face, peer, settings: { rounds, forSeconds } }) {
  for (const inFlight of LANES) {
    const measure = lock =>
      perSecond(() =>
        throughput(
          async (lane, i) => {
            const key = `bench/${lane}/${i % 16}`
            await lock.release(key, await lock.acquire(key))
          },
          { inFlight, forSeconds, warmUp: 0 },
        ),
      )
    const figures = await inRounds(face, [{ ...peer, want }], { rounds, measure })
    report({ name: `${name}, ${inFlight} at a time`, unit: 'pairs/s', ...figures })
  }
}

export async function faceRedis(report, settings) {
  const running = await engine('redis')
  await using(startServer({ faces: 'redis' }), server =>
    using(redlock({ ...server, version: 'of Leasehold' }), face =>
      using(redlock(running), peer =>
        compareFace(report, {
          name: 'Redis face: durable lock and unlock through redlock',
          want: atLeast(0.6),
          face: { ...face, pids: server.pids },
          peer: { ...peer, pids: running.pids, name: 'Redis, fsync always' },
          settings,
        }),
      ),
    ),
  )
}
