/**
 * Limits how many requests a key may send to this server: the limit `rate` of the server, and the limits of the key and of its group. Each server counts for itself.
 *
 * The limits of a key are buckets: a key may send `burst` requests at once, and the bucket is filled again with `requests` a second.
 */
import type { Clock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import type { Caller } from './caller.ts'
import type { CountedLimits, KeyRing } from './key-ring.ts'

const SECOND = 1_000
/** More than a store has keys. Beyond it, the buckets of keys that are gone take too much room, and all begin again. */
const MAX_BUCKETS = 20_000

interface TokenBucket {
  /** Requests that may come now. */
  left: number
  at: number
}

export interface RequestLimitsOptions {
  readonly keys: KeyRing
  readonly clock: Clock
  /** Requests of one key in a second; 0 for no limit. */
  readonly rate: number
}

export class RequestLimits {
  readonly #keys: KeyRing
  readonly #clock: Clock
  readonly #rate: number
  /** Requests in the current second, by key. */
  readonly #requests = new Map<number, number>()
  /** When the current second began. */
  #second = 0
  /** By key id, or by the name of a group. */
  readonly #buckets = new Map<number | string, TokenBucket>()

  constructor({ keys, clock, rate }: RequestLimitsOptions) {
    this.#keys = keys
    this.#clock = clock
    this.#rate = rate
  }

  /** Counts a request. Throws `LIMIT`. */
  count({ key, name }: Caller): void {
    if (key === 0) return
    const limits = this.#keys.limitsOf(key)
    if (limits !== undefined) this.#takeAll(limits)
    const rate = this.#rate
    if (rate === 0) return
    const now = this.#clock.now()
    if (now - this.#second >= SECOND) {
      this.#requests.clear()
      this.#second = now
    }
    const requests = (this.#requests.get(key) ?? 0) + 1
    if (requests > rate)
      throw new LeaseError('LIMIT', `${name} sent more than ${rate} requests within a second, the limit: retry later`, {
        facts: { limit: rate, retryAfter: Math.ceil(this.#second + SECOND - now) },
      })
    this.#requests.set(key, requests)
  }

  /** From each bucket, or from none. */
  #takeAll(counted: readonly CountedLimits[]): void {
    const buckets: TokenBucket[] = []
    for (const { name, who, limits } of counted) {
      const { requests, burst = requests } = limits
      if (requests === undefined || burst === undefined) continue
      const bucket = this.#filled(name, requests, burst)
      if (bucket.left < 1)
        throw new LeaseError('LIMIT', `${who} sent more than ${requests} requests a second, its limit on this server: retry later`, {
          facts: { what: 'requests', limit: requests, burst, retryAfter: Math.max(1, Math.ceil(((1 - bucket.left) * SECOND) / requests)) },
        })
      buckets.push(bucket)
    }
    for (const bucket of buckets) bucket.left--
  }

  #filled(name: number | string, requests: number, burst: number): TokenBucket {
    const now = this.#clock.now()
    let bucket = this.#buckets.get(name)
    if (bucket === undefined) {
      if (this.#buckets.size >= MAX_BUCKETS) this.#buckets.clear()
      bucket = { left: burst, at: now }
      this.#buckets.set(name, bucket)
    }
    bucket.left = Math.min(burst, bucket.left + ((now - bucket.at) * requests) / SECOND)
    bucket.at = now
    return bucket
  }
}
