/** Counts durations in buckets, for metrics. It runs for every request, append and timer that is due, so adding is a short loop without allocation. */

/** Upper bounds of the buckets, in ms, of what happens inside a replica. */
const REPLICA_BOUNDS = [0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000, Number.POSITIVE_INFINITY] as const

export class DurationHistogram {
  readonly #bounds: readonly number[]
  /** The number in each bucket. Only this class changes it. */
  readonly counts: number[]
  /** The sum. Only this class changes it. */
  ms = 0

  /** `bounds`: the upper bounds of the buckets, in ms. The last one is infinite. */
  constructor(bounds: readonly number[] = REPLICA_BOUNDS) {
    this.#bounds = bounds
    this.counts = bounds.map(() => 0)
  }

  add(ms: number): void {
    this.ms += ms
    let i = 0
    while (ms > this.#bounds[i]!) i++
    this.counts[i]!++
  }

  /** As figures: `NAME.le.MS` for each bucket, without what is in the buckets below it, and the sum as `NAME.ms`. */
  figures(name: string): Readonly<Record<string, number>> {
    const figures: Record<string, number> = {}
    for (const [i, bound] of this.#bounds.entries())
      figures[`${name}.le.${bound === Number.POSITIVE_INFINITY ? 'inf' : bound}`] = this.counts[i]!
    return { ...figures, [`${name}.ms`]: this.ms }
  }
}
