/**
 * The hazard of a class of work: how likely its leases end in the next ms, by the age they have reached. What has run long will usually run longer, so
 * it falls with age for most work; it rises for work that always takes the same time.
 *
 * A class with few samples borrows from the class above it, and all work borrows from a prior: each estimate starts as if it had seen `STRENGTH` ends
 * at the rate of the level above (a gamma prior for a Poisson rate).
 */
import { BINS, EDGES } from '../kernel/state/durations.ts'
import type { Fold, Sketch } from './sketch.ts'

/** By bin, per ms. */
export type Hazard = Float64Array

/** The prior: an age of `a` ms has a hazard of 1 / (a + PRIOR_AGE), as if the typical lease lasted about a minute and the tail were heavy. */
const PRIOR_AGE = 60_000
const STRENGTH = { prior: 1, class: 3 } as const

const PRIOR: Hazard = Float64Array.from(
  { length: BINS },
  (_, bin) => 1 / (Math.sqrt(Math.max(EDGES[bin]!, 25) * EDGES[bin + 1]!) + PRIOR_AGE),
)

/** `levels` go from all work to the class itself. */
export function hazardOf(levels: readonly Sketch[], fold: Fold): Hazard {
  let hazard = PRIOR
  for (const [i, sketch] of levels.entries()) hazard = updated(hazard, sketch, fold, i === 0 ? STRENGTH.prior : STRENGTH.class)
  return hazard
}

function updated(above: Hazard, sketch: Sketch, fold: Fold, strength: number): Hazard {
  const hazard = new Float64Array(BINS)
  let longer = 0
  for (let bin = BINS - 1; bin >= 0; bin--) {
    const ends = sketch.count(bin, fold)
    // The time that leases spent at these ages: all of the bin for those that lasted longer, a part of it for those that ended in it.
    const exposure = longer * (EDGES[bin + 1]! - EDGES[bin]!) + sketch.sum(bin, fold)
    hazard[bin] = (ends + strength) / (exposure + strength / above[bin]!)
    longer += ends
  }
  return hazard
}
