/**
 * `leasehold pool usage`: who held and used devices, and for how long.
 *
 * It adds up the sums of each day, which stay when a host is gone. For less than a day it adds up the records of the hosts that offer at the moment. For members that no host reports on, such as licences offered by a program, it falls back to what
 * the log knows: the present holders and the last few of each member. The answer says how far back it reaches.
 */
import { type Command, Option } from 'commander'
import { inUtc } from '../../../clock.ts'
import { parseUsage, totalUsage, type UsageDay, type UsageTotal, usagePrefix } from '../../../devices/usage-ledger.ts'
import { dayOf, parseSums, poolOfKey, SUM_GROUPS, SUMS, type SumGroup, sumsPrefix, totalSums } from '../../../devices/usage-sums.ts'
import { inWords, parseDuration } from '../../../duration.ts'
import { LeaseError } from '../../../errors.ts'
import type { PoolMemberView, PoolView } from '../../../lessor.ts'
import { csvLine } from '../../csv.ts'
import { addGlobalOptions, type Invocation, invoke } from '../../invocation.ts'
import { requireValidName } from '../../name.ts'
import type { TableRow } from '../../output.ts'

interface UsageFlags {
  readonly by: SumGroup
  readonly since: string
  readonly csv?: boolean
}

/** An answer reaches this far back, in words. */
interface UsageAnswer {
  readonly totals: readonly UsageTotal[]
  readonly reach: string
}

export function usage(group: Command): void {
  addGlobalOptions(group.command('usage'))
    .summary('show who held and used members of pools, and for how long')
    .argument('[pool]', 'the name of the pool (default: all pools)')
    .addOption(new Option('--by <what>', 'add up for each account, user, host or kind of device').choices([...SUM_GROUPS]).default('user'))
    .option('--since <duration>', 'how far to look back, by whole days (UTC) up to a year; less than a day: to the quarter of a day', '7d')
    .option('--csv', 'print CSV, in device-hours (default: a table)')
    .action(async (name: string | undefined, { by, since, csv = false }: UsageFlags, self: Command) => {
      if (name !== undefined) requireValidName(name)
      const ms = parseDuration(since, '--since')
      await invoke(self, async invocation => {
        const { out } = invocation
        const pools = name === undefined ? await allPools(invocation) : [name]
        if (pools.length === 0) return out.note('there are no pools')
        const rows: TableRow[] = []
        if (csv) await out.text(csvLine(['pool', by, 'held_hours', 'busy_hours', 'unleased_hours']))
        for (const pool of pools) {
          const { totals, reach } = await usageOf(invocation, pool, ms, by)
          const all = totals.reduce((sum, { held }) => sum + held, 0)
          for (const total of totals) {
            if (out.json) await out.data({ pool, by, ...total })
            else if (csv) await out.text(csvLine(csvRow(pool, total)))
            rows.push([pool, ...rowOf(total, all)])
          }
          out.note(`${pool}: ${reach}`, { pool, reach })
        }
        if (out.json || csv) return
        if (rows.length === 0) return out.note(`no use in the last ${inWords(ms)} is recorded`)
        await out.table(['POOL', by.toUpperCase(), 'HELD', 'SHARE', 'BUSY', 'WITHOUT LEASE'], rows)
      })
    })
}

/** The pools that are there, and those whose hosts are gone and have left sums. */
async function allPools({ read }: Invocation): Promise<readonly string[]> {
  const { value: present } = await read({ kind: 'pools' })
  const entries = await read({ kind: 'entries', prefix: SUMS }).catch(withoutRight)
  const left = entries?.value.map(({ key }) => poolOfKey(key)).filter(pool => pool !== '') ?? []
  return [...new Set([...present.map(({ pool }) => pool), ...left])].sort()
}

function withoutRight(error: unknown): undefined {
  if (!LeaseError.is(error, 'FORBIDDEN')) throw error
  return undefined
}

/** A spreadsheet would take a name that begins so for a formula. Users choose these names. */
function csvRow(pool: string, { name, held, busy, unleased }: UsageTotal): (string | number)[] {
  const hours = (ms: number) => Math.round(ms / 36_000) / 100
  return [pool, /^[=+\-@\t\r]/.test(name) ? `'${name}` : name, hours(held), hours(busy), hours(unleased)]
}

function rowOf({ name, held, busy, unleased }: UsageTotal, all: number): TableRow {
  const percent = (part: number, whole: number) => (whole === 0 ? '' : `${Math.round((100 * part) / whole)} %`)
  return [name, deviceHours(held), percent(held, all), percent(busy, held), unleased === 0 ? '' : deviceHours(unleased)]
}

/** One device for one hour, or two devices for half an hour. */
function deviceHours(ms: number): string {
  const hours = ms / 3_600_000
  return `${hours.toFixed(hours < 1 ? 2 : 1)} h`
}

/** From the sums of each day, which stay when a host is gone. Undefined: the pool has none, or the key may not read them. */
async function fromSums({ read, clock }: Invocation, pool: string, since: number, by: SumGroup): Promise<UsageAnswer | undefined> {
  const entries = await read({ kind: 'entries', prefix: sumsPrefix(pool) }).catch(withoutRight)
  const days = entries?.value.flatMap(({ key, value }) => (poolOfKey(key) === pool ? (parseSums(value) ?? []) : [])) ?? []
  if (days.length === 0) return undefined
  // The clock of this host may be off, and the newest sums tell the day of the log while a host offers.
  const today = Math.max(dayOf(clock.wall()), ...days.map(({ day }) => day))
  const first = today - Math.ceil(since / 86_400_000) + 1
  const hosts = new Set(days.filter(({ day }) => day >= first).map(({ host }) => host))
  const oldest = Math.min(...days.map(({ day }) => day))
  const date = inUtc(Math.max(first, oldest) * 86_400_000).slice(0, 10)
  return {
    totals: totalSums(days, first, by),
    reach: `sums of ${hosts.size} ${hosts.size === 1 ? 'host' : 'hosts'} by day (UTC), from ${date} on`,
  }
}

async function usageOf(invocation: Invocation, pool: string, since: number, by: SumGroup): Promise<UsageAnswer> {
  const { read } = invocation
  const isShort = since < 86_400_000 && (by === 'user' || by === 'host')
  const sums = isShort ? undefined : await fromSums(invocation, pool, since, by)
  if (sums !== undefined) return sums
  const { value: view } = await read({ kind: 'pool', pool, limit: 0 })
  if (by === 'account' || by === 'kind') return fromHistory(invocation, view, since, by)
  const { value: entries } = await read({ kind: 'entries', prefix: usagePrefix(pool) })
  const days = entries.map(({ value }) => parseUsage(value)).filter((day): day is UsageDay => day !== undefined)
  if (days.length === 0) return fromHistory(invocation, view, since, by)
  // The clock of this host may be off. The newest report tells the time of the log, to a few minutes.
  const now = Math.max(...days.map(({ at }) => at))
  const hosts = new Map<string, number>()
  for (const { host, since: first } of days) hosts.set(host, Math.min(hosts.get(host) ?? first, first))
  const reach = [...hosts].map(([host, first]) => `${host} for ${inWords(Math.max(0, now - first))}`).join(', ')
  return {
    totals: totalUsage(days, Math.max(0, now - since), by),
    reach: `recorded by ${reach}. Hosts that do not offer at the moment are missing`,
  }
}

/** From the present holders, and the last ones of each member that the log remembers. */
async function fromHistory({ read, clock }: Invocation, view: PoolView, since: number, by: SumGroup): Promise<UsageAnswer> {
  const now = clock.wall()
  const totals = new Map<string, number>()
  const add = (user: string, { host = '(no host)', model = '(none)' }: PoolMemberView['labels'], ms: number) => {
    const name = by === 'host' ? host : by === 'kind' ? model : user
    totals.set(name, (totals.get(name) ?? 0) + ms)
  }
  for (const { resource, labels, grants } of view.members) {
    for (const { account, holder, held } of grants) add(account || holder, labels, Math.min(held, since))
    const { value: past } = await read({ kind: 'history', resource })
    for (const { holder, since: from, until } of past) add(userOf(holder), labels, Math.max(0, until - Math.max(from, now - since)))
  }
  return {
    totals: [...totals].map(([name, held]) => ({ name, held, busy: 0, unleased: 0 })).sort((a, b) => b.held - a.held),
    reach: 'no host keeps records. Counted are present holders and the last 8 of each member, by the times of the log',
  }
}

/** `ann` of `ann@host:4711`. */
function userOf(holder: string): string {
  return holder.split('@', 1)[0]!
}
