/** The table of pairs: which have met in the seeds of `npm test`, which have not, and which cannot. */
import { FEATURE_ROWS, FEATURES, type Feature } from './features.ts'
import { whyImpossible } from './impossible-pairs.ts'
import { pairName } from './pairs.ts'
import { UNREACHED } from './unreached-pairs.ts'

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
  /** Possible pairs that have not met and are not listed as unreached. */
  readonly missing: readonly string[]
  /** Pairs that are listed as not reached yet, and have not met. */
  readonly unreached: readonly string[]
  /** Pairs that are listed as not reached yet, and met: take them off the list. Few meetings may be gone with the next change, so they do not fail. */
  readonly reached: readonly string[]
  /** Pairs that met although they are listed as impossible: the list is wrong. */
  readonly wrong: readonly string[]
}

export function reportPairs(counts: PairCounts): PairReport {
  const known = new Set(UNREACHED)
  let met = 0
  const missing: string[] = []
  const unreached: string[] = []
  const reached: string[] = []
  const wrong: string[] = []
  for (const [first, second] of allPairs()) {
    const name = pairName(first, second)
    const hit = counts.has(name)
    if (hit && whyImpossible(first, second) !== undefined) wrong.push(name)
    else if (hit && known.has(name)) reached.push(name)
    else if (hit) met++
    else if (known.has(name)) unreached.push(name)
    else if (whyImpossible(first, second) === undefined) missing.push(name)
  }
  return { met, missing, unreached, reached, wrong }
}

/** A row for each feature that was in force, a column for each that acted. */
export function pairTable(counts: PairCounts): readonly string[] {
  const width = Math.max(...FEATURES.map(({ length }) => length)) + 3
  const head = ' '.repeat(width) + FEATURES.map(feature => FEATURE_ROWS[feature].code.padStart(3)).join('')
  const rows = FEATURES.map(first => {
    const cells = FEATURES.map(second => cell(counts, first, second).padStart(3)).join('')
    return `${FEATURE_ROWS[first].code} ${first}`.padEnd(width) + cells
  })
  return ['rows: in force; columns: acts; -: impossible; ++: more than 99', head, ...rows]
}

function cell(counts: PairCounts, first: Feature, second: Feature): string {
  const count = counts.get(pairName(first, second)) ?? 0
  if (count === 0) return whyImpossible(first, second) === undefined ? '0' : '-'
  return count > 99 ? '++' : String(count)
}
