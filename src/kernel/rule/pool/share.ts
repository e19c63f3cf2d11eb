/**
 * Fair shares: which account comes next, and when one account may take units from another.
 *
 * Without preemption, the account with the least usage for its weight comes first. A waiter that waited for long jobs of others is owed that time, and gets
 * it back.
 *
 * With preemption there is no need to owe anything: the account that holds least for its weight comes first, and usage decides only between equals. Its
 * memory is short (`PREEMPTING_HALF_LIFE`), so that every hour is divided evenly, whatever happened before.
 */
import type { Usage } from './usage.ts'

/** The longest half-life with preemption: after a time alone, an account is behind another for at most this long. */
export const PREEMPTING_HALF_LIFE = 300_000
/** An exchange that is justified by usage alone needs this lead, in unit-ms. It keeps exchanges apart in time, also without a penalty. */
export const LEAST_LEAD = 10_000

/** An account with its usage at the present. */
export interface Share extends Pick<Usage, 'usage' | 'held'> {
  readonly weight: number
}

/** The half-life in force. */
export function halfLifeOf(halfLife: number, preempts: boolean): number {
  return preempts ? Math.min(halfLife, PREEMPTING_HALF_LIFE) : halfLife
}

/** Returns what a grant of so many units adds to the usage of its account. A penalty beyond a quarter of the half-life would outweigh all use. */
export function penaltyOf(units: number, penalty: number, halfLife: number): number {
  return units * Math.min(penalty, Math.floor(halfLife / 4))
}

/** Usage for the weight, as one number: comparing products would not be transitive beyond 2^53. */
function used({ usage, weight }: Share): number {
  return Math.floor(usage / weight)
}

function holding({ held, weight }: Share): number {
  return held / weight
}

/** Below 0: `one` comes before `other`. 0: the order of arrival decides. */
export function compareShares(one: Share, other: Share, preempts: boolean): number {
  const byUse = used(one) - used(other)
  const byHold = holding(one) - holding(other)
  return preempts ? byHold || byUse : byUse || byHold
}

/** An exchange: the taker gets `units`, and the giver loses `loses`. */
export interface Exchange {
  readonly taker: Share
  readonly giver: Share
  readonly units: number
  readonly loses: number
  /** The part of its own penalty that the giver gets back. */
  readonly refund: number
  /** The grant adds this to the usage of the taker. */
  readonly penalty: number
}

/**
 * Returns whether the taker's account may take units from the giver's. Either it still holds no more than the giver afterwards, for their weights: then no exchange
 * in the other direction is possible before the holdings change. Or, where units cannot be divided evenly, it holds less now, and used so much less that its
 * usage stays below the giver's even with the penalty: then the way back opens only after the taker has used the difference up.
 */
export function mayExchange({ taker, giver, units, loses, refund, penalty }: Exchange): boolean {
  const holdsAfter = (taker.held + units) * giver.weight
  if (holdsAfter <= (giver.held - loses) * taker.weight) return true
  if (taker.held * giver.weight >= giver.held * taker.weight) return false
  return used({ ...taker, usage: taker.usage + penalty + LEAST_LEAD }) <= used({ ...giver, usage: Math.max(0, giver.usage - refund) })
}
