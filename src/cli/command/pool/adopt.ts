/** `leasehold pool adopt`: takes the devices that a running process uses, until that process has ended. */
import { hostname } from 'node:os'
import { type Command, Option } from 'commander'
import { pause } from '../../../clock.ts'
import { ACCOUNT_LABEL, HOLDER_LABELS } from '../../../devices/attribution.ts'
import { procProcesses } from '../../../devices/host-processes.ts'
import { parseDuration } from '../../../duration.ts'
import type { LeaseError } from '../../../errors.ts'
import { CommandFailure, EXIT, usageError } from '../../exit.ts'
import { addGlobalOptions, type Invocation, invoke } from '../../invocation.ts'
import { requireValidName } from '../../name.ts'
import { collect, parseInteger } from '../../option-values.ts'
import { reportsOf } from './list.ts'
import { labelsOf, poolFailure, userName } from './request.ts'

/** Ms between two looks at whether the process is still there. */
const POLL_INTERVAL = 200

interface AdoptFlags {
  readonly pid: string
  readonly member?: readonly string[]
  readonly ttl: string
  readonly host?: string
  readonly expect?: string
  readonly onLost: 'ignore' | 'term'
  readonly account?: string
}

export function adopt(group: Command): void {
  addGlobalOptions(group.command('adopt'))
    .summary('take the members that a running process uses, until it has ended')
    .description(
      'For a process that was started without leasehold: takes the members that it uses, and gives them back when the process (by its pid and start time) has ended. Runs until then. Refused if another holder has them.',
    )
    .argument('<pool>', 'the name of the pool')
    .requiredOption('--pid <pid>', 'the process (required)')
    .option('--member <name>', 'a member that it uses (default: those that the host reports it on); may be repeated', collect)
    .option('--expect <duration>', 'how long it will probably run')
    .option('--account <name>', 'the user or team that its use counts for (default: the user of the process)')
    .option('--ttl <duration>', 'how long the members stay taken after this command died', '30s')
    .option('--host <name>', 'the name of this host (default: its host name)')
    .addOption(
      new Option('--on-lost <action>', 'when the lease is lost: ignore (the process keeps running), or term (it gets TERM)')
        .choices(['ignore', 'term'])
        .default('ignore'),
    )
    .action(async (pool: string, options: AdoptFlags, self: Command) => {
      requireValidName(pool)
      const pid = parseInteger(options.pid, '--pid')
      const target = procProcesses.find(pid)
      if (target === undefined)
        throw new CommandFailure({
          exit: EXIT.failed,
          code: 'NO_PROCESS',
          message: `there is no process ${pid} on this host`,
          means: 'Nothing was taken.',
          next: 'Check the pid with ps, on the host where the process runs.',
        })
      const host = options.host ?? hostname()
      const work = (invocation: Invocation) => adoptProcess(invocation, pool, target, host, options)
      await invoke(self, work, undefined, { holder: `${userName()}@${host}:${pid}` })
    })
}

async function adoptProcess(
  invocation: Invocation,
  pool: string,
  { pid, started, uid }: { readonly pid: number; readonly started: number; readonly uid: number },
  host: string,
  options: AdoptFlags,
): Promise<void> {
  const { leases, out, clock, signal } = invocation
  const isThere = () => procProcesses.find(pid)?.started === started
  const members = options.member ?? (await membersUsedBy(invocation, pool, pid, started, host))
  const lease = await leases
    .acquire(
      members.map(member => `${pool}/${member}`),
      {
        ifAvailable: true,
        ttl: parseDuration(options.ttl, '--ttl'),
        signal,
        labels: {
          ...labelsOf({ pid, host }),
          // Not who adopts it: an administrator may do that for a user.
          [HOLDER_LABELS.user]: procProcesses.userName(uid),
          [ACCOUNT_LABEL]: options.account ?? procProcesses.userName(uid),
          adopted: 'yes',
          ...(options.expect !== undefined && { expect: String(parseDuration(options.expect, '--expect')) }),
        },
      },
    )
    .catch(error => {
      throw poolFailure(error, pool)
    })
  await using _ = lease
  void lease.recalled // watch for a revoke
  out.note(`took ${members.join(', ')} of ${pool} for process ${pid} (lease ${lease.id})`, { lease: lease.id, members })
  // The end of a process that is not a child can only be polled. The end of the lease is noticed at once.
  const over = AbortSignal.any([signal, lease.signal])
  while (isThere() && lease.held)
    await pause(clock, POLL_INTERVAL, over, { ref: true }).catch(error => {
      if (lease.held) throw error
    })
  if (!isThere()) return out.note(`process ${pid} has ended; the members are free`, { ended: pid })
  const reason = lease.signal.reason as LeaseError
  if (options.onLost === 'term') process.kill(pid, 'SIGTERM')
  const means =
    options.onLost === 'term'
      ? `Process ${pid} got TERM.`
      : `Process ${pid} keeps running without a lease: another holder may use the same members.`
  throw new CommandFailure(
    { exit: EXIT.lost, code: 'LOST', message: reason.message, means, next: `To see who has what, run: leasehold pool ls ${pool}` },
    { cause: reason },
  )
}

/** The members on which their host has reported the process. */
async function membersUsedBy(invocation: Invocation, pool: string, pid: number, started: number, host: string): Promise<string[]> {
  const reports = await reportsOf(invocation, pool)
  const used = [...reports].filter(
    ([, report]) => report.host === host && report.processes.some(process => process.pid === pid && process.started === started),
  )
  if (used.length > 0) return used.map(([member]) => member)
  throw usageError(
    `${host} has not reported process ${pid} on any member of ${pool}`,
    'Wait for the next report (leasehold pool ls shows it), or name the members with --member.',
  )
}
