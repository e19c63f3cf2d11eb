/** What operators do to leases of others. */
import type { Command } from 'commander'
import { parseDuration } from '../../duration.ts'
import { refused } from '../../holder/operations.ts'
import type { Command as KernelCommand } from '../../kernel/command.ts'
import { usage } from '../exit.ts'
import { common, type Invocation, invoke } from '../invocation.ts'

/** As the holder's side asks: refusals are failures here. */
export async function change(
  { lessor, signal }: Invocation,
  command: KernelCommand,
): Promise<{ readonly id?: number; readonly revision: number }> {
  const outcome = await lessor.propose(command, { signal })
  if (outcome.kind === 'refused') throw refused(outcome)
  return outcome.kind === 'done' ? outcome : { revision: outcome.revision }
}

export function revoke(program: Command): void {
  common(program.command('revoke'))
    .summary('end leases: what they held is free when their holders have stopped')
    .description(
      'Ends a lease, or all that hold or want something under a prefix. Holders are told; what they held stays frozen until they say that they have stopped, or their ttl has run. With --force it is free at once, and two may believe they hold it.',
    )
    .argument('[what]', 'the number of a lease, or a prefix')
    .option('--of <holder>', 'all leases of this holder instead')
    .option('--force', 'do not wait until the holders have stopped')
    .action(async (what: string | undefined, { of, force }: { of?: string; force?: boolean }, self: Command) => {
      if ((what === undefined) === (of === undefined))
        throw usage('revoke takes one thing: a lease, a prefix, or --of HOLDER', 'See leasehold help revoke.')
      const target = of !== undefined ? { holder: of } : /^\d{1,16}$/.test(what!) ? { lease: Number(what) } : { prefix: what! }
      await invoke(self, async here => {
        const { revision } = await change(here, { kind: 'revoke', target, by: here.leases.holder, ...(force === true && { force }) })
        if (here.out.json) await here.out.data({ revoked: target, revision })
        else here.out.note(`revoked ${of ?? what}`)
      })
    })
}

export function breakHold(program: Command): void {
  common(program.command('break'))
    .summary('end whoever holds a resource, after a while at the latest')
    .argument('<name>', 'a resource')
    .option('--after <duration>', 'from now; a second break may only shorten', '0s')
    .action(async (resource: string, { after }: { after: string }, self: Command) => {
      const ms = parseDuration(after, '--after')
      await invoke(self, async here => {
        const { revision } = await change(here, { kind: 'break', resource, after: ms, by: here.leases.holder })
        if (here.out.json) await here.out.data({ broken: resource, after: ms, revision })
        else here.out.note(ms === 0 ? `whoever held ${resource} was told to stop` : `whoever holds ${resource} is ended in ${after}`)
      })
    })
}
