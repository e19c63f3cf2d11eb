import { pause } from '../clock.ts'
import { inWords } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import { LONGEST_RETRY, type Operations, refused, SHORTEST_RETRY } from './operations.ts'

const LONGEST_FAREWELL = 5_000

/** Resolves when the lessor has nothing of it any more; tried again for as long as that makes a difference. */
export async function farewell(operations: Operations, lease: number, term: number): Promise<void> {
  const { lessor, clock } = operations
  const patience = Math.min(LONGEST_FAREWELL, term)
  const end = clock.now() + patience
  for (let failures = 0; ; failures++) {
    try {
      const outcome = await operations.until(end, patience, lessor.propose({ kind: 'release', lease }))
      if (outcome.kind === 'done' || (outcome.kind === 'refused' && outcome.code === 'GONE')) return
      throw refused(outcome)
    } catch (cause) {
      // Whoever is refused for its key is refused again.
      const refusedForKey = cause instanceof LeaseError && (cause.code === 'UNAUTHENTICATED' || cause.code === 'FORBIDDEN')
      if (lessor.signal.aborted || clock.now() >= end || refusedForKey)
        throw new LeaseError('UNKNOWN', `lease ${lease} may not have been released: it lapses in at most ${inWords(term)}`, {
          cause,
          facts: { lease, ttl: term },
        })
      await pause(clock, Math.min(LONGEST_RETRY, SHORTEST_RETRY * 2 ** failures), undefined, { ref: true })
    }
  }
}
