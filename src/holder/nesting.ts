/**
 * Knows which leases the calling code works under: those of the `request` callbacks it was called in.
 *
 * While an AsyncLocalStorage is in use, Node before 24 tracks every promise of the process, which costs more than the rest of a request. So the
 * storage is in use only while a callback runs. Leases of callbacks that are over do not count.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import type { HeldLease } from './held-lease.ts'

export class Nesting {
  readonly #storage = new AsyncLocalStorage<readonly HeldLease[]>()
  /** Callbacks that have not ended. Without any, the calling code works under no lease. */
  running = 0

  /** Outermost first. */
  get inside(): readonly HeldLease[] {
    return this.#storage.getStore()?.filter(({ stage }) => stage === 'held') ?? []
  }

  run<T, A>(held: HeldLease, work: (argument: A) => T | PromiseLike<T>, argument: A): T | PromiseLike<T> {
    const store = this.running === 0 ? [held] : [...this.inside, held]
    let result: T | PromiseLike<T> | undefined
    this.running++
    try {
      result = this.#storage.run(store, work, argument)
      return result
    } finally {
      if (isPromise(result)) result.then(this.#ended, this.#ended)
      else this.#ended()
    }
  }

  readonly #ended = () => {
    if (--this.running === 0) this.#storage.disable()
  }
}

export function isPromise(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as PromiseLike<unknown> | undefined)?.then === 'function'
}
