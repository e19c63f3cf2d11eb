/**
 * A log in memory: for one process, for tests, and as the simplest implementation of the contract in `store.ts`.
 *
 * The data is a `MemoryLog`. Several `MemoryStore`s may use one, as several processes use one engine.
 */
import { type Clock, systemClock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import type { RenewalMark, Snapshot, Store, Waker } from '../store.ts'
import { type Appended, type LogRecord, type Opened, type Position, type Profile, type Read, type Rejected, START } from '../store.ts'
import { storeClosed, storeNotOpened } from './closed.ts'
import { type LastMarks, marksAfter, NO_MARKS, passes } from './last-marks.ts'
import { Wakeups } from './wakeups.ts'

/** One answer carries at most this much. A larger record travels alone. */
const MAX_RECORDS = 1_000
const MAX_BYTES = 1_048_576

interface MemoryRecord {
  readonly position: Position
  readonly bytes: Uint8Array
  readonly stamp: number
  readonly last: LastMarks
}

interface MemorySnapshot {
  readonly position: Position
  readonly chunks: readonly Uint8Array[]
  readonly stamp: number
}

/** The engine's side: records, snapshots and their owner. Its clock is the engine's, so ages mean the same to every store on it. */
export class MemoryLog {
  readonly #clock: Clock
  /** The last record that was trimmed. Its nonce is kept, so that readers at this position can continue. */
  #floor = START
  #floorMarks = NO_MARKS
  #records: MemoryRecord[] = []
  #snapshot: MemorySnapshot | undefined
  #epoch = 0
  #owner: MemoryStore | undefined
  readonly #users = new Set<MemoryStore>()
  readonly #wakeups = new Wakeups()
  /** The functions to call when a process is told something, by the name that it listens to. */
  readonly #woken = new Map<string, Map<MemoryStore, () => void>>()

  constructor({ clock = systemClock }: { readonly clock?: Clock } = {}) {
    this.#clock = clock
  }

  get head(): Position {
    return this.#records.at(-1)?.position ?? this.#floor
  }

  get snapshot(): Snapshot | undefined {
    if (!this.#snapshot) return undefined
    const { position, chunks, stamp } = this.#snapshot
    return { position, age: this.#age(stamp), bytes: { [Symbol.asyncIterator]: () => each(chunks) } }
  }

  /** The epoch that each of the store's calls will be checked against. */
  admit(store: MemoryStore): number {
    if (this.#owner) {
      const owner = this.#owner.name
      throw new LeaseError('UNAVAILABLE', `the log in memory is owned by ${owner}`, { facts: { owner } })
    }
    if (!store.own) this.#users.add(store)
    else {
      if (this.#users.size > 0) {
        const users = [...this.#users].map(({ name }) => name)
        throw new LeaseError('UNAVAILABLE', `the log in memory cannot be owned: ${users.join(', ')} use it`, { facts: { users } })
      }
      this.#owner = store
      this.#newEpoch()
    }
    return this.#epoch
  }

  dismiss(store: MemoryStore): void {
    this.#users.delete(store)
    for (const [name, stores] of this.#woken) if (stores.delete(store) && stores.size === 0) this.#woken.delete(name)
    if (this.#owner === store) this.#owner = undefined
    this.#wakeups.wake() // its waiting readers must notice
  }

  listen(store: MemoryStore, name: string, woken: () => void): void {
    const stores = this.#woken.get(name) ?? new Map<MemoryStore, () => void>()
    this.#woken.set(name, stores.set(store, woken))
    this.#clock.soon(woken)
  }

  wake(names: readonly string[]): void {
    for (const name of names) for (const woken of [...(this.#woken.get(name)?.values() ?? [])]) this.#clock.soon(woken)
  }

  append(bytes: Uint8Array, after: Position, epoch: number, { nonce, renewal }: AppendOptions = {}): Appended {
    const rejected = this.#locate(after, epoch)
    if (rejected) return rejected
    const before = this.#records.at(-1)?.last ?? this.#floorMarks
    const missed = this.#following(after)
    const position = { index: this.head.index + 1, nonce: nonce ?? this.#clock.bits() }
    const last = marksAfter(before, position.index, renewal)
    const complete = (missed.at(-1)?.position ?? after).index === position.index - 1
    this.#records.push({ position, bytes: bytes.slice(), stamp: this.#clock.now(), last })
    this.#wakeups.wake()
    if (passes(before, position.index - 1, renewal)) return { kind: 'passed', position }
    return complete && size(missed) <= MAX_BYTES ? { kind: 'appended', position, missed } : { kind: 'behind', position }
  }

  read(after: Position, epoch: number): Read {
    return this.#locate(after, epoch) ?? { kind: 'records', records: this.#following(after) }
  }

  /** Puts the snapshot in force and trims up to the previous one, so that a reader slightly behind need not start again. */
  keep(position: Position, chunks: readonly Uint8Array[]): void {
    const last = this.#snapshot?.position
    this.#snapshot = { position, chunks, stamp: this.#clock.now() }
    if (!last) return
    if (last.index > this.#floor.index) this.#floorMarks = this.#at(last.index).last
    this.#records = this.#records.slice(last.index - this.#floor.index)
    this.#floor = last
  }

  /** Undefined if the log contains `after` and `epoch` is still in force. */
  #locate(after: Position, epoch: number): Rejected | undefined {
    if (epoch !== this.#epoch) return { kind: 'disowned', by: this.#owner?.name ?? 'an owner that has closed' }
    return this.find(after)
  }

  find({ index, nonce }: Position): Rejected | undefined {
    const head = this.head.index
    if (index > head) return { kind: 'diverged', reason: `the log ends at ${head}, before ${index}` }
    if (index < this.#floor.index) return { kind: 'trimmed' }
    const found = index === this.#floor.index ? this.#floor : this.#at(index).position
    if (found.nonce !== nonce) return { kind: 'diverged', reason: `another record is at ${index}` }
    return undefined
  }

  /** Resolves at the next change; rejects with the signal's reason. */
  async changed(signal: AbortSignal): Promise<void> {
    await this.#wakeups.wait([signal])
  }

  /** For tests: the engine loses its last records, like one that acknowledges before it syncs. */
  loseTail(count: number): void {
    this.#records.length -= Math.min(count, this.#records.length)
  }

  /** For tests: copies the log. The returned function restores the copy, like a restore of a directory. */
  copy(): () => void {
    const { floor, records, snapshot } = { floor: this.#floor, records: this.#records.slice(), snapshot: this.#snapshot }
    const floorMarks = this.#floorMarks
    return () => {
      this.#floor = floor
      this.#floorMarks = floorMarks
      this.#records = records.slice()
      this.#snapshot = snapshot
      this.#newEpoch()
    }
  }

  /** For tests: the engine considers its owner dead although it is alive. */
  forgetOwner(): void {
    this.#owner = undefined
    this.#newEpoch()
  }

  #following({ index }: Position): LogRecord[] {
    const first = index - this.#floor.index
    const following: LogRecord[] = []
    let size = 0
    for (const { position, bytes, stamp } of this.#records.slice(first, first + MAX_RECORDS)) {
      size += bytes.length
      if (size > MAX_BYTES && following.length > 0) break
      following.push({ position, bytes, age: this.#age(stamp) })
    }
    return following
  }

  #at(index: number): MemoryRecord {
    return this.#records[index - this.#floor.index - 1]!
  }

  #age(stamp: number): number {
    return Math.max(0, this.#clock.now() - stamp)
  }

  #newEpoch(): void {
    this.#epoch++
    this.#wakeups.wake() // waiting readers have been disowned
  }
}

export interface AppendOptions {
  readonly nonce?: bigint | undefined
  readonly renewal?: RenewalMark | undefined
}

export interface MemoryStoreOptions {
  /** The log to use. Default: a new one. */
  readonly log?: MemoryLog
  readonly clock?: Clock
  /** Asks to be the only store on the log. Errors of refused stores contain the name. */
  readonly own?: { readonly name: string }
}

/** A store on a log in memory. */
export class MemoryStore implements Store {
  readonly profile: Profile
  readonly own: boolean
  readonly name: string
  readonly #log: MemoryLog
  #epoch: number | undefined
  #closed = false

  constructor({ clock = systemClock, log = new MemoryLog({ clock }), own }: MemoryStoreOptions = {}) {
    this.#log = log
    this.own = own !== undefined
    this.name = own?.name ?? `process ${process.pid}`
    this.profile = {
      store: 'memory',
      durable: false,
      failover: false,
      push: true,
      shared: !this.own,
      ages: true,
      notes: ['The log is gone when the process ends.'],
    }
  }

  readonly passesRenewals = true

  readonly waker: Waker = {
    listens: true,
    listen: (name, woken) => this.#log.listen(this, name, woken),
    wake: names => this.#log.wake(names),
  }

  async open(): Promise<Opened> {
    if (this.#closed) throw storeClosed()
    this.#epoch ??= this.#log.admit(this)
    const { snapshot, head } = this.#log
    return snapshot ? { snapshot, head } : { head }
  }

  async append(record: Uint8Array, after: Position, renewal?: RenewalMark): Promise<Appended> {
    return this.#log.append(record, after, this.#inForce(), { renewal })
  }

  async read(after: Position, { wait }: { readonly wait?: AbortSignal } = {}): Promise<Read> {
    for (;;) {
      wait?.throwIfAborted()
      const read = this.#log.read(after, this.#inForce())
      if (!wait || read.kind !== 'records' || read.records.length > 0) return read
      await this.#log.changed(wait)
    }
  }

  async snapshot(at: Position, bytes: AsyncIterable<Uint8Array>): Promise<'kept' | 'older'> {
    if (this.#outdated(at)) return 'older'
    const chunks: Uint8Array[] = []
    for await (const chunk of bytes) chunks.push(chunk.slice())
    if (this.#outdated(at)) return 'older' // another store was quicker
    this.#log.keep(at, chunks)
    return 'kept'
  }

  async newest(): Promise<Snapshot | undefined> {
    this.#inForce()
    return this.#log.snapshot
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    this.#log.dismiss(this)
  }

  #outdated(at: Position): boolean {
    const epoch = this.#inForce()
    if (at.index <= (this.#log.snapshot?.position.index ?? 0)) return true
    const read = this.#log.read(at, epoch)
    if (read.kind === 'disowned') throw new LeaseError('UNAVAILABLE', `the log in memory is owned by ${read.by}: no snapshot was saved`)
    if (read.kind === 'diverged') throw new LeaseError('DIVERGED', `no snapshot can be kept of ${at.index}: ${read.reason}`)
    return false
  }

  #inForce(): number {
    if (this.#closed) throw storeClosed()
    if (this.#epoch === undefined) throw storeNotOpened()
    return this.#epoch
  }
}

async function* each(chunks: readonly Uint8Array[]): AsyncGenerator<Uint8Array> {
  yield* chunks
}

function size(records: readonly LogRecord[]): number {
  return records.reduce((sum, { bytes }) => sum + bytes.length, 0)
}
