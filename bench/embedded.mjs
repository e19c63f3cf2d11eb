// Benchmark inside this process: the kernel, and a replica on `memory:` and on an owned `file:`, compared with a bare Map and bare SQLite.
import { join } from 'node:path'
import { Replica } from '../dist/replica/replica.js'
import { loadEngine } from '../dist/store/file/engine.js'
import { FileStore } from '../dist/store/file/file.js'
import { MemoryStore } from '../dist/store/memory.js'
import { percentile, rate, scratch, seconds, throughput, using } from './measure.mjs'

const pair = replica => async (lane, i) => {
  const granted = await replica.propose({ kind: 'acquire', holder: 'bench', ttl: 30_000, wants: [{ resource: `lane/${lane}/${i % 16}` }] })
  await replica.propose({ kind: 'release', lease: granted.lease })
}

const inMemory = () => Replica.open(new MemoryStore({ own: { name: 'bench' } }), { owned: true })
const inFile = name => Replica.open(new FileStore({ path: join(scratch, name), own: { name: 'bench' } }), { owned: true })

async function onMemory(report) {
  const pairs = await using(inMemory(), replica => throughput(pair(replica), { inFlight: 1_000, warmUp: 3 }))
  const map = new Map()
  const bare = rate(i => {
    const name = `lane/${i % 1_000}/${i % 16}`
    map.set(name, { name, token: i })
    map.delete(name)
  })
  report('memory: acquire + release, 1,000 in flight', pairs, 'pairs/s', {
    target: 'about 200,000',
    ratio: bare / pairs,
    against: 'the work of a bare Map',
  })
}

/** Commits of one small row per second, one at a time, by SQLite itself. */
function bareCommits({ DatabaseSync }, name) {
  const db = new DatabaseSync(join(scratch, name))
  db.exec('PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; CREATE TABLE log (idx INTEGER PRIMARY KEY, bytes BLOB)')
  const insert = db.prepare('INSERT INTO log (bytes) VALUES (?)')
  const bytes = new Uint8Array(80)
  const began = seconds()
  let done = 0
  for (; seconds() - began < 1; done++) {
    db.exec('BEGIN IMMEDIATE')
    insert.run(bytes)
    db.exec('COMMIT')
  }
  const each = done / (seconds() - began)
  db.close()
  return each
}

async function onFile(report) {
  const engine = await loadEngine()
  const commands = 2 * (await using(inFile('many.db'), replica => throughput(pair(replica), { inFlight: 1_000 })))
  report('file (owned): acquire and release, 1,000 in flight', commands, 'commands/s', { target: 'at least 150,000, each durable' })
  // Alternate, because a disk may be ten times slower a minute later.
  const bare = []
  const ours = []
  await using(inFile('one.db'), async replica => {
    for (let turn = 0; turn < 4; turn++) {
      bare.push(bareCommits(engine, `bare-${turn}.db`))
      ours.push(2 * (await throughput(pair(replica), { inFlight: 1, forSeconds: 1, warmUp: 1 })))
    }
  })
  const middle = list =>
    percentile(
      list.sort((a, b) => a - b),
      0.5,
    )
  const [of, one] = [middle(bare), middle(ours)]
  report('a bare SQLite commit at a time', of, 'commits/s')
  report('file (owned): one command at a time', one, 'commands/s', {
    target: 'within 2',
    ratio: of / one,
    against: 'the time of a bare commit',
  })
}

/** How late the lapses of 100,000 leases without renewals come. */
async function massLapse(report) {
  const count = 100_000
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
          const ttl = 6_000 + Math.floor(((i + j) / count) * 10_000)
          const granted = await replica.propose({ kind: 'acquire', holder: 'bench', ttl, wants: [{ resource: `n/${i + j}` }] })
          due.set(granted.lease, seconds() + ttl / 1_000)
        }),
      )
    }
    if (seconds() - began > 6) throw new Error('too slow to set up: nothing can be said about lateness')
    await watching
    stop.abort()
  })
  late.sort((a, b) => a - b)
  report('100,000 leases lapsing within 10 s: lateness p50', percentile(late, 0.5), 'ms')
  report('100,000 leases lapsing within 10 s: lateness p99', percentile(late, 0.99), 'ms', { target: 'under 50' })
}

async function reopen(report) {
  await using(inFile('reopen.db'), async replica => {
    for (let i = 0; i < 100_000; i += 1_000)
      await Promise.all(
        Array.from({ length: 1_000 }, (_, j) =>
          replica.propose({ kind: 'acquire', holder: `h${j % 50}`, ttl: 3_600_000, wants: [{ resource: `n/${i + j}` }] }),
        ),
      )
  })
  const began = seconds()
  await using(inFile('reopen.db'), async replica => {
    const took = seconds() - began
    const { value } = await replica.read({ kind: 'summary' })
    if (value.leases !== 100_000) throw new Error(`${value.leases} leases after reopening`)
    report('reopen a file with 100,000 leases', took * 1_000, 'ms', { target: 'under 2,000' })
  })
}

export async function embedded(report) {
  await onMemory(report)
  await onFile(report)
  await reopen(report)
  await massLapse(report)
}
