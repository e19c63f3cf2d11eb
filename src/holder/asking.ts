import type { Clock } from '../clock.ts'
import type { LeaseError } from '../errors.ts'
import { publish } from './channels.ts'

/** One call of `acquire` while it is under way: what can end it from outside, and who waits for it. */
export class Asking<T = unknown> {
  readonly #ask: number
  /** It waits until it is granted or called off. */
  readonly endless: boolean
  readonly #resolve: (value: T) => void
  readonly #reject: (reason: unknown) => void
  /** What must be given back if it is called off now. */
  onStop: (() => void) | undefined
  #reason: { readonly value: unknown } | undefined
  #over = false
  #cancel: (() => void) | undefined
  #signal: AbortSignal | undefined
  #abort: (() => void) | undefined

  constructor(ask: number, endless: boolean, resolve: (value: T) => void, reject: (reason: unknown) => void) {
    this.#ask = ask
    this.endless = endless
    this.#resolve = resolve
    this.#reject = reject
  }

  get over(): boolean {
    return this.#over
  }

  endWith(signal: AbortSignal): void {
    this.#signal = signal
    this.#abort = () => this.stop(signal.reason)
    signal.addEventListener('abort', this.#abort, { once: true })
  }

  endAfter(clock: Clock, wait: number, waited: (ms: number) => LeaseError): void {
    const began = clock.now()
    this.#cancel = clock.after(wait, () => this.stop(waited(clock.now() - began)), { ref: true })
  }

  stop(reason: unknown): void {
    if (this.#over) return
    this.#reason = { value: reason }
    this.fail(reason)
    this.onStop?.()
  }

  throwIfStopped(): void {
    if (this.#reason !== undefined) throw this.#reason.value
  }

  /** Too late to call it off: the lease is in its asker's hands. */
  succeed(value: T): void {
    this.#finish()
    this.#resolve(value)
  }

  fail(error: unknown): void {
    if (this.#over) return
    this.#finish()
    publish('refused', () => ({ ask: this.#ask, error }))
    this.#reject(error)
  }

  #finish(): void {
    this.#over = true
    this.#cancel?.()
    if (this.#abort !== undefined) this.#signal!.removeEventListener('abort', this.#abort)
  }
}
