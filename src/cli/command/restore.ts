import { createReadStream } from 'node:fs'
import type { Command } from 'commander'
import { storeOf } from '../../connect/store-of.ts'
import { redactedUrl } from '../../connect/url.ts'
import { inWords } from '../../duration.ts'
import { LeaseError } from '../../errors.ts'
import { readBackup } from '../../replica/backup.ts'
import { restore as restoreInto } from '../../replica/restore.ts'
import { CommandFailure, EXIT, failureOf } from '../exit.ts'
import { commandInput, common } from '../invocation.ts'
import { blamed } from '../settings.ts'

export function restore(program: Command): void {
  common(program.command('restore'))
    .summary('put a backup in the place of what a store holds')
    .description(
      'Tokens go on above all that the backup or the store has given out. Nothing is granted until the longest ttl has run, since holders may still believe in what the backup does not know. Stop everyone who uses the store first.',
    )
    .argument('<file>', 'a backup (- is stdin)')
    .option('--yes', 'even though the store holds leases')
    .action(async (file: string, { yes = false }: { yes?: boolean }, self: Command) => {
      const { settings, out } = commandInput(self)
      const state = await readBackup(file === '-' ? process.stdin : createReadStream(file))
      if (/^(leaseholds?|https?):/i.test(settings.url))
        throw new LeaseError(
          'UNSUPPORTED',
          `${redactedUrl(settings.url)} is a server: stop it, and restore into the store behind it (--store)`,
        )
      const store = await blamed(settings, () => storeOf(settings.url, { own: { name: 'leasehold restore' } }))
      const now = await restoreInto(store, state, {
        confirm: ({ leases, policies, keys }) => {
          if (yes || leases + policies + keys.length === 0) return
          throw new CommandFailure({
            exit: EXIT.failed,
            code: 'NOT_EMPTY',
            happened: `${redactedUrl(settings.url)} holds ${leases} leases, ${policies} policies and ${keys.length} keys, which the backup would replace`,
            means: 'Nothing was changed.',
            next: 'Say --yes if that is what you want; a backup of the present state first is wise.',
          })
        },
      }).catch(error => Promise.reject(honest(error)))
      if (out.json) return out.data({ restored: file, ...now })
      out.note(`restored ${now.leases} leases, ${now.policies} policies and ${now.keys.length} keys; tokens go on from ${now.nextToken}`)
      if (now.quiet > 0)
        out.note(`nothing is granted for ${inWords(now.quiet)}: until then, holders may believe in what the backup does not know`)
      if (now.keys.length > 0) out.note(`keys are as they were then, also those that were revoked since: ${now.keys.join(', ')}`)
    })
}

/** Of a restore that had begun it is not true that nothing was done. */
function honest(error: unknown): unknown {
  if (!(error instanceof LeaseError) || error.facts.restore !== 'begun') return error
  const means = 'The backup is not in force. Counters of the store were raised, and it grants nothing until the longest ttl has run.'
  return new CommandFailure({ ...failureOf(error), means }, { cause: error })
}
