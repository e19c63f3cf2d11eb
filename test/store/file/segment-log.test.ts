/** The log of segments on a disk that fails, fills up and loses power. */
import { Readable } from 'node:stream'
import { crc32 } from 'node:zlib'
import { describe, expect, test } from 'vitest'
import { turn } from '../../../src/clock.ts'
import { LeaseError } from '../../../src/errors.ts'
import { SegmentLog } from '../../../src/store/file/segment-log.ts'
import { SnapshotFiles } from '../../../src/store/file/snapshot-files.ts'
import { type LogRecord, type Position, START } from '../../../src/store.ts'
import { ManualClock } from '../../../src/testing/manual-clock.ts'
import { runs } from '../../support/runs.ts'
import { DISK_STEPS, Died, FaultyDisk } from '../../support/store/faulty-disk.ts'

const SIZE = 8_192
const LOG = 7n

/** A process that appends, dies and is started again, and what it was told. */
class Writer {
  readonly clock: ManualClock
  readonly disk: FaultyDisk
  /** Records that were acknowledged, and those that may be in the log behind them. */
  readonly kept: string[] = []
  possible: string[] = []
  log!: SegmentLog
  /** What PATH-head says. It is never synced. */
  #published: Position = START
  #publishedBefore: Position = START
  #count = 0

  constructor(seed: number) {
    this.clock = new ManualClock({ seed })
    this.disk = new FaultyDisk(() => this.clock.random())
  }

  async open(): Promise<void> {
    this.log = new SegmentLog({ folder: this.disk, clock: this.clock, path: 'log', writer: () => '1', minSize: SIZE, maxSize: SIZE * 4 })
    for (const name of await this.disk.list()) if (name.endsWith('.part')) await this.disk.remove(name)
    await this.log.load(LOG, this.#published.index, false)
    this.publish(this.log.end.position)
  }

  publish(position: Position): void {
    this.#publishedBefore = this.#published
    this.#published = position
  }

  async append(): Promise<void> {
    const { clock } = this
    const length = clock.random() < 0.05 ? 20_000 : Math.floor(clock.random() * 1_500)
    const text = `${this.#count++} `.padEnd(length, 'x')
    this.possible.push(text)
    await this.log.catchUp(this.#published.index)
    const position = await this.log.append(Buffer.from(text), clock.bits())
    await this.#settle(position)
    this.publish(position)
  }

  /** All records up to this one are acknowledged. Of those that failed before it, some are in the log. */
  async #settle({ index }: Position): Promise<void> {
    const there = await this.texts()
    expect(there).toHaveLength(index)
    expect(there.slice(0, this.kept.length)).toEqual(this.kept)
    const more = there.slice(this.kept.length)
    expect(more.every(text => this.possible.includes(text))).toBe(true)
    expect(more.at(-1)).toBe(this.possible.at(-1))
    this.kept.push(...more)
    this.possible = []
  }

  /** The process has died. */
  async restart(powerLoss: boolean): Promise<void> {
    this.disk.restart({ powerLoss })
    if (powerLoss && this.clock.random() < 0.5) this.#published = this.clock.random() < 0.5 ? this.#publishedBefore : START
    await this.open()
    const there = await this.texts()
    expect(there.slice(0, this.kept.length)).toEqual(this.kept)
    // What has not been acknowledged may be there, and is there from now on.
    const more = there.slice(this.kept.length)
    expect(more.every(text => this.possible.includes(text))).toBe(true)
    this.kept.push(...more)
    this.possible = []
  }

  async texts(): Promise<string[]> {
    return (await readAll(this.log)).map(({ bytes }) => Buffer.from(bytes).toString())
  }
}

async function readAll(log: SegmentLog): Promise<LogRecord[]> {
  const records: LogRecord[] = []
  let after = START
  while (after.index < log.end.position.index) {
    const more = (await log.read(after, log.end.position.index))!
    records.push(...more)
    after = more.at(-1)!.position
  }
  return records
}

describe('whatever the disk does, acknowledged records are kept, in their order', () => {
  const seeds = Array.from({ length: runs(80) }, (_, i) => i + 1)
  test.each(seeds)('seed %i', async seed => {
    const writer = new Writer(seed)
    await writer.open()
    const { faults } = writer.disk
    Object.assign(faults, { failing: 0.05, dying: 0.05 })
    for (let i = 0; i < 120; i++) {
      faults.full = writer.clock.random() < 0.1
      faults.readOnly = writer.clock.random() < 0.05
      try {
        await writer.append()
      } catch (error) {
        if (hasDied(error)) await restarted(writer)
        else if (!(error instanceof LeaseError) || error.reason === 'damaged') throw error
        else if (error.code === 'UNAVAILABLE') expect(error.reason).toMatch(/full|io|readonly/)
      }
    }
    expect(writer.kept.length).toBeGreaterThan(40)
  })
})

function hasDied(error: unknown): boolean {
  return error instanceof Died || (error instanceof LeaseError && error.cause instanceof Died)
}

/** The process may die again while it opens the log. */
async function restarted(writer: Writer): Promise<void> {
  writer.disk.faults.readOnly = false
  for (;;) {
    try {
      return await writer.restart(writer.clock.random() < 0.5)
    } catch (error) {
      if (hasDied(error)) continue
      if (!(error instanceof LeaseError) || error.reason === 'damaged') throw error
    }
  }
}

const PLACES = DISK_STEPS.flatMap(step => [`before ${step}`, `after ${step}`])
const CRASHES = PLACES.flatMap(place => [false, true].map(powerLoss => [place, powerLoss ? 'loses power' : 'dies'] as const))

describe('a process that dies at a named step', () => {
  test.each(CRASHES.filter(([place]) => !place.endsWith('remove')))('%s, and %s: the segments are whole', async (place, how) => {
    for (let seed = 1; seed <= runs(50); seed++) {
      const writer = new Writer(seed)
      await writer.open()
      const { faults } = writer.disk
      faults.dieAt = { place, count: 1 + (seed % 5) }
      let died = false
      for (let i = 0; i < 60 && !died; i++)
        died = await writer.append().then(
          () => false,
          error => hasDied(error) || Promise.reject(error),
        )
      // A segment that is made ahead fails without a word. The next call shows it.
      if (faults.dieAt.count > 0) continue
      expect(died).toBe(true)
      await writer.restart(how === 'loses power')
      for (let i = 0; i < 10; i++) await writer.append()
    }
  })

  test.each(CRASHES.filter(([place]) => place.endsWith('remove')))('%s, and %s: what was not trimmed is there', async (place, how) => {
    for (let seed = 1; seed <= runs(50); seed++) {
      const writer = new Writer(seed)
      await writer.open()
      for (let i = 0; i < 120; i++) await writer.append()
      writer.disk.faults.dieAt = { place, count: 1 + (seed % 2) }
      await expect(writer.log.trim(100)).rejects.toBeInstanceOf(Died)
      writer.disk.restart({ powerLoss: how === 'loses power' })
      await writer.open()
      const records = await writer.log.read({ index: 100, nonce: (await writer.log.nonceAt(100))! }, 120)
      expect(records!.map(({ bytes }) => Buffer.from(bytes).toString())).toEqual(writer.kept.slice(100))
      await writer.log.trim(100)
      await writer.log.append(Buffer.from('more'), 1n)
    }
  })

  const ofSnapshots = CRASHES.filter(([place]) => !/ write$/.test(place))
  test.each(ofSnapshots)('%s, and %s: the snapshot before it or the new one is in force, and whole', async (place, how) => {
    for (let seed = 1; seed <= runs(50); seed++) {
      const clock = new ManualClock({ seed })
      const disk = new FaultyDisk(() => clock.random())
      const files = () => new SnapshotFiles({ folder: disk, clock, path: 'log', writer: () => '1' })
      const save = async (snapshots: SnapshotFiles, index: number) => {
        await snapshots.keep(await snapshots.write({ index, nonce: BigInt(index) }, Readable.from(chunks(index))), {
          index,
          nonce: BigInt(index),
        })
        await snapshots.trim()
      }
      let kept = 0
      const saving = files()
      for (; kept < 3; kept++) await save(saving, kept + 1)
      disk.faults.dieAt = { place, count: 1 }
      const error = await save(saving, 4).then(
        () => expect.fail('it did not die'),
        error => error,
      )
      expect(hasDied(error)).toBe(true)
      disk.restart({ powerLoss: how === 'loses power' })
      const newest = (await files().newest())!
      const isKept = /after sync folder|remove/.test(place)
      expect(isKept ? [4] : [3, 4]).toContain(newest.position.index)
      const bytes: Uint8Array[] = []
      for await (const chunk of newest.bytes) bytes.push(chunk)
      expect(Buffer.concat(bytes).equals(Buffer.concat(chunks(newest.position.index)))).toBe(true)
    }
  })
})

/** The chunks of a snapshot: more than one sector, and different for each. */
function chunks(index: number): Buffer[] {
  return [Buffer.alloc(3_000, index), Buffer.alloc(700, index + 100)]
}

async function logOf(count: number): Promise<Writer> {
  const writer = new Writer(1)
  await writer.open()
  for (let i = 0; i < count; i++) await writer.append()
  return writer
}

test('a process goes on in the longer file that another one has put in the place of a segment without a record', async () => {
  const [writer, other] = [new Writer(1), new Writer(1)]
  await writer.open()
  const options = { folder: writer.disk, clock: writer.clock, path: 'log', writer: () => '2', minSize: SIZE, maxSize: SIZE * 4 }
  other.log = new SegmentLog(options)
  await other.log.load(LOG, 0, false)
  const large = await writer.log.append(Buffer.alloc(20_000, 1), 1n)
  // The first process died before it published the position.
  await other.log.catchUp(0)
  expect(other.log.end.position).toEqual(large)
  await other.log.append(Buffer.alloc(10, 2), 2n)
  await writer.log.catchUp(1)
  expect((await readAll(writer.log)).map(({ bytes }) => bytes.length)).toEqual([20_000, 10])
})

const firstSegment = '0000000000000001.log'

describe('a disk that stands still', () => {
  test('delays the append that it is to write, acknowledges nothing, and delays no reader', async () => {
    const writer = await logOf(3)
    const resume = writer.disk.stall()
    let settled = false
    const appended = writer.append().finally(() => {
      settled = true
    })
    for (let i = 0; i < 20; i++) await turn()
    expect(settled).toBe(false)
    expect(writer.log.end.position.index).toBe(3)
    expect(await writer.texts()).toEqual(writer.kept)
    resume()
    await appended
    expect(writer.kept).toHaveLength(4)
  })

  test('keeps nothing of an append that it had not begun to write when the power is lost', async () => {
    const writer = await logOf(3)
    writer.disk.stall()
    void writer.append().catch(() => {})
    await turn()
    await writer.restart(true)
    expect(writer.kept).toHaveLength(3)
  })
})

test('a disk that has become read-only refuses appends, keeps what there is, and takes appends again when it can be written', async () => {
  const writer = await logOf(3)
  writer.disk.faults.readOnly = true
  await expect(writer.append()).rejects.toMatchObject({ reason: 'readonly' })
  expect(await writer.texts()).toEqual(writer.kept)
  writer.disk.faults.readOnly = false
  await writer.append()
  expect(writer.kept.length).toBeGreaterThanOrEqual(4)
})

describe('damage is reported and changes nothing', () => {
  const cases: Record<string, (bytes: Buffer) => void> = {
    'a flipped bit of an acknowledged record': bytes => (bytes[200] = bytes[200]! ^ 1),
    'a record that was cleared': bytes => bytes.fill(0, 64, 400),
    'a segment cut short': bytes => bytes.fill(0, 300),
    'a header of another log': bytes => (bytes[8] = 9),
  }
  test.each(Object.entries(cases))('%s', async (_, change) => {
    const writer = await logOf(3)
    writer.disk.damage(firstSegment, change)
    const before = crc32(writer.disk.remember(firstSegment))
    await expect(writer.open()).rejects.toMatchObject({ reason: 'damaged' })
    expect(crc32(writer.disk.remember(firstSegment))).toBe(before)
  })

  test('a missing segment', async () => {
    const writer = await logOf(30)
    await writer.disk.remove(firstSegment)
    await writer.open().catch(() => {})
    await expect(readAll(writer.log)).rejects.toThrow()
  })
})
