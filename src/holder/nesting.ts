/**
 * Which leases the code that calls us is working under: those of the `request` callbacks it was called in.
 *
 * While an AsyncLocalStorage is in use, Node before 24 watches every promise of the process, which costs more than the rest of a request.
 * So it is in use only while a callback runs; what was noted in a callback that is over counts for nothing.
 */
import { AsyncLocalStorage } from 'node:async_hooks'
import type { HeldLease } from '../lease.ts'

const NONE: readonly HeldLease[] = []

export class Nesting {
  readonly #storage = new AsyncLocalStorage<readonly HeldLease[]>()
  #running = 0

  /** Outermost first. */
  get inside(): readonly HeldLease[] {
    return this.#running === 0 ? NONE : (this.#storage.getStore()?.filter(({ stage }) => stage === 'held') ?? NONE)
  }

  run<T, A>(belief: HeldLease, work: (given: A) => T | PromiseLike<T>, given: A): T | PromiseLike<T> {
    const store = [...this.inside, belief]
    let result: T | PromiseLike<T> | undefined
    this.#running++
    try {
      result = this.#storage.run(store, work, given)
      return result
    } finally {
      if (isPromise(result)) result.then(this.#ended, this.#ended)
      else this.#ended()
    }
  }

  readonly #ended = () => {
    if (--this.#running === 0) this.#storage.disable()
  }
}

export function isPromise(value: unknown): value is PromiseLike<unknown> {
  return typeof (value as PromiseLike<unknown> | undefined)?.then === 'function'
}
