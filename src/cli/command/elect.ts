import { type Command, Option } from 'commander'
import { pause } from '../../clock.ts'
import { parseDuration } from '../../duration.ts'
import type { LeaseError } from '../../errors.ts'
import { usage } from '../exit.ts'
import { common, type Invocation, invoke } from '../invocation.ts'
import { grace, LeasedProcess, ON_LOST } from '../process/leased-process.ts'
import { SignalForwarder } from '../process/signal-forwarder.ts'
import { whole } from './run.ts'

/** After a term that ended by itself: a command that fails at once must not make elections as fast as the disk can write. */
const BETWEEN = 1_000

interface Options {
  readonly ttl: string
  readonly priority?: string
  readonly terms?: string
  readonly onLost: (typeof ON_LOST)[number]
  readonly grace: string
}

export function elect(program: Command): void {
  common(program.command('elect'))
    .summary('run a command for each term of office')
    .description(
      'Stands for NAME and runs CMD for each term of office. When CMD ends or the term is lost, it stands again, behind those who wait; INT or TERM end the candidacy.',
    )
    .argument('<name>', 'the seat')
    .argument('<cmd...>', 'what to run while in office')
    .option('--ttl <duration>', 'how long a term lasts without a renewal', '10s')
    .option('--priority <n>', 'higher is elected first, -1000 to 1000')
    .option('--terms <n>', 'stand for so many terms, then exit with the code of the last')
    .addOption(new Option('--on-lost <what>', 'when a term is lost').choices([...ON_LOST]).default('kill'))
    .option('--grace <duration>', 'how long the command has between TERM and KILL', '5s')
    .action(async (name: string, command: string[], options: Options, self: Command) => {
      const most = options.terms === undefined ? Number.POSITIVE_INFINITY : whole(options.terms, '--terms')
      if (most < 1) throw usage(`--terms takes a number from 1, not ${options.terms}`, 'Leave it out to stand again and again.')
      const asked = {
        ttl: parseDuration(options.ttl, '--ttl'),
        renew: 'continuous' as const,
        ...(options.priority !== undefined && { priority: whole(options.priority, '--priority') }),
      }
      const wanted = { command, onLost: options.onLost, grace: grace(options.grace) }
      const hearing = new SignalForwarder()
      let terms = 0
      /** The code of the last term; undefined when the lessor has ended, and must be opened anew to stand again. */
      const stand = async ({ leases, out, settings, clock }: Invocation) => {
        const errand = new LeasedProcess({ leases, hearing, out, url: settings.url, ...wanted })
        try {
          for (;;) {
            const { code, lost } = await errand.run(`election/${name}`, asked)
            if (errand.signal.aborted || ++terms >= most) return code
            out.note(`the term is over: ${lost ? 'it was lost' : `the command ended with ${code}`}; standing again`, { terms, code, lost })
            if (!lost) await pause(clock, BETWEEN, errand.signal, { ref: true })
          }
        } catch (error) {
          const { signal } = leases.lessor
          if (errand.signal.aborted || !signal.aborted) throw error
          out.note(`${(error as Error).message}; opening it anew, to stand again`, { ended: (error as Partial<LeaseError>).code })
          await pause(clock, BETWEEN, errand.signal, { ref: true })
          return undefined
        }
      }
      try {
        let code: number | undefined
        while (code === undefined) code = await invoke(self, stand, { signal: hearing.signal, stop: () => {} })
        process.exitCode = code
      } finally {
        hearing.stop()
      }
    })
}
