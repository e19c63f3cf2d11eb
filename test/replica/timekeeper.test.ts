import { describe, expect, test } from 'vitest'
import { turn } from '../../src/clock.ts'
import { LeaseError } from '../../src/errors.ts'
import { apply } from '../../src/kernel/apply.ts'
import { decodeBatch } from '../../src/kernel/codec/batch.ts'
import type { Command } from '../../src/kernel/command.ts'
import type { Outcome } from '../../src/kernel/outcome.ts'
import { findLease } from '../../src/kernel/state/leases.ts'
import { createState, type LeaseState, type Slot } from '../../src/kernel/state.ts'
import { propose } from '../../src/lessor/propose.ts'
import { Replica } from '../../src/replica/replica.ts'
import { Timekeeper } from '../../src/replica/timekeeper.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { acquire, fate, granted, Line, leases, queued, Rig, renew } from '../support/replica/rig.ts'

const TTL = 10_000

/** Moves the clock by small steps until the lease is gone; how long that took. */
async function timeUntilGone(rig: Rig, replica: Replica, lease: number, { within, step = 5 }: { within: number; step?: number }) {
  for (let ms = 0; ms <= within; ms += step) {
    if ((await replica.read({ kind: 'lease', lease })).value === undefined) return ms
    await rig.clock.advance(step)
  }
  return expect.fail(`lease ${lease} was still there after ${within} ms`)
}

for (const owned of [false, true]) {
  describe(`a lease under a replica on a log that is ${owned ? 'owned' : 'shared'}`, () => {
    // etcd 12105: with a limited number of revokes a second, 900,000 leases were 600 s late.
    test('lapses on time when twenty thousand leases are due at one moment', async () => {
      const rig = new Rig()
      await using replica = await rig.open({ owned })
      const many = Array.from({ length: 20_000 }, (_, i) => propose(replica, acquire('ann', `a/${i}`, { ttl: TTL })))
      await rig.clock.settle()
      await Promise.all(many)
      const left = async () => (await replica.read({ kind: 'summary' })).value.leases
      await rig.clock.advance(TTL - 100)
      expect(await left()).toBe(20_000)
      await rig.clock.advance(400)
      expect(await left()).toBe(0)
    })

    test('does not lapse before its ttl, and at most 20 ms after', async () => {
      const rig = new Rig()
      await using replica = await rig.open({ owned })
      for (const ttl of [100, 101, 777, 1_000, 3_333, 29_999]) {
        await rig.clock.advance(7.3)
        const { lease } = granted(await propose(replica, acquire('ann', `a/${ttl}`, { ttl })))
        await rig.clock.advance(ttl - 0.5)
        expect((await replica.read({ kind: 'lease', lease })).value?.status).toBe('live')
        await rig.clock.advance(20.5)
        expect((await replica.read({ kind: 'lease', lease })).value).toBe(undefined)
      }
      expect(replica.timing.lateness).toBeLessThan(20)
    })

    test('counts from its last renewal', async () => {
      const rig = new Rig()
      await using replica = await rig.open({ owned })
      const { lease } = granted(await propose(replica, acquire('ann', 'a', { ttl: TTL })))
      for (let i = 0; i < 20; i++) {
        await rig.clock.advance(TTL * 0.9)
        expect(await renew(replica, lease)).toEqual([TTL])
      }
      const gone = await timeUntilGone(rig, replica, lease, { within: TTL + 50 })
      expect(gone).toBeGreaterThanOrEqual(TTL)
    })

    test('lapses on time when many are due at once', async () => {
      const rig = new Rig()
      await using replica = await rig.open({ owned })
      await using other = owned ? undefined : await rig.open()
      await Promise.all(Array.from({ length: 3_000 }, (_, i) => propose(replica, acquire('ann', `a/${i}`, { ttl: 1_000 }))))
      await rig.clock.advance(999)
      expect((await replica.read({ kind: 'summary' })).value.leases).toBe(3_000)
      await rig.clock.advance(51)
      expect((await replica.read({ kind: 'summary' })).value.leases).toBe(0)
      await other?.read({ kind: 'summary' })
    })

    test('steps of the wall clock change nothing', async () => {
      const rig = new Rig()
      await using replica = await rig.open({ owned })
      const { lease } = granted(await propose(replica, acquire('ann', 'a', { ttl: TTL })))
      const renewed = granted(await propose(replica, acquire('bob', 'b', { ttl: TTL })))
      for (const step of [1e9, -2e9, 3e10, -1.7e12]) {
        rig.clock.stepWall(step)
        await rig.clock.advance(TTL / 5)
        expect(await renew(replica, renewed.lease)).toEqual([TTL])
      }
      expect(await leases(replica)).toEqual(['ann', 'bob'])
      const gone = await timeUntilGone(rig, replica, lease, { within: TTL })
      expect(gone).toBeGreaterThanOrEqual(TTL / 5)
      expect(gone).toBeLessThan(TTL / 5 + 30)
    })

    test('is not charged for a stall: pending input is read first, and the stall is added to every timer', async () => {
      const rig = new Rig()
      await using replica = await rig.open({ owned })
      const kept = granted(await propose(replica, acquire('ann', 'a', { ttl: TTL })))
      const left = granted(await propose(replica, acquire('bob', 'b', { ttl: TTL })))
      await rig.clock.advance(4_000)
      rig.clock.stall(30_000)
      // It waited in the socket all the while; overdue timers have fired already.
      const answer = propose(replica, { kind: 'renew', leases: [kept.lease] })
      await rig.clock.settle()
      expect(await answer).toMatchObject({ ttls: [TTL] })
      expect(replica.timing.stalls).toBe(1)
      expect(replica.timing.stalled).toBeGreaterThan(29_500)
      expect(replica.timing.stalled).toBeLessThanOrEqual(30_250)
      await rig.clock.advance(5_000)
      expect(await leases(replica)).toEqual(['ann', 'bob'])
      const gone = await timeUntilGone(rig, replica, left.lease, { within: 2_000 })
      expect(gone).toBeLessThan(1_300)
      expect(await leases(replica)).toEqual(['ann'])
    })

    for (const order of ['timers fire first', 'input is read first'])
      test(`a lease renewed on waking has one ttl, and gains nothing from the stall before it, when ${order}`, async () => {
        for (const stall of [5_000, 10_000]) {
          const rig = new Rig()
          await using replica = await rig.open({ owned })
          const ann = granted(await propose(replica, acquire('ann', 'a', { ttl: TTL })))
          granted(await propose(replica, acquire('bob', 'b', { ttl: TTL }))) // not renewed: the stall is added to this one
          await renew(replica, ann.lease)
          await rig.clock.advance(TTL / 2)
          let answer: Promise<readonly number[]> | undefined
          const input = () => {
            answer = renew(replica, ann.lease)
          }
          if (order.startsWith('input')) rig.clock.stall(stall, input)
          else {
            rig.clock.stall(stall)
            input()
          }
          await rig.clock.settle()
          expect(await answer).toEqual([TTL])
          expect(replica.timing.stalls).toBe(1)
          expect(replica.timing.stalled).toBeGreaterThan(stall - 300)
          expect(replica.timing.stalled).toBeLessThanOrEqual(stall)
          const gone = await timeUntilGone(rig, replica, ann.lease, { within: TTL + stall })
          expect(gone).toBeGreaterThanOrEqual(TTL)
          expect(gone).toBeLessThan(TTL + 300)
        }
      })

    test('closing leaves no timer', async () => {
      const rig = new Rig()
      const replica = await rig.open({ owned })
      await propose(replica, { kind: 'policy', prefix: 'a', rules: { aging: 1_000, maxHold: 5_000, grace: 500 } })
      for (let i = 0; i < 100; i++) granted(await propose(replica, acquire('ann', `a/${i}`, { ttl: 1_000, maxLife: 9_000 })))
      queued(await propose(replica, acquire('bob', 'a/0', { wait: true })))
      await rig.clock.advance(300)
      await replica[Symbol.asyncDispose]()
      expect(rig.clock.waiting).toBe(0)
    })
  })
}

test('records that wait in the log are read before a timer is judged, also after a stall', async () => {
  const rig = new Rig()
  await using a = await rig.open()
  const other = new Line()
  await using b = await rig.open({ line: other })
  const { lease } = granted(await propose(a, acquire('ann', 'a', { ttl: TTL })))
  await rig.clock.advance(TTL - 100)
  // The renewal is in the log, and neither replica has read it when its timers fire.
  await rig.injectBatch({ applied: 0, decisionHash: [0, 0], proposals: [{ command: { kind: 'renew', leases: [lease] } }] })
  rig.clock.stall(5_000)
  await rig.clock.settle()
  expect(await leases(a)).toEqual(['ann'])
  expect(await rig.commands('due')).toEqual([])
  await rig.clock.advance(TTL + 100)
  expect(await leases(b)).toEqual([])
})

test('pending input is read first when a timer fires: a renewal in a socket, a record in the log', async () => {
  for (const owned of [false, true]) {
    const rig = new Rig()
    const line = new Line()
    await using replica = await rig.open({ owned, line })
    const { lease } = granted(await propose(replica, acquire('ann', 'a', { ttl: TTL })))
    await renew(replica, lease)
    await rig.clock.advance(TTL - 20)
    const { length } = await rig.commands('due')
    // Too short for a stall, long enough to be overdue; the loop comes to the socket after the timers.
    const answer = turn().then(() => renew(replica, lease))
    rig.clock.stall(60)
    expect(await answer).toEqual([TTL])
    await rig.clock.settle()
    expect(await leases(replica)).toEqual(['ann'])
    if (owned) expect((await rig.commands('due')).length).toBe(length)
  }
  const rig = new Rig()
  const line = new Line()
  await using replica = await rig.open({ line })
  const { lease } = granted(await propose(replica, acquire('ann', 'a', { ttl: TTL })))
  await rig.clock.advance(TTL - 20)
  line.ways.read.push(1_000) // its tail reads slowly
  await rig.injectBatch({ applied: 0, decisionHash: [0, 0], proposals: [{ command: { kind: 'renew', leases: [lease] } }] })
  await rig.clock.advance(100)
  expect(await rig.commands('due')).toEqual([])
  expect(await leases(replica)).toEqual(['ann'])
})

for (const when of ['between two looks', 'while the log is read before judging'])
  test(`stopped ${when}, a replica lapses no lease whose renewal it has not read yet`, async () => {
    const rig = new Rig()
    const line = new Line()
    await using replica = await rig.open({ line })
    const { clock } = rig
    const ann = granted(await propose(replica, acquire('ann', 'a', { ttl: TTL })))
    const bob = granted(await propose(replica, acquire('bob', 'b', { ttl: 1_000 }))) // so that there is something to judge
    await renew(replica, ann.lease, bob.lease)
    await clock.advance(900)
    line.ways.read.push(3)
    if (when.startsWith('while')) await clock.advance(102)
    clock.stall(20_000)
    await turn() // the store's answer is read before the socket in which the renewal waits
    const renewal = renew(replica, ann.lease)
    await clock.advance(50)
    expect(await renewal).toEqual([TTL])
  })

test('a stall counts even if the log could not be read at once after it', async () => {
  const rig = new Rig()
  const store = rig.store()
  let failures = 0
  const read = store.read.bind(store)
  store.read = async (after, options = {}) => {
    if (options.wait === undefined && failures > 0) {
      failures--
      throw new LeaseError('UNAVAILABLE', 'the connection did not outlive the stall')
    }
    return read(after, options)
  }
  await using replica = await Replica.open(store, { clock: rig.clock })
  const { lease } = granted(await propose(replica, acquire('ann', 'a', { ttl: TTL })))
  await rig.clock.advance(4_000)
  failures = 2
  rig.clock.stall(30_000)
  await rig.clock.advance(5_000)
  expect(failures).toBe(0)
  expect(await leases(replica)).toEqual(['ann'])
  const gone = await timeUntilGone(rig, replica, lease, { within: 2_000 })
  expect(gone).toBeLessThan(1_300)
})

for (const work of [90, 120, 150, 400])
  test(`a loop with ${work} ms of work in every turn is busy, not stalled: leases lapse about on time`, async () => {
    const rig = new Rig()
    await using replica = await rig.open()
    granted(await propose(replica, acquire('ann', 'a', { ttl: TTL })))
    // Others come and go all the time: something is always due soon.
    for (let i = 0; i < 200; i++) await propose(replica, acquire('x', `r/${i}`, { ttl: TTL + i * 37 }))
    await rig.clock.settle()
    const began = rig.clock.now()
    while ((await leases(replica)).includes('ann')) {
      rig.clock.stall(work)
      await rig.clock.settle()
      expect(rig.clock.now() - began).toBeLessThan(TTL * 1.3)
    }
  })

test('proposals from before a snapshot was loaded leave no timer that proposes for ever', async () => {
  const rig = new Rig()
  const line = new Line()
  await using writer = await rig.open({ snapshotRecords: 10 })
  const { lease } = granted(await propose(writer, acquire('ann', 'a', { ttl: TTL })))
  await using replica = await rig.open({ line, snapshotRecords: 1e9, snapshotBytes: 1e9 })
  await rig.clock.advance(900)
  line.ways.append.push(4_000, 0)
  await rig.clock.advance(400) // what it found is marked after a step of 1.25 s: that is on its way now
  line.ways.read.push(6_000)
  await renew(writer, lease)
  for (let i = 0; i < 60; i++) {
    const other = granted(await propose(writer, acquire('x', `r/${i}`)))
    await propose(writer, { kind: 'release', lease: other.lease })
    await rig.clock.settle()
  }
  const goOn = async () => {
    for (let i = 0; i < 10; i++) {
      await rig.clock.advance(2_000)
      await renew(writer, lease)
    }
  }
  await goOn()
  expect(replica.stats.reloads).toBe(1)
  const sent = line.sent.length
  await goOn()
  expect(line.sent.length - sent).toBeLessThan(20)
})

test('a replica that skipped ahead by a snapshot goes on counting: abandoned leases lapse on time', async () => {
  const rig = new Rig()
  const [line, gone] = [new Line(), new Line()]
  const writer = await rig.open({ line: gone, snapshotRecords: 10 })
  await using replica = await rig.open({ line, snapshotRecords: 1e9, snapshotBytes: 1e9 })
  const { lease } = granted(await propose(writer, acquire('ann', 'a', { ttl: TTL })))
  line.ways.read.push(3_000)
  for (let i = 0; i < 60; i++) {
    const other = granted(await propose(writer, acquire('x', `r/${i}`)))
    await propose(writer, { kind: 'release', lease: other.lease })
    await rig.clock.settle()
  }
  await renew(writer, lease)
  await rig.clock.advance(3_100)
  expect(replica.stats.reloads).toBe(1)
  expect(await leases(replica)).toEqual(['ann'])
  rig.kill(gone) // no process writes any more: only its own timers move it
  await rig.clock.advance(TTL)
  expect(await leases(replica)).toEqual([])
})

test('the age of a run is not counted again with each mark, however slow the store is', async () => {
  const rig = new Rig({ ages: false })
  const first = await rig.open()
  granted(await propose(first, acquire('ann', 'a', { ttl: 60_000 })))
  await first[Symbol.asyncDispose]()
  const line = new Line()
  await rig.open({ owned: true, line })
  const began = rig.clock.now()
  line.ways.append.push(...Array(50).fill(200)) // 400 ms there and back
  await rig.clock.advance(10_000)
  const marked = (await rig.commands('aged-together')).at(-1)?.ms
  expect(marked).toBeGreaterThan(rig.clock.now() - began - 2_000)
  rig.kill(line)
})

test('a mass lapse that waits for its turn leaves no timer when the replica closes', async () => {
  for (const wait of [0, 5, 20, 40]) {
    const rig = new Rig()
    const replicas = [await rig.open(), await rig.open(), await rig.open()]
    for (const [r, replica] of replicas.entries())
      await Promise.all(Array.from({ length: 50 }, (_, i) => propose(replica, acquire('ann', `${r}/${i}`, { ttl: 1_000 }))))
    await rig.clock.advance(995)
    rig.clock.stall(6) // all of them look at the same moment
    await rig.clock.advance(wait)
    for (const replica of replicas) await replica[Symbol.asyncDispose]()
    expect(rig.clock.waiting, `closed ${wait} ms after the lapse`).toBe(0)
  }
})

describe('a replica that starts later', () => {
  test('counts the timers that it finds', async () => {
    const rig = new Rig({ ages: false })
    const first = await rig.open()
    granted(await propose(first, acquire('ann', 'a', { ttl: 1_000 })))
    await first[Symbol.asyncDispose]()
    await using second = await rig.open()
    await rig.clock.advance(1_020)
    expect(await leases(second)).toEqual([])
  })

  test('does not take a timer that was overdue at its start for a stall', async () => {
    const rig = new Rig()
    const first = await rig.open()
    granted(await propose(first, acquire('ann', 'a', { ttl: 1_000 })))
    await first[Symbol.asyncDispose]()
    await rig.clock.advance(5_000)
    await using second = await rig.open()
    await rig.clock.advance(20)
    expect(await leases(second)).toEqual([])
    expect(second.timing.stalls).toBe(0)
  })

  test('knows the age of the records of a shared log, and is never early by it', async () => {
    const rig = new Rig()
    const line = new Line()
    const first = await rig.open({ line })
    const { lease } = granted(await propose(first, acquire('ann', 'a', { ttl: TTL })))
    await rig.clock.advance(3_000)
    expect(await renew(first, lease)).toEqual([TTL])
    await rig.clock.advance(4_000)
    rig.kill(line)
    await using second = await rig.open()
    const gone = await timeUntilGone(rig, second, lease, { within: TTL })
    expect(gone).toBeGreaterThanOrEqual(TTL - 4_000)
    expect(gone).toBeLessThan(TTL - 4_000 + 30)
  })

  test('knows the age of a snapshot of a shared log, and is never early by it', async () => {
    const rig = new Rig()
    const line = new Line()
    const first = await rig.open({ line, snapshotRecords: 5 })
    const { lease } = granted(await propose(first, acquire('ann', 'a', { ttl: TTL })))
    await rig.clock.advance(2_000)
    expect(await renew(first, lease)).toEqual([TTL])
    for (let i = 0; i < 8; i++) {
      await rig.clock.advance(100)
      await propose(first, acquire('bob', `b/${i}`))
    }
    expect(first.stats.snapshots).toBe(1)
    await rig.clock.advance(3_200)
    rig.kill(line)
    await using second = await rig.open()
    const gone = await timeUntilGone(rig, second, lease, { within: TTL })
    expect(gone).toBeGreaterThanOrEqual(TTL - 4_000)
    expect(gone).toBeLessThan(TTL - 3_000) // what passed between the renewal and the snapshot may be lost, no more
  })

  for (const next of ['shared', 'owned'] as const) {
    test(`does not take the age of an owner's records for the age of its leases: they may have been renewed in memory (${next})`, async () => {
      const rig = new Rig()
      const line = new Line()
      const owner = await rig.open({ owned: true, line, snapshotRecords: 8 })
      const { lease } = granted(await propose(owner, acquire('ann', 'a', { ttl: TTL })))
      expect(await renew(owner, lease)).toEqual([TTL]) // logged: it confirms the grant
      for (let i = 0; i < 8; i++) granted(await propose(owner, acquire('bob', `b/${i}`)))
      for (let i = 0; i < 6; i++) {
        await rig.clock.advance(5_000)
        expect(await renew(owner, lease)).toEqual([TTL])
      }
      expect((await rig.commands('renew')).length).toBe(1)
      expect(owner.stats).toMatchObject({ memoryRenewals: 6, snapshots: 1 })
      rig.kill(line)
      await using second = await rig.open({ owned: next === 'owned' })
      const gone = await timeUntilGone(rig, second, lease, { within: 2 * TTL })
      expect(gone).toBeGreaterThanOrEqual(TTL)
      expect(gone).toBeLessThan(TTL + 30)
    })
  }
})

describe('short-lived replicas keep no lease alive', () => {
  const cases: readonly { what: string; owned: boolean; ages: boolean; life: number; leave: 'killed' | 'closed'; within: number }[] = [
    { what: 'replicas of 0.4 ttl', owned: false, ages: false, life: 4_000, leave: 'killed', within: 2 * TTL },
    { what: 'replicas of 0.4 ttl', owned: false, ages: false, life: 4_000, leave: 'closed', within: 2 * TTL },
    { what: 'replicas of 300 ms', owned: false, ages: false, life: 300, leave: 'closed', within: 2 * TTL },
    { what: 'owners of 300 ms', owned: true, ages: false, life: 300, leave: 'closed', within: 2 * TTL },
    { what: 'replicas of 0.4 ttl where ages are known', owned: false, ages: true, life: 4_000, leave: 'killed', within: TTL + 50 },
    { what: 'replicas of 50 ms where ages are known', owned: false, ages: true, life: 50, leave: 'killed', within: 1.5 * TTL },
    { what: 'owners of 2 s', owned: true, ages: false, life: 2_000, leave: 'killed', within: 3 * TTL },
    { what: 'owners of 2 s', owned: true, ages: false, life: 2_000, leave: 'closed', within: 3 * TTL },
    { what: 'owners of 300 ms where ages are known', owned: true, ages: true, life: 300, leave: 'killed', within: 2 * TTL },
    { what: 'owners of 2 s where ages are known', owned: true, ages: true, life: 2_000, leave: 'killed', within: 2 * TTL },
  ]
  for (const { what, owned, ages, life, leave, within } of cases) {
    test(`${what}, ${leave}: abandoned leases are gone within ${within} ms, renewed ones never are`, async () => {
      const rig = new Rig({ ages })
      let line = new Line()
      let replica = await rig.open({ owned, line, snapshotRecords: 7 })
      const left = granted(await propose(replica, acquire('left', 'a', { ttl: TTL })))
      const kept = granted(await propose(replica, acquire('kept', 'b', { ttl: TTL })))
      await renew(replica, left.lease, kept.lease)
      const began = rig.clock.now()
      let renewed = began
      let gone: number | undefined
      while (gone === undefined || rig.clock.now() < began + 4 * TTL) {
        await rig.clock.advance(life)
        const holders = await leases(replica)
        expect(holders).toContain('kept')
        if (!holders.includes('left')) gone ??= rig.clock.now() - began
        else expect(rig.clock.now() - began).toBeLessThan(within)
        if (rig.clock.now() - renewed >= TTL * 0.4) {
          expect(await renew(replica, kept.lease)).toEqual([TTL])
          renewed = rig.clock.now()
        }
        if (leave === 'killed') rig.kill(line)
        else await replica[Symbol.asyncDispose]()
        line = new Line()
        replica = await rig.open({ owned, line, snapshotRecords: 7 })
      }
      expect(gone).toBeGreaterThanOrEqual(TTL)
      await replica[Symbol.asyncDispose]()
    })
  }

  for (const many of [1, 40])
    test(`replicas that only try once and leave take over ${many} abandoned leases soon after their ttl, and not before`, async () => {
      const rig = new Rig()
      const line = new Line()
      const first = await rig.open({ line })
      for (let i = 0; i < many; i++) granted(await propose(first, acquire('ann', `a/${i}`, { ttl: TTL })))
      rig.kill(line)
      const began = rig.clock.now()
      for (;;) {
        const attempt = await rig.open()
        const { kind } = await propose(attempt, acquire('bob', 'a/0'))
        await attempt[Symbol.asyncDispose]()
        if (kind === 'granted') break
        expect(rig.clock.now() - began).toBeLessThan(TTL + 100)
        await rig.clock.advance(50)
      }
      expect(rig.clock.now() - began).toBeGreaterThanOrEqual(TTL)
    })

  test('a frozen lease and a quiet period end as well', async () => {
    const rig = new Rig({ ages: false })
    let line = new Line()
    let replica = await rig.open({ owned: true, line })
    const { lease } = granted(await propose(replica, acquire('ann', 'a', { ttl: TTL })))
    await propose(replica, { kind: 'revoke', target: { lease } })
    await propose(replica, { kind: 'generation', lease: 0, token: 0, revision: 0, quiet: TTL })
    for (let i = 0; i < 15; i++) {
      await rig.clock.advance(2_000)
      rig.kill(line)
      line = new Line()
      replica = await rig.open({ owned: true, line })
    }
    await rig.clock.advance(20)
    expect((await replica.read({ kind: 'summary' })).value).toMatchObject({ leases: 0, frozen: 0, quiet: false })
    await replica[Symbol.asyncDispose]()
  })
})

describe('renewals kept in memory', () => {
  test('are not appended, except the first one, which confirms the grant', async () => {
    const rig = new Rig()
    const line = new Line()
    await using owner = await rig.open({ owned: true, line })
    const { lease } = granted(await propose(owner, acquire('ann', 'a', { ttl: 60_000 })))
    expect(await renew(owner, lease)).toEqual([60_000])
    const { length } = line.sent
    for (let i = 0; i < 50; i++) {
      await rig.clock.advance(5_000)
      expect(await renew(owner, lease)).toEqual([60_000])
    }
    expect(line.sent.length).toBe(length)
    expect(owner.stats.memoryRenewals).toBe(50)
  })

  test('a shared replica keeps none', async () => {
    const rig = new Rig()
    await using replica = await rig.open()
    const { lease } = granted(await propose(replica, acquire('ann', 'a')))
    for (let i = 0; i < 5; i++) await renew(replica, lease)
    expect((await rig.commands('renew')).length).toBe(5)
  })

  test('the first renewal after a restart is logged before it is acknowledged', async () => {
    const rig = new Rig()
    const first = await rig.open({ owned: true })
    const { lease } = granted(await propose(first, acquire('ann', 'a', { ttl: TTL })))
    await renew(first, lease)
    await renew(first, lease)
    await first[Symbol.asyncDispose]()
    const line = new Line()
    await using second = await rig.open({ owned: true, line })
    line.ways.append.push(500)
    const answer = fate(renew(second, lease))
    await rig.clock.advance(499)
    expect(answer.settled).toBe(false)
    await rig.clock.advance(1)
    expect(answer.value).toEqual([TTL])
    expect((await rig.commands('renew')).length).toBe(2)
    await renew(second, lease)
    expect((await rig.commands('renew')).length).toBe(2)
  })

  test('the first renewal after a mark is logged before it is acknowledged, also while the mark is pending', async () => {
    const rig = new Rig()
    const line = new Line()
    await using owner = await rig.open({ owned: true, line })
    const { lease } = granted(await propose(owner, acquire('ann', 'a', { ttl: TTL })))
    await renew(owner, lease)
    await rig.clock.advance(TTL * 0.6)
    expect(await rig.commands('aged')).toEqual([])
    line.ways.append.push(300)
    await rig.clock.advance(TTL * 0.03)
    const answer = fate(renew(owner, lease))
    await rig.clock.settle()
    expect(answer.settled).toBe(false)
    await rig.clock.advance(400)
    expect(answer.value).toEqual([TTL])
    expect((await rig.commands('aged')).length).toBe(1)
    expect((await rig.commands('renew')).length).toBe(2)
    await renew(owner, lease)
    expect((await rig.commands('renew')).length).toBe(2)
    const gone = await timeUntilGone(rig, owner, lease, { within: TTL + 50 })
    expect(gone).toBeGreaterThanOrEqual(TTL)
  })

  test('no renewal is acknowledged in memory while a due is pending, however long that takes', async () => {
    const rig = new Rig()
    const line = new Line()
    await using owner = await rig.open({ owned: true, line, timeout: 2_000 })
    const { lease } = granted(await propose(owner, acquire('ann', 'a', { ttl: 800 })))
    await renew(owner, lease)
    await rig.clock.advance(700) // so short that no mark comes before
    line.ways.append.push(60_000)
    await rig.clock.advance(120)
    expect(decodedKinds(line.sent.at(-1)!)).toEqual(['due'])
    const answers = []
    for (let i = 0; i < 100; i++) {
      answers.push(fate(propose(owner, { kind: 'renew', leases: [lease] })))
      await rig.clock.advance(100)
    }
    for (const { value } of answers) expect(value).toBe(undefined) // it would be acknowledged, and then lapse
    await rig.clock.advance(60_000)
    expect(await leases(owner)).toEqual([])
  })

  test('a proposal that settles late allows no renewal in memory while a newer one can still end the lease', async () => {
    const clock = new ManualClock()
    const state = createState()
    const settle: ((outcome: Outcome | undefined) => void)[] = []
    const log = { state, owned: true, toTheEnd: async () => {}, turn: () => 0 }
    const keeper = new Timekeeper(clock, log, { writeUntilSettled: (_, settled) => void settle.push(settled) })
    const effects = { events: [], timer: (lease: LeaseState | undefined, slot: Slot) => keeper.timer(lease, slot) }
    keeper.load(state, 0, 0)
    const write = (command: Command) => {
      keeper.entering(0, 0)
      return apply(state, { command }, effects)
    }
    write({ kind: 'run', owned: true })
    keeper.ownRunBegan()
    keeper.caughtUp()
    const { lease: id } = granted(write(acquire('ann', 'a', { ttl: TTL })))
    const lease = findLease(state, id)!
    write({ kind: 'renew', leases: [id] })
    expect(keeper.renewInMemory(lease, keeper.now())).toBe(true)
    await clock.advance(TTL * 0.7)
    expect(settle.length).toBe(1) // a mark is on its way, and a renewal that was logged passes it
    write({ kind: 'renew', leases: [id] })
    await clock.advance(TTL * 0.7)
    expect(settle.length).toBe(2)
    settle[0]!(undefined)
    expect(keeper.renewInMemory(lease, keeper.now())).toBe(false)
    settle[1]!(undefined)
    expect(keeper.renewInMemory(lease, keeper.now())).toBe(true)
    keeper.stop()
  })

  test('a lease renewed just before its owner was killed has its full ttl from then on', async () => {
    for (const snapshotRecords of [3, 10_000]) {
      const rig = new Rig()
      const line = new Line()
      const first = await rig.open({ owned: true, line, snapshotRecords })
      const { lease } = granted(await propose(first, acquire('ann', 'a', { ttl: TTL })))
      for (let i = 0; i < 30; i++) {
        await rig.clock.advance(3_000)
        expect(await renew(first, lease)).toEqual([TTL])
      }
      const sent = rig.clock.now()
      rig.kill(line)
      await rig.clock.advance(2_000)
      await using second = await rig.open({ owned: true, snapshotRecords })
      await rig.clock.advance(sent + TTL - 1 - rig.clock.now())
      expect(await leases(second)).toEqual(['ann'])
      await rig.clock.advance(2 * TTL)
      expect(await leases(second)).toEqual([])
    }
  })
})

function decodedKinds(bytes: Uint8Array): string[] {
  return decodeBatch(bytes).proposals.map(({ command }) => command.kind)
}

test('no acknowledged renewal is cut short, whatever happens to the replicas', async () => {
  for (let seed = 1; seed <= 12; seed++) {
    const random = chance(seed)
    const rig = new Rig({ ages: seed % 2 === 0 })
    let owned = seed % 3 > 0
    let line = new Line()
    const open = () => rig.open({ owned, line, snapshotRecords: 5 + random(20) })
    let replica = await open()
    const ttl = 1_000 + random(4_000)
    /** When the last acknowledged renewal was sent. */
    const held = new Map<number, number>()
    const gone = new Set<number>()
    for (let i = 0; i < 400; i++) {
      const dice = random(20)
      const sent = rig.clock.now()
      if (dice === 0) {
        if (random(2) === 0) rig.kill(line)
        else await replica[Symbol.asyncDispose]()
        if (random(4) === 0) owned = !owned
        line = new Line()
        replica = await open()
      } else if (dice < 4 && held.size < 30) {
        const outcome = granted(await propose(replica, acquire('ann', `a/${i}`, { ttl, grace: 0 })))
        held.set(outcome.lease, sent)
      } else if (dice < 14) {
        for (const [lease] of [...held]) {
          if (lease % 3 === 0 || random(2) === 0) continue // some are abandoned
          const [left] = await renew(replica, lease)
          if (left !== -1) held.set(lease, sent)
        }
      } else if (dice === 14) rig.clock.stall(random(3_000))
      else if (dice === 15) rig.clock.stepWall(random(2_000_000) - 1_000_000)
      await rig.clock.advance(random(ttl / 3))
      await rig.clock.settle()
      const now = rig.clock.now()
      const there = new Set((await replica.read({ kind: 'leases' }, { consistent: true })).value.map(({ lease }) => lease))
      for (const [lease, since] of held) {
        if (there.has(lease)) {
          expect(gone.has(lease)).toBe(false)
          continue
        }
        expect(
          now - since,
          `seed ${seed}, step ${i}: lease ${lease} lapsed ${now - since} ms after its renewal was sent`,
        ).toBeGreaterThanOrEqual(ttl)
        held.delete(lease)
        gone.add(lease)
      }
    }
    await rig.clock.advance(4 * ttl)
    expect((await replica.read({ kind: 'summary' })).value.leases, `seed ${seed}`).toBe(0)
    await replica[Symbol.asyncDispose]()
  }
})

function chance(seed: number): (below: number) => number {
  let state = Math.imul(seed, 2_654_435_761)
  return below => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) | 0
    return (state >>> 8) % Math.max(1, Math.floor(below))
  }
}

describe('the timers that bind a lease continue when it is transferred', () => {
  for (const owned of [false, true]) {
    const log = owned ? 'an owned log' : 'a shared log'

    /** Passes it on to its own holder again and again; how long it was held in all. */
    async function passedOn(rig: Rig, replica: Replica, first: number, every: number, most: number): Promise<number> {
      let lease = first
      for (let ms = 0; ms < most; ms += every) {
        for (let part = 0; part < every; part += 5_000) {
          await renew(replica, lease)
          await rig.clock.advance(5_000)
          if ((await replica.read({ kind: 'summary' })).value.leases === 0) return ms + part + 5_000
          if ((await renew(replica, lease))[0] === -1) return ms + part + 5_000
        }
        const outcome = await propose(replica, { kind: 'transfer', lease, to: 'ann', stopped: true })
        if (outcome.kind !== 'done') return ms + every
        lease = outcome.id!
      }
      return most
    }

    test(`its cap, on ${log}: 60 s are 60 s, however often it is transferred`, async () => {
      const rig = new Rig()
      await using replica = await rig.open({ owned })
      const { lease } = granted(await propose(replica, acquire('ann', 'a', { ttl: 20_000, maxLife: 60_000 })))
      expect(await passedOn(rig, replica, lease, 30_000, 600_000)).toBeLessThanOrEqual(65_000)
    })

    test(`its cap, on ${log} that was opened again`, async () => {
      const rig = new Rig()
      let lease: number
      {
        await using replica = await rig.open({ owned })
        ;({ lease } = granted(await propose(replica, acquire('ann', 'a', { ttl: 20_000, maxLife: 60_000 }))))
        await rig.clock.advance(8_000)
        await renew(replica, lease)
      }
      await using again = await rig.open({ owned })
      expect(await passedOn(rig, again, lease, 30_000, 600_000)).toBeLessThanOrEqual(65_000)
    })

    test(`a break that was announced, on ${log}`, async () => {
      const rig = new Rig()
      await using replica = await rig.open({ owned })
      const { lease } = granted(await propose(replica, acquire('ann', 'a', { ttl: 20_000 })))
      await propose(replica, { kind: 'break', resource: 'a', after: 60_000 })
      expect(await passedOn(rig, replica, lease, 30_000, 600_000)).toBeLessThanOrEqual(65_000)
    })

    test(`how long it may be held while others wait, on ${log}`, async () => {
      const rig = new Rig()
      await using replica = await rig.open({ owned })
      await propose(replica, { kind: 'policy', prefix: 'a', rules: { maxHold: 60_000 } })
      const { lease } = granted(await propose(replica, acquire('ann', 'a', { ttl: 20_000 })))
      const waiter = queued(await propose(replica, acquire('bob', 'a', { ttl: 3_600_000, wait: true })))
      const keep = setKept(replica, rig, waiter.lease)
      const held = await passedOn(rig, replica, lease, 30_000, 600_000)
      keep()
      expect(held).toBeLessThanOrEqual(65_000)
    })

    test(`and no sooner than it would have, on ${log}`, async () => {
      const rig = new Rig()
      await using replica = await rig.open({ owned })
      const { lease } = granted(await propose(replica, acquire('ann', 'a', { ttl: 20_000, maxLife: 60_000 })))
      expect(await passedOn(rig, replica, lease, 15_000, 600_000)).toBeGreaterThanOrEqual(60_000)
    })
  }
})

/** Keeps a waiter queued. */
function setKept(replica: Replica, rig: Rig, lease: number): () => void {
  let cancel = () => {}
  const beat = () => {
    cancel = rig.clock.after(4_000, () => {
      void propose(replica, { kind: 'renew', leases: [lease], waiting: true })
      beat()
    })
  }
  beat()
  return () => cancel()
}
