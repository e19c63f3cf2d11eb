/** The contract of a store: closing. */
import assert from 'node:assert/strict'
import { getEventListeners } from 'node:events'
import { START } from '../../store.ts'
import { rejectsWith, within } from '../suite-case.ts'
import { appendAll, bytes, chunks, readAll, texts } from './records.ts'
import type { StoreCases } from './store-log.ts'

export const closingCases: StoreCases = {
  'closing while a read waits ends the read as UNAVAILABLE': async log => {
    const store = await log.open()
    const controller = new AbortController()
    const waiting = rejectsWith('UNAVAILABLE', store.read(START, { wait: controller.signal }))
    await store.read(START) // by now the read waits
    await store[Symbol.asyncDispose]()
    await within(waiting)
    assert.equal(getEventListeners(controller.signal, 'abort').length, 0)
  },

  'before it is opened and after it was closed every call is UNAVAILABLE, and closing again does nothing': async log => {
    const store = log.store()
    const every = [
      () => store.append(bytes('a'), START),
      () => store.read(START),
      () => store.read(START, { wait: new AbortController().signal }),
      () => store.snapshot(START, chunks(['x'])),
      () => store.newest(),
    ]
    for (const call of every) await rejectsWith('UNAVAILABLE', call())
    await store.open()
    await appendAll(store, ['a'])
    await store[Symbol.asyncDispose]()
    for (const call of [...every, () => store.open()]) await rejectsWith('UNAVAILABLE', call())
    await store[Symbol.asyncDispose]()
    assert.deepEqual(texts(await readAll(await log.open())), ['a'])
  },

  'a store that was never opened can be closed': async log => {
    await log.store()[Symbol.asyncDispose]()
  },
}
