/**
 * The last leases of each class. A sketch counts the past without forgetting, so it is wrong for a while when the work changes. A process that reads
 * sketches again and again knows what was added in between: the difference of two readings.
 */
import type { Sketch } from './sketch.ts'

/** A difference has at least this many leases. */
const WINDOW = 50
/** The most classes that are followed; beyond that, those that were read longest ago are forgotten. */
const MAX_CLASSES = 256

interface Readings {
  /** Two earlier readings, at least WINDOW leases apart. */
  readonly before: Sketch
  readonly between: Sketch
}

export class RecentLeases {
  readonly #readings = new Map<string, Readings>()

  /** The last leases of each level of which enough have ended since it was first read. `levels` go from all work to the class itself. */
  of(levels: readonly Sketch[]): readonly Sketch[] {
    return levels.flatMap(level => this.#recent(level) ?? []).filter(({ ended }) => ended >= WINDOW)
  }

  #recent(sketch: Sketch): Sketch | undefined {
    const { before, between } = this.#readings.get(sketch.class) ?? { before: sketch, between: sketch }
    // A log that counts less than before was replaced, or halved its counts.
    const isSame = sketch.ended >= between.ended
    const isNext = isSame && sketch.ended >= between.ended + WINDOW
    this.#readings.delete(sketch.class)
    this.#readings.set(
      sketch.class,
      !isSame ? { before: sketch, between: sketch } : isNext ? { before: between, between: sketch } : { before, between },
    )
    for (const oldest of this.#readings.keys()) {
      if (this.#readings.size <= MAX_CLASSES) break
      this.#readings.delete(oldest)
    }
    return isSame && sketch.ended > before.ended ? sketch.since(before) : undefined
  }
}
