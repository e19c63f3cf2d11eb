/** A reader that was written from docs/file-format.md, and shares no code with the store. */
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { crc32 } from 'node:zlib'
import { expect, test } from 'vitest'
import { FileStore } from '../../../src/store/file/file.ts'

interface ReadLog {
  readonly head: readonly [index: number, nonce: bigint]
  readonly records: readonly (readonly [index: number, nonce: bigint, bytes: Buffer])[]
  readonly snapshot: readonly [index: number, nonce: bigint, bytes: Buffer] | undefined
}

function readLog(path: string): ReadLog {
  const head = readFileSync(`${path}-head`)
  expect(head.readUInt32LE(16)).toBe(crc32(head.subarray(0, 16)))
  const last = head.readDoubleLE(0)
  const names = readdirSync(`${path}-log`).toSorted()
  const records: [number, bigint, Buffer][] = []
  for (const name of names.filter(each => each.endsWith('.log')))
    records.push(...readSegment(join(`${path}-log`, name), Number(name.slice(0, 16))))
  const newest = names.findLast(each => each.endsWith('.snapshot'))
  return {
    head: [last, head.readBigUInt64LE(8)],
    records: records.filter(([index]) => index <= last),
    snapshot: newest === undefined ? undefined : readSnapshot(join(`${path}-log`, newest)),
  }
}

function readSegment(file: string, first: number): [number, bigint, Buffer][] {
  const bytes = readFileSync(file)
  expect(bytes.toString('latin1', 0, 8)).toBe('LhSegmt1')
  expect(bytes.readUInt32LE(60)).toBe(crc32(bytes.subarray(0, 60)))
  expect(bytes.readDoubleLE(16)).toBe(first)
  const records: [number, bigint, Buffer][] = []
  let before = bytes.readBigUInt64LE(24)
  for (let at = 64; at + 8 <= bytes.length && bytes.readUInt32LE(at) !== 0; ) {
    expect(bytes.readUInt32LE(at)).toBe(0x3166684c)
    const [length, boot] = [bytes.readUInt32LE(at + 8), bytes.readUInt32LE(at + 12)]
    const end = Math.ceil((at + 48 + boot + length) / 8) * 8
    expect(bytes.readUInt32LE(at + 4)).toBe(crc32(bytes.subarray(at + 8, end)))
    expect(bytes.readBigUInt64LE(at + 32)).toBe(before)
    before = bytes.readBigUInt64LE(at + 24)
    records.push([bytes.readDoubleLE(at + 16), before, bytes.subarray(at + 48 + boot, at + 48 + boot + length)])
    at = end
  }
  return records
}

function readSnapshot(file: string): [number, bigint, Buffer] {
  const bytes = readFileSync(file)
  expect(bytes.toString('latin1', 0, 8)).toBe('LhSnaps1')
  expect(bytes.readUInt32LE(252)).toBe(crc32(bytes.subarray(0, 252)))
  const chunks: Buffer[] = []
  for (let at = 256; ; ) {
    const [length, sum] = [bytes.readUInt32LE(at), bytes.readUInt32LE(at + 4)]
    if (length === 0) {
      expect(sum).toBe(chunks.length)
      return [bytes.readDoubleLE(8), bytes.readBigUInt64LE(16), Buffer.concat(chunks)]
    }
    const chunk = bytes.subarray(at + 8, at + 8 + length)
    expect(crc32(chunk)).toBe(sum)
    chunks.push(chunk)
    at += 8 + length
  }
}

test('another program reads a log as docs/file-format.md describes it', async () => {
  const folder = mkdtempSync(join(tmpdir(), 'leasehold-format-'))
  try {
    const path = join(folder, 'log.db')
    const image = Buffer.alloc(600_000, 5)
    async function* bytes(): AsyncGenerator<Uint8Array> {
      yield image
    }
    await using store = new FileStore({ path })
    let { head } = await store.open()
    const written: [number, bigint, Buffer][] = []
    for (let i = 1; i <= 100; i++) {
      const record = Buffer.alloc(1_000 * i + i, i)
      const answer = await store.append(record, head)
      if (answer.kind !== 'appended') expect.fail(answer.kind)
      head = answer.position
      written.push([head.index, head.nonce, record])
      if (i === 50) await store.snapshot(head, bytes())
    }
    const read = readLog(path)
    expect(read.head).toEqual([head.index, head.nonce])
    expect(read.records.length).toBe(100)
    for (const [i, [index, nonce, record]] of read.records.entries()) {
      expect([index, nonce]).toEqual(written[i]!.slice(0, 2))
      expect(record.equals(written[i]![2])).toBe(true)
    }
    expect(read.snapshot!.slice(0, 2)).toEqual(written[49]!.slice(0, 2))
    expect(read.snapshot![2].equals(image)).toBe(true)
  } finally {
    rmSync(folder, { recursive: true })
  }
})
