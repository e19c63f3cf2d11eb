import { resolve } from 'node:path'
import type { Command } from 'commander'
import { keepAlive, systemClock } from '../../clock.ts'
import { openInPlace } from '../../connect/connect.ts'
import { storeOf } from '../../connect/store-of.ts'
import { redactedUrl } from '../../connect/url.ts'
import { LeaseError } from '../../errors.ts'
import { moveLeases } from '../../replica/move-leases.ts'
import { filePathOf } from '../../store/file/url.ts'
import { CommandFailure, failureOf } from '../exit.ts'
import { commandInput, common } from '../invocation.ts'

export function migrate(program: Command): void {
  common(program.command('migrate'), ['config', 'json'])
    .summary('carry all leases to another store, while they are held')
    .description(
      'FROM decides nothing while its leases are on their way, and afterwards tells everyone where they are: servers and programs that have it open go along. Tokens go on growing. TO must be empty; a server that has it open serves what arrives. Broken off after they have left, the same command again completes it. A password in TO is not written down for others: they must find it in their own environment.',
    )
    .argument('<from>', 'where the leases are: a store, or a server on it')
    .argument('[to]', 'the store they go to')
    .option('--cancel', 'let the leases of FROM stay: a move was broken off before they had left')
    .action(async (from: string, to: string | undefined, { cancel = false }: { cancel?: boolean }, self: Command) => {
      const { settings, out } = commandInput(self)
      if (cancel === (to !== undefined)) throw new LeaseError('INVALID', 'name where the leases go to, or say --cancel')
      const stay = keepAlive(systemClock)
      try {
        const origin = redactedUrl(from)
        await using old = await openInPlace(from, settings.apiKey === undefined ? {} : { apiKey: settings.apiKey })
        if (to === undefined) {
          const outcome = await old.propose({ kind: 'move', stay: true })
          if (outcome.kind === 'refused') throw new LeaseError(outcome.code, outcome.message, { facts: outcome.facts })
          if (out.json) return await out.data({ from: origin, stayed: true })
          return out.note(`the leases of ${origin} stay where they are`)
        }
        const place = asOthersFindIt(to)
        const open = (alone: boolean) => storeOf(to, alone ? { own: { name: 'leasehold migrate' } } : {})
        const now = await moveLeases(old, { place, open }).catch(error => Promise.reject(honest(error)))
        if (out.json) return await out.data({ from: origin, to: place, ...now })
        if (now === undefined) return out.note(`the leases of ${origin} had left for ${place} before, and are in force there now`)
        out.note(`${now.leases} leases have moved to ${place}; tokens go on from ${now.nextToken}`)
      } finally {
        stay()
      }
    })
}

/** What is written down is read by everyone who may read the log, each in a folder of its own. */
function asOthersFindIt(url: string): string {
  const path = filePathOf(url)
  if (path !== undefined && path !== '') return `file:${resolve(path)}`
  return url
    .replace(/^([a-z][a-z0-9+.-]*:\/\/[^/?#@:]*):[^/?#]*@/i, '$1@')
    .replace(/([?&])(?:password|passwd|pwd|sslpassword)=[^&]*&?/gi, '$1')
}

/** Of a move that had begun it is not true that nothing was done. */
function honest(error: unknown): unknown {
  if (!(error instanceof LeaseError)) return error
  const means = {
    'called-off': 'The move was begun and called off. The leases are where they were.',
    'not-complete': 'The move is not complete.',
  }
  const { move } = error.facts
  if (move !== 'called-off' && move !== 'not-complete') return error
  return new CommandFailure({ ...failureOf(error), means: means[move] }, { cause: error })
}
