/** `leasehold pool drain`: takes a device or a host out of a pool from a time on, and shows which holders that affects. */
import type { Command } from 'commander'
import { DRAINS, type Drain, type DrainTarget, drainKey, drainOf, drainPrefix, formatDrain, parseDrain } from '../../../devices/drain.ts'
import { inWords } from '../../../duration.ts'
import { LeaseError } from '../../../errors.ts'
import type { Command as KernelCommand } from '../../../kernel/command.ts'
import type { PoolGrantView, PoolMemberView } from '../../../lessor.ts'
import { usageError } from '../../exit.ts'
import { localTime } from '../../format.ts'
import { addGlobalOptions, type Invocation, invoke } from '../../invocation.ts'
import { requireValidName } from '../../name.ts'
import { change } from '../operate.ts'
import { userName } from './request.ts'
import { parseTime } from './reserve.ts'

/** The drains of all pools. */
const MOST_DRAINS = 1_000

interface DrainFlags {
  readonly member?: string
  readonly onHost?: string
  readonly from?: string
  readonly cancel?: boolean
}

export function drain(group: Command): void {
  addGlobalOptions(group.command('drain'))
    .summary('take a device or a host out of a pool from a time on, and list who is affected')
    .description(
      'From that time on no new taker gets its members; present holders keep them. It lasts until it is cancelled, also when the host dies and comes back. Without --member and --on-host: lists the drains of POOL.',
    )
    .argument('<pool>', 'the name of the pool')
    .option('--member <name>', 'drain this member; the start of its name is enough')
    .option('--on-host <host>', 'drain all members of this host, as their label host names it')
    .option('--from <time>', 'when it begins: 14:00, 2026-11-20T14:00 (local time), or 2h from now (default: now)')
    .option('--cancel', 'end the drain: its members are offered again')
    .action(async (pool: string, options: DrainFlags, self: Command) => {
      requireValidName(pool)
      const { member, onHost, from, cancel } = options
      if (member !== undefined && onHost !== undefined)
        throw usageError('--member and --on-host contradict each other', 'Drain one member, or all of a host.')
      if (member === undefined && onHost === undefined && (from !== undefined || cancel === true))
        throw usageError('pool drain has no target', 'Name it with --member or --on-host.')
      if (from !== undefined && cancel === true) throw usageError('--from and --cancel contradict each other', 'Use one of them.')
      await invoke(
        self,
        async invocation => {
          if (member === undefined && onHost === undefined) return listDrains(invocation, pool)
          const { value: view } = await invocation.read({ kind: 'pool', pool, limit: 0 })
          const target = member === undefined ? { host: onHost! } : { member: memberNamed(view.members, pool, member) }
          if (cancel === true) return cancelDrain(invocation, pool, target)
          await startDrain(invocation, pool, target, from, view.members)
        },
        undefined,
        { holder: userName() },
      )
    })
}

/** Returns the drains of a pool. None if the key may not read them. */
export async function drainsOf({ lessor, signal }: Pick<Invocation, 'lessor' | 'signal'>, pool: string): Promise<readonly Drain[]> {
  try {
    const { value } = await lessor.read({ kind: 'entries', prefix: drainPrefix(pool) }, { consistent: true, signal })
    return value.flatMap(({ value }) => parseDrain(value) ?? [])
  } catch (error) {
    if (LeaseError.is(error, 'FORBIDDEN')) return []
    throw error
  }
}

/** A member that has left is not listed any more when it is not held, so an unknown name is taken as it is. */
function memberNamed(members: readonly PoolMemberView[], pool: string, start: string): string {
  const found = members.filter(({ member }) => member.startsWith(start))
  if (found.length === 0 || found.some(({ member }) => member === start)) return start
  if (found.length > 1) throw usageError(`${found.length} members of ${pool} begin with ${start}`, 'Write more of the name.')
  return found[0]!.member
}

async function startDrain(
  invocation: Invocation,
  pool: string,
  target: DrainTarget,
  from: string | undefined,
  members: readonly PoolMemberView[],
): Promise<void> {
  const { out, clock, leases } = invocation
  const now = clock.wall()
  const wait = from === undefined ? 0 : parseTime(from, now)
  const begins = { target, from: Math.round(now + wait), by: leases.holder }
  const put: KernelCommand = { kind: 'transaction', success: [{ key: drainKey(pool, target), value: formatDrain(begins) }] }
  await change(invocation, put).catch(async error => {
    if (!LeaseError.is(error, 'INVALID') || error.reason !== 'no-free-entries') throw error
    const { value: policies } = await invocation.read({ kind: 'policies' })
    const own = policies.find(({ prefix }) => prefix === DRAINS)?.rules
    await change(invocation, { kind: 'policy', prefix: DRAINS, rules: { ...own, freeEntries: MOST_DRAINS } })
    await change(invocation, put)
  })
  const affected = members
    .filter(({ member, labels }) => drainOf([begins], member, labels.host) !== undefined)
    .flatMap(({ member, grants }) => grants.map(grant => ({ member, grant, end: endOf(grant) })))
    .filter(({ end }) => end === undefined || end.left > wait)
  if (out.json) {
    const facts = affected.map(({ member, grant: { lease, account, holder }, end }) => ({
      ...{ member, lease, account, holder },
      ...(end !== undefined && { left: end.left, certain: end.certain }),
    }))
    return out.data({ drained: target, pool, from: begins.from, affected: facts })
  }
  out.note(
    `${nameOf(target)} of ${pool} is drained ${wait === 0 ? 'from now on' : `from ${localTime(begins.from)} on, in ${inWords(wait)}`}`,
  )
  if (affected.length === 0) return out.note('no present holder is affected')
  await out.table(
    ['MEMBER', 'ACCOUNT', 'LEASE', 'HOLDER', 'ENDS'],
    affected.map(({ member, grant: { account, holder, lease }, end }) => [member, account || holder, lease, holder, endText(end)]),
  )
  out.note('these holders keep what they have. To end a lease, run: leasehold pool return LEASE')
}

/** In how many ms a lease ends: for certain by its --for, or as its holder expects. Undefined: it is not known. */
function endOf({ maxLife, expect, held }: PoolGrantView): { readonly left: number; readonly certain: boolean } | undefined {
  if (maxLife > 0 && (expect === 0 || expect > maxLife)) return { left: Math.max(0, maxLife - held), certain: true }
  return expect > held ? { left: expect - held, certain: false } : undefined
}

function endText(end: ReturnType<typeof endOf>): string {
  if (end === undefined) return 'unknown'
  return end.certain ? `in ${inWords(end.left)} at the latest` : `in ${inWords(end.left)} as expected`
}

async function cancelDrain(invocation: Invocation, pool: string, target: DrainTarget): Promise<void> {
  const key = drainKey(pool, target)
  const { value } = await invocation.read({ kind: 'entries', prefix: key, limit: 1 })
  if (!value.some(entry => entry.key === key)) throw new LeaseError('NOT_FOUND', `${nameOf(target)} of ${pool} is not drained`)
  await change(invocation, { kind: 'transaction', success: [{ key, delete: true }] })
  if (invocation.out.json) await invocation.out.data({ offered: target, pool })
  else invocation.out.note(`${nameOf(target)} of ${pool} is offered again at the next look of its host`)
}

async function listDrains(invocation: Invocation, pool: string): Promise<void> {
  const { out, clock } = invocation
  const drains = await drainsOf(invocation, pool)
  if (out.json) {
    for (const drain of drains) await out.data({ pool, ...drain })
    return
  }
  if (drains.length === 0) return out.note(`nothing of ${pool} is drained`)
  await out.table(
    ['DRAINED', 'FROM', 'BY'],
    drains.map(({ target, from, by }) => [nameOf(target), from <= clock.wall() ? 'now' : `in ${inWords(from - clock.wall())}`, by]),
  )
}

function nameOf(target: DrainTarget): string {
  return 'host' in target ? `host ${target.host}` : target.member
}
