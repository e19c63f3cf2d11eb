/**
 * Puts a long list in order, but only as much of it as is asked for: quicksort that leaves alone the parts that no reader looks at. The first page of a
 * hundred thousand items costs a few passes over them, and a page nearby almost nothing.
 *
 * It works in steps, so that the caller can let other work run in between. Pivots are random: names are chosen by clients, and one of them could otherwise
 * choose names that take quadratic time.
 */

/** Parts up to this length are sorted at once. */
const SHORT = 1_024
/** Items that a pivot is chosen among. */
const SAMPLE = 31
/** Comparisons in one step: about a millisecond. */
const STEP = 8_192

export interface PartialOrderOptions {
  readonly length: number
  /** Compares the items at two places. Never 0 for different places. */
  readonly compare: (a: number, b: number) => number
  /** A number in [0, 1). */
  readonly random: () => number
}

export class PartialOrder {
  readonly #places: Uint32Array
  readonly #compare: (a: number, b: number) => number
  readonly #random: () => number
  /** Where the parts begin, in ascending order. No item of a part belongs into another one. */
  readonly #starts: number[] = [0]
  /** The starts of the parts that are in order. */
  readonly #sorted = new Set<number>()
  #compared = 0

  constructor({ length, compare, random }: PartialOrderOptions) {
    this.#places = new Uint32Array(length)
    for (let i = 0; i < length; i++) this.#places[i] = i
    this.#compare = compare
    this.#random = random
  }

  /** The places of the items from `from` up to `to` in the order. Yields after each step; the result is complete when it returns. */
  *range(from: number, to: number): Generator<void, readonly number[], void> {
    const { length } = this.#places
    let part = this.#partOf(from)
    while (part < this.#starts.length && this.#starts[part]! < to) {
      const start = this.#starts[part]!
      const end = this.#starts[part + 1] ?? length
      if (end <= from || this.#sorted.has(start)) part++
      else if (end - start > SHORT) yield* this.#split(part, start, end, from, to)
      else {
        this.#places.subarray(start, end).sort(this.#compare)
        this.#sorted.add(start)
        if (this.#isStep(end - start)) yield
      }
    }
    return Array.from(this.#places.subarray(from, Math.min(to, length)))
  }

  #partOf(place: number): number {
    let [low, high] = [0, this.#starts.length - 1]
    while (low < high) {
      const middle = (low + high + 1) >> 1
      if (this.#starts[middle]! <= place) low = middle
      else high = middle - 1
    }
    return low
  }

  /**
   * A random place whose item is probably just behind what is asked for, or just before it: a first page then takes little more than one pass, and one in the
   * middle of the list two.
   */
  #pivot(start: number, end: number, from: number, to: number): number {
    const length = end - start
    const sample = Array.from({ length: SAMPLE }, () => start + Math.floor(this.#random() * length))
    sample.sort((a, b) => (a === b ? 0 : this.#compare(this.#places[a]!, this.#places[b]!)))
    const behind = Math.ceil((SAMPLE * (to - start)) / length) + 1
    const before = Math.floor((SAMPLE * (from - start)) / length) - 2
    // Whichever cuts off more. Where all of it is asked for, neither does: the middle.
    const rank = Math.max(SAMPLE - behind, before) <= 0 ? SAMPLE >> 1 : SAMPLE - behind > before ? behind : before
    return sample[rank]!
  }

  /** Makes three parts of one: what is before the pivot, the pivot, and what is after it. */
  *#split(part: number, start: number, end: number, from: number, to: number): Generator<void, void, void> {
    const places = this.#places
    const last = end - 1
    this.#swap(this.#pivot(start, end, from, to), last)
    const pivot = places[last]!
    let middle = start
    for (let i = start; i < last; i++) {
      const place = places[i]!
      if (this.#compare(place, pivot) < 0) {
        places[i] = places[middle]!
        places[middle++] = place
      }
      if (this.#isStep(1)) yield
    }
    this.#swap(middle, last)
    this.#sorted.add(middle)
    const starts = [start, middle, middle + 1].filter((at, i, all) => at < end && at !== all[i - 1])
    this.#starts.splice(part, 1, ...starts)
  }

  #swap(a: number, b: number): void {
    const places = this.#places
    const moved = places[a]!
    places[a] = places[b]!
    places[b] = moved
  }

  #isStep(compared: number): boolean {
    this.#compared += compared
    if (this.#compared < STEP) return false
    this.#compared = 0
    return true
  }
}
