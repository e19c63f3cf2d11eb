/** A part of a revocation by holder or prefix. A replica writes one as several commands, so that none of them stops the replicas for long. */

/** The most leases that one command revokes, with their descendants; a single family may be larger. */
export const MAX_REVOKED = 1_000

export interface RevokePart {
  /** Only those of these leases that the target names. */
  readonly among?: readonly number[]
  /** The commands before this one have ended this many leases. */
  readonly ended?: number
}
