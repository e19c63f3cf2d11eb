import { describe, expect, test } from 'vitest'
import { systemClock } from '../../src/clock.ts'
import { MemoryLog, MemoryStore } from '../../src/store/memory.ts'
import { START, type Store } from '../../src/store.ts'
import { type AppendFault, FaultyStore } from '../../src/testing/faulty-store.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'
import { type OwnedFixture, ownedSuite } from '../../src/testing/owned-suite.ts'
import { type StoreFixture, storeSuite } from '../../src/testing/store-suite.ts'

async function fixture(): Promise<StoreFixture> {
  const log = new MemoryLog()
  return {
    store: () => new MemoryStore({ log }),
    owner: name => new MemoryStore({ log, own: { name } }),
    forgetOwner: async () => log.forgetOwner(),
    loseTail: async count => log.loseTail(count),
    copy: async () => {
      const putBack = log.copy()
      return async () => putBack()
    },
    [Symbol.asyncDispose]: async () => {},
  }
}

/** The log exists only while a process has it open, so only answers can be lost. */
async function owned(): Promise<OwnedFixture> {
  const log = new MemoryLog()
  const faults = new WeakMap<Store, { fault: AppendFault | undefined }>()
  return {
    owner(name) {
      const script: { fault: AppendFault | undefined } = { fault: undefined }
      const store = new FaultyStore(new MemoryStore({ log, own: { name } }), { clock: systemClock, append: () => script.fault })
      faults.set(store, script)
      return store
    },
    async loseAnswer(owner, append) {
      faults.get(owner)!.fault = 'lost'
      await append()
    },
    accidents: [],
    [Symbol.asyncDispose]: async () => {},
  }
}

describe('a store in memory', () => {
  for (const { name, run } of ownedSuite(owned)) test(name, run)

  for (const { name, run } of storeSuite(fixture)) test(name, run)

  test('ages follow the clock of the log', async () => {
    const clock = new ManualClock()
    await using store = new MemoryStore({ clock })
    await store.open()
    await store.append(Uint8Array.of(1), START)
    await clock.advance(250)
    expect(await store.read(START)).toMatchObject({ records: [{ age: 250 }] })
    clock.sleepMachine(1_000)
    expect(await store.read(START)).toMatchObject({ records: [{ age: 250 }] })
  })

  test('the same seed gives the same nonces', async () => {
    const nonces = async (seed: number) => {
      await using store = new MemoryStore({ clock: new ManualClock({ seed }) })
      await store.open()
      return [await store.append(Uint8Array.of(1), START), await store.append(Uint8Array.of(2), START)]
    }
    expect(await nonces(1)).toEqual(await nonces(1))
    expect(await nonces(1)).not.toEqual(await nonces(2))
  })

  test('one answer carries at most 1,000 records', async () => {
    await using store = new MemoryStore()
    await store.open()
    for (let i = 0; i < 1_001; i++) await store.append(Uint8Array.of(i % 256), START)
    expect(await store.read(START)).toMatchObject({ records: { length: 1_000 } })
    expect((await store.append(Uint8Array.of(0), START)).kind).toBe('behind')
  })
})
