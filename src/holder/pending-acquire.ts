/** One call of `acquire` while it is under way: what can end it, and the promise of its caller. */
import type { Clock } from '../clock.ts'
import type { LeaseError } from '../errors.ts'
import { channels } from './diagnostics.ts'

/** All pending calls that one signal ends, by one listener: a program has one signal for its end, and may wait for a thousand leases. */
class SignalGroup {
  static readonly #groups = new WeakMap<AbortSignal, SignalGroup>()
  readonly #signal: AbortSignal
  readonly #pending = new Set<PendingAcquire<never>>()
  readonly #abort = () => {
    for (const pending of [...this.#pending]) pending.stop(this.#signal.reason)
  }

  private constructor(signal: AbortSignal) {
    this.#signal = signal
    signal.addEventListener('abort', this.#abort, { once: true })
  }

  static of(signal: AbortSignal): SignalGroup {
    const group = SignalGroup.#groups.get(signal) ?? new SignalGroup(signal)
    SignalGroup.#groups.set(signal, group)
    return group
  }

  add(pending: PendingAcquire<never>): void {
    this.#pending.add(pending)
  }

  delete(pending: PendingAcquire<never>): void {
    if (!this.#pending.delete(pending) || this.#pending.size > 0) return
    this.#signal.removeEventListener('abort', this.#abort)
    SignalGroup.#groups.delete(this.#signal)
  }
}

export class PendingAcquire<T = unknown> {
  readonly #requestId: number
  /** It waits until it is granted or stopped. */
  readonly endless: boolean
  readonly #resolve: (value: T) => void
  readonly #reject: (reason: unknown) => void
  /** Releases what the call has obtained so far. */
  onStop: (() => void) | undefined
  /** The caller has been answered. If the call still runs, it was stopped, and `stopReason` says why. */
  over = false
  stopReason: unknown
  #cancelTimer: (() => void) | undefined
  #signalGroup: SignalGroup | undefined

  constructor(requestId: number, endless: boolean, resolve: (value: T) => void, reject: (reason: unknown) => void) {
    this.#requestId = requestId
    this.endless = endless
    this.#resolve = resolve
    this.#reject = reject
  }

  endWith(signal: AbortSignal): void {
    this.#signalGroup = SignalGroup.of(signal)
    this.#signalGroup.add(this as unknown as PendingAcquire<never>)
  }

  endAfter(clock: Clock, wait: number, timedOut: (ms: number) => LeaseError): void {
    const began = clock.now()
    this.#cancelTimer = clock.after(wait, () => this.stop(timedOut(clock.now() - began)), { ref: true })
  }

  stop(reason: unknown): void {
    if (this.over) return
    this.stopReason = reason
    this.fail(reason)
    this.onStop?.()
  }

  /** From here on it cannot be stopped: the lease is in the caller's hands. */
  succeed(value: T): void {
    this.#finish()
    this.#resolve(value)
  }

  fail(error: unknown): void {
    if (this.over) return
    this.#finish()
    if (channels.refused.hasSubscribers) channels.refused.publish({ ask: this.#requestId, error })
    this.#reject(error)
  }

  #finish(): void {
    this.over = true
    this.#cancelTimer?.()
    this.#signalGroup?.delete(this as unknown as PendingAcquire<never>)
  }
}
