/** The input of the run of one seed, and its result. */
import type { ProfileName } from './profiles.ts'

export interface SeedResult {
  readonly seed: number
  readonly profile: ProfileName
  readonly commands: number
  readonly faults: number
  readonly events: number
  readonly simulatedMs: number
  readonly digest: number
  readonly violation?: { readonly invariant: string; readonly message: string }
  /** The time was over before the required commands and faults: no invariant was violated, but too little was tried. */
  readonly short?: true
  /** The known findings that the seed met, and how. */
  readonly met: Readonly<Record<string, string>>
  /** Each pair of features met this many times (pairs.ts). */
  readonly pairs: Readonly<Record<string, number>>
}

export interface SeedOptions {
  readonly profile?: ProfileName | undefined
  readonly trace?: ((line: string) => void) | undefined
  readonly commands?: number
  readonly faults?: number
  /** The virtual time for them, in seconds. */
  readonly within?: number
  /** The directed world plays this many pairs; left out: all of them. */
  readonly pairs?: number
}
