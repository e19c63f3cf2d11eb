/** Follows the log from its first record with its own kernel state, and records all events. */
import { systemClock } from '../../../src/clock.ts'
import { LeaseError } from '../../../src/errors.ts'
import { applyBatch, decodeBatch } from '../../../src/kernel/codec/batch.ts'
import { StateLoader, stateHash } from '../../../src/kernel/codec/snapshot.ts'
import type { Event } from '../../../src/kernel/event.ts'
import { createState } from '../../../src/kernel/state.ts'
import { readFrames } from '../../../src/replica/frame.ts'
import { type LogRecord, type Position, START, type Store } from '../../../src/store.ts'
import type { Logged } from './history.ts'

export class Observer implements AsyncDisposable {
  readonly #open: () => Store
  readonly #closing = new AbortController()
  readonly #following: Promise<void>
  #state = createState()
  #position: Position = START
  readonly log: Logged[] = []
  gap = false
  /** Why the log could not be followed any more. */
  broken: unknown

  constructor(open: () => Store) {
    this.#open = open
    this.#following = this.#follow().catch(error => {
      if (!this.#closing.signal.aborted) this.broken = error
    })
  }

  get index(): number {
    return this.#state.index
  }

  get leases(): number {
    return this.#state.leases.size
  }

  hash(): string {
    return stateHash(this.#state)
  }

  /** The resources that were granted after the first `length` items of `log`. */
  grantedSince(length: number): Set<string> {
    const events = this.log.slice(length).flatMap(({ events }) => events)
    return new Set(events.filter(({ type }) => type === 'granted').map(({ resource }) => resource!))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort(new Error('the observer was closed'))
    await this.#following
  }

  async #follow(): Promise<void> {
    const { signal } = this.#closing
    await using store = this.#open()
    let opened = false
    while (!signal.aborted) {
      try {
        if (!opened) await store.open()
        opened = true
        const read = await store.read(this.#position, { wait: signal })
        if (read.kind === 'records') for (const record of read.records) this.#apply(record)
        else if (read.kind === 'trimmed') await this.#skip(store)
        else throw new Error(`the log cannot be followed: ${JSON.stringify(read)}`)
      } catch (error) {
        if (signal.aborted) return
        if (!(error instanceof LeaseError) || (error.code !== 'UNAVAILABLE' && error.code !== 'UNKNOWN')) throw error
        await new Promise(resolve => setTimeout(resolve, 25))
      }
    }
  }

  #apply({ position, bytes }: LogRecord): void {
    const by = systemClock.now()
    const batch = decodeBatch(bytes)
    const events: Event[] = []
    const applied = applyBatch(this.#state, position.index, batch, { events, timer() {} })
    const id = applied.kind === 'applied' ? `${batch.proposer}:${batch.seq}` : undefined
    this.log.push({ index: position.index, by, batch: id, events })
    this.#position = position
  }

  async #skip(store: Store): Promise<void> {
    const snapshot = await store.newest()
    if (snapshot === undefined) throw new Error('records are missing from the log, and no snapshot covers them')
    const loader = new StateLoader()
    for await (const chunk of readFrames(snapshot.bytes)) loader.add(chunk)
    this.#state = loader.finish()
    this.#position = snapshot.position
    this.gap = true
  }
}
