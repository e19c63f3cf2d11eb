/**
 * A cache that is never stale, after Gray and Cheriton (1989): values are read under a shared lease, and a write waits until every reader has
 * released its lease or let it run out.
 *
 * Promised: a served value is not older than the last write that was completed before (S23). Not promised: that a write is quick while a reader
 * is unreachable, because it takes that reader's term. Writes that bypass `write` are not seen.
 */
import { whenAborted } from '../clock.ts'
import { type Duration, milliseconds } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import { waitOf } from '../holder/acquire-options.ts'
import type { LeaseClient } from '../holder/lease-client.ts'
import type { Lease } from '../lease.ts'
import { checkOptionNames, checkSpelling } from '../options.ts'

/** `load` and `save` get this of the lease they run under. */
export interface CacheLease {
  readonly token: number
  readonly signal: AbortSignal
}

export interface CacheOptions<V> {
  /**
   * Reads a value from its source. A source that remembers the highest token it was shown, by reads too, refuses the late write of a process that
   * has lost its lease. Without such a source, `save` must have ended when its signal fires.
   */
  readonly load: (key: string, lease: CacheLease) => V | PromiseLike<V>
  /**
   * Writes a value to its source, for `write`. The token fences it; the signal says when to stop. Left out: the caller writes to the source
   * before it calls `write`, which then makes all processes load the value anew, the caller included. Of two such writers at once, only the source
   * knows which value came last.
   */
  readonly save?: ((key: string, value: V, lease: CacheLease) => void | PromiseLike<void>) | undefined
  /**
   * The term of a reader. `'auto'` chooses it from the rates of reads and writes.
   * @default '1m'
   */
  readonly ttl?: Duration | 'auto' | undefined
  /**
   * The cache keeps this many values. The least recently used one is dropped first.
   * @default 10000
   */
  readonly most?: number | undefined
}

export interface CacheWriteOptions {
  /**
   * The call waits this long for readers, then rejects with `TIMEOUT`.
   * @default until they are gone
   */
  readonly wait?: Duration | undefined
  /** Ends the wait. */
  readonly signal?: AbortSignal | undefined
}

interface CachedValue<V> {
  readonly lease: Lease
  readonly value: Promise<V>
}

/** Where the cost of extending terms has fallen to a tenth, longer terms gain little and delay writers more. */
const GAIN = 9
const SHORTEST = 1_000
const LONGEST = 60_000
/** Rates are measured over about this many ms. */
const WINDOW = 60_000

/**
 * @example
 * await using config = leases.cache('config/', { load: key => db.read(key), save: (key, value) => db.write(key, value) })
 * await config.get('a')
 * await config.write('a', 'new')
 */
export class Cache<V> implements AsyncDisposable {
  readonly #leases: LeaseClient
  readonly #prefix: string
  readonly #options: CacheOptions<V>
  readonly #ttl: number | 'auto'
  readonly #values = new Map<string, Promise<CachedValue<V>>>()
  /** Keys by the lease of their reader. */
  readonly #readers = new Map<number, string>()
  /** Recalled leases whose grant we have not seen yet. */
  readonly #recalledEarly = new Set<number>()
  #loading = 0
  readonly #closing = new AbortController()
  readonly #reads: Rate
  readonly #writes: Rate
  #sharers = 1
  #watching: Promise<void> | undefined

  constructor(leases: LeaseClient, prefix: string, options: CacheOptions<V>) {
    if (typeof options?.load !== 'function')
      throw new LeaseError('INVALID', `the cache of ${prefix} needs a function load, which reads values from their source`)
    checkSpelling('cache', options, ['load', 'save', 'ttl', 'most']) // a source object may be passed as it is
    const { ttl = '1m' } = options
    this.#leases = leases
    this.#prefix = prefix.endsWith('/') ? prefix : `${prefix}/`
    this.#options = options
    this.#ttl = ttl === 'auto' ? ttl : milliseconds(ttl, 'ttl')
    this.#reads = new Rate(() => leases.clock.now())
    this.#writes = new Rate(() => leases.clock.now())
  }

  /** The value of a key: from the cache, or loaded. */
  async get(key: string): Promise<V> {
    const { clock } = this.#leases
    this.#reads.count()
    for (let longest = 0; ; ) {
      this.#mustBeOpen()
      if (this.#values.get(key) === undefined) this.#fill(key, longest)
      const cached = await this.#values.get(key)!
      const began = clock.now()
      const value = await cached.value
      // Its lease is held now, so no write has been completed since it was loaded.
      if (cached.lease.held) {
        this.#served(key, cached)
        return value
      }
      await this.#drop(key, cached)
      longest = clock.now() - began
    }
  }

  #mustBeOpen(): void {
    this.#closing.signal.throwIfAborted()
  }

  /** Saves the value once no process serves the old one any more. */
  async write(key: string, value: V, options: CacheWriteOptions = {}): Promise<void> {
    checkOptionNames('write', options, ['wait', 'signal'])
    waitOf(options, 'write')
    const { save } = this.#options
    this.#mustBeOpen()
    this.#writes.count()
    const own = await this.#values.get(key)?.catch(() => undefined)
    if (own !== undefined) await this.#drop(key, own)
    if (this.#ttl === 'auto') await this.#countSharers(key)
    await this.#leases.request(this.#prefix + key, { ...options, advanced: { recall: true } }, async lease => {
      await save?.(key, value, lease)
    })
  }

  /** The term that readers get now, in ms; 0 when caching would cost more than it saves. */
  get term(): number {
    if (this.#ttl !== 'auto') return this.#ttl
    const reads = this.#reads.perMillisecond
    const writes = this.#writes.perMillisecond
    if (writes > 0 && (2 * reads) / (this.#sharers * writes) <= 1) return 0
    return reads === 0 ? SHORTEST : Math.round(Math.min(LONGEST, Math.max(SHORTEST, GAIN / reads)))
  }

  /** Releases the leases of all values. Further calls reject with `UNAVAILABLE`. */
  async close(): Promise<void> {
    this.#closing.abort(new LeaseError('UNAVAILABLE', `the cache of ${this.#prefix} is closed`))
    await this.#dropAll()
    await this.#watching
  }

  /** The same as `close`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  /** If loading took `longest`, a shorter term would always be over before there is a value. */
  #fill(key: string, longest: number): void {
    const ttl = Math.round(Math.max(this.term, SHORTEST, 2 * longest))
    const loading = this.#load(key, ttl)
    this.#values.set(key, loading)
    loading.then(
      loaded => {
        loaded.value.catch(() => void this.#drop(key, loaded))
        whenAborted(loaded.lease.signal, () => this.#forget(key, loaded.lease))
      },
      () => this.#values.delete(key),
    )
    const { most = 10_000 } = this.#options
    const [oldest] = this.#values
    if (this.#values.size > most && oldest !== undefined) void oldest[1].then(old => this.#drop(oldest[0], old)).catch(() => {})
  }

  async #load(key: string, ttl: number): Promise<CachedValue<V>> {
    await this.#watch()
    this.#loading++
    const lease = await this.#leases
      .acquire(this.#prefix + key, { mode: 'shared', ttl, renew: 'never', signal: this.#closing.signal, advanced: { holding: [] } })
      .finally(() => this.#loading--)
    this.#readers.set(lease.id, key)
    if (this.#recalledEarly.delete(lease.id)) await lease.release().catch(() => {}) // `get` tries again
    if (this.#loading === 0) this.#recalledEarly.clear()
    const value = Promise.resolve().then(() => this.#options.load(key, lease))
    value.catch(() => {}) // `get` throws it
    return { lease, value }
  }

  #served(key: string, cached: CachedValue<V>): void {
    const present = this.#values.get(key)!
    if (this.term === 0) return void this.#drop(key, cached)
    this.#values.delete(key) // moves it to the end: most recently used
    this.#values.set(key, present)
  }

  async #drop(key: string, { lease }: CachedValue<V>): Promise<void> {
    this.#forget(key, lease)
    this.#readers.delete(lease.id)
    await lease.release().catch(() => {}) // an undelivered release lapses by itself
  }

  #forget(key: string, { id }: Lease): void {
    if (this.#readers.delete(id)) this.#values.delete(key)
  }

  async #dropAll(): Promise<void> {
    await Promise.all([...this.#values].map(async ([key, cached]) => cached.then(present => this.#drop(key, present)).catch(() => {})))
  }

  /** One watch for all keys, from before the first lease: no recall is missed. */
  async #watch(): Promise<void> {
    if (this.#watching !== undefined) return
    const { revision } = await this.#leases.read({ kind: 'summary' }, { signal: this.#closing.signal })
    this.#watching ??= this.#followRecalls(revision)
  }

  async #followRecalls(after: number): Promise<void> {
    try {
      for await (const events of this.#leases.lessor.watch(this.#prefix, { after, signal: this.#closing.signal })) {
        // Not awaited: a release may wait for a writer, and the writer for a recall that comes next.
        if (events[0]!.type === 'resync') void this.#dropAll()
        for (const { type, lease } of events) {
          if (type !== 'recalled') continue
          const key = this.#readers.get(lease)
          if (key === undefined) {
            if (this.#loading > 0) this.#recalledEarly.add(lease)
            continue
          }
          const cached = await this.#values.get(key)?.catch(() => undefined)
          if (cached?.lease.id === lease) void this.#drop(key, cached)
        }
      }
    } catch {
      // Recalls are not reported any more: cached values run out by themselves, and the next read starts a new watch.
    }
    if (!this.#closing.signal.aborted) this.#watching = undefined
  }

  async #countSharers(key: string): Promise<void> {
    const { value } = await this.#leases.read({ kind: 'resource', resource: this.#prefix + key })
    this.#sharers = (this.#sharers + Math.max(1, value.grants.length)) / 2
  }
}

/** Measures how often something happened recently. */
class Rate {
  readonly #now: () => number
  #began: number
  #counted = 0

  constructor(now: () => number) {
    this.#now = now
    this.#began = now()
  }

  count(): void {
    this.#counted++
    const passed = this.#now() - this.#began
    if (passed < 2 * WINDOW) return
    // Half of the count, for half of the time.
    this.#began = this.#now() - passed / 2
    this.#counted /= 2
  }

  get perMillisecond(): number {
    return this.#counted / Math.max(1, this.#now() - this.#began)
  }
}
