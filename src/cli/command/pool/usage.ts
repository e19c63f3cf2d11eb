/**
 * `leasehold pool usage`: who held and used devices, and for how long.
 *
 * It adds up the records of the hosts that offer at the moment. For members that no host reports on, such as licences offered by a program, it falls back to what
 * the log knows: the present holders and the last few of each member. The answer says how far back it reaches.
 */
import { type Command, Option } from 'commander'
import { parseUsage, totalUsage, type UsageDay, type UsageTotal, usagePrefix } from '../../../devices/usage-ledger.ts'
import { inWords, parseDuration } from '../../../duration.ts'
import type { PoolView } from '../../../lessor.ts'
import { addGlobalOptions, type Invocation, invoke } from '../../invocation.ts'
import { requireValidName } from '../../name.ts'
import type { TableRow } from '../../output.ts'

interface UsageFlags {
  readonly by: 'user' | 'host'
  readonly since: string
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
    .addOption(new Option('--by <what>', 'add up for each user, or for each host').choices(['user', 'host']).default('user'))
    .option('--since <duration>', 'how far to look back, to the quarter of a day', '7d')
    .action(async (name: string | undefined, { by, since }: UsageFlags, self: Command) => {
      if (name !== undefined) requireValidName(name)
      const ms = parseDuration(since, '--since')
      await invoke(self, async invocation => {
        const { read, out } = invocation
        const pools = name === undefined ? (await read({ kind: 'pools' })).value.map(({ pool }) => pool) : [name]
        if (pools.length === 0) return out.note('there are no pools')
        const rows: TableRow[] = []
        for (const pool of pools) {
          const { totals, reach } = await usageOf(invocation, pool, ms, by)
          const all = totals.reduce((sum, { held }) => sum + held, 0)
          for (const total of totals) {
            if (out.json) await out.data({ pool, by, ...total })
            rows.push([pool, ...rowOf(total, all)])
          }
          out.note(`${pool}: ${reach}`, { pool, reach })
        }
        if (out.json) return
        if (rows.length === 0) return out.note(`no use in the last ${inWords(ms)} is recorded`)
        await out.table(['POOL', by.toUpperCase(), 'HELD', 'SHARE', 'BUSY', 'WITHOUT LEASE'], rows)
      })
    })
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

async function usageOf(invocation: Invocation, pool: string, since: number, by: 'user' | 'host'): Promise<UsageAnswer> {
  const { read } = invocation
  const { value: view } = await read({ kind: 'pool', pool, limit: 0 })
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
async function fromHistory({ read, clock }: Invocation, view: PoolView, since: number, by: 'user' | 'host'): Promise<UsageAnswer> {
  const now = clock.wall()
  const totals = new Map<string, number>()
  const add = (user: string, host: string, ms: number) => {
    const name = by === 'user' ? user : host
    totals.set(name, (totals.get(name) ?? 0) + ms)
  }
  for (const { resource, labels, grants } of view.members) {
    const host = labels.host ?? '(no host)'
    for (const { account, holder, held } of grants) add(account || holder, host, Math.min(held, since))
    const { value: past } = await read({ kind: 'history', resource })
    for (const { holder, since: from, until } of past) add(userOf(holder), host, Math.max(0, until - Math.max(from, now - since)))
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
