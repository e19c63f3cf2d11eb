/**
 * A cache that is never stale, after Gray and Cheriton (1989): values are read under a shared lease, and a write waits until every reader has
 * given its lease back or let it run out.
 *
 * Not promised: that a write is quick while a reader is unreachable; it takes that reader's term. Writes that go past `write` are not seen.
 * Promised: a value that is served is not older than the last write that was completed before (S23).
 */
import { whenAborted } from '../clock.ts'
import { type Duration, milliseconds } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import type { Lease } from '../lease.ts'
import type { Leases } from '../leases.ts'
import { checkOptionNames, checkSpelling } from '../options.ts'

export interface CacheOptions<V> {
  /**
   * Where values come from. A source that remembers the highest token it was shown, by reads too, turns away the late write of one
   * who has lost its lease meanwhile; without that, `save` must have ended when its signal fires.
   */
  readonly load: (key: string, lease: { readonly token: number; readonly signal: AbortSignal }) => V | PromiseLike<V>
  /**
   * Where `write` puts a value. The token fences it; the signal says when to stop. Left out, the source is written by whoever calls `write`, before
   * that: then `write` makes everybody load it anew, the caller included. Of two who write at once, the source alone knows which value came last.
   */
  readonly save?: (key: string, value: V, lease: { readonly token: number; readonly signal: AbortSignal }) => void | PromiseLike<void>
  /** The term of a reader; `'auto'` chooses it from how often is read and written. */
  readonly ttl?: Duration | 'auto'
  /** Values kept at most; those not asked for longest go first. */
  readonly most?: number
}

interface Kept<V> {
  readonly lease: Lease
  readonly value: Promise<V>
}

/** Where the cost of extending terms has fallen to a tenth, longer terms gain little and delay writers more. */
const GAIN = 9
const SHORTEST = 1_000
const LONGEST = 60_000
/** Rates are of about the last so many ms. */
const WINDOW = 60_000

export class Cache<V> implements AsyncDisposable {
  readonly #leases: Leases
  readonly #prefix: string
  readonly #options: CacheOptions<V>
  readonly #ttl: number | 'auto'
  readonly #kept = new Map<string, Promise<Kept<V>>>()
  readonly #readers = new Map<number, string>()
  /** Recalls of leases whose grant we have not heard of yet. */
  readonly #early = new Set<number>()
  #loading = 0
  readonly #closing = new AbortController()
  readonly #reads: Rate
  readonly #writes: Rate
  #sharers = 1
  #listening: Promise<void> | undefined

  constructor(leases: Leases, prefix: string, options: CacheOptions<V>) {
    if (typeof options?.load !== 'function')
      throw new LeaseError('INVALID', `the cache of ${prefix} needs a function load, which brings values`)
    checkSpelling('cache', options, ['load', 'save', 'ttl', 'most']) // a source may be passed as it is
    const { ttl = '1m' } = options
    this.#leases = leases
    this.#prefix = prefix.endsWith('/') ? prefix : `${prefix}/`
    this.#options = options
    this.#ttl = ttl === 'auto' ? ttl : milliseconds(ttl, 'ttl')
    this.#reads = new Rate(() => leases.clock.now())
    this.#writes = new Rate(() => leases.clock.now())
  }

  async get(key: string): Promise<V> {
    const { clock } = this.#leases
    this.#reads.count()
    for (let longest = 0; ; ) {
      this.#mustBeOpen()
      if (this.#kept.get(key) === undefined) this.#keep(key, longest)
      const kept = await this.#kept.get(key)!
      const began = clock.now()
      const value = await kept.value
      // Held now, so no write has been completed since it was loaded.
      if (kept.lease.held) {
        this.#served(key, kept)
        return value
      }
      await this.#drop(key, kept)
      longest = clock.now() - began
    }
  }

  #mustBeOpen(): void {
    this.#closing.signal.throwIfAborted()
  }

  /** Puts the value where it belongs, once nobody reads the old one any more. */
  async write(key: string, value: V, options: { readonly wait?: Duration } = {}): Promise<void> {
    checkOptionNames('write', options, ['wait'])
    const { wait } = options
    const { save } = this.#options
    this.#mustBeOpen()
    this.#writes.count()
    const own = await this.#kept.get(key)?.catch(() => undefined)
    if (own !== undefined) await this.#drop(key, own)
    if (this.#ttl === 'auto') await this.#countSharers(key)
    const resource = this.#prefix + key
    await this.#leases.request(resource, { recall: true, ...(wait !== undefined && { wait }) }, async lease => {
      await save?.(key, value, lease)
    })
  }

  /** The term that readers get now: 0 when caching would cost more than it saves. */
  get term(): number {
    if (this.#ttl !== 'auto') return this.#ttl
    const reads = this.#reads.perMillisecond
    const writes = this.#writes.perMillisecond
    if (writes > 0 && (2 * reads) / (this.#sharers * writes) <= 1) return 0
    return reads === 0 ? SHORTEST : Math.round(Math.min(LONGEST, Math.max(SHORTEST, GAIN / reads)))
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort(new LeaseError('UNAVAILABLE', `the cache of ${this.#prefix} was closed`))
    await this.#dropAll()
    await this.#listening
  }

  /** Where loading took `longest`, a shorter term would be over before there is a value, again and again. */
  #keep(key: string, longest: number): void {
    const ttl = Math.round(Math.max(this.term, SHORTEST, 2 * longest))
    this.#keepUp(
      key,
      this.#load(key, ttl, lease => this.#options.load(key, lease)),
    )
  }

  #keepUp(key: string, kept: Promise<Kept<V>>): void {
    this.#kept.set(key, kept)
    kept.then(
      loaded => {
        loaded.value.catch(() => void this.#drop(key, loaded))
        whenAborted(loaded.lease.signal, () => this.#forget(key, loaded.lease))
      },
      () => this.#kept.delete(key),
    )
    const { most = 10_000 } = this.#options
    const [oldest] = this.#kept
    if (this.#kept.size > most && oldest !== undefined) void oldest[1].then(old => this.#drop(oldest[0], old)).catch(() => {})
  }

  async #load(key: string, ttl: number, load: (lease: Lease) => V | PromiseLike<V>): Promise<Kept<V>> {
    await this.#listen()
    this.#loading++
    const lease = await this.#leases
      .acquire(this.#prefix + key, { mode: 'shared', ttl, renew: 'never', holding: [], signal: this.#closing.signal })
      .finally(() => this.#loading--)
    this.#readers.set(lease.id, key)
    if (this.#early.delete(lease.id)) await lease.release().catch(() => {}) // and `get` asks again
    if (this.#loading === 0) this.#early.clear()
    const value = Promise.resolve().then(() => load(lease))
    value.catch(() => {}) // told to whoever asked for it
    return { lease, value }
  }

  #served(key: string, kept: Kept<V>): void {
    const there = this.#kept.get(key)!
    if (this.term === 0) return void this.#drop(key, kept)
    this.#kept.delete(key) // to the end of the line
    this.#kept.set(key, there)
  }

  async #drop(key: string, { lease }: Kept<V>): Promise<void> {
    this.#forget(key, lease)
    await this.#release(lease)
  }

  async #release(lease: Lease): Promise<void> {
    this.#readers.delete(lease.id)
    await lease.release().catch(() => {}) // undelivered, it runs out by itself
  }

  #forget(key: string, { id }: Lease): void {
    if (this.#readers.delete(id)) this.#kept.delete(key)
  }

  async #dropAll(): Promise<void> {
    await Promise.all([...this.#kept].map(async ([key, kept]) => kept.then(there => this.#drop(key, there)).catch(() => {})))
  }

  /** One watch for all keys, from before the first lease: no recall is missed. */
  async #listen(): Promise<void> {
    if (this.#listening !== undefined) return
    const { revision } = await this.#leases.read({ kind: 'summary' }, { signal: this.#closing.signal })
    this.#listening ??= this.#hear(revision)
  }

  async #hear(after: number): Promise<void> {
    try {
      for await (const events of this.#leases.lessor.watch(this.#prefix, { after, signal: this.#closing.signal })) {
        if (events[0]!.type === 'resync') void this.#dropAll() // some may wait for a writer, who may wait for what is recalled next
        for (const { type, lease } of events) {
          if (type !== 'recalled') continue
          const key = this.#readers.get(lease)
          if (key === undefined) {
            if (this.#loading > 0) this.#early.add(lease)
            continue
          }
          const kept = await this.#kept.get(key)?.catch(() => undefined)
          if (kept?.lease.id === lease) void this.#drop(key, kept)
        }
      }
    } catch {
      // Nobody hears of recalls any more: what is kept runs out by itself, and the next read listens anew.
    }
    if (!this.#closing.signal.aborted) this.#listening = undefined
  }

  async #countSharers(key: string): Promise<void> {
    const { value } = await this.#leases.read({ kind: 'resource', resource: this.#prefix + key })
    this.#sharers = (this.#sharers + Math.max(1, value.grants.length)) / 2
  }
}

/** How often, of late. */
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
    // Half of what is remembered, for half of the time.
    this.#began = this.#now() - passed / 2
    this.#counted /= 2
  }

  get perMillisecond(): number {
    return this.#counted / Math.max(1, this.#now() - this.#began)
  }
}
