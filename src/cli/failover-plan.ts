/**
 * From how soon another holder must take over to the options that achieve it. The arithmetic of docs/proofs.md: a holder that dies just after a renewal
 * keeps its resource for a whole term, which a replica may count too slowly by the error of its clock; then the end is written, and the next holder
 * learns of it.
 */
import { inWords } from '../duration.ts'
import type { PlaceMeasurement } from './place-measurement.ts'

/** ρ: by how much the rate of any clock may be off. */
const CLOCK_ERROR = 0.005
/** Round trips after a term: the end is written, the waiter learns of it, and confirms its grant. */
const ROUND_TRIPS = 3
/** A ttl of fewer round trips than this leaves no time for a second attempt to renew. */
const LEAST_ROUND_TRIPS = 6
const SHORTEST_TTL = 100

export interface FailoverPlan {
  readonly failover: number
  readonly ttl: number
  /** When it is renewed, after the last renewal. */
  readonly renewal: number
  /** The part of a term that the holder gives up. */
  readonly margin: number
  /** For resources that check no tokens: how long they stay withheld after a lapse. */
  readonly lockDelay: number
  /** The longest outage of the store, and the longest stall of the holder, that loses no lease. */
  readonly outage: number
  readonly stall: number
  /** Another holder takes over no sooner than this after a crash. */
  readonly best: number
  readonly worst: number
}

/** A text instead of a plan says why there is none, with the arithmetic. */
export function planFailover(failover: number, { write, stall }: PlaceMeasurement): FailoverPlan | string {
  const after = Math.ceil(ROUND_TRIPS * write.longest + stall)
  const ttl = Math.floor((failover - after) / (1 + 2 * CLOCK_ERROR))
  const least = Math.max(SHORTEST_TTL, Math.ceil(LEAST_ROUND_TRIPS * write.longest + 2 * stall))
  if (ttl < least)
    return (
      `a failover within ${inWords(failover)} is not possible here: after a term it takes ${inWords(after)} more ` +
      `(${ROUND_TRIPS} round trips of ${inWords(write.longest)} and a stall of ${inWords(stall)}), which leaves a ttl of ${inWords(Math.max(0, ttl))}, ` +
      `but a renewal needs at least ${inWords(least)} (${LEAST_ROUND_TRIPS} round trips and two stalls)`
    )
  const margin = Math.ceil(Math.max(2 * CLOCK_ERROR * ttl, Math.min(Math.max(50, stall), ttl / 10)))
  const renewal = Math.floor(Math.min(ttl / 2, Math.max(ttl / 8, ttl - margin - 3 * (write.longest + stall))))
  const spare = Math.max(0, ttl - margin - renewal)
  return {
    ...{ failover, ttl, renewal, margin },
    lockDelay: Math.ceil(2 * stall),
    outage: Math.max(0, Math.floor(spare - write.longest)),
    stall: Math.floor(spare),
    best: Math.ceil(ttl - renewal + write.median),
    worst: Math.ceil(ttl * (1 + 2 * CLOCK_ERROR) + after),
  }
}

/** Returns what a plan means, in sentences. */
export function planSentences(plan: FailoverPlan, { write, stall, drift }: PlaceMeasurement): readonly string[] {
  return [
    `Measured here: a write takes ${inWords(write.median)}, at most ${inWords(write.longest)}; timers fire up to ${inWords(stall)} late; the clocks drift by ${Math.round(Math.abs(drift))} ppm (up to ${CLOCK_ERROR * 1e6} are allowed for).`,
    `Use a ttl of ${plan.ttl} ms: (${plan.failover} ms - ${ROUND_TRIPS} round trips - one stall) / ${1 + 2 * CLOCK_ERROR}. It is renewed every ${plan.renewal} ms, and the holder gives up the last ${plan.margin} ms of each term.`,
    `Use a lock-delay of 0 where resources check tokens, else of ${plan.lockDelay} ms: twice the longest stall, for writes that were under way.`,
    `Tolerated without losing a lease: an outage of the store of ${inWords(plan.outage)}, a stall of the holder of ${inWords(plan.stall)}, clock rates that differ by ${CLOCK_ERROR * 200} %, and any difference of wall clocks.`,
    `After a crash another holder takes over in ${inWords(plan.best)} at best and ${inWords(plan.worst)} at worst; after a release, in ${inWords(2 * write.median)}.`,
  ]
}
