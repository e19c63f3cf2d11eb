/** The options that commands share that ask for members of a pool, and what they tell the command that runs with them. */
import { hostname } from 'node:os'
import { basename } from 'node:path'
import type { Command } from 'commander'
import { holderLabels } from '../../../devices/attribution.ts'
import { procProcesses } from '../../../devices/host-processes.ts'
import { parseDuration } from '../../../duration.ts'
import { LeaseError } from '../../../errors.ts'
import type { PoolCondition, PoolRequest } from '../../../kernel/command.ts'
import type { Lease } from '../../../lease.ts'
import type { PoolMemberView, PoolView } from '../../../lessor.ts'
import { matchText, parseMatch } from '../../../pool/match.ts'
import type { TakeOptions } from '../../../recipe/pool.ts'
import { CommandFailure, EXIT, failureOf, usageError } from '../../exit.ts'
import type { Invocation } from '../../invocation.ts'
import { collect, parseInteger } from '../../option-values.ts'

const DEFAULT_TTL = '30s'

export interface RequestFlags {
  readonly count?: string
  readonly units?: string
  readonly total?: string
  readonly match?: readonly string[]
  readonly near?: string
  readonly expect?: string
  readonly account?: string
  readonly preemptible?: boolean
  readonly priority?: string
  readonly for?: string
  readonly ttl?: string
  readonly host?: string
  readonly anywhere?: boolean
}

const OPTIONS = {
  count: ['-n, --count <n>', 'how many members (default: 1)'],
  units: ['--units <n>', 'how many units of each member (default: all of them, alone)'],
  total: ['--total <n>', 'instead of -n: this many units in all, on as few members as possible'],
  near: ['--near <label>', 'all members have the same value of this label, for example host'],
  expect: ['--expect <duration>', 'how long you will probably need them, for others who plan, or auto: as long as before; it ends nothing'],
  for: ['--for <duration>', 'how long you may keep them at most; see leasehold pool extend (default: no limit)'],
  account: ['--account <name>', 'the user or team that they count for (default: your user name, or the account that the key is bound to)'],
  preemptible: ['--preemptible', 'may be ended for others, after a notice'],
  priority: ['--priority <n>', 'place in the queue, -1000 to 1000; higher goes first (default: 0)'],
  anywhere: ['--anywhere', 'also members of other hosts (default: those of this host, if members have the label host)'],
  host: ['--host <name>', 'the name of this host (default: its host name)'],
} as const

export function addRequestOptions(command: Command, without: readonly string[] = []): Command {
  command.option('--match <conditions>', "conditions on labels, such as 'model in (a100,h100), mem>=40, !broken'; may be repeated", collect)
  for (const [name, [flag, description]] of Object.entries(OPTIONS)) if (!without.includes(name)) command.option(flag, description)
  if (!without.includes('ttl'))
    command.option(
      '--ttl <duration>',
      'how long the members stay taken after this process died; auto: as learned from past leases',
      DEFAULT_TTL,
    )
  return command
}

/** The name of the user, as `pool ls` shows it. */
export function userName(): string {
  return procProcesses.userName(process.getuid?.() ?? -1)
}

/** The name under which this process holds leases, if none was set. */
export function defaultHolder(host = hostname()): string {
  return `${userName()}@${host}:${process.pid}`
}

/** Labels that tell who holds the lease: the host finds the processes on its devices by them. */
export function labelsOf({ pid, command, host = hostname() }: { readonly pid: number; readonly command?: string; readonly host?: string }) {
  const started = procProcesses.find(pid)?.started ?? 0
  const name = command === undefined ? undefined : basename(command).slice(0, 64)
  return { ...holderLabels({ user: userName(), host, pid, started }), ...(name !== undefined && name !== '' && { command: name }) }
}

type AskedOptions = Omit<TakeOptions, 'wait' | 'ifAvailable' | 'signal' | 'onWait'>

/** The request of a command to a pool, as options of the library. */
export interface ParsedRequest {
  /** Undefined with --total. */
  readonly count: number | undefined
  readonly options: AskedOptions
  readonly conditions: readonly PoolCondition[]
}

/**
 * Asks with the account of the options. If that is only the default, the user name, and the key is bound to other accounts, asks again with the first of
 * those: a refused request has changed nothing.
 */
export async function withBoundAccount<T>(
  { account: given }: RequestFlags,
  account: string | undefined,
  ask: (account: string | undefined) => Promise<T>,
): Promise<T> {
  try {
    return await ask(account)
  } catch (error) {
    const { accounts } = LeaseError.is(error, 'FORBIDDEN') ? (error.facts as { readonly accounts?: readonly string[] }) : {}
    const own = given === undefined ? accounts?.find(name => !name.endsWith('*')) : undefined
    if (own === undefined || own === account) throw error
    return ask(own)
  }
}

export function parseRequest(flags: RequestFlags): ParsedRequest {
  const {
    count,
    units,
    total,
    match = [],
    near,
    expect,
    account = userName(),
    preemptible,
    priority,
    for: length,
    ttl = DEFAULT_TTL,
  } = flags
  if (total !== undefined && (count !== undefined || units !== undefined))
    throw usageError('--total replaces -n and --units', 'Use --total alone, or -n with --units.')
  const conditions = match.flatMap(parseMatch)
  return {
    count: total !== undefined ? undefined : count === undefined ? 1 : positive(count, '-n'),
    conditions,
    options: {
      ttl: ttl === 'auto' ? ttl : parseDuration(ttl, '--ttl'),
      match: conditions,
      account,
      ...(units !== undefined && { units: positive(units, '--units') }),
      ...(total !== undefined && { total: positive(total, '--total') }),
      ...(near !== undefined && { near }),
      ...(expect !== undefined && { expect: expect === 'auto' ? expect : parseDuration(expect, '--expect') }),
      ...(preemptible === true && { preemptible }),
      ...(priority !== undefined && { priority: parseInteger(priority, '--priority') }),
      ...(length !== undefined && { maxLife: parseDuration(length, '--for') }),
    },
  }
}

function positive(text: string, option: string): number {
  const value = parseInteger(text, option)
  if (value < 1) throw usageError(`${option} takes a number above 0, not ${text}`, 'Correct the value.')
  return value
}

/**
 * Adds a condition for the members of this host. A command that runs here cannot use the devices of another host, and would fail with them after it has
 * waited for hours.
 */
export function onThisHost(
  view: PoolView,
  conditions: readonly PoolCondition[],
  { anywhere, host = hostname() }: RequestFlags,
): readonly PoolCondition[] {
  const named = conditions.some(({ label }) => label === 'host')
  if (anywhere === true || named || !view.members.some(({ labels }) => labels.host !== undefined)) return conditions
  if (!view.members.some(({ labels, status }) => labels.host === host && status !== 'draining'))
    throw new CommandFailure({
      exit: EXIT.unavailable,
      code: 'NOT_HERE',
      message: `no member of ${view.pool} is on this host (${host})`,
      means: 'Nothing was run.',
      next: `Check that leasehold pool offer runs here, or use --anywhere. To see the members, run: leasehold pool ls ${view.pool}`,
    })
  return [...conditions, { label: 'host', test: 'in', values: [host] }]
}

type RequestWords = { readonly [K in 'units' | 'total' | 'match' | 'near']?: PoolRequest[K] | undefined } & {
  readonly count?: number | undefined
}

/** `2 members`, `1 member (model=a100, near host)`. */
export function requestInWords({ count = 1, units, total = 0, match = [], near }: RequestWords): string {
  const what = total === 0 ? `${count} ${count === 1 ? 'member' : 'members'}` : `${total} ${total === 1 ? 'unit' : 'units'}`
  const details = [
    ...(units !== undefined && total === 0 ? [`${units} ${units === 1 ? 'unit' : 'units'} each`] : []),
    ...(match.length > 0 ? [matchText(match)] : []),
    ...(near === undefined ? [] : [`near ${near}`]),
  ]
  return details.length === 0 ? what : `${what} (${details.join('; ')})`
}

/** The names of the members that a lease holds in the pool. */
export function membersOf({ resources }: Lease, pool: string): string[] {
  return resources.filter(resource => resource.startsWith(`${pool}/`)).map(resource => resource.slice(pool.length + 1))
}

const DEFAULT_ENV = ['CUDA_VISIBLE_DEVICES={members}']

/** Reads `NAME={members}` templates. */
export function parseTemplates(given: readonly string[] | undefined): readonly (readonly [string, string])[] {
  return (given ?? DEFAULT_ENV).map(text => {
    const [, name, template] = /^([A-Za-z_]\w*)=(.*)$/s.exec(text) ?? []
    if (name === undefined || template === undefined)
      throw usageError(`--env takes NAME=TEMPLATE, not ${text}`, "For example: --env 'HIP_VISIBLE_DEVICES={indexes}'")
    const unknown = /\{(?!members\}|indexes\}|hosts\}|lease\}|token\})[^}]*\}/.exec(template)?.[0]
    if (unknown !== undefined)
      throw usageError(`--env does not know ${unknown}`, 'It knows {members}, {indexes}, {hosts}, {lease} and {token}.')
    return [name, template] as const
  })
}

/** The environment of the command. */
export async function environmentOf(
  { lessor }: Invocation,
  pool: string,
  lease: Lease,
  templates: readonly (readonly [string, string])[],
): Promise<Record<string, string>> {
  const members = membersOf(lease, pool)
  let views: readonly PoolMemberView[] = []
  if (templates.some(([, template]) => /\{(indexes|hosts)\}/.test(template)))
    views = (await lessor.read({ kind: 'pool', pool, limit: 0 })).value.members.filter(({ member }) => members.includes(member))
  const label = (name: string) => members.map(member => views.find(view => view.member === member)?.labels[name] ?? '')
  const values: Readonly<Record<string, () => string>> = {
    members: () => members.join(','),
    indexes: () => label('index').join(','),
    hosts: () => [...new Set(label('host'))].join(','),
    lease: () => String(lease.id),
    token: () => String(lease.token),
  }
  return {
    LEASEHOLD_POOL: pool,
    LEASEHOLD_MEMBERS: members.join(','),
    LEASEHOLD_RESOURCE: lease.resources.join(','),
    ...Object.fromEntries(templates.map(([name, template]) => [name, template.replace(/\{(\w+)\}/g, (_, key: string) => values[key]!())])),
  }
}

/** Adds what to do next to refusals of a pool. */
export function poolFailure(error: unknown, pool: string): unknown {
  if (!(error instanceof LeaseError)) return error
  const next = {
    LIMIT: `To see the members, run: leasehold pool ls ${pool}`,
    HELD: `Use --wait, or see who is in the way: leasehold pool queue ${pool}`,
    TIMEOUT: `Use a longer --wait, or see who is in the way: leasehold pool queue ${pool}`,
    LOST: `To see who has what, run: leasehold pool ls ${pool}`,
  }[error.code as string]
  return next === undefined ? error : new CommandFailure({ ...failureOf(error), next }, { cause: error })
}
