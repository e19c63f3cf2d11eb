/** The table of pairs: which have met in the seeds of `npm test`, which have not, and which cannot. */
import { FEATURE_ROWS, FEATURES, type Feature } from './features.ts'
import { whyImpossible } from './impossible-pairs.ts'
import { pairName } from './pairs.ts'

export type PairCounts = ReadonlyMap<string, number>

/** All ordered pairs of features. */
export function allPairs(): readonly (readonly [Feature, Feature])[] {
  return FEATURES.flatMap(first => FEATURES.map(second => [first, second] as const))
}

/** Adds the counts of one seed. */
export function addCounts(all: Map<string, number>, seed: Readonly<Record<string, number>>): void {
  for (const [name, count] of Object.entries(seed)) all.set(name, (all.get(name) ?? 0) + count)
}

export interface PairReport {
  /** Pairs that have met, of those that must. */
  readonly met: number
  /** Possible pairs that have not met. */
  readonly missing: readonly string[]
  /** Pairs that met although they are listed as impossible: the list is wrong. */
  readonly wrong: readonly string[]
}

export function reportPairs(counts: PairCounts): PairReport {
  let met = 0
  const missing: string[] = []
  const wrong: string[] = []
  for (const [first, second] of allPairs()) {
    const name = pairName(first, second)
    const isPossible = whyImpossible(first, second) === undefined
    if (!counts.has(name)) {
      if (isPossible) missing.push(name)
    } else if (isPossible) met++
    else wrong.push(name)
  }
  return { met, missing, wrong }
}

/** Longer names are cut: the table fits a terminal of 120 columns, and the code before a name tells features apart. */
const NAME = 12

/** A row for each feature that was in force, a column for each that acted. */
export function pairTable(counts: PairCounts): readonly string[] {
  const width = NAME + 3
  const head = ' '.repeat(width) + FEATURES.map(feature => FEATURE_ROWS[feature].code.padStart(3)).join('')
  const rows = FEATURES.map(first => {
    const cells = FEATURES.map(second => cell(counts, first, second).padStart(3)).join('')
    return `${FEATURE_ROWS[first].code} ${first.slice(0, NAME)}`.padEnd(width) + cells
  })
  return ['rows: in force; columns: acts; -: impossible; ++: more than 99', head, ...rows]
}

function cell(counts: PairCounts, first: Feature, second: Feature): string {
  const count = counts.get(pairName(first, second)) ?? 0
  if (count === 0) return whyImpossible(first, second) === undefined ? '0' : '-'
  return count > 99 ? '++' : String(count)
}
