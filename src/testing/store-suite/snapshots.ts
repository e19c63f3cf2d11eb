/** The contract of a store: snapshots and trimming. */
import assert from 'node:assert/strict'
import { LeaseError } from '../../errors.ts'
import { type Position, START } from '../../store.ts'
import { rejectsWith, within } from '../suite-case.ts'
import { appendAll, appended, bytes, chunks, collect, entriesOf, interrupted, noise, readAll, text, texts } from './records.ts'
import type { StoreCases } from './store-log.ts'

export const snapshotsCases: StoreCases = {
  'the next store to open finds the whole snapshot, with the position it was taken at': async log => {
    const store = await log.open()
    const positions = await appendAll(store, ['a', 'b', 'c'])
    const pieces = [noise(300_000, 1), new Uint8Array(), noise(1, 2), noise(1_500_000, 3)]
    assert.equal(await store.snapshot(positions[1]!, chunks(pieces)), 'kept')
    const opened = await log.store().open()
    assert.deepEqual(opened.head, positions[2])
    assert.deepEqual(opened.snapshot?.position, positions[1])
    const whole = Buffer.concat(pieces)
    assert.ok(whole.equals(await collect(opened.snapshot!.bytes)))
    assert.ok(whole.equals(await collect((await store.newest())!.bytes)))
    assert.deepEqual(texts(entriesOf(await store.read(positions[1]!))), ['c'])
  },

  'an empty snapshot is kept like any other': async log => {
    const store = await log.open()
    const [a] = await appendAll(store, ['a'])
    assert.equal(await store.snapshot(a!, chunks([])), 'kept')
    const newest = await (await log.open()).newest()
    assert.deepEqual(newest?.position, a)
    assert.equal((await collect(newest!.bytes)).length, 0)
  },

  'a snapshot that is not newer than the last is refused and changes nothing': async log => {
    const [store, other] = [await log.open(), await log.open()]
    const positions = await appendAll(store, ['a', 'b', 'c'])
    assert.equal(await store.snapshot(positions[1]!, chunks(['two'])), 'kept')
    assert.equal(await other.snapshot(positions[0]!, chunks(['one'])), 'older')
    assert.equal(await other.snapshot(positions[1]!, chunks(['two again'])), 'older')
    assert.equal(text(await collect((await other.newest())!.bytes)), 'two')
    assert.deepEqual(texts(await readAll(store)), ['a', 'b', 'c'])
  },

  'of two snapshots written at once the newer one is kept': async log => {
    const [store, other] = [await log.open(), await log.open()]
    const positions = await appendAll(store, ['a', 'b', 'c'])
    const newer = other.snapshot(positions[2]!, chunks(['three']))
    const answers = await Promise.all([store.snapshot(positions[1]!, chunks(['t', 'w', 'o'])), newer])
    assert.equal(answers[1], 'kept')
    const newest = (await store.newest())!
    assert.deepEqual(newest.position, positions[2])
    assert.equal(text(await collect(newest.bytes)), 'three')
  },

  'a snapshot at a record that the log does not contain is refused': async log => {
    const store = await log.open()
    const [a] = await appendAll(store, ['a'])
    await rejectsWith('DIVERGED', store.snapshot({ index: 1, nonce: a!.nonce ^ 1n }, chunks(['x'])))
    await rejectsWith('DIVERGED', store.snapshot({ index: 2, nonce: a!.nonce }, chunks(['x'])))
    assert.equal(await store.newest(), undefined)
  },

  'an interrupted snapshot leaves the last one in force, and the next one is kept': async log => {
    const store = await log.open()
    const positions = await appendAll(store, ['a', 'b', 'c'])
    await store.snapshot(positions[0]!, chunks(['one']))
    const accident = new Error('out of memory')
    await assert.rejects(store.snapshot(positions[1]!, interrupted([noise(200_000, 1)], accident)), error => error === accident)
    for (const reader of [store, await log.open()]) {
      const newest = (await reader.newest())!
      assert.deepEqual(newest.position, positions[0])
      assert.equal(text(await collect(newest.bytes)), 'one')
    }
    assert.deepEqual(texts(await readAll(store)), ['a', 'b', 'c'])
    assert.equal(await store.snapshot(positions[2]!, chunks(['thr', 'ee'])), 'kept')
    assert.equal(text(await collect((await store.newest())!.bytes)), 'three')
  },

  'appends continue while a snapshot is written': async log => {
    const [store, other] = [await log.open(), await log.open()]
    let after = (await appendAll(store, ['a', 'b']))[1]!
    const at = after
    async function* slowly(): AsyncGenerator<Uint8Array> {
      for (const word of ['c', 'd', 'e']) {
        yield noise(100_000, 1)
        for (const writer of [store, other]) [after] = (await within(appendAll(writer, [word], after))) as [Position]
      }
    }
    assert.equal(await store.snapshot(at, slowly()), 'kept')
    assert.deepEqual(texts(await readAll(other, at)), ['c', 'c', 'd', 'd', 'e', 'e'])
  },

  'trimming removes records before the last snapshot but one, and never later ones': async log => {
    const store = await log.open()
    const positions = await appendAll(store, [...'abcdefghij'])
    await store.snapshot(positions[3]!, chunks(['four']))
    assert.deepEqual(texts(await readAll(store, positions[3])), [...'efghij'])
    await store.snapshot(positions[7]!, chunks(['eight']))
    for (const reader of [store, await log.open()]) {
      for (const after of [START, positions[0]!, positions[2]!]) {
        assert.equal((await reader.read(after)).kind, 'trimmed')
        assert.equal((await reader.read(after, { wait: new AbortController().signal })).kind, 'trimmed')
        assert.equal((await reader.append(bytes('k'), after)).kind, 'trimmed')
      }
      // At the last record that was removed, no record is missing.
      assert.deepEqual(texts(entriesOf(await reader.read(positions[3]!))), [...'efghij'])
      assert.equal((await reader.read({ ...positions[3]!, nonce: positions[3]!.nonce ^ 1n })).kind, 'diverged')
    }
    assert.deepEqual(texts(appended(await store.append(bytes('k'), positions[3]!)).missed), [...'efghij'])
    const opened = await log.store().open()
    assert.deepEqual(opened.snapshot?.position, positions[7])
    assert.equal(opened.head.index, 11)
  },

  'a log that is trimmed to its end still knows its end': async log => {
    const store = await log.open()
    let after = START
    for (const word of ['a', 'b', 'c']) {
      ;[after] = (await appendAll(store, [word], after)) as [Position]
      await store.snapshot(after, chunks([word]))
    }
    await log.close()
    const later = log.store()
    const opened = await later.open()
    assert.deepEqual([opened.head, opened.snapshot?.position], [after, after])
    assert.deepEqual(await later.read(after), { kind: 'records', records: [] })
    assert.equal(appended(await later.append(bytes('d'), after)).position.index, 4)
  },

  'a snapshot that is being read when a newer one is kept is read whole, or refused': async log => {
    const [store, other] = [await log.open(), await log.open()]
    const positions = await appendAll(store, ['a', 'b', 'c'])
    const pieces = [1, 2, 3, 4].map(seed => noise(400_000, seed))
    await store.snapshot(positions[0]!, chunks(pieces))
    const reading = (await other.newest())!.bytes[Symbol.asyncIterator]()
    const read = [(await reading.next()).value as Uint8Array]
    for (const at of positions.slice(1)) await store.snapshot(at, chunks(['newer']))
    try {
      for (let next = await reading.next(); !next.done; next = await reading.next()) read.push(next.value)
    } catch (error) {
      assert.ok(error instanceof LeaseError && error.code === 'UNAVAILABLE', String(error))
      return
    }
    assert.ok(Buffer.concat(pieces).equals(Buffer.concat(read)))
  },
}
