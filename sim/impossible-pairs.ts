/**
 * Pairs of features that cannot meet, with the reason. Every other pair must be met by the seeds of `npm test` (suite.ts). At present no pair is impossible:
 * where the rules refuse the second feature on the very lease that has the first, it still acts on another lease for the same resource or pool.
 */
import type { Feature } from './features.ts'

/** For `[first, second]`: why the second cannot act while the first is in force on the same lease or resource. */
const IMPOSSIBLE: readonly (readonly [first: Feature, second: Feature, reason: string])[] = []

const REASONS = new Map(IMPOSSIBLE.map(([first, second, reason]) => [`${first} ${second}`, reason]))

/** Undefined: the pair is possible. */
export function whyImpossible(first: Feature, second: Feature): string | undefined {
  return REASONS.get(`${first} ${second}`)
}

export function impossiblePairs(): typeof IMPOSSIBLE {
  return IMPOSSIBLE
}
