/**
 * Lists of a state that goes on changing.
 *
 * First names are looked at, in strides with a turn of the loop between them, one list at a time, so that whoever asks for a list of a million keeps
 * nobody from renewing. Then views are made, of what is shown and of nothing else, all of one state.
 *
 * A stride meets the state as it is by then. That is enough: maps are walked in the order of insertion, so that all that is there at the end was met;
 * and a lease that an event has named since is judged again.
 */
import type { Clock } from '../clock.ts'
import { commonPrefixes, underAny } from '../kernel/name.ts'
import { findLease, UNCLAIMED } from '../kernel/state/leases.ts'
import type { LeaseState, Resource, State } from '../kernel/state.ts'
import type { Query, View } from '../lessor.ts'
import { entryView, leaseView, type Remaining, resourceView } from './view.ts'

type QueryOf<K extends Query['kind']> = Extract<Query, { readonly kind: K }>
type Listed = QueryOf<'leases'> | QueryOf<'resources'> | QueryOf<'entries'>

export interface ListReaderOptions {
  readonly clock: Clock
  readonly state: () => State
  readonly remaining: Remaining
  /** Tells the leases that events after a revision name; false when those are not known any more. */
  readonly named: (after: number, tell: (lease: number) => void) => boolean
  /** Looked at in one turn of the loop: a few milliseconds. */
  readonly stride?: number
}

export class ListReader {
  readonly #clock: Clock
  readonly #state: () => State
  readonly #remaining: Remaining
  readonly #named: ListReaderOptions['named']
  readonly #stride: number
  /** The long list that was begun last. */
  #last: Promise<unknown> = Promise.resolve()

  constructor({ clock, state, remaining, named, stride = 5_000 }: ListReaderOptions) {
    this.#clock = clock
    this.#state = state
    this.#remaining = remaining
    this.#named = named
    this.#stride = stride
  }

  read(query: Listed, signal?: AbortSignal): View | Promise<View> {
    if (query.kind === 'entries') return this.#entries(query)
    return query.kind === 'resources' ? this.#resources(query, signal) : this.#leases(query, signal)
  }

  /** Their tree leads to what is within, past all that is not. */
  #entries({ prefix, within = [''], limit = Number.POSITIVE_INFINITY }: QueryOf<'entries'>): View<'entries'> {
    const state = this.#state()
    const found: ReturnType<typeof entryView>[] = []
    for (const root of commonPrefixes([prefix], within))
      for (const entry of state.tree.under(root)) {
        if (found.length === limit) return { revision: state.revision, value: found.sort(byKey), more: true }
        found.push(entryView(state, entry, this.#remaining))
      }
    return { revision: state.revision, value: found.sort(byKey) }
  }

  async #resources({ prefix, within = [''], limit = Number.POSITIVE_INFINITY }: QueryOf<'resources'>, signal?: AbortSignal): Promise<View> {
    const roots = commonPrefixes([prefix], within)
    const wanted = underAny(roots)
    const walk = await this.#walked(
      signal,
      state => new ListWalk(roots.length === 0 ? [] : state.resources.values(), ({ name }) => wanted(name), limit),
    )
    const state = this.#state()
    const there = walk.found.filter(resource => state.resources.get(resource.name) === resource).slice(0, limit)
    const value = there.sort(byName).map(resource => resourceView(state, resource.name, resource, this.#remaining))
    return { revision: state.revision, value, ...(walk.full && { more: true }) }
  }

  async #leases(query: QueryOf<'leases'>, signal?: AbortSignal): Promise<View> {
    const { limit = Number.POSITIVE_INFINITY } = query
    const wanted = leaseFilter(query)
    const named = new Set<number>()
    const walk = await this.#walked(
      signal,
      state => new ListWalk(canBeSeen(state, query) ? state.leases.values() : [], wanted, limit),
      named,
    )
    const state = this.#state()
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

  /** The last stride has just met its state when this resolves. `named` gathers the leases that events have named since the first. */
  async #walked<T>(signal: AbortSignal | undefined, begin: (state: State) => ListWalk<T>, named?: Set<number>): Promise<ListWalk<T>> {
    const short = begin(this.#state())
    // Not a whole stride: any number may be asked for within one turn.
    if (short.stride(this.#stride / 10)) return short
    const before = this.#last
    let leave!: () => void
    this.#last = new Promise<void>(resolve => (leave = resolve))
    try {
      await before
      const state = this.#state()
      let { revision } = state
      for (const walk = begin(state); ; ) {
        if (walk.stride(this.#stride)) return walk
        await new Promise<void>(resolve => this.#clock.soon(resolve))
        signal?.throwIfAborted()
        if (this.#state() !== state || !this.#named(revision, lease => named?.add(lease))) break
        revision = state.revision
      }
    } finally {
      leave()
    }
    // Another state was loaded, or more has happened than is remembered: once more, and without a pause.
    named?.clear()
    const whole = begin(this.#state())
    whole.stride(Number.POSITIVE_INFINITY)
    return whole
  }
}

/** What was found so far underAny what there is to look at. */
class ListWalk<T> {
  readonly found: T[] = []
  /** There are more than were asked for; the walk ended there. */
  full = false
  readonly #items: Iterator<T>
  readonly #wanted: (item: T) => boolean
  readonly #limit: number

  constructor(items: Iterable<T>, wanted: (item: T) => boolean, limit: number) {
    this.#items = items[Symbol.iterator]()
    this.#wanted = wanted
    this.#limit = limit
  }

  /** Looks at so many more; true when there is nothing left to look at. */
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

/** False: nothing can be in the list, and nothing need be looked at. */
function canBeSeen(state: State, { prefix = '', within = [''], own }: QueryOf<'leases'>): boolean {
  if (commonPrefixes([prefix], within).length > 0) return true
  if (own === undefined) return false
  return state.madeWith.has(own.key) || (own.claims.length > 0 && state.madeWith.has(UNCLAIMED))
}

function leaseFilter({ holder, prefix = '', within, own }: QueryOf<'leases'>): (lease: LeaseState) => boolean {
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

function namesNothing({ grants, rare }: LeaseState): boolean {
  return grants.length === 0 && (rare === undefined || (rare.wants.length === 0 && !rare.entries?.size))
}

/** Whether one of the names that a lease holds or waits for is so; `every`: whether all are. */
function holds({ grants, rare }: LeaseState, so: (name: string) => boolean, every: boolean): boolean {
  for (const { resource } of grants) if (so(resource.name) !== every) return !every
  if (rare !== undefined) for (const { resource } of rare.wants) if (so(resource) !== every) return !every
  return every
}

/** As `holds`, its entries included. */
function names(lease: LeaseState, so: (name: string) => boolean, every: boolean): boolean {
  if (holds(lease, so, every) !== every) return !every
  for (const key of lease.rare?.entries ?? []) if (so(key) !== every) return !every
  return every
}

function byName(a: Resource, b: Resource): number {
  return a.name < b.name ? -1 : 1
}

function byKey(a: { readonly key: string }, b: { readonly key: string }): number {
  return a.key < b.key ? -1 : 1
}
