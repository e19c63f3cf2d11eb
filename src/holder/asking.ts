import type { Clock } from '../clock.ts'
import type { LeaseError } from '../errors.ts'

/** One call of `acquire` while it is under way: what can end it from outside. */
export class Asking {
  /** What must be given back if it is called off now. */
  onStop: (() => void) | undefined
  readonly #reject: (reason: unknown) => void
  #reason: { readonly value: unknown } | undefined
  #over = false
  readonly #cancel: (() => void) | undefined
  readonly #signal: AbortSignal | undefined
  readonly #abort: (() => void) | undefined

  constructor(reject: (reason: unknown) => void, clock: Clock, signal: AbortSignal | undefined, wait: number, waited: () => LeaseError) {
    this.#reject = reject
    this.#signal = signal
    if (signal !== undefined) {
      this.#abort = () => this.stop(signal.reason)
      signal.addEventListener('abort', this.#abort, { once: true })
    }
    if (wait > 0 && wait < Number.POSITIVE_INFINITY) this.#cancel = clock.after(wait, () => this.stop(waited()), { ref: true })
  }

  stop(reason: unknown): void {
    if (this.#over) return
    this.finish()
    this.#reason = { value: reason }
    this.#reject(reason)
    this.onStop?.()
  }

  throwIfStopped(): void {
    if (this.#reason !== undefined) throw this.#reason.value
  }

  /** Too late to call it off: the lease is in its asker's hands, or there is an error to tell. */
  finish(): void {
    this.#over = true
    this.#cancel?.()
    if (this.#abort !== undefined) this.#signal!.removeEventListener('abort', this.#abort)
  }
}
