/**
 * A sketch: how long the leases of a class of work were held, and how they ended. It is read from a log (`Query` of kind `durations`), has at most a
 * few hundred numbers whatever it has counted, and two sketches merge by addition.
 */
import { addDuration, BINS, type Durations, EDGES, FOLDS, newDurations, SQUARES } from '../kernel/state/durations.ts'
import type { SketchBin, SketchView } from '../lessor.ts'

/** A fold, or both. */
export type Fold = 0 | 1 | undefined

/** Four numbers at equal distances, the outer ones this far from their mean, have a standard deviation of 1. */
const OUTER = Math.sqrt(9 / 5)

/** A duration in ms that stands for `count` of them. */
export interface Typical {
  readonly ms: number
  readonly count: number
}

export class Sketch {
  readonly class: string
  readonly #durations: Durations = newDurations()

  constructor(name = '') {
    this.class = name
  }

  /** Ignores bins and numbers that cannot be right: the view may come from another build, or over a network. */
  static from({ class: name, died, bins }: SketchView): Sketch {
    const sketch = new Sketch(name)
    const { counts, sums, squares } = sketch.#durations
    for (const { bin, counts: given, sums: of, squares: spread } of bins) {
      if (!Number.isSafeInteger(bin) || bin < 0 || bin >= BINS) continue
      for (let fold = 0; fold < FOLDS; fold++) {
        const count = given[fold] ?? 0
        if (!Number.isSafeInteger(count) || count <= 0) continue
        const width = EDGES[bin + 1]! - EDGES[bin]!
        counts[fold * BINS + bin] = count
        sums[fold * BINS + bin] = Math.min(Math.max(0, of[fold] ?? 0), count * width)
        squares[fold * BINS + bin] = Math.min(Math.max(0, spread[fold] ?? 0), count * SQUARES)
        sketch.#durations.ended += count
      }
    }
    sketch.#durations.died = Math.min(Math.max(0, died), sketch.#durations.ended)
    return sketch
  }

  get ended(): number {
    return this.#durations.ended
  }

  get died(): number {
    return this.#durations.died
  }

  /** Counts the duration of one lease, in ms. One that cannot be right is left out. */
  add(ms: number, died = false): void {
    addDuration(this.#durations, Math.floor(ms), died)
  }

  merge(other: Sketch): void {
    const { counts, sums, squares } = this.#durations
    const theirs = other.#durations
    for (let place = 0; place < FOLDS * BINS; place++) {
      if (theirs.counts[place] === undefined) continue
      counts[place] = (counts[place] ?? 0) + theirs.counts[place]!
      sums[place] = (sums[place] ?? 0) + theirs.sums[place]!
      squares[place] = (squares[place] ?? 0) + theirs.squares[place]!
    }
    this.#durations.ended += theirs.ended
    this.#durations.died += theirs.died
  }

  /** Returns what was counted since an earlier reading of the same sketch. */
  since(earlier: Sketch): Sketch {
    const sketch = new Sketch(this.class)
    const [mine, theirs, rest] = [this.#durations, earlier.#durations, sketch.#durations]
    for (let place = 0; place < FOLDS * BINS; place++) {
      const count = (mine.counts[place] ?? 0) - (theirs.counts[place] ?? 0)
      if (count <= 0) continue
      rest.counts[place] = count
      rest.sums[place] = Math.max(0, (mine.sums[place] ?? 0) - (theirs.sums[place] ?? 0))
      rest.squares[place] = Math.max(0, (mine.squares[place] ?? 0) - (theirs.squares[place] ?? 0))
      rest.ended += count
    }
    rest.died = Math.min(rest.ended, Math.max(0, mine.died - theirs.died))
    return sketch
  }

  count(bin: number, fold: Fold): number {
    return inFold(this.#durations.counts, bin, fold)
  }

  sum(bin: number, fold: Fold): number {
    return inFold(this.#durations.sums, bin, fold)
  }

  square(bin: number, fold: Fold): number {
    return inFold(this.#durations.squares, bin, fold)
  }

  /**
   * Durations that stand for all of them, shortest first, with how many each stands for: four of each bin, with its mean and its spread. One is enough
   * for work that always takes the same time.
   */
  typical(fold: Fold): readonly Typical[] {
    const typical: Typical[] = []
    for (let bin = 0; bin < BINS; bin++) {
      const count = this.count(bin, fold)
      if (count === 0) continue
      const [low, high] = [EDGES[bin]!, EDGES[bin + 1]!]
      const mean = this.sum(bin, fold) / count
      const width = high - low
      const variance = (this.square(bin, fold) / count / SQUARES) * width * width - mean * mean
      // Squares are rounded down: a spread of less than a 256th of the bin is none.
      const spread = variance > (width / 256) ** 2 ? Math.min(Math.sqrt(variance), mean / OUTER, (width - mean) / OUTER) : 0
      if (spread === 0) typical.push({ ms: low + mean, count })
      else for (const side of [-OUTER, -OUTER / 3, OUTER / 3, OUTER]) typical.push({ ms: low + mean + side * spread, count: count / 4 })
    }
    return typical
  }

  /** The duration that this share of the leases stayed below, of those that were held for longer than `age`. Undefined: there were none. */
  quantile(share: number, age = 0): number | undefined {
    const known = this.typical(undefined).filter(({ ms }) => ms >= age)
    const total = known.reduce((sum, { count }) => sum + count, 0)
    let below = 0
    for (const { ms, count } of known) {
      below += count
      if (below >= share * total) return ms
    }
    return undefined
  }

  toJSON(): SketchView {
    const bins: SketchBin[] = []
    for (let bin = 0; bin < BINS; bin++) {
      if (this.count(bin, undefined) === 0) continue
      const both = (list: Durations['counts']) => [list[bin] ?? 0, list[BINS + bin] ?? 0]
      const { counts, sums, squares } = this.#durations
      bins.push({ bin, counts: both(counts), sums: both(sums), squares: both(squares) })
    }
    return { class: this.class, ended: this.ended, died: this.died, bins }
  }
}

function inFold(list: Durations['counts'], bin: number, fold: Fold): number {
  return (fold === 1 ? 0 : (list[bin] ?? 0)) + (fold === 0 ? 0 : (list[BINS + bin] ?? 0))
}
