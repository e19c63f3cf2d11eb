import { type Command, Option } from 'commander'
import { inWords, parseDuration } from '../../duration.ts'
import { LeaseError } from '../../errors.ts'
import { CommandFailure, EXIT, failureOf, usage } from '../exit.ts'
import { common, type Invocation, invoke } from '../invocation.ts'
import { grace, LeasedProcess, ON_LOST } from '../process/leased-process.ts'
import { SignalForwarder } from '../process/signal-forwarder.ts'

interface Options {
  readonly ttl: string
  readonly wait: string | boolean
  readonly shared?: boolean
  readonly units?: string
  readonly priority?: string
  readonly onLost: (typeof ON_LOST)[number]
  readonly grace: string
  readonly conflictExitCode?: string
  readonly skipOk?: boolean
}

export function run(program: Command): void {
  common(program.command('run'))
    .summary('run a command while holding a lease')
    .description('Runs CMD while holding NAME; its exit code is ours. Give the command after --.')
    .argument('<name>', 'what to hold')
    .argument('<cmd...>', 'what to run, without a shell in between')
    .option('--ttl <duration>', 'how long the lease lasts without a renewal', '30s')
    .option('--wait <duration>', 'how long to wait for it (default: until granted)')
    .option('--no-wait', `do not wait: exit with ${EXIT.held} when it is held`)
    .option('--shared', 'hold it together with others who ask the same')
    .option('--units <n>', 'how many units of it')
    .option('--priority <n>', 'higher goes first, -1000 to 1000')
    .addOption(new Option('--on-lost <what>', 'when the lease is lost').choices([...ON_LOST]).default('kill'))
    .option('--grace <duration>', 'how long the command has between TERM and KILL', '5s')
    .option('-E, --conflict-exit-code <code>', `instead of ${EXIT.held}, when held or waited in vain`)
    .option('--skip-ok', 'exit with 0 when held or waited in vain')
    .action(async (name: string, command: string[], options: Options, self: Command) => {
      const held = options.skipOk === true ? 0 : exitCode(options.conflictExitCode)
      const wait =
        typeof options.wait === 'string' ? parseDuration(options.wait, '--wait') : options.wait === false ? 0 : Number.POSITIVE_INFINITY
      const asked = {
        ttl: parseDuration(options.ttl, '--ttl'),
        ...(wait === 0 && { ifAvailable: true }),
        ...(wait > 0 && wait < Number.POSITIVE_INFINITY && { wait }),
        ...(options.shared === true && { mode: 'shared' as const }),
        ...(options.units !== undefined && { units: whole(options.units, '--units') }),
        ...(options.priority !== undefined && { priority: whole(options.priority, '--priority') }),
      }
      const wanted = { command, onLost: options.onLost, grace: grace(options.grace) }
      const hearing = new SignalForwarder()
      const work = async ({ leases, out, settings }: Invocation) => {
        const errand = new LeasedProcess({ leases, hearing, out, url: settings.url, ...wanted })
        try {
          return (await errand.run(name, asked)).code
        } catch (error) {
          if (!(error instanceof LeaseError && (error.code === 'HELD' || error.code === 'TIMEOUT'))) throw error
          const { since } = error.facts
          const happened =
            typeof since === 'number' ? `${error.message} for ${inWords(Math.max(0, leases.clock.wall() - since))}` : error.message
          if (held !== 0) throw new CommandFailure({ ...failureOf(error), happened, exit: held }, { cause: error })
          out.note(`${happened}; skipped`, { skipped: name })
          return held
        }
      }
      process.exitCode = await invoke(self, work, hearing)
    })
}

function exitCode(text: string | undefined): number {
  if (text === undefined) return EXIT.held
  const code = whole(text, '-E')
  if (code < 0 || code > 255)
    throw usage(`-E takes an exit code from 0 to 255, not ${text}`, 'Choose one that the command itself does not use.')
  return code
}

export function whole(text: string, option: string): number {
  if (!/^-?\d{1,15}$/.test(text)) throw usage(`${option} takes a whole number, not ${text}`, 'See leasehold help.')
  return Number(text)
}
