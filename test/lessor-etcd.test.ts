import { afterAll, beforeAll, test } from 'vitest'
import { turn } from '../src/clock.ts'
import { Replica } from '../src/replica/replica.ts'
import { EtcdStore } from '../src/store/etcd.ts'
import type { Appended, Opened, Position, Profile, Read, Snapshot, Store } from '../src/store.ts'
import { type LessorFixture, lessorSuite } from '../src/testing/lessor-suite.ts'
import { ManualClock } from '../src/testing/manual-clock.ts'
import { describeEngine, type Engine, engine } from './engine.ts'

const EVENTS = 500
/** How far the clock moves before everything that follows from it has happened: about as fine as a replica counts. */
const STEP = 20

describeEngine('etcd', 'replicas on one log in etcd', () => {
  let etcd: Engine
  let logs = 0

  beforeAll(async () => {
    etcd = await engine('etcd')
  }, 60_000)
  afterAll(() => etcd?.[Symbol.asyncDispose]())

  async function fixture(): Promise<LessorFixture> {
    const clock = new ManualClock()
    const calls = new Calls()
    const name = `lessor-${++logs}`
    const store = () => new CountedStore(new EtcdStore({ endpoints: [`127.0.0.1:${etcd.port}`], name }), calls)
    return {
      lessor: () => Replica.open(store(), { clock, events: EVENTS, snapshotEntries: 30 }),
      advance: async ms => {
        for (let left = ms; left > 0; left -= STEP) {
          await clock.advance(Math.min(STEP, left))
          await calls.settled(clock)
        }
      },
      keeps: EVENTS,
      [Symbol.asyncDispose]: async () => {},
    }
  }

  for (const { name, run } of lessorSuite(fixture)) test(name, run, 30_000)
})

/** What etcd has been asked and has not answered: the clock stands still until it has. */
class Calls {
  #underWay = 0

  async of<T>(call: Promise<T>): Promise<T> {
    this.#underWay++
    try {
      return await call
    } finally {
      this.#underWay--
    }
  }

  async settled(clock: ManualClock): Promise<void> {
    do {
      while (this.#underWay > 0) await turn()
      await clock.settle()
    } while (this.#underWay > 0)
  }
}

class CountedStore implements Store {
  readonly #store: Store
  readonly #calls: Calls

  constructor(store: Store, calls: Calls) {
    this.#store = store
    this.#calls = calls
  }

  get profile(): Profile {
    return this.#store.profile
  }

  open(): Promise<Opened> {
    return this.#calls.of(this.#store.open())
  }

  append(entry: Uint8Array, after: Position): Promise<Appended> {
    return this.#calls.of(this.#store.append(entry, after))
  }

  read(after: Position, options: { readonly wait?: AbortSignal } = {}): Promise<Read> {
    const reading = this.#store.read(after, options)
    return options.wait === undefined ? this.#calls.of(reading) : reading
  }

  snapshot(at: Position, bytes: AsyncIterable<Uint8Array>): Promise<'kept' | 'older'> {
    return this.#calls.of(this.#store.snapshot(at, bytes))
  }

  newest(): Promise<Snapshot | undefined> {
    return this.#calls.of(this.#store.newest())
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#calls.of(Promise.resolve(this.#store[Symbol.asyncDispose]()))
  }
}
