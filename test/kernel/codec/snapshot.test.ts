/** What a state may hold at most, and that whatever it holds can be written in small pieces and read back. */
import { describe, expect, test } from 'vitest'
import { StateLoader, saveState, stateHash } from '../../../src/kernel/codec/snapshot.ts'
import { MAX_LEASE_BYTES, MAX_LEASE_ENTRIES } from '../../../src/kernel/command.ts'
import { MAX_POLICIES } from '../../../src/kernel/rule/policy.ts'
import { extrasOf } from '../../../src/kernel/state/leases.ts'
import { addEntry } from '../../../src/kernel/state/resources.ts'
import type { State } from '../../../src/kernel/state.ts'
import { propose } from '../../../src/lessor/propose.ts'
import { frameChunk, readFrames } from '../../../src/replica/frame.ts'
import { reload, World } from '../../support/kernel/world.ts'
import { Rig } from '../../support/replica/rig.ts'

const KIB = 1_024
/** No chunk is larger: a chunk is what one turn of the loop encodes. */
const BOUND = 768 * KIB

function chunks(state: State): Uint8Array[] {
  return [...saveState(state)]
}

/** More entries than a lease takes by the limits of today. */
function overfull(entries: number, bytes: number): World {
  const world = new World({ strict: false })
  const { lease: id } = world.acquire('ann', 'a')
  const lease = world.lease(id)!
  const extras = extrasOf(lease)
  extras.entries = new Set()
  for (let i = 0; i < entries; i++) {
    const key = `e/${i}`
    extras.entries.add(key)
    addEntry(world.state, { key, value: 'v'.repeat(bytes), lease, revision: 1, generation: i % 3, created: 1, version: 1 })
  }
  return world
}

describe('a lease', () => {
  test('takes a limited number of entries', () => {
    const world = new World({ strict: false })
    const { lease } = world.acquire('ann', [])
    for (let i = 0; i < MAX_LEASE_ENTRIES; i++) expect(world.do({ kind: 'put', lease, key: `e/${i}`, value: '' }).kind).toBe('done')
    world.refused(world.do({ kind: 'put', lease, key: 'one-more', value: '' }), 'LIMIT', 'too-many-entries')
    // What it has it may change.
    expect(world.do({ kind: 'put', lease, key: 'e/7', value: 'changed' }).kind).toBe('done')
    expect(world.do({ kind: 'delete', key: 'e/8' }).kind).toBe('done')
    expect(world.do({ kind: 'put', lease, key: 'one-more', value: '' }).kind).toBe('done')
  })

  test('takes a limited number of bytes of entries, recounted after every change', () => {
    const world = new World({ strict: false })
    const { lease } = world.acquire('ann', [])
    const value = 'é'.repeat(8 * KIB)
    let last = -1
    for (let i = 0; ; i++) {
      const outcome = world.do({ kind: 'put', lease, key: `e/${i}`, value })
      if (outcome.kind === 'refused') {
        world.refused(outcome, 'LIMIT', 'too-many-entry-bytes')
        break
      }
      last = i
      expect(i).toBeLessThan(1_000)
    }
    expect((last + 1) * 16 * KIB).toBeLessThanOrEqual(MAX_LEASE_BYTES)
    expect((last + 2) * 17 * KIB).toBeGreaterThan(MAX_LEASE_BYTES)
    expect(world.do({ kind: 'put', lease, key: 'e/0', value: '' }).kind).toBe('done')
    expect(world.do({ kind: 'put', lease, key: 'more', value: 'v'.repeat(16_000) }).kind).toBe('done')
    world.refused(world.do({ kind: 'put', lease, key: 'e/0', value }), 'LIMIT', 'too-many-entry-bytes')
    // A replica that began with a snapshot counts the same.
    world.state = reload(world.state)
    world.refused(world.do({ kind: 'put', lease, key: 'e/0', value }), 'LIMIT', 'too-many-entry-bytes')
    expect(world.do({ kind: 'delete', key: 'e/1' }).kind).toBe('done')
    expect(world.do({ kind: 'put', lease, key: 'e/0', value }).kind).toBe('done')
  })

  test('has room again after another lease took over one of its entries', () => {
    const world = new World({ strict: false })
    const { lease } = world.acquire('ann', [])
    for (let i = 0; i < MAX_LEASE_ENTRIES; i++) world.do({ kind: 'put', lease, key: `e/${i}`, value: '' })
    world.acquire('bob', [], { entries: [{ key: 'e/1', value: '', generation: 2 }] })
    expect(world.do({ kind: 'put', lease, key: 'again', value: '' }).kind).toBe('done')
  })

  test('takes as many entries at once as a request may have, however large', () => {
    const world = new World({ strict: false })
    const entries = Array.from({ length: 64 }, (_, i) => ({ key: `${i}/`.padEnd(512, 'k'), value: 'v'.repeat(16 * KIB) }))
    expect(world.ask('ann', [], { entries }).kind).toBe('granted')
  })
})

test('the number of policies is limited', () => {
  const world = new World({ strict: false })
  for (let i = 0; i < MAX_POLICIES; i++) world.state.policies.set(`p/${i}`, { capacity: 2 })
  world.refused(world.do({ kind: 'policy', prefix: 'more', rules: { capacity: 2 } }), 'LIMIT', 'too-many-policies')
  expect(world.do({ kind: 'policy', prefix: 'p/1', rules: { capacity: 3 } }).kind).toBe('done')
  expect(world.do({ kind: 'policy', prefix: 'p/2' }).kind).toBe('done')
  expect(world.do({ kind: 'policy', prefix: 'more', rules: { capacity: 2 } }).kind).toBe('done')
})

describe('a snapshot', { timeout: 900_000 }, () => {
  test('of a lease with more entries than a chunk takes is written in small chunks and read back', () => {
    const world = overfull(300, 16 * KIB)
    const written = chunks(world.state)
    for (const chunk of written) expect(chunk.length).toBeLessThan(BOUND)
    const again = reload(world.state)
    expect(stateHash(again)).toBe(world.hash())
    expect([...again.leases.values()][0]!.extras!.entries).toEqual(world.lease(1)!.extras!.entries)
  })

  test('takes a lease as it was when the first chunk was asked for, in small chunks, although it changes meanwhile', () => {
    const world = overfull(300, 16 * KIB)
    const expected = world.hash()
    const loader = new StateLoader()
    const saving = saveState(world.state)
    loader.add(saving.next().value as Uint8Array)
    world.do({ kind: 'put', lease: 1, key: 'e/200', value: 'changed' })
    world.do({ kind: 'delete', key: 'e/250' })
    world.release(1)
    for (const chunk of saving) {
      expect(chunk.length).toBeLessThan(BOUND)
      loader.add(chunk)
    }
    expect(stateHash(loader.finish())).toBe(expected)
  })

  test('of long tables, a long session and large answers is written in small chunks', () => {
    const world = new World({ strict: false })
    const { state } = world
    const name = (i: number) => `${i}/`.padEnd(500, 'n')
    for (let i = 0; i < 3_000; i++) {
      state.fences.set(name(i), i + 1)
      state.policies.set(name(i), { capacity: 2 })
      state.flaps.set(name(i), { penalty: 1, at: 0, suppressed: false })
      state.upkeep.set(name(i), { preserving: true, since: 1, base: 2, removed: 1, at: 0 })
      state.proposers.set(i + 10, { seq: 1, index: 1 })
    }
    const allow = Array.from({ length: 200 }, (_, i) => ({ verb: 'acquire' as const, prefix: name(i) }))
    for (let id = 1; id <= 20; id++) state.keys.set(id, { id, name: `k${id}`, hash: '0'.repeat(64), allow })
    state.nextToken = 10_000
    state.nextKey = 100
    for (let i = 1; i <= 60; i++) {
      const wants = Array.from({ length: 256 }, (_, j) => `${i}-${j}/`.padEnd(500, 'w'))
      world.entry([{ kind: 'acquire', holder: 'ann', ttl: 10_000, wants: wants.map(resource => ({ resource })) }], {
        op: { session: 's', seq: i, acked: 0 },
      })
      world.release(state.nextLease - 1)
    }
    const written = chunks(state)
    for (const chunk of written) expect(chunk.length).toBeLessThan(BOUND)
    expect(written.length).toBeGreaterThan(40)
    expect(stateHash(reload(state))).toBe(world.hash())
  })

  test('of tables that change while it is taken holds them as they were', () => {
    const world = new World({ strict: false })
    for (let i = 0; i < 4_000; i++) world.state.policies.set(`p/${i}`.padEnd(200, 'p'), { capacity: 2 })
    for (let i = 0; i < 10; i++) world.acquire(`h${i}`, [], { ttl: 1_000, entries: [{ key: `services/s/${i}`, value: '' }], grace: 500 })
    for (let i = 1; i <= 6; i++) world.due(i)
    const expected = world.hash()
    const loader = new StateLoader()
    const saving = saveState(world.state)
    loader.add(saving.next().value as Uint8Array)
    world.do({ kind: 'policy', prefix: '', rules: { capacity: 9 } })
    for (let i = 1; i <= 6; i++) world.due(i)
    world.do({ kind: 'tick', n: 1, elapsed: 60_000 })
    world.key('k', 'admin:')
    for (const chunk of saving) loader.add(chunk)
    expect(stateHash(loader.finish())).toBe(expected)
  })
})

describe('frames', { timeout: 900_000 }, () => {
  async function* cut(bytes: Uint8Array, size: number) {
    for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size)
  }

  test('a chunk that is too large to be read is not written', () => {
    expect(() => frameChunk(new Uint8Array(2 ** 28 + 1))).toThrow(/cannot be read/)
  })

  test('a chunk larger than any that is written now is read, as older builds may have written it', async () => {
    const length = 300 * 1_024 * KIB
    const frame = new Uint8Array(4 + length)
    new DataView(frame.buffer).setUint32(0, length)
    frame[length] = 7
    const read: number[] = []
    for await (const chunk of readFrames(cut(frame, 1 << 20))) read.push(chunk.length, chunk[length - 4]!)
    expect(read).toEqual([length, 7])
  })

  test('chunks are read whole, wherever the store has cut them', async () => {
    const sizes = [0, 1, 3, 70, 0, 4_096, 5]
    const all = sizes.map((size, i) => frameChunk(new Uint8Array(size).fill(i + 1)))
    const bytes = new Uint8Array(all.reduce((sum, frame) => sum + frame.length, 0))
    let at = 0
    for (const frame of all) {
      bytes.set(frame, at)
      at += frame.length
    }
    for (const size of [1, 2, 3, 5, 64, 5_000]) {
      const read: number[][] = []
      for await (const chunk of readFrames(cut(bytes, size))) read.push([chunk.length, ...new Set(chunk)])
      expect(read).toEqual(sizes.map((length, i) => (length === 0 ? [0] : [length, i + 1])))
    }
    await expect(async () => {
      for await (const _ of readFrames(cut(bytes.subarray(0, bytes.length - 1), 64)));
    }).rejects.toThrow(/cut off/)
  })
})

test('a log with a lease of many large entries is opened again after its snapshot', { timeout: 900_000 }, async () => {
  const rig = new Rig()
  const value = 'v'.repeat(16_000)
  {
    await using owner = await rig.open({ owned: true, snapshotBytes: 64 * KIB })
    const outcome = await propose(owner, { kind: 'acquire', holder: 'ann', ttl: 60_000, wants: [] })
    const { lease } = outcome as { lease: number }
    for (let i = 0; i < 120; i++) await propose(owner, { kind: 'put', lease, key: `e/${i}`, value })
    expect(owner.stats.snapshots).toBeGreaterThan(0)
  }
  await using again = await rig.open({ owned: true })
  expect((await again.read({ kind: 'summary' })).value.entries).toBe(120)
})
