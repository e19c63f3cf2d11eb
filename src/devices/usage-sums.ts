/**
 * Who held and used the devices of a host on each day: sums by account, user and kind of device. They are entries `leasehold/usage/POOL/HOST/DAY` that belong to no
 * lease, so they stay when the host is gone. A policy bounds their number (`freeEntries` of `leasehold/usage`). Each host removes its own after a year, and a week later
 * those of hosts that are gone.
 *
 * They are for people: a key that may register there can write anything, and nothing is decided by them. Days are days of UTC, by the time of the log.
 */
export const SUMS = 'leasehold/usage'
const DAY = 86_400_000
/** Days that the sums of a host are kept. */
export const KEPT_DAYS = 366
/** Days for which a host that is gone may still come back and remove its own. */
const FOR_OWNER = 7
/** Days whose sums of other hosts are looked for: as long no host may have offered. */
const LOOKED_BACK = 60
/** Rows of one day. Further ones are added up under `OTHERS`. */
const MAX_ROWS = 60
const OTHERS = 'others'
const NAME_LENGTH = 32
/** A longer value was not written here. */
const LONGEST_VALUE = 16_384

/** Device-seconds of a day. */
export interface UsageSum {
  readonly account: string
  /** The login of the user. */
  readonly user: string
  /** The model of the devices. */
  readonly kind: string
  readonly held: number
  /** Of `held`: while the device was busy. */
  readonly busy: number
  /** Use without a lease. */
  readonly unleased: number
}

export interface DaySums {
  readonly host: string
  readonly day: number
  readonly sums: readonly UsageSum[]
}

export type UsageOwner = Pick<UsageSum, 'account' | 'user' | 'kind'>
type Amounts = Pick<UsageSum, 'held' | 'busy' | 'unleased'>

/** The entries with the sums of a pool, or of one of its hosts. */
export function sumsPrefix(pool: string, host?: string): string {
  return host === undefined ? `${SUMS}/${pool}` : `${SUMS}/${pool}/${host.replaceAll('/', '-')}`
}

export function sumsKey(pool: string, host: string, day: number): string {
  return `${sumsPrefix(pool, host)}/${day}`
}

export function dayOf(at: number): number {
  return Math.floor(at / DAY)
}

/** The days of which a host removes what others have left. */
export function daysLeft(today: number): readonly number[] {
  return Array.from({ length: LOOKED_BACK }, (_, i) => today - KEPT_DAYS - FOR_OWNER - i)
}

/** The pool in the key of an entry; empty if it has none. */
export function poolOfKey(key: string): string {
  return /^leasehold\/usage\/(.+)\/[^/]+\/\d{1,9}$/.exec(key)?.[1] ?? ''
}

/** The day in the key of an entry. NaN if it has none. */
export function dayOfKey(key: string): number {
  return Number(/\/(\d{1,9})$/.exec(key)?.[1] ?? Number.NaN)
}

/** The sums of one host for the days that it counts now. Times are in ms. */
export class UsageSums {
  readonly #days = new Map<number, Map<string, UsageOwner & { held: number; busy: number; unleased: number }>>()

  /** Adds to a day. */
  add(day: number, { account, user, kind }: UsageOwner, amounts: Partial<Amounts>): void {
    const rows = this.#days.get(day) ?? new Map()
    this.#days.set(day, rows)
    const named = { account: account.slice(0, NAME_LENGTH), user: user.slice(0, NAME_LENGTH), kind: kind.slice(0, NAME_LENGTH) }
    const key = JSON.stringify(Object.values(named))
    const owner = rows.has(key) || rows.size < MAX_ROWS ? named : { account: OTHERS, user: OTHERS, kind: named.kind && OTHERS }
    const ownerKey = JSON.stringify(Object.values(owner))
    const row = rows.get(ownerKey) ?? { ...owner, held: 0, busy: 0, unleased: 0 }
    rows.set(ownerKey, row)
    for (const name of ['held', 'busy', 'unleased'] as const) row[name] += amounts[name] ?? 0
  }

  /** Adds what was written for a day before a restart. */
  load({ day, sums }: DaySums): void {
    for (const { held, busy, unleased, ...owner } of sums)
      this.add(day, owner, { held: held * 1_000, busy: busy * 1_000, unleased: unleased * 1_000 })
  }

  days(): number[] {
    return [...this.#days.keys()]
  }

  /** The value of the entry of a day. */
  format(day: number, host: string): string {
    const seconds = (ms: number) => Math.round(ms / 1_000)
    const rows = [...(this.#days.get(day)?.values() ?? [])].map(({ account, user, kind, held, busy, unleased }) => {
      return [account, user, kind, seconds(held), seconds(busy), seconds(unleased)]
    })
    return JSON.stringify({ host, day, sums: rows })
  }

  forget(day: number): void {
    this.#days.delete(day)
  }
}

/** Reads what `format` wrote. Undefined if it is something else. */
export function parseSums(value: string): DaySums | undefined {
  if (value.length > LONGEST_VALUE) return undefined
  try {
    const { host, day, sums } = JSON.parse(value) as Readonly<Record<string, unknown>>
    if (typeof host !== 'string' || !isAmount(day) || !Array.isArray(sums)) return undefined
    return { host, day, sums: sums.slice(0, MAX_ROWS + 2).flatMap(sumOf) }
  } catch {
    return undefined
  }
}

function sumOf(row: unknown): UsageSum[] {
  if (!Array.isArray(row) || row.length !== 6) return []
  const [account, user, kind, held, busy, unleased] = row as unknown[]
  if (![account, user, kind].every(text => typeof text === 'string' && text.length <= NAME_LENGTH)) return []
  if (!isAmount(held) || !isAmount(busy) || !isAmount(unleased)) return []
  return [{ account: account as string, user: user as string, kind: kind as string, held, busy: Math.min(busy, held), unleased }]
}

function isAmount(value: unknown): value is number {
  return typeof value === 'number' && Number.isFinite(value) && value >= 0 && value < 2 ** 50
}

export const SUM_GROUPS = ['account', 'user', 'host', 'kind'] as const
export type SumGroup = (typeof SUM_GROUPS)[number]

/** Adds up the days from `first` on, in device-ms. The largest come first. */
export function totalSums(days: readonly DaySums[], first: number, by: SumGroup): ({ readonly name: string } & Amounts)[] {
  const totals = new Map<string, { held: number; busy: number; unleased: number }>()
  for (const { host, day, sums } of days)
    for (const sum of day < first ? [] : sums) {
      const name = (by === 'host' ? host : sum[by]) || '(none)'
      const total = totals.get(name) ?? { held: 0, busy: 0, unleased: 0 }
      totals.set(name, total)
      for (const amount of ['held', 'busy', 'unleased'] as const) total[amount] += sum[amount] * 1_000
    }
  return [...totals].map(([name, total]) => ({ name, ...total })).sort((a, b) => b.held + b.unleased - a.held - a.unleased)
}
