/** A store that reaches the log over the links of the world. The log itself is the memory store of the package. */
import type { Machine, World } from '../sim/world.ts'
import { LeaseError } from '../src/errors.ts'
import { type MemoryLog, MemoryStore } from '../src/store/memory.ts'
import type { Appended, Opened, Position, Profile, Read, Snapshot, Store } from '../src/store.ts'
import { type Links, LOG } from './links.ts'

/** A call without an answer fails after this, ms. */
const TIMEOUT = 2_000
/** A waiting reader is answered after this at the latest, so that it notices a cut link. */
const PARKED = 1_000

/** The text of a message that brings a reader what others have appended. */
export const NEWS = 'new records'

/** The log, and the readers that wait for its next record. */
export interface SharedLog {
  readonly log: MemoryLog
  readonly parked: Set<() => void>
  appended(position: Position, bytes: Uint8Array, sentAt: number): void
}

interface Call<T> {
  readonly text?: string | undefined
  /** Shown with the answer. */
  readonly answer?: ((value: T) => string | undefined) | undefined
  readonly wait?: AbortSignal | undefined
  /** Returns whether a waiting reader is answered with this. */
  readonly isNews?: (value: T) => boolean
}

export class LinkedStore implements Store {
  readonly profile: Profile
  readonly #world: World
  readonly #links: Links
  readonly #shared: SharedLog
  readonly #machine: Machine
  readonly #life: number
  readonly #inner: MemoryStore
  #epoch = -1
  #closed = false

  constructor(world: World, links: Links, shared: SharedLog, machine: Machine) {
    this.#world = world
    this.#links = links
    this.#shared = shared
    this.#machine = machine
    this.#life = machine.life
    this.#inner = new MemoryStore({ log: shared.log })
    this.profile = { ...this.#inner.profile, durable: true }
  }

  #call<T>(what: () => T, { text, answer, wait, isNews = () => true }: Call<T>): Promise<T> {
    const { promise, settle, fail } = this.#pending<T>(wait)
    if (this.#closed) {
      fail(new LeaseError('UNAVAILABLE', 'the store is closed'))
      return promise
    }
    const reply = (value: T) => {
      const shown = isNews(value) ? answer?.(value) : undefined
      this.#links.send({ from: LOG, to: this.#machine, side: 'lease', text: shown }, () => settle(value), this.#life)
    }
    this.#links.send({ from: this.#machine, to: LOG, side: 'lease', text }, () => {
      const value = what()
      if (wait === undefined || isNews(value)) reply(value)
      else this.#park(() => reply(what()))
    })
    return promise
  }

  /** A promise that fails when no answer has come in time, or when the caller stops waiting. */
  #pending<T>(wait: AbortSignal | undefined) {
    let settle: (value: T) => void = () => {}
    let fail: (reason: unknown) => void = () => {}
    const promise = new Promise<T>((resolve, reject) => {
      const stop = () => fail(wait?.reason)
      const timeout = () => fail(new LeaseError('UNKNOWN', 'the store has not answered'))
      const cancel = this.#world.later(TIMEOUT, timeout, this.#machine, true, this.#life)
      const over = () => {
        cancel()
        wait?.removeEventListener('abort', stop)
      }
      settle = value => {
        over()
        resolve(value)
      }
      fail = reason => {
        over()
        reject(reason)
      }
      wait?.addEventListener('abort', stop, { once: true })
      if (wait?.aborted) stop()
    })
    return { promise, settle, fail }
  }

  #park(then: () => void): void {
    const { parked } = this.#shared
    const wake = () => {
      parked.delete(wake)
      cancel()
      then()
    }
    const cancel = this.#world.later(PARKED, wake)
    parked.add(wake)
  }

  async open(): Promise<Opened> {
    this.#epoch = this.#shared.log.admit(this.#inner)
    return this.#call(
      () => {
        const { snapshot, head } = this.#shared.log
        return snapshot === undefined ? { head } : { snapshot, head }
      },
      { text: 'open', answer: () => 'the end of the log' },
    )
  }

  append(record: Uint8Array, after: Position): Promise<Appended> {
    const { now: sentAt } = this.#world
    const put = () => {
      const appended = this.#shared.log.append(record, after, this.#epoch)
      if ('position' in appended) this.#shared.appended(appended.position, record, sentAt)
      return appended
    }
    return this.#call(put, { text: 'append a record', answer: ({ kind }) => (kind === 'diverged' ? 'the log is shorter' : 'appended') })
  }

  async read(after: Position, { wait }: { readonly wait?: AbortSignal } = {}): Promise<Read> {
    const isNews = (read: Read) => read.kind !== 'records' || read.records.length > 0
    for (;;) {
      wait?.throwIfAborted()
      const read = await this.#call(() => this.#shared.log.read(after, this.#epoch), {
        ...{ wait, isNews },
        answer: ({ kind }) => (kind === 'records' ? NEWS : 'the log is shorter'),
      })
      if (wait === undefined || isNews(read)) return read
    }
  }

  async snapshot(at: Position, bytes: AsyncIterable<Uint8Array>): Promise<'kept' | 'older'> {
    const chunks: Uint8Array[] = []
    for await (const chunk of bytes) chunks.push(chunk.slice())
    const { log } = this.#shared
    const keep = () => {
      if (at.index <= (log.snapshot?.position.index ?? 0) || log.find(at) !== undefined) return 'older'
      log.keep(at, chunks)
      return 'kept'
    }
    return this.#call(keep, {})
  }

  newest(): Promise<Snapshot | undefined> {
    return this.#call(() => this.#shared.log.snapshot, {})
  }

  /** The process has ended. */
  abandon(): void {
    if (this.#closed) return
    this.#closed = true
    this.#shared.log.dismiss(this.#inner)
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.abandon()
  }
}
