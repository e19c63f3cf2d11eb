import type { Clock } from '../clock.ts'
import type { LeaseError } from '../errors.ts'
import { publish } from './diagnostics.ts'

/** All that a signal ends, by one listener: a program has one signal for its end, and may wait for a thousand leases. */
class Ending {
  static readonly #all = new WeakMap<AbortSignal, Ending>()
  readonly #signal: AbortSignal
  readonly #asking = new Set<PendingAcquire<never>>()
  readonly #abort = () => {
    for (const asking of [...this.#asking]) asking.stop(this.#signal.reason)
  }

  private constructor(signal: AbortSignal) {
    this.#signal = signal
    signal.addEventListener('abort', this.#abort, { once: true })
  }

  static of(signal: AbortSignal): Ending {
    const ending = Ending.#all.get(signal) ?? new Ending(signal)
    Ending.#all.set(signal, ending)
    return ending
  }

  add(asking: PendingAcquire<never>): void {
    this.#asking.add(asking)
  }

  delete(asking: PendingAcquire<never>): void {
    if (!this.#asking.delete(asking) || this.#asking.size > 0) return
    this.#signal.removeEventListener('abort', this.#abort)
    Ending.#all.delete(this.#signal)
  }
}

/** One call of `acquire` while it is under way: what can end it from outside, and who waits for it. */
export class PendingAcquire<T = unknown> {
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
  #ending: Ending | undefined

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
    this.#ending = Ending.of(signal)
    this.#ending.add(this as unknown as PendingAcquire<never>)
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
    this.#ending?.delete(this as unknown as PendingAcquire<never>)
  }
}
