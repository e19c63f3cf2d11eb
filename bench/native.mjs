// The server from outside our own client: redis-benchmark beside Redis, and renewals in batches beside PEXPIRE. Every acknowledgement is durable on both sides.
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { propose } from '../dist/lessor/propose.js'
import { engine } from './contenders.mjs'
import { acquireOf, startServer } from './leasehold.mjs'
import { throughput, using } from './measure.mjs'
import { debianProgram } from './peers/provide.mjs'
import { redisLock } from './peers/redis.mjs'
import { inRounds } from './rounds.mjs'
import { atLeast } from './row.mjs'

const execute = promisify(execFile)
const DURABLE = 'appendonly yes, appendfsync always'
const FROM_MEMORY = 'Leasehold writes the first renewal of a lease and answers the next ones from memory; PEXPIRE is synced each time'

let runs = 0

/** Requests per second by redis-benchmark. RUN in a word becomes a number that no other run has: redis-benchmark draws the same random names in each of its runs. */
async function benchmarked(program, { port, count, words }) {
  const run = String(++runs)
  const said = words.map(word => word.replace('RUN', run))
  const args = ['-p', String(port), '-c', '50', '-P', '16', '-n', String(count), '-r', '1000000000', '-q', '--csv', ...said]
  const { stdout, stderr } = await execute(program, args, { timeout: 80_000 })
  // It ends at the first error, with code 1 or without its last line.
  // Its last line: "name","requests per second",…
  const figure = Number(stdout.trim().split('\n').at(-1).split('","')[1])
  if (!(figure > 0)) throw new Error(`redis-benchmark ${said.join(' ')}: ${stdout}${stderr}`)
  return { value: figure, count }
}

/** redis-benchmark with pipelines of 16 on 50 connections. */
export async function redisBenchmark(report, { quick, rounds }) {
  const program = await debianProgram('redis-benchmark', ['redis-tools'])
  const redis = await engine('redis')
  await using(startServer(), async server => {
    const about = `Redis ${redis.version}, ${DURABLE}`
    const asking = ({ port, words, count }) => benchmarked(program, { port, count, words })
    const compare = async (name, want, count, ours, theirs, how) => {
      const figures = await inRounds(
        { name, port: server.port, pids: server.pids, words: ours, count },
        [
          {
            name: `Redis, ${theirs[0] === 'SET' ? 'SET NX PX' : theirs[0]}`,
            about,
            want,
            port: redis.port,
            pids: redis.pids,
            words: theirs,
            count,
          },
        ],
        // The server is still being compiled.
        { rounds, measure: asking, warmUp: contender => asking({ ...contender, count: 2.5 * count }) },
      )
      report({ name, unit: 'requests/s', about: how, ...figures })
    }
    const key = 'k/RUN/__rand_int__/__rand_int__'
    await compare(
      'redis-benchmark -c 50 -P 16: LEASE.ACQUIRE',
      atLeast(0.6),
      quick ? 20_000 : 60_000,
      ['LEASE.ACQUIRE', key, 'TTL', '600000'],
      ['SET', key, 'x', 'NX', 'PX', '600000'],
    )
    const { lease } = await using(server.connect(), lessor => propose(lessor, acquireOf('renewed', 600_000)))
    await using(redisLock(redis), ({ raw }) => raw.set('renewed', 'x', { expiration: { type: 'PX', value: 600_000 } }))
    await compare(
      'redis-benchmark -c 50 -P 16: LEASE.RENEW',
      atLeast(1.4),
      quick ? 60_000 : 200_000,
      ['LEASE.RENEW', String(lease)],
      ['PEXPIRE', 'renewed', '600000'],
      FROM_MEMORY,
    )
  })
}

/** Renewals of many leases at once, as our client sends them. */
export async function renewals(report, { quick, rounds, forSeconds }) {
  const count = quick ? 20_000 : 100_000
  const redis = await engine('redis')
  await using(startServer(), server =>
    using(server.connect(), lessor =>
      using(redisLock(redis), async ({ raw }) => {
        const ids = []
        for (let i = 0; i < count; i += 1_000)
          ids.push(
            ...(await Promise.all(Array.from({ length: 1_000 }, (_, j) => propose(lessor, acquireOf(`r/${i + j}`, 600_000))))).map(
              ({ lease }) => lease,
            ),
          )
        const batches = Array.from({ length: count / 1_000 }, (_, i) => ids.slice(i * 1_000, (i + 1) * 1_000))
        for (const leases of batches) await propose(lessor, { kind: 'renew', leases })
        for (let i = 0; i < 1_000; i++) await raw.set(`p:${i}`, 'x', { expiration: { type: 'PX', value: 600_000 } })
        const batch = (lane, i) => propose(lessor, { kind: 'renew', leases: batches[(lane * 7 + i) % batches.length] })
        const single = (lane, i) => raw.pExpire(`p:${(lane * 31 + i) % 1_000}`, 600_000)
        const measure = ({ each, inFlight, times }) => throughput(each, { inFlight, forSeconds, warmUp: 0 }).then(done => done * times)
        const figures = await inRounds(
          { each: batch, inFlight: 8, times: 1_000 },
          [
            {
              name: 'Redis, PEXPIRE with npm redis, 256 in flight',
              about: DURABLE,
              want: atLeast(25),
              each: single,
              inFlight: 256,
              times: 1,
            },
          ],
          { rounds, measure },
        )
        report({
          name: `renewals in batches of 1,000, ${count.toLocaleString('en')} live leases`,
          unit: 'leases/s',
          about: FROM_MEMORY,
          ...figures,
        })
      }),
    ),
  )
}
