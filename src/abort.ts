/** Shared functions for abort signals. They need nothing of Node, so a browser can load them. */

/**
 * Calls `then` when the signal fires, or at once if it has fired already: other code may have run between an answer and the call. The
 * returned function removes the listener.
 */
export function whenAborted(signal: AbortSignal, then: () => void): () => void {
  if (signal.aborted) {
    then()
    return () => {}
  }
  signal.addEventListener('abort', then, { once: true })
  return () => signal.removeEventListener('abort', then)
}

/** The answer, or at once the signal's reason if the signal fires first. Removes its listener as soon as one of them has come. */
export function unlessAborted<T>(answer: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return answer
  return new Promise((resolve, reject) => {
    const remove = whenAborted(signal, () => reject(signal.reason))
    answer.then(resolve, reject).finally(remove)
  })
}

/**
 * Aborts `controller`, with the same reason, when `signal` fires. The returned function removes the listener. Use this instead of
 * `AbortSignal.any` on a long-lived signal: `any` leaves a trace on it for every call.
 */
export function chainAbort(signal: AbortSignal | undefined, controller: AbortController): () => void {
  return signal === undefined ? () => {} : whenAborted(signal, () => controller.abort(signal.reason))
}
