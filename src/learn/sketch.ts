/**
 * A sketch: how long the leases of a class of work were held, and how they ended. It is read from a log (`Query` of kind `durations`), has at most a
 * few hundred numbers whatever it has counted, and two sketches merge by addition.
 */
import { addDuration, BINS, type Durations, EDGES, FOLDS, newDurations } from '../kernel/state/durations.ts'

/** One bin with something in it. `sums` are what its durations are longer than the lower edge of the bin, in ms. Each has one number for each fold. */
export interface SketchBin {
  readonly bin: number
  readonly counts: readonly number[]
  readonly sums: readonly number[]
}

/** A sketch as a reader gets it, in JSON. */
export interface SketchView {
  /** The class: a path such as `jobs/model=a100`. Its sketch has the durations of all classes below it. Empty: all work. */
  readonly class: string
  readonly ended: number
  readonly died: number
  readonly bins: readonly SketchBin[]
}

/** `bin` in a fold, or in both. */
export type Fold = 0 | 1 | undefined

export class Sketch {
  readonly class: string
  readonly #durations: Durations = newDurations()

  constructor(name = '') {
    this.class = name
  }

  /** Ignores bins and numbers that cannot be right: the view may come from another build, or over a network. */
  static from({ class: name, died, bins }: SketchView): Sketch {
    const sketch = new Sketch(name)
    const { counts, sums } = sketch.#durations
    for (const { bin, counts: given, sums: of } of bins) {
      if (!Number.isSafeInteger(bin) || bin < 0 || bin >= BINS) continue
      for (let fold = 0; fold < FOLDS; fold++) {
        const count = given[fold] ?? 0
        if (!Number.isSafeInteger(count) || count <= 0) continue
        const width = EDGES[bin + 1]! - EDGES[bin]!
        counts[fold * BINS + bin] = count
        sums[fold * BINS + bin] = Math.min(Math.max(0, of[fold] ?? 0), count * width)
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
    const { counts, sums } = this.#durations
    const theirs = other.#durations
    for (let place = 0; place < FOLDS * BINS; place++) {
      if (theirs.counts[place] === undefined) continue
      counts[place] = (counts[place] ?? 0) + theirs.counts[place]!
      sums[place] = (sums[place] ?? 0) + theirs.sums[place]!
    }
    this.#durations.ended += theirs.ended
    this.#durations.died += theirs.died
  }

  count(bin: number, fold: Fold): number {
    const { counts } = this.#durations
    return (fold === 1 ? 0 : (counts[bin] ?? 0)) + (fold === 0 ? 0 : (counts[BINS + bin] ?? 0))
  }

  sum(bin: number, fold: Fold): number {
    const { sums } = this.#durations
    return (fold === 1 ? 0 : (sums[bin] ?? 0)) + (fold === 0 ? 0 : (sums[BINS + bin] ?? 0))
  }

  /** The mean duration of each bin that has any, in ms, with its count. Shortest first. */
  means(fold: Fold): readonly { readonly ms: number; readonly count: number }[] {
    const means: { ms: number; count: number }[] = []
    for (let bin = 0; bin < BINS; bin++) {
      const count = this.count(bin, fold)
      if (count > 0) means.push({ ms: EDGES[bin]! + this.sum(bin, fold) / count, count })
    }
    return means
  }

  /** The duration that this share of the leases stayed below, of those that were held for longer than `age`. Undefined: there were none. */
  quantile(share: number, age = 0): number | undefined {
    const means = this.means(undefined).filter(({ ms }) => ms >= age)
    const total = means.reduce((sum, { count }) => sum + count, 0)
    let below = 0
    for (const { ms, count } of means) {
      below += count
      if (below >= share * total) return ms
    }
    return undefined
  }

  toJSON(): SketchView {
    const bins: SketchBin[] = []
    for (let bin = 0; bin < BINS; bin++) {
      if (this.count(bin, undefined) === 0) continue
      bins.push({ bin, counts: [this.count(bin, 0), this.count(bin, 1)], sums: [this.sum(bin, 0), this.sum(bin, 1)] })
    }
    return { class: this.class, ended: this.ended, died: this.died, bins }
  }
}
