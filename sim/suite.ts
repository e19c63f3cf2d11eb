/** The seeds of `npm test`. */
import type { ProfileName } from './profiles.ts'

export interface SuitePart {
  /** Left out: the profiles in turns. */
  readonly profile?: ProfileName
  readonly seeds: number
}

export const SUITE: readonly SuitePart[] = [
  { seeds: 25 },
  { profile: 'agents', seeds: 5 },
  { profile: 'combined', seeds: 15 },
  { profile: 'directed', seeds: 1 },
  { profile: 'failover', seeds: 3 },
  { profile: 'cases', seeds: 1 },
  { profile: 'idle', seeds: 5 },
]
