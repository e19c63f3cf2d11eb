/**
 * Counts how long the leases of a class of work were held, and how they ended: a histogram whose bins grow by a factor of 1.2, in integers. Two of them
 * merge by addition. Each bin also has the sum and the spread of its durations, so that work that always takes the same time is known exactly.
 *
 * Every second duration goes to the second fold. A reader that learns from one fold and is judged by the other does not judge itself by what it has
 * learned from.
 */

/** The upper edge of the first bin, in ms. */
const FIRST = 100
/** Longer durations are not counted: a year is a mistake, or a lease that is held for ever. */
export const LONGEST_DURATION = 31_536_000_000
/** The counts of a class stay below this, so that sums stay exact: older durations then count half. */
export const MAX_COUNT = 100_000

/** The lower edge of each bin in ms, and the upper edge of the last one. */
export const EDGES: readonly number[] = edges()

function edges(): readonly number[] {
  const list = [0]
  for (let edge = FIRST; edge < LONGEST_DURATION; edge = Math.floor((edge * 6) / 5)) list.push(edge)
  list.push(LONGEST_DURATION + 1)
  return list
}

export const BINS = EDGES.length - 1
export const FOLDS = 2
/** Squares are whole numbers of this part. */
export const SQUARES = 1_048_576

export interface Durations {
  /** Leases that ended with a duration that was counted. */
  ended: number
  /** Those of them that lapsed: their holder died, or could not reach the lessor. */
  died: number
  /** By fold and bin: how many, and the sum of what each is longer than the lower edge of its bin. Undefined: none. */
  readonly counts: (number | undefined)[]
  readonly sums: (number | undefined)[]
  /** The sums of the squares of the same, where a bin is 1 wide, in units of 1 / SQUARES. */
  readonly squares: (number | undefined)[]
}

export function newDurations(): Durations {
  return { ended: 0, died: 0, counts: [], sums: [], squares: [] }
}

export function binOf(ms: number): number {
  let low = 0
  let high = BINS - 1
  while (low < high) {
    const middle = (low + high + 1) >>> 1
    if (EDGES[middle]! <= ms) low = middle
    else high = middle - 1
  }
  return low
}

/** Counts one duration. One that cannot be right is left out: negative, not whole, or longer than a year. */
export function addDuration(durations: Durations, ms: number, died: boolean): void {
  if (!Number.isSafeInteger(ms) || ms < 0 || ms > LONGEST_DURATION) return
  const bin = binOf(ms)
  const place = (durations.ended % FOLDS) * BINS + bin
  durations.counts[place] = (durations.counts[place] ?? 0) + 1
  const beyond = ms - EDGES[bin]!
  const share = beyond / (EDGES[bin + 1]! - EDGES[bin]!)
  durations.sums[place] = (durations.sums[place] ?? 0) + beyond
  durations.squares[place] = (durations.squares[place] ?? 0) + Math.floor(share * share * SQUARES)
  durations.ended++
  if (died) durations.died++
  if (durations.ended >= MAX_COUNT) halve(durations)
}

/** Makes old leases count less, so that the sums stay safe integers. */
function halve(durations: Durations): void {
  let ended = 0
  for (let place = 0; place < durations.counts.length; place++) {
    const count = durations.counts[place]
    if (count === undefined) continue
    const kept = Math.floor(count / 2)
    ended += kept
    durations.sums[place] = kept === 0 ? undefined : Math.floor((durations.sums[place]! / count) * kept)
    durations.squares[place] = kept === 0 ? undefined : Math.floor((durations.squares[place]! / count) * kept)
    durations.counts[place] = kept === 0 ? undefined : kept
  }
  durations.died = Math.min(Math.floor(durations.died / 2), ended)
  durations.ended = ended
}
