/** Expects how long work of a class is probably held: `expect: 'auto'`. */
import type { SketchView } from '../lessor.ts'
import { Sketch } from './sketch.ts'

/** Leases that must have ended before a duration is expected. */
const ENOUGH = 5

/** Half of such leases were held for less, in ms. `views` go from all work to the class itself. Undefined: too little is known. */
export function expectedDuration(views: readonly SketchView[]): number | undefined {
  const known = views.findLast(({ ended }) => ended >= ENOUGH)
  const median = known && Sketch.from(known).quantile(0.5)
  return median === undefined ? undefined : Math.max(1, Math.round(median))
}
