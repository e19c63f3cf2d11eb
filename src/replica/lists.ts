/**
 * Reads lists of leases, resources and entries while the state goes on changing.
 *
 * A walk looks at names in strides, with a turn of the event loop between them, one long list at a time: a list of a million leases must not delay
 * renewals. Then views are made, only of the items that are returned, all of one state.
 *
 * Each stride sees the state of its turn. That is enough: maps iterate in insertion order, so the walk has met everything that is there at the end, and
 * leases that events have named since are checked again.
 */
import type { Clock } from '../clock.ts'
import { commonPrefixes, underAny } from '../kernel/name.ts'
import { findLease, UNCLAIMED } from '../kernel/state/leases.ts'
import type { LeaseState, State } from '../kernel/state.ts'
import type { Query, View } from '../lessor.ts'
import type { Log } from './log.ts'
import { entryView, leaseView, type Remaining, resourceView } from './view.ts'

export type QueryOf<K extends Query['kind']> = Extract<Query, { readonly kind: K }>
type Listed = QueryOf<'leases'> | QueryOf<'resources'> | QueryOf<'entries'>

export interface ListReaderOptions {
  readonly clock: Clock
  readonly log: Pick<Log, 'state' | 'named'>
  readonly remaining: Remaining
  /** Items looked at in one turn of the loop: a few milliseconds. */
  readonly stride?: number
}

export class ListReader {
  readonly #clock: Clock
  readonly #log: ListReaderOptions['log']
  readonly #remaining: Remaining
  readonly #stride: number
  /** The long list that was started last. */
  #last: Promise<unknown> = Promise.resolve()

  constructor({ clock, log, remaining, stride = 5_000 }: ListReaderOptions) {
    this.#clock = clock
    this.#log = log
    this.#remaining = remaining
    this.#stride = stride
  }

  read(query: Listed, signal?: AbortSignal): View | Promise<View> {
    if (query.kind === 'entries') return this.#entries(query)
    return query.kind === 'resources' ? this.#resources(query, signal) : this.#leases(query, signal)
  }

  /** Entries are found by their prefix tree, without looking at others. */
  #entries(query: QueryOf<'entries'>): View<'entries'> {
    const { limit = Number.POSITIVE_INFINITY } = query
    const state = this.#log.state
    const found: ReturnType<typeof entryView>[] = []
    for (const entry of entriesOf(state, query)) {
      if (found.length === limit) return { revision: state.revision, value: found.sort(byKey), more: true }
      found.push(entryView(state, entry, this.#remaining))
    }
    return { revision: state.revision, value: found.sort(byKey) }
  }

  async #resources({ prefix, within = [''], limit = Number.POSITIVE_INFINITY }: QueryOf<'resources'>, signal?: AbortSignal): Promise<View> {
    const roots = commonPrefixes([prefix], within)
    const wanted = underAny(roots)
    const walk = await this.walked(
      signal,
      state => new ListWalk(roots.length === 0 ? [] : state.resources.values(), ({ name }) => wanted(name), limit),
    )
    const state = this.#log.state
    const there = walk.found.filter(resource => state.resources.get(resource.name) === resource)
    // The waiters of a pool wait for its name.
    const waited = [...state.pools.values()].filter(({ name, queue }) => queue.length > 0 && !state.resources.has(name) && wanted(name))
    const names = [...there, ...waited].map(({ name }) => name)
    const listed = names.slice(0, limit).sort()
    const value = listed.map(name => resourceView(state, name, state.resources.get(name), this.#remaining))
    return { revision: state.revision, value, ...((walk.full || names.length > limit) && { more: true }) }
  }

  async #leases(query: QueryOf<'leases'>, signal?: AbortSignal): Promise<View> {
    const { limit = Number.POSITIVE_INFINITY } = query
    const wanted = leaseFilter(query)
    const named = new Set<number>()
    const walk = await this.walked(
      signal,
      state => new ListWalk(canBeSeen(state, query) ? state.leases.values() : [], wanted, limit),
      named,
    )
    const state = this.#log.state
    const found = new Set(walk.found)
    if (!walk.full)
      for (const id of named) {
        const lease = findLease(state, id)
        if (lease !== undefined) found.add(lease)
      }
    const there = [...found].filter(lease => findLease(state, lease.id) === lease && wanted(lease))
    if (named.size > 0) there.sort((a, b) => a.id - b.id)
    const value = there.slice(0, limit).map(lease => leaseView(state, lease, this.#remaining))
    return { revision: state.revision, value, ...((walk.full || there.length > limit) && { more: true }) }
  }

  /** Resolves in the turn of the last stride. `named` collects the leases that events have named since the first stride. */
  async walked<T>(signal: AbortSignal | undefined, begin: (state: State) => ListWalk<T>, named?: Set<number>): Promise<ListWalk<T>> {
    const short = begin(this.#log.state)
    // Less than a whole stride: a client may ask for any number of lists in one turn.
    if (short.stride(this.#stride / 10)) return short
    const before = this.#last
    let leave!: () => void
    this.#last = new Promise<void>(resolve => (leave = resolve))
    try {
      await before
      const state = this.#log.state
      let { revision } = state
      for (const walk = begin(state); ; ) {
        if (walk.stride(this.#stride)) return walk
        await new Promise<void>(resolve => this.#clock.soon(resolve))
        signal?.throwIfAborted()
        if (this.#log.state !== state || !this.#log.named(revision, lease => named?.add(lease))) break
        revision = state.revision
      }
    } finally {
      leave()
    }
    // Another state was loaded, or more events have happened than are kept: walk again, without a pause.
    named?.clear()
    const whole = begin(this.#log.state)
    whole.stride(Number.POSITIVE_INFINITY)
    return whole
  }
}

/** A walk over items, and what it has found so far. */
export class ListWalk<T> {
  readonly found: T[] = []
  /** There are more matches than the limit; the walk ended there. */
  full = false
  readonly #items: Iterator<T>
  readonly #wanted: (item: T) => boolean
  readonly #limit: number

  constructor(items: Iterable<T>, wanted: (item: T) => boolean, limit: number) {
    this.#items = items[Symbol.iterator]()
    this.#wanted = wanted
    this.#limit = limit
  }

  /** Looks at up to `most` more items. Returns whether the walk has ended. */
  stride(most: number): boolean {
    for (let looked = 0; looked < most; looked++) {
      const { done, value } = this.#items.next()
      if (done === true) return true
      if (!this.#wanted(value)) continue
      if (this.found.length === this.#limit) {
        this.full = true
        return true
      }
      this.found.push(value)
    }
    return false
  }
}

function* entriesOf({ tree }: State, { prefix, named, within = [''] }: QueryOf<'entries'>) {
  if (named === undefined) for (const root of commonPrefixes([prefix], within)) yield* tree.under(root)
  else {
    const readable = underAny(within)
    for (const entry of tree.named(prefix, named)) if (readable(entry.key)) yield entry
  }
}

/** False: the list must be empty, and no lease need be looked at. */
export function canBeSeen(state: State, { prefix = '', within = [''], own }: QueryOf<'leases'>): boolean {
  if (commonPrefixes([prefix], within).length > 0) return true
  if (own === undefined) return false
  return state.keyUse.has(own.key) || (own.claims.length > 0 && state.keyUse.has(UNCLAIMED))
}

export function leaseFilter({ holder, prefix = '', within, own }: QueryOf<'leases'>): (lease: LeaseState) => boolean {
  const under = prefix === '' ? undefined : underAny([prefix])
  const readable = within === undefined ? undefined : underAny(within)
  const claimable = underAny(own?.claims ?? [])
  return lease => {
    if (holder !== undefined && lease.holder.name !== holder) return false
    if (under !== undefined && !names(lease, under, false)) return false
    if (readable === undefined) return true
    if (own !== undefined && lease.key === own.key) return true
    if (own !== undefined && lease.key === UNCLAIMED && holds(lease, claimable, true)) return true
    return namesNothing(lease) ? readable('') : names(lease, readable, true)
  }
}

function namesNothing({ grants, extras }: LeaseState): boolean {
  return grants.length === 0 && (extras === undefined || (extras.wants.length === 0 && extras.pool === undefined && !extras.entries?.size))
}

/** Returns whether one of the names that a lease holds or waits for passes `test`; with `every`, whether all do. */
function holds({ grants, extras }: LeaseState, test: (name: string) => boolean, every: boolean): boolean {
  for (const { resource } of grants) if (test(resource.name) !== every) return !every
  if (extras === undefined) return every
  for (const { resource } of extras.wants) if (test(resource) !== every) return !every
  if (grants.length === 0 && extras.wants.length === 0 && extras.pool !== undefined && test(extras.pool.pool) !== every) return !every
  return every
}

/** As `holds`, including the keys of its entries. */
function names(lease: LeaseState, test: (name: string) => boolean, every: boolean): boolean {
  if (holds(lease, test, every) !== every) return !every
  for (const key of lease.extras?.entries ?? []) if (test(key) !== every) return !every
  return every
}

function byKey(a: { readonly key: string }, b: { readonly key: string }): number {
  return a.key < b.key ? -1 : 1
}
