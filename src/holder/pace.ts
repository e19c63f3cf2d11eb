/**
 * This process measures how long renewals take to be answered, and how late its timers fire. They decide how early leases are renewed, and
 * how much of a term is given up for late timers. Both only make a holder more careful than the defaults: a renewal never comes later than its strategy
 * says, and a lease is never trusted for longer.
 */

/** The longest recent measurement counts, and fades by half with each such number of later ones. */
const HALF_LIFE = 32
const FADING = 0.5 ** (1 / HALF_LIFE)
/** Renewals that must fit between the first attempt and the end of a lease. */
const ATTEMPTS = 3
/** However slow the lessor is, a lease is not renewed more often than this many times a term. */
const MOST_RENEWALS = 8
/** A measurement beyond this is an outage or a suspended machine, which no margin covers. */
const LONGEST = 10_000

export class Pace {
  #roundTrip = 0
  /** Timers have fired this late recently, in ms. */
  lateness = 0

  /** Of a renewal that was answered, in ms. */
  answered(ms: number): void {
    this.#roundTrip = fade(this.#roundTrip, ms)
  }

  /** Of a timer that fired, in ms. */
  fired(late: number): void {
    this.lateness = fade(this.lateness, late)
  }

  /** The longest recent round trip of a renewal, in ms. */
  get roundTrip(): number {
    return this.#roundTrip
  }

  /**
   * When to renew, in ms after the last renewal: `usual`, or sooner if round trips and late timers would leave no time for a second and a third
   * attempt before the lease is over.
   */
  interval(usual: number, term: number, validity: number): number {
    const latest = validity - ATTEMPTS * (this.#roundTrip + this.lateness)
    return Math.min(usual, Math.max(latest, term / MOST_RENEWALS))
  }
}

function fade(before: number, now: number): number {
  return Math.max(before * FADING, Math.min(LONGEST, Math.max(0, now)))
}
