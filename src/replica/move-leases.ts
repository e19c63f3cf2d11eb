/**
 * Leases move to another log.
 *
 * Both logs decide nothing while they are copied. Then the old one says for good where they are, and only after that are they in force in the
 * new one: whatever breaks off, and whoever calls it off meanwhile, they are granted in one place at most. Before the old log has said it, they
 * stay; after it, the same call again completes what is missing.
 */
import { type Clock, systemClock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import type { Move } from '../kernel/command.ts'
import type { Lessor } from '../lessor.ts'
import type { Store } from '../store.ts'
import { readBackup } from './backup.ts'
import { completeMove, type LogContents, mustBeEmpty, restoreMoved } from './restore.ts'

export interface MoveLeasesOptions {
  /** What the old log tells everyone. */
  readonly place: string
  /** The store at that place; alone on it where that is asked for and possible. */
  readonly open: (alone: boolean) => Promise<Store>
  readonly clock?: Clock
}

/** Undefined: they had left already, and only their arrival was missing. */
export async function moveLeases(old: Lessor, { place, open, clock = systemClock }: MoveLeasesOptions): Promise<LogContents | undefined> {
  const { value } = await old.read({ kind: 'summary' }, { consistent: true })
  // Before the old log is told anything: a driver that is missing, or a place that cannot be reached or is taken, must not stop it even for a moment.
  if (value.moved === undefined) await mustBeEmpty(await open(true))
  const now = value.moved === place ? undefined : await leave(old, place, await open(true), clock)
  let arrived: boolean
  try {
    arrived = await completeMove(await open(false), { clock })
  } catch (error) {
    const where = `the leases have left for ${place}, where nobody can have them yet: the same command again completes the move`
    throw told(error, where, 'not-complete')
  }
  if (now === undefined && !arrived)
    throw new LeaseError('INVALID', `the leases of this log have moved to ${place} already: nothing was left to do`, {
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
      throw told(
        cause,
        `the leases could not be carried to ${place}, for ${String(error)}; nor be told to stay: call it off`,
        'not-complete',
      )
    })
    throw told(error, `the leases could not be carried to ${place}, and stay where they are`, 'called-off')
  }
  try {
    await order(old, { kind: 'move', to: place, since })
    return now
  } catch (error) {
    throw told(
      error,
      `the leases may not have left for ${place}: if they have, the same command again completes the move; if not, call it off`,
      'not-complete',
    )
  }
}

async function begin(old: Lessor, store: Store): Promise<number> {
  try {
    if (old.backup === undefined) throw new LeaseError('UNSUPPORTED', 'the server gives no copy of its state: move where the store is')
    return await order(old, { kind: 'move' })
  } catch (error) {
    await store[Symbol.asyncDispose]()
    throw error
  }
}

/** `move`: what has become of it. */
function told(error: unknown, what: string, move: 'called-off' | 'not-complete'): unknown {
  if (!(error instanceof LeaseError)) return error
  return new LeaseError(error.code, `${what} (${error.message})`, { cause: error, facts: { ...error.facts, move } })
}

async function order(lessor: Lessor, command: Move): Promise<number> {
  const outcome = await lessor.propose(command)
  if (outcome.kind === 'refused') throw new LeaseError(outcome.code, outcome.message, { facts: outcome.facts })
  return outcome.revision
}
