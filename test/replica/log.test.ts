import { describe, expect, test } from 'vitest'
import { turn } from '../../src/clock.ts'
import { LeaseError } from '../../src/errors.ts'
import { FORMAT } from '../../src/kernel/codec/format.ts'
import type { Command } from '../../src/kernel/command.ts'
import { RULES } from '../../src/kernel/state.ts'
import { propose } from '../../src/lessor/propose.ts'
import { Replica } from '../../src/replica/replica.ts'
import { type MemoryLog, MemoryStore } from '../../src/store/memory.ts'
import type { Appended, Position, Read } from '../../src/store.ts'
import { acquire, fate, granted, Line, leases, queued, Rig, renew, until } from '../support/replica/rig.ts'

/** Reports the position of a record, and loses it before a replica reads that far. */
class Forgetful extends MemoryStore {
  forgets = false
  reads = 0
  readonly #log: MemoryLog

  constructor(options: { readonly log: MemoryLog; readonly clock: Rig['clock'] }) {
    super(options)
    this.#log = options.log
  }

  override async append(entry: Uint8Array, after: Position): Promise<Appended> {
    const appended = await super.append(entry, after)
    if (!this.forgets || appended.kind !== 'appended') return appended
    this.#log.loseTail(1)
    return { kind: 'behind', position: appended.position }
  }

  override async read(after: Position, { wait }: { readonly wait?: AbortSignal } = {}): Promise<Read> {
    if (wait === undefined && this.forgets && ++this.reads > 1_000) throw new LeaseError('DIVERGED', 'it was read a thousand times')
    const read = await super.read(after, wait && { wait })
    // A waiting reader learns of it too late.
    if (wait !== undefined && this.forgets) await new Promise((_, reject) => wait.addEventListener('abort', () => reject(wait.reason)))
    return read
  }
}

describe('a log that lost its tail', () => {
  for (const owned of [false, true]) {
    test(`is noticed before anything is decided on it, and all callers get the error (${owned ? 'owned' : 'shared'})`, async () => {
      const rig = new Rig()
      const line = new Line()
      await using replica = await rig.open({ owned, line })
      const lease = granted(await propose(replica, acquire('ann', 'a', { ttl: 20_000 })))
      granted(await propose(replica, acquire('bob', 'b')))
      await rig.clock.settle()
      rig.log.loseTail(1)
      line.ways.append.push(100)
      const first = fate(propose(replica, acquire('eve', 'c')))
      await until(() => line.sent.length === (owned ? 4 : 3))
      const second = fate(propose(replica, acquire('eve', 'd')))
      await rig.clock.advance(100)
      // Nothing was appended, and nothing of it was on its way any more: it is certain.
      expect(first.error?.code).toBe('DIVERGED')
      expect(second.error?.code).toBe('DIVERGED')
      expect(replica.signal.aborted).toBe(true)
      expect(replica.signal.reason).toMatchObject({ code: 'DIVERGED', facts: { token: lease.tokens[0]! + 2, quiet: 20_000 } })
      await expect(propose(replica, acquire('eve', 'e'))).rejects.toMatchObject({ code: 'DIVERGED' })
      await expect(replica.read({ kind: 'summary' })).rejects.toMatchObject({ code: 'DIVERGED' })
      expect(replica.survivor.token).toBe(lease.tokens[0]! + 2)
    })
  }

  test('a proposal that may be in the log fails with UNKNOWN, not with UNAVAILABLE', async () => {
    const rig = new Rig()
    const line = new Line()
    await using replica = await rig.open({ line })
    granted(await propose(replica, acquire('ann', 'a')))
    await rig.clock.settle()
    line.faults.push('lost')
    line.ways.read.push(...Array(4).fill(1_000))
    const answer = fate(propose(replica, acquire('eve', 'c')))
    await until(() => line.sent.length === 2)
    await rig.clock.settle()
    rig.log.loseTail(2)
    await rig.clock.advance(1_000)
    expect(answer.error?.code).toBe('UNKNOWN')
    expect(replica.signal.reason).toMatchObject({ code: 'DIVERGED' })
  })

  test('a second loss does not shorten the quiet period of the first', async () => {
    const rig = new Rig()
    await using first = await rig.open()
    const { lease } = granted(await propose(first, acquire('ann', 'a', { ttl: 600_000 })))
    await rig.clock.settle()
    expect(await renew(first, lease)).toEqual([600_000])
    const believes = rig.clock.now() + 600_000
    rig.log.loseTail(1)
    fate(propose(first, acquire('x', 'y')))
    await rig.clock.settle()
    await using second = await rig.open({ survivor: first.survivor })
    rig.log.loseTail(1) // what the first survivor had written
    fate(propose(second, acquire('x', 'y')))
    await rig.clock.settle()
    await using third = await rig.open({ survivor: second.survivor })
    for (let seconds = 0; seconds < 100; seconds++) {
      await rig.clock.advance(1_000)
      expect((await propose(third, acquire('bob', 'a'))).kind, `${believes - rig.clock.now()} ms before ann stops believing`).toBe(
        'refused',
      )
    }
  })

  test('the id of a lost key is not given again', async () => {
    const rig = new Rig()
    await using before = await rig.open()
    granted(await propose(before, acquire('ann', 'a')))
    await rig.clock.settle()
    const key = { kind: 'key', name: 'ci', hash: '0'.repeat(64), allow: [] } as const
    const lost = await propose(before, key)
    rig.log.loseTail(1)
    fate(propose(before, acquire('x', 'y')))
    await rig.clock.settle()
    await using after = await rig.open({ survivor: before.survivor })
    expect(lost).toMatchObject({ kind: 'done', id: 1 })
    expect(await propose(after, key)).toMatchObject({ kind: 'done', id: 2 })
  })

  test('watches must resync after it: events they delivered may be among the lost ones', async () => {
    const rig = new Rig()
    await using before = await rig.open()
    const { lease } = granted(await propose(before, acquire('ann', 'a')))
    await rig.clock.settle()
    await propose(before, { kind: 'put', lease, key: 'services/api/1', value: 'x' })
    const heard = before.revision
    rig.log.loseTail(1)
    fate(propose(before, acquire('x', 'y')))
    await rig.clock.settle()
    await using after = await rig.open({ survivor: before.survivor })
    for await (const events of after.watch('services', { after: heard, signal: new AbortController().signal })) {
      expect(events.map(({ type }) => type)).toEqual(['resync'])
      break
    }
  })

  test('a replica does not search for ever for an acknowledged record that is gone', async () => {
    const rig = new Rig()
    const store = new Forgetful({ log: rig.log, clock: rig.clock })
    await using replica = await Replica.open(store, { clock: rig.clock })
    granted(await propose(replica, acquire('ann', 'a')))
    await rig.clock.settle()
    store.forgets = true
    const asked = fate(propose(replica, acquire('bob', 'b')))
    await until(() => asked.settled)
    expect(asked.error?.code).toBe('UNKNOWN')
    expect(replica.signal.reason).toMatchObject({ code: 'DIVERGED' })
    expect(store.reads).toBeLessThan(10)
  })

  test('a replica that only reads notices a log that lost its tail and has grown again', async () => {
    const rig = new Rig()
    await using reader = await rig.open()
    await using writer = await rig.open()
    granted(await propose(writer, acquire('ann', 'a')))
    granted(await propose(writer, acquire('ann', 'b')))
    await rig.clock.settle()
    rig.log.loseTail(2)
    await using third = await rig.open()
    granted(await propose(third, acquire('eve', 'x')))
    granted(await propose(third, acquire('eve', 'y')))
    granted(await propose(third, acquire('eve', 'z')))
    await rig.clock.settle()
    expect(reader.signal.reason).toMatchObject({ code: 'DIVERGED' })
    expect(third.signal.aborted).toBe(false)
    expect(await leases(third)).toEqual(['eve', 'eve', 'eve'])
  })

  for (const owned of [false, true]) {
    test(`recovery begins above all that the survivor saw, with a quiet period of the longest ttl (${owned ? 'owned' : 'shared'})`, async () => {
      const rig = new Rig()
      const first = await rig.open({ owned })
      const kept = granted(await propose(first, acquire('ann', 'a', { ttl: 20_000 })))
      queued(await propose(first, acquire('bob', 'a', { wait: true, ttl: 60_000 })))
      await first[Symbol.asyncDispose]()
      const lost = await rig.open({ owned })
      const gone = granted(await propose(lost, acquire('eve', 'b', { ttl: 20_000 })))
      rig.log.loseTail(1)
      const { survivor } = lost
      await propose(lost, acquire('x', 'x')).catch(() => {})
      await lost[Symbol.asyncDispose]()
      // What is overdue by now must not be granted to the next waiter before the generation has begun.
      await rig.clock.advance(25_000)
      const line = new Line()
      line.ways.append.push(100, 100, 100, 100)
      const opening = rig.open({ owned, survivor, line })
      await rig.clock.advance(1_000)
      await using replica = await opening
      await rig.clock.advance(4_000)
      expect((await rig.commands('aged')).length).toBeLessThan(10)
      const { value } = await replica.read({ kind: 'summary' })
      expect(value.quiet).toBe(true)
      expect(value.nextToken).toBeGreaterThan(gone.tokens[0]!)
      expect((await replica.read({ kind: 'history', resource: 'a' })).value.map(({ token }) => token)).not.toContain(gone.tokens[0])
      expect(await propose(replica, acquire('eve', 'c'))).toMatchObject({ kind: 'refused', code: 'UNAVAILABLE' })
      for (const { grants } of (await replica.read({ kind: 'leases' })).value)
        for (const { token } of grants) expect(token === kept.tokens[0] || token > gone.tokens[0]!).toBe(true)
      await rig.clock.advance(16_100)
      expect((await replica.read({ kind: 'summary' })).value.quiet).toBe(false)
      const next = granted(await propose(replica, acquire('eve', 'c')))
      expect(next.tokens[0]).toBeGreaterThan(gone.tokens[0]!)
      expect(next.lease).toBeGreaterThan(gone.lease)
      expect(next.revision).toBeGreaterThan(gone.revision)
    })
  }

  test('counters of a log found empty still grow: they start from the wall clock', async () => {
    const rig = new Rig()
    const first = await rig.open()
    const before = granted(await propose(first, acquire('ann', 'a')))
    await first[Symbol.asyncDispose]()
    await rig.clock.advance(1_000)
    const other = new Rig()
    await other.clock.advance(1_000) // another engine, the same wall
    await using second = await other.open()
    const after = granted(await propose(second, acquire('ann', 'a')))
    expect(after.tokens[0]).toBeGreaterThan(before.tokens[0]!)
    expect(after.lease).toBeGreaterThan(before.lease)
  })
})

describe('an owner that was taken for dead', () => {
  test('is disowned by its next append: the error names the new owner, and nothing was done', async () => {
    const rig = new Rig()
    await using first = await rig.open({ owned: true })
    granted(await propose(first, acquire('ann', 'a')))
    rig.log.forgetOwner()
    await using second = await rig.open({ owned: true })
    const answer = fate(propose(first, acquire('bob', 'b')))
    await rig.clock.settle()
    expect(answer.error).toMatchObject({ code: 'UNAVAILABLE', message: expect.stringMatching(/owner \d+ has taken over/) })
    expect(first.signal.reason).toMatchObject({ code: 'UNAVAILABLE', facts: { owner: expect.any(String) } })
    expect(await leases(second)).toEqual(['ann'])
    granted(await propose(second, acquire('bob', 'b')))
  })
})

describe('snapshots', () => {
  test('a large state is not copied over and over: as many bytes are written between two snapshots as one takes', async () => {
    const rig = new Rig()
    await using replica = await rig.open({ snapshotBytes: 1_000, snapshotRecords: 20 })
    const ids: number[] = []
    for (let i = 0; i < 20; i++) {
      const all = await Promise.all(Array.from({ length: 100 }, (_, j) => propose(replica, acquire('ann', `a/${i}/${j}`))))
      ids.push(...all.map(outcome => granted(outcome).lease))
      await rig.clock.settle()
    }
    const before = replica.stats.snapshots
    for (let i = 0; i < 200; i++) {
      await propose(replica, { kind: 'renew', leases: ids.slice(0, 1_000) })
      await rig.clock.settle()
    }
    const made = replica.stats.snapshots - before
    expect(made).toBeGreaterThan(0)
    expect(made).toBeLessThan(6)
  })

  test('are taken in slices while commands are applied, and lead to the same state', async () => {
    const rig = new Rig()
    await using replica = await rig.open({ snapshotRecords: 40 })
    await Promise.all(Array.from({ length: 5_000 }, (_, i) => propose(replica, acquire(`holder-${i}`, `a/${i}`, { ttl: 60_000 }))))
    for (let i = 0; i < 400; i++) {
      await propose(replica, {
        kind: 'release',
        lease: (await replica.read({ kind: 'resource', resource: `a/${i * 7}` })).value.grants[0]!.lease,
      })
      await propose(replica, acquire('late', `late/${i}`))
    }
    await rig.clock.settle()
    expect(replica.stats.snapshots).toBeGreaterThan(1)
    await using other = await rig.open()
    expect(other.index).toBe(replica.index)
    expect(other.hash()).toBe(replica.hash())
  })

  test('are taken by one of many replicas: the others find it', async () => {
    const rig = new Rig()
    const replicas = [
      await rig.open({ snapshotRecords: 40 }),
      await rig.open({ snapshotRecords: 40 }),
      await rig.open({ snapshotRecords: 40 }),
    ]
    for (let i = 0; i < 400; i++) {
      granted(await propose(replicas[i % 3]!, acquire(`holder-${i}`, `a/${i}`, { ttl: 60_000 })))
      await rig.clock.settle()
    }
    const made = replicas.reduce((sum, { stats }) => sum + stats.snapshots, 0)
    expect(made).toBeGreaterThan(7)
    expect(made).toBeLessThan(14)
    for (const replica of replicas) await replica[Symbol.asyncDispose]()
  })

  test('may be cut anywhere by the store that keeps them', async () => {
    for (const size of [1, 7, 1_000, 1_000_000]) {
      const rig = new Rig()
      const line = new Line()
      await using replica = await rig.open({ line, snapshotRecords: 10 })
      const { store } = line
      const keep = store!.snapshot.bind(store)
      store!.snapshot = (at, bytes) => keep(at, piecesOf(size, bytes))
      await Promise.all(Array.from({ length: 100 }, (_, i) => propose(replica, acquire(`holder-${i}`, `a/${i}`))))
      for (let i = 0; i < 10; i++) granted(await propose(replica, acquire('ann', `b/${i}`)))
      await rig.clock.settle()
      expect(replica.stats.snapshots).toBe(1)
      await using other = await rig.open()
      expect(other.hash()).toBe(replica.hash())
    }
  })

  test('a replica that was cut off while the log lost records and was trimmed notices the loss by the snapshot', async () => {
    const rig = new Rig()
    const line = new Line()
    await using behind = await rig.open({ line })
    granted(await propose(behind, acquire('ann', 'a')))
    await rig.clock.settle()
    line.ways.read.push(...Array(4).fill(5_000)) // it hears nothing for a while
    const lost = granted(await propose(behind, acquire('ann', 'b', { ttl: 60_000 })))
    rig.log.loseTail(1) // before another replica has seen it
    await using busy = await rig.open({ snapshotRecords: 20 })
    for (let i = 0; i < 100; i++) {
      granted(await propose(busy, acquire('bob', `b/${i}`)))
      await turn()
    }
    line.ways.append.push(6_000)
    const answer = fate(propose(behind, acquire('ann', 'late')))
    await rig.clock.advance(30_000)
    expect(answer.error?.code).toBe('DIVERGED')
    expect(behind.signal.reason).toMatchObject({ code: 'DIVERGED', message: expect.stringMatching(/without record/) })
    expect(behind.survivor.token).toBeGreaterThan(lost.tokens[0]!)
    // Replicas that never saw it go on: only the one that did can report it.
    expect(busy.signal.aborted).toBe(false)
    granted(await propose(busy, acquire('bob', 'more')))
  })

  test('a replica behind the trimmed log starts from the snapshot, sends its watchers a resync, and answers again', async () => {
    const rig = new Rig()
    const line = new Line()
    await using behind = await rig.open({ line })
    await using busy = await rig.open({ snapshotRecords: 20 })
    granted(await propose(behind, acquire('ann', 'a', { ttl: 60_000 })))
    await rig.clock.settle()
    const received: string[] = []
    const controller = new AbortController()
    const watching = (async () => {
      for await (const events of behind.watch('', { signal: controller.signal })) received.push(...events.map(({ type }) => type))
    })()
    await rig.clock.settle()
    line.ways.read.push(5_000, 5_000) // it hears nothing for a while
    for (let i = 0; i < 100; i++) {
      granted(await propose(busy, acquire('bob', `b/${i}`)))
      await turn()
    }
    line.ways.append.push(6_000)
    const answer = fate(propose(behind, acquire('ann', 'late')))
    await rig.clock.advance(30_000)
    expect(behind.stats.reloads).toBeGreaterThan(0)
    expect(answer.value?.kind).toBe('granted')
    expect(received).toContain('resync')
    expect(received.slice(received.indexOf('resync') + 1)).not.toContain('resync')
    await rig.clock.settle()
    expect(behind.hash()).toBe(busy.hash())
    controller.abort()
    await watching
  })
})

describe('replicas that differ', () => {
  test('reach the same state under any load, each with its own connection', async () => {
    for (const seed of [1, 2, 3]) {
      const rig = new Rig()
      const random = chance(seed)
      const lines = [new Line(), new Line(), new Line()]
      const replicas: Replica[] = []
      for (const line of lines) replicas.push(await rig.open({ line, snapshotRecords: 50 }))
      const asked: Promise<unknown>[] = []
      const known: number[] = []
      for (let i = 0; i < 1_500; i++) {
        const which = random(3)
        if (random(40) === 0) lines[which]!.faults.push((['lost', 'refused', 'dropped', 'doubled'] as const)[random(4)])
        if (random(20) === 0) lines[which]!.ways.append.push(random(200))
        if (random(20) === 0) lines[which]!.ways.read.push(random(200))
        const answer = propose(replicas[which]!, randomCommand(random, known))
        asked.push(
          answer.then(
            outcome => 'lease' in outcome && known.push(outcome.lease),
            () => {},
          ),
        )
        if (random(4) === 0) await rig.clock.advance(random(100))
      }
      await rig.clock.advance(3_000)
      await Promise.all(asked)
      await rig.clock.advance(100)
      for (const replica of replicas) {
        expect(replica.signal.aborted).toBe(false)
        await replica.read({ kind: 'summary' }, { consistent: true })
      }
      expect(new Set(replicas.map(({ index }) => index)).size).toBe(1)
      expect(new Set(replicas.map(replica => replica.hash())).size).toBe(1)
      await using fresh = await rig.open()
      expect(fresh.hash()).toBe(replicas[0]!.hash())
      for (const replica of replicas) await replica[Symbol.asyncDispose]()
    }
  })

  test('are detected by the decision hash that a record carries', async () => {
    const rig = new Rig()
    await using replica = await rig.open()
    granted(await propose(replica, acquire('ann', 'a')))
    await rig.clock.settle()
    await rig.injectBatch({ decisionHash: [1, 2], proposals: [{ command: acquire('eve', 'b') }] })
    await rig.clock.settle()
    expect(replica.signal.reason).toMatchObject({ code: 'DIVERGED', message: expect.stringContaining('decided otherwise') })
  })
})

describe('records that cannot be decoded', () => {
  const cases: readonly [what: string, inject: (rig: Rig) => Promise<void>, code: string, message: RegExp][] = [
    [
      'newer rules',
      async rig => {
        const [last] = (await rig.entries()).slice(-1)
        await rig.injectBatch({
          applied: 0,
          decisionHash: [0, 0],
          wall: last!.wall,
          proposals: [{ command: { kind: 'upgrade', rules: RULES + 1 } }],
        })
      },
      'UNSUPPORTED',
      new RegExp(`rules version ${RULES + 1}`),
    ],
    ['a future format', rig => rig.inject(Uint8Array.of(0x4c, FORMAT + 1, 1, 2, 3)), 'UNSUPPORTED', /newer version of leasehold/],
    [
      'flipped bits',
      async rig => {
        const bytes = (await rig.raw()).at(-1)!.bytes.slice()
        bytes[bytes.length - 6]! ^= 1
        await rig.inject(bytes)
      },
      'DIVERGED',
      /record 2 is damaged/,
    ],
    ['nothing at all', rig => rig.inject(new Uint8Array(0)), 'DIVERGED', /record 2 is damaged/],
  ]
  for (const [what, inject, code, message] of cases) {
    test(`${what}: all readers get a coded error, at once and on opening`, async () => {
      const rig = new Rig()
      await using replica = await rig.open()
      granted(await propose(replica, acquire('ann', 'a')))
      await rig.clock.settle()
      await inject(rig)
      await rig.clock.settle()
      expect(replica.signal.reason).toMatchObject({ code, message: expect.stringMatching(message) })
      await expect(propose(replica, acquire('ann', 'b'))).rejects.toMatchObject({ code })
      const raw = await rig.raw()
      await expect(rig.open()).rejects.toMatchObject({ code, message: expect.stringMatching(message) })
      expect(await rig.raw()).toEqual(raw)
      expect(rig.clock.waiting).toBe(0)
    })
  }
})

async function* piecesOf(size: number, chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  const all: Uint8Array[] = []
  for await (const chunk of chunks) all.push(chunk)
  const whole = Buffer.concat(all)
  for (let at = 0; at < whole.length; at += size) yield whole.subarray(at, at + size)
}

function chance(seed: number): (below: number) => number {
  let state = seed * 2_654_435_761
  return below => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0
    return (state >>> 8) % below
  }
}

function randomCommand(random: (below: number) => number, known: readonly number[]): Command {
  const lease = known[random(known.length)] ?? 1
  switch (random(10)) {
    case 0:
    case 1:
    case 2:
      return acquire(`h${random(5)}`, `r/${random(12)}`, { ttl: 100 + random(2_000), wait: random(2) === 0, priority: random(3) })
    case 3:
      return { kind: 'release', lease }
    case 4:
      return { kind: 'renew', leases: [lease, known[random(known.length)] ?? 2] }
    case 5:
      return { kind: 'put', lease, key: `k/${random(5)}`, value: `${random(100)}` }
    case 6:
      return { kind: 'revoke', target: { lease } }
    case 7:
      return {
        kind: 'policy',
        prefix: `r/${random(12)}`,
        rules: { capacity: 1 + random(3), lockDelay: random(2) * 100, grace: random(2) * 100 },
      }
    case 8:
      return { kind: 'break', resource: `r/${random(12)}`, after: random(500) }
    default:
      return { kind: 'acquire', holder: `h${random(5)}`, ttl: 1_000, wants: [], parent: lease, grace: random(2) * 200 }
  }
}
