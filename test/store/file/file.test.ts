import { readdirSync, readFileSync, readlinkSync, rmSync, statSync, truncateSync, writeFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { describe, expect, onTestFinished, test, vi } from 'vitest'
import { bootOfThisMachine } from '../../../src/clock.ts'
import type { Command } from '../../../src/kernel/command.ts'
import { propose } from '../../../src/lessor/propose.ts'
import { Replica } from '../../../src/replica/replica.ts'
import { faultsOf } from '../../../src/store/file/certification.ts'
import { loadEngine } from '../../../src/store/file/engine.ts'
import { FileStore } from '../../../src/store/file/file.ts'
import { FileLog } from '../../../src/store/file/log.ts'
import { DiskFolder, type LogFile } from '../../../src/store/file/log-folder.ts'
import { START } from '../../../src/store.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { type Accident, type OwnedFixture, ownedSuite } from '../../../src/testing/owned-suite.ts'
import { type StoreFixture, storeSuite } from '../../../src/testing/store-suite.ts'
import { EVENT_TIMEOUT } from '../../support/bounds.ts'
import { eventually } from '../../support/eventually.ts'
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

const open = DiskFolder.prototype.open

/** Files of which the writes to segments go through `write`, until the test ends. */
function withWrites(write: (file: LogFile, bytes: Uint8Array, at: number) => Promise<void>): void {
  const spy = vi.spyOn(DiskFolder.prototype, 'open').mockImplementation(async function (this: DiskFolder, name) {
    const file = await open.call(this, name)
    return (
      file && {
        size: () => file.size(),
        read: (into, at) => file.read(into, at),
        write: (bytes, at) => write(file, bytes, at),
        close: () => file.close(),
      }
    )
  })
  onTestFinished(() => spy.mockRestore())
}

const FIRST_SEGMENT = '-log/0000000000000001.log'

async function owned(): Promise<OwnedFixture> {
  const { path, ...disposable } = await folder()
  let segment = Buffer.alloc(0)
  let isLosing = false
  // The record is written, and the disk reports a failure.
  withWrites(async (file, bytes, at) => {
    await file.write(bytes, at)
    if (isLosing) throw Object.assign(new Error('the disk failed'), { code: 'EIO' })
  })
  const chance = new ManualClock({ seed: 38 })
  const files = () =>
    readdirSync(dirname(path), { recursive: true, encoding: 'utf8' })
      .filter(file => statSync(join(dirname(path), file)).isFile())
      .toSorted()
  const contents = async () =>
    files()
      .map(file => `${file} ${readFileSync(join(dirname(path), file)).toString('base64')}`)
      .join('\n') // prettier-ignore
  const accident = (name: string, happen: () => void): Accident => ({ name, happen: async () => happen(), contents })
  const flip = (file: string, length = Number.POSITIVE_INFINITY) =>
    accident(`a bit of ${file} flips`, () => {
      const bytes = readFileSync(`${path}${file}`)
      bytes[Math.floor(chance.random() * Math.min(bytes.length, length))]! ^= 1 << Math.floor(chance.random() * 8)
      writeFileSync(`${path}${file}`, bytes)
    })
  return {
    owner: name => new FileStore({ path, own: { name } }),
    async loseAnswer(_, append) {
      isLosing = true
      await append()
      isLosing = false
    },
    remember: async () => {
      segment = readFileSync(`${path}${FIRST_SEGMENT}`)
    },
    accidents: [
      accident('the segment of an earlier moment is put back', () => writeFileSync(`${path}${FIRST_SEGMENT}`, segment)),
      accident('the segment is emptied', () => truncateSync(`${path}${FIRST_SEGMENT}`, 0)),
      accident('the segment is cut off', () => truncateSync(`${path}${FIRST_SEGMENT}`, 4_096)),
      accident('the segment is removed', () => rmSync(`${path}${FIRST_SEGMENT}`)),
      accident('the folder of the segments is removed', () => rmSync(`${path}-log`, { recursive: true })),
      accident('the segment and the last position are removed', () => {
        rmSync(`${path}${FIRST_SEGMENT}`)
        rmSync(`${path}-head`)
      }),
      accident('the database is emptied', () => truncateSync(path, 0)),
      accident('the database is removed', () => rmSync(path)),
      accident('the database is cut off', () => truncateSync(path, 4_096)),
      ...Array.from({ length: 10 }, () => flip('')),
      ...Array.from({ length: 20 }, () => flip(FIRST_SEGMENT, 8_192)),
      flip('-head'),
    ],
    ...disposable,
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

  test('a snapshot removes the segments before the last but one, and all but two snapshots', async () => {
    await using made = await folder()
    const log = new FileLog({ path: made.path, engine: await loadEngine(), timeout: 1_000 })
    let after = (await log.open()).head
    async function* bytes(): AsyncGenerator<Uint8Array> {
      yield Uint8Array.of(7)
    }
    const names = () =>
      readdirSync(`${made.path}-log`)
        .filter(name => !name.endsWith('.part'))
        .toSorted() // prettier-ignore
    for (let i = 1; i <= 60; i++) {
      const answer = await log.append(new Uint8Array(100_000).fill(i), after)
      if (answer.kind === 'appended') after = answer.position
      if (i % 20 === 0) expect(await log.snapshot(after, bytes())).toBe('kept')
    }
    // Segments of 256, 512 KiB, 1 MiB and so on: the records after 40 begin in that of 38.
    expect(names().map(name => Number(name.slice(0, 16)))).toEqual([38, 40, 60])
    expect(await log.read(START)).toEqual({ kind: 'trimmed' })
    await log.close()
    await using store = new FileStore({ path: made.path })
    expect((await store.open()).snapshot?.position).toEqual(after)
  })

  test('a process that still has a removed segment open reports that it is trimmed, and closes it', async () => {
    await using made = await folder()
    await using store = new FileStore({ path: made.path })
    await using other = new FileStore({ path: made.path })
    let after = (await store.open()).head
    await other.open()
    async function* bytes(): AsyncGenerator<Uint8Array> {
      yield Uint8Array.of(7)
    }
    for (let i = 1; i <= 60; i++) {
      const answer = await store.append(new Uint8Array(100_000).fill(i), after)
      if (answer.kind === 'appended') after = answer.position
      if (i % 20 === 0) await store.snapshot(after, bytes())
    }
    expect((await other.append(Uint8Array.of(1), after)).kind).toBe('appended')
    expect(await other.read(START)).toEqual({ kind: 'trimmed' })
    const open = readdirSync('/proc/self/fd').flatMap(file => linkOf(join('/proc/self/fd', file)) ?? [])
    expect(open.filter(path => path.startsWith(made.path) && path.endsWith('(deleted)'))).toEqual([])
  })
})

test('a process that appends one record after the other lets another one have its turn', async () => {
  await using place = await folder()
  await using greedy = new FileStore({ path: place.path })
  await using other = new FileStore({ path: place.path })
  let { head } = await greedy.open()
  await other.open()
  let isOver = false
  let waiting: Promise<unknown> | undefined
  // Without a pause between two appends, no other process would find the lock free before the last one.
  let appends = 0
  for (; appends < 1_000 && !isOver; appends++) {
    const appending = greedy.append(Uint8Array.of(2), head)
    waiting ??= other.append(Uint8Array.of(1), START).finally(() => {
      isOver = true
    })
    const answer = await appending
    if (answer.kind !== 'appended' && answer.kind !== 'behind') throw new Error(answer.kind)
    head = answer.position
  }
  await waiting
  expect(appends).toBeLessThan(1_000)
})

describe('the lock of one append', () => {
  test('is kept by an owner that goes on appending, and given up when it rests or when another process can take the log over', async () => {
    await using made = await folder()
    const clock = new ManualClock()
    const engine = await loadEngine()
    const log = new FileLog({ path: made.path, engine, clock, timeout: 1_000, own: { name: 'a' } })
    const { head } = await log.open()
    const other = new engine.DatabaseSync(made.path, { timeout: 0 })
    const isFree = () => {
      try {
        other.exec('begin immediate')
      } catch {
        return false
      }
      other.exec('rollback')
      return true
    }
    let at = head
    const append = async () => {
      const appended = await log.append(Uint8Array.of(1), at)
      if (appended.kind !== 'appended') expect.fail(appended.kind)
      at = appended.position
    }
    expect(isFree()).toBe(true)
    for (let i = 0; i < 5; i++) {
      await append()
      expect(isFree()).toBe(false)
      await append()
      await clock.advance(250)
      expect(isFree()).toBe(false)
    }
    await clock.advance(250)
    expect(isFree()).toBe(true)

    // A transaction of its own ends the lock. The look that was planned must not take it for kept.
    await append()
    await append()
    await log.announce('here')
    expect(isFree()).toBe(true)
    await clock.advance(250)
    expect(isFree()).toBe(true)
    await append()
    expect(isFree()).toBe(false)

    rmSync(`${made.path}-owner`)
    await append()
    await clock.advance(250)
    for (let i = 0; i < 3; i++) {
      expect(isFree()).toBe(true)
      const appended = append()
      await clock.advance(3)
      await appended
    }
    other.close()
    await log.close()
  })

  test('goes to the next owner although the one that was taken for dead goes on appending', async () => {
    await using made = await folder()
    const first = new FileStore({ path: made.path, own: { name: 'alpha' } })
    let { head } = await first.open()
    let acknowledged = 0
    const appending = (async () => {
      for (;;) {
        const appended = await first.append(Uint8Array.of(1), head)
        if (appended.kind !== 'appended') return appended
        head = appended.position
        acknowledged++
        if (acknowledged === 10) rmSync(`${made.path}-owner`)
        await new Promise(setImmediate) // as the outbox does
      }
    })()
    await eventually(() => expect(acknowledged).toBeGreaterThan(10))
    const second = new FileStore({ path: made.path, own: { name: 'beta' }, timeout: EVENT_TIMEOUT })
    await second.open()
    expect(await appending).toMatchObject({ kind: 'disowned', by: 'beta' })
    const read = await second.read(START)
    expect(read.kind === 'records' ? read.records.slice(0, acknowledged).length : read.kind).toBe(Math.min(acknowledged, 1_000))
    expect(await second.append(Uint8Array.of(2), head)).toMatchObject({ kind: 'appended', position: { index: acknowledged + 1 } })
    await first[Symbol.asyncDispose]()
    await second[Symbol.asyncDispose]()
  })
})

describe('a disk that stalls', () => {
  test('does not stop the loop: an owner renews in memory, and the append is answered when the disk goes on', async () => {
    await using made = await folder()
    let isStalled = false
    let goOn = () => {}
    const moving = new Promise<void>(resolve => {
      goOn = resolve
    })
    withWrites(async (file, bytes, at) => {
      if (isStalled) await moving
      await file.write(bytes, at)
    })
    await using replica = await Replica.open(new FileStore({ path: made.path, own: { name: 'a' } }), { owned: true })
    const acquire = (resource: string): Command => ({ kind: 'acquire', holder: 'a', ttl: 60_000, wants: [{ resource }] })
    const granted = await propose(replica, acquire('one'))
    if (granted.kind !== 'granted') expect.fail(granted.kind)
    const renew = () => propose(replica, { kind: 'renew', leases: [granted.lease] })
    await renew() // the first renewal is written
    isStalled = true
    let isGranted = false
    const slow = propose(replica, acquire('two')).then(outcome => {
      isGranted = true
      return outcome
    })
    for (let i = 0; i < 50; i++) expect(await renew()).toMatchObject({ kind: 'renewed', ttls: [60_000] })
    expect(isGranted).toBe(false)
    goOn()
    expect(await slow).toMatchObject({ kind: 'granted' })
  })
})

function linkOf(path: string): string | undefined {
  try {
    return readlinkSync(path)
  } catch {
    return undefined // it was that of the list
  }
}
