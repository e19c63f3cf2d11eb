/** `leasehold migrate`: moves all leases to another store. */
import { resolve } from 'node:path'
import type { Command } from 'commander'
import { keepAlive, systemClock } from '../../clock.ts'
import { openInPlace } from '../../connect/connect.ts'
import { storeOf } from '../../connect/store-of.ts'
import { redactedUrl, viaOf } from '../../connect/url.ts'
import { inWords } from '../../duration.ts'
import { LeaseError } from '../../errors.ts'
import { propose } from '../../lessor/propose.ts'
import { refusedError } from '../../refused-error.ts'
import { type MovePlan, moveLeases } from '../../replica/move-leases.ts'
import { filePathOf } from '../../store/file/url.ts'
import { CommandFailure, EXIT, failureOf } from '../exit.ts'
import { counted } from '../format.ts'
import { addGlobalOptions, commandInput } from '../invocation.ts'

interface MigrateFlags {
  readonly cancel?: boolean
  readonly yes?: boolean
}

export function migrate(program: Command): void {
  addGlobalOptions(program.command('migrate'), ['config', 'json'])
    .summary('move all leases to another store, while they are held')
    .description(
      'Moves all leases from FROM to TO, which must be empty. They are copied while FROM still serves; then FROM makes no decisions for a moment, which the command measures and reports beforehand. If that may be too long for some leases, it asks for --yes. Afterwards FROM refers servers and programs to TO, and those that have it open follow. Tokens keep growing. A server that has TO open serves the leases that arrive. If the move is interrupted after the leases have left, run the same command again to complete it. A password in TO is not recorded: the others must find it in their own environment.',
    )
    .argument('<from>', 'the store that has the leases, or a server on it')
    .argument('[to]', 'the store to move them to')
    .option('--yes', 'move even if leases with a short ttl may be lost')
    .option('--cancel', 'keep the leases in FROM, after a move that was interrupted before they had left')
    .action(async (from: string, to: string | undefined, { cancel = false, yes = false }: MigrateFlags, self: Command) => {
      const { settings, out } = commandInput(self)
      if (cancel === (to !== undefined)) throw new LeaseError('INVALID', 'migrate needs either TO, the store to move to, or --cancel')
      const letExit = keepAlive(systemClock)
      try {
        const origin = redactedUrl(from)
        await using old = await openInPlace(from, settings.apiKey === undefined ? {} : { apiKey: settings.apiKey })
        if (to === undefined) {
          const outcome = await propose(old, { kind: 'move', stay: true })
          if (outcome.kind === 'refused') throw refusedError(outcome)
          if (out.json) return await out.data({ from: origin, stayed: true })
          return out.note(`the move is cancelled: the leases stay in ${origin}`)
        }
        const place = recordedUrl(to)
        const open = () => storeOf(to)
        const confirm = (plan: MovePlan) => {
          if (!out.json) out.note(`${counted(plan.leases, 'lease')}; for about ${inWords(plan.stop)} none can be renewed`)
          if (plan.atRisk > 0 && !yes) throw tooShort(plan, origin)
        }
        const now = await moveLeases(old, { place, open, confirm }).catch(error => Promise.reject(withActualEffect(error)))
        if (out.json) return await out.data({ from: origin, to: place, ...now })
        if (now === undefined) return out.note(`the leases of ${origin} had already left for ${place}. The move is complete now`)
        out.note(
          `${counted(now.leases, 'lease')} moved to ${place}; for ${inWords(now.stopped)} none could be renewed; the next token is ${now.nextToken}`,
        )
      } finally {
        letExit()
      }
    })
}

function tooShort({ leases, stop, shortest, atRisk }: MovePlan, origin: string): CommandFailure {
  return new CommandFailure({
    exit: EXIT.failed,
    code: 'SHORT_LEASES',
    message: `leases with a ttl below ${inWords(shortest)} may be lost: ${atRisk} of the ${leases} leases of ${origin}. For about ${inWords(stop)} none can be renewed, and holders renew at half of the ttl`,
    means: 'Nothing was changed.',
    next: 'To move them all the same, use --yes.',
    facts: { leases, stop, shortest, atRisk },
  })
}

/** The URL that is recorded in FROM. Every reader of that log sees it, in its own working folder: so an absolute path and no password. */
function recordedUrl(given: string): string {
  const { url } = viaOf(given)
  const path = filePathOf(url)
  if (path !== undefined && path !== '') return `file:${resolve(path)}`
  return url
    .replace(/^([a-z][a-z0-9+.-]*:\/\/[^/?#@:]*):[^/?#]*@/i, '$1@')
    .replace(/([?&])(?:password|passwd|pwd|sslpassword)=[^&]*&?/gi, '$1')
}

/** For a move that had begun: the usual "Nothing was done." would be false. */
function withActualEffect(error: unknown): unknown {
  if (!(error instanceof LeaseError)) return error
  const means = {
    'called-off': 'The move was begun and cancelled. The leases are still in the old store.',
    'not-complete': 'The move is not complete.',
  }
  const { move } = error.facts
  if (move !== 'called-off' && move !== 'not-complete') return error
  return new CommandFailure({ ...failureOf(error), means: means[move] }, { cause: error })
}
