/** `leasehold pool ls` and `leasehold pool queue`: who uses which members, how, and who waits for them. */
import type { Command } from 'commander'
import { type DeviceReport, parseReport, reportPrefix } from '../../../devices/report.ts'
import { inWords } from '../../../duration.ts'
import { LeaseError } from '../../../errors.ts'
import { MAX_POOL_PAGE, type PoolGrantView, type PoolMemberView, type PoolView, type PoolWaiterView } from '../../../lessor.ts'
import { explainPool } from '../../../pool/explain.ts'
import { readDurations } from '../../../pool/learned-durations.ts'
import type { WaitExplanation } from '../../../pool/wait-explanation.ts'
import { startText } from '../../../pool/wait-sentences.ts'
import { usageError } from '../../exit.ts'
import { addGlobalOptions, type Invocation, invoke } from '../../invocation.ts'
import { requireValidName } from '../../name.ts'
import { parseInteger } from '../../option-values.ts'
import { clean, type TableRow, table } from '../../output.ts'
import { drainsOf } from './drain.ts'
import { requestInWords } from './request.ts'
import { freeMembers, keptText } from './reservations.ts'

/** Characters of a member's name that a table shows, if they are enough to tell the members apart. */
const SHORT_NAME = 12

export function ls(group: Command): void {
  addGlobalOptions(group.command('ls'))
    .summary('list the pools, or the members of one: who has them, for how long, and how they are used')
    .argument('[pool]', 'the name of the pool (default: list all pools)')
    .action(async (pool: string | undefined, _: unknown, self: Command) => {
      if (pool !== undefined) requireValidName(pool)
      await invoke(self, invocation => (pool === undefined ? listPools(invocation) : listMembers(invocation, pool)))
    })
}

/** Waiters that are listed unless --limit says how many. Each is explained, which takes some milliseconds. */
const DEFAULT_LISTED = '100'

export function queue(group: Command): void {
  addGlobalOptions(group.command('queue'))
    .summary('list who waits for members of a pool, when each will probably start, and the reservations')
    .argument('<pool>', 'the name of the pool')
    .option('--limit <count>', `the most waiters to list, up to ${MAX_POOL_PAGE}`, DEFAULT_LISTED)
    .option('--skip <count>', 'list waiters from this place on, without their starts: 100 leaves out the first 100', '0')
    .option('--explain', 'say for each waiter what is in its way, and what it could ask for instead to start sooner')
    .action(async (pool: string, { explain = false, ...flags }: QueueFlags, self: Command) => {
      requireValidName(pool)
      const limit = parseCount(flags.limit, '--limit', 1, MAX_POOL_PAGE)
      const skip = parseCount(flags.skip, '--skip', 0, Number.MAX_SAFE_INTEGER)
      await invoke(self, async ({ read, out, clock }) => {
        const { value: view, revision } = await read({ kind: 'pool', pool, limit, skip })
        const duration = await readDurations(view, async name => (await read({ kind: 'durations', class: name })).value)
        // A start follows from all waiters before it.
        const explained = skip === 0 ? explainPool(view, { limit, whatIf: explain, duration }) : []
        if (out.json) {
          for (const [at, waiter] of view.queue.entries())
            await out.data({ pool, ...waiter, ...forPrograms(explained[at], explain), revision })
          return
        }
        if (view.waiting === 0) return out.note(`no client waits for members of ${pool}`)
        const now = clock.wall()
        if (explain && skip === 0) await out.text(explained.map(({ text }) => text.map(clean).join('\n')).join('\n\n'))
        else
          await out.table(
            ['PLACE', 'ACCOUNT', 'WANTS', 'EXPECTS', 'PRIORITY', 'WAITING FOR', 'STARTS', 'LEASE', 'HOLDER'],
            view.queue.map((waiter, at) => queueRow(waiter, explained[at], now)),
          )
        const shown = skip + view.queue.length
        if (shown < view.waiting) out.note(`${view.waiting - shown} more wait; to list them, add: --skip ${shown}`)
      })
    })
}

function parseCount(text: string, option: string, low: number, high: number): number {
  const count = parseInteger(text, option)
  if (count < low || count > high)
    throw usageError(`${option} is a number from ${low} to ${high}, not ${text}`, 'Correct the value, or run: leasehold pool queue --help')
  return count
}

interface QueueFlags {
  readonly limit: string
  readonly skip: string
  readonly explain?: boolean
}

function forPrograms(explained: WaitExplanation | undefined, inFull: boolean): object {
  if (explained === undefined) return {}
  const { reasons, blockers, start, alternatives } = explained
  return inFull ? { start, reasons, blockers, alternatives } : { start }
}

function queueRow(
  { position, account, holder, request, priority, since, lease, possible, maxLife }: PoolWaiterView,
  explained: WaitExplanation | undefined,
  now: number,
): TableRow {
  const place =
    request.from !== undefined && request.from > 0
      ? `in ${inWords(request.from)}`
      : possible
        ? position + 1
        : `${position + 1} (too few members)`
  const length = request.expect ?? 0
  const expects = length > 0 ? inWords(length) : maxLife > 0 ? `at most ${inWords(maxLife)}` : ''
  const waiting = request.from !== undefined && request.from > 0 ? 'reservation' : inWords(Math.max(0, now - since))
  const starts = explained === undefined ? '' : explained.start === undefined ? 'unknown' : startText(explained.start)
  return [place, account || holder, requestInWords(request), expects, priority, waiting, starts, lease, holder]
}

async function listPools({ read, out }: Invocation): Promise<void> {
  const { value, revision } = await read({ kind: 'pools' })
  if (out.json) {
    for (const pool of value) await out.data({ ...pool, revision })
    return
  }
  if (value.length === 0)
    return out.note('there are no pools. To offer the GPUs of this host, run: leasehold pool offer gpus --discover nvidia')
  await out.table(
    ['POOL', 'MEMBERS', 'UNITS', 'TAKEN', 'WAITING', 'RESERVATIONS'],
    value.map(({ pool, members, units, used, waiting, reservations }) => [pool, members, units, used, waiting, reservations]),
  )
}

async function listMembers(invocation: Invocation, pool: string): Promise<void> {
  const { read, out } = invocation
  const { value: view, revision } = await read({ kind: 'pool', pool, limit: 0 })
  const reports = await reportsOf(invocation, pool)
  const drains = await drainsOf(invocation, pool)
  if (out.json) {
    for (const member of view.members) await out.data({ pool, ...member, report: reports.get(member.member), revision })
    return
  }
  if (view.members.length === 0)
    return out.note(`the pool ${pool} has no members. To offer the GPUs of this host, run: leasehold pool offer ${pool} --discover nvidia`)
  const short = shortNames(view.members.map(({ member }) => member))
  const now = invocation.clock.wall()
  const rows = view.members.flatMap(member => memberRows(member, short, reports.get(member.member), now))
  const ahead = drains.filter(({ from }) => from > now)
  const free = freeMembers(view.members).length
  const waiting = view.waiting - view.reservations.length
  const lines = [
    `${clean(pool)}: ${free} of ${view.members.length} members free, ${waiting} waiting${reserved(view)}`,
    '',
    table(['MEMBER', 'MODEL', 'GIB', 'HOST', 'STATE', 'ACCOUNT', 'HELD FOR', 'EXPECTED', 'USE', 'LEASE'], rows, { bold: out.colour }),
    ...keptLines(view),
    ...ahead.map(({ target, from }) =>
      clean(`${'host' in target ? `host ${target.host}` : short(target.member)} is drained in ${inWords(from - now)}.`),
    ),
    ...warnings(view, short, reports),
  ]
  await out.text(lines.join('\n'))
}

function keptLines(view: PoolView): string[] {
  const kept = keptText(view)
  return kept === undefined ? [] : ['', clean(`Of the free members, ${kept}. A lease whose --for ends before may have them.`)]
}

/** Returns what the hosts report. Empty if the key may not read it. */
export async function reportsOf(
  { lessor, signal }: Pick<Invocation, 'lessor' | 'signal'>,
  pool: string,
): Promise<ReadonlyMap<string, DeviceReport>> {
  const prefix = reportPrefix(pool)
  try {
    const { value } = await lessor.read({ kind: 'entries', prefix }, { signal })
    const found = value.map(({ key, value }) => [key.slice(prefix.length + 1), parseReport(value)] as const)
    return new Map(found.filter((pair): pair is [string, DeviceReport] => pair[1] !== undefined))
  } catch (error) {
    if (LeaseError.is(error, 'FORBIDDEN')) return new Map()
    throw error
  }
}

function memberRows(member: PoolMemberView, short: (name: string) => string, report: DeviceReport | undefined, now: number): TableRow[] {
  const { labels, grants, status, units, used } = member
  const first = [short(member.member), labels.model ?? labels.kind ?? '', labels.mem ?? '', labels.host ?? '']
  const state = status !== 'live' ? status : used === 0 ? 'free' : used < units ? `${used} of ${units}` : 'taken'
  if (grants.length === 0) return [[...first, state, '', '', '', useOf(report), '']]
  return grants.map((grant, i) => [
    ...(i === 0 ? [...first, state] : ['', '', '', '', '']),
    ...[grant.account || grant.holder, inWords(heldFor(grant, now)), expected(grant), i === 0 ? useOf(report) : '', grant.lease],
  ])
}

/** In ms. The log measures how long an account holds a member. A lease that `adopt` made has no account, so its time is that of the clock of this host. */
function heldFor({ account, held, since }: PoolGrantView, now: number): number {
  return account === '' && held === 0 ? Math.max(0, now - since) : held
}

/** The end that the holder expects. Log times: the clocks of this host and the server need not agree. */
function expected({ expect, held, maxLife, recalled, status }: PoolGrantView): string {
  if (status === 'frozen') return 'ending'
  if (recalled) return 'asked back'
  const left = expect > 0 ? expect - held : undefined
  if (left !== undefined) return left > 0 ? `${inWords(left)} left` : `${inWords(-left)} over`
  return maxLife > 0 ? `at most ${inWords(Math.max(0, maxLife - held))}` : ''
}

function useOf(report: DeviceReport | undefined): string {
  if (report === undefined) return ''
  const { utilisation, memoryUsed, unleased, stage, idle, problem } = report
  const parts = [
    ...(utilisation === undefined ? [] : [`${Math.round(utilisation)} %`]),
    ...(memoryUsed === undefined ? [] : [`${memoryUsed} GiB`]),
    ...(stage === 'none' ? [] : [`idle ${inWords(idle)}`]),
    ...(unleased === 0 ? [] : ['NO LEASE']),
    ...(problem === undefined ? [] : ['unknown']),
  ]
  return parts.join(', ')
}

function warnings(view: PoolView, short: (name: string) => string, reports: ReadonlyMap<string, DeviceReport>): string[] {
  const lines = view.members.flatMap(({ member }) => {
    const { host, processes = [], problem } = reports.get(member) ?? {}
    const strangers = processes
      .filter(({ lease }) => lease === 0)
      .map(
        ({ pid, user, name }) =>
          `${short(member)} is used without a lease: process ${pid} of ${user}${name === undefined ? '' : ` (${name})`} on ${host}`,
      )
    return problem === undefined ? strangers : [...strangers, `${short(member)}: ${problem}`]
  })
  return lines.length === 0 ? [] : ['', ...[...new Set(lines)].map(clean)]
}

function reserved({ reservations }: PoolView): string {
  const [next] = reservations
  if (next === undefined) return ''
  return `, ${reservations.length} reserved (next: ${next.account || next.holder} in ${inWords(Math.max(0, next.request.from ?? 0))})`
}

/** Shortens UUIDs if the short names are still different. */
function shortNames(names: readonly string[]): (name: string) => string {
  const isUnique = new Set(names.map(name => name.slice(0, SHORT_NAME))).size === names.length
  return name => (isUnique ? name.slice(0, SHORT_NAME) : name)
}
