/** When a request of an account that has used up a quota of units can start: as soon as enough of the account's own leases have ended. */

/** A quota that a request would exceed. */
export interface BeyondQuota {
  /** Undefined: of all units of the pool. */
  readonly kind: string | undefined
  readonly held: number
  readonly quota: number
  readonly asked: number
}

/** A lease of the account. */
export interface QuotaUse {
  /** It ends in this many ms. */
  readonly end: number
  /** The units that it gives back then; undefined: of all kinds. */
  readonly unitsOf: (kind: string | undefined) => number
}

/** The time in ms after which all quotas allow the request. Use of members that are gone is in no forecast, so that the last end counts if that is not enough. */
export function withinQuotas(beyond: readonly BeyondQuota[], uses: readonly QuotaUse[]): number {
  const sorted = [...uses].sort((a, b) => a.end - b.end)
  return beyond.reduce((time, quota) => Math.max(time, freed(quota, sorted)), 0)
}

function freed({ kind, held, quota, asked }: BeyondQuota, uses: readonly QuotaUse[]): number {
  let left = held + asked - quota
  for (const { end, unitsOf } of uses) {
    left -= unitsOf(kind)
    if (left <= 0) return end
  }
  return uses.at(-1)?.end ?? 0
}
