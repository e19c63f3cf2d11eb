/** The contract of a store: processes that are told that something became of their leases. A store without a waker passes: its processes follow the log. */
import assert from 'node:assert/strict'
import type { Waker } from '../../store.ts'
import { within } from '../suite-case.ts'
import { appendAll, entriesOf, texts } from './records.ts'
import type { StoreCases, StoreLog } from './store-log.ts'

/** A name that one store listens to, and how often it was told. */
class ToldName {
  told = 0
  #heard: (() => void) | undefined

  constructor(waker: Waker, name: string) {
    waker.listen(name, () => {
      this.told++
      this.#heard?.()
    })
  }

  async times(count: number): Promise<void> {
    while (this.told < count)
      await within(
        new Promise<void>(resolve => {
          this.#heard = resolve
        }),
      )
  }
}

/** The wakers of so many stores; undefined if they have none, or are told nothing. */
async function wakers(log: StoreLog, count: number): Promise<readonly Waker[] | undefined> {
  const found: Waker[] = []
  for (let i = 0; i < count; i++) {
    const { waker } = await log.open()
    if (waker?.listens === true) found.push(waker)
    else waker?.listen('aaaa', () => assert.fail('this store says that it is told nothing'))
  }
  return found.length === count ? found : undefined
}

export const wakingCases: StoreCases = {
  'a process is told when it begins to listen and when another store wakes it, and not when another process is woken': async log => {
    const [sleeper, other, speaker] = (await wakers(log, 3)) ?? []
    if (sleeper === undefined) return
    const [one, two] = [new ToldName(sleeper, 'aaaa'), new ToldName(other!, 'bbbb')]
    await Promise.all([one.times(1), two.times(1)])
    for (const count of [2, 3]) {
      speaker!.wake(['aaaa'])
      await one.times(count)
    }
    speaker!.wake(['bbbb'])
    await two.times(2)
    assert.deepEqual([one.told, two.told], [3, 2])
  },

  'a process listens to several names, and several processes are woken at once': async log => {
    const [first, second, speaker] = (await wakers(log, 3)) ?? []
    if (first === undefined) return
    const ears = [new ToldName(first, 'aaaa'), new ToldName(second!, 'cccc')]
    await ears[0]!.times(1)
    ears.push(new ToldName(first, 'bbbb')) // while it listens to another one
    const before = await Promise.all(ears.map(ear => ear.times(1))).then(() => ears.map(({ told }) => told))
    speaker!.wake(['aaaa', 'bbbb', 'cccc', 'dddd'])
    await Promise.all(ears.map((ear, i) => ear.times(before[i]! + 1)))
  },

  'a store that listens appends and reads as others do, and none is woken after it was closed': async log => {
    const [listener, speaker] = [await log.open(), await log.open()]
    let told = 0
    listener.waker?.listen('aaaa', () => told++)
    const [a] = await appendAll(listener, ['a'])
    const waiting = listener.read(a!, { wait: new AbortController().signal })
    await appendAll(speaker, ['b'], a)
    assert.deepEqual(texts(entriesOf(await within(waiting))), ['b'])
    await listener[Symbol.asyncDispose]()
    const before = told
    speaker.waker?.wake(['aaaa'])
    assert.deepEqual(texts(entriesOf(await speaker.read(a!))), ['b'])
    assert.equal(told, before)
    await speaker[Symbol.asyncDispose]()
    speaker.waker?.wake(['aaaa'])
  },
}
