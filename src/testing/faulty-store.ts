/** A store behind a bad connection, for tests and the simulator: appends fail, answers get lost, and everything takes time. */
import { type Clock, pause } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import type { Appended, Opened, Position, Profile, Read, RenewalMark, Snapshot, Store, Waker } from '../store.ts'

/** A fault of one append. */
export type AppendFault =
  /** Done, but its answer is lost: UNKNOWN. */
  | 'lost'
  /** Not done: UNAVAILABLE. */
  | 'refused'
  /** Not done, but the answer that would say so is lost: UNKNOWN. */
  | 'dropped'
  /** Done twice, as when a resent record and its first copy both arrive. The answer is that of the second. */
  | 'doubled'

export interface FaultyStoreOptions {
  readonly clock: Clock
  /** Called before each append, for a script or a seeded random decision. */
  readonly append?: (record: Uint8Array) => AppendFault | undefined
  /** Returns how many ms a request takes to arrive, and its answer to come back. Called once for each way. */
  readonly delay?: (call: 'append' | 'read' | 'snapshot') => number
}

/** It changes when requests take effect and which answers arrive, but never breaks the contract of a store. */
export class FaultyStore implements Store {
  readonly #store: Store
  readonly #clock: Clock
  readonly #fault: (record: Uint8Array) => AppendFault | undefined
  readonly #delay: (call: 'append' | 'read' | 'snapshot') => number

  constructor(store: Store, { clock, append = () => undefined, delay = () => 0 }: FaultyStoreOptions) {
    this.#store = store
    this.#clock = clock
    this.#fault = append
    this.#delay = delay
  }

  get ended(): AbortSignal | undefined {
    return this.#store.ended
  }

  get waker(): Waker | undefined {
    return this.#store.waker
  }

  get passesRenewals(): boolean {
    return this.#store.passesRenewals === true
  }

  get profile(): Profile {
    return this.#store.profile
  }

  open(): Promise<Opened> {
    return this.#store.open()
  }

  async append(record: Uint8Array, after: Position, renewal?: RenewalMark): Promise<Appended> {
    const fault = this.#fault(record)
    const bytes = record.slice() // the caller may change its buffer while the request travels
    await this.#travel('append')
    if (fault === 'refused') throw new LeaseError('UNAVAILABLE', 'the append was refused, as the script said')
    if (fault !== 'dropped') {
      if (fault === 'doubled') await this.#store.append(bytes, after, renewal)
      const answer = await this.#store.append(bytes, after, renewal)
      await this.#travel('append')
      if (fault !== 'lost') return answer
    }
    throw new LeaseError('UNKNOWN', 'the answer to an append was lost, as the script said')
  }

  async read(after: Position, options: { readonly wait?: AbortSignal } = {}): Promise<Read> {
    const { wait } = options
    wait?.throwIfAborted()
    await this.#travel('read', wait)
    const read = await this.#store.read(after, options)
    await this.#travel('read', wait)
    return read
  }

  async snapshot(at: Position, bytes: AsyncIterable<Uint8Array>): Promise<'kept' | 'older'> {
    await this.#travel('snapshot')
    const kept = await this.#store.snapshot(at, bytes)
    await this.#travel('snapshot')
    return kept
  }

  newest(): Promise<Snapshot | undefined> {
    return this.#store.newest()
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#store[Symbol.asyncDispose]()
  }

  async #travel(call: 'append' | 'read' | 'snapshot', signal?: AbortSignal): Promise<void> {
    const ms = this.#delay(call)
    if (ms > 0) await pause(this.#clock, ms, signal)
  }
}
