/**
 * Moves all leases to another log.
 *
 * Neither log decides anything while the leases are copied. Then the old log records, for good, where they are; only after that are they in force in the new
 * log. So whatever fails, and even if an operator cancels meanwhile, the leases are granted in one log at most. Before that record, the leases stay; after
 * it, the same call again completes the move.
 */
import { type Clock, systemClock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import type { Move } from '../kernel/command.ts'
import { propose } from '../lessor/propose.ts'
import type { Lessor } from '../lessor.ts'
import { refusedError } from '../refused-error.ts'
import type { Store } from '../store.ts'
import { readBackup } from './backup.ts'
import { completeMove, type LogContents, mustBeEmpty, restoreMoved } from './restore.ts'

export interface MoveLeasesOptions {
  /** The URL that the old log reports from now on. */
  readonly place: string
  /** Opens the store at that place; as its owner where `alone` asks for it and the store supports it. */
  readonly open: (alone: boolean) => Promise<Store>
  readonly clock?: Clock
}

/** Returns undefined if the leases had left already and only their arrival was missing. */
export async function moveLeases(old: Lessor, { place, open, clock = systemClock }: MoveLeasesOptions): Promise<LogContents | undefined> {
  const { value } = await old.read({ kind: 'summary' }, { consistent: true })
  // Check before the old log is changed: a missing driver, or a place that is unreachable or occupied, must not stop it even for a moment.
  if (value.moved === undefined) await mustBeEmpty(await open(true))
  const now = value.moved === place ? undefined : await leave(old, place, await open(true), clock)
  let arrived: boolean
  try {
    arrived = await completeMove(await open(false), { clock })
  } catch (error) {
    const where = `the leases have left for ${place}, where they are not in force yet: run the same command again to complete the move`
    throw withMoveState(error, where, 'not-complete')
  }
  if (now === undefined && !arrived)
    throw new LeaseError('INVALID', `the leases of this log have moved to ${place} already: there is nothing left to do`, {
      facts: { moved: place },
    })
  return now
}

async function leave(old: Lessor, place: string, store: Store, clock: Clock): Promise<LogContents> {
  const since = await begin(old, store)
  let now: LogContents
  try {
    now = await restoreMoved(store, await readBackup(old.backup!()), { clock })
  } catch (error) {
    // What may have been written there is not in force, and never will be.
    await order(old, { kind: 'move', stay: true, since }).catch(cause => {
      throw withMoveState(
        cause,
        `the leases could not be copied to ${place} (${String(error)}), and the move could not be cancelled: cancel it`,
        'not-complete',
      )
    })
    throw withMoveState(error, `the leases could not be copied to ${place}, and stay where they are`, 'called-off')
  }
  try {
    await order(old, { kind: 'move', to: place, since })
    return now
  } catch (error) {
    throw withMoveState(
      error,
      `the leases may not have left for ${place}: if they have, run the same command again to complete the move; if not, cancel it`,
      'not-complete',
    )
  }
}

async function begin(old: Lessor, store: Store): Promise<number> {
  try {
    if (old.backup === undefined)
      throw new LeaseError('UNSUPPORTED', 'the server offers no backup: run the move on the machine of the store')
    return await order(old, { kind: 'move' })
  } catch (error) {
    await store[Symbol.asyncDispose]()
    throw error
  }
}

/** Adds to an error what has become of the move. */
function withMoveState(error: unknown, what: string, move: 'called-off' | 'not-complete'): unknown {
  if (!(error instanceof LeaseError)) return error
  return new LeaseError(error.code, `${what} (${error.message})`, { cause: error, reason: error.reason, facts: { ...error.facts, move } })
}

async function order(lessor: Lessor, command: Move): Promise<number> {
  const outcome = await propose(lessor, command)
  if (outcome.kind === 'refused') throw refusedError(outcome)
  return outcome.revision
}
