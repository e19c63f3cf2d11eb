/** `leasehold restore`: replaces the state of a store by a backup. */
import { createReadStream } from 'node:fs'
import type { Command } from 'commander'
import { storeOf } from '../../connect/store-of.ts'
import { redactedUrl } from '../../connect/url.ts'
import { inWords, parseDuration } from '../../duration.ts'
import { LeaseError } from '../../errors.ts'
import { readBackup } from '../../replica/backup.ts'
import { restore as restoreInto } from '../../replica/restore.ts'
import { CommandFailure, EXIT, failureOf } from '../exit.ts'
import { counted } from '../format.ts'
import { addGlobalOptions, commandInput } from '../invocation.ts'
import { attributeErrors } from '../settings.ts'

interface RestoreFlags {
  readonly yes?: boolean
  readonly longestTtl?: string
  readonly clientsStopped?: boolean
}

export function restore(program: Command): void {
  addGlobalOptions(program.command('restore'))
    .summary('replace the state of a store by a backup')
    .description(
      'Replaces the state of the store. Stop all users of the store first. New tokens are greater than all that the backup or the store has given out. No lease is granted until the longest ttl has run out, because holders that the backup does not know may still be running. The store that the backup was made from knows how long that is; for another store, say it.',
    )
    .argument('<file>', 'the backup file (- for stdin)')
    .option('--longest-ttl <duration>', 'the longest ttl that a client may have been granted after the backup was made')
    .option('--clients-stopped', 'instead: no client runs any more that was granted a lease after the backup was made')
    .option('--yes', 'replace the state even if the store is not empty')
    .action(async (file: string, { yes = false, longestTtl, clientsStopped = false }: RestoreFlags, self: Command) => {
      const { settings, out } = commandInput(self)
      const state = await readBackup(file === '-' ? process.stdin : createReadStream(file))
      if (/^(leaseholds?|https?):/i.test(settings.url))
        throw new LeaseError('UNSUPPORTED', `${redactedUrl(settings.url)} is a server. Stop it, and restore into its store (--store)`)
      const store = await attributeErrors(settings, () => storeOf(settings.url, { own: { name: 'leasehold restore' } }))
      const now = await restoreInto(store, state, {
        ...(longestTtl !== undefined && { longestTtl: parseDuration(longestTtl, '--longest-ttl') }),
        clientsStopped,
        confirm: ({ leases, policies, keys }) => {
          if (yes || leases + policies + keys.length === 0) return
          throw new CommandFailure({
            exit: EXIT.failed,
            code: 'NOT_EMPTY',
            message: `${redactedUrl(settings.url)} holds ${counted(leases, 'lease')}, ${counted(policies, 'policy')} and ${counted(keys.length, 'key')}, which the backup would replace`,
            means: 'Nothing was changed.',
            next: 'To replace them, use --yes. Before that, save the present state: leasehold backup FILE',
          })
        },
      }).catch(error => Promise.reject(withAdvice(withActualEffect(error))))
      if (out.json) return out.data({ restored: file, ...now })
      out.note(
        `restored ${counted(now.leases, 'lease')}, ${counted(now.policies, 'policy')} and ${counted(now.keys.length, 'key')}; the next token is ${now.nextToken}`,
      )
      if (now.quiet > 0)
        out.note(`no lease is granted for ${inWords(now.quiet)}: until then, holders that the backup does not know may still be running`)
      if (now.keys.length > 0) out.note(`the keys are those of the backup, including keys that were revoked since: ${now.keys.join(', ')}`)
    })
}

/** Into another store than the one that the backup was made from: which ttl to name. */
function withAdvice(error: unknown): unknown {
  if (!LeaseError.is(error, 'INVALID') || error.reason !== 'longest-ttl') return error
  const allowed = inWords(Number(error.facts.allowed)).replaceAll(' ', '')
  const next = `Name the longest ttl that clients use: --longest-ttl ${allowed} is what policies allow. If none of them runs any more: --clients-stopped`
  return new CommandFailure({ ...failureOf(error), means: 'Nothing was changed.', next }, { cause: error })
}

/** For a restore that had begun: the usual "Nothing was done." would be false. */
function withActualEffect(error: unknown): unknown {
  if (!(error instanceof LeaseError) || error.facts.restore !== 'begun') return error
  const means =
    'The backup was not restored. The counters of the store were raised, and it grants no lease until the longest ttl has run out.'
  return new CommandFailure({ ...failureOf(error), means }, { cause: error })
}
