import { createReadStream, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { expect, test, vi } from 'vitest'
import { writeBackup } from '../../src/cli/command/backup.ts'
import { systemClock } from '../../src/clock.ts'
import { LeaseError } from '../../src/errors.ts'
import { Leases } from '../../src/leases.ts'
import { propose } from '../../src/lessor/propose.ts'
import { readBackup } from '../../src/replica/backup.ts'
import { Replica } from '../../src/replica/replica.ts'
import { restore } from '../../src/replica/restore.ts'
import { FileStore } from '../../src/store/file/file.ts'
import { MemoryLog, MemoryStore } from '../../src/store/memory.ts'
import { silentLessor } from '../../src/testing/in-memory.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { acquire, granted } from '../support/replica/rig.ts'

async function bytesOf(pieces: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const all: Uint8Array[] = []
  for await (const piece of pieces) all.push(piece)
  return new Uint8Array(Buffer.concat(all))
}

/** In pieces that end anywhere. */
async function* cut(bytes: Uint8Array, size = 7): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < bytes.length; at += size) yield bytes.subarray(at, at + size)
}

function memory() {
  const clock = new ManualClock()
  const log = new MemoryLog({ clock })
  return {
    clock,
    open: () => Replica.open(new MemoryStore({ log, clock }), { clock }),
    owned: () => new MemoryStore({ log, clock, own: { name: 'restore' } }),
  }
}

async function withLeases(here: ReturnType<typeof memory>) {
  const replica = await here.open()
  const leases = new Leases(replica, { holder: 'a', clock: here.clock })
  const lease = await leases.acquire('jobs/nightly', { ttl: 10_000, entries: { 'service/a': 'x' } })
  await leases.setPolicy('jobs', { capacity: 1, lockDelay: 5 })
  await propose(replica, { kind: 'fence', resource: 'jobs/nightly', token: lease.token })
  await propose(replica, { kind: 'key', name: 'ci', hash: 'ab'.repeat(32), allow: [{ verb: 'admin', prefix: '' }] })
  return { replica, leases, lease }
}

test('a backup is the complete state at the end of the log, and is read back wherever its bytes are cut', async () => {
  const here = memory()
  const { replica, leases, lease } = await withLeases(here)
  const bytes = await bytesOf(replica.backup())
  for (const size of [1, 7, 4_096, bytes.length]) {
    const state = await readBackup(cut(bytes, size))
    expect([...state.leases.values()].map(({ id }) => id)).toEqual([lease.id])
    expect([...state.keys.values()].map(({ name }) => name)).toEqual(['ci'])
    expect(state.revision).toBe(replica.revision)
  }
  await leases[Symbol.asyncDispose]()
})

test('a restore that has written to the log and cannot read it back is UNKNOWN, not UNAVAILABLE', async () => {
  const here = memory()
  const { replica, leases } = await withLeases(here)
  const backup = await readBackup(cut(await bytesOf(replica.backup())))
  await leases[Symbol.asyncDispose]()
  await replica[Symbol.asyncDispose]()
  const store = here.owned()
  const append = store.append.bind(store)
  vi.spyOn(store, 'append').mockImplementation(async (entry, after) => {
    const appended = await append(entry, after)
    vi.spyOn(store, 'read').mockRejectedValue(new LeaseError('UNAVAILABLE', 'connection refused'))
    return appended
  })
  await expect(restore(store, backup, { clock: here.clock })).rejects.toMatchObject({ code: 'UNKNOWN' })
})

test('a damaged backup is refused wherever a bit flipped or it was cut off; a backup of a newer version and a foreign file get errors of their own', async () => {
  const here = memory()
  const { replica, leases } = await withLeases(here)
  const bytes = await bytesOf(replica.backup())
  for (let at = 0; at < bytes.length; at++) {
    const bad = bytes.slice()
    bad[at]! ^= 1 << (at % 8)
    await expect(readBackup(cut(bad, 997))).rejects.toMatchObject({ code: expect.stringMatching(/^(INVALID|UNSUPPORTED)$/) })
    await expect(readBackup(cut(bytes.subarray(0, at), 997))).rejects.toMatchObject({ code: 'INVALID' })
  }
  const future = bytes.slice()
  future[16] = 255
  await expect(readBackup(cut(future))).rejects.toMatchObject({ code: 'UNSUPPORTED', message: expect.stringMatching(/newer leasehold/) })
  await expect(readBackup(cut(new TextEncoder().encode('SQLite format 3\0 and so on')))).rejects.toThrow(/not a backup/)
  await leases[Symbol.asyncDispose]()
})

test('a restored log gives tokens above all that were given after the backup, and grants nothing until no holder can still rely on a lost grant', async () => {
  const here = memory()
  const { replica, leases, lease } = await withLeases(here)
  const backup = await bytesOf(replica.backup())
  await lease.release()
  const later = await leases.acquire('jobs/nightly', { ttl: 20_000 })
  const { token } = later
  await propose(replica, { kind: 'fence', resource: 'jobs/nightly', token })
  await leases[Symbol.asyncDispose]()

  const restored = await restore(here.owned(), await readBackup(cut(backup)), { clock: here.clock })
  expect(restored).toMatchObject({ leases: 1, policies: 1, keys: ['ci'], quiet: 20_000 })

  await using again = new Leases(await here.open(), { holder: 'b', clock: here.clock })
  const { value } = await again.read({ kind: 'resource', resource: 'jobs/nightly' })
  expect(value).toMatchObject({ grants: [{ lease: lease.id, holder: 'a' }], fence: token })
  await expect(again.acquire('free', { ifAvailable: true })).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  const waiting = again.acquire('jobs/nightly')
  await here.clock.advance(9_000)
  expect((await again.read({ kind: 'summary' })).value).toMatchObject({ quiet: true })
  // The lease of the backup began its term anew and is not renewed; the quiet period covers the lease that the backup does not know.
  await here.clock.advance(12_000)
  expect((await waiting).token).toBeGreaterThan(token)
})

test('a restore into an empty log starts its counters above those that the backup may have missed', async () => {
  const here = memory()
  const { replica, leases } = await withLeases(here)
  const backup = await bytesOf(replica.backup())
  await here.clock.advance(60_000)
  const last = await leases.acquire('late')
  await leases[Symbol.asyncDispose]()

  const there = memory()
  await there.clock.advance(3_600_000)
  const restored = await restore(there.owned(), await readBackup(cut(backup)), { clock: there.clock, clientsStopped: true })
  expect(restored.nextToken).toBeGreaterThan(last.token)
  await using again = await there.open()
  expect((await again.read({ kind: 'policies' })).value).toEqual([{ prefix: 'jobs', rules: { capacity: 1, lockDelay: 5 } }])
})

test('a log that cannot be owned can be restored into only while it is empty', async () => {
  const here = memory()
  const { replica, leases } = await withLeases(here)
  const backup = await bytesOf(replica.backup())
  await leases[Symbol.asyncDispose]()
  const { clock } = here
  const into = async (log: MemoryLog) =>
    restore(new MemoryStore({ log, clock }), await readBackup(cut(backup)), { clock, longestTtl: 30_000 })
  const log = new MemoryLog({ clock })
  expect(await into(log)).toMatchObject({ leases: 1 })
  await expect(into(log)).rejects.toMatchObject({ code: 'UNSUPPORTED', message: expect.stringMatching(/empty/) })
})

test('a restore that is not confirmed changes nothing, and a log in use is not restored over', async () => {
  const here = memory()
  const { replica, leases } = await withLeases(here)
  const backup = await bytesOf(replica.backup())
  await expect(restore(here.owned(), await readBackup(cut(backup)), { clock: here.clock })).rejects.toMatchObject({ code: 'UNAVAILABLE' })
  const hash = replica.hash()
  await leases[Symbol.asyncDispose]()
  const no = new Error('no')
  const refused = restore(here.owned(), await readBackup(cut(backup)), {
    clock: here.clock,
    confirm: ({ leases }) => {
      expect(leases).toBe(0)
      throw no
    },
  })
  await expect(refused).rejects.toBe(no)
  await using again = await here.open()
  expect(again.hash()).not.toBe(hash) // only what leaving changed: the lease was given back
  expect((await again.read({ kind: 'leases' })).value).toEqual([])
})

test('a backup is taken while writes go on and snapshots become due, and a reader that stops half way delays nothing', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-backup-'))
  try {
    const path = join(folder, 'leases.db')
    const replica = await Replica.open(new FileStore({ path, own: { name: 'test' } }), { owned: true, snapshotRecords: 50 })
    await using leases = new Leases(replica, { holder: 'a' })
    const kept = await Promise.all(Array.from({ length: 400 }, (_, i) => leases.acquire(`r/${i}`)))
    let going = true
    const writing = (async () => {
      while (going) await (await leases.acquire('busy')).release()
    })()
    for (let i = 0; i < 5; i++) {
      const { value: first } = await replica.backup()[Symbol.asyncIterator]().next()
      expect(first!.length).toBe(17)
      const state = await readBackup(replica.backup())
      expect(state.leases.size).toBeGreaterThanOrEqual(400)
    }
    const before = replica.stats.snapshots
    const end = systemClock.now() + 20_000
    while (replica.stats.snapshots === before && systemClock.now() < end) await new Promise(resolve => setImmediate(resolve))
    expect(replica.stats.snapshots).toBeGreaterThan(before)
    going = false
    await writing
    expect(kept.every(({ held }) => held)).toBe(true)
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
})

test('several backups into one file do not disturb each other, and a foreign draft file is left alone', async () => {
  const here = memory()
  const { replica, leases } = await withLeases(here)
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-backup-'))
  try {
    const file = join(folder, 'backup')
    const left = `${file}.${process.pid}.part` // of a process that was killed, and had our pid
    writeFileSync(left, 'half of one')
    let go = () => {}
    const gate = new Promise<void>(resolve => {
      go = resolve
    })
    async function* slowly(): AsyncGenerator<Uint8Array> {
      const bytes = await bytesOf(replica.backup())
      yield bytes.subarray(0, 10)
      await gate
      yield bytes.subarray(10)
    }
    async function* broken(): AsyncGenerator<Uint8Array> {
      yield new Uint8Array(10)
      throw new Error('the disk failed')
    }
    const first = writeBackup(file, slowly())
    await expect(writeBackup(file, broken())).rejects.toThrow()
    expect(await writeBackup(file, replica.backup())).toBeGreaterThan(100)
    go()
    await first
    expect((await readBackup(createReadStream(file))).revision).toBe(replica.revision)
    expect(readdirSync(folder).toSorted()).toEqual(['backup', basename(left)])
    expect(readFileSync(left, 'utf8')).toBe('half of one')
    expect(statSync(file).mode & 0o777).toBe(0o600)
  } finally {
    rmSync(folder, { recursive: true })
    await leases[Symbol.asyncDispose]()
  }
})

test('into another log, the longest ttl that clients may have been granted since has to be named, and nothing is granted before it has passed', async () => {
  const { clock, log, lessor, leases } = silentLessor({ holder: 'a' })
  await using _ = leases
  const before = await Replica.open(new MemoryStore({ log, clock }), { clock })
  granted(await propose(before, acquire('early', 'other', { ttl: 5_000 })))
  const backup = await bytesOf(before.backup())
  const lease = await leases.acquire('jobs', { ttl: 600_000 })
  await lease.renew()
  // The server is lost, with its log.
  lessor.stopAnswering()
  await before[Symbol.asyncDispose]()
  const empty = new MemoryLog({ clock })
  const into = async (options: object) =>
    restore(new MemoryStore({ log: empty, clock, own: { name: 'restore' } }), await readBackup(cut(backup)), { clock, ...options })
  await expect(into({})).rejects.toMatchObject({
    ...{ code: 'INVALID', reason: 'longest-ttl', facts: { known: 5_000, allowed: 86_400_000 } },
    message: expect.stringContaining('its policies allow 24 h'),
  })
  expect(empty.head.index).toBe(0)
  expect(await into({ longestTtl: 600_000 })).toMatchObject({ quiet: 600_000 })
  await using after = await Replica.open(new MemoryStore({ log: empty, clock }), { clock })
  await clock.advance(60_000)
  expect(lease.held).toBe(true)
  expect(await propose(after, acquire('b', 'jobs'))).toMatchObject({ kind: 'refused', reason: 'quiet' })
  await clock.advance(600_000)
  expect(lease.held).toBe(false)
  expect(await propose(after, acquire('b', 'jobs'))).toMatchObject({ kind: 'granted' })
  lessor.answer()
})

test('a lease in a backup lasts as long as its holder was promised since', async () => {
  const clock = new ManualClock()
  const log = new MemoryLog({ clock })
  const before = await Replica.open(new MemoryStore({ log, clock }), { clock })
  const { lease } = granted(await propose(before, acquire('a', 'jobs', { ttl: 5_000 })))
  const backup = await bytesOf(before.backup())
  await propose(before, { kind: 'renew', leases: [lease], ttl: 60_000 })
  await before[Symbol.asyncDispose]()
  await restore(new MemoryStore({ log, clock, own: { name: 'restore' } }), await readBackup(cut(backup)), { clock })
  await using after = await Replica.open(new MemoryStore({ log, clock }), { clock })
  await clock.advance(59_000)
  expect((await after.read({ kind: 'lease', lease })).value).toBeDefined()
  await clock.advance(2_000)
  expect((await after.read({ kind: 'lease', lease })).value).toBeUndefined()
})
