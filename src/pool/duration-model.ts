/**
 * A distribution says how long work may still run. Forecasts draw from it (forecast.ts).
 *
 * Durations of real work have a heavy tail: what has run long will probably run longer. A log-logistic distribution has that property and can be
 * inverted in closed form. With median m and shape k the chance that work runs longer than t is
 *
 *     S(t) = 1 / (1 + (t / m)^k)
 */
export interface DurationModel {
  /**
   * Of work that has run for `age` ms: a function that returns, for a probability above 0 and below 1, the ms within which the work ends with that
   * probability.
   */
  remaining(age: number): (chance: number) => number
}

export function logLogistic(median: number, shape: number): DurationModel {
  return {
    remaining(age) {
      const survived = 1 + (age / median) ** shape
      // A forecast draws tens of thousands of durations, and the general root is its most expensive step.
      if (shape === 1) return chance => Math.max(0, median * (survived / (1 - chance) - 1) - age)
      if (shape === 2) return chance => Math.max(0, median * Math.sqrt(survived / (1 - chance) - 1) - age)
      return chance => Math.max(0, median * (survived / (1 - chance) - 1) ** (1 / shape) - age)
    },
  }
}

const UNKNOWN_MEDIAN = 60_000

/** Nothing is known: half of the work ends within a minute, and a tenth runs longer than nine. */
export const UNKNOWN_DURATION: DurationModel = logLogistic(UNKNOWN_MEDIAN, 1)

/** The chance that work of which nothing is known runs longer than `ms`. */
export function unknownSurvival(ms: number): number {
  return 1 / (1 + ms / UNKNOWN_MEDIAN)
}

/**
 * The requester has stated how long the work takes. Stated durations are usually too long, sometimes far too short: half of the work ends before
 * 0.7 of the stated duration, and one in nine runs longer than twice as long.
 */
export function statedDuration(expect: number): DurationModel {
  return logLogistic(Math.max(1, 0.7 * expect), 2)
}
