/** `leasehold pool take`: runs a command with members of a pool, and frees them when the command has ended. */
import { hostname } from 'node:os'
import { type Command, Option } from 'commander'
import { chainAbort, pause, whenAborted } from '../../../clock.ts'
import { parseReport, reportPrefix } from '../../../devices/report.ts'
import { inWords, parseDuration } from '../../../duration.ts'
import { LeaseError } from '../../../errors.ts'
import type { Lease } from '../../../lease.ts'
import type { AcquireOptions } from '../../../leases.ts'
import { explainWaiter } from '../../../pool/explain.ts'
import { CommandFailure, EXIT, failureOf } from '../../exit.ts'
import { addGlobalOptions, type Invocation, invoke } from '../../invocation.ts'
import { requireValidName } from '../../name.ts'
import { collect, parseInteger } from '../../option-values.ts'
import { LeasedProcess, ON_LOST, type RequestSignals } from '../../process/leased-process.ts'
import { SignalForwarder } from '../../process/signal-forwarder.ts'
import { heldExitCode } from '../run.ts'
import {
  addRequestOptions,
  defaultHolder,
  environmentOf,
  labelsOf,
  membersOf,
  onThisHost,
  parseRequest,
  parseTemplates,
  poolFailure,
  type RequestFlags,
  requestInWords,
  userName,
  withBoundAccount,
} from './request.ts'
import { freeMembers, keptText } from './reservations.ts'

export interface TakeFlags extends RequestFlags {
  readonly wait: string | boolean
  readonly env?: readonly string[]
  readonly onLost: (typeof ON_LOST)[number]
  readonly onRecall: 'note' | 'term'
  readonly grace: string
  readonly conflictExitCode?: string
  readonly skipOk?: boolean
  readonly reservation?: string
}

/** Ms between two looks at whether the window of a reservation has begun, for a key that may not watch the pool. */
const RESERVATION_POLL = 1_000

const HELP = `
The command finds the members in CUDA_VISIBLE_DEVICES, or in the variables of --env: {members}, {indexes}, {hosts}, {lease} and {token} are replaced.
LEASEHOLD_MEMBERS has their names in any case.`

export function take(group: Command): void {
  const command = addGlobalOptions(group.command('take'))
    .summary('run a command with members of a pool')
    .description(
      'Takes members of POOL, runs CMD with them, and frees them when CMD has ended. Exits with the code of CMD. Write CMD after --.',
    )
    .argument('<pool>', 'the name of the pool')
    .argument('<cmd...>', 'the command to run, without a shell')
  addRequestOptions(command)
    .option('--env <NAME=template>', 'a variable for the command, instead of CUDA_VISIBLE_DEVICES={members}; may be repeated', collect)
    .option('--reservation <lease>', 'use what was reserved with leasehold pool reserve')
    .option('--wait <duration>', 'how long to wait for the members (default: until granted)')
    .option('--no-wait', `do not wait: exit with ${EXIT.held} if they are taken`)
    .addOption(
      new Option('--on-recall <action>', 'when the members are asked back: note (print it), or term (also send TERM to the command)')
        .choices(['note', 'term'])
        .default('note'),
    )
    .addOption(
      new Option('--on-lost <action>', 'when the lease is lost: kill (TERM, then KILL), term (TERM only), or ignore')
        .choices([...ON_LOST])
        .default('kill'),
    )
    .option('--grace <duration>', 'time for the command to end between TERM and KILL', '5s')
    .option('-E, --conflict-exit-code <code>', `exit code if the members are taken or the wait is over (default: ${EXIT.held})`)
    .option('--skip-ok', 'exit with 0 if the members are taken or the wait is over')
    .addHelpText('after', HELP)
    .action(async (pool: string, words: string[], options: TakeFlags, self: Command) => {
      requireValidName(pool)
      const signals = new SignalForwarder()
      const work = (invocation: Invocation) => takeAndRun(invocation, signals, pool, words, options)
      process.exitCode = await invoke(self, work, signals, {
        holder: options.reservation === undefined ? defaultHolder(options.host) : userName(),
      })
    })
}

async function takeAndRun(
  invocation: Invocation,
  signals: SignalForwarder,
  pool: string,
  command: readonly string[],
  options: TakeFlags,
): Promise<number> {
  const { leases, out, settings } = invocation
  const heldExit = options.skipOk === true ? 0 : heldExitCode(options.conflictExitCode)
  const wait =
    typeof options.wait === 'string' ? parseDuration(options.wait, '--wait') : options.wait === false ? 0 : Number.POSITIVE_INFINITY
  const waiting = { ...(wait === 0 && { ifAvailable: true }), ...(wait > 0 && wait < Number.POSITIVE_INFINITY && { wait }) }
  const templates = parseTemplates(options.env)
  const process_ = { command, onLost: options.onLost, grace: parseDuration(options.grace, '--grace') }
  const over = new AbortController()
  try {
    const leased = new LeasedProcess({ leases, signals, out, url: settings.url, ...process_ })
    const request = await requestOf(invocation, pool, command, options)
    const { code } = await leased.runUnder(
      {
        name: pool,
        acquire: more => request.acquire({ ...waiting, ...more }),
        describe: position => waitingText(invocation, pool, request.words, position),
        env: lease => {
          if (!out.json) out.note(`took ${membersOf(lease, pool).join(', ')} of ${pool} (lease ${lease.id})`)
          void noteIdleness(invocation, pool, lease, over.signal)
          return environmentOf(invocation, pool, lease, templates)
        },
        onRecalled: lease => {
          const term = options.onRecall === 'term'
          const reason = (lease.recalled.reason as Error | undefined)?.message ?? 'it is asked back'
          out.note(`${pool}: ${reason}.${term ? ' The command gets TERM.' : ' Give it back soon: save your work and end the command.'}`, {
            recalled: lease.id,
          })
          return term
        },
      },
      waiting,
    )
    return code
  } catch (error) {
    const found = poolFailure(error, pool)
    if (!LeaseError.is(error, 'HELD', 'TIMEOUT')) throw found
    if (heldExit !== 0) throw new CommandFailure({ ...failureOf(found), exit: heldExit }, { cause: error })
    out.note(`${error.message}; skipped`, { skipped: pool })
    return heldExit
  } finally {
    over.abort()
  }
}

interface TakeRequest {
  /** For people: `2 members (mem>=40)`. */
  readonly words: string
  readonly acquire: (options: RequestSignals & Pick<AcquireOptions, 'ifAvailable'>) => Promise<Lease>
}

async function requestOf(invocation: Invocation, pool: string, command: readonly string[], options: TakeFlags): Promise<TakeRequest> {
  const { leases, read } = invocation
  if (options.reservation !== undefined) {
    const reservation = parseInteger(options.reservation, '--reservation')
    return { words: `reservation ${reservation}`, acquire: more => takeOver(invocation, pool, reservation, more) }
  }
  const { count, options: asked, conditions } = parseRequest(options)
  const { value: view } = await read({ kind: 'pool', pool, limit: 0 })
  const match = onThisHost(view, conditions, options)
  const host = options.host ?? hostname()
  const labels = labelsOf({ pid: process.pid, host, ...(command[0] !== undefined && { command: command[0] }) })
  return {
    words: requestInWords({ ...asked, count, match }),
    acquire: more =>
      withBoundAccount(options, asked.account, account =>
        leases.pool(pool).take(count, { ...asked, ...more, account, match, labels, learn: { labels: ['command'] } }),
      ),
  }
}

/** Takes a reservation into this process. Waits until its window has begun. */
async function takeOver(invocation: Invocation, pool: string, lease: number, { signal, onLost }: RequestSignals): Promise<Lease> {
  const { leases, lessor, out } = invocation
  for (let isFirst = true; ; isFirst = false) {
    const { value, revision } = await lessor.read({ kind: 'lease', lease }, { consistent: true, ...(signal !== undefined && { signal }) })
    if (value === undefined) throw new LeaseError('GONE', `the reservation ${lease} has ended, or never existed`, { facts: { lease } })
    if (value.status !== 'waiting') break
    if (isFirst) out.note(`reservation ${lease}: its window has not begun yet; waiting`, { reservation: lease })
    await whenItChanges(invocation, pool, lease, revision, signal)
  }
  const held = await leases.adopt(lease)
  whenAborted(held.signal, () => void onLost?.(held.signal.reason as LeaseError))
  return held
}

/** Resolves when a waiter was granted members or has ended after this revision. */
async function whenItChanges(
  { lessor, clock }: Invocation,
  pool: string,
  lease: number,
  after: number,
  signal: AbortSignal | undefined,
): Promise<void> {
  const over = new AbortController()
  const unchain = chainAbort(signal, over)
  try {
    for await (const events of lessor.watch(pool, { after, signal: over.signal }))
      if (events.some(event => event.lease === lease || event.type === 'resync')) return
    signal?.throwIfAborted()
    lessor.signal.throwIfAborted()
  } catch (error) {
    if (!LeaseError.is(error, 'FORBIDDEN')) throw error
    await pause(clock, RESERVATION_POLL, signal, { ref: true })
  } finally {
    over.abort()
    unchain()
  }
}

async function waitingText({ lessor }: Invocation, pool: string, words: string, position: number | undefined): Promise<string> {
  const view = await lessor.read({ kind: 'pool', pool, limit: 1, skip: position ?? 0 }).catch(() => undefined)
  const own = view?.value.queue[0]
  const reasons = view === undefined || own === undefined ? [] : explainWaiter(view.value, own.lease)!.reasons
  const quota = reasons.find(({ cause }) => cause === 'quota')
  const members = view?.value.members ?? []
  const free = freeMembers(members).length
  const place = position === undefined ? '' : position === 0 ? ', you are next' : `, ${position} ahead of you`
  const kept = view === undefined ? undefined : keptText(view.value)
  const why = quota === undefined ? place : `, but ${quota.text}`
  return `waiting for ${words} of ${pool}: ${free} of ${members.length} free${kept === undefined ? '' : ` (${kept})`}${why}`
}

/** Prints that the devices look idle, as their hosts report it. The reports are for information: if they cannot be read, nothing is printed. */
async function noteIdleness({ lessor, out }: Invocation, pool: string, lease: Lease, signal: AbortSignal): Promise<void> {
  const members = new Set(membersOf(lease, pool))
  const prefix = reportPrefix(pool)
  const stages = new Map<string, string>()
  try {
    for await (const events of lessor.watch(prefix, { types: ['put'], signal }))
      for (const { key = '', value = '' } of events) {
        const member = key.slice(prefix.length + 1)
        const report = members.has(member) ? parseReport(value) : undefined
        if (report === undefined || stages.get(member) === report.stage) continue
        stages.set(member, report.stage)
        if (report.stage === 'warn')
          out.note(`${member} has been idle for ${inWords(report.idle)}. It will be reclaimed if it stays idle.`, { idle: member })
      }
  } catch {
    // The key may not watch there, or the lessor is gone.
  }
}
