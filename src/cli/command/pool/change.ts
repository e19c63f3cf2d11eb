/** `leasehold pool extend` and `leasehold pool return`: a holder keeps its members longer, or gives them back before their time. */
import type { Command } from 'commander'
import { parseDuration } from '../../../duration.ts'
import { LeaseError } from '../../../errors.ts'
import type { Command as KernelCommand } from '../../../kernel/command.ts'
import type { LeaseView } from '../../../lessor.ts'
import { CommandFailure, EXIT, failureOf, usageError } from '../../exit.ts'
import { addGlobalOptions, type Invocation, invoke } from '../../invocation.ts'
import { change } from '../operate.ts'
import { accountsIn, withAccounts } from './account.ts'
import { userName } from './request.ts'

const WHICH = 'the id of a lease, or POOL/MEMBER; the start of the member is enough'

export function extend(group: Command): void {
  addGlobalOptions(group.command('extend'))
    .summary('keep members longer than --for said; refused if a waiter or a reservation needs them')
    .argument('<lease|pool/member>', WHICH)
    .argument('<duration>', 'how much longer, for example 2h')
    .action(async (which: string, duration: string, _: unknown, self: Command) => {
      const by = parseDuration(duration, 'the duration')
      await invoke(self, async invocation => {
        const lease = await leaseOf(invocation, which)
        const { revision } = await changeOwn(invocation, lease, { kind: 'extend', lease, by }).catch(async error => {
          if (error instanceof LeaseError && error.reason === 'no-max-life')
            throw usageError(
              `lease ${lease} was taken without --for: it lasts as long as its command runs, and there is nothing to extend`,
              'To set an end that can be extended, take with --for.',
            )
          if (!LeaseError.is(error, 'HELD')) throw error
          const next = 'Give the members back when your time is over, or agree with the waiter.'
          throw new CommandFailure(
            {
              ...failureOf(error),
              message: await withAccounts(invocation, error),
              exit: EXIT.held,
              means: 'Nothing was changed: the end stays as it was.',
              next,
            },
            { cause: error },
          )
        })
        if (invocation.out.json) await invocation.out.data({ extended: lease, by, revision })
        else invocation.out.note(`lease ${lease} may be kept ${duration} longer`)
      })
    })
}

export function giveBack(group: Command): void {
  addGlobalOptions(group.command('return'))
    .summary('give members or a reservation back before their time')
    .description(
      'Ends a lease that holds or waits for members of a pool. A command that runs under it is ended first, and the members are free when it has stopped.',
    )
    .argument('<lease|pool/member>', WHICH)
    .action(async (which: string, _: unknown, self: Command) => {
      const work = async (invocation: Invocation) => {
        const { out, leases } = invocation
        const lease = await leaseOf(invocation, which)
        const { value } = await invocation.read({ kind: 'lease', lease })
        if (value === undefined) throw new LeaseError('GONE', `lease ${lease} has ended already`, { facts: { lease } })
        // A waiter holds nothing that could be in use.
        const command =
          value.status === 'waiting'
            ? ({ kind: 'release', lease } as const)
            : ({ kind: 'revoke', target: { lease }, by: leases.holder } as const)
        const { revision } = await changeOwn(invocation, lease, command).catch(error => {
          if (!LeaseError.is(error, 'FORBIDDEN') || error.facts.name === undefined) throw error
          const labels = new Map(value.labels)
          const next = `End its command (process ${labels.get('pid') ?? '?'} on ${labels.get('host') ?? '?'}): that frees the members at once.`
          throw new CommandFailure({ ...failureOf(error), next }, { cause: error })
        })
        if (out.json) await out.data({ returned: lease, revision })
        else
          out.note(
            value.status === 'waiting'
              ? `withdrew lease ${lease}`
              : `lease ${lease} ends; its members are free when its command has stopped`,
          )
      }
      await invoke(self, work, undefined, { holder: userName() })
    })
}

/** A lease of another key is reported as gone, so that nothing is revealed by its number. What this key can see all the same is not gone: it may not change it. */
async function changeOwn(invocation: Invocation, lease: number, command: KernelCommand): Promise<{ readonly revision: number }> {
  try {
    return await change(invocation, command)
  } catch (error) {
    if (!LeaseError.is(error, 'GONE')) throw error
    const { value } = await invocation.read({ kind: 'lease', lease })
    if (value === undefined || value.status === 'frozen') throw error
    const owner = await ownerOf(invocation, value)
    throw new LeaseError('FORBIDDEN', `lease ${lease} belongs to ${owner}, and the key in use may not change it`, { cause: error })
  }
}

/** The account that a lease counts for, or its holder where it counts for none. */
async function ownerOf(invocation: Invocation, { lease, holder, grants: [grant], wants: [want] }: LeaseView): Promise<string> {
  // A waiter waits for the name of the pool. A member is under it.
  const pool = want?.resource ?? grant?.resource.slice(0, grant.resource.lastIndexOf('/'))
  return (pool && (await accountsIn(invocation, pool, lease)).get(lease)) || holder
}

/** The lease that is meant by its id, or by a member that it holds. */
async function leaseOf({ read }: Invocation, which: string): Promise<number> {
  if (/^\d{1,16}$/.test(which)) return Number(which)
  const slash = which.lastIndexOf('/')
  if (slash <= 0) throw usageError(`${which} is neither the id of a lease nor POOL/MEMBER`, 'To see both, run: leasehold pool ls POOL')
  const [pool, start] = [which.slice(0, slash), which.slice(slash + 1)]
  const { value } = await read({ kind: 'pool', pool, limit: 0 })
  const found = value.members.filter(({ member }) => member === start || member.startsWith(start))
  const exact = found.find(({ member }) => member === start)
  const [member] = exact === undefined ? found : [exact]
  if (member === undefined) throw new LeaseError('NOT_FOUND', `the pool ${pool} has no member ${start}`, { facts: { member: start } })
  if (exact === undefined && found.length > 1)
    throw usageError(`${found.length} members of ${pool} begin with ${start}`, 'Write more of the name, or the id of the lease.')
  const { grants } = member
  if (grants.length === 0) throw new LeaseError('NOT_FOUND', `${member.resource} is not taken`, { facts: { member: member.member } })
  if (grants.length > 1)
    throw usageError(
      `${member.resource} is shared by ${grants.length} leases`,
      `Name one by its id: ${grants.map(({ lease }) => lease).join(', ')}`,
    )
  return grants[0]!.lease
}
