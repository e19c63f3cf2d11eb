/** The contract of a store: positions that the log does not have, or has no more. */
import assert from 'node:assert/strict'
import { within } from '../suite-case.ts'
import { appendAll, bytes, readAll, texts } from './records.ts'
import type { StoreCases } from './store-log.ts'

export const divergenceCases: StoreCases = {
  'an append at a position with another nonce is diverged, and appends nothing': async log => {
    const store = await log.open()
    const [a, b] = await appendAll(store, ['a', 'b'])
    for (const wrong of [
      { index: 2, nonce: a!.nonce },
      { index: 1, nonce: b!.nonce ^ 1n },
      { index: 0, nonce: 1n },
    ]) {
      assert.equal((await store.append(bytes('c'), wrong)).kind, 'diverged')
      assert.equal((await store.read(wrong)).kind, 'diverged')
    }
    assert.deepEqual(texts(await readAll(store)), ['a', 'b'])
  },

  'an append beyond the end is diverged, and appends nothing': async log => {
    const store = await log.open()
    const [a] = await appendAll(store, ['a'])
    const beyond = { index: 2, nonce: a!.nonce }
    assert.equal((await store.append(bytes('b'), beyond)).kind, 'diverged')
    assert.equal((await store.read(beyond)).kind, 'diverged')
    assert.equal((await store.read(beyond, { wait: new AbortController().signal })).kind, 'diverged')
    assert.deepEqual(texts(await readAll(store)), ['a'])
  },

  'a log that lost its tail is diverged for a store that was at the tail, even after it has grown again': async log => {
    const [witness, other] = [await log.open(), await log.open()]
    const positions = await appendAll(witness, ['1', '2', '3', '4', '5'])
    const [third, last] = [positions[2]!, positions[4]!]
    await log.fixture.loseTail(2)
    assert.equal((await witness.append(bytes('6'), last)).kind, 'diverged')
    assert.equal((await witness.read(last)).kind, 'diverged')
    await appendAll(other, ['four', 'five', 'six'], third)
    assert.equal((await witness.append(bytes('6'), last)).kind, 'diverged')
    assert.equal((await witness.read(last)).kind, 'diverged')
    assert.equal((await witness.read(last, { wait: new AbortController().signal })).kind, 'diverged')
    assert.deepEqual(texts(await readAll(other)), ['1', '2', '3', 'four', 'five', 'six'])
  },

  'a reader that waits at the end of a log that loses its tail and grows again gets diverged': async log => {
    const [witness, other] = [await log.open(), await log.open()]
    const positions = await appendAll(witness, ['1', '2', '3'])
    const waiting = witness.read(positions[2]!, { wait: new AbortController().signal })
    await log.fixture.loseTail(2)
    await appendAll(other, ['two', 'three', 'four'], positions[0])
    assert.equal((await within(waiting)).kind, 'diverged')
  },

  'a log that lost everything is diverged for a store at any position in it': async log => {
    const store = await log.open()
    const [a] = await appendAll(store, ['a', 'b'])
    await log.fixture.loseTail(2)
    assert.equal((await store.read(a!)).kind, 'diverged')
    assert.equal((await store.append(bytes('c'), a!)).kind, 'diverged')
    assert.deepEqual(await readAll(store), [])
  },
}
