/** Counts durations in buckets, for metrics. It runs for every append and every timer that is due, so adding is a short loop without allocation. */

/** Upper bounds of the buckets, in ms. */
const BOUNDS = [0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000, Number.POSITIVE_INFINITY] as const

export class DurationHistogram {
  /** The number in each bucket. */
  readonly #counts: number[] = BOUNDS.map(() => 0)
  #ms = 0

  add(ms: number): void {
    this.#ms += ms
    for (let i = 0; i < BOUNDS.length; i++) {
      if (ms > BOUNDS[i]!) continue
      this.#counts[i]!++
      return
    }
  }

  /** As figures: `NAME.le.MS` for each bucket, without what is in the buckets below it, and the sum as `NAME.ms`. */
  figures(name: string): Readonly<Record<string, number>> {
    const figures: Record<string, number> = {}
    for (const [i, bound] of BOUNDS.entries())
      figures[`${name}.le.${bound === Number.POSITIVE_INFINITY ? 'inf' : bound}`] = this.#counts[i]!
    return { ...figures, [`${name}.ms`]: this.#ms }
  }
}
