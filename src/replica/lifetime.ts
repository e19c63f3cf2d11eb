/** Knows whether a replica still decides. It is open, then closing or failed, and everything in it asks here. */
import { setMaxListeners } from 'node:events'
import { LeaseError } from '../errors.ts'

export class Lifetime {
  readonly #over = new AbortController()
  /** Fires when nothing can be decided or read any more. The reason is a `LeaseError`. */
  readonly signal: AbortSignal = this.#over.signal
  /** As `signal.aborted`, for code that runs with every command. */
  isOver = false
  isClosing = false
  /** Neither over nor closing. */
  isOpen = true

  constructor() {
    setMaxListeners(0, this.signal) // every watch and every pause listens to it
  }

  assertOpen(): void {
    if (this.isOver) throw this.signal.reason
    if (this.isClosing) throw new LeaseError('UNAVAILABLE', 'this replica is closing')
  }

  close(): void {
    this.isClosing = true
    this.isOpen = false
  }

  /** The replica can decide nothing more. All pending and later calls fail with the reason. */
  fail(error: unknown): void {
    if (this.isOver) return
    this.isOver = true
    this.isOpen = false
    const { message } = (error ?? {}) as { message?: string }
    this.#over.abort(
      error instanceof LeaseError ? error : new LeaseError('UNAVAILABLE', `the replica stopped: ${message}`, { cause: error }),
    )
  }
}
