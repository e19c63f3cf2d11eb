/**
 * Replaces the contents of a log by a backup.
 *
 * Not guaranteed: what was decided after the backup was taken. Leases granted since then are unknown to the restored log, and keys revoked since then work
 * again. Guaranteed: tokens, ids and revisions continue above all that the backup or the log itself has given out; nothing is granted until the longest
 * term that a holder may still trust has passed, and leases in the backup last at least as long; fences never go back; until the last step the log keeps its
 * contents. The log that the backup was made from knows that longest term. Into another log, the caller has to say it.
 *
 * The new contents are written as a snapshot, which running replicas do not read. So the log is owned where the store supports it. Elsewhere it must be
 * empty, and it decides nothing (`move` with `into`) from before the snapshot until a record after it: that record carries the decision hash of the snapshot,
 * and replicas with another decision hash load the snapshot (log.ts).
 */
import { type Clock, systemClock } from '../clock.ts'
import { inWords } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import { apply } from '../kernel/apply.ts'
import type { Generation } from '../kernel/command.ts'
import { rule } from '../kernel/rule/policy.ts'
import type { State } from '../kernel/state.ts'
import type { Store } from '../store.ts'
import { missingRecord } from './log.ts'
import { END, OfflineLog, silent, takePlaceOf } from './offline-log.ts'

export interface RestoreOptions {
  readonly clock?: Clock
  /**
   * The longest ttl, in ms, that a client may have been granted after the backup was made. Needed unless the log is the one that the backup was made from, and
   * has all its records.
   */
  readonly longestTtl?: number
  /** Instead: no client runs any more that was granted a lease after the backup was made. */
  readonly clientsStopped?: boolean
  /** Called with the present contents of the log. An error that it throws stops the restore before anything is changed. */
  readonly confirm?: (found: LogContents) => void | PromiseLike<void>
}

/** The contents of a log, in numbers. */
export interface LogContents {
  readonly leases: number
  readonly policies: number
  readonly keys: readonly string[]
  readonly nextToken: number
  readonly revision: number
  /** For how many ms nothing is granted. */
  readonly quiet: number
}

/** Takes over the store: opens it and disposes of it. */
export async function restore(store: Store, backup: State, options: RestoreOptions = {}): Promise<LogContents> {
  const { clock = systemClock, confirm, longestTtl, clientsStopped = false } = options
  await using here = store
  const target = await OfflineLog.open(here)
  if (here.profile.shared && target.state.index > 0)
    throw new LeaseError(
      'UNSUPPORTED',
      'a log that other processes may have open cannot be replaced: restore into an empty one, as with ?name=NEW',
    )
  for (const { moved } of [target.state, backup])
    if (moved) throw new LeaseError('INVALID', `the leases of this log have moved to ${moved}: restore there`, { facts: { moved } })
  await confirm?.(contentsOf(target.state))
  if (longestTtl === undefined && !clientsStopped && !contains(target.state, backup)) throw longestTtlUnknown(backup)

  // First in the log itself: whatever fails later, its counters are above all that the backup has given out.
  const above: Generation = {
    kind: 'generation',
    lease: Math.max(target.state.nextLease, backup.nextLease),
    token: Math.max(target.state.nextToken, backup.nextToken),
    revision: Math.max(target.state.revision, backup.revision),
    quiet: Math.max(longestTtl ?? 0, longest(target.state), longest(backup)),
  }
  const { shared } = here.profile
  if (shared) await target.close(above, clock)
  else await target.append([above], clock)
  takePlaceOf(target.state, backup)
  const { nextLease: lease, nextToken: token, revision } = target.state
  apply(backup, { command: { ...above, lease, token, revision } }, silent())
  try {
    await target.replaceBy(backup, clock)
    if (shared) await target.append([END], clock)
  } catch (error) {
    if (!(error instanceof LeaseError)) throw error
    // The caller must not take this for "nothing was done": the log has one more generation.
    throw new LeaseError(error.code, error.message, { cause: error, reason: error.reason, facts: { ...error.facts, restore: 'begun' } })
  }
  return contentsOf(backup)
}

/** Returns whether the log has all records of the backup: then it knows the longest term of all that it has granted since. */
function contains(log: State, backup: State): boolean {
  const isSame = [...backup.proposers.keys()].some(proposer => log.proposers.has(proposer))
  return isSame && log.index >= backup.index && missingRecord(log, backup) === undefined
}

function longestTtlUnknown(backup: State): LeaseError {
  const { longest: known, allowed } = longestTtlOf(backup)
  return new LeaseError(
    'INVALID',
    `leases that were granted after the backup was made may be longer than any that it knows (${inWords(known)}), so it is not known when their holders have stopped; its policies allow ${inWords(allowed)}`,
    { reason: 'longest-ttl', facts: { known, allowed } },
  )
}

/** The longest term that a state has given, and the longest ttl that its policies allow. */
function longestTtlOf(state: State): { readonly longest: number; readonly allowed: number } {
  const named = [...state.policies.values()].map(rules => rules.ttlMax ?? 0)
  return { longest: longest(state), allowed: Math.max(rule(state, '', 'ttlMax'), ...named) }
}

/** For how long a holder may trust what this state, or one before it, has granted. */
function longest({ longest: term, quiet }: State): number {
  return Math.max(term, quiet?.duration ?? 0)
}

export function contentsOf(state: State): LogContents {
  return {
    leases: state.leases.size,
    policies: state.policies.size,
    keys: [...state.keys.values()].map(({ name }) => name),
    nextToken: state.nextToken,
    revision: state.revision,
    quiet: state.quiet?.duration ?? 0,
  }
}
