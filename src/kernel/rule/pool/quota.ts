/** Quotas of units: what an account of a pool may hold, and what it may borrow of units that others leave free. */

export interface AccountQuota {
  readonly held: number
  /** Units that it may hold; 0: any number. */
  readonly quota: number
  /** Units that it may hold beyond its quota. */
  readonly borrow: number
}

/** `within`: its own units. `borrowed`: only while no waiter within its own quota needs them. `over`: not at all, until it holds less. */
export type QuotaStanding = 'within' | 'borrowed' | 'over'

/** Where an account would stand with so many units more. */
export function standingWith({ held, quota, borrow }: AccountQuota, units: number): QuotaStanding {
  if (quota === 0 || held + units <= quota) return 'within'
  return held + units <= quota + borrow ? 'borrowed' : 'over'
}

/** The most units that the account could ever hold; undefined: any number. */
export function mostUnits({ quota, borrow }: AccountQuota): number | undefined {
  return quota === 0 ? undefined : quota + borrow
}
