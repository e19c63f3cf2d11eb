// Three consumers in separate processes share the twelve partitions of a journal. One is killed in the middle of its work, and one joins late.
// Every message is counted once: each partition's file is written only with the newest epoch, and no partition has two consumers at once.
//
//   node examples/shards.mjs
import { fork } from 'node:child_process'
import { once } from 'node:events'
import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { fileURLToPath } from 'node:url'
import { connect } from 'leasehold'

const PARTITIONS = 12
const MESSAGES = 40
const [role, url, folder] = process.argv.slice(2)

/** Messages `0` to `39` of each partition, and a file that lists which consumer processed which, in which epoch. */
const journal = partition => join(folder, `processed-${partition}`)

function processed(partition) {
  const lines = readFileSync(journal(partition), 'utf8').split('\n').slice(0, -1)
  return lines.map(line => JSON.parse(line))
}

/** What the show tells a consumer: to begin, to go on with the second half, to stop. Listened for from the start: a message without a listener is lost. */
const [begin, rest, stop] = role === undefined ? [] : ['begin', 'rest', 'stop'].map(told)

function told(what) {
  return new Promise(resolve => process.on('message', said => said === what && resolve()))
}

/** Goes on after the last message that any owner of this partition has processed. */
async function consume(shard) {
  process.send({ has: shard.index, epoch: shard.token })
  const lost = once(shard.signal, 'abort')
  await Promise.race([begin, lost])
  for (let next = processed(shard.index).length; next < MESSAGES; next++) {
    if (next >= MESSAGES / 2) await Promise.race([rest, lost])
    await sleep(10, undefined, { signal: shard.signal }).catch(() => {})
    // Reads the clock: true only while no other consumer can have the partition.
    if (shard.signal.aborted || !shard.held) return
    appendFileSync(journal(shard.index), `${JSON.stringify({ message: next, consumer: role, epoch: shard.token })}\n`)
  }
}

async function work() {
  const leases = await connect(url, { holder: role })
  const leave = new AbortController()
  void stop.then(() => leave.abort())
  await leases.shards('journal', { count: PARTITIONS, ttl: '2s' }).join({ signal: leave.signal, onAssigned: consume })
  await leases.close()
  process.disconnect()
}

async function show() {
  const place = mkdtempSync(join(tmpdir(), 'leasehold-shards-'))
  const store = `file:${join(place, 'leases.db')}`
  for (let partition = 0; partition < PARTITIONS; partition++) writeFileSync(join(place, `processed-${partition}`), '')
  const consumers = new Map()
  const owners = new Map()
  const start = name => {
    const child = fork(fileURLToPath(import.meta.url), [name, store, place])
    child.on('message', ({ has }) => owners.set(has, name))
    consumers.set(name, child)
  }
  const partitionsOf = name => [...owners.values()].filter(owner => owner === name).length
  const lines = () =>
    Array.from({ length: PARTITIONS }, (_, i) =>
      readFileSync(join(place, `processed-${i}`), 'utf8')
        .split('\n')
        .slice(0, -1)
        .map(line => JSON.parse(line)),
    )
  try {
    for (const name of ['ann', 'bob']) start(name)
    while (partitionsOf('ann') !== 6 || partitionsOf('bob') !== 6) await sleep(20)
    console.log('ann and bob have 6 partitions each')
    for (const name of ['ann', 'bob']) consumers.get(name).send('begin')
    while (lines().every(({ length }) => length < 5)) await sleep(5)
    consumers.get('bob').kill('SIGKILL')
    await once(consumers.get('bob'), 'exit')
    console.log('bob is killed in the middle of its work, and cid joins')
    start('cid')
    consumers.get('cid').send('begin')
    // Half of the messages wait for it, however long it takes to start.
    while (partitionsOf('cid') === 0) await sleep(20)
    for (const name of ['ann', 'cid']) consumers.get(name).send('rest')
    const deadline = process.hrtime.bigint() + 60_000_000_000n
    while (lines().some(({ length }) => length < MESSAGES)) {
      if (process.hrtime.bigint() > deadline) throw new Error('some messages were not processed within a minute')
      await sleep(50)
    }
    const all = lines()
    const whole = all.every(done => done.every(({ message }, i) => message === i) && done.length === MESSAGES)
    const ordered = all.every(done => done.every(({ epoch }, i) => i === 0 || epoch >= done[i - 1].epoch))
    const by = name => all.flat().filter(({ consumer }) => consumer === name).length
    console.log(`ann processed ${by('ann')} messages, bob ${by('bob')} before it died, cid ${by('cid')}`)
    console.log(
      `${PARTITIONS * MESSAGES} messages: ${whole ? 'each was processed once' : 'SOME WERE LOST OR DOUBLED'}, ${ordered ? 'epochs only grow' : 'AN OLD EPOCH WROTE LATE'}`,
    )
    if (!whole || !ordered) process.exitCode = 1
    for (const name of ['ann', 'cid']) consumers.get(name).send('stop')
    await Promise.all(['ann', 'cid'].map(name => once(consumers.get(name), 'exit')))
    const leases = await connect(store)
    const left = await leases.shards('journal', { count: PARTITIONS }).owners()
    console.log(`the consumers have left: ${left.filter(owner => owner !== undefined).length} partitions have an owner`)
    await leases.close()
  } finally {
    for (const child of consumers.values()) if (child.exitCode === null && child.signalCode === null) child.kill('SIGKILL')
    rmSync(place, { recursive: true, force: true })
  }
}

if (role === undefined) await show()
else await work()
