/** The reader of a copy that continues (record-tail.ts): the state first, then the records of the log that came after it. */
import type { Clock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import { type Batch, decodeBatch } from '../kernel/codec/batch.ts'
import { StateLoader } from '../kernel/codec/snapshot.ts'
import type { State } from '../kernel/state.ts'
import type { Lessor } from '../lessor.ts'
import { readFrames } from './frame.ts'
import { finishLoading } from './load-state.ts'
import { unreadable } from './unreadable.ts'

export class FollowedCopy implements AsyncDisposable {
  readonly #frames: AsyncGenerator<Uint8Array, void, void>
  readonly #clock: Clock
  readonly #stop = new AbortController()
  #waiting: Batch[] = []
  #wake = () => {}
  #reading: Promise<void> | undefined
  #broken = false
  /** Rejects when the log cannot be followed any more, as when its server has stopped. */
  readonly broken: Promise<never>
  #fail: (error: unknown) => void

  constructor(old: Lessor, clock: Clock) {
    this.#clock = clock
    if (old.backup === undefined)
      throw new LeaseError('UNSUPPORTED', 'the server offers no backup: run the move on the machine of the store')
    this.#frames = readFrames(old.backup({ follow: true, signal: this.#stop.signal }))
    let fail: (error: unknown) => void = () => {}
    this.broken = new Promise<never>((_, reject) => {
      fail = reject
    })
    this.broken.catch(() => {}) // its users race with it
    this.#fail = error => {
      this.#broken = true
      fail(error)
      this.#wake()
    }
  }

  /** The state that the copy begins with. Called first, and once. */
  async state(): Promise<State> {
    const loader = new StateLoader()
    for (;;) {
      const { value, done } = await this.#frames.next()
      if (done === true) throw ended()
      try {
        if (value.length > 0) {
          loader.add(value)
          continue
        }
        const state = await finishLoading(loader, this.#clock)
        this.#reading = this.#read()
        return state
      } catch (error) {
        throw unreadable(error, 'the copy of the log')
      }
    }
  }

  get isBroken(): boolean {
    return this.#broken
  }

  /** Returns how many records have come and were not taken. */
  get waiting(): number {
    return this.#waiting.length
  }

  /** Returns what was decided since the state, or since the last call. */
  take(): readonly Batch[] {
    return this.#waiting.splice(0)
  }

  /** Resolves with the next record. */
  async next(): Promise<void> {
    if (this.#broken) return this.broken
    if (this.#waiting.length > 0) return
    await new Promise<void>(resolve => {
      this.#wake = resolve
    })
    if (this.#broken) return this.broken
  }

  async #read(): Promise<void> {
    try {
      for await (const frame of this.#frames) {
        this.#waiting.push(decodeBatch(frame))
        this.#wake()
      }
      throw ended()
    } catch (error) {
      this.#fail(error)
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort()
    await this.#frames.return()
    await this.#reading
  }
}

function ended(): LeaseError {
  return new LeaseError('UNAVAILABLE', 'the copy of the log has ended: its replica was closed')
}
