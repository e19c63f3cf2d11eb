// Leases inside this process: a replica on `memory:` and on an owned `file:`, compared with a bare Map, bare SQLite, and the locks that npm has for one process or one
// machine.

import { fork } from 'node:child_process'
import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { connect } from '../dist/index.js'
import { apply } from '../dist/kernel/apply.js'
import { createState } from '../dist/kernel/state.js'
import { propose } from '../dist/lessor/propose.js'
import { Replica } from '../dist/replica/replica.js'
import { loadEngine } from '../dist/store/file/engine.js'
import { FileStore } from '../dist/store/file/file.js'
import { MemoryStore } from '../dist/store/memory.js'
import { engine } from './contenders.mjs'
import { endsWithRun, folder } from './engine.mjs'
import { heapInUse } from './heap.mjs'
import { acquireOf, lessorLock, startServer } from './leasehold.mjs'
import { percentile, rate, scratch, seconds, throughput, using } from './measure.mjs'
import { npmPackages, versionOf } from './peers/provide.mjs'
import { redlock } from './peers/redis.mjs'
import { inRounds, microseconds } from './rounds.mjs'
import { atLeast, atMost, oneLine } from './row.mjs'

const IN_FLIGHT = 1_000

export const inMemory = () => Replica.open(new MemoryStore({ own: { name: 'bench' } }), { owned: true })
export const inFile = name => Replica.open(new FileStore({ path: join(scratch(), name), own: { name: 'bench' } }), { owned: true })

const pairOf = lock => async (lane, i) => {
  const name = `lane/${lane}/${i % 16}`
  await lock.release(name, await lock.acquire(name))
}

/** A contender, or the reason why there is none. */
async function tried(name, open, more = {}) {
  try {
    return { name, ...more, ...(await open()) }
  } catch (error) {
    return { name, ...more, failed: oneLine(error?.message ?? error) }
  }
}

/** One mutex per name, as its readers use it. */
export async function asyncMutex() {
  const require = await npmPackages('async-mutex@0.5.0')
  const { Mutex } = require('async-mutex')
  const mutexes = new Map()
  return {
    about: `npm async-mutex ${versionOf(require, 'async-mutex')}: one process, no ttl, no token, nothing durable`,
    acquire(name) {
      if (!mutexes.has(name)) mutexes.set(name, new Mutex())
      return mutexes.get(name).acquire()
    },
    release: (_, free) => free(),
  }
}

/** One folder per lock. */
async function properLockfile() {
  const require = await npmPackages('proper-lockfile@4.1.2')
  const { lock } = require('proper-lockfile')
  const place = folder('proper-lockfile')
  writeFileSync(join(place, 'file'), '')
  const pathOf = name => join(place, name.replaceAll('/', '-'))
  return {
    about: `npm proper-lockfile ${versionOf(require, 'proper-lockfile')}: one machine, nothing synced`,
    acquire: name => lock(join(place, 'file'), { lockfilePath: pathOf(name), realpath: false }),
    release: (_, free) => free(),
  }
}

function bareMap(forSeconds) {
  const map = new Map()
  return rate(
    i => {
      const name = `lane/${i % 1_000}/${i % 16}`
      map.set(name, { name, token: i })
      map.delete(name)
    },
    { forSeconds },
  )
}

/** The rules alone: no log, no promise, no timer, and no watch. */
function bareKernel(forSeconds) {
  const state = createState(Date.now())
  const effects = { events: [], timer() {} }
  return rate(
    i => {
      const { lease } = apply(state, { command: acquireOf(`lane/${i % IN_FLIGHT}/${i % 16}`) }, effects)
      apply(state, { command: { kind: 'release', lease } }, effects)
      effects.events.length = 0
    },
    { forSeconds },
  )
}

export async function memoryPairs(report, { rounds, forSeconds }) {
  await using(inMemory(), async replica => {
    const throughputOf = lock => throughput(pairOf(lock), { inFlight: IN_FLIGHT, forSeconds, warmUp: 0 })
    const peers = [
      { name: 'the kernel alone', measure: () => bareKernel(forSeconds), want: atLeast(0.4) },
      { name: 'a bare Map: set and delete', measure: () => bareMap(forSeconds) },
      await tried('async-mutex', asyncMutex),
    ].map(peer => ({ measure: () => throughputOf(peer), ...peer }))
    const figures = await inRounds({ measure: () => throughputOf(lessorLock(replica)) }, peers, { rounds, measure: each => each.measure() })
    report({ name: 'memory: acquire and release, 1,000 in flight', unit: 'pairs/s', ...figures })
  })
}

/** Commits of one small row, one at a time, by SQLite itself. */
async function bareSqlite() {
  const { DatabaseSync } = await loadEngine()
  const db = new DatabaseSync(join(scratch(), 'bare.db'))
  db.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE log (idx INTEGER PRIMARY KEY, bytes BLOB)')
  const insert = db.prepare('INSERT INTO log (bytes) VALUES (?)')
  const bytes = new Uint8Array(80)
  return {
    acquire() {
      db.exec('BEGIN IMMEDIATE')
      insert.run(bytes)
      db.exec('COMMIT')
    },
    release() {},
    async [Symbol.asyncDispose]() {
      db.close()
    },
  }
}

export async function filePairs(report, { rounds, forSeconds }) {
  const lockfile = await tried('proper-lockfile (nothing synced)', properLockfile)
  const locks = await tried('redlock on Redis, fsync always', async () => redlock(await engine('redis')))
  const sqlite = await tried('a bare SQLite commit', bareSqlite)
  const many = lock => throughput(pairOf(lock), { inFlight: IN_FLIGHT, forSeconds, warmUp: 0 })
  await using(inFile('pairs.db'), async replica => {
    const ours = lessorLock(replica)
    const inFlight = await inRounds(ours, [lockfile, locks], { rounds, measure: many })
    report({ name: 'file, owned: acquire and release, 1,000 in flight, each durable', unit: 'pairs/s', want: atLeast(75_000), ...inFlight })
    const one = lock =>
      microseconds(i => lock.acquire(`one/${i % 16}`), {
        forSeconds: forSeconds / 2,
        after: (i, held) => lock.release(`one/${i % 16}`, held),
      })
    const alone = await inRounds(ours, [{ ...sqlite, want: atMost(2) }, lockfile, locks], { rounds, measure: one })
    report({ name: 'file, owned: acquire, one at a time: p50', unit: 'µs', ...alone })
  })
  for (const each of [locks, sqlite]) await each[Symbol.asyncDispose]?.()
}

export async function reopen(report, { quick }) {
  for (const [count, most] of quick
    ? [[20_000, 100]]
    : [
        [100_000, 500],
        [1_000_000, 4_000],
      ])
    await reopenWith(report, count, most)
}

async function reopenWith(report, count, most) {
  const file = `reopen-${count}.db`
  await using(inFile(file), async replica => {
    for (let i = 0; i < count; i += 1_000)
      await Promise.all(
        Array.from({ length: 1_000 }, (_, j) =>
          propose(replica, { kind: 'acquire', holder: `h${j % 50}`, ttl: 3_600_000, wants: [{ resource: `n/${i + j}` }] }),
        ),
      )
  })
  const began = seconds()
  await using(inFile(file), async replica => {
    const took = seconds() - began
    const { value } = await replica.read({ kind: 'summary' })
    if (value.leases !== count) throw new Error(`${value.leases} leases after reopening`)
    report({ name: `open a file with ${count.toLocaleString('en')} leases`, unit: 'ms', value: took * 1_000, want: atMost(most) })
  })
}

/** Keeps the undisturbed turns of each, so that other work on the machine is not measured. */
export async function requests(report, { quick }) {
  await using(connect('memory:bench-request'), async leases => {
    const lock = lessorLock(leases.lessor)
    const each = async (work, times = 50) => {
      const began = seconds()
      for (let i = 0; i < times; i++) await work()
      return ((seconds() - began) / times) * 1e6
    }
    const [bare, ours] = [[], []]
    for (let turn = 0; turn < (quick ? 200 : 400); turn++) {
      bare.push(await each(async () => lock.release('bare', await lock.acquire('bare'))))
      ours.push(await each(() => leases.request('ours', () => {})))
    }
    const undisturbed = list =>
      percentile(
        list.sort((a, b) => a - b),
        0.05,
      )
    const value = undisturbed(ours) - undisturbed(bare)
    report({ name: 'request() on a free name, beyond acquire and release', unit: 'µs', value, want: atMost(20) })
  })
}

/** So much room for new objects that nothing is collected while it is measured. */
const NO_COLLECTION = ['--min-semi-space-size=256', '--max-semi-space-size=256']
const self = fileURLToPath(import.meta.url)

/** Measures what an acquire and release leave for the collector, in memory and in a server. */
export async function garbage(report, { quick }) {
  const pairs = quick ? 5_120 : 10_240
  const child = endsWithRun(fork(self, ['garbage', String(pairs)], { execArgv: NO_COLLECTION }))
  const [message] = await Promise.race([once(child, 'message'), once(child, 'exit').then(() => [{ failed: 'the process ended' }])])
  // Half of what this benchmark showed before fewer objects became a goal: 5,300 and 8,000.
  report({ name: 'garbage of an acquire and release, in memory', unit: 'bytes/pair', want: atMost(2_650), ...message })
  await using(startServer({ flags: NO_COLLECTION }), server =>
    using(server.connect(), async lessor => {
      const heap = async () => (await server.figures()).memory.heapUsed
      const collected = async () => (await server.inUse()).heapUsed
      const rounds = await leftBehind(pairs, lessorLock(lessor), heap, collected)
      report({ name: 'garbage of an acquire and release in the server, 256 in flight', unit: 'bytes/pair', rounds, want: atMost(4_000) })
    }),
  )
}

/** Bytes per pair that are gone after a collection, in each of several rounds. */
async function leftBehind(pairs, lock, heap, collected) {
  const pair = pairOf(lock)
  const lanes = 256
  const work = () =>
    Promise.all(
      Array.from({ length: lanes }, async (_, lane) => {
        for (let i = 0; i < pairs / lanes; i++) await pair(lane, i)
      }),
    )
  for (let i = 0; i < 4; i++) await work() // until it is compiled
  const rounds = []
  for (let i = 0; i < 5; i++) {
    const before = await collected()
    await work()
    const after = await heap()
    // A collection that came between left less than there was before.
    if (after > before) rounds.push((after - (await collected())) / pairs)
  }
  if (rounds.length === 0) throw new Error('the heap was collected in every round')
  return rounds
}

if (process.argv[1] === self && process.argv[2] === 'garbage') {
  try {
    await using(inMemory(), async replica => {
      const heap = async () => process.memoryUsage().heapUsed
      process.send({ rounds: await leftBehind(Number(process.argv[3]), lessorLock(replica), heap, async () => heapInUse().heapUsed) })
    })
  } catch (error) {
    process.send({ failed: oneLine(error.message) })
  }
  process.disconnect()
}
