/** `leasehold run`: runs a command while holding a lease. */
import { hostname } from 'node:os'
import { type Command, Option } from 'commander'
import { inWords, parseDuration } from '../../duration.ts'
import { LeaseError } from '../../errors.ts'
import { type AcquireOptions, checkNames } from '../../holder/acquire-options.ts'
import { badName } from '../../kernel/name.ts'
import type { Leases } from '../../leases.ts'
import type { SlotOptions } from '../../recipe/slots.ts'
import { CommandFailure, EXIT, failureOf, usageError } from '../exit.ts'
import { addGlobalOptions, type Invocation, invoke } from '../invocation.ts'
import { requireValidName } from '../name.ts'
import { parseInteger } from '../option-values.ts'
import { LeasedProcess, type LeaseRequest, ON_LOST, requireCommand } from '../process/leased-process.ts'
import { SignalForwarder } from '../process/signal-forwarder.ts'

interface RunFlags {
  readonly ttl: string
  readonly minTtl?: string
  readonly maxTtl?: string
  readonly class?: string
  readonly wait: string | boolean
  readonly shared?: boolean
  readonly covers?: boolean
  readonly units?: string
  readonly priority?: string
  readonly onLost: (typeof ON_LOST)[number]
  readonly grace: string
  readonly conflictExitCode?: string
  readonly skipOk?: boolean
  readonly slots?: string
  readonly maxTime?: string
  readonly confirm?: string
}

export function run(program: Command): void {
  addGlobalOptions(program.command('run'))
    .summary('run a command while holding a lease')
    .description('Acquires NAME, runs CMD while holding it, and releases it. Exits with the code of CMD. Write CMD after --.')
    .usage('[options] <name...> -- <cmd...>')
    .argument('<name...>', 'the resources to hold, all or none; after -- the command to run, without a shell')
    .option('--ttl <duration>', 'how long the lease lasts without a renewal; auto: as learned from past leases', '30s')
    .option('--min-ttl <duration>', 'makes --ttl a preference: the nearest ttl that policies allow, and at least this (default: no limit)')
    .option('--max-ttl <duration>', 'makes --ttl a preference: the nearest ttl that policies allow, and at most this (default: no limit)')
    .option('--class <class>', 'with --ttl auto: the class of work to learn from (default: the name up to its last slash)')
    .option('--wait <duration>', 'how long to wait for the lease (default: until granted)')
    .option('--no-wait', `do not wait: exit with ${EXIT.held} if the resource is held`)
    .option(
      '--confirm <duration>',
      `with --no-wait: if the holder seems to be dead, how long to stay until that is certain (default: its ttl, at most 30s); then exit with ${EXIT.unconfirmed}`,
    )
    .option('--shared', 'hold it together with other holders that use --shared (default: exclusive)')
    .option('--covers', 'hold all names below NAME as well: no other lease on one of them (default: NAME alone)')
    .option('--units <n>', 'how many units of the resource to hold (default: 1)')
    .option('--priority <n>', 'place in the queue, -1000 to 1000; higher goes first (default: 0)')
    .addOption(
      new Option('--on-lost <action>', 'when the lease is lost: kill (TERM, then KILL), term (TERM only), or ignore')
        .choices([...ON_LOST])
        .default('kill'),
    )
    .option('--grace <duration>', 'time for the command to end between TERM and KILL', '5s')
    .option('--max-time <duration>', `end the command after this time, with exit code ${EXIT.overdue} (default: no limit)`)
    .option('-E, --conflict-exit-code <code>', `exit code if the resource is held or the wait is over (default: ${EXIT.held})`)
    .option(
      '--slots <from-to>',
      'hold one number of this range, NAME/NUMBER, and pass it in LEASEHOLD_SLOT; the same holder gets the same number again if it is free (without --holder: the same folder)',
    )
    .option('--skip-ok', 'exit with 0 if the resource is held or the wait is over')
    .action(async (operands: string[], options: RunFlags, self: Command) => {
      const { names, command } = splitOperands(operands, process.argv.slice(2))
      const heldExit = options.skipOk === true ? 0 : heldExitCode(options.conflictExitCode)
      const wait =
        typeof options.wait === 'string' ? parseDuration(options.wait, '--wait') : options.wait === false ? 0 : Number.POSITIVE_INFINITY
      const acquireOptions = {
        ttl: ttlOf(options, self.getOptionValueSource('ttl') === 'default'),
        ...(options.class !== undefined && { learn: { class: options.class } }),
        ...(wait === 0 && { ifAvailable: true }),
        ...(wait > 0 && wait < Number.POSITIVE_INFINITY && { wait }),
        ...(options.confirm !== undefined && { advanced: { confirm: parseDuration(options.confirm, '--confirm') } }),
        ...(options.shared === true && { mode: 'shared' as const }),
        ...(options.covers === true && { covers: true }),
        ...(options.units !== undefined && { units: parseInteger(options.units, '--units', 1) }),
        ...(options.priority !== undefined && { priority: parseInteger(options.priority, '--priority', -1_000, 1_000) }),
      }
      const range = options.slots === undefined ? undefined : rangeOf(options.slots)
      if (range !== undefined && names.length > 1)
        throw usageError(`--slots takes one name, not ${names.length}`, 'Write: leasehold run NAME --slots 0-9 -- CMD…')
      const processOptions = {
        ...{ command, onLost: options.onLost, grace: parseDuration(options.grace, '--grace') },
        ...(options.maxTime !== undefined && { maxTime: parseDuration(options.maxTime, '--max-time') }),
      }
      const signals = new SignalForwarder()
      const work = async ({ leases, out, settings }: Invocation) => {
        const leased = new LeasedProcess({ leases, signals, out, url: settings.url, ...processOptions })
        try {
          if (range === undefined) return (await leased.run(names, acquireOptions)).code
          const request = slotRequest(leases, names[0]!, { ...acquireOptions, ...range, ...stickyName(settings.holder) })
          return (await leased.runUnder(request, acquireOptions)).code
        } catch (error) {
          if (!(error instanceof LeaseError && (error.code === 'HELD' || error.code === 'TIMEOUT'))) throw error
          const message = heldFor(error, leases.clock.wall())
          if (heldExit !== 0) throw new CommandFailure({ ...failureOf(error), message, exit: heldExit }, { cause: error })
          out.note(`${message}; skipped`, { skipped: names.join(', ') })
          return heldExit
        }
      }
      process.exitCode = await invoke(self, work, signals)
    })
}

/** With a limit, the ttl is a preference that is adjusted to what policies allow. `byDefault`: the user named none, so it follows the limits. */
function ttlOf({ ttl, minTtl, maxTtl }: RunFlags, byDefault: boolean): NonNullable<AcquireOptions['ttl']> {
  if (minTtl === undefined && maxTtl === undefined) return ttl === 'auto' ? ttl : parseDuration(ttl, '--ttl')
  if (ttl === 'auto') throw usageError('--ttl auto has no limits', 'Leave out --min-ttl and --max-ttl, or write a --ttl such as 30s.')
  const min = minTtl === undefined ? 0 : parseDuration(minTtl, '--min-ttl')
  const max = maxTtl === undefined ? Number.POSITIVE_INFINITY : parseDuration(maxTtl, '--max-ttl')
  if (min > max) throw usageError(`--min-ttl ${minTtl} is longer than --max-ttl ${maxTtl}`, 'Write the shorter one as --min-ttl.')
  const named = parseDuration(ttl, '--ttl')
  const preferred = byDefault ? Math.min(max, Math.max(min, named)) : named
  if (min > preferred || preferred > max)
    throw usageError(`--ttl ${ttl} is outside its limits`, 'Write a --ttl from --min-ttl to --max-ttl.')
  return { preferred, ...(minTtl !== undefined && { min }), ...(maxTtl !== undefined && { max }) }
}

function rangeOf(text: string): { readonly from: number; readonly to: number } {
  const [, from, to] = /^(\d{1,15})-(\d{1,15})$/.exec(text) ?? []
  if (from === undefined || Number(from) > Number(to))
    throw usageError(`--slots takes a range such as 0-9 or 3000-3099, not ${text}`, 'Write the lowest and the highest number.')
  return { from: Number(from), to: Number(to) }
}

/** The name that a number is remembered for. Without a holder's name: the folder, because the default name changes with each process. */
function stickyName(holder: string | undefined): { readonly sticky?: string } {
  const sticky = holder ?? `${hostname()}:${process.cwd()}`
  return badName(sticky) === undefined ? { sticky } : {}
}

function slotRequest(leases: Leases, name: string, options: SlotOptions): LeaseRequest {
  return {
    name,
    acquire: async ({ advanced, ...more }) =>
      (await leases.slot(name, { ...options, ...more, advanced: { ...options.advanced, ...advanced } })).lease,
    env: ({ resources: [slot = ''] }) => ({ LEASEHOLD_RESOURCE: slot, LEASEHOLD_SLOT: slot.slice(name.length + 1) }),
  }
}

/** `x has been held by ann through lib for 12 s (3 waiting)`: with the claim that covers it, since when, and how many wait for it, where the error tells. */
function heldFor({ message, facts: { resource, holder, claim, since, queue } }: LeaseError, now: number): string {
  const waiting = typeof queue === 'number' && queue > 0 ? ` (${queue} waiting)` : ''
  if (typeof since !== 'number' || since <= 0 || typeof resource !== 'string' || typeof holder !== 'string') return message + waiting
  const through = claim === undefined ? '' : ` through ${claim}`
  return `${resource} has been held by ${holder}${through} for ${inWords(Math.max(0, now - since))}${waiting}`
}

/** Names before `--`, the command after it. Without `--`, the first word is the name. */
function splitOperands(
  operands: readonly string[],
  argv: readonly string[],
): { readonly names: readonly string[]; readonly command: readonly string[] } {
  const end = argv.indexOf('--')
  const count = end === -1 ? 1 : operands.length - (argv.length - end - 1)
  const [names, command] = [operands.slice(0, count), operands.slice(count)]
  if (names.length === 0) throw usageError('no resource was named', 'Write its name before --: leasehold run NAME -- CMD…')
  for (const name of checkNames(names)) requireValidName(name)
  requireCommand(command)
  return { names, command }
}

/** The exit code for a lease that is held: the value of -E, or the default. */
export function heldExitCode(text: string | undefined): number {
  if (text === undefined) return EXIT.held
  const code = parseInteger(text, '-E')
  if (code < 0 || code > 255)
    throw usageError(`-E takes an exit code from 0 to 255, not ${text}`, 'Choose one that the command itself does not use.')
  return code
}
