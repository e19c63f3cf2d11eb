/** The contract of a store: records that are appended and read back. */
import assert from 'node:assert/strict'
import { START } from '../../store.ts'
import { LogFollower } from './log-follower.ts'
import { appendAll, appended, bytes, entriesOf, noise, readAll, text, texts } from './records.ts'
import type { StoreCases } from './store-log.ts'

export const appendingCases: StoreCases = {
  'an empty log begins at START, has no snapshot and nothing to read': async log => {
    const store = log.store()
    const opened = await store.open()
    assert.deepEqual(opened.head, START)
    assert.equal(opened.snapshot, undefined)
    assert.equal(await store.newest(), undefined)
    assert.deepEqual(await store.read(START), { kind: 'records', records: [] })
  },

  'records are read back in order, by the store that appended them, by another one and after all were closed': async log => {
    const first = await log.open()
    const other = await log.open()
    const positions = await appendAll(first, ['a', 'b', 'c'])
    assert.deepEqual(
      positions.map(({ index }) => index),
      [1, 2, 3],
    )
    for (const store of [first, other]) assert.deepEqual(texts(await readAll(store)), ['a', 'b', 'c'])
    await log.close()
    const later = log.store()
    const { head } = await later.open()
    assert.deepEqual(head, positions.at(-1))
    const entries = await readAll(later)
    assert.deepEqual(
      entries.map(entry => entry.position),
      positions,
    )
    assert.deepEqual(texts(entries), ['a', 'b', 'c'])
  },

  'several stores that append at once see one order, without gaps, duplicates or losses': async log => {
    const followers = await Promise.all([1, 2, 3, 4].map(async () => new LogFollower(await log.open())))
    await Promise.all(
      followers.map(async (follower, me) => {
        for (let i = 0; i < 50; i++) await follower.append(`${me}:${i}`)
      }),
    )
    await Promise.all(followers.map(follower => follower.catchUp()))
    const [first, ...others] = followers.map(({ seen }) => seen)
    assert.equal(first!.length, 200)
    assert.deepEqual(
      first!.map(({ position }) => position.index),
      first!.map((_, i) => i + 1),
    )
    assert.equal(new Set(first!.map(({ text }) => text)).size, 200)
    assert.equal(new Set(first!.map(({ position }) => position.nonce)).size, 200)
    for (const seen of others) assert.deepEqual(seen, first)
  },

  'an append returns the records between the position it was made at and its own': async log => {
    const [one, two] = [await log.open(), await log.open()]
    const [a] = await appendAll(one, ['a'])
    await appendAll(two, ['b', 'c'], a)
    const answer = appended(await one.append(bytes('d'), a!))
    assert.equal(answer.position.index, 4)
    assert.deepEqual(texts(answer.missed), ['b', 'c'])
    assert.deepEqual(
      answer.missed.map(({ position }) => position.index),
      [2, 3],
    )
  },

  'the same bytes appended again are a second record, with another position and another nonce': async log => {
    const store = await log.open()
    const [a, again] = await appendAll(store, ['a', 'a'])
    assert.equal(again!.index, a!.index + 1)
    assert.notEqual(again!.nonce, a!.nonce)
    assert.deepEqual(texts(await readAll(store)), ['a', 'a'])
  },

  'an answer that is not large has all that was in the log, also after records of another size': async log => {
    const [writer, reader] = [await log.open(), await log.open()]
    let end = START
    for (let i = 0; i < 4; i++) end = appended(await writer.append(noise(200_000, i), end)).position
    assert.equal((await readAll(reader)).length, 4)
    await appendAll(
      writer,
      Array.from({ length: 40 }, (_, i) => `small ${i}`),
      end,
    )
    assert.equal(entriesOf(await reader.read(end)).length, 40)
  },

  'a caller may reuse its buffer, and a view into a larger buffer is appended as that view': async log => {
    const store = await log.open()
    const buffer = bytes('-mine-')
    const { position } = appended(await store.append(buffer.subarray(1, 5), START))
    assert.equal(text(buffer), '-mine-')
    buffer.fill(0)
    await appendAll(store, ['other'], position)
    assert.deepEqual(texts(await readAll(store)), ['mine', 'other'])
  },

  'every byte is preserved, and so is an empty record': async log => {
    const store = await log.open()
    const all = Uint8Array.from({ length: 1_024 }, (_, i) => i % 256)
    const entries = [all, new Uint8Array(), new Uint8Array(64), all.toReversed()]
    let after = START
    for (const entry of entries) after = appended(await store.append(entry, after)).position
    assert.deepEqual(
      (await readAll(store)).map(entry => [...entry.bytes]),
      entries.map(entry => [...entry]),
    )
  },

  'a record of 1 MiB is stored whole': async log => {
    const [store, other] = [await log.open(), await log.open()]
    const big = noise(1_048_576, 7)
    const { position } = appended(await store.append(big, START))
    await appendAll(store, ['small'], position)
    const entries = await readAll(other)
    assert.equal(entries.length, 2)
    assert.ok(Buffer.from(big).equals(entries[0]!.bytes))
  },

  'an append that missed more records than an answer carries is behind, and reading on closes the gap in bounded pieces': async log => {
    const [store, other] = [await log.open(), await log.open()]
    let after = START
    for (let i = 0; i < 16; i++) after = appended(await store.append(noise(262_144, i), after)).position
    const answer = await other.append(bytes('late'), START)
    assert.deepEqual({ ...answer, position: answer.kind === 'behind' && answer.position.index }, { kind: 'behind', position: 17 })
    const first = entriesOf(await other.read(START))
    assert.ok(first.length > 0 && first.length < 17, `one answer carried ${first.length} entries of 256 KiB`)
    const all = await readAll(other)
    assert.deepEqual(
      all.map(({ position }) => position.index),
      Array.from({ length: 17 }, (_, i) => i + 1),
    )
    assert.equal(text(all[16]!.bytes), 'late')
    for (const [i, entry] of all.slice(0, 16).entries()) assert.ok(Buffer.from(noise(262_144, i)).equals(entry.bytes))
  },
}
