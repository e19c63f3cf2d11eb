/** A replica waits for its store by these rules: which errors are worth a retry, pauses between retries, and time limits. */
import { afterReading, type Clock } from '../clock.ts'
import { LeaseError } from '../errors.ts'

/** Returns whether the store may work again. False for errors after which nothing more may be decided on this log. */
export function isTransient(error: unknown): boolean {
  return error instanceof LeaseError && (error.code === 'UNAVAILABLE' || error.code === 'UNKNOWN') && error.facts.owner === undefined
}

/** Resolves after `ms`, or as soon as the signal fires. Removes its listener. */
export function pauseUnless(clock: Clock, ms: number, signal: AbortSignal): Promise<void> {
  return new Promise(resolve => {
    if (signal.aborted) return resolve()
    const stop = () => {
      cancel()
      resolve()
    }
    const cancel = clock.after(ms, () => {
      signal.removeEventListener('abort', stop)
      resolve()
    })
    signal.addEventListener('abort', stop, { once: true })
  })
}

/**
 * Stops waiting after `ms` with the error that `late` makes; the work itself goes on. An answer that is already in a socket is read first. Removes its
 * timer.
 */
export function within<T>(clock: Clock, ms: number, promise: Promise<T>, late: () => LeaseError): Promise<T> {
  return new Promise((resolve, reject) => {
    const cancel = afterReading(clock, ms, () => reject(late()))
    promise.then(resolve, reject).then(cancel)
  })
}
