/** A lock: names and options that are fixed once, for use again and again. One holder at a time, or many that only read. */
import type { AcquireOptions } from '../holder/acquire-options.ts'
import type { LeaseClient, Names } from '../holder/lease-client.ts'
import type { Lease } from '../lease.ts'
import { checkOptionNames } from '../options.ts'

/** Options of a lock. `mode` and `signal` are options of its methods. */
export type LockOptions = Omit<AcquireOptions, 'mode' | 'signal' | 'ifAvailable'>

export const NOT_FOR_LOCK = ['mode', 'signal', 'ifAvailable'] as const

/** The holders and waiters of a lock, by name. */
export interface LockView {
  readonly held: readonly string[]
  readonly waiting: readonly string[]
}

/**
 * @example
 * const lock = leases.lock('reports', { ttl: '30s' })
 * await lock.run(async lease => write(lease.token))  // alone
 * await lock.share(async () => read())               // together with other readers
 */
export class Lock {
  readonly #leases: LeaseClient
  readonly #names: readonly string[]
  readonly #options: LockOptions

  constructor(leases: LeaseClient, names: Names, options: LockOptions = {}) {
    this.#leases = leases
    // One order for all: a program that locks the names one after another in this order cannot deadlock with us.
    this.#names = typeof names === 'string' ? [names] : [...names].sort()
    this.#options = options
  }

  /** Runs `work` while holding the lock alone. */
  async run<T>(work: (lease: Lease) => T | PromiseLike<T>, options: { readonly signal?: AbortSignal } = {}): Promise<T> {
    checkOptionNames('run', options, ['signal'])
    return this.#leases.request(this.#names, this.#with('exclusive', options.signal), work)
  }

  /** Runs `work` while holding the lock together with others that share it. */
  async share<T>(work: (lease: Lease) => T | PromiseLike<T>, options: { readonly signal?: AbortSignal } = {}): Promise<T> {
    checkOptionNames('share', options, ['signal'])
    return this.#leases.request(this.#names, this.#with('shared', options.signal), work)
  }

  /** Acquires the lock. The caller releases the lease. */
  async acquire(options: Pick<AcquireOptions, 'mode' | 'signal'> = {}): Promise<Lease> {
    checkOptionNames('acquire of a lock', options, ['mode', 'signal'])
    const { mode = 'exclusive', signal } = options
    return this.#leases.acquire(this.#names, this.#with(mode, signal))
  }

  /** Acquires the lock without waiting; undefined if it is held. */
  async tryAcquire(options: Pick<AcquireOptions, 'mode'> = {}): Promise<Lease | undefined> {
    checkOptionNames('tryAcquire of a lock', options, ['mode'])
    const { wait: _, ...rest } = this.#with(options.mode ?? 'exclusive', undefined)
    return this.#leases.tryAcquire(this.#names, rest)
  }

  /** The present holders and waiters. */
  async show(): Promise<LockView> {
    const views = await Promise.all(this.#names.map(resource => this.#leases.read({ kind: 'resource', resource }, { consistent: true })))
    return {
      held: [...new Set(views.flatMap(({ value }) => value.grants.map(({ holder }) => holder)))],
      waiting: [...new Set(views.flatMap(({ value }) => value.queue.map(({ holder }) => holder)))],
    }
  }

  #with(mode: 'exclusive' | 'shared', signal: AbortSignal | undefined): AcquireOptions & { readonly ifAvailable?: false } {
    return { ...this.#options, mode, ...(signal !== undefined && { signal }) }
  }
}
