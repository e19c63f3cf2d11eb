/** What builds of earlier formats wrote is refused with a sentence that says what to do, and nothing is changed. */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { decodeBatch, encodeBatch } from '../../src/kernel/codec/batch.ts'
import { checksum, Damaged, NewerFormatError, OlderFormatError, Writer } from '../../src/kernel/codec/bytes.ts'
import { FORMAT } from '../../src/kernel/codec/format.ts'
import { StateLoader, saveState } from '../../src/kernel/codec/snapshot.ts'
import { createState } from '../../src/kernel/state.ts'
import { backupBytes, readBackup } from '../../src/replica/backup.ts'
import { completeMove, Destination } from '../../src/replica/destination.ts'
import { frameChunk } from '../../src/replica/frame.ts'
import { Replica } from '../../src/replica/replica.ts'
import { restore } from '../../src/replica/restore.ts'
import { FileStore } from '../../src/store/file/file.ts'
import { START, type Store } from '../../src/store.ts'
import { acquire, Rig } from '../support/replica/rig.ts'

const earlier = JSON.parse(readFileSync(new URL('../support/earlier-formats.json', import.meta.url), 'utf8')) as {
  readonly records: readonly string[]
  readonly snapshot: readonly string[]
  readonly backup: string
}
const bytesOf = (text: string): Uint8Array => new Uint8Array(Buffer.from(text, 'base64'))
const RECORDS = earlier.records.map(bytesOf)
const SNAPSHOT = earlier.snapshot.map(bytesOf)
const BACKUP = bytesOf(earlier.backup)

const REFUSED = {
  code: 'UNSUPPORTED',
  message: expect.stringMatching(
    new RegExp(`earlier build \\(format [12], .*format ${FORMAT}\\): finish with that build, or begin a new log.*Nothing was changed`),
  ),
}

async function* one(bytes: Uint8Array): AsyncGenerator<Uint8Array> {
  yield bytes
}

async function* framed(chunks: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  for (const chunk of chunks) yield frameChunk(chunk)
}

async function collected(pieces: AsyncIterable<Uint8Array>): Promise<Uint8Array> {
  const all: Uint8Array[] = []
  for await (const piece of pieces) all.push(piece)
  return new Uint8Array(Buffer.concat(all))
}

/** The same bytes with another format number, and a checksum that fits. */
function ofFormat(bytes: Uint8Array, format: number): Uint8Array {
  const to = new Writer()
  to.raw(bytes.subarray(0, -4))
  to.view()[1] = format
  return to.sealed()
}

const record = encodeBatch({
  proposer: 1,
  seq: 1,
  applied: 0,
  decisionHash: [0, 0],
  wall: 0,
  proposals: [{ command: acquire('ann', 'a') }],
})

describe('the format number', () => {
  test('is at the same place in every record, chunk of a snapshot and backup', async () => {
    expect(record[1]).toBe(FORMAT)
    const chunks = [...saveState(createState())]
    for (const chunk of chunks) expect(chunk[1]).toBe(FORMAT)
    expect((await collected(backupBytes(chunks)))['leasehold-backup'.length]).toBe(FORMAT)
  })

  test('of an earlier build is reported as such, and of damaged bytes as damage', () => {
    for (const bytes of [...RECORDS, ofFormat(record, FORMAT - 1)]) expect(() => decodeBatch(bytes)).toThrow(OlderFormatError)
    for (const chunk of SNAPSHOT) expect(() => new StateLoader().add(chunk)).toThrow(OlderFormatError)
    const damaged = RECORDS[0]!.slice()
    damaged[damaged.length - 1]! ^= 1
    expect(() => decodeBatch(damaged)).toThrow(Damaged)
    expect(checksum(damaged, 0, damaged.length - 4)).toBe(checksum(RECORDS[0]!, 0, damaged.length - 4))
  })

  test('of a newer build is reported as such, without a look at the checksum', () => {
    const newer = record.slice()
    newer[1] = FORMAT + 1
    expect(() => decodeBatch(newer)).toThrow(NewerFormatError)
    const [chunk] = [...saveState(createState())]
    chunk![1] = FORMAT + 1
    expect(() => new StateLoader().add(chunk!)).toThrow(NewerFormatError)
  })
})

describe.each([
  ['a log of format 1', RECORDS.slice(0, 1), undefined],
  ['a log of format 2', RECORDS.slice(1), undefined],
  ['a snapshot of format 1', RECORDS.slice(1), SNAPSHOT],
] as const)('%s', (_, records, snapshot) => {
  async function fill(store: Store): Promise<void> {
    await using here = store
    let { head } = await here.open()
    for (const bytes of records) {
      const appended = await here.append(bytes, head)
      if (appended.kind !== 'appended') throw new Error(appended.kind)
      head = appended.position
    }
    if (snapshot !== undefined) expect(await here.snapshot(head, framed(snapshot))).toBe('kept')
  }

  test('is refused by every way to open it, and stays as it is', async () => {
    const rig = new Rig()
    await fill(rig.store())
    const before = await rig.raw()
    await expect(rig.open()).rejects.toMatchObject(REFUSED)
    await expect(rig.open({ owned: true })).rejects.toMatchObject(REFUSED)
    await expect(restore(rig.store({ owned: true }), createState())).rejects.toMatchObject(REFUSED)
    await expect(Destination.open(rig.store(), rig.clock)).rejects.toMatchObject(REFUSED)
    await expect(completeMove(rig.store(), rig.clock)).rejects.toMatchObject(REFUSED)
    expect(await rig.raw()).toEqual(before)
    await using store = rig.store()
    expect((await store.open()).head.index).toBe(before.length)
  })

  test('is refused in a file as well, and its records and its snapshot stay as they are', async () => {
    const folder = mkdtempSync(join(tmpdir(), 'leasehold-earlier-'))
    try {
      const path = join(folder, 'leases.db')
      await fill(new FileStore({ path }))
      // The table of the processes that use the file changes whenever it is opened.
      const contents = async () => {
        await using store = new FileStore({ path })
        const { head, snapshot: found } = await store.open()
        const read = await store.read(found?.position ?? START)
        const kept = found === undefined ? undefined : Buffer.from(await collected(found.bytes)).toString('base64')
        const bytes = read.kind === 'records' ? read.records.map(({ bytes }) => Buffer.from(bytes).toString('base64')) : read.kind
        return { head, kept, bytes, headFile: readFileSync(`${path}-head`, 'base64') }
      }
      const before = await contents()
      await expect(Replica.open(new FileStore({ path }))).rejects.toMatchObject(REFUSED)
      await expect(restore(new FileStore({ path, own: { name: 'restore' } }), createState())).rejects.toMatchObject(REFUSED)
      expect(await contents()).toEqual(before)
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
  })
})

test('a backup of an earlier build is refused with the advice to restore it with that build', async () => {
  const refused = {
    code: 'UNSUPPORTED',
    message: expect.stringMatching(/earlier build \(format 1, .*: restore it with that build. Nothing/),
  }
  await expect(readBackup(one(BACKUP))).rejects.toMatchObject(refused)
  const newer = BACKUP.slice()
  newer['leasehold-backup'.length] = FORMAT + 1
  await expect(readBackup(one(newer))).rejects.toMatchObject({ code: 'UNSUPPORTED', message: expect.stringMatching(/newer leasehold/) })
})
