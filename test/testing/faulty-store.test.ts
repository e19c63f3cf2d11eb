/** The store with faults, which users test their code with. */
import { describe, expect, test } from 'vitest'
import { systemClock } from '../../src/clock.ts'
import { MemoryLog, MemoryStore } from '../../src/store/memory.ts'
import { START } from '../../src/store.ts'
import { type AppendFault, FaultyStore } from '../../src/testing/faulty-store.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { type StoreFixture, storeSuite } from '../../src/testing/store-suite.ts'

async function fixture(): Promise<StoreFixture> {
  const log = new MemoryLog()
  const faulty = (store: MemoryStore) => new FaultyStore(store, { clock: systemClock })
  return {
    store: () => faulty(new MemoryStore({ log })),
    owner: name => faulty(new MemoryStore({ log, own: { name } })),
    forgetOwner: async () => log.forgetOwner(),
    loseTail: async count => log.loseTail(count),
    copy: async () => {
      const restore = log.copy()
      return async () => restore()
    },
    [Symbol.asyncDispose]: async () => {},
  }
}

describe('a faulty store', () => {
  describe('without faults fulfils the contract of a store', () => {
    for (const { name, run } of storeSuite(fixture)) test(name, run)
  })

  test.each([
    ['lost', 'UNKNOWN', 1],
    ['refused', 'UNAVAILABLE', 0],
    ['dropped', 'UNKNOWN', 0],
  ] as const)('an append that is %s throws %s and leaves %i records in the log', async (fault: AppendFault, code, count) => {
    const store = new FaultyStore(new MemoryStore(), { clock: new ManualClock(), append: () => fault })
    await store.open()
    await expect(store.append(Uint8Array.of(1), START)).rejects.toMatchObject({ code })
    expect(await store.read(START)).toMatchObject({ records: { length: count } })
  })

  test('an append that is doubled is in the log twice, and its answer contains the first copy', async () => {
    const store = new FaultyStore(new MemoryStore(), { clock: new ManualClock(), append: () => 'doubled' })
    await store.open()
    const answer = await store.append(Uint8Array.of(1), START)
    expect(answer).toMatchObject({ kind: 'appended', position: { index: 2 }, missed: [{ position: { index: 1 } }] })
  })

  test('requests and answers are both delayed', async () => {
    const clock = new ManualClock()
    const store = new FaultyStore(new MemoryStore({ clock }), { clock, delay: () => 100 })
    await store.open()
    let answered = false
    const appending = store.append(Uint8Array.of(1), START).then(() => {
      answered = true
    })
    await clock.advance(199)
    expect(answered).toBe(false)
    await clock.advance(1)
    await appending
    const stop = new AbortController()
    const reading = expect(store.read(START, { wait: stop.signal })).rejects.toThrow('enough')
    await clock.advance(50)
    stop.abort(new Error('enough'))
    await reading
    expect(clock.waiting).toBe(0)
  })
})
