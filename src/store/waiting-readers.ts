/** Tells whether readers wait for records. One read follows another while a replica follows its log, so they count for a moment longer. */
import type { Clock } from '../clock.ts'

/** In ms. */
const A_MOMENT = 2_000

export class WaitingReaders {
  readonly #clock: Clock
  readonly #changed: () => void
  #count = 0
  #cancel: (() => void) | undefined

  /** `changed` is called when the first reader has begun to wait, and a moment after the last one has ceased. */
  constructor(clock: Clock, changed: () => void) {
    this.#clock = clock
    this.#changed = changed
  }

  /** Returns whether a reader waits, or did a moment ago. */
  get some(): boolean {
    return this.#count > 0 || this.#cancel !== undefined
  }

  /** Runs a read that waits. */
  async during<T>(read: () => Promise<T>): Promise<T> {
    const { some } = this
    this.#cancel?.()
    this.#cancel = undefined
    this.#count++
    if (!some) this.#changed()
    try {
      return await read()
    } finally {
      if (--this.#count === 0)
        this.#cancel = this.#clock.after(A_MOMENT, () => {
          this.#cancel = undefined
          this.#changed()
        })
    }
  }

  close(): void {
    this.#cancel?.()
    this.#cancel = undefined
  }
}
