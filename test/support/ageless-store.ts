/** A store in memory that does not know the age of its records, as Postgres, Redis and etcd do not, and whose process can be killed. */
import { MemoryStore } from '../../src/store/memory.ts'
import type { Appended, LogRecord, Opened, Position, Profile, Read, Snapshot, Store } from '../../src/store.ts'

export class AgelessStore implements Store {
  readonly #store: MemoryStore
  #killed = false

  constructor(options: ConstructorParameters<typeof MemoryStore>[0]) {
    this.#store = new MemoryStore(options)
  }

  get profile(): Profile {
    return { ...this.#store.profile, ages: false }
  }

  /** Nothing that its process still does has an effect. */
  kill(): void {
    this.#killed = true
  }

  async open(): Promise<Opened> {
    const opened = await this.#store.open()
    return opened.snapshot === undefined ? opened : { ...opened, snapshot: { ...opened.snapshot, age: 0 } }
  }

  async append(record: Uint8Array, after: Position): Promise<Appended> {
    const answer = await this.#alive(() => this.#store.append(record, after))
    return answer.kind === 'appended' ? { ...answer, missed: answer.missed.map(ageless) } : answer
  }

  async read(after: Position, options?: { readonly wait?: AbortSignal }): Promise<Read> {
    const read = await this.#alive(() => this.#store.read(after, options))
    return read.kind === 'records' ? { ...read, records: read.records.map(ageless) } : read
  }

  snapshot(at: Position, bytes: AsyncIterable<Uint8Array>): Promise<'kept' | 'older'> {
    return this.#alive(() => this.#store.snapshot(at, bytes))
  }

  async newest(): Promise<Snapshot | undefined> {
    const snapshot = await this.#alive(() => this.#store.newest())
    return snapshot && { ...snapshot, age: 0 }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#store[Symbol.asyncDispose]()
  }

  #alive<T>(call: () => Promise<T>): Promise<T> {
    return this.#killed ? new Promise(() => {}) : call()
  }
}

function ageless(record: LogRecord): LogRecord {
  return { ...record, age: 0 }
}
