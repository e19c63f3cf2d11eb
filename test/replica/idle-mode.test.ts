import { describe, expect, test } from 'vitest'
import { SLOTS } from '../../src/kernel/state.ts'
import { propose } from '../../src/lessor/propose.ts'
import { Replica } from '../../src/replica/replica.ts'
import { acquire, granted, Line, Rig, renew } from '../support/replica/rig.ts'

const READ_EVERY = 60_000
const TTL = 10_000

/** Renews at half of the ttl, as a holder does, until it is disposed of. */
function keep(rig: Rig, replica: Replica, lease: number, ttl = TTL): Disposable {
  let cancel = () => {}
  const again = () => {
    cancel = rig.clock.after(ttl / 2, () => {
      renew(replica, lease).catch(() => {})
      again()
    })
  }
  again()
  return { [Symbol.dispose]: () => cancel() }
}

/** A store that counts its calls. */
function countedStore(rig: Rig) {
  const store = rig.store()
  const calls = { appends: 0, reads: 0, waits: 0 }
  const append = store.append.bind(store)
  const read = store.read.bind(store)
  store.append = (record, after) => {
    calls.appends++
    return append(record, after)
  }
  store.read = (after, options) => {
    calls[options?.wait === undefined ? 'reads' : 'waits']++
    return read(after, options)
  }
  return { store, calls }
}

/** Moves the clock by small steps until the log has an end of this lease's term; how long that took. */
async function timeUntilEnded(rig: Rig, lease: number, within: number): Promise<number> {
  const isEnded = async () => (await rig.commands('due')).some(({ timer }) => Math.floor(timer / SLOTS) === lease)
  for (let ms = 0; ms <= within; ms += 100) {
    if (await isEnded()) return ms
    await rig.clock.advance(100)
  }
  return expect.fail(`lease ${lease} had not ended after ${within} ms`)
}

describe('a replica of a process that only holds leases', () => {
  test('reads the log once before each renewal, and does not follow it', async () => {
    const rig = new Rig({ ages: false })
    const { store, calls } = countedStore(rig)
    await using idle = await Replica.open(store, { clock: rig.clock, readEvery: READ_EVERY })
    await using busy = await rig.open()
    const own = granted(await propose(idle, acquire('ann', 'a', { ttl: TTL })))
    const other = granted(await propose(busy, acquire('bob', 'b', { ttl: TTL })))
    using _own = keep(rig, idle, own.lease)
    using _other = keep(rig, busy, other.lease)
    await rig.clock.advance(1_000)
    Object.assign(calls, { appends: 0, reads: 0, waits: 0 })
    await rig.clock.advance(100_000)
    expect(idle.isIdle).toBe(true)
    expect(calls).toEqual({ appends: 20, reads: 20, waits: 0 })
  })

  test('reads the log after a minute at the latest', async () => {
    const rig = new Rig()
    await using idle = await rig.open({ readEvery: READ_EVERY })
    await using busy = await rig.open()
    granted(await propose(busy, acquire('bob', 'b', { ttl: 600_000 })))
    expect(idle.revision).toBeLessThan(busy.revision)
    await rig.clock.advance(READ_EVERY)
    expect(idle.revision).toBe(busy.revision)
  })

  test('follows the log while it is watched, and for a second afterwards', async () => {
    const rig = new Rig()
    await using idle = await rig.open({ readEvery: READ_EVERY })
    await using busy = await rig.open()
    const held = granted(await propose(busy, acquire('bob', 'b')))
    const over = new AbortController()
    const events: string[] = []
    const watching = (async () => {
      for await (const [event] of idle.watch('b', { signal: over.signal })) events.push(event!.type)
    })()
    await rig.clock.settle()
    expect(idle.isIdle).toBe(false)
    await propose(busy, { kind: 'release', lease: held.lease })
    await rig.clock.settle()
    expect(events).toContain('released')
    over.abort()
    await watching
    await rig.clock.advance(900)
    expect(idle.isIdle).toBe(false)
    await rig.clock.advance(200)
    expect(idle.isIdle).toBe(true)
  })

  test.each([
    { how: 'at once', isTold: true },
    { how: 'with its next read, if it was not told', isTold: false },
  ])('gives the events of a lazy watch $how, and does not follow the log for it', async ({ isTold }) => {
    const rig = new Rig()
    const store = rig.store()
    if (!isTold) Object.defineProperty(store, 'waker', { value: { listen: () => {}, wake: () => {} } })
    await using idle = await Replica.open(store, { clock: rig.clock, readEvery: READ_EVERY })
    await using busy = await rig.open()
    const { lease } = granted(await propose(idle, acquire('ann', 'a', { ttl: TTL })))
    using _kept = keep(rig, idle, lease)
    const over = new AbortController()
    const events: string[] = []
    const watching = (async () => {
      for await (const [event] of idle.watch('a', { types: ['revoked'], lazy: true, signal: over.signal })) events.push(event!.type)
    })()
    await rig.clock.advance(100)
    await propose(busy, { kind: 'revoke', target: { lease } })
    await rig.clock.advance(4_000)
    expect(idle.isIdle).toBe(true)
    expect(events).toEqual(isTold ? ['revoked'] : [])
    await rig.clock.advance(1_000)
    expect(events).toEqual(['revoked'])
    over.abort()
    await watching
  })

  test('follows the log of a store that cannot tell it of its leases', async () => {
    const rig = new Rig()
    const store = Object.defineProperty(rig.store(), 'waker', { value: undefined })
    await using replica = await Replica.open(store, { clock: rig.clock, readEvery: READ_EVERY })
    expect(replica.isIdle).toBe(false)
  })

  test('wakes only the process whose lease it ends', async () => {
    const rig = new Rig()
    await using ann = await rig.open({ readEvery: READ_EVERY })
    await using bob = await rig.open({ readEvery: READ_EVERY })
    await using busy = await rig.open()
    const { lease } = granted(await propose(ann, acquire('ann', 'a', { ttl: TTL })))
    granted(await propose(bob, acquire('bob', 'b', { ttl: TTL })))
    await rig.clock.settle()
    const reads = [ann, bob].map(replica => replica.stats.idleReads)
    await propose(busy, { kind: 'revoke', target: { lease } })
    await rig.clock.settle()
    expect([ann, bob].map(replica => replica.stats.idleReads)).toEqual([reads[0]! + 1, reads[1]!])
  })

  test('learns at once that the log begins to move, follows it then, and stays where the leases stay', async () => {
    const rig = new Rig()
    await using ann = await rig.open({ readEvery: READ_EVERY })
    await using bob = await rig.open({ readEvery: READ_EVERY })
    await using busy = await rig.open()
    granted(await propose(ann, acquire('ann', 'a', { ttl: 600_000 })))
    granted(await propose(bob, acquire('bob', 'b', { ttl: 600_000 })))
    const over = new AbortController()
    const seen: string[] = []
    const watching = (async () => {
      for await (const events of ann.watch('', { types: ['moved'], lazy: true, signal: over.signal }))
        seen.push(...events.map(({ cause }) => cause ?? ''))
    })()
    await rig.clock.settle()
    await propose(busy, { kind: 'move', to: 'there', prepare: true })
    await rig.clock.settle()
    expect(seen).toEqual(['preparing'])
    expect(ann.isIdle).toBe(true)
    await propose(busy, { kind: 'move' })
    await rig.clock.settle()
    expect(seen).toEqual(['preparing', 'leaving'])
    expect([ann.isIdle, bob.isIdle]).toEqual([false, false])
    await propose(busy, { kind: 'move', stay: true })
    await rig.clock.advance(1_100)
    expect(seen).toEqual(['preparing', 'leaving', 'staying'])
    expect([ann.isIdle, bob.isIdle]).toEqual([true, true])
    over.abort()
    await watching
  })

  test('learns with its next read that the log moves, if it was not told', async () => {
    const rig = new Rig()
    const store = rig.store()
    Object.defineProperty(store, 'waker', { value: { listen: () => {}, wake: () => {} } })
    await using idle = await Replica.open(store, { clock: rig.clock, readEvery: READ_EVERY })
    await using busy = await rig.open()
    const { lease } = granted(await propose(idle, acquire('ann', 'a', { ttl: TTL })))
    using _kept = keep(rig, idle, lease)
    await propose(busy, { kind: 'move' })
    await rig.clock.advance(TTL / 2 - 100)
    expect(idle.isIdle).toBe(true)
    await rig.clock.advance(200)
    expect(idle.isIdle).toBe(false)
  })

  test('answers reads from the end of the log', async () => {
    const rig = new Rig()
    await using idle = await rig.open({ readEvery: READ_EVERY })
    await using busy = await rig.open()
    const { lease } = granted(await propose(busy, acquire('bob', 'b')))
    expect((await idle.read({ kind: 'lease', lease })).value?.holder).toBe('bob')
    granted(await propose(busy, acquire('bob', 'c')))
    expect((await idle.page({ kind: 'leases' }, { sort: 'holder' })).total).toBe(2)
    await propose(busy, { kind: 'revoke', target: { holder: 'bob' } })
    granted(await propose(busy, acquire('bob', 'd')))
    expect(await propose(idle, { kind: 'revoke', target: { holder: 'bob' } })).toMatchObject({ kind: 'done' })
    expect(await propose(busy, acquire('cid', 'd'))).toMatchObject({ kind: 'refused' }) // frozen, and no longer bob's
    expect(idle.isIdle).toBe(true)
  })

  test.each([
    { ages: false, intervals: 2 },
    { ages: true, intervals: 1 },
  ])(
    'ends a dead lease in the record of a renewal of its own, late by $intervals intervals at most (ages known: $ages)',
    async ({ ages, intervals }) => {
      const rig = new Rig({ ages })
      const line = new Line()
      const dead = await rig.open({ readEvery: READ_EVERY, line })
      await using idle = await rig.open({ readEvery: READ_EVERY })
      const own = granted(await propose(idle, acquire('ann', 'a', { ttl: TTL })))
      using _kept = keep(rig, idle, own.lease)
      await rig.clock.advance(1_300)
      const lost = granted(await propose(dead, acquire('bob', 'b', { ttl: TTL })))
      rig.kill(line)
      const ms = await timeUntilEnded(rig, lost.lease, TTL + intervals * (TTL / 2))
      expect(ms).toBeGreaterThanOrEqual(TTL)
      const record = (await rig.entries()).find(({ proposals }) => proposals.some(({ command }) => command.kind === 'due'))
      expect(record?.proposals.map(({ command }) => command.kind)).toEqual(['renew', 'due'])
    },
  )

  test('marks what it has counted in the record of a renewal, so that processes that come and go add up', async () => {
    const rig = new Rig({ ages: false })
    const line = new Line()
    const dead = await rig.open({ readEvery: READ_EVERY, line })
    await using idle = await rig.open({ readEvery: READ_EVERY })
    const own = granted(await propose(idle, acquire('ann', 'a', { ttl: TTL })))
    using _kept = keep(rig, idle, own.lease)
    granted(await propose(dead, acquire('bob', 'b', { ttl: 100_000 })))
    rig.kill(line)
    await rig.clock.advance(25_000)
    const records = (await rig.entries()).filter(({ proposals }) => proposals.some(({ command }) => command.kind === 'aged'))
    expect(records.length).toBeGreaterThan(0)
    for (const { proposals } of records) expect(proposals.map(({ command }) => command.kind)).toEqual(['renew', 'aged'])
  })

  test('counts no stall between two reads', async () => {
    const rig = new Rig({ ages: false })
    const line = new Line()
    const dead = await rig.open({ readEvery: READ_EVERY, line })
    await using idle = await rig.open({ readEvery: 2_000 })
    const lost = granted(await propose(dead, acquire('bob', 'b', { ttl: TTL })))
    rig.kill(line)
    await rig.clock.advance(2_500) // it has read the lease
    rig.clock.stall(8_000)
    await rig.clock.advance(5_000)
    expect(await rig.commands('due')).toEqual([])
    expect(await timeUntilEnded(rig, lost.lease, TTL)).toBeGreaterThan(2_000)
    expect(idle.timing.stalls).toBe(1)
  })

  test('keeps the timers of its own leases', async () => {
    const rig = new Rig()
    await using idle = await rig.open({ readEvery: READ_EVERY })
    const { lease } = granted(await propose(idle, acquire('ann', 'a', { ttl: TTL, maxLife: 12_000 })))
    using _kept = keep(rig, idle, lease)
    await rig.clock.advance(11_990)
    expect((await idle.read({ kind: 'lease', lease })).value?.status).toBe('live')
    await rig.clock.advance(50)
    expect((await idle.read({ kind: 'lease', lease })).value?.status).toBe('frozen')
    expect(idle.isIdle).toBe(true)
  })

  test('restores the usual bound for the end of a dead lease while it waits', async () => {
    const rig = new Rig({ ages: false })
    const line = new Line()
    const dead = await rig.open({ readEvery: READ_EVERY, line })
    await using waiter = await rig.open({ readEvery: READ_EVERY })
    const over = new AbortController()
    const watching = (async () => {
      for await (const _ of waiter.watch('b', { signal: over.signal })) over.signal.throwIfAborted()
    })().catch(() => {})
    await rig.clock.settle()
    const lost = granted(await propose(dead, acquire('bob', 'b', { ttl: TTL })))
    rig.kill(line)
    expect(await timeUntilEnded(rig, lost.lease, TTL + 200)).toBeGreaterThanOrEqual(TTL)
    over.abort()
    await watching
  })

  test('renews although its read fails or is slow', async () => {
    const rig = new Rig()
    const line = new Line()
    await using idle = await rig.open({ readEvery: READ_EVERY, line })
    const { lease } = granted(await propose(idle, acquire('ann', 'a', { ttl: TTL })))
    line.ways.read.push(20_000)
    const renewed = renew(idle, lease)
    await rig.clock.advance(400)
    expect(await renewed).toEqual([TTL])
  })

  test('after a loss, its generation is quiet long enough for every process to notice the loss', async () => {
    const rig = new Rig()
    const idle = await rig.open({ readEvery: READ_EVERY })
    granted(await propose(idle, acquire('ann', 'a', { ttl: TTL })))
    rig.log.loseTail(1)
    await rig.clock.advance(READ_EVERY)
    expect(idle.signal.aborted).toBe(true)
    expect(idle.survivor.quiet).toBeGreaterThan(READ_EVERY)
  })
})
