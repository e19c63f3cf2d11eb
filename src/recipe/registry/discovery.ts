/**
 * Finding others: a cache of all that is registered, kept by one watch for a whole process, and asked by filter.
 *
 * Not promised: that whoever is picked still lives; that takes a call to find out; nor, where the watch has a connection of its own (`http://`), that
 * `age` knows of that one's silent death before the watch does. Promised: what is listed was so `age` ms ago at the latest,
 * changes come in their order, and when nobody can be reached the cache goes on with what it knows and says how old that is.
 */
import { type Clock, pause } from '../../clock.ts'
import { type Duration, inWords, milliseconds } from '../../duration.ts'
import { LeaseError } from '../../errors.ts'
import { type Sent, since } from '../../holder/validity.ts'
import type { Lessor } from '../../lessor.ts'
import { checkOptionNames } from '../../options.ts'
import { type Change, Directory, type KnownInstance } from '../../registry/directory.ts'
import { SERVICES } from '../../registry/entry.ts'
import { type Filter, type Instance, matches } from '../../registry/match.ts'
import { type PickOptions, STRATEGIES } from '../../registry/pick.ts'
import type { FilteredView } from '../../registry/view.ts'

export interface DiscoverOptions extends Filter {
  /** What is known may be so old at most; beyond that `list` and `pick` throw `UNAVAILABLE`. Any age unless said otherwise. */
  readonly maxStale?: Duration
}

const FIRST_RETRY = 50
const LAST_RETRY = 2_000
const TIMEOUT = 10_000
/** How often it is made sure that silence means that nothing happened. */
const PROBE = 5_000
const SHORTEST_PROBE = 250
const AWAKE = 60_000

/** The cache and what keeps it: one read, one watch, and a question now and then. */
export class DiscoveryFeed {
  readonly directory = new Directory()
  readonly clock: Clock
  readonly #lessor: Lessor
  readonly #closing = new AbortController()
  /** When what is known was certainly current. */
  #fresh: Sent = { number: 0, now: Number.NEGATIVE_INFINITY, uptime: Number.NEGATIVE_INFINITY }
  #loaded = false
  readonly #waiting = new Set<() => void>()
  #failure: unknown
  #watching = false
  #began = false
  #probe = PROBE
  #cancel: (() => void) | undefined

  constructor(lessor: Lessor, clock: Clock) {
    this.#lessor = lessor
    this.clock = clock
  }

  get closed(): AbortSignal {
    return this.#closing.signal
  }

  get loaded(): boolean {
    return this.#loaded
  }

  /** For so many ms at most it is not known whether anything changed; infinite while nothing was ever known. */
  get age(): number {
    return Math.max(0, since(this.#fresh, this.clock.now(), this.clock.uptime()))
  }

  begin(maxStale: number): void {
    const probe = Math.max(SHORTEST_PROBE, Math.min(PROBE, maxStale / 2))
    if (probe < this.#probe) {
      this.#probe = probe
      if (this.#cancel !== undefined) this.#ask()
    }
    if (this.#began) return
    this.#began = true
    void this.#follow()
    this.#ask()
  }

  /** Resolves when something is known, or `signal` says that nobody wants to know any more. */
  ready(signal?: AbortSignal): Promise<void> {
    if (this.#loaded || signal?.aborted) return Promise.resolve()
    if (this.closed.aborted || isRefusal(this.#failure)) return Promise.reject(this.nothingKnown())
    return new Promise((resolve, reject) => {
      const wake = () => {
        cancel()
        signal?.removeEventListener('abort', wake)
        this.#waiting.delete(wake)
        if (this.#loaded || signal?.aborted) resolve()
        else reject(this.nothingKnown())
      }
      const cancel = this.clock.after(TIMEOUT, wake, { ref: true })
      signal?.addEventListener('abort', wake)
      this.#waiting.add(wake)
    })
  }

  #wake(): void {
    for (const wake of [...this.#waiting]) wake()
  }

  nothingKnown(): LeaseError {
    if (isRefusal(this.#failure)) return this.#failure
    if (this.closed.aborted) return this.whyClosed()
    return new LeaseError('UNAVAILABLE', 'nothing is known of any service yet: the lessor has not answered', { cause: this.#failure })
  }

  whyClosed(): LeaseError {
    return new LeaseError('UNAVAILABLE', 'these leases were closed: what was discovered is not kept up any more', { cause: this.#failure })
  }

  async #follow(): Promise<void> {
    const { signal } = this.#closing
    let reload = true
    for (let wait = FIRST_RETRY; !signal.aborted && !this.#lessor.signal.aborted; wait = Math.min(wait * 2, LAST_RETRY)) {
      let refused = false
      try {
        if (reload) await this.#load()
        reload = false
        this.#watching = true
        for await (const events of this.#lessor.watch(SERVICES, { after: this.directory.revision, signal })) {
          wait = FIRST_RETRY
          if (events[0]!.type === 'resync') {
            reload = true
            break
          }
          this.directory.apply(events)
        }
      } catch (error) {
        this.#failure = error
        // It would be refused again: whoever waits to know something is told now. Who may read and not watch reads again and again.
        refused = isRefusal(error)
        reload ||= refused
        if (refused) this.#wake()
      }
      this.#watching = false
      // Not all at once: when a server returns, everyone who watched it does.
      if (!reload || refused || !this.#loaded) await pause(this.clock, wait * (0.5 + this.clock.random() / 2), signal).catch(() => {})
    }
    if (this.#lessor.signal.aborted) this.#failure = this.#lessor.signal.reason
    this.close()
  }

  async #load(): Promise<void> {
    const fresh = this.#moment()
    const { signal } = this.#closing
    const { value, revision } = await this.#lessor.read({ kind: 'entries', prefix: SERVICES }, { consistent: true, signal })
    const services = await this.#lessor.read({ kind: 'services' }, { atLeast: revision, signal })
    const preserved = services.value.filter(({ preserving }) => preserving)
    this.directory.load(
      value,
      revision,
      preserved.map(({ service, suspect, instances }) => [service, `${suspect} of ${instances} missed a renewal: lapses are slowed`]),
    )
    this.#fresh = fresh
    this.#loaded = true
    this.#failure = undefined
    this.#wake()
  }

  #moment(): Sent {
    return { number: 0, now: this.clock.now(), uptime: this.clock.uptime() }
  }

  /** An answer from the log's end, while the watch runs, says that what is known is current. Never throws: it runs off a timer. */
  #ask(): void {
    this.#cancel?.()
    this.#cancel = this.clock.after(this.#probe, () => {
      if (this.#closing.signal.aborted) return
      // Nobody looks any more: what is known grows old until somebody does.
      const asked = this.#watching && this.directory.views > 0
      const fresh = this.#moment()
      const answer = asked ? this.#lessor.read({ kind: 'summary' }, { consistent: true, signal: this.#closing.signal }) : undefined
      answer?.then(
        () => {
          if (this.#watching) this.#fresh = fresh
        },
        error => {
          this.#failure = error
        },
      )
      this.#ask()
    })
  }

  close(): void {
    this.#closing.abort()
    this.#cancel?.()
    this.#wake()
  }
}

/** Those who match, for as long as one asks. `for await` tells who is there, and then every change. */
export class Discovery implements AsyncIterable<Change> {
  readonly #feed: DiscoveryFeed
  readonly #filter: Filter
  readonly #maxStale: number
  #view: FilteredView | undefined

  constructor(feed: DiscoveryFeed, { maxStale = Number.POSITIVE_INFINITY, ...filter }: DiscoverOptions) {
    this.#feed = feed
    this.#filter = filter
    this.#maxStale = maxStale === Number.POSITIVE_INFINITY ? maxStale : milliseconds(maxStale, 'maxStale')
    this.#view = feed.directory.view(filter, () => feed.clock.random())
    feed.begin(this.#maxStale)
  }

  /** How old what is known may be, in ms. */
  get age(): number {
    return this.#feed.age
  }

  /** Resolves when something is known; throws `UNAVAILABLE` when nobody answers. */
  async ready(): Promise<this> {
    await this.#feed.ready()
    return this
  }

  /** Nearest first, then by name; whatever their status, unless the filter says otherwise. */
  list(): Promise<Instance[]> {
    return this.#whenReady(() => this.listNow())
  }

  /** One that may be used now; undefined when there is none. */
  pick(options?: PickOptions): Promise<Instance | undefined> {
    return this.#whenReady(() => this.pickNow(options))
  }

  /** From what is known, without waiting for anything. */
  listNow(): Instance[] {
    return this.#current().list()
  }

  pickNow(options?: PickOptions): Instance | undefined {
    if (options !== undefined) checkOptionNames('pick', options, ['strategy', 'key'])
    if (options?.strategy !== undefined && !STRATEGIES.includes(options.strategy))
      throw new LeaseError('INVALID', `there is no strategy ${String(options.strategy)}; there are ${STRATEGIES.join(', ')}`)
    if (options?.strategy === 'hash' && options.key === undefined) throw new LeaseError('INVALID', 'picking by hash needs a key')
    return this.#current().pick(options)
  }

  /** Why lapses of a service are being slowed, or undefined. */
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
    if (this.#feed.closed.aborted) throw this.#feed.whyClosed()
    if (!this.#feed.loaded) throw this.#feed.nothingKnown()
    if (this.#maxStale < Number.POSITIVE_INFINITY) {
      const { age } = this
      if (age > this.#maxStale)
        throw new LeaseError('UNAVAILABLE', `what is known is ${inWords(age)} old, and at most ${inWords(this.#maxStale)} is allowed`, {
          facts: { age: Math.round(age), maxStale: this.#maxStale },
        })
    }
    this.#view ??= this.#feed.directory.view(this.#filter, () => this.#feed.clock.random())
    return this.#view
  }

  [Symbol.asyncIterator](): AsyncGenerator<Change, void, void> {
    return this.changes()
  }

  /** First everyone who is there, then what changes. Several changes of one instance between two looks are told as one; none is left out. */
  async *changes(options: { readonly signal?: AbortSignal } = {}): AsyncGenerator<Change, void, void> {
    checkOptionNames('changes', options, ['signal'])
    const { signal } = options
    await this.#feed.ready(signal)
    if (signal?.aborted) return
    const { directory, closed } = this.#feed
    const view = this.#current()
    const seen = new Map<KnownInstance, Instance>()
    const looked = new Set<KnownInstance>(view.members)
    let wake = () => {}
    const heard = () => wake()
    const over = () => closed.aborted || signal?.aborted === true
    const stop = directory.listen((known, before, after) => {
      if (!(after !== undefined && matches(view.wanted, after)) && !(before !== undefined && matches(view.wanted, before))) return
      looked.add(known)
      wake()
    })
    for (const each of [closed, signal]) each?.addEventListener('abort', heard)
    try {
      while (!over()) {
        for (const known of looked) {
          looked.delete(known)
          const change = difference(seen.get(known), view.members.has(known) ? known.instance : undefined)
          if (change === undefined) continue
          if (change.type === 'removed') seen.delete(known)
          else seen.set(known, change.instance)
          yield change
          if (over()) return
        }
        if (looked.size > 0 || over()) continue
        await new Promise<void>(resolve => {
          // Whoever waits for news keeps its process alive.
          const cancel = this.#feed.clock.after(AWAKE, resolve, { ref: true })
          wake = () => {
            cancel()
            resolve()
          }
        })
      }
    } finally {
      stop()
      for (const each of [closed, signal]) each?.removeEventListener('abort', heard)
    }
  }
}

/** Asked again it would be refused again, until whoever administers keys has changed that. */
function isRefusal(error: unknown): error is LeaseError {
  return error instanceof LeaseError && (error.code === 'FORBIDDEN' || error.code === 'UNAUTHENTICATED')
}

function difference(before: Instance | undefined, after: Instance | undefined): Change | undefined {
  if (after === undefined) return before === undefined ? undefined : { type: 'removed', instance: before }
  if (before === after) return undefined
  return { type: before === undefined ? 'added' : 'changed', instance: after }
}
