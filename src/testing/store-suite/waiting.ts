/** The contract of a store: readers that wait, and the ages of records. */
import assert from 'node:assert/strict'
import { getEventListeners } from 'node:events'
import { systemClock } from '../../clock.ts'
import { type Position, START } from '../../store.ts'
import { TIMEOUT, within } from '../suite-case.ts'
import { appendAll, appended, bytes, chunks, entriesOf, readAll, texts } from './records.ts'
import type { StoreCases } from './store-log.ts'

export const waitingCases: StoreCases = {
  'a reader that waits wakes when another store appends': async log => {
    const [reader, writer] = [await log.open(), await log.open()]
    let after = START
    for (const word of ['first', 'second']) {
      const controller = new AbortController()
      const waiting = reader.read(after, { wait: controller.signal })
      ;[after] = (await appendAll(writer, [word], after)) as [Position]
      assert.deepEqual(texts(entriesOf(await within(waiting))), [word])
      assert.equal(getEventListeners(controller.signal, 'abort').length, 0)
    }
  },

  'a reader that waits is answered at once if there are records already': async log => {
    const store = await log.open()
    await appendAll(store, ['a'])
    assert.deepEqual(texts(entriesOf(await within(store.read(START, { wait: new AbortController().signal })))), ['a'])
  },

  'a reader that stops waiting gets the reason of its signal and leaves no listener': async log => {
    const store = await log.open()
    const [a] = await appendAll(store, ['a'])
    const controller = new AbortController()
    const reason = new Error('enough')
    const waiting = Promise.all([1, 2, 3].map(() => assert.rejects(store.read(a!, { wait: controller.signal }), error => error === reason)))
    await store.read(START) // by now the reads wait
    controller.abort(reason)
    await within(waiting)
    assert.equal(getEventListeners(controller.signal, 'abort').length, 0)
    await assert.rejects(store.read(a!, { wait: controller.signal }), error => error === reason)
    assert.equal(getEventListeners(controller.signal, 'abort').length, 0)
    await appendAll(store, ['b'], a) // and the store still works
  },

  'ages are lower bounds, never negative, and known where the profile says so': async log => {
    const store = await log.open()
    const began = systemClock.now()
    const [a] = await appendAll(store, ['a'])
    await store.snapshot(a!, chunks(['s']))
    const lowerBound = (age: number) => assert.ok(age >= 0 && age <= systemClock.now() - began, `age ${age}`)
    const other = await log.open()
    for (;;) {
      const ages = [store, other].map(async reader => (await readAll(reader))[0]!.age)
      const all = [...(await Promise.all(ages)), (await store.newest())!.age]
      for (const age of all) lowerBound(age)
      if (!store.profile.ages || all.every(age => age > 0)) break
      assert.ok(systemClock.now() - began < TIMEOUT, `the profile says that ages are known, but they stay ${all}`)
    }
    lowerBound(appended(await other.append(bytes('b'), START)).missed[0]!.age)
  },
}
