/** How those who wait on a store wait. */
import { afterReading, type Clock } from '../clock.ts'
import { LeaseError } from '../errors.ts'

/** The store may work again, and nothing was decided on wrong ground. */
export function isTransient(error: unknown): boolean {
  return error instanceof LeaseError && (error.code === 'UNAVAILABLE' || error.code === 'UNKNOWN') && error.facts.owner === undefined
}

/** Resolves after `ms`, or as soon as the signal fires. Leaves no listener behind. */
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

/** Gives up waiting after `ms` with what `late` says; what was waited for goes on. An answer that waits to be read comes first. Leaves no timer behind. */
export function within<T>(clock: Clock, ms: number, promise: Promise<T>, late: () => LeaseError): Promise<T> {
  return new Promise((resolve, reject) => {
    const cancel = afterReading(clock, ms, () => reject(late()))
    promise.then(resolve, reject).then(cancel)
  })
}

/** Gives up waiting with the signal's own reason; what was waited for goes on. Leaves no listener behind. */
export function orAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason)
    const done = () => signal.removeEventListener('abort', stop)
    if (signal.aborted) stop()
    else signal.addEventListener('abort', stop, { once: true })
    promise.then(resolve, reject).then(done)
  })
}
