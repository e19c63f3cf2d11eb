/** `leasehold revoke` and `leasehold break`: operators end the leases of other holders. */
import type { Command } from 'commander'
import { parseDuration } from '../../duration.ts'
import { refused } from '../../holder/operations.ts'
import type { Command as KernelCommand } from '../../kernel/command.ts'
import { propose } from '../../lessor/propose.ts'
import { usageError } from '../exit.ts'
import { addGlobalOptions, type Invocation, invoke } from '../invocation.ts'

/** Proposes a command. A refusal is thrown as an error. */
export async function change(
  { lessor, signal }: Invocation,
  command: KernelCommand,
): Promise<{ readonly id?: number; readonly revision: number }> {
  const outcome = await propose(lessor, command, { signal })
  if (outcome.kind === 'refused') throw refused(outcome)
  return outcome.kind === 'done' ? outcome : { revision: outcome.revision }
}

export function revoke(program: Command): void {
  addGlobalOptions(program.command('revoke'))
    .summary('end leases; their resources become free when the holders have stopped')
    .description(
      'Ends a lease, or all leases that hold or wait for a name under a prefix. Their holders are notified. Their resources stay frozen until the holders report that they have stopped, or their ttl has run out. With --force they are free at once, and two holders may use the same resource.',
    )
    .argument('[lease|prefix]', 'the id of a lease, or a prefix')
    .option('--of <holder>', 'end all leases of this holder instead')
    .option('--force', 'free the resources at once, without waiting for the holders to stop')
    .action(async (what: string | undefined, { of, force }: { of?: string; force?: boolean }, self: Command) => {
      if ((what === undefined) === (of === undefined))
        throw usageError('revoke takes exactly one target: a lease, a prefix, or --of HOLDER', 'Run: leasehold help revoke')
      const target = of !== undefined ? { holder: of } : /^\d{1,16}$/.test(what!) ? { lease: Number(what) } : { prefix: what! }
      await invoke(self, async invocation => {
        const { revision, id: ended = 'lease' in target ? 1 : 0 } = await change(invocation, {
          kind: 'revoke',
          target,
          by: invocation.leases.holder,
          ...(force === true && { force }),
        })
        if (invocation.out.json) await invocation.out.data({ revoked: target, ended, revision })
        else invocation.out.note(`revoked ${of ?? what}${'lease' in target ? '' : ` (${ended} leases)`}`)
      })
    })
}

export function breakHold(program: Command): void {
  addGlobalOptions(program.command('break'))
    .summary('end the leases that hold a resource, now or after a time')
    .description(
      'Ends the leases that hold NAME. Their holders are notified. NAME stays frozen until they report that they have stopped, or their ttl has run out.',
    )
    .argument('<name>', 'the resource')
    .option('--after <duration>', 'end them this long from now; a second break can only shorten it', '0s')
    .action(async (resource: string, { after }: { after: string }, self: Command) => {
      const ms = parseDuration(after, '--after')
      await invoke(self, async invocation => {
        const { revision } = await change(invocation, { kind: 'break', resource, after: ms, by: invocation.leases.holder })
        if (invocation.out.json) await invocation.out.data({ broken: resource, after: ms, revision })
        else
          invocation.out.note(
            ms === 0 ? `broke ${resource}: its holders were told to stop` : `${resource}: the leases that hold it end in ${after}`,
          )
      })
    })
}
