import { describe, expect, test } from 'vitest'
import { encodeBatch, WINDOW } from '../../src/kernel/codec/batch.ts'
import { SLOTS } from '../../src/kernel/state.ts'
import { propose } from '../../src/lessor/propose.ts'
import type { Replica } from '../../src/replica/replica.ts'
import { acquire, granted, Line, Rig, renew } from '../support/replica/rig.ts'

const READ_EVERY = 60_000
const TTL = 10_000

interface IdleHolder {
  readonly replica: Replica
  readonly lease: number
  readonly line: Line
}

/** Processes that hold a lease each and renew it at half of its ttl, as a holder does, one after another. */
class Idlers implements AsyncDisposable {
  readonly all: IdleHolder[] = []
  readonly #cancels = new Set<() => void>()

  static async open(rig: Rig, count: number, snapshotRecords = 10_000): Promise<Idlers> {
    const idlers = new Idlers()
    for (let i = 0; i < count; i++) {
      const line = new Line()
      const replica = await rig.open({ readEvery: READ_EVERY, line, snapshotRecords })
      const { lease } = granted(await propose(replica, acquire(`p${i}`, `r${i}`, { ttl: TTL })))
      await renew(replica, lease)
      const holder = { replica, lease, line }
      idlers.all.push(holder)
      idlers.#keep(rig, holder)
      await rig.clock.advance(700)
    }
    return idlers
  }

  #keep(rig: Rig, { replica, lease }: IdleHolder): void {
    const cancel = rig.clock.after(TTL / 2, () => {
      this.#cancels.delete(cancel)
      renew(replica, lease).catch(() => {})
      this.#keep(rig, { replica, lease, line: new Line() })
    })
    this.#cancels.add(cancel)
  }

  /** What each has read and passed from now on, while `ms` pass. */
  async during(rig: Rig, ms: number): Promise<readonly { readonly reads: number; readonly passed: number }[]> {
    const stats = () => this.all.map(({ replica: { stats } }) => ({ reads: stats.idleReads, passed: stats.passed }))
    const before = stats()
    await rig.clock.advance(ms)
    return stats().map(({ reads, passed }, i) => ({ reads: reads - before[i]!.reads, passed: passed - before[i]!.passed }))
  }

  /** The process that reads, and those that pass, after a time in which one of them has become the reader. */
  async parts(rig: Rig): Promise<{ readonly reader: IdleHolder; readonly passers: readonly IdleHolder[] }> {
    await rig.clock.advance(2 * READ_EVERY)
    const spent = await this.during(rig, TTL)
    const [reader] = this.all.filter((_, i) => spent[i]!.reads > 0)
    return { reader: reader!, passers: this.all.filter((_, i) => spent[i]!.reads === 0) }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const cancel of this.#cancels) cancel()
    for (const { replica, line } of this.all) if (!line.dead) await replica[Symbol.asyncDispose]()
  }
}

describe('processes that only hold leases', () => {
  test('have one that reads before each renewal; the others renew without reading', async () => {
    const rig = new Rig({ ages: false })
    await using idlers = await Idlers.open(rig, 4)
    await rig.clock.advance(2 * READ_EVERY)
    const spent = await idlers.during(rig, 100_000)
    expect(spent.filter(({ reads }) => reads > 0)).toHaveLength(1)
    expect(spent.map(({ reads, passed }) => reads + passed)).toEqual([20, 20, 20, 20])
    expect(await rig.commands('due')).toEqual([])
  })

  test('read the same state when they read at last', async () => {
    const rig = new Rig()
    await using idlers = await Idlers.open(rig, 3, 50)
    await rig.clock.advance(10 * READ_EVERY)
    expect(Math.min(...idlers.all.map(({ replica }) => replica.index))).toBeLessThan(rig.log.head.index - 100)
    for (const { replica, lease } of idlers.all) expect((await replica.read({ kind: 'lease', lease })).value?.status).toBe('live')
    await rig.clock.settle()
    expect(new Set(idlers.all.map(({ replica }) => replica.hash())).size).toBe(1)
  })

  test('are told by their renewal that a lease was revoked, also if no wake arrives', async () => {
    const rig = new Rig()
    await using idlers = await Idlers.open(rig, 3)
    const { reader, passers } = await idlers.parts(rig)
    const { replica, lease } = passers[0]!
    rig.log.wake = () => {}
    await propose(reader.replica, { kind: 'revoke', target: { lease } })
    expect(await renew(replica, lease)).toEqual([-1])
  })

  test('end the lease of the process that read, when it has died', async () => {
    const rig = new Rig({ ages: false })
    await using idlers = await Idlers.open(rig, 3)
    const { reader: dead } = await idlers.parts(rig)
    rig.kill(dead.line)
    await rig.clock.advance(READ_EVERY + 3 * TTL)
    const ended = (await rig.commands('due')).map(({ timer }) => Math.floor(timer / SLOTS))
    expect(ended).toEqual([dead.lease])
  })

  test.each([
    ['renewal', renew],
    ['read', (replica: Replica, lease: number) => replica.read({ kind: 'lease', lease })],
  ] as const)('notice with the next %s that their last renewal is lost', async (_, next) => {
    const rig = new Rig()
    await using idlers = await Idlers.open(rig, 3)
    const { passers } = await idlers.parts(rig)
    const { replica, lease } = passers[0]!
    await renew(replica, lease)
    rig.log.loseTail(1)
    await expect(next(replica, lease)).rejects.toMatchObject({ code: 'DIVERGED' })
  })

  test('acquire and release behind what they have not read', async () => {
    const rig = new Rig()
    await using idlers = await Idlers.open(rig, 3)
    const { passers } = await idlers.parts(rig)
    const { replica, lease } = passers[0]!
    granted(await propose(replica, acquire('p0', 'another', { ttl: TTL })))
    expect(replica.index).toBe(rig.log.head.index)
    await rig.clock.advance(TTL)
    expect(await propose(replica, { kind: 'release', lease })).toMatchObject({ kind: 'done' })
  })

  test('renew once more if so many records came in between that the renewal has no effect', async () => {
    const rig = new Rig()
    await using idlers = await Idlers.open(rig, 2)
    const { passers } = await idlers.parts(rig)
    const { replica, lease } = passers[0]!
    const voided = replica.stats.voided
    let { head } = rig.log
    const epoch = [0, 1, 2].find(n => rig.log.read(head, n).kind !== 'disowned')!
    for (let seq = 1; seq <= WINDOW; seq++) {
      const bytes = encodeBatch({ proposer: 77_777, seq, applied: head.index, decisionHash: [0, 0], unread: true, wall: 0, proposals: [] })
      const appended = rig.log.append(bytes, head, epoch, { renewal: { reads: true } })
      head = 'position' in appended ? appended.position : head
    }
    expect(await renew(replica, lease)).toEqual([TTL])
    expect(replica.stats.voided).toBe(voided + 1)
    expect(replica.index).toBe(rig.log.head.index)
  })

  test('read the log when a record that is no renewal precedes their own', async () => {
    const rig = new Rig()
    await using idlers = await Idlers.open(rig, 3)
    const { passers } = await idlers.parts(rig)
    const { replica, lease } = passers[0]!
    await using busy = await rig.open()
    granted(await propose(busy, acquire('bob', 'b')))
    await renew(replica, lease)
    expect(replica.index).toBe(rig.log.head.index)
  })
})
