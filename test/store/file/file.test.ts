import assert from 'node:assert/strict'
import { readdirSync, readFileSync, truncateSync, writeFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import type { Worker } from 'node:worker_threads'
import { describe, expect, test, vi } from 'vitest'
import { bootOfThisMachine } from '../../../src/clock.ts'
import { propose } from '../../../src/lessor/propose.ts'
import { Replica } from '../../../src/replica/replica.ts'
import { AppendChannel } from '../../../src/store/file/append-channel.ts'
import { faultsOf } from '../../../src/store/file/certification.ts'
import { loadEngine } from '../../../src/store/file/engine.ts'
import { FileStore } from '../../../src/store/file/file.ts'
import { FileLog } from '../../../src/store/file/log.ts'
import { endThread } from '../../../src/store/file/worker-thread.ts'
import { START } from '../../../src/store.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { type Accident, type OwnedFixture, ownedSuite } from '../../../src/testing/owned-suite.ts'
import { type StoreFixture, storeSuite } from '../../../src/testing/store-suite.ts'
import { passLeaseBetween } from '../../support/handed-in.ts'

async function folder(): Promise<AsyncDisposable & { readonly path: string }> {
  const name = await mkdtemp(join(tmpdir(), 'leasehold-file-'))
  return { path: join(name, 'log.db'), [Symbol.asyncDispose]: () => rm(name, { recursive: true }) }
}

async function fixture(): Promise<StoreFixture> {
  const { path, ...disposable } = await folder()
  return {
    ...disposable,
    ...faultsOf(path),
  }
}

/** The answer of the thread is never read. Then the thread ends, as in a crash. */
async function loseAnswer(path: string, thread: Worker, append: () => Promise<unknown>): Promise<void> {
  const before = readFileSync(`${path}-head`)
  thread.removeAllListeners('message')
  // By message: an answer over the channel is read in the same turn, and cannot be lost but with the process.
  const channel = vi.spyOn(AppendChannel.prototype, 'append').mockReturnValue(undefined)
  const appending = append()
  channel.mockRestore()
  // Written after the append is committed and its answer sent.
  await expect.poll(() => readFileSync(`${path}-head`).equals(before)).toBe(false)
  await endThread(thread)
  await appending
}

async function owned(): Promise<OwnedFixture> {
  const { path, ...disposable } = await folder()
  const threads: Worker[] = []
  const note = (thread: Worker) => threads.push(thread)
  process.on('worker', note)
  let wal = Buffer.alloc(0)
  const chance = new ManualClock({ seed: 38 })
  const files = () => readdirSync(dirname(path)).toSorted()
  const contents = async () =>
    files()
      .map(file => `${file} ${readFileSync(join(dirname(path), file)).toString('base64')}`)
      .join('\n') // prettier-ignore
  const accident = (name: string, happen: () => void): Accident => ({ name, happen: async () => happen(), contents })
  const flip = (file: string) =>
    accident(`a bit of ${file} flips`, () => {
      const bytes = readFileSync(`${path}${file}`)
      bytes[Math.floor(chance.random() * bytes.length)]! ^= 1 << Math.floor(chance.random() * 8)
      writeFileSync(`${path}${file}`, bytes)
    })
  return {
    owner: name => new FileStore({ path, own: { name } }),
    loseAnswer: (_, append) => loseAnswer(path, threads.at(-1)!, append),
    // SQLite has no locks on this file, so opening and closing it here releases none.
    remember: async () => {
      wal = readFileSync(`${path}-wal`)
    },
    accidents: [
      accident('the write-ahead file of an earlier moment is put back', () => writeFileSync(`${path}-wal`, wal, { mode: 0o600 })),
      accident('the database is emptied, the write-ahead file of an earlier moment put back', () => {
        truncateSync(path, 0)
        writeFileSync(`${path}-wal`, wal, { mode: 0o600 })
      }),
      accident('the database is emptied', () => truncateSync(path, 0)),
      accident('the database is cut off', () => truncateSync(path, 3 * 4_096)),
      ...Array.from({ length: 20 }, () => flip('')),
      flip('-head'),
    ],
    async [Symbol.asyncDispose]() {
      process.off('worker', note)
      await disposable[Symbol.asyncDispose]()
    },
  }
}

describe('a store in a file', () => {
  for (const { name, run } of ownedSuite(owned)) test(name, { timeout: 120_000 }, run)

  for (const { name, run } of storeSuite(fixture)) test(name, run)

  test('a store that is handed to connect holds leases', async () => {
    await using made = await folder()
    await passLeaseBetween(() => new FileStore({ path: made.path }))
  })

  test('ages are known within one boot of the machine, and 0 in any other', async () => {
    await using made = await folder()
    const clock = new ManualClock({ boot: 'monday' })
    const log = new FileLog({ path: made.path, engine: await loadEngine(), clock, timeout: 1_000 })
    await log.open()
    await log.append(Uint8Array.of(1), START)
    const age = async () => {
      const read = await log.read(START)
      return read.kind === 'records' ? read.records[0]?.age : read.kind
    }
    await clock.advance(250)
    expect(await age()).toBe(250)
    clock.sleepMachine(5_000)
    expect(await age()).toBe(250)
    clock.reboot('tuesday')
    expect(await age()).toBe(0)
    clock.reboot('')
    expect(await age()).toBe(0)
    await log.close()
  })

  test('a boot id differs if the monotonic clock has an offset, and is unknown if the offset cannot be determined', () => {
    const boot = (offsets: string, [now, children]: readonly (string | undefined)[] = ['time:[1]', 'time:[1]']) => {
      const files: Record<string, string | undefined> = {
        '/proc/sys/kernel/random/boot_id': 'monday\n',
        '/proc/self/timens_offsets': offsets,
        '/proc/self/ns/time': now,
        '/proc/self/ns/time_for_children': children,
      }
      const read = (file: string) => {
        const text = files[file]
        if (text === undefined) throw new Error('ENOENT')
        return text
      }
      return bootOfThisMachine(read, read)
    }
    const none = 'monotonic           0         0\nboottime            0         0\n'
    expect(boot(none)).toBe('monday')
    expect(boot(none, [undefined, undefined])).toBe('monday')
    expect(boot('1 0 0\n7 0 0\n')).toBe('monday')
    const other = boot('monotonic          5         70\nboottime            0         0\n')
    expect(other).toBe('monday monotonic 5.000000070')
    expect(boot('monotonic          5         70\n', ['time:[2]', 'time:[2]'])).toBe(other)
    expect(boot('monotonic         -5          0\n')).toBe('monday monotonic -5.000000000')
    expect(boot(none, ['time:[1]', 'time:[2]'])).toBe('')
    expect(boot('what?')).toBe('')
  })

  test('one answer carries at most 1,000 records', async () => {
    await using made = await folder()
    await using store = new FileStore({ path: made.path })
    await store.open()
    let after = START
    for (let i = 0; i < 1_001; i++) {
      const answer = await store.append(Uint8Array.of(i % 256), after)
      if (answer.kind === 'appended') after = answer.position
    }
    expect(after.index).toBe(1_001)
    expect(await store.read(START)).toMatchObject({ records: { length: 1_000 } })
    expect((await store.append(Uint8Array.of(0), START)).kind).toBe('behind')
  })

  test('trimming deletes the rows', async () => {
    await using made = await folder()
    const log = new FileLog({ path: made.path, engine: await loadEngine(), timeout: 1_000 })
    let after = (await log.open()).head
    for (let i = 1; i <= 600; i++) {
      const answer = await log.append(Uint8Array.of(i % 256), after)
      if (answer.kind === 'appended') after = answer.position
      if (i % 200 !== 0) continue
      const id = (await log.beginSnapshot(after))!
      await log.putChunk(id, 0, Uint8Array.of(i % 256))
      expect(await log.keepSnapshot(id, after, 1)).toBe('kept')
    }
    await log.tidy()
    const { DatabaseSync } = await loadEngine()
    const db = new DatabaseSync(made.path, { timeout: 1_000 })
    const count = (table: string) => (db.prepare(`select count(*) n from ${table}`).get() as { n: number }).n
    expect([count('entry'), count('snapshot'), count('chunk')]).toEqual([200, 2, 2])
    db.close()
    await log.close()
  })
})

describe('a thread that ends although the store was not closed', () => {
  test('stops its replica: an owner without its lock acknowledges nothing more from memory', async () => {
    await using place = await folder()
    const threads: Worker[] = []
    const note = (thread: Worker) => threads.push(thread)
    process.on('worker', note)
    try {
      await using replica = await Replica.open(new FileStore({ path: place.path, own: { name: 'first' } }), { owned: true })
      const granted = await propose(replica, { kind: 'acquire', holder: 'ann', ttl: 10_000, wants: [{ resource: 'a' }] })
      assert(granted.kind === 'granted')
      const renew = () => propose(replica, { kind: 'renew', leases: [granted.lease] })
      await renew() // the first renewal is written to the log
      await renew()
      expect(replica.stats.memoryRenewals).toBe(1)
      await endThread(threads[0]!)
      await expect.poll(() => replica.signal.aborted).toBe(true)
      expect(replica.signal.reason).toMatchObject({ code: 'UNAVAILABLE', message: expect.stringContaining('has ended') })
      await expect(renew()).rejects.toMatchObject({ code: 'UNAVAILABLE' })
      await using next = new FileStore({ path: place.path, own: { name: 'second' } })
      await next.open()
    } finally {
      process.off('worker', note)
    }
  })
})
