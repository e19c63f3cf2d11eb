/** Releases a lease at the lessor, and retries while that makes a difference. */
import { BACKOFF, pauseAfter } from '../backoff.ts'
import { pause } from '../clock.ts'
import { inWords } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import { MAX_STOPPED, type Release } from '../kernel/command.ts'
import type { LossCause } from '../kernel/loss-cause.ts'
import { propose } from '../lessor/propose.ts'
import { type Operations, refused } from './operations.ts'

const LONGEST_RELEASE = 5_000

/** The facts about the end of a lease that are sent to the lessor. */
export interface HowEnded {
  /** For how many ms it was held, for statistics. */
  readonly ran?: number | undefined
  /** Why the holder lost it. Undefined: it was released, or the lessor knows. */
  readonly lost?: LossCause | undefined
}

/**
 * Resolves when the lease has ended at the lessor. `stopped` names its children that have ended here: they go in the same release, so that all
 * end in one revision.
 */
export async function releaseWithRetry(
  operations: Operations,
  lease: number,
  term: number,
  stopped: readonly number[] = [],
  how: HowEnded = {},
): Promise<void> {
  const named = stopped.slice(0, MAX_STOPPED)
  const rest = stopped.slice(MAX_STOPPED)
  const gone = await release(operations, lease, term, named, how)
  // If the lessor had ended it before, its children are frozen until their holder says that it has stopped.
  const { lost } = how
  await Promise.all([...(gone ? named : []), ...rest].map(child => release(operations, child, term, [], { lost })))
}

/** Returns whether the lessor had ended the lease before. */
async function release(
  operations: Operations,
  lease: number,
  term: number,
  stopped: readonly number[],
  { ran, lost }: HowEnded,
): Promise<boolean> {
  const { lessor, clock } = operations
  const command: Release = {
    kind: 'release',
    lease,
    ...(stopped.length > 0 && { stopped }),
    ...(ran !== undefined && { ran }),
    ...(lost !== undefined && { lost }),
  }
  const timeout = Math.min(LONGEST_RELEASE, term)
  const end = clock.now() + timeout
  for (let failures = 0; ; failures++) {
    try {
      const outcome = await operations.until(end, timeout, propose(lessor, command))
      if (outcome.kind === 'done') return false
      if (outcome.kind === 'refused' && outcome.code === 'GONE') return true
      throw refused(outcome)
    } catch (cause) {
      // A refused key is refused again.
      const refusedForKey = LeaseError.is(cause, 'UNAUTHENTICATED', 'FORBIDDEN')
      if (lessor.signal.aborted || clock.now() >= end || refusedForKey)
        throw new LeaseError('UNKNOWN', `lease ${lease} may not have been released: it lapses in at most ${inWords(term)}`, {
          cause,
          facts: { lease, ttl: term },
        })
      await pause(clock, pauseAfter(BACKOFF.request, failures), undefined, { ref: true })
    }
  }
}
