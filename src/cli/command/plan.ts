/** `leasehold plan`: measures this place, and turns the time of a failover into ttl, renewal, margin and lock-delay. */
import type { Command } from 'commander'
import { parseDuration } from '../../duration.ts'
import { CommandFailure, EXIT } from '../exit.ts'
import { planFailover, planSentences } from '../failover-plan.ts'
import { addGlobalOptions, invoke } from '../invocation.ts'
import { measurePlace } from '../place-measurement.ts'

const ROUNDS = 40

export function plan(program: Command): void {
  addGlobalOptions(program.command('plan'))
    .summary('measure this store or server, and say which ttl gives a failover in time')
    .option('--failover <duration>', 'how soon another holder must take over after a crash', '10s')
    .action(async (options: { readonly failover: string }, self: Command) => {
      const failover = parseDuration(options.failover, '--failover')
      await invoke(self, async ({ leases, out }) => {
        const measured = await measurePlace(leases, ROUNDS)
        const planned = planFailover(failover, measured)
        if (typeof planned === 'string')
          throw new CommandFailure({
            ...{ exit: EXIT.failed, code: 'IMPOSSIBLE', message: planned, means: 'Nothing was changed.' },
            next: 'Allow a longer --failover, or use a store that is nearer.',
          })
        if (out.json) await out.data({ ...planned, measured })
        else await out.text(planSentences(planned, measured).join('\n'))
      })
    })
}
