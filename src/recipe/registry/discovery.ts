/**
 * Finds instances by filter in a cache of all that are registered, which one watch keeps up to date for the whole process.
 *
 * Not promised: that a picked instance is still alive; only a call to it can tell. Nor, where the watch has its own connection (`http://`), that
 * `age` grows when that connection dies silently, before the watch itself notices. Promised: the list was correct `age` ms ago or later, changes
 * arrive in order, and when no server can be reached the cache keeps what it knows and reports how old that is.
 */
import { type Duration, inWords, milliseconds } from '../../duration.ts'
import { LeaseError } from '../../errors.ts'
import { checkOptionNames } from '../../options.ts'
import type { Change } from '../../registry/directory.ts'
import type { KnownInstance } from '../../registry/known-instance.ts'
import { type Filter, type Instance, matches } from '../../registry/match.ts'
import { type PickOptions, STRATEGIES } from '../../registry/pick.ts'
import type { FilteredView } from '../../registry/view.ts'
import type { DiscoveryFeed } from './discovery-feed.ts'

/** A filter, and how old the cache may be. */
export interface DiscoverOptions extends Filter {
  /**
   * `list` and `pick` throw `UNAVAILABLE` when the cache is older than this.
   * @default any age is accepted
   */
  readonly maxStale?: Duration | undefined
}

/** A reader that waits for changes keeps its process alive by a timer of this length, set again and again. */
const KEEP_ALIVE = 60_000

/**
 * The instances that match a filter. `for await` yields those that are there, then every change.
 *
 * @example
 * const reviewers = leases.registry.discover({ capability: 'review' })
 * const reviewer = await reviewers.pick()
 * for await (const { type, instance } of reviewers) console.log(type, instance.address)
 */
export class Discovery implements AsyncIterable<Change>, AsyncDisposable {
  readonly #feed: DiscoveryFeed
  readonly #filter: Filter
  readonly #maxStale: number
  readonly #closing = new AbortController()
  #view: FilteredView | undefined

  constructor(feed: DiscoveryFeed, { maxStale = Number.POSITIVE_INFINITY, ...filter }: DiscoverOptions) {
    this.#feed = feed
    this.#filter = filter
    this.#maxStale = maxStale === Number.POSITIVE_INFINITY ? maxStale : milliseconds(maxStale, 'maxStale')
    this.#view = feed.directory.view(filter, () => feed.clock.random())
    feed.begin(this.#maxStale)
  }

  /** Returns how old the cache may be, in ms. Infinite before the first answer. */
  get age(): number {
    return this.#feed.age
  }

  /** Resolves when the cache was loaded. Throws `UNAVAILABLE` when the lessor does not answer. */
  async ready(options: { readonly signal?: AbortSignal } = {}): Promise<this> {
    checkOptionNames('ready', options, ['signal'])
    await this.#feed.ready(options.signal)
    options.signal?.throwIfAborted()
    return this
  }

  /** The matching instances, nearest first, then by name. Waits until the cache was loaded. */
  list(): Promise<Instance[]> {
    return this.#whenReady(() => this.listNow())
  }

  /**
   * One instance that may be used now; undefined if there is none. Waits until the cache was loaded.
   *
   * @example
   * await reviewers.pick({ key: 'user-7' }) // the same instance for the same key
   */
  pick(options?: PickOptions): Promise<Instance | undefined> {
    return this.#whenReady(() => this.pickNow(options))
  }

  /** The same as `list`, without waiting. Throws `UNAVAILABLE` before the cache was loaded. */
  listNow(): Instance[] {
    return this.#current().list()
  }

  /** The same as `pick`, without waiting. Throws `UNAVAILABLE` before the cache was loaded. */
  pickNow(options?: PickOptions): Instance | undefined {
    if (options !== undefined) checkOptionNames('pick', options, ['strategy', 'key'])
    if (options?.strategy !== undefined && !STRATEGIES.includes(options.strategy))
      throw new LeaseError('INVALID', `there is no strategy ${String(options.strategy)}; there are ${STRATEGIES.join(', ')}`)
    if (options?.strategy === 'hash' && options.key === undefined) throw new LeaseError('INVALID', 'the strategy hash needs a key')
    return this.#current().pick(options)
  }

  /** Why a service is in self-preservation, where lapses are slowed; undefined if it is not. */
  preserved(service: string): string | undefined {
    return this.#feed.directory.preserved.get(service)
  }

  #whenReady<T>(then: () => T): Promise<T> {
    if (!this.#feed.loaded) return this.#feed.ready().then(then)
    try {
      return Promise.resolve(then())
    } catch (error) {
      return Promise.reject(error)
    }
  }

  #current(): FilteredView {
    if (this.#closing.signal.aborted) throw new LeaseError('UNAVAILABLE', 'this discovery was closed')
    if (this.#feed.closed.aborted) throw this.#feed.whyClosed()
    if (!this.#feed.loaded) throw this.#feed.whyNotLoaded()
    if (this.#maxStale < Number.POSITIVE_INFINITY) {
      const { age } = this
      if (age > this.#maxStale)
        throw new LeaseError(
          'UNAVAILABLE',
          `the list of services is ${inWords(age)} old, and at most ${inWords(this.#maxStale)} is allowed`,
          {
            facts: { age: Math.round(age), maxStale: this.#maxStale },
          },
        )
    }
    this.#view ??= this.#feed.directory.view(this.#filter, () => this.#feed.clock.random())
    return this.#view
  }

  [Symbol.asyncIterator](): AsyncGenerator<Change, void, void> {
    return this.changes()
  }

  /**
   * Yields the instances that are there as `added`, then every change. Several changes of one instance between two reads are yielded as one.
   *
   * @example
   * for await (const { type, instance } of reviewers.changes({ signal })) console.log(type, instance.address)
   */
  async *changes(options: { readonly signal?: AbortSignal } = {}): AsyncGenerator<Change, void, void> {
    checkOptionNames('changes', options, ['signal'])
    const { signal } = options
    await this.#feed.ready(signal)
    if (signal?.aborted) return
    const view = this.#current()
    const ends = [this.#feed.closed, this.#closing.signal, signal]
    const ended = () => ends.some(each => each?.aborted)
    const yielded = new Map<KnownInstance, Instance>()
    const changed = new Set<KnownInstance>(view.members)
    let wake = () => {}
    const wakeUp = () => wake()
    const stopListening = this.#feed.directory.listen((known, before, after) => {
      if (!(after !== undefined && matches(view.matcher, after)) && !(before !== undefined && matches(view.matcher, before))) return
      changed.add(known)
      wake()
    })
    for (const each of ends) each?.addEventListener('abort', wakeUp)
    try {
      while (!ended()) {
        for (const known of changed) {
          changed.delete(known)
          const change = difference(yielded.get(known), view.members.has(known) ? known.instance : undefined)
          if (change === undefined) continue
          if (change.type === 'removed') yielded.delete(known)
          else yielded.set(known, change.instance)
          yield change
          if (ended()) return
        }
        if (changed.size > 0 || ended()) continue
        await new Promise<void>(resolve => {
          const cancel = this.#feed.clock.after(KEEP_ALIVE, resolve, { ref: true })
          wake = () => {
            cancel()
            resolve()
          }
        })
      }
    } finally {
      stopListening()
      for (const each of ends) each?.removeEventListener('abort', wakeUp)
    }
  }

  /** Ends all iterations, and drops the list. Optional: a discovery that is not referenced any more costs nothing. */
  async close(): Promise<void> {
    this.#closing.abort()
    this.#view = undefined
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }
}

function difference(before: Instance | undefined, after: Instance | undefined): Change | undefined {
  if (after === undefined) return before === undefined ? undefined : { type: 'removed', instance: before }
  if (before === after) return undefined
  return { type: before === undefined ? 'added' : 'changed', instance: after }
}
