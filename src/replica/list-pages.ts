/**
 * Reads pages of lists in order: of a hundred thousand resources or leases, the few that a table shows.
 *
 * Finding and ordering happen in strides, with turns of the event loop in between, one list at a time; views are made only of the items of the page, from the
 * state as it is then. The order of a long list is kept for a moment, so that scrolling through it, and reading the visible rows again, costs little.
 */
import type { Clock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import { commonPrefixes, underAny } from '../kernel/name.ts'
import { findLease } from '../kernel/state/leases.ts'
import { FROZEN, type LeaseState, type Resource, type State } from '../kernel/state.ts'
import { LIST_COLUMNS, type ListColumn, type ListPart, MAX_LIST_PAGE } from '../lessor/list-part.ts'
import type { PageView } from '../lessor.ts'
import { inTurns } from './in-turns.ts'
import { statusOf } from './lease-status.ts'
import { canBeSeen, type ListReader, ListWalk, leaseFilter, type QueryOf } from './lists.ts'
import type { Log } from './log.ts'
import { PartialOrder } from './partial-order.ts'
import { leaseView, type Remaining, resourceView } from './view.ts'

type PagedQuery = QueryOf<'leases' | 'resources'>
/** A resource, or the name of a pool that is waited for. */
type Named = Pick<Resource, 'name'> & Partial<Pick<Resource, 'grants' | 'queue'>>
/** The values of a column. */
type SortKeys = string[] | Float64Array

const TEXTS: ReadonlySet<ListColumn> = new Set(['name', 'holder'])

/** Making orders takes at most this share of the time: that of a long list is used for longer. */
const SHARE = 0.1
/** An order is used for at most this long while things happen, in ms. */
const LONGEST = 5_000
/** An order that was not asked for during this time is forgotten, in ms. */
const KEPT = 15_000
/** Items of all orders that are kept, about 20 bytes each. The last one is kept whatever its length. */
const MAX_KEPT = 400_000
/** Orders that are kept: a client may ask for any number of different ones. */
const MAX_ORDERS = 32
/** Items whose columns are read in one turn of the event loop. */
const STRIDE = 8_192
const DEFAULT_LIMIT = 100

export interface ListPagesOptions {
  readonly clock: Clock
  readonly log: Pick<Log, 'state'>
  readonly remaining: Remaining
  readonly lists: ListReader
}

/** Items as they were found, and their order. */
interface OrderedItems {
  readonly items: readonly (LeaseState | Named)[]
  readonly order: PartialOrder
  readonly state: State
  readonly revision: number
  readonly madeAt: number
  readonly took: number
  usedAt: number
}

export class ListPages {
  readonly #clock: Clock
  readonly #log: Pick<Log, 'state'>
  readonly #remaining: Remaining
  readonly #lists: ListReader
  /** By query and filters. The one that was used last is the last. */
  readonly #kept = new Map<string, OrderedItems>()
  /** The page that was asked for last. */
  #last: Promise<unknown> = Promise.resolve()
  #cancelSweep: (() => void) | undefined

  constructor({ clock, log, remaining, lists }: ListPagesOptions) {
    this.#clock = clock
    this.#log = log
    this.#remaining = remaining
    this.#lists = lists
  }

  /** One at a time: any number of clients may ask, and each long list takes memory while it is put in order. */
  read(query: PagedQuery, page: ListPart, signal?: AbortSignal): Promise<PageView<PagedQuery['kind']>> {
    const answer = this.#last.then(() => {
      signal?.throwIfAborted()
      return this.#read(query, page, signal)
    })
    this.#last = answer.catch(() => {})
    return answer
  }

  async #read(query: PagedQuery, page: ListPart, signal?: AbortSignal): Promise<PageView<PagedQuery['kind']>> {
    const { offset = 0, limit = DEFAULT_LIMIT, ...filter } = page
    const column = columnOf(page)
    const key = JSON.stringify([query, filter])
    const ordered = this.#fresh(key, column) ?? (await this.#make(query, filter, column, signal))
    this.#keep(key, ordered)
    const { items, order } = ordered
    const places = await this.#inTurns(order.range(offset, offset + Math.min(limit, MAX_LIST_PAGE)), signal)
    const state = this.#log.state
    const value = places.flatMap((place): PageView<PagedQuery['kind']>['value'][number][] => {
      const item = items[place]!
      if ('id' in item) return findLease(state, item.id) === item ? [leaseView(state, item, this.#remaining)] : []
      const view = resourceView(state, item.name, state.resources.get(item.name), this.#remaining)
      return view.grants.length + view.queue.length === 0 ? [] : [view]
    })
    return { revision: state.revision, total: items.length, value: value as PageView<PagedQuery['kind']>['value'] }
  }

  #fresh(key: string, column: ListColumn): OrderedItems | undefined {
    const kept = this.#kept.get(key)
    const state = this.#log.state
    if (kept?.state !== state) return undefined
    const age = this.#clock.now() - kept.madeAt
    // Only the time that is left changes without a revision.
    if (kept.revision === state.revision && column !== 'remaining' && age <= KEPT) return kept
    return age < Math.min(LONGEST, kept.took / SHARE) ? kept : undefined
  }

  #keep(key: string, ordered: OrderedItems): void {
    ordered.usedAt = this.#clock.now()
    this.#kept.delete(key)
    this.#kept.set(key, ordered)
    let total = 0
    for (const { items } of this.#kept.values()) total += items.length
    for (const [oldest, { items }] of this.#kept) {
      if ((total <= MAX_KEPT && this.#kept.size <= MAX_ORDERS) || oldest === key) break
      this.#kept.delete(oldest)
      total -= items.length
    }
    this.#cancelSweep ??= this.#clock.after(KEPT, () => this.#sweep())
  }

  #sweep(): void {
    this.#cancelSweep = undefined
    const now = this.#clock.now()
    for (const [key, { usedAt }] of this.#kept) if (now - usedAt >= KEPT) this.#kept.delete(key)
    if (this.#kept.size > 0) this.#cancelSweep = this.#clock.after(KEPT, () => this.#sweep())
  }

  async #make(query: PagedQuery, filter: ListPart, column: ListColumn, signal?: AbortSignal): Promise<OrderedItems> {
    const madeAt = this.#clock.now()
    const { revision } = this.#log.state
    const items = query.kind === 'leases' ? await this.#leases(query, filter, signal) : await this.#resources(query, filter, signal)
    const state = this.#log.state
    const keys = await this.#inTurns(this.#keysOf(state, items, column), signal)
    const compare = comparison(items, keys, filter.sort.startsWith('-') ? -1 : 1)
    const order = new PartialOrder({ length: items.length, compare, random: () => this.#clock.random() })
    // `revision` is that of the beginning: what has happened since may be missing.
    return { items, order, state, revision, madeAt, took: this.#clock.now() - madeAt, usedAt: madeAt }
  }

  async #leases(query: QueryOf<'leases'>, filter: ListPart, signal?: AbortSignal): Promise<readonly LeaseState[]> {
    const wanted = leaseTest(leaseFilter(query), filter)
    const begin = (state: State) => new ListWalk(canBeSeen(state, query) ? state.leases.values() : [], wanted, Number.POSITIVE_INFINITY)
    return (await this.#lists.walked(signal, begin)).found
  }

  async #resources({ prefix, within = [''] }: QueryOf<'resources'>, filter: ListPart, signal?: AbortSignal): Promise<readonly Named[]> {
    const roots = commonPrefixes([prefix], within)
    const under = underAny(roots)
    const passes = resourceTest(filter)
    const wanted = (named: Named) => under(named.name) && passes(named)
    const begin = (state: State) =>
      new ListWalk<Named>(roots.length === 0 ? [] : state.resources.values(), wanted, Number.POSITIVE_INFINITY)
    const { found } = await this.#lists.walked(signal, begin)
    const { pools, resources } = this.#log.state
    // The waiters of a pool wait for its name.
    for (const { name, queue } of pools.values()) if (queue.length > 0 && !resources.has(name) && wanted({ name })) found.push({ name })
    return found
  }

  /** The values of the column, by place. Yields after each stride. */
  *#keysOf(state: State, items: OrderedItems['items'], column: ListColumn): Generator<void, SortKeys, void> {
    const keys: SortKeys = TEXTS.has(column) ? new Array<string>(items.length) : new Float64Array(items.length)
    const keyOf = (item: OrderedItems['items'][number]) =>
      'id' in item ? this.#ofLease(item, column) : this.#ofResource(state, item, column)
    // The loop over a stride is a function of its own: engines optimise loops in generators less.
    const fill = (from: number, to: number) => {
      for (let i = from; i < to; i++) keys[i] = keyOf(items[i]!)
    }
    for (let from = 0; from < items.length; from += STRIDE) {
      if (from > 0) yield
      fill(from, Math.min(items.length, from + STRIDE))
    }
    return keys
  }

  #ofResource(state: State, { name, grants, queue }: Named, column: ListColumn): string | number {
    if (column === 'name') return name
    if (column === 'waiters') return (queue?.length ?? 0) + (state.pools.get(name)?.queue.length ?? 0)
    const grant = grants?.[0]
    if (column === 'holder') return grant?.lease.holder.name ?? ''
    if (grant === undefined) return 0
    return column === 'token' ? grant.token : column === 'since' ? grant.lease.since : this.#remaining(grant.lease)
  }

  #ofLease(lease: LeaseState, column: ListColumn): string | number {
    const { grants, extras, holder, since } = lease
    if (column === 'holder') return holder.name
    if (column === 'since') return since
    if (column === 'remaining') return this.#remaining(lease)
    if (column === 'token') return grants[0]?.token ?? 0
    if (column === 'waiters') return extras?.wants.length ?? 0
    if (grants[0] !== undefined) return grants[0].resource.name
    const [entry = ''] = extras?.entries ?? []
    return extras?.wants[0]?.resource ?? extras?.pool?.pool ?? entry
  }

  #inTurns<T>(steps: Generator<void, T, void>, signal?: AbortSignal): Promise<T> {
    return inTurns(this.#clock, steps, signal)
  }
}

function columnOf({ sort }: ListPart): ListColumn {
  const column = LIST_COLUMNS.find(name => name === sort.replace('-', ''))
  if (column === undefined) throw new LeaseError('INVALID', `a list cannot be sorted by ${sort}: use one of ${LIST_COLUMNS.join(', ')}`)
  return column
}

function stateOf(lease: LeaseState | undefined): string {
  return lease === undefined ? 'waited' : statusOf(lease) === 'frozen' ? 'frozen' : 'held'
}

function contains(name: string, lower: string): boolean {
  return name.toLowerCase().includes(lower)
}

function resourceTest({ text = '', holder, state }: ListPart): (named: Named) => boolean {
  if (text === '' && holder === undefined && state === undefined) return () => true
  const lower = text.toLowerCase()
  return ({ name, grants = [] }) =>
    (holder === undefined || grants.some(({ lease }) => lease.holder.name === holder)) &&
    (state === undefined || stateOf(grants[0]?.lease) === state) &&
    (text === '' || contains(name, lower) || grants.some(({ lease }) => contains(lease.holder.name, lower)))
}

function leaseTest(listed: (lease: LeaseState) => boolean, page: ListPart): (lease: LeaseState) => boolean {
  const { text = '', holder, state, label, roots = false } = page
  const lower = text.toLowerCase()
  return lease =>
    listed(lease) &&
    (holder === undefined || lease.holder.name === holder) &&
    (state === undefined || statusOf(lease) === state) &&
    (label === undefined || hasLabel(lease, label)) &&
    (text === '' || contains(lease.holder.name, lower) || namesOf(lease).some(name => contains(name, lower))) &&
    (!roots || isRoot(lease, listed))
}

function hasLabel({ extras }: LeaseState, [key, value]: NonNullable<ListPart['label']>): boolean {
  return extras?.labels.some(([name, given]) => name === key && (value === undefined || given === value)) ?? false
}

function namesOf({ grants, extras }: LeaseState): string[] {
  const names = [...grants.map(({ resource }) => resource.name), ...(extras?.wants ?? []).map(({ resource }) => resource)]
  return extras?.pool === undefined ? names : [...names, extras.pool.pool]
}

/** A child whose parent is not in the list begins a tree of its own. A lease without names is a session, unless something is registered with it. */
function isRoot({ grants, extras, status }: LeaseState, listed: (lease: LeaseState) => boolean): boolean {
  if (extras?.parent !== undefined) return !listed(extras.parent)
  if ((extras?.children?.size ?? 0) > 0) return true
  if (status === FROZEN || grants.length > 0) return false
  return (
    extras === undefined || (extras.wants.length === 0 && extras.pool === undefined && ![...(extras.entries ?? [])].some(isRegistration))
  )
}

function isRegistration(key: string): boolean {
  return /^(services|pool|board)\//.test(key)
}

/** Compares two places by their keys. Equal keys: by name, or by id. */
function comparison(items: OrderedItems['items'], keys: SortKeys, sign: 1 | -1): (a: number, b: number) => number {
  return (a, b) => {
    const left = keys[a]!
    const right = keys[b]!
    if (left !== right) return left < right ? -sign : sign
    const item = items[a]!
    return 'id' in item ? item.id - (items[b] as LeaseState).id : item.name < (items[b] as Named).name ? -1 : 1
  }
}
