/** Witnesses: how a replica describes its log, and how it judges a witness that a client presents. */
import { describe, expect, test } from 'vitest'
import { applyBatch, decodeBatch, encodeBatch } from '../../src/kernel/codec/batch.ts'
import { StateLoader, saveState, stateHash } from '../../src/kernel/codec/snapshot.ts'
import type { Command } from '../../src/kernel/command.ts'
import { findLease } from '../../src/kernel/state/leases.ts'
import { carryLineage } from '../../src/kernel/state/lineage.ts'
import { createState } from '../../src/kernel/state.ts'
import { propose } from '../../src/lessor/propose.ts'
import { Replica } from '../../src/replica/replica.ts'
import {
  decodeWitness,
  encodeWitness,
  isCompensated,
  judge,
  readWitness,
  type Witness,
  witnessOf,
  writeWitness,
} from '../../src/replica/witness.ts'
import { MemoryLog, MemoryStore } from '../../src/store/memory.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

const WALL = 1_700_000_000_000

class Log {
  readonly state = createState()
  #seq = 0

  apply(wall: number, ...commands: Command[]) {
    const { index: applied, decisionHashA, decisionHashB } = this.state
    const header = { proposer: 7, seq: ++this.#seq, applied, decisionHash: [decisionHashA, decisionHashB] as const, wall }
    const entry = encodeBatch({ ...header, proposals: commands.map(command => ({ command })) })
    const applied_ = applyBatch(this.state, applied + 1, decodeBatch(entry), { events: [], timer: () => {} })
    return applied_.kind === 'applied' ? applied_.outcomes : []
  }
}

const acquire = (resource: string): Command => ({ kind: 'acquire', holder: 'h', ttl: 10_000, wants: [{ resource }] })
const begin = (nonce: number): Command => ({ kind: 'run', owned: true, nonce, secret: 's' })

describe('the beginning of a run', () => {
  test('raises ids and tokens to 100 for each ms of wall time, and existing leases are still found', () => {
    const log = new Log()
    log.apply(WALL, begin(1), acquire('a'))
    const [outcome] = log.apply(WALL + 5, begin(2)).concat(log.apply(WALL + 5, acquire('b')))
    expect(outcome).toMatchObject({ kind: 'nothing' })
    const [old, young] = [...log.state.leases.values()]
    expect(old!.id).toBe(WALL * 100 + 1)
    expect(young!.id).toBe((WALL + 5) * 100 + 1)
    expect(young!.grants[0]!.token).toBe((WALL + 5) * 100 + 1)
    expect(findLease(log.state, old!.id)).toBe(old)
    expect(findLease(log.state, young!.id)).toBe(young)
    log.apply(WALL + 6, { kind: 'release', lease: old!.id })
    expect([...log.state.leases.values()]).toEqual([young])
  })

  test('never lowers counters, and keeps timer ids safe integers', () => {
    const log = new Log()
    log.apply(WALL, begin(1))
    const { nextLease, nextToken } = log.state
    log.apply(1, begin(2))
    expect([log.state.nextLease, log.state.nextToken]).toEqual([nextLease, nextToken])
    log.apply(Number.MAX_SAFE_INTEGER, begin(3))
    expect(log.state.nextLease).toBe(5e14 + 1)
    expect(Number.isSafeInteger(log.state.nextLease * 8)).toBe(true)
  })

  test('keeps the revision: a watch resumes over a restart without a gap', () => {
    const log = new Log()
    log.apply(WALL, begin(1), acquire('a'))
    const { revision } = log.state
    log.apply(WALL + 1_000, begin(2))
    expect(log.state.revision).toBe(revision)
  })

  test('is in snapshots: they carry a bounded number of runs', () => {
    const log = new Log()
    for (let nonce = 1; nonce <= 300; nonce++) log.apply(WALL + nonce, begin(nonce))
    const { lineage } = log.state
    expect(lineage).toMatchObject({ id: 1, secret: 's' })
    expect(lineage.runs).toHaveLength(256)
    expect(lineage.runs.at(-1)).toEqual({ number: 300, nonce: 300, index: 300 })
    const loader = new StateLoader()
    for (const chunk of saveState(log.state)) loader.add(chunk)
    const loaded = loader.finish()
    expect(loaded.lineage).toEqual(lineage)
    expect(stateHash(loaded)).toBe(stateHash(log.state))
  })
})

describe('a witness', () => {
  const state = () => {
    const log = new Log()
    log.apply(WALL, begin(11), acquire('a'))
    return log
  }
  const seenBy = ({ state }: Log, record = 5n): Witness => witnessOf(state, { index: state.index, nonce: record })
  const nothing = () => undefined

  test('is read as it was written, and is signed only by its own log', () => {
    const witness = seenBy(state(), 2n ** 64n - 3n)
    const text = writeWitness(witness, 'secret')
    expect(text).toMatch(/^[\w.-]{1,200}$/)
    expect(readWitness(text, 'secret')).toEqual({ ...witness, signed: true })
    expect(readWitness(text, 'other')).toEqual({ ...witness, signed: false })
    expect(readWitness(writeWitness(witness, ''), '')).toMatchObject({ signed: false })
  })

  test('is the same without a signature', () => {
    const witness = seenBy(state(), 2n ** 64n - 3n)
    expect(decodeWitness(Uint8Array.from(encodeWitness(witness)))).toEqual(witness)
    for (const bytes of [[], [1], [2, 0, 0, 0, 0], [...encodeWitness(witness), 0]])
      expect(decodeWitness(Uint8Array.from(bytes))).toBeUndefined()
  })

  test.each(['', 'none', '.', 'a.1.AA', 'x'.repeat(300), '0.0.AQAAAAAAAAAAAAAA', '💥'])('%j is not one', text => {
    expect(readWitness(text, 'secret')).toBeUndefined()
  })

  test('is not signed after it was changed', () => {
    const text = writeWitness(seenBy(state()), 'secret')
    const [log, index, body] = text.split('.') as [string, string, string]
    const bytes = Buffer.from(body, 'base64url')
    for (let i = 0; i < bytes.length; i++) {
      const changed = Buffer.from(bytes)
      changed[i]! ^= 1
      expect(readWitness(`${log}.${index}.${changed.toString('base64url')}`, 'secret')?.signed ?? false).toBe(false)
    }
  })

  test('of a log that only grew is contained, also after restarts', () => {
    const log = state()
    const seen = seenBy(log)
    log.apply(WALL + 1, acquire('b'))
    expect(judge(log.state, seen, nothing)).toBe('contained')
    log.apply(WALL + 2, begin(12))
    expect(judge(log.state, seen, nothing)).toBe('contained')
    expect(judge(log.state, seenBy(log), nothing)).toBe('contained')
  })

  test('of a lost run is not contained, however far the log has grown', () => {
    const seen = seenBy(state())
    const log = new Log()
    log.apply(WALL, begin(11))
    const lost = { ...seen, run: 2, nonce: 99, index: 3 }
    expect(judge(log.state, lost, nothing)).toEqual({ lost: 1 })
    log.apply(WALL + 2, begin(12))
    for (let i = 0; i < 10; i++) log.apply(WALL + 3, acquire(`n${i}`))
    expect(judge(log.state, lost, nothing)).toEqual({ lost: 2 })
  })

  test('of the end of a run that was cut short is not contained, and of its beginning is', () => {
    const log = state()
    const [early, late] = [seenBy(log), { ...seenBy(log), index: 4 }]
    log.apply(WALL + 2, begin(12))
    for (let i = 0; i < 10; i++) log.apply(WALL + 3, acquire(`n${i}`))
    expect(judge(log.state, early, nothing)).toBe('contained')
    expect(judge(log.state, late, nothing)).toEqual({ lost: 2 })
  })

  test('of a shared log is compared with the record at its place, where that is known', () => {
    const log = new Log()
    log.apply(WALL, acquire('a'))
    const seen = seenBy(log, 7n)
    expect(judge(log.state, seen, () => 7n)).toBe('contained')
    expect(judge(log.state, seen, () => 8n)).toEqual({ lost: 1 })
    expect(judge(log.state, seen, nothing)).toBe('contained')
    expect(judge(log.state, { ...seen, index: 2 }, nothing)).toEqual({ lost: 1 })
  })

  test('of the log that the leases came from is contained; of an unrelated log it is not', () => {
    const log = state()
    const seen = seenBy(log)
    const target = new Log()
    target.apply(WALL, acquire('x'))
    target.state.lineage = carryLineage(target.state.lineage, log.state.lineage)
    expect(judge(target.state, { ...seen, index: 900 }, nothing)).toBe('contained')
    expect(judge(target.state, { ...seen, log: 12_345 }, nothing)).toEqual({ lost: 1 })
    target.apply(WALL, begin(77))
    expect(judge(target.state, { ...seen, index: 900 }, nothing)).toBe('contained')
  })

  test('is made up for by one generation for all clients of one loss, and by none of an earlier loss', () => {
    const log = state()
    log.apply(WALL + 2, begin(12))
    const lost = { ...seenBy(log), run: 2, nonce: 99 }
    expect(isCompensated(log.state, lost, 2)).toBe(false)
    log.apply(WALL + 3, { kind: 'generation', lease: lost.lease, token: lost.token, revision: lost.revision, quiet: lost.quiet })
    expect(isCompensated(log.state, lost, 2)).toBe(true)
    expect(isCompensated(log.state, { ...lost, quiet: lost.quiet + 1 }, 2)).toBe(false)
    expect(isCompensated(log.state, { ...lost, token: log.state.nextToken + 1 }, 2)).toBe(false)
    expect(isCompensated(log.state, lost, 4)).toBe(false)
  })
})

describe('a replica that is presented a witness', () => {
  test('begins a generation only for one that its log has signed', async () => {
    const clock = new ManualClock()
    const log = new MemoryLog({ clock })
    const open = () => Replica.open(new MemoryStore({ log, clock, own: { name: 'server' } }), { clock, owned: true })
    await using owner = await open()
    await propose(owner, { kind: 'acquire', holder: 'a', ttl: 5_000, wants: [{ resource: 'x' }] })
    const seen = readWitness(owner.witness, '')!
    const forged = writeWitness({ ...seen, run: 9, nonce: 9, index: 1e6, token: 4e14, quiet: 86_400_000 }, 'guessed')
    expect(await owner.continues(forged)).toBe(false)
    const { value } = await owner.read({ kind: 'summary' })
    expect(value).toMatchObject({ quiet: false })
    expect(value.nextToken).toBeLessThan(4e14)
    expect(owner.stats.rewinds).toBe(0)
  })

  test('begins a generation for a lost run even if the log was put back once before, to a copy from after that', async () => {
    const clock = new ManualClock()
    const log = new MemoryLog({ clock })
    const open = () => Replica.open(new MemoryStore({ log, clock, own: { name: 'server' } }), { clock, owned: true })
    const grant = (replica: Replica, resource: string) =>
      propose(replica, { kind: 'acquire', holder: 'a', ttl: 1_000, wants: [{ resource }] })
    /** One life of the server, and what its clients have seen at its end. */
    const life = async (shown: string | undefined, ...resources: string[]) => {
      const owner = await open()
      if (shown !== undefined) await owner.continues(shown)
      for (const resource of resources) {
        await grant(owner, resource)
        await clock.advance(10)
      }
      const { witness } = owner
      await owner[Symbol.asyncDispose]()
      await clock.advance(10)
      return witness
    }
    await life(undefined, 'a')
    const early = log.copy()
    const lost = await life(undefined, 'b')
    early()
    // A generation makes up for that loss, and a copy is made after it.
    await life(lost, 'c', 'd', 'e', 'f')
    const late = log.copy()
    early()
    const lostAgain = await life(lost, 'g', 'h', 'i', 'j', 'k', 'l', 'm')
    late()
    await using owner = await open()
    expect(await owner.continues(lostAgain)).toBe(false)
    expect(owner.stats.rewinds).toBe(1)
  })

  test('begins a quiet period of the longest term that was granted in the lost records', async () => {
    const clock = new ManualClock()
    const log = new MemoryLog({ clock })
    const open = () => Replica.open(new MemoryStore({ log, clock, own: { name: 'server' } }), { clock, owned: true })
    const grant = (replica: Replica, resource: string, ttl: number) =>
      propose(replica, { kind: 'acquire', holder: 'a', ttl, wants: [{ resource }] })
    const first = await open()
    await grant(first, 'short', 1_000)
    const putBack = log.copy()
    const long = await grant(first, 'long', 20_000)
    if (long.kind === 'granted') await propose(first, { kind: 'renew', leases: [long.lease] })
    const { witness } = first
    await first[Symbol.asyncDispose]()
    putBack()
    await using second = await open()
    expect(await second.continues(witness)).toBe(false)
    await clock.advance(19_000)
    expect(await grant(second, 'long', 1_000)).toMatchObject({ kind: 'refused', code: 'UNAVAILABLE' })
    await clock.advance(1_500)
    expect(await grant(second, 'long', 1_000)).toMatchObject({ kind: 'granted' })
    expect(second.stats.rewinds).toBe(1)
  })

  test('of a shared log reads to the end before it judges', async () => {
    const clock = new ManualClock()
    const log = new MemoryLog({ clock })
    const open = () => Replica.open(new MemoryStore({ log, clock }), { clock })
    await using one = await open()
    await using two = await open()
    await propose(one, { kind: 'acquire', holder: 'a', ttl: 5_000, wants: [{ resource: 'x' }] })
    expect(await two.continues(one.witness)).toBe(true)
  })

  test('of a shared log that was put back while no process had it open reports so to the client', async () => {
    const clock = new ManualClock()
    const log = new MemoryLog({ clock })
    const open = () => Replica.open(new MemoryStore({ log, clock }), { clock })
    const grant = (replica: Replica, resource: string) =>
      propose(replica, { kind: 'acquire', holder: 'a', ttl: 5_000, wants: [{ resource }] })
    const first = await open()
    await grant(first, 'x')
    const putBack = log.copy()
    await grant(first, 'y')
    const { witness } = first
    await first[Symbol.asyncDispose]()
    putBack()
    await using second = await open()
    expect(await second.continues(witness)).toBe(false)
    for (const name of ['a', 'b', 'c', 'd']) await grant(second, name)
    expect(await second.continues(witness)).toBe(false)
    expect((await second.read({ kind: 'summary' })).value.quiet).toBe(false)
  })
})
