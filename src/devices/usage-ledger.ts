/**
 * Who held and used the devices of one host, and for how long: totals for each user and quarter of a day, kept for some weeks. The host publishes one entry
 * `usage/POOL/HOST/DAY` for each day, and keeps the same in a file, so that a restart loses nothing.
 *
 * Times are wall times of the log, which all hosts share; days are days of UTC. The clocks of hosts may disagree by any amount.
 */

const PREFIX = 'usage'
const DAY = 86_400_000
const QUARTERS = 4
const MAX_DAYS = 35
/** Users of one day. Further users are added up under `OTHERS`. */
const MAX_USERS = 60
const OTHERS = 'others'
const USER_LENGTH = 32
const MAX_STORED = 1 << 21

export function usagePrefix(pool: string): string {
  return `${PREFIX}/${pool}`
}

export function usageKey(pool: string, host: string, day: number): string {
  return `${PREFIX}/${pool}/${host.replaceAll('/', '-')}/${day}`
}

/** Device-seconds of a user in a quarter of a day. */
export interface UsageRow {
  readonly user: string
  /** 0 to 3. */
  readonly quarter: number
  readonly held: number
  /** Of `held`: while the device was busy. */
  readonly busy: number
  /** Use without a lease. */
  readonly unleased: number
}

/** The usage of one day that a host publishes. */
export interface UsageDay {
  readonly host: string
  readonly day: number
  /** Since when the host keeps records. */
  readonly since: number
  /** When this was published. 0: it was not. */
  readonly at: number
  readonly rows: readonly UsageRow[]
}

export type UsageAmounts = Readonly<Partial<Record<'held' | 'busy' | 'unleased', number>>>

interface Totals {
  held: number
  busy: number
  unleased: number
}

export class UsageLedger {
  readonly #host: string
  /** By day, then by user and quarter. In ms. */
  readonly #days = new Map<number, Map<string, Totals[]>>()
  readonly #changed = new Set<number>()
  #since: number | undefined

  constructor(host: string) {
    this.#host = host
  }

  /** Adds device-ms of a user at a time of the log. */
  add(at: number, user: string, amounts: UsageAmounts): void {
    this.#since ??= at
    this.#count(at, user, amounts)
  }

  #count(at: number, user: string, amounts: UsageAmounts): void {
    const day = Math.floor(at / DAY)
    const quarter = Math.floor(((at % DAY) * QUARTERS) / DAY)
    let users = this.#days.get(day)
    if (users === undefined) {
      users = new Map()
      this.#days.set(day, users)
      for (const old of this.#days.keys()) if (old <= day - MAX_DAYS) this.#days.delete(old)
    }
    const name = user.slice(0, USER_LENGTH)
    const key = users.has(name) || users.size < MAX_USERS ? name : OTHERS
    const totals = users.get(key) ?? Array.from({ length: QUARTERS }, () => ({ held: 0, busy: 0, unleased: 0 }))
    users.set(key, totals)
    const total = totals[quarter]!
    for (const name of ['held', 'busy', 'unleased'] as const) total[name] += amounts[name] ?? 0
    this.#changed.add(day)
  }

  /** The days that changed since the last call, or all of them. */
  publish({ all = false }: { readonly all?: boolean } = {}): UsageDay[] {
    const days = this.#list(all ? this.#days.keys() : this.#changed)
    this.#changed.clear()
    return days
  }

  #list(days: Iterable<number>): UsageDay[] {
    // Older days were dropped.
    const oldest = (Math.max(...this.#days.keys()) - MAX_DAYS + 1) * DAY
    const since = Math.max(this.#since ?? 0, oldest)
    return [...days].flatMap(day => {
      const users = this.#days.get(day)
      return users === undefined ? [] : [{ host: this.#host, day, since, at: 0, rows: rowsOf(users) }]
    })
  }

  /** Everything, for a file. */
  save(): string {
    return JSON.stringify(this.#list(this.#days.keys()).map(formatUsage))
  }

  /** Reads what `save` wrote, from before a restart. Ignores what is not understood, and days after `now`, which belong to another log. */
  load(text: string, now: number): void {
    if (text.length > MAX_STORED) return
    let list: unknown
    try {
      list = JSON.parse(text)
    } catch {
      return
    }
    if (!Array.isArray(list)) return
    for (const item of list.slice(0, MAX_DAYS)) {
      const found = typeof item === 'string' ? parseUsage(item) : undefined
      if (found === undefined || found.day > now / DAY || found.host !== this.#host) continue
      for (const { user, quarter, held, busy, unleased } of found.rows) {
        const at = found.day * DAY + (quarter * DAY) / QUARTERS
        this.#count(at, user, { held: held * 1_000, busy: busy * 1_000, unleased: unleased * 1_000 })
      }
      // The count begins within the day: the records do not reach back to its beginning.
      const since = found.since <= now ? found.since : now
      this.#since = Math.min(this.#since ?? since, since)
    }
  }
}

function rowsOf(users: ReadonlyMap<string, readonly Totals[]>): UsageRow[] {
  const seconds = (ms: number) => Math.round(ms / 1_000)
  return [...users]
    .flatMap(([user, totals]) =>
      totals.map(({ held, busy, unleased }, quarter) => ({
        ...{ user, quarter, held: seconds(held), busy: seconds(busy), unleased: seconds(unleased) },
      })),
    )
    .filter(({ held, unleased }) => held + unleased > 0)
}

/** One list for each user, with three numbers for each quarter, so that a day of many users fits into an entry. */
export function formatUsage({ host, day, since, at, rows }: UsageDay): string {
  const users = new Map<string, number[]>()
  for (const { user, quarter, held, busy, unleased } of rows) {
    const numbers = users.get(user) ?? new Array<number>(3 * QUARTERS).fill(0)
    users.set(user, numbers)
    numbers.splice(3 * quarter, 3, held, busy, unleased)
  }
  return JSON.stringify({ host, day, since, at, users: Object.fromEntries(users) })
}

/** Reads what `formatUsage` wrote. Undefined if it is something else: any client that may register there can have written it. */
export function parseUsage(text: string): UsageDay | undefined {
  try {
    const { host, day, since, at, users } = JSON.parse(text) as Readonly<Record<string, unknown>>
    if (typeof host !== 'string' || !isAmount(day) || !isAmount(since) || typeof users !== 'object' || users === null) return undefined
    const rows = Object.entries(users)
      .slice(0, MAX_USERS + 1)
      .flatMap(([user, numbers]) => quartersOf(user.slice(0, USER_LENGTH), numbers))
    return { host, day, since, at: isAmount(at) ? at : 0, rows }
  } catch {
    return undefined
  }
}

function quartersOf(user: string, numbers: unknown): UsageRow[] {
  if (!Array.isArray(numbers) || numbers.length !== 3 * QUARTERS || !numbers.every(isAmount)) return []
  return Array.from({ length: QUARTERS }, (_, quarter) => {
    const [held, busy, unleased] = numbers.slice(3 * quarter) as [number, number, number]
    return { user, quarter, held, busy: Math.min(busy, held), unleased }
  }).filter(({ held, unleased }) => held + unleased > 0)
}

function isAmount(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0 && value < 2 ** 50
}

export interface UsageTotal {
  readonly name: string
  /** Device-ms. */
  readonly held: number
  readonly busy: number
  readonly unleased: number
}

/** Adds up days from the quarter that contains the time `from` on. */
export function totalUsage(days: readonly UsageDay[], from: number, by: 'user' | 'host'): UsageTotal[] {
  const first = Math.floor((from * QUARTERS) / DAY)
  const totals = new Map<string, Totals>()
  for (const { host, day, rows } of days)
    for (const { user, quarter, held, busy, unleased } of rows) {
      if (day * QUARTERS + quarter < first) continue
      const name = by === 'user' ? user : host
      const total = totals.get(name) ?? { held: 0, busy: 0, unleased: 0 }
      totals.set(name, total)
      total.held += held * 1_000
      total.busy += busy * 1_000
      total.unleased += unleased * 1_000
    }
  return [...totals].map(([name, total]) => ({ name, ...total })).sort((a, b) => b.held + b.unleased - a.held - a.unleased)
}
