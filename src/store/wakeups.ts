/** Readers that wait for a change of the log. */
import type { Clock } from '../clock.ts'

export class Wakeups {
  readonly #waiting = new Set<() => void>()

  wake(): void {
    for (const wake of [...this.#waiting]) wake()
  }

  /** Resolves at the next `wake`, or after `ms`. Rejects with the reason of the first signal that fires. Leaves no listener behind. */
  wait(signals: readonly AbortSignal[], timeout?: { readonly clock: Clock; readonly ms: number }): Promise<'woken' | 'timeout'> {
    return new Promise((resolve, reject) => {
      const done = () => {
        cancel?.()
        this.#waiting.delete(wake)
        for (const signal of signals) signal.removeEventListener('abort', stop)
      }
      const wake = () => {
        done()
        resolve('woken')
      }
      const stop = () => {
        done()
        reject(signals.find(({ aborted }) => aborted)?.reason)
      }
      const expire = () => {
        done()
        resolve('timeout')
      }
      const cancel = timeout?.clock.after(timeout.ms, expire)
      this.#waiting.add(wake)
      for (const signal of signals) signal.addEventListener('abort', stop)
      if (signals.some(({ aborted }) => aborted)) stop()
    })
  }
}
