/**
 * The log has counted how long the work of a pool is held, by its classes (kernel/rule/learn.ts). Forecasts draw from it, so that an estimated
 * start follows from what happened before and not only from what requesters state.
 *
 * The chance that work ends at an age is the share of the leases of its class that reached this age and ended at it (Kaplan and Meier). Leases that
 * still run count as far as they have come: otherwise long work would be forgotten until it ends, and every start estimated too early. A class with
 * few leases borrows from the level above it, as if it had seen a few leases of that level, and the pool borrows from a distribution that knows nothing.
 */
import { BINS, binOf, EDGES } from '../kernel/state/durations.ts'
import { Sketch } from '../learn/sketch.ts'
import type { PoolView, SketchView } from '../lessor.ts'
import { type DurationModel, statedDuration, UNKNOWN_DURATION, unknownSurvival } from './duration-model.ts'

/** A lease that holds or waits for members: the class of its work, and what its requester expects. */
export interface PoolUse {
  readonly holder: string
  readonly account: string
  /** In ms; 0: nothing was said. */
  readonly expect: number
  /** The class of work that its duration counts for. Empty: none. */
  readonly class: string
}

/** A class counts this many leases of the level above it in addition to its own. */
const BORROWED = 3
/** Leases of the pool that must have ended before they say more than a stated duration, or than nothing. */
const ENOUGH = 5
/** The most of the leases that are taken to end in one bin: no estimate is certain. */
const MOST_ENDS = 0.999
/** Classes that are looked up for one explanation. */
const MAX_CLASSES = 64
/** A stated duration that is shorter or longer than nine tenths of the past is believed: this work is unlike what was before. */
const USUAL = { low: 0.1, high: 0.9 } as const

/** The classes of the leases in a view, those of many leases first. */
export function classesIn({ members, queue }: PoolView): readonly string[] {
  const counts = new Map<string, number>()
  // A lessor of an older build does not name the classes.
  const count = (name: string | undefined) => {
    if (name !== undefined && name !== '') counts.set(name, (counts.get(name) ?? 0) + 1)
  }
  for (const { grants } of members) for (const grant of grants) count(grant.class)
  for (const waiter of queue) count(waiter.class)
  return [...counts]
    .sort(([, a], [, b]) => b - a)
    .slice(0, MAX_CLASSES)
    .map(([name]) => name)
}

/** `read` gives what is known of a class: a sketch of all work, then of each level of the class. */
export async function readDurations(
  view: PoolView,
  read: (name: string) => Promise<readonly SketchView[]>,
): Promise<(use: PoolUse) => DurationModel> {
  const known = await Promise.all(classesIn(view).map(async name => [name, await read(name)] as const))
  return learnedDurations(view, new Map(known))
}

/** `sketches`: what is known of each class, from all work to the class itself. */
export function learnedDurations(view: PoolView, sketches: ReadonlyMap<string, readonly SketchView[]>): (use: PoolUse) => DurationModel {
  const running = runningIn(view)
  const models = new Map<string, LearnedDuration>()
  for (const views of sketches.values()) {
    // The durations of all work together say nothing about this pool.
    const levels = views.filter(level => level.class !== '').map(level => Sketch.from(level))
    for (const [i, level] of levels.entries())
      if (!models.has(level.class) && levels.slice(0, i + 1).some(({ ended }) => ended >= ENOUGH))
        models.set(level.class, new LearnedDuration(levels.slice(0, i + 1), running))
  }
  return ({ class: name, expect }) => {
    const learned = modelOf(models, name)
    if (expect > 0 && (learned === undefined || !learned.isUsual(expect))) return statedDuration(expect)
    return learned ?? UNKNOWN_DURATION
  }
}

/** The model of the class, or of the nearest level above it. */
function modelOf(models: ReadonlyMap<string, LearnedDuration>, name: string): LearnedDuration | undefined {
  for (let level = name; level !== ''; level = level.slice(0, Math.max(0, level.lastIndexOf('/')))) {
    const model = models.get(level)
    if (model !== undefined) return model
  }
  return undefined
}

/** For how long each lease that holds members has been held, in ms, and its class. */
function runningIn({ members }: PoolView): readonly RunningWork[] {
  const leases = new Map<number, RunningWork>()
  for (const { grants } of members)
    for (const { lease, held, class: name } of grants) if (name !== undefined && name !== '') leases.set(lease, { name, bin: binOf(held) })
  return [...leases.values()]
}

interface RunningWork {
  readonly name: string
  readonly bin: number
}

class LearnedDuration implements DurationModel {
  /** By edge: minus the logarithm of the share that runs longer. */
  readonly #hazard: Float64Array

  constructor(levels: readonly Sketch[], running: readonly RunningWork[]) {
    let longer: Float64Array = Float64Array.from(EDGES, unknownSurvival)
    let weight = 1
    for (const sketch of levels) {
      longer = survivalOf(sketch, running, longer, weight)
      weight = BORROWED
    }
    this.#hazard = longer.map(share => -Math.log(share))
  }

  isUsual(ms: number): boolean {
    const ends = this.remaining(0)
    return ms >= ends(USUAL.low) && ms <= ends(USUAL.high)
  }

  remaining(age: number): (chance: number) => number {
    const hazard = this.#hazard
    const survived = hazardAt(hazard, age)
    return chance => {
      const wanted = survived - Math.log(1 - chance)
      let low = 0
      let high = BINS
      if (wanted >= hazard[BINS]!) return Math.max(0, EDGES[BINS]! - age)
      while (high - low > 1) {
        const middle = (low + high) >>> 1
        if (hazard[middle]! <= wanted) low = middle
        else high = middle
      }
      const part = (wanted - hazard[low]!) / (hazard[high]! - hazard[low]!)
      return Math.max(0, EDGES[low]! + part * (EDGES[high]! - EDGES[low]!) - age)
    }
  }
}

function hazardAt(hazard: Float64Array, age: number): number {
  let bin = 0
  while (bin < BINS - 1 && EDGES[bin + 1]! <= age) bin++
  const part = Math.min(1, (age - EDGES[bin]!) / (EDGES[bin + 1]! - EDGES[bin]!))
  return hazard[bin]! + part * (hazard[bin + 1]! - hazard[bin]!)
}

/** By edge: the share that runs longer. `above` is that of the level above, which counts as `weight` leases. */
function survivalOf(sketch: Sketch, running: readonly RunningWork[], above: Float64Array, weight: number): Float64Array {
  const present = new Float64Array(BINS)
  for (const { name, bin } of running) if (name === sketch.class || name.startsWith(`${sketch.class}/`)) present[bin]! += 1
  let reached = sketch.ended + present.reduce((sum, count) => sum + count, 0)
  const longer = new Float64Array(EDGES.length)
  longer[0] = 1
  for (let bin = 0; bin < BINS; bin++) {
    const ended = sketch.count(bin, undefined)
    // Those that are of this age now have passed a half of the bin on average.
    const reachedHalf = reached - present[bin]! / 2
    const ends = (ended + weight * (above[bin]! - above[bin + 1]!)) / (reachedHalf + weight * above[bin]!)
    longer[bin + 1] = longer[bin]! * (1 - Math.min(ends, MOST_ENDS))
    reached -= ended + present[bin]!
  }
  return longer
}
