/** A real store under a clock that is moved by hand. */
import { turn } from '../../src/clock.ts'
import { Replica } from '../../src/replica/replica.ts'
import type { Appended, LogRecord, Opened, Position, Profile, Read, Snapshot, Store } from '../../src/store.ts'
import type { LessorFixture } from '../../src/testing/lessor-suite.ts'
import { ManualClock } from '../../src/testing/manual-clock.ts'

/** What is under way on the engine: the clock stands still until it has answered. */
export class Calls {
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

/** A store whose ages are not known: they are the machine's time, and the replicas here live in another. */
export class TimelessStore implements Store {
  readonly #store: Store
  readonly #calls: Calls

  constructor(store: Store, calls: Calls) {
    this.#store = store
    this.#calls = calls
  }

  get profile(): Profile {
    return { ...this.#store.profile, ages: false }
  }

  async open(): Promise<Opened> {
    const opened = await this.#calls.of(this.#store.open())
    return opened.snapshot === undefined ? opened : { ...opened, snapshot: { ...opened.snapshot, age: 0 } }
  }

  async append(entry: Uint8Array, after: Position): Promise<Appended> {
    const answer = await this.#calls.of(this.#store.append(entry, after))
    return answer.kind === 'appended' ? { ...answer, missed: answer.missed.map(timeless) } : answer
  }

  async read(after: Position, options: { readonly wait?: AbortSignal } = {}): Promise<Read> {
    const reading = this.#store.read(after, options)
    const read = await (options.wait === undefined ? this.#calls.of(reading) : reading)
    return read.kind === 'records' ? { ...read, records: read.records.map(timeless) } : read
  }

  snapshot(at: Position, bytes: AsyncIterable<Uint8Array>): Promise<'kept' | 'older'> {
    return this.#calls.of(this.#store.snapshot(at, bytes))
  }

  async newest(): Promise<Snapshot | undefined> {
    const snapshot = await this.#calls.of(this.#store.newest())
    return snapshot && { ...snapshot, age: 0 }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#calls.of(Promise.resolve(this.#store[Symbol.asyncDispose]()))
  }
}

const EVENTS = 500
/** How far the clock moves before everything that follows from it has happened: about as fine as a replica counts. */
const STEP = 20

/** Replicas on one log of a real engine, in a time of their own. `store` is one more opening of that log. */
export function replicasOn(store: () => Store): LessorFixture {
  const clock = new ManualClock()
  const calls = new Calls()
  return {
    lessor: () => Replica.open(new TimelessStore(store(), calls), { clock, events: EVENTS, snapshotEntries: 30 }),
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

function timeless(entry: LogRecord): LogRecord {
  return { ...entry, age: 0 }
}
