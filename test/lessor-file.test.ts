import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, test } from 'vitest'
import { turn } from '../src/clock.ts'
import { Replica } from '../src/replica/replica.ts'
import { FileStore } from '../src/store/file.ts'
import type { Appended, Entry, Opened, Position, Profile, Read, Snapshot, Store } from '../src/store.ts'
import { type LessorFixture, lessorSuite } from '../src/testing/lessor-suite.ts'
import { ManualClock } from '../src/testing/manual-clock.ts'

const EVENTS = 500
/** How far the clock moves before everything that follows from it has happened: about as fine as a replica counts. */
const STEP = 20

async function fixture({ owned }: { readonly owned: boolean }): Promise<LessorFixture> {
  const folder = await mkdtemp(join(tmpdir(), 'leasehold-lessor-'))
  const clock = new ManualClock()
  const calls = new Calls()
  const store = () => new TimelessStore(new FileStore({ path: join(folder, 'log.db'), ...(owned && { own: { name: 'test' } }) }), calls)
  return {
    lessor: () => Replica.open(store(), { clock, owned, events: EVENTS, snapshotEntries: 30 }),
    advance: async ms => {
      for (let left = ms; left > 0; left -= STEP) {
        await clock.advance(Math.min(STEP, left))
        await calls.settled(clock)
      }
    },
    alone: owned,
    keeps: EVENTS,
    [Symbol.asyncDispose]: () => rm(folder, { recursive: true }),
  }
}

/** What is under way on the file's thread: the clock stands still until it has answered. */
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

/** A file whose ages are not known: they are the machine's time, and the replicas here live in another. */
class TimelessStore implements Store {
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
    return read.kind === 'entries' ? { ...read, entries: read.entries.map(timeless) } : read
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

function timeless(entry: Entry): Entry {
  return { ...entry, age: 0 }
}

describe('replicas on one file', () => {
  for (const { name, run } of lessorSuite(() => fixture({ owned: false }))) test(name, run)
})

describe('the owner of a file', () => {
  for (const { name, run } of lessorSuite(() => fixture({ owned: true }))) test(name, run)
})
