/**
 * Reads lists of leases, resources and entries while the state goes on changing.
 *
 * A walk looks at names in strides, with a turn of the event loop between them, one long list at a time: a list of a million leases must not delay
 * renewals. Then views are made, only of the items that are returned. A short list is all of one state. In a long one each item is as it was at the
 * revision of the list or later, so a watch that begins there misses nothing; entries are all of that revision.
 *
 * Each stride sees the state of its turn. That is enough: maps iterate in insertion order, so the walk has met everything that is there at the end, and
 * leases that events have named since are checked again.
 */
import type { Clock } from '../clock.ts'
import { commonPrefixes, underAny } from '../kernel/name.ts'
import type { FreeEntry } from '../kernel/state/free-entries.ts'
import { findLease, UNCLAIMED } from '../kernel/state/leases.ts'
import type { Attached, LeaseState, State } from '../kernel/state.ts'
import type { EntryView, Query, View } from '../lessor.ts'
import { inTurns, mapped, sorted } from './in-turns.ts'
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
    if (query.kind === 'entries') return this.#entries(query, signal)
    return query.kind === 'resources' ? this.#resources(query, signal) : this.#leases(query, signal)
  }

  /** Entries are found by their prefix tree, without looking at others. */
  #entries(query: QueryOf<'entries'>, signal?: AbortSignal): View<'entries'> | Promise<View<'entries'>> {
    const { limit = Number.POSITIVE_INFINITY } = query
    const state = this.#log.state
    const found: EntryView[] = []
    for (const entry of entriesOf(state, query)) {
      if (found.length === limit) return { revision: state.revision, value: found.sort(byKey), more: true }
      if (found.length >= this.#stride / 10) return this.#manyEntries(query, limit, signal)
      found.push(entryView(state, entry, this.#remaining))
    }
    return { revision: state.revision, value: found.sort(byKey) }
  }

  async #manyEntries(query: QueryOf<'entries'>, limit: number, signal?: AbortSignal): Promise<View<'entries'>> {
    const changed = { leases: new Set<number>(), keys: new Set<string>() }
    const view = (entry: Attached | FreeEntry) => entryView(this.#log.state, entry, this.#remaining)
    const begin = (state: State) => new ListWalk<Attached | FreeEntry, EntryView>(entriesOf(state, query), () => true, limit, view)
    const walk = await this.walked(signal, begin, changed)
    const { revision, entries, free } = this.#log.state
    const wanted = entryFilter(query)
    const isChanged = ({ key, lease }: EntryView) => changed.keys.has(key) || changed.leases.has(lease)
    const isAny = changed.keys.size + changed.leases.size > 0
    const again = isAny ? [...new Set([...changed.keys, ...walk.found.filter(isChanged).map(({ key }) => key)])] : []
    const renewed = again.flatMap(key => {
      const entry = wanted(key) ? (entries.get(key) ?? free.get(key)) : undefined
      return entry === undefined ? [] : [view(entry)]
    })
    const all = isAny ? [...walk.found.filter(found => !isChanged(found)), ...renewed] : walk.found
    const inOrder = await this.#inTurns(
      sorted(all, ({ key }) => key, this.#random),
      signal,
    )
    return { revision, value: inOrder.slice(0, limit), ...((walk.full || all.length > limit) && { more: true }) }
  }

  async #resources({ prefix, within = [''], limit = Number.POSITIVE_INFINITY }: QueryOf<'resources'>, signal?: AbortSignal): Promise<View> {
    const roots = commonPrefixes([prefix], within)
    const wanted = underAny(roots)
    const walk = await this.walked(
      signal,
      state => new ListWalk(roots.length === 0 ? [] : state.resources.values(), ({ name }) => wanted(name), limit),
    )
    const state = this.#log.state
    const { revision } = state
    const there = walk.found.filter(resource => state.resources.get(resource.name) === resource)
    // The waiters of a pool wait for its name.
    const waited = [...state.pools.values()].filter(({ name, queue }) => queue.length > 0 && !state.resources.has(name) && wanted(name))
    const names = [...there, ...waited].map(({ name }) => name)
    const listed = await this.#inTurns(
      sorted(names.slice(0, limit), name => name, this.#random),
      signal,
    )
    const now = this.#log.state
    const value = await this.#inTurns(
      mapped(listed, VIEWS, name => resourceView(now, name, now.resources.get(name), this.#remaining)),
      signal,
    )
    return { revision, value, ...((walk.full || names.length > limit) && { more: true }) }
  }

  async #leases(query: QueryOf<'leases'>, signal?: AbortSignal): Promise<View> {
    const { limit = Number.POSITIVE_INFINITY } = query
    const wanted = leaseFilter(query)
    const named = new Set<number>()
    const walk = await this.walked(signal, state => new ListWalk(canBeSeen(state, query) ? state.leases.values() : [], wanted, limit), {
      leases: named,
    })
    const state = this.#log.state
    const { revision } = state
    const found = new Set(walk.found)
    if (!walk.full)
      for (const id of named) {
        const lease = findLease(state, id)
        if (lease !== undefined) found.add(lease)
      }
    const there = [...found].filter(lease => findLease(state, lease.id) === lease && wanted(lease))
    if (named.size > 0) there.sort((a, b) => a.id - b.id)
    const views = await this.#inTurns(
      mapped(there.slice(0, limit), VIEWS, lease => {
        // One that has ended since has no view.
        const now = this.#log.state
        return findLease(now, lease.id) === lease ? leaseView(now, lease, this.#remaining) : undefined
      }),
      signal,
    )
    const value = views.filter(view => view !== undefined)
    return { revision, value, ...((walk.full || there.length > limit) && { more: true }) }
  }

  #inTurns<T>(steps: Generator<void, T, void>, signal?: AbortSignal): Promise<T> {
    return inTurns(this.#clock, steps, signal)
  }

  readonly #random = () => this.#clock.random()

  /** Resolves in the turn of the last stride. `named` collects what events have named since the first stride. */
  async walked<T, U = T>(
    signal: AbortSignal | undefined,
    begin: (state: State) => ListWalk<T, U>,
    named?: NamedByEvents,
  ): Promise<ListWalk<T, U>> {
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
        if (this.#log.state !== state || !this.#log.named(revision, (lease, key) => note(named, lease, key))) break
        revision = state.revision
      }
    } finally {
      leave()
    }
    // Another state was loaded, or more events have happened than are kept: walk again, without a pause.
    named?.leases.clear()
    named?.keys?.clear()
    const whole = begin(this.#log.state)
    whole.stride(Number.POSITIVE_INFINITY)
    return whole
  }
}

/** The leases and entries that events have named. */
interface NamedByEvents {
  readonly leases: Set<number>
  readonly keys?: Set<string>
}

function note(named: NamedByEvents | undefined, lease: number, key: string | undefined): void {
  if (lease !== 0) named?.leases.add(lease)
  if (key !== undefined) named?.keys?.add(key)
}

/** Views that are made in one turn of the loop. */
const VIEWS = 1_000

/** A walk over items, and what it has found so far: the items, or their views. */
export class ListWalk<T, U = T> {
  readonly found: U[] = []
  /** There are more matches than the limit; the walk ended there. */
  full = false
  readonly #items: Iterator<T>
  readonly #wanted: (item: T) => boolean
  readonly #limit: number
  readonly #view: (item: T) => U

  constructor(items: Iterable<T>, wanted: (item: T) => boolean, limit: number, view = (item: T) => item as unknown as U) {
    this.#items = items[Symbol.iterator]()
    this.#wanted = wanted
    this.#limit = limit
    this.#view = view
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
      this.found.push(this.#view(value))
    }
    return false
  }
}

/** The keys that a query asks for. */
function entryFilter({ prefix, named, within = [''] }: QueryOf<'entries'>): (key: string) => boolean {
  const asked = underAny(commonPrefixes([prefix], within))
  const suffix = named === undefined ? '' : `/${named}`
  const depth = prefix === '' ? 2 : prefix.replace(/\/$/, '').split('/').length + 2
  return key => asked(key) && (named === undefined || (key.endsWith(suffix) && key.split('/').length === depth))
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
