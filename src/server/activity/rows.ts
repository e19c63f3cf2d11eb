/**
 * Tables of resources and leases, filtered and sorted by the server, for pages that show a few of very many rows.
 *
 * The rows that a caller may see are read once and kept for a short time, so that scrolling and sorting cost no new read. Rows are short: about 200 bytes each.
 */
import { type Clock, turn } from '../../clock.ts'
import { under } from '../../kernel/name.ts'
import type { GrantView, LeaseStatus, LeaseView, ResourceView } from '../../lessor.ts'
import type { ROW_SORTS, ROW_STATES } from '../../wire/http/activity-schema.ts'
import type { Caller } from '../access-control.ts'
import { type GuardedLessor, MAX_LISTED } from '../guarded-lessor.ts'

/** A table that was read longer ago is read again, in ms. A caller that has one already is answered from it meanwhile. */
const FRESH = 2_000
/** Reading takes at most this share of the time: a long list is read less often. */
const READING_SHARE = 0.05
/** A table that was read longer ago is not answered from, and one that was not asked for during this time is forgotten, in ms. */
const KEPT = 15_000
/** Tables that are kept, over all callers. */
const MAX_TABLES = 8
/** Rows that are made, compared or sorted in one turn of the event loop. */
const ROWS_PER_TURN = 4_096
/** Names of a lease that its row shows. */
const MAX_NAMES = 4
const MAX_VALUE = 200

/** `held`, `waited` and `frozen` are states of resources, the others of leases. */
export type RowState = (typeof ROW_STATES)[number]

interface Row {
  readonly name: string
  readonly holder: string
  readonly lease: number
  readonly state: RowState
  readonly token: number
  readonly since: number
  /** Wall time at which it ends unless it is renewed; 0: none. */
  readonly end: number
  readonly waiters: number
}

interface ResourceRow extends Row {
  readonly holders: number
  readonly oldestWait: number
}

interface LeaseRow extends Row {
  readonly ttl: number
  readonly resources: readonly string[]
  readonly more: number
  readonly wants: readonly string[]
  readonly labels: readonly (readonly [string, string])[]
  readonly parent: number
  readonly children: number
  readonly recalled: boolean
}

export interface RowRequest {
  readonly of: 'resources' | 'leases'
  readonly prefix?: string
  readonly text?: string
  readonly holder?: string
  readonly label?: string
  readonly state?: RowState
  /** A column, with a minus to sort from the largest. */
  readonly sort?: `${'' | '-'}${(typeof ROW_SORTS)[number]}`
  readonly offset?: number
  readonly limit?: number
}

export interface RowPage {
  readonly of: string
  readonly total: number
  readonly offset: number
  readonly rows: readonly object[]
  readonly revision: number
  readonly at: number
  readonly more?: true
}

/** What was read for one caller. */
interface RowTable {
  readonly rows: readonly Row[]
  readonly revision: number
  /** By the server's monotonic clock. */
  readonly readAt: number
  readonly took: number
  readonly more: boolean
  /** The last filter and order, and what they gave: scrolling asks for the same again. */
  sorted?: { readonly by: string; readonly rows: readonly Row[] }
}

interface KeptTable {
  table?: RowTable
  reading?: Promise<RowTable> | undefined
}

export class RowTables {
  static readonly #byServer = new WeakMap<GuardedLessor, RowTables>()
  readonly #guarded: GuardedLessor
  readonly #clock: Clock
  readonly #tables = new Map<string, KeptTable>()
  #cancelSweep: (() => void) | undefined

  static of(guarded: GuardedLessor, clock: Clock): RowTables {
    let tables = RowTables.#byServer.get(guarded)
    if (tables === undefined) {
      tables = new RowTables(guarded, clock)
      RowTables.#byServer.set(guarded, tables)
    }
    return tables
  }

  private constructor(guarded: GuardedLessor, clock: Clock) {
    this.#guarded = guarded
    this.#clock = clock
  }

  async page(caller: Caller, request: RowRequest, signal: AbortSignal): Promise<RowPage> {
    const { of, offset = 0, limit = 100 } = request
    this.#guarded.access.admit(caller)
    const table = await this.#table(caller, request, signal)
    const rows = await sorted(table, request)
    const now = this.#clock.wall()
    const shown = await Promise.all(
      rows.slice(offset, offset + limit).map(async row => ({ ...shownRow(of, row, now), ...(await this.#about(caller, row)) })),
    )
    return { of, total: rows.length, offset, rows: shown, revision: table.revision, at: now, ...(table.more && { more: true }) }
  }

  /** The rows that a caller may see. Every key has its own, and so does the prefix where there are too many for one table. */
  async #table(caller: Caller, { of, prefix = '' }: RowRequest, signal: AbortSignal): Promise<RowTable> {
    const whole = await this.#kept(`${caller.operator === true} ${caller.key} ${of} `, () => this.#read(caller, of, '', signal))
    if (!whole.more || prefix === '') return whole
    return this.#kept(`${caller.operator === true} ${caller.key} ${of} ${prefix}`, () => this.#read(caller, of, prefix, signal))
  }

  #kept(key: string, read: () => Promise<RowTable>): RowTable | Promise<RowTable> {
    const kept = this.#tables.get(key) ?? {}
    const now = this.#clock.now()
    this.#tables.delete(key)
    this.#tables.set(key, kept)
    if (this.#tables.size > MAX_TABLES) this.#tables.delete(this.#tables.keys().next().value!)
    this.#cancelSweep?.()
    this.#cancelSweep = this.#clock.after(KEPT, () => this.#tables.clear())
    const age = kept.table === undefined ? Number.POSITIVE_INFINITY : now - kept.table.readAt
    if (age > Math.max(FRESH, (kept.table?.took ?? 0) / READING_SHARE))
      kept.reading ??= read()
        .then(table => (kept.table = table))
        .finally(() => (kept.reading = undefined))
    if (age > KEPT && kept.reading !== undefined) return kept.reading
    kept.reading?.catch(() => {}) // the next caller asks again
    return kept.table!
  }

  async #read(caller: Caller, of: 'resources' | 'leases', prefix: string, signal: AbortSignal): Promise<RowTable> {
    const at = this.#clock.wall()
    const readAt = this.#clock.now()
    const rows: Row[] = []
    const make = async <T>(items: readonly T[], rowOf: (item: T, at: number) => Row) => {
      for (let i = 0; i < items.length; i++) {
        if (i > 0 && i % ROWS_PER_TURN === 0) await turn()
        rows.push(rowOf(items[i]!, at))
      }
    }
    const options = { signal }
    if (of === 'resources') {
      const {
        revision,
        value,
        more = false,
      } = await this.#guarded.read<'resources'>(caller, { kind: 'resources', prefix, limit: MAX_LISTED }, options)
      await make(value, resourceRow)
      return { rows, revision, readAt, took: this.#clock.now() - readAt, more }
    }
    const query = { kind: 'leases', limit: MAX_LISTED, ...(prefix !== '' && { prefix }) } as const
    const { revision, value, more = false } = await this.#guarded.read<'leases'>(caller, query, options)
    await make(value, leaseRow)
    return { rows, revision, readAt, took: this.#clock.now() - readAt, more }
  }

  /** What a row shows of the lease behind it, if the caller may see that lease. */
  async #about(caller: Caller, { lease }: Row): Promise<{ readonly purpose?: string; readonly ttl?: number }> {
    if (lease === 0) return {}
    const { access, lessor } = this.#guarded
    const query = { kind: 'lease', lease } as const
    const { value } = access.filter(caller, query, await lessor.read<'lease'>(query))
    if (value === undefined) return {}
    const purpose = value.labels.find(([key]) => key === 'purpose')?.[1]
    return { ttl: value.ttl, ...(purpose !== undefined && { purpose: purpose.slice(0, MAX_VALUE) }) }
  }
}

function resourceRow({ resource, grants, queue }: ResourceView, at: number): ResourceRow {
  const first: GrantView | undefined = grants[0]
  return {
    name: resource,
    holder: first?.holder ?? '',
    lease: first?.lease ?? 0,
    state: first === undefined ? 'waited' : first.status === 'frozen' ? 'frozen' : 'held',
    token: first?.token ?? 0,
    since: first?.since ?? 0,
    end: first === undefined ? 0 : at + first.remaining,
    waiters: queue.length,
    holders: grants.length,
    oldestWait: queue.reduce((oldest, { since }) => (oldest === 0 ? since : Math.min(oldest, since)), 0),
  }
}

function leaseRow(lease: LeaseView, at: number): LeaseRow {
  const { grants, wants, labels, children } = lease
  const resources = grants.slice(0, MAX_NAMES).map(({ resource }) => resource)
  return {
    name: resources[0] ?? wants[0]?.resource ?? lease.entries[0]?.key ?? '',
    holder: lease.holder,
    lease: lease.lease,
    state: lease.status as LeaseStatus,
    token: grants[0]?.token ?? 0,
    since: lease.since,
    end: at + lease.remaining,
    waiters: wants.length,
    ttl: lease.ttl,
    resources,
    more: Math.max(0, grants.length - MAX_NAMES),
    wants: wants.slice(0, MAX_NAMES).map(({ resource }) => resource),
    labels,
    parent: lease.parent,
    children: children.length,
    recalled: lease.recalled,
  }
}

function shownRow(of: RowRequest['of'], { name, state, end, ...row }: Row, now: number): object {
  const remaining = end === 0 ? 0 : Math.max(0, Math.round(end - now))
  if (of === 'resources') return { resource: name, status: state, remaining, ...row }
  const { waiters: _, token: __, ...lease } = row
  return { ...lease, status: state, remaining }
}

async function sorted(
  table: RowTable,
  { prefix = '', text = '', holder, label, state, sort = 'name' }: RowRequest,
): Promise<readonly Row[]> {
  const by = JSON.stringify([prefix, text, holder, label, state, sort])
  if (table.sorted?.by === by) return table.sorted.rows
  const sought = text.toLowerCase()
  const [key, value] = label === undefined ? [] : labelOf(label)
  const matches = (row: Row) =>
    (prefix === '' || namesOf(row).some(name => under(prefix, name))) &&
    (holder === undefined || row.holder === holder) &&
    (state === undefined || row.state === state) &&
    (sought === '' || row.holder.toLowerCase().includes(sought) || namesOf(row).some(name => name.toLowerCase().includes(sought))) &&
    (key === undefined || ((row as LeaseRow).labels ?? []).some(([k, v]) => k === key && (value === undefined || v === value)))
  const descending = sort.startsWith('-')
  const column = COLUMNS[(descending ? sort.slice(1) : sort) as (typeof ROW_SORTS)[number]]
  const sign = descending ? -1 : 1
  const compare = (a: Row, b: Row) => sign * order(column(a), column(b)) || order(a.name, b.name) || a.lease - b.lease
  const runs: Row[][] = []
  for (let at = 0; at < table.rows.length; at += ROWS_PER_TURN) {
    if (at > 0) await turn()
    runs.push(
      table.rows
        .slice(at, at + ROWS_PER_TURN)
        .filter(matches)
        .sort(compare),
    )
  }
  const rows = await merged(runs, compare)
  table.sorted = { by, rows }
  return rows
}

/** One sorted list of several, in steps: sorting a hundred thousand rows at once would delay renewals. */
async function merged(runs: readonly Row[][], compare: (a: Row, b: Row) => number): Promise<Row[]> {
  if (runs.length <= 1) return runs[0] ?? []
  const half = runs.length >> 1
  const left = await merged(runs.slice(0, half), compare)
  const right = await merged(runs.slice(half), compare)
  const rows: Row[] = []
  let [l, r] = [0, 0]
  while (l < left.length || r < right.length) {
    if (rows.length % ROWS_PER_TURN === ROWS_PER_TURN - 1) await turn()
    const takeLeft = r === right.length || (l < left.length && compare(left[l]!, right[r]!) <= 0)
    rows.push(takeLeft ? left[l++]! : right[r++]!)
  }
  return rows
}

const COLUMNS: Readonly<Record<(typeof ROW_SORTS)[number], (row: Row) => string | number>> = {
  name: row => row.name,
  holder: row => row.holder,
  since: row => row.since,
  remaining: row => row.end,
  waiters: row => row.waiters,
  token: row => row.token,
}

function order<T extends string | number>(a: T, b: T): number {
  return a < b ? -1 : a > b ? 1 : 0
}

function namesOf(row: Row): readonly string[] {
  const { resources, wants } = row as Partial<LeaseRow>
  return resources === undefined ? [row.name] : [row.name, ...resources, ...wants!]
}

function labelOf(text: string): readonly [key: string, value: string | undefined] {
  const equals = text.indexOf('=')
  return equals < 0 ? [text, undefined] : [text.slice(0, equals), text.slice(equals + 1)]
}
