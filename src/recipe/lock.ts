import type { Lease } from '../lease.ts'
import type { AcquireOptions, Leases } from '../leases.ts'
import { checkOptionNames } from '../options.ts'

/** A name, or several at once, that one holder has at a time; or many, as long as all of them only read. */
export class Lock {
  readonly #leases: Leases
  readonly #names: readonly string[]
  readonly #options: Omit<AcquireOptions, 'ifAvailable'>

  constructor(leases: Leases, names: string | readonly string[], options: Omit<AcquireOptions, 'mode' | 'signal' | 'ifAvailable'> = {}) {
    this.#leases = leases
    // One order for everyone: whoever locks several one after another elsewhere does not meet us the other way round.
    this.#names = typeof names === 'string' ? [names] : [...names].sort()
    this.#options = options
  }

  /** Alone. */
  async run<T>(work: (lease: Lease) => T | PromiseLike<T>, options: { readonly signal?: AbortSignal } = {}): Promise<T> {
    checkOptionNames('run', options, ['signal'])
    return this.#leases.request(this.#names, this.#with('exclusive', options.signal), work)
  }

  /** Beside others that share it too. */
  async share<T>(work: (lease: Lease) => T | PromiseLike<T>, options: { readonly signal?: AbortSignal } = {}): Promise<T> {
    checkOptionNames('share', options, ['signal'])
    return this.#leases.request(this.#names, this.#with('shared', options.signal), work)
  }

  /** To be disposed of by the caller. */
  async acquire(options: Pick<AcquireOptions, 'mode' | 'signal'> = {}): Promise<Lease> {
    checkOptionNames('acquire of a lock', options, ['mode', 'signal'])
    const { mode = 'exclusive', signal } = options
    return this.#leases.acquire(this.#names, this.#with(mode, signal))
  }

  async tryAcquire(options: Pick<AcquireOptions, 'mode'> = {}): Promise<Lease | undefined> {
    checkOptionNames('tryAcquire of a lock', options, ['mode'])
    return this.#leases.tryAcquire(this.#names, { ...this.#with(options.mode ?? 'exclusive', undefined), wait: false })
  }

  /** Who has it, and who waits. */
  async show(): Promise<{ readonly held: readonly string[]; readonly waiting: readonly string[] }> {
    const views = await Promise.all(this.#names.map(resource => this.#leases.read({ kind: 'resource', resource }, { consistent: true })))
    return {
      held: [...new Set(views.flatMap(({ value }) => value.grants.map(({ holder }) => holder)))],
      waiting: [...new Set(views.flatMap(({ value }) => value.queue.map(({ holder }) => holder)))],
    }
  }

  #with(mode: 'exclusive' | 'shared', signal: AbortSignal | undefined): Omit<AcquireOptions, 'ifAvailable'> {
    return { ...this.#options, mode, ...(signal !== undefined && { signal }) }
  }
}
