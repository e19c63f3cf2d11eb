import assert from 'node:assert/strict'
import { setTimeout as sleep } from 'node:timers/promises'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { pause } from '../../../src/clock.ts'
import { LeaseError } from '../../../src/errors.ts'
import { EtcdStore } from '../../../src/store/etcd/etcd.ts'
import type { EtcdStoreOptions } from '../../../src/store/etcd/options.ts'
import { type Appended, type LogRecord, type Position, START, type Store } from '../../../src/store.ts'
import { Cable } from '../../../src/testing/cuttable-connection.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { EVENT_TIMEOUT } from '../../support/bounds.ts'
import { describeEngine, describePrograms, type Engine, engine, programs } from '../../support/engine.ts'
import { asked, backup, compact, LogInEtcd, leader, Scissors } from '../../support/etcd.ts'
import { whileTimePasses } from '../../support/virtual-time.ts'

let logs = 0

const describeRestored = (name: string, define: () => void) => describePrograms('etcd', [programs.etcdctl], name, define)

describeEngine('etcd', 'a store in etcd under faults', () => {
  let etcd: Engine
  beforeAll(async () => {
    etcd = await engine('etcd')
  })
  afterAll(() => etcd?.[Symbol.asyncDispose]())

  const fresh = () => `faults/${++logs}`
  const direct = (name: string, options: Partial<EtcdStoreOptions> = {}) => store(name, [etcd.port], options)

  test('an append whose answer is cut off is in the log once, and its caller learns the position', async () => {
    await using cable = await Cable.to(etcd.port)
    const name = fresh()
    await using one = await store(name, [cable.port])
    let after = await append(one, 'a')
    for (const word of ['b', 'c', 'd']) {
      cable.cutAnswers(1)
      after = await append(one, word, after)
    }
    expect(cable.cut).toBe(3)
    await using other = await direct(name)
    expect(words(await all(other))).toEqual(['a', 'b', 'c', 'd'])
  })

  test('without an answer an append is UNKNOWN and a read is UNAVAILABLE, within the timeout', async () => {
    await using cable = await Cable.to(etcd.port)
    const clock = new ManualClock()
    await using one = await store(fresh(), [cable.port], { timeout: 2_000, clock })
    const after = await append(one, 'a')
    // The refusing proxy accepts the connection and then ends it, so the client cannot know what was passed on.
    for (const cut of [() => cable.refuse(), () => cable.silence()]) {
      cut()
      const written = await whileTimePasses(clock, rejected(one.append(bytes('x'), after)))
      expect(written).toMatchObject({ code: 'UNKNOWN', reason: 'unreachable' })
      const seen = await whileTimePasses(clock, rejected(one.read(after)))
      expect(seen).toMatchObject({ code: 'UNAVAILABLE', reason: 'unreachable' })
      cable.heal()
    }
    await append(one, 'b', (await all(one)).at(-1)!.position)
  })

  test('calls to a closed port are UNAVAILABLE: they certainly had no effect', async () => {
    await using cable = await Cable.to(etcd.port)
    const clock = new ManualClock()
    await using one = await store(fresh(), [cable.port], { timeout: 2_000, clock })
    const after = await append(one, 'a')
    await cable[Symbol.asyncDispose]()
    await whileTimePasses(clock, rejected(one.read(after))) // notices that the connection is gone
    expect(await whileTimePasses(clock, rejected(one.append(bytes('x'), after)))).toMatchObject({ code: 'UNAVAILABLE' })
    await using unreachable = new EtcdStore({ endpoints: ['127.0.0.1:1'], timeout: 300, clock })
    const refused = { code: 'UNAVAILABLE', reason: 'unreachable', facts: { engine: 'etcd' } }
    expect(await whileTimePasses(clock, rejected(unreachable.open()))).toMatchObject(refused)
  })

  test('if an endpoint refuses or is silent, the next one is tried within the timeout of the call', async () => {
    await using dead = await Cable.to(etcd.port)
    await using one = await store(fresh(), [1, dead.port, etcd.port])
    let after = await append(one, 'a')
    for (const cut of [() => dead.silence(), () => dead.refuse()]) {
      cut()
      after = await append(one, 'b', after)
    }
    expect(after.index).toBe(3)
  })

  test('a watch that falls silent is replaced, and waiting readers still receive records', async () => {
    await using cable = await Cable.to(etcd.port)
    const name = fresh()
    const clock = new ManualClock()
    // The silent endpoint gets half of the timeout, and the other one as much: seconds of real time, at the pace of whileTimePasses.
    await using reader = await store(name, [cable.port, etcd.port], { timeout: 40_000, poll: 200, clock })
    await using writer = await direct(name)
    const signal = new AbortController().signal
    const waiting = reader.read(START, { wait: signal })
    let after = await append(writer, 'a')
    expect(words(await whileTimePasses(clock, waiting))).toEqual(['a'])
    cable.silence()
    const silent = reader.read(after, { wait: signal })
    after = await append(writer, 'b', after)
    expect(words(await whileTimePasses(clock, silent))).toEqual(['b'])
    const healed = reader.read(after, { wait: signal })
    // Polls find nothing meanwhile, and a new watch is started. It delivers the record although no more time passes.
    await whileTimePasses(clock, pause(clock, 2_000))
    after = await append(writer, 'c', after)
    expect(words(await healed)).toEqual(['c'])
  })

  test('a slow reader receives records whose revisions were compacted before its watch saw them', async () => {
    await using cable = await Cable.to(etcd.port)
    const name = fresh()
    await using reader = await store(name, [cable.port], { poll: 60_000 })
    await using writer = await direct(name)
    const signal = new AbortController().signal
    const waiting = reader.read(START, { wait: signal })
    let after = await append(writer, 'a')
    const from = recordsOf(await waiting).at(-1)!.position
    const slow = reader.read(from, { wait: signal })
    cable.silence()
    for (const word of ['b', 'c', 'd']) after = await append(writer, word, after)
    await compact(etcd)
    cable.disconnect() // the watch must restart, from a revision that was compacted
    cable.heal()
    const seen = [...recordsOf(await slow)]
    while (seen.length < 3) seen.push(...recordsOf(await reader.read(seen.at(-1)!.position, { wait: signal })))
    expect(seen.map(text)).toEqual(['b', 'c', 'd'])
  })

  test('after all keys are deleted, an open store reports DIVERGED with the cause and the remedy, and a new store starts an empty log', async () => {
    const name = fresh()
    await using witness = await direct(name, { poll: 100 })
    const after = await append(witness, 'b', await append(witness, 'a'))
    const waiting = witness.read(after, { wait: new AbortController().signal })
    await new LogInEtcd(etcd, name).deleteAll()
    const read = await waiting
    expect(read).toMatchObject({ kind: 'diverged', reason: expect.stringMatching(/restored from an older backup.*restart/) })
    expect((await witness.append(bytes('c'), after)).kind).toBe('diverged')
    await using next = await direct(name)
    expect(await all(next)).toEqual([])
    await append(next, 'new')
    expect((await witness.append(bytes('c'), after)).kind).toBe('diverged')
    expect(words(await all(next))).toEqual(['new'])
  })

  test('a store at the start of the log continues after all keys are deleted', async () => {
    const name = fresh()
    await using one = await direct(name)
    await new LogInEtcd(etcd, name).deleteAll()
    expect(await one.read(START)).toEqual({ kind: 'records', records: [] })
    await new LogInEtcd(etcd, name).deleteAll()
    expect((await append(one, 'a')).index).toBe(1)
  })

  test('a reader that reaches a hole in the log reports DIVERGED', async () => {
    const name = fresh()
    await using one = await direct(name)
    let after = START
    for (const word of ['a', 'b', 'c', 'd']) after = await append(one, word, after)
    const [, , second] = await new LogInEtcd(etcd, name).keys('log/')
    await asked(etcd.port, '/kv/deleterange', { key: Buffer.from(second!).toString('base64') })
    expect(await one.read(START)).toMatchObject({ kind: 'diverged', reason: expect.stringContaining('record 2 is missing') })
    await using late = new EtcdStore({ endpoints: [`127.0.0.1:${etcd.port}`], name })
    // The end is found by counting: one record is missing, so the position found is before the end, and reading on detects the hole.
    await late.open()
    expect((await late.read(START)).kind).toBe('diverged')
  })

  test('stores that append at the same time all succeed, with records of any size', async () => {
    for (const size of [50, 20_000]) {
      const name = fresh()
      const stores = await Promise.all([1, 2, 3].map(() => direct(name)))
      const turns = stores.map(() => 0)
      await Promise.all(
        stores.map(async (one, me) => {
          let after = START
          while (Math.max(...turns) < 40) {
            const answer = await one.append(noise(size, me * 1_000 + turns[me]!), after)
            after = positionOf(answer)
            turns[me]!++
          }
        }),
      )
      expect(Math.min(...turns), `turns with records of ${size} bytes: ${turns}`).toBeGreaterThan(8)
      const read = await all(stores[0]!)
      expect(read.length).toBe(turns.reduce((sum, n) => sum + n))
      expect(read.every(record => record.bytes.length === size)).toBe(true)
      for (const one of stores) await one[Symbol.asyncDispose]()
    }
  })

  test('records that just fit into one request still fit when several indexes are tried', async () => {
    const name = fresh()
    const stores = await Promise.all([1, 2, 3, 4].map(() => direct(name)))
    const positions = await Promise.all(stores.map(async (one, me) => positionOf(await one.append(noise(750_000, me), START))))
    expect(positions.map(({ index }) => index).sort()).toEqual([1, 2, 3, 4])
    expect((await all(stores[0]!)).map(record => record.bytes.length)).toEqual([750_000, 750_000, 750_000, 750_000])
    for (const one of stores) await one[Symbol.asyncDispose]()
  })

  test('a record of several MiB arrives complete, by a read and by the watch', async () => {
    const name = fresh()
    await using one = await direct(name)
    await using other = await direct(name)
    const waiting = other.read(START, { wait: new AbortController().signal })
    const large = noise(3_500_000, 5)
    await one.append(large, START)
    for (const records of [recordsOf(await waiting), recordsOf(await one.read(START))])
      expect(records.map(record => Buffer.from(large).equals(record.bytes))).toEqual([true])
    expect((await new LogInEtcd(etcd, name).keys('part/')).length).toBe(7)
  })

  test('trimming deletes records and the chunks of old snapshots', async () => {
    const name = fresh()
    await using one = await direct(name)
    let after = START
    for (let i = 1; i <= 30; i++) {
      after = await append(one, `${i}`, after)
      if (i % 10 === 0) expect(await one.snapshot(after, chunks('x'.repeat(1_100_000), 'y'))).toBe('kept')
    }
    const log = new LogInEtcd(etcd, name)
    expect((await log.keys('log/')).length).toBe(11)
    expect((await log.keys('snapshot/')).length).toBe(4) // two chunks of each of the last two snapshots
  })

  test('a snapshot whose last answer is lost is in force and complete, and its writer learns that it was kept', async () => {
    await using scissors = await Scissors.to(etcd.port)
    const name = fresh()
    await using one = await store(name, [scissors.port])
    let after = START
    for (const word of ['a', 'b', 'c']) {
      after = await append(one, word, after)
      scissors.cutPut(`${name}:newest`)
      expect(await one.snapshot(after, chunks(word))).toBe('kept')
      expect(scissors.cut).toBe(true)
      const newest = await one.newest()
      expect(newest?.position).toEqual(after)
      expect(await collected(newest!.bytes)).toBe(word)
    }
    expect((await new LogInEtcd(etcd, name).keys('log/')).length).toBe(2)
  })

  test('the chunks of a snapshot are never deleted while it may be in force', async () => {
    await using scissors = await Scissors.to(etcd.port)
    const name = fresh()
    const clock = new ManualClock()
    await using one = await store(name, [scissors.port], { timeout: 2_000, clock })
    const after = await append(one, 'a')
    scissors.cutPut(`${name}:newest`)
    const keeping = rejected(one.snapshot(after, chunks('whole')))
    await until(() => scissors.cut)
    await scissors[Symbol.asyncDispose]()
    expect((await whileTimePasses(clock, keeping)).code).toBe('UNKNOWN')
    await using other = await direct(name)
    expect(await collected((await other.newest())!.bytes)).toBe('whole')
  })

  test('one answer carries at most 1,000 records, and parts are deleted when no record can refer to them', async () => {
    const name = fresh()
    await using one = await direct(name)
    const first = positionOf(await one.append(noise(800_000, 1), START))
    let after = first
    for (let i = 0; i < 1_001; i++) after = positionOf(await one.append(Uint8Array.of(i % 256), after))
    expect(after.index).toBe(1_002)
    await all(one) // the store learns the typical size by reading
    expect(recordsOf(await one.read(first)).length).toBe(1_000)
    const answer = await one.append(Uint8Array.of(0), first)
    expect(answer.kind).toBe('behind')
    expect((await new LogInEtcd(etcd, name).keys('part/')).length).toBe(2)
    for (const at of [after, positionOf(answer)]) expect(await one.snapshot(at, chunks('x'))).toBe('kept')
    expect((await new LogInEtcd(etcd, name).keys('part/')).length).toBe(0)
  })

  test('a log of another format and keys of another program are rejected', async () => {
    const [newer, older, foreign] = [fresh(), fresh(), fresh()]
    for (const name of [newer, older, foreign]) await (await direct(name))[Symbol.asyncDispose]()
    const put = (key: string, value: string) =>
      asked(etcd.port, '/kv/put', { key: Buffer.from(key).toString('base64'), value: Buffer.from(value).toString('base64') })
    for (const [name, format] of [
      [newer, '3'],
      [older, '1'],
    ] as const) {
      await put(`${name}:format`, format)
      expect((await rejected(direct(name))).code).toBe('UNSUPPORTED')
    }
    await put(`${foreign}:log/!`, 'mine')
    expect((await rejected(direct(foreign))).code).toBe('INVALID')
  })

  test('the profile of a cluster of one does not promise failover', async () => {
    await using one = await direct(fresh())
    expect(one.profile).toMatchObject({ durable: true, failover: false, shared: true, push: true })
  })
})

describeEngine('etcd', 'a store in an etcd of its own', () => {
  test('the error of a full etcd says what to do, and appends succeed again when there is room', async () => {
    await using etcd = await engine('etcd', { args: ['--quota-backend-bytes', String(4 << 20)] })
    await using one = await store('leasehold', [etcd.port])
    const after = await append(one, 'a')
    const others = new LogInEtcd(etcd, 'others')
    for (let i = 0; ; i++) if (!(await others.fill(i, 500_000))) break
    expect(await rejected(one.append(bytes('b'), after))).toMatchObject({
      code: 'UNAVAILABLE',
      reason: 'full',
      message: expect.stringContaining('etcdctl alarm disarm'),
    })
    expect(words(await all(one))).toEqual(['a'])
    await others.deleteAll()
    await compact(etcd)
    await asked(etcd.port, '/maintenance/defragment')
    const { alarms } = await asked<{ alarms: { memberID: string }[] }>(etcd.port, '/maintenance/alarm')
    for (const alarm of alarms) await asked(etcd.port, '/maintenance/alarm', { ...alarm, action: 'DEACTIVATE' })
    await append(one, 'b', after)
  })

  test('an etcd without a gateway gives another error than one that does not answer', async () => {
    await using etcd = await engine('etcd', { args: ['--enable-grpc-gateway=false'] })
    const error = await rejected(store('leasehold', [etcd.port]))
    expect(error).toMatchObject({ code: 'UNSUPPORTED', message: expect.stringContaining('--enable-grpc-gateway') })
  })

  test('after a kill and a restart all acknowledged records are there, and a waiting reader continues', async () => {
    await using etcd = await engine('etcd')
    await using one = await store('leasehold', [etcd.port])
    await using reader = await store('leasehold', [etcd.port])
    let after = await append(one, 'a')
    expect(words(await all(reader))).toEqual(['a'])
    const waiting = settled(() => reader.read(after, { wait: new AbortController().signal }))
    await etcd.kill9()
    await etcd.restart()
    after = await append(one, 'b', after)
    expect(words(await waiting)).toEqual(['b'])
    expect(words(await all(one))).toEqual(['a', 'b'])
  })
})

describeRestored('a store in an etcd that was restored from a backup', () => {
  test('reports DIVERGED to a store that had read lost records, even if the log has regrown to the same length and revisions', async () => {
    await using etcd = await engine('etcd')
    await using witness = await store('leasehold', [etcd.port], { poll: 200 })
    const common = await append(witness, 'b', await append(witness, 'a'))
    await using saved = await backup(etcd)
    let seen = common
    for (const word of ['c', 'd', 'e']) seen = await append(witness, word, seen)
    const lost = await revisionOf(etcd, seen.index)
    const waiting = settled(() => witness.read(seen, { wait: new AbortController().signal }))
    await saved.restore()
    await using other = await store('leasehold', [etcd.port])
    expect(words(await all(other))).toEqual(['a', 'b'])
    let after = common
    for (const word of ['C', 'D', 'E']) after = await append(other, word, after)
    expect(await revisionOf(etcd, after.index)).toBe(lost)
    expect(await waiting).toMatchObject({ kind: 'diverged' })
    expect((await witness.append(bytes('f'), seen)).kind).toBe('diverged')
    expect((await witness.read(seen)).kind).toBe('diverged')
    expect(words(await all(other))).toEqual(['a', 'b', 'C', 'D', 'E'])
  })

  async function revisionOf(etcd: Engine, index: number): Promise<string> {
    const key = Buffer.from(`leasehold:log/${String(index).padStart(16, '0')}`)
    const end = Buffer.from(`leasehold:log/${String(index + 1).padStart(16, '0')}`)
    const request = { key: key.toString('base64'), range_end: end.toString('base64') }
    const { kvs } = await asked<{ kvs: { create_revision: string }[] }>(etcd.port, '/kv/range', request)
    return kvs[0]!.create_revision
  }
})

describeEngine('etcd3', 'a store in three members of etcd', () => {
  test('killing or pausing the leader delays no call beyond its timeout, and loses no record', async () => {
    await using etcd = await engine('etcd3')
    await using one = await store('leasehold', etcd.ports)
    await using reader = await store('leasehold', etcd.ports)
    expect(one.profile.failover).toBe(true)
    let after = await append(one, '0')
    for (const harm of ['kill', 'pause'] as const) {
      const member = await leader(etcd)
      if (harm === 'kill') await member.kill9()
      else member.pause()
      after = positionOf(await settled(() => one.append(bytes(harm), after)))
      if (harm === 'kill') await member.restart()
      else member.resume()
      await etcd.ready()
    }
    const found = words(await all(reader))
    // A record whose answer was lost may be in the log twice: replicas apply it once.
    expect([...new Set(found)]).toEqual(['0', 'kill', 'pause'])
    expect((await one.read(after)).kind).toBe('records')
  })

  test('while all members are paused no call is answered, and nothing is lost when they continue', async () => {
    await using etcd = await engine('etcd3')
    const clock = new ManualClock()
    await using one = await store('leasehold', etcd.ports, { clock })
    const after = await append(one, 'a')
    etcd.pause()
    try {
      expect((await whileTimePasses(clock, rejected(one.append(bytes('b'), after)))).code).toBe('UNKNOWN')
      expect((await whileTimePasses(clock, rejected(one.read(after)))).code).toBe('UNAVAILABLE')
    } finally {
      etcd.resume()
    }
    await whileTimePasses(
      clock,
      settled(() => one.append(bytes('c'), after)),
      1,
    )
    const found = words(await all(one))
    expect(found[0]).toBe('a')
    expect(found.at(-1)).toBe('c')
  })
})

async function store(name: string, ports: readonly number[], options: Partial<EtcdStoreOptions> = {}): Promise<Store> {
  // With others to turn to, a call must not wait for one endpoint for long.
  const timeout = ports.length === 1 ? { timeout: EVENT_TIMEOUT } : {}
  const made = new EtcdStore({ endpoints: ports.map(port => `127.0.0.1:${port}`), name, ...timeout, ...options })
  await made.open()
  return made
}

/** Retries while that may help, as a replica does. */
async function settled<T>(ask: () => Promise<T>): Promise<T> {
  for (const until = Date.now() + EVENT_TIMEOUT; ; await sleep(20)) {
    try {
      return await ask()
    } catch (error) {
      if (!(error instanceof LeaseError) || !['UNKNOWN', 'UNAVAILABLE'].includes(error.code) || Date.now() > until) throw error
    }
  }
}

async function append(one: Store, word: string, after: Position = START): Promise<Position> {
  const answer = await one.append(bytes(word), after)
  assert.equal(answer.kind, 'appended')
  return positionOf(answer)
}

function positionOf(answer: Appended): Position {
  assert.ok(answer.kind === 'appended' || answer.kind === 'behind', answer.kind)
  return answer.position
}

async function all(one: Store): Promise<LogRecord[]> {
  const records: LogRecord[] = []
  for (;;) {
    const more = recordsOf(await one.read(records.at(-1)?.position ?? START))
    if (more.length === 0) return records
    records.push(...more)
  }
}

function recordsOf(read: Awaited<ReturnType<Store['read']>>): readonly LogRecord[] {
  assert.ok(read.kind === 'records', read.kind)
  return read.records
}

function words(read: Awaited<ReturnType<Store['read']>> | readonly LogRecord[]): string[] {
  return ('kind' in read ? recordsOf(read) : read).map(text)
}

async function rejected(call: Promise<unknown>): Promise<LeaseError> {
  const found = await call.then(
    () => undefined,
    (error: unknown) => error,
  )
  assert.ok(found instanceof LeaseError, String(found))
  return found
}

async function collected(pieces: AsyncIterable<Uint8Array>): Promise<string> {
  const all: Uint8Array[] = []
  for await (const piece of pieces) all.push(piece)
  return Buffer.concat(all).toString()
}

async function until(done: () => boolean): Promise<void> {
  for (const end = Date.now() + EVENT_TIMEOUT; !done(); await sleep(1)) assert.ok(Date.now() < end, 'nothing happened')
}

async function* chunks(...pieces: string[]): AsyncGenerator<Uint8Array> {
  for (const piece of pieces) yield bytes(piece)
}

function bytes(word: string): Uint8Array {
  return new TextEncoder().encode(word)
}

function text({ bytes }: LogRecord): string {
  return new TextDecoder().decode(bytes)
}

/** Bytes that cannot be compressed. */
function noise(length: number, seed: number): Uint8Array {
  const all = new Uint8Array(length)
  let state = seed * 2_654_435_761 + 1
  for (let i = 0; i < length; i++) {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0
    all[i] = state >>> 24
  }
  return all
}
