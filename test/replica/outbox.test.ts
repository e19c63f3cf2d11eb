import { describe, expect, test } from 'vitest'
import { turn } from '../../src/clock.ts'
import { LeaseError } from '../../src/errors.ts'
import { WINDOW } from '../../src/kernel/codec/batch.ts'
import type { Command } from '../../src/kernel/command.ts'
import type { Outcome } from '../../src/kernel/outcome.ts'
import { propose } from '../../src/lessor/propose.ts'
import type { ProposeOptions } from '../../src/lessor.ts'
import { Replica } from '../../src/replica/replica.ts'
import { MemoryStore } from '../../src/store/memory.ts'
import type { Appended, Position, Read } from '../../src/store.ts'
import { acquire, fate, granted, Line, leases, Rig, until } from '../support/replica/rig.ts'

describe('group commit', () => {
  test('all proposals of one turn go into one record', async () => {
    const rig = new Rig()
    const line = new Line()
    await using replica = await rig.open({ line })
    const answers = await Promise.all(Array.from({ length: 1_000 }, (_, i) => propose(replica, acquire('ann', `a/${i}`))))
    for (const answer of answers) granted(answer)
    expect(line.sent.length).toBe(1)
    expect(replica.stats).toMatchObject({ appends: 1, commands: 1_000, resent: 0 })
  })

  test('all proposals made while an append is under way go into the next one', async () => {
    const rig = new Rig()
    const line = new Line()
    await using replica = await rig.open({ line })
    line.ways.append.push(100)
    const first = propose(replica, acquire('ann', 'a'))
    await until(() => line.sent.length === 1)
    const rest: Promise<unknown>[] = []
    for (let i = 0; i < 50; i++) {
      rest.push(propose(replica, acquire('ann', `b/${i}`)))
      await rig.clock.advance(1)
    }
    expect(line.sent.length).toBe(1)
    await rig.clock.advance(100)
    await Promise.all([first, ...rest])
    expect(line.sent.length).toBe(2)
    expect((await rig.entries()).map(({ proposals }) => proposals.length)).toEqual([1, 50])
  })

  test('a record does not grow far beyond 128 KiB, and the order is kept over several', async () => {
    const rig = new Rig()
    const line = new Line()
    await using replica = await rig.open({ line })
    const lease = granted(await propose(replica, acquire('ann', 'a')))
    const value = 'x'.repeat(8_000)
    const puts = Array.from({ length: 200 }, (_, i) => propose(replica, { kind: 'put', lease: lease.lease, key: `k/${i}`, value }))
    const revisions = (await Promise.all(puts)).map(({ revision }) => revision)
    expect(revisions).toEqual(revisions.map((_, i) => revisions[0]! + i))
    expect(line.sent.length).toBe(1 + 12)
    for (const { length } of line.sent) expect(length).toBeLessThan(128 * 1_024 + 9_000)
  })

  test('a record carries commands of at most a thousand leases and names', async () => {
    const rig = new Rig()
    await using replica = await rig.open()
    const answers = await Promise.all(Array.from({ length: 2_500 }, (_, i) => propose(replica, acquire('ann', `a/${i}`))))
    const ids = answers.map(answer => granted(answer).lease)
    await Promise.all([0, 400, 800, 1_200].map(at => propose(replica, { kind: 'renew', leases: ids.slice(at, at + 400) })))
    const records = await rig.entries()
    expect(records.map(({ proposals }) => proposals.length)).toEqual([1_000, 1_000, 500, 3, 1])
  })

  test('behind a flood of one key, the command of another key is in the next record', async () => {
    const rig = new Rig()
    await using replica = await rig.open()
    const value = 'x'.repeat(8_000)
    const lease = granted(await propose(replica, acquire('ann', 'a')))
    const flood = Array.from({ length: 400 }, (_, i) =>
      propose(replica, { kind: 'put', lease: lease.lease, key: `k/${i}`, value }, { key: 1 }),
    )
    const neighbour = propose(replica, acquire('bob', 'b'), { key: 2 })
    await Promise.all([...flood, neighbour])
    const keys = (await rig.entries()).map(({ proposals }) => proposals.map(({ key }) => key))
    expect(keys.length).toBeGreaterThan(20)
    expect(keys.findIndex(ofRecord => ofRecord.includes(2))).toBe(2) // after the grant, and the record that was full before it came
  })
})

test('a caller that proposes again after every answer does not starve other work', async () => {
  const rig = new Rig()
  await using replica = await rig.open()
  let turns = 0
  let over = false
  const others = (async () => {
    for (; !over; turns++) await turn()
  })()
  for (let i = 0; i < 100; i++) await propose(replica, { kind: 'renew', leases: [1] })
  over = true
  await others
  expect(turns).toBeGreaterThan(50)
})

describe('answers come after durability', () => {
  for (const owned of [false, true]) {
    test(`while an append is under way, nothing of it is answered, delivered to watches or shown (${owned ? 'owned' : 'shared'})`, async () => {
      const rig = new Rig()
      const line = new Line()
      await using replica = await rig.open({ owned, line })
      granted(await propose(replica, acquire('ann', 'a')))
      const received: string[] = []
      const controller = new AbortController()
      const watching = (async () => {
        for await (const events of replica.watch('', { signal: controller.signal })) received.push(...events.map(({ type }) => type))
      })()
      await rig.clock.settle()
      line.ways.append.push(1_000)
      const answer = fate(propose(replica, acquire('bob', 'b')))
      await rig.clock.advance(999)
      expect(answer.settled).toBe(false)
      expect(received).toEqual([])
      expect(await leases(replica)).toEqual(['ann'])
      await rig.clock.advance(1)
      expect(answer.settled).toBe(true)
      expect(received).toEqual(['granted'])
      expect(await leases(replica)).toEqual(['ann', 'bob'])
      controller.abort()
      await watching
    })
  }

  test('a record that its proposer reads in the log before the append is answered is settled once, and closing does not wait', async () => {
    const rig = new Rig()
    const line = new Line()
    const replica = await rig.open({ line })
    line.ways.append.push(0, 60_000)
    const answer = fate(propose(replica, acquire('ann', 'a')))
    await rig.clock.settle()
    expect(answer.value?.kind).toBe('granted')
    const closed = fate(replica[Symbol.asyncDispose]())
    await rig.clock.settle()
    expect(closed.settled).toBe(true)
  })
})

describe('lost answers', () => {
  for (const owned of [false, true]) {
    test(`an append whose answer was lost is sent again byte for byte and applied once (${owned ? 'owned' : 'shared'})`, async () => {
      const rig = new Rig()
      const line = new Line()
      await using replica = await rig.open({ owned, line })
      const sent = line.sent.length
      line.faults.push('lost', 'lost', undefined)
      // Its own reads are slow, so that it depends on the answers of its appends.
      line.ways.read.push(...Array(20).fill(5_000))
      const answer = fate(propose(replica, acquire('ann', 'a')))
      await rig.clock.advance(1_000)
      expect(answer.value?.kind).toBe('granted')
      expect(new Set(line.sent.slice(sent).map(bytes => Buffer.from(bytes).toString('hex'))).size).toBe(1)
      expect((await replica.read({ kind: 'summary' })).value.leases).toBe(1)
      granted(await propose(replica, acquire('bob', 'b')))
    })

    test(`an append that never arrived is sent until it does (${owned ? 'owned' : 'shared'})`, async () => {
      const rig = new Rig()
      const line = new Line()
      await using replica = await rig.open({ owned, line })
      line.faults.push('dropped', 'refused', 'dropped', undefined)
      const answer = fate(propose(replica, acquire('ann', 'a')))
      await rig.clock.advance(1_000)
      expect(answer.value?.kind).toBe('granted')
      expect(replica.stats.resent).toBe(3)
    })
  }

  test('a record that is in the log twice is applied once, on every replica', async () => {
    const rig = new Rig()
    const line = new Line()
    await using a = await rig.open({ line })
    await using b = await rig.open()
    line.always = 'doubled'
    for (let i = 0; i < 5; i++) granted(await propose(a, acquire('ann', `a/${i}`)))
    await rig.clock.settle()
    expect(await rig.raw()).toHaveLength(10)
    expect((await b.read({ kind: 'summary' })).value.leases).toBe(5)
    expect(a.hash()).toBe(b.hash())
  })

  test('UNAVAILABLE is returned at once, nothing was done, and the next proposal succeeds', async () => {
    const rig = new Rig()
    const line = new Line()
    await using replica = await rig.open({ line })
    line.faults.push('refused')
    const answers = await Promise.allSettled([propose(replica, acquire('ann', 'a')), propose(replica, acquire('bob', 'b'))])
    for (const answer of answers) expect(answer).toMatchObject({ status: 'rejected', reason: { code: 'UNAVAILABLE' } })
    expect(await rig.raw()).toEqual([])
    granted(await propose(replica, acquire('ann', 'a')))
  })

  test('a proposal without an answer fails with UNKNOWN after the timeout; its record is still settled, once', async () => {
    const rig = new Rig()
    const line = new Line()
    await using replica = await rig.open({ line, timeout: 5_000 })
    line.ways.append.push(8_000)
    const answer = fate(propose(replica, acquire('ann', 'a')))
    await rig.clock.advance(4_999)
    expect(answer.settled).toBe(false)
    await rig.clock.advance(1)
    expect(answer.error?.code).toBe('UNKNOWN')
    await rig.clock.advance(3_000)
    expect(await leases(replica)).toEqual(['ann'])
    granted(await propose(replica, acquire('bob', 'b')))
  })

  test('a caller that got UNKNOWN is not called back again, neither later nor when the outcome comes', async () => {
    const rig = new Rig()
    const line = new Line()
    const replica = await rig.open({ line, timeout: 5_000 })
    const received: string[] = []
    const ask = (name: string) =>
      replica.submit(
        acquire(name, name),
        {},
        {
          settle: ({ kind }) => received.push(`${name} ${kind}`),
          fail: error => received.push(`${name} ${(error as LeaseError).code}`),
        },
      )
    line.ways.append.push(12_000)
    ask('ann')
    await rig.clock.advance(11_000)
    expect(received).toEqual(['ann UNKNOWN'])
    await rig.clock.advance(10_000)
    expect(await leases(replica)).toEqual(['ann'])
    line.always = 'dropped'
    ask('bob')
    await rig.clock.advance(6_000)
    await Promise.all([replica[Symbol.asyncDispose](), rig.clock.advance(10_000)])
    expect(received).toEqual(['ann UNKNOWN', 'bob UNKNOWN'])
  })

  test('proposals behind an unanswered append fail with UNAVAILABLE in time, and are never done', async () => {
    const rig = new Rig()
    const line = new Line()
    await using replica = await rig.open({ line, timeout: 5_000 })
    line.ways.append.push(60_000)
    const first = fate(propose(replica, acquire('ann', 'a')))
    await rig.clock.advance(1_000)
    const behind = fate(propose(replica, acquire('bob', 'b')))
    const read = fate(replica.read({ kind: 'summary' }, { consistent: true }))
    await rig.clock.advance(10_000)
    expect(first.error?.code).toBe('UNKNOWN')
    expect(behind.error?.code).toBe('UNAVAILABLE')
    expect(read.settled).toBe(true)
    await rig.clock.advance(60_000)
    expect((await rig.commands('acquire')).map(({ holder }) => holder)).toEqual(['ann'])
  })
})

/** Its answers carry nothing of what was missed; then the connection breaks for a moment. */
class Curt extends MemoryStore {
  curt = false
  down = false

  override async append(entry: Uint8Array, after: Position): Promise<Appended> {
    const appended = await super.append(entry, after)
    if (!this.curt || appended.kind !== 'appended') return appended
    this.curt = false
    this.down = true
    return { kind: 'behind', position: appended.position }
  }

  override async read(after: Position, options: { readonly wait?: AbortSignal } = {}): Promise<Read> {
    const read = await super.read(after, options)
    if (this.down) throw new LeaseError('UNAVAILABLE', 'the connection broke')
    return read
  }
}

test('a proposal that is in the log is not reported as failed when the records before it cannot be read at once', async () => {
  const rig = new Rig()
  const store = new Curt({ log: rig.log, clock: rig.clock })
  await using replica = await Replica.open(store, { clock: rig.clock })
  store.curt = true
  const asked = fate(propose(replica, acquire('bob', 'b')))
  for (let turns = 0; turns < 200; turns++) await turn()
  expect(asked.settled).toBe(false)
  store.down = false
  await rig.clock.advance(2_000)
  expect(asked.value).toMatchObject({ kind: 'granted' })
  expect(await leases(replica)).toEqual(['bob'])
})

test('a store that says why it cannot write: callers are told so after a second, and the record is sent until its fate is known', async () => {
  const { clock, log } = new Rig()
  const store = new MemoryStore({ log, clock })
  const append = store.append.bind(store)
  let isFull = false
  store.append = async (record, after) => {
    if (isFull) throw new LeaseError('UNKNOWN', 'the disk of /x is full', { reason: 'full', facts: { path: '/x' } })
    return append(record, after)
  }
  await using replica = await Replica.open(store, { clock })
  isFull = true
  const first = propose(replica, acquire('ann', 'a')).catch(error => error)
  await clock.advance(500)
  const behind = propose(replica, acquire('ann', 'b')).catch(error => error)
  await clock.advance(2_500)
  const because = { reason: 'full', facts: { path: '/x' }, message: expect.stringContaining('the disk of /x is full') }
  expect(await first).toMatchObject({ code: 'UNKNOWN', ...because })
  expect(await behind).toMatchObject({ code: 'UNAVAILABLE', ...because })
  isFull = false
  await clock.advance(5_000)
  expect((await replica.read({ kind: 'resource', resource: 'a' })).value.grants).toHaveLength(1)
})

test('a store that throws a foreign error ends the replica with a coded error, also for later calls', async () => {
  const { clock, log } = new Rig()
  const odd = new TypeError('odd')
  class Odd extends MemoryStore {
    override append(): Promise<Appended> {
      return Promise.reject(odd)
    }
  }
  await using replica = await Replica.open(new Odd({ log, clock }), { clock })
  await expect(propose(replica, acquire('ann', 'a'))).rejects.toMatchObject({ code: 'UNKNOWN' })
  await expect(propose(replica, acquire('bob', 'b'))).rejects.toMatchObject({ code: 'UNAVAILABLE', cause: odd })
  await expect(replica.read({ kind: 'summary' })).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  expect(replica.signal.reason).toMatchObject({ code: 'UNAVAILABLE', cause: odd })
})

test('a replica whose store has ended reads no more of it, and closes without waiting', async () => {
  const rig = new Rig()
  const end = new AbortController()
  let reads = 0
  class Ending extends MemoryStore {
    readonly ended = end.signal
    override read(after: Position, options: { readonly wait?: AbortSignal } = {}): Promise<Read> {
      reads++
      return super.read(after, options)
    }
  }
  const replica = await Replica.open(new Ending({ log: rig.log, clock: rig.clock }), { clock: rig.clock })
  await turn()
  const before = reads
  end.abort(new LeaseError('UNAVAILABLE', 'the store has ended'))
  await rig.clock.advance(10_000)
  expect(reads).toBe(before)
  await replica[Symbol.asyncDispose]()
})

test('an answer that came while this process stood still is read before a caller gets UNKNOWN', async () => {
  const rig = new Rig()
  const line = new Line()
  await using replica = await rig.open({ line, timeout: 30_000 })
  line.ways.append.push(100)
  const asked = fate(propose(replica, acquire('ann', 'a')))
  await until(() => line.sent.length === 1)
  const behind = fate(propose(replica, acquire('bob', 'b')))
  rig.clock.stall(31_000)
  await rig.clock.settle()
  expect(asked.value).toMatchObject({ kind: 'granted' })
  expect(behind.value).toMatchObject({ kind: 'granted' })
})

describe('records that come too late', () => {
  test('a record more than WINDOW out of date is void, and its commands are proposed again, once', async () => {
    const rig = new Rig()
    const slow = new Line()
    await using a = await rig.open({ line: slow })
    await using b = await rig.open()
    slow.ways.append.push(1_000)
    const answer = fate(propose(a, acquire('ann', 'a')))
    await until(() => slow.sent.length === 1)
    for (let i = 0; i < WINDOW + 2; i++) await propose(b, { kind: 'renew', leases: [1] })
    await rig.clock.advance(1_000)
    await rig.clock.settle()
    expect(answer.value?.kind).toBe('granted')
    expect(a.stats.voided).toBe(1)
    expect((await rig.commands('acquire')).length).toBe(2)
    expect(await leases(b)).toEqual(['ann'])
    expect(a.hash()).toBe(b.hash())
  })

  test('a void copy after skipped records may have been applied earlier: its commands are not proposed again', async () => {
    const rig = new Rig()
    const line = new Line()
    await using a = await rig.open({ line, timeout: 1e9 })
    await using b = await rig.open({ snapshotRecords: 2_000 })
    line.faults.push('lost', 'dropped')
    line.ways.append.push(0, 0, 60_000) // the first copy arrives at once and its answer is lost; the second takes its time
    line.ways.read.push(1e9) // and what was read never comes
    const answer = fate(propose(a, acquire('ann', 'a', { wait: true })))
    await rig.clock.advance(100)
    expect(line.sent.length).toBe(2)
    for (let i = 0; i < WINDOW + 4_100; i++) await propose(b, { kind: 'renew', leases: [1] })
    await rig.clock.settle()
    expect(b.stats.snapshots).toBeGreaterThan(1)
    await rig.clock.advance(200_000)
    expect(a.stats.reloads).toBeGreaterThan(0)
    expect(answer.error?.code).toBe('UNKNOWN')
    expect(await leases(b)).toHaveLength(0) // it lapsed long ago, and no second one was queued or granted
    expect((await b.read({ kind: 'history', resource: 'a' })).value).toHaveLength(1)
    expect(a.hash()).toBe(b.hash())
  })
})

test('a record among those that a snapshot made its proposer skip fails with UNKNOWN, and its callers do not wait for ever', async () => {
  const rig = new Rig()
  const line = new Line()
  await using a = await rig.open({ line })
  await using b = await rig.open({ snapshotRecords: 1_200 })
  const lease = granted(await propose(b, acquire('bob', 'b', { ttl: 60_000 })))
  await rig.clock.settle()
  const pour = async (count: number) => {
    for (let i = 0; i < count; i++) await propose(b, { kind: 'renew', leases: [lease.lease] })
  }
  line.ways.read.push(...Array(10).fill(5_000)) // it hears nothing for a while
  await pour(1_100)
  line.ways.append.push(0, 1_000)
  const answer = fate(propose(a, acquire('ann', 'a')))
  await until(() => line.sent.length === 1)
  await pour(2_500)
  expect(a.stats.resent).toBe(0)
  await rig.clock.advance(30_000)
  expect(a.stats.reloads).toBeGreaterThan(0)
  expect(answer.error?.code).toBe('UNKNOWN')
  expect((await b.read({ kind: 'history', resource: 'a' })).value.map(({ holder }) => holder)).toEqual(['ann'])
})

describe('a record that was made before its replica loaded a snapshot', () => {
  /** A replica whose last record, a copy that changed nothing, is lost. The log has grown since, and what the replica stands on was trimmed. */
  async function leftBehind() {
    const rig = new Rig()
    const line = new Line()
    const a = await rig.open({ line, timeout: 1e9 })
    granted(await propose(a, acquire('ann', 'a', { ttl: 60_000 })))
    await rig.inject(line.sent[0]!)
    await a.read({ kind: 'leases' })
    expect(a.index).toBe(2)
    rig.log.loseTail(1)
    await rig.clock.settle()
    line.ways.read.push(1e9) // the answer that would tell it of the loss does not arrive
    const b = await rig.open({ snapshotRecords: 10 })
    const pour = async () => {
      while (b.stats.snapshots < 2) {
        await propose(b, { kind: 'renew', leases: [1] })
        await rig.clock.settle()
      }
    }
    return { rig, line, a, b, pour }
  }

  test('is not sent again with a header about lost records, which would stop the other replicas', async () => {
    const { rig, pour, ...replicas } = await leftBehind()
    await using a = replicas.a
    await using b = replicas.b
    await pour()
    const answer = fate(propose(a, acquire('bob', 'b')))
    await rig.clock.advance(30_000)
    expect(a.stats.reloads).toBe(1)
    expect(answer.value?.kind).toBe('granted')
    await Promise.all([a, b].map(replica => replica.read({ kind: 'leases' })))
    expect(b.signal.aborted).toBe(false)
    expect(a.hash()).toBe(b.hash())
  })

  test('fails with UNKNOWN if an earlier copy may be in the log', async () => {
    const { rig, line, pour, ...replicas } = await leftBehind()
    await using a = replicas.a
    await using b = replicas.b
    line.faults.push('dropped')
    const answer = fate(propose(a, acquire('bob', 'b')))
    await until(() => line.sent.length === 2)
    await pour()
    await rig.clock.advance(30_000)
    expect(a.stats.reloads).toBe(1)
    expect(answer.error?.code).toBe('UNKNOWN')
    expect(b.signal.aborted).toBe(false)
  })
})

describe('refusals', () => {
  test('many refusals at once cost at most two reads, and nothing is written', async () => {
    const rig = new Rig()
    const line = new Line()
    await using a = await rig.open({ line })
    await using b = await rig.open()
    granted(await propose(b, acquire('ann', 'a')))
    await rig.clock.settle()
    const entries = (await rig.raw()).length
    let reads = 0
    const store = MemoryStore.prototype
    const read = store.read
    store.read = function (...args) {
      if (args[1]?.wait === undefined) reads++
      return read.apply(this, args)
    }
    try {
      const answers = await Promise.all(Array.from({ length: 500 }, (_, i) => propose(a, acquire(`h${i}`, 'a'))))
      for (const answer of answers) expect(answer).toMatchObject({ kind: 'refused', code: 'HELD' })
    } finally {
      store.read = read
    }
    expect(reads).toBeLessThanOrEqual(2)
    expect((await rig.raw()).length).toBe(entries)
  })

  test('a grant that a read shows is appended again before another replica answers with it: what holders believe rests on no read alone', async () => {
    const rig = new Rig()
    await using a = await rig.open({ line: new Line() })
    await using b = await rig.open()
    const op = { session: 's', seq: 1, acked: 0 }
    const first = granted(await propose(b, acquire('ann', 'a'), { op }))
    await rig.clock.settle()
    const entries = (await rig.raw()).length
    expect(await propose(a, acquire('ann', 'a'), { op })).toEqual(first)
    expect((await rig.raw()).length).toBe(entries + 1)
  })

  test('a refusal was true when the command was proposed: a release that was acknowledged before is seen', async () => {
    const rig = new Rig()
    const line = new Line()
    await using a = await rig.open({ line })
    await using b = await rig.open()
    const lease = granted(await propose(b, acquire('ann', 'a')))
    await rig.clock.settle()
    line.ways.read.push(0, 1_000, 0, 0, 0, 0) // the tail hears of the release a second late
    await propose(b, { kind: 'release', lease: lease.lease })
    const answer = fate(propose(a, acquire('bob', 'a')))
    await rig.clock.advance(3_000)
    expect(answer.value?.kind).toBe('granted')
  })
})

test('an owner refuses nothing while the fate of its own record is unknown', async () => {
  const rig = new Rig()
  const line = new Line()
  await using owner = await rig.open({ owned: true, line, timeout: 1_000 })
  const ann = granted(await propose(owner, acquire('ann', 'a', { ttl: 60_000 })))
  line.ways.append.push(0, 5_000) // the release is in the log, and its answer is on the way
  const released = fate(propose(owner, { kind: 'release', lease: ann.lease }))
  await rig.clock.settle()
  const bob = fate(propose(owner, acquire('bob', 'a')))
  await rig.clock.advance(2_000)
  expect(released.error?.code).toBe('UNKNOWN')
  expect(bob.value).toBe(undefined)
  expect(bob.error?.code).toBe('UNAVAILABLE')
  await rig.clock.advance(4_000)
  expect((await propose(owner, acquire('bob', 'a'))).kind).toBe('granted')
})

for (const owned of [false, true])
  describe(`while a lapse is under way to a${owned ? 'n owned' : ' shared'} log and the store says nothing certain`, () => {
    async function undecided(rig: Rig, line: Line): Promise<Replica> {
      const replica = await rig.open({ owned, line, timeout: 400 })
      granted(await propose(replica, acquire('ann', 'a', { ttl: 500 })))
      granted(await propose(replica, acquire('bob', 'b', { ttl: 60_000 })))
      line.always = 'dropped'
      await rig.clock.advance(700)
      return replica
    }

    const asks: Record<string, (replica: Replica) => Promise<unknown>> = {
      'a consistent read': replica => replica.read({ kind: 'resource', resource: 'b' }, { consistent: true }),
      'an acquire that does not wait': replica => propose(replica, acquire('eve', 'b')),
      'a release of what is gone': replica => propose(replica, { kind: 'release', lease: 7 }),
      'a backup': async replica => {
        for await (const _ of replica.backup()) break
      },
      'a watch from a later revision': async replica => {
        const over = new AbortController()
        for await (const _ of replica.watch('', { after: replica.revision + 5, signal: over.signal })) break
      },
    }
    for (const [what, ask] of Object.entries(asks))
      test(`${what} is answered within the replica's timeout`, async () => {
        const rig = new Rig()
        const line = new Line()
        await using replica = await undecided(rig, line)
        const answer = fate(ask(replica))
        await rig.clock.advance(420)
        // Nothing was sent. A replica of a shared log reads its end; an owner, whose own record may be that end, cannot know it.
        if (owned) expect(answer.error?.code).toBe('UNAVAILABLE')
        else expect(answer).toMatchObject({ settled: true })
        if (!owned) expect(answer.error).toBe(undefined)
        line.always = undefined
        await rig.clock.advance(2_000)
        expect(await leases(replica)).toEqual(['bob'])
      })

    test('a watch that is aborted before the end of the log is known ends at once', async () => {
      const rig = new Rig()
      const line = new Line()
      await using replica = await undecided(rig, line)
      line.ways.read.push(...Array.from({ length: 50 }, () => 10_000))
      const over = new AbortController()
      const received: unknown[] = []
      const watching = (async () => {
        for await (const events of replica.watch('', { after: replica.revision + 5, signal: over.signal })) received.push(events)
      })()
      const ended = fate(watching.then(() => 'ended'))
      await rig.clock.settle()
      over.abort()
      await rig.clock.settle()
      expect(ended.value).toBe('ended')
      expect(received).toEqual([])
      line.always = undefined
      line.ways.read.length = 0
      await rig.clock.advance(20_000)
    })

    test('calls leave no listeners and timers behind once they are answered', async () => {
      const rig = new Rig()
      const replica = await rig.open({ owned, timeout: 400 })
      granted(await propose(replica, acquire('bob', 'b', { ttl: 60_000 })))
      await rig.clock.settle()
      const { waiting } = rig.clock
      for (let i = 0; i < 20; i++) await asks['a consistent read']!(replica)
      await rig.clock.settle()
      expect(rig.clock.waiting).toBe(waiting)
      await replica[Symbol.asyncDispose]()
    })
  })

test('a snapshot that was overtaken while it was read is not loaded: watches miss nothing and no record is applied again', async () => {
  const rig = new Rig()
  let goOn = () => {}
  const read = new Promise<void>(resolve => (goOn = resolve))
  const line = new Line()
  const store = rig.store({ line })
  store.newest = async () => {
    const snapshot = rig.log.snapshot!
    const slowly = async function* () {
      await read
      yield* snapshot.bytes
    }
    return { ...snapshot, bytes: slowly() }
  }
  await using writer = await rig.open({ snapshotRecords: 10 })
  await using replica = await Replica.open(store, { clock: rig.clock, snapshotRecords: 1e9, snapshotBytes: 1e9 })
  const { lease } = granted(await propose(writer, acquire('ann', 'a', { ttl: 60_000 })))
  await rig.clock.settle()
  const seen: string[] = []
  const stop = new AbortController()
  const watching = (async () => {
    for await (const events of replica.watch('', { signal: stop.signal })) seen.push(...events.map(({ type }) => type))
  })()
  line.ways.read.push(1_000) // its tail asks late, when what it stands on has been trimmed
  await propose(writer, { kind: 'renew', leases: [lease] })
  await rig.clock.settle()
  const pour = async (snapshots: number) => {
    while (writer.stats.snapshots < snapshots) {
      await propose(writer, { kind: 'renew', leases: [lease] })
      await rig.clock.settle()
    }
  }
  await pour(1)
  line.ways.append.push(0, 2_000)
  const first = fate(propose(replica, acquire('bob', 'b', { ttl: 60_000 })))
  await rig.clock.settle()
  await pour(2)
  await rig.clock.advance(1_000)
  expect(replica.stats.reloads).toBe(1)
  await rig.clock.advance(1_000)
  expect(first.value?.kind).toBe('granted')
  granted(await propose(replica, acquire('eve', 'c', { ttl: 60_000 })))
  const { index } = replica
  expect(index).toBeGreaterThan(rig.log.snapshot!.position.index)
  goOn()
  await rig.clock.settle()
  expect(replica.index).toBe(index)
  expect(seen).toEqual(['granted', 'granted'])
  stop.abort()
  await watching
})

test('callbacks get the same outcomes as promises, once each', async () => {
  const rig = new Rig()
  const replica = await rig.open({ owned: true })
  const ask = (command: Command, options: ProposeOptions = {}) =>
    new Promise<{ readonly outcome?: Outcome; readonly code?: string }>(resolve => {
      let calls = 0
      const once = (answer: { readonly outcome?: Outcome; readonly code?: string }) => {
        expect(++calls).toBe(1)
        resolve(answer)
      }
      replica.submit(command, options, {
        settle: outcome => once({ outcome }),
        fail: error => once({ code: (error as LeaseError).code }),
      })
    })
  const { outcome } = await ask(acquire('ann', 'a'))
  const { lease } = granted(outcome!)
  const written = replica.stats.appends
  expect(await ask(acquire('bob', 'a'))).toMatchObject({ outcome: { kind: 'refused', code: 'HELD' } })
  expect(replica.stats.appends).toBe(written) // what is certain to be refused is not written
  expect(await ask({ kind: 'nonsense' } as never)).toMatchObject({ outcome: { kind: 'refused', code: 'INVALID' } })
  expect(await ask({ kind: 'renew', leases: [lease, 5] })).toMatchObject({ outcome: { kind: 'renewed', ttls: [10_000, -1] } })
  expect(replica.stats.appends).toBe(written + 1) // the first renewal is
  expect(await ask({ kind: 'renew', leases: [lease] })).toMatchObject({ outcome: { kind: 'renewed', ttls: [10_000] } })
  expect(replica.stats).toMatchObject({ appends: written + 1, memoryRenewals: 2 })
  const op = { session: 's', seq: 1, acked: 0 }
  const first = await ask(acquire('ann', 'b'), { op })
  expect(await ask(acquire('ann', 'b'), { op: { ...op, again: true } })).toEqual(first)
  await expect(ask(acquire('ann', 'c'), { signal: AbortSignal.abort(new LeaseError('UNAVAILABLE', 'over')) })).resolves.toEqual({
    code: 'UNAVAILABLE',
  })
  await replica[Symbol.asyncDispose]()
  expect(await ask(acquire('ann', 'd'))).toEqual({ code: 'UNAVAILABLE' })
})
