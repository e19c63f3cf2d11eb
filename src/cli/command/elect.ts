/** `leasehold elect`: takes part in an election and runs a command for each term as leader. */
import { type Command, Option } from 'commander'
import { pause } from '../../clock.ts'
import { parseDuration } from '../../duration.ts'
import type { LeaseError } from '../../errors.ts'
import { usageError } from '../exit.ts'
import { addGlobalOptions, type Invocation, invoke } from '../invocation.ts'
import { parseInteger } from '../option-values.ts'
import { LeasedProcess, ON_LOST } from '../process/leased-process.ts'
import { SignalForwarder } from '../process/signal-forwarder.ts'

/** Ms to wait after a term that ended by itself. Without it, a command that fails at once would hold elections as fast as the disk can write. */
const PAUSE_BETWEEN_TERMS = 1_000

interface ElectFlags {
  readonly ttl: string
  readonly priority?: string
  readonly terms?: string
  readonly onLost: (typeof ON_LOST)[number]
  readonly grace: string
}

export function elect(program: Command): void {
  addGlobalOptions(program.command('elect'))
    .summary('run a command while elected as leader')
    .description(
      'Takes part in the election NAME and runs CMD for each term as leader. When CMD ends or the term is lost, it joins the queue again, behind the other candidates. INT or TERM end the candidacy. Write CMD after --.',
    )
    .argument('<name>', 'the election (resource election/NAME)')
    .argument('<cmd...>', 'the command to run while leader, without a shell')
    .option('--ttl <duration>', 'how long a term lasts without a renewal', '10s')
    .option('--priority <n>', 'place in the queue, -1000 to 1000; higher is elected first (default: 0)')
    .option('--terms <n>', 'exit after this many terms, with the code of the last (default: no limit)')
    .addOption(
      new Option('--on-lost <action>', 'when a term is lost: kill (TERM, then KILL), term (TERM only), or ignore')
        .choices([...ON_LOST])
        .default('kill'),
    )
    .option('--grace <duration>', 'time for the command to end between TERM and KILL', '5s')
    .action(async (name: string, command: string[], options: ElectFlags, self: Command) => {
      const maxTerms = options.terms === undefined ? Number.POSITIVE_INFINITY : parseInteger(options.terms, '--terms')
      if (maxTerms < 1) throw usageError(`--terms takes a number from 1, not ${options.terms}`, 'Leave it out for no limit.')
      const acquireOptions = {
        ttl: parseDuration(options.ttl, '--ttl'),
        renew: 'continuous' as const,
        ...(options.priority !== undefined && { priority: parseInteger(options.priority, '--priority', -1_000, 1_000) }),
      }
      const processOptions = { command, onLost: options.onLost, grace: parseDuration(options.grace, '--grace') }
      const signals = new SignalForwarder()
      let terms = 0
      /** Returns the exit code of the last term, or undefined when the lessor has ended and must be opened again for the next term. */
      const runTerms = async ({ leases, out, settings, clock }: Invocation) => {
        const leased = new LeasedProcess({ leases, signals, out, url: settings.url, ...processOptions })
        try {
          for (;;) {
            const { code, lost } = await leased.run([`election/${name}`], acquireOptions)
            if (leased.signal.aborted || ++terms >= maxTerms) return code
            const reason = lost ? 'it was lost' : `the command ended with ${code}`
            out.note(`the term is over: ${reason}; standing for election again`, { terms, code, lost })
            if (!lost) await pause(clock, PAUSE_BETWEEN_TERMS, leased.signal, { ref: true })
          }
        } catch (error) {
          const { signal } = leases.lessor
          if (leased.signal.aborted || !signal.aborted) throw error
          out.note(`${(error as Error).message}; opening the store again, then standing for election again`, {
            ended: (error as Partial<LeaseError>).code,
          })
          await pause(clock, PAUSE_BETWEEN_TERMS, leased.signal, { ref: true })
          return undefined
        }
      }
      try {
        let code: number | undefined
        while (code === undefined) code = await invoke(self, runTerms, { signal: signals.signal, stop: () => {} })
        process.exitCode = code
      } finally {
        signals.stop()
      }
    })
}
