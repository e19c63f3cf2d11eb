import type { Command } from 'commander'
import { systemClock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import type { Command as Order } from '../kernel/command.ts'
import type { Lessor } from '../lessor.ts'
import { openHere, storeOf } from '../open.ts'
import { readBackup } from '../replica/backup.ts'
import { type Restored, settleIn } from '../replica/restore.ts'
import { CommandFailure, EXIT } from './exit.ts'
import { asked, common, stayAlive } from './visit.ts'

export function migrate(program: Command): void {
  common(program.command('migrate'))
    .summary('carry all leases to another store, while they are held')
    .description(
      'FROM decides nothing while its leases are on their way, and afterwards tells everyone where they are: servers and programs that have it open go along. Tokens go on growing. TO must be empty and in use by nobody. A password in TO is not written down for others: they must find it in their own environment.',
    )
    .argument('<from>', 'where the leases are: a store, or a server on it')
    .argument('[to]', 'the store they go to')
    .option('--cancel', 'let the leases of FROM stay: a move was broken off')
    .action(async (from: string, to: string | undefined, { cancel = false }: { cancel?: boolean }, self: Command) => {
      const { settings, out } = asked(self)
      if (cancel === (to !== undefined)) throw new LeaseError('INVALID', 'name where the leases go to, or say --cancel')
      const stay = stayAlive(systemClock)
      try {
        await using old = await openHere(from, settings.apiKey === undefined ? {} : { apiKey: settings.apiKey })
        if (to === undefined) {
          await order(old, { kind: 'move', stay: true })
          if (out.json) return await out.data({ from, stayed: true })
          return out.note(`the leases of ${from} stay where they are`)
        }
        const now = await carry(old, to)
        if (out.json) return await out.data({ from, to: without(to), ...now })
        out.note(`${now.leases} leases have moved to ${without(to)}; tokens go on from ${now.nextToken}`)
      } finally {
        stay()
      }
    })
}

async function carry(old: Lessor, to: string): Promise<Restored> {
  if (old.backup === undefined) throw new LeaseError('UNSUPPORTED', 'the server gives no copy of its state: move where the store is')
  const store = await storeOf(to, { own: { name: 'leasehold migrate' } }) // a bad name is told before anything is closed
  await order(old, { kind: 'move' })
  let now: Restored
  try {
    now = await settleIn(store, await readBackup(old.backup()))
  } catch (error) {
    // Unless it is certain that they are not there, they must not be granted here.
    if (error instanceof LeaseError && error.code === 'UNKNOWN')
      throw new CommandFailure({
        exit: EXIT.failed,
        code: 'UNKNOWN',
        happened: `it is not known whether the leases have arrived: ${error.message}`,
        means: 'The old store decides nothing meanwhile; holders end by their own clocks.',
        next: 'Look into the new store. If it is empty: leasehold migrate FROM --cancel, then again. If not, tell nobody to use the old one.',
      })
    await order(old, { kind: 'move', stay: true })
    throw error
  }
  await order(old, { kind: 'move', to: without(to) })
  return now
}

async function order(lessor: Lessor, command: Order): Promise<void> {
  const outcome = await lessor.propose(command)
  if (outcome.kind === 'refused') throw new LeaseError(outcome.code, outcome.message, { facts: outcome.facts })
}

/** What is written down is read by everyone who may read the log. */
function without(url: string): string {
  return url.replace(/^([a-z+]+:\/\/[^/@:]*):[^/@]*@/i, '$1@')
}
