/**
 * A semaphore: at most so many permits of one name in use at once, without a policy.
 *
 * Each request states the number of permits. A grant keeps to the smallest number that the holders and the requester state, so that a new version of a
 * program with another number can be rolled out beside the old one. `leasehold explain NAME` says who states what.
 */
import { LeaseError } from '../errors.ts'
import { type AcquireOptions, checkOptions } from '../holder/acquire-options.ts'
import type { LeaseClient } from '../holder/lease-client.ts'
import type { Lease } from '../lease.ts'
import { checkOptionNames } from '../options.ts'

/** Options of a semaphore. `signal` is an option of its methods. */
export interface SemaphoreOptions extends Omit<AcquireOptions, 'mode' | 'signal' | 'ifAvailable' | 'units' | 'steal'> {
  /** The permits that may be in use at once, by all processes together. */
  readonly permits: number
}

/** Options of one request for permits. */
export interface PermitOptions {
  /**
   * The permits that this request takes.
   * @default 1
   */
  readonly units?: number | undefined
  /** Ends the wait. */
  readonly signal?: AbortSignal | undefined
}

const NOT_FOR_SEMAPHORE = ['mode', 'signal', 'ifAvailable', 'units', 'steal'] as const

/**
 * @example
 * const downloads = leases.semaphore('downloads', { permits: 3 })
 * await downloads.run(async lease => fetchAll(lease.signal))
 */
export class Semaphore {
  readonly #leases: LeaseClient
  readonly #name: string
  readonly #options: AcquireOptions & { readonly ifAvailable?: false }

  /** @internal Use `leases.semaphore(name, options)`. */
  constructor(leases: LeaseClient, name: string, { permits, advanced, ...options }: SemaphoreOptions) {
    checkOptions(options, 'semaphore', NOT_FOR_SEMAPHORE)
    // Left out, it would be a lock.
    if (!Number.isSafeInteger(permits) || permits < 1)
      throw new LeaseError(
        'INVALID',
        `permits must be a whole number from 1, as in semaphore('downloads', { permits: 3 }); not ${String(permits)}`,
        {
          facts: { option: 'permits' },
        },
      )
    this.#leases = leases
    this.#name = name
    this.#options = { ...options, advanced: { ...advanced, permits } }
  }

  /** Runs `work` while holding a permit. Waits until there is one, unless `wait` or `signal` end the wait. */
  async run<T>(work: (lease: Lease) => T | PromiseLike<T>, options: PermitOptions = {}): Promise<T> {
    return this.#leases.request(this.#name, this.#with('run', options), work)
  }

  /** Acquires a permit. The caller releases the lease. */
  async acquire(options: PermitOptions = {}): Promise<Lease> {
    return this.#leases.acquire(this.#name, this.#with('acquire of a semaphore', options))
  }

  /** Acquires a permit without waiting; undefined if none is free. */
  async tryAcquire(options: Omit<PermitOptions, 'signal'> = {}): Promise<Lease | undefined> {
    const { wait: _, onWait: __, ...rest } = this.#with('tryAcquire of a semaphore', options, ['units'])
    return this.#leases.tryAcquire(this.#name, rest)
  }

  #with(call: string, options: PermitOptions, known = ['units', 'signal']): AcquireOptions & { readonly ifAvailable?: false } {
    checkOptionNames(call, options, known)
    const { units, signal } = options
    return { ...this.#options, ...(units !== undefined && { units }), ...(signal !== undefined && { signal }) }
  }
}
