/** A real store under a `ManualClock`: what `lessorSuite` needs to run on a store of any kind. */
import { turn } from '../clock.ts'
import type { Lessor } from '../lessor.ts'
import { Replica } from '../replica/replica.ts'
import type { Appended, LogRecord, Opened, Position, Profile, Read, Snapshot, Store } from '../store.ts'
import type { LessorFixture } from './lessor-suite.ts'
import { ManualClock } from './manual-clock.ts'

export interface ReplicasOptions {
  /** Opens a lessor on the store. Default: a replica that takes a snapshot every 30 records and keeps 500 events. */
  readonly open?: (store: Store, clock: ManualClock) => Promise<Lessor>
  /** The stores ask to own the log, so that there can be one lessor at a time. Default: false. */
  readonly owned?: boolean
}

const EVENTS = 500
/** The clock moves this far before everything that follows from it has happened: about as fine as a replica counts. */
const STEP = 20

/** The fixture of `lessorSuite` for replicas on one log, in a time of their own. `store` returns one more store on that log. */
export function replicasOn(store: () => Store, { open, owned = false }: ReplicasOptions = {}): LessorFixture {
  const clock = new ManualClock()
  const calls = new PendingCalls()
  const openLessor = open ?? ((made: Store) => Replica.open(made, { clock, owned, events: EVENTS, snapshotRecords: 30 }))
  return {
    lessor: () => openLessor(new ManualTimeStore(store(), calls), clock),
    advance: async ms => {
      for (let left = ms; left > 0; left -= STEP) {
        await clock.advance(Math.min(STEP, left))
        await calls.settled(clock)
      }
    },
    alone: owned,
    ...(open === undefined && { keeps: EVENTS }),
    [Symbol.asyncDispose]: async () => {},
  }
}

/** Calls that the engine has not answered yet: the clock stands still until it has. */
class PendingCalls {
  #pending = 0

  async track<T>(call: Promise<T>): Promise<T> {
    this.#pending++
    try {
      return await call
    } finally {
      this.#pending--
    }
  }

  async settled(clock: ManualClock): Promise<void> {
    do {
      while (this.#pending > 0) await turn()
      await clock.settle()
    } while (this.#pending > 0)
  }
}

/** A store whose ages are not known: the engine counts them in the machine's time, and the replicas here live in another. */
class ManualTimeStore implements Store {
  readonly #store: Store
  readonly #calls: PendingCalls

  constructor(store: Store, calls: PendingCalls) {
    this.#store = store
    this.#calls = calls
  }

  get profile(): Profile {
    return { ...this.#store.profile, ages: false }
  }

  async open(): Promise<Opened> {
    const opened = await this.#calls.track(this.#store.open())
    return opened.snapshot === undefined ? opened : { ...opened, snapshot: { ...opened.snapshot, age: 0 } }
  }

  async append(record: Uint8Array, after: Position): Promise<Appended> {
    const answer = await this.#calls.track(this.#store.append(record, after))
    return answer.kind === 'appended' ? { ...answer, missed: answer.missed.map(ageless) } : answer
  }

  async read(after: Position, options: { readonly wait?: AbortSignal } = {}): Promise<Read> {
    const reading = this.#store.read(after, options)
    const read = await (options.wait === undefined ? this.#calls.track(reading) : reading)
    return read.kind === 'records' ? { ...read, records: read.records.map(ageless) } : read
  }

  snapshot(at: Position, bytes: AsyncIterable<Uint8Array>): Promise<'kept' | 'older'> {
    return this.#calls.track(this.#store.snapshot(at, bytes))
  }

  async newest(): Promise<Snapshot | undefined> {
    const snapshot = await this.#calls.track(this.#store.newest())
    return snapshot && { ...snapshot, age: 0 }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.#calls.track(Promise.resolve(this.#store[Symbol.asyncDispose]()))
  }
}

function ageless(record: LogRecord): LogRecord {
  return { ...record, age: 0 }
}
