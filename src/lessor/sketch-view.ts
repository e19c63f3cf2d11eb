/** A reader is told this of the durations for which leases were held. */

/** The leases of a class of work were held for these durations, and so many lapsed: a histogram. */
export interface SketchView {
  /** The class: a path such as `jobs/model=a100`. Its sketch has the durations of all classes below it. Empty: all work. */
  readonly class: string
  readonly ended: number
  /** Those that lapsed: their holder died, or could not reach the lessor. */
  readonly died: number
  readonly bins: readonly SketchBin[]
}

/** A bin with something in it (edges: src/kernel/state/durations.ts). Each list has one number for each of two folds. */
export interface SketchBin {
  readonly bin: number
  readonly counts: readonly number[]
  /** The sums of what the durations are longer than the lower edge of the bin, in ms. */
  readonly sums: readonly number[]
  /** The sums of their squares, where the bin is 1 wide, in units of 1 / 1,048,576. */
  readonly squares: readonly number[]
}
