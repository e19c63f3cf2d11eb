/**
 * Which terms to use at which age, by dynamic programming over ages and terms.
 *
 * A lease is renewed at half of its term. A renewal costs `renewalCost`; a holder that dies without a release (with probability `dies`) costs the time
 * until its term is over. Terms only grow: a renewal that asks for less than the present term would not be safe (docs/learned-terms.md), so the choice at one age
 * takes into account that it can not be taken back.
 */
import { binOf, EDGES } from '../kernel/state/durations.ts'
import type { Hazard } from './hazard.ts'

/** A term is judged by these costs. */
export interface TermCosts {
  /** One renewal costs this much, in ms of idle time. */
  readonly renewalCost: number
  /** The share of the leases that end by the death of their holder. */
  readonly dies: number
}

/** Each term is longer than the one before it by this factor. */
const FACTOR = 1.2
/** The number of ages that are looked at in each bin of a sketch. */
const PARTS = 2

const AGES: readonly number[] = EDGES.slice(0, -1).flatMap((low, bin) =>
  Array.from({ length: PARTS }, (_, part) => low + ((EDGES[bin + 1]! - low) * part) / PARTS),
)

/** Terms from `min` to `max` ms. */
export function termsBetween(min: number, max: number): readonly number[] {
  const terms: number[] = []
  for (let term = Math.max(1, min); term < max; term *= FACTOR) terms.push(Math.round(term))
  terms.push(max)
  return [...new Set(terms)]
}

export class Growth {
  readonly terms: readonly number[]
  /** By age and present term: the term to use. Both are numbers of places in their lists. */
  readonly #best: Uint8Array

  constructor(terms: readonly number[], hazard: Hazard, costs: TermCosts) {
    this.terms = terms
    this.#best = bestTerms(terms, hazard, costs)
  }

  /** The term that a lease gets at this age, if its present term is `present`; 0 when it begins. Never below the present term. */
  at(age: number, present: number): number {
    const { terms } = this
    let least = 0
    while (least < terms.length - 1 && terms[least]! < present) least++
    return Math.max(present, terms[this.#best[placeOf(age) * terms.length + least]!]!)
  }
}

/** The age up to which a plan gives the same term as at this age. */
export function sameTermUntil(age: number): number {
  return AGES[placeOf(age) + 1] ?? Number.POSITIVE_INFINITY
}

/** The age since which a plan gives the same term as at this age. */
export function sameTermSince(age: number): number {
  return AGES[placeOf(age)]!
}

/** The last of AGES that is not above `age`. */
function placeOf(age: number): number {
  const bin = binOf(age)
  const low = EDGES[bin]!
  return bin * PARTS + Math.min(PARTS - 1, Math.floor(((age - low) * PARTS) / (EDGES[bin + 1]! - low)))
}

function bestTerms(terms: readonly number[], hazard: Hazard, { renewalCost, dies }: TermCosts): Uint8Array {
  const many = terms.length
  const last = AGES.length - 1
  const best = new Uint8Array(AGES.length * many)
  /** The cost from an age on, if the term may not be shorter than this one. */
  const ahead = new Float64Array(AGES.length * many)
  for (let m = 0; m < many; m++) {
    best[last * many + m] = many - 1
    ahead[last * many + m] = renewalCost + dies * terms[many - 1]!
  }
  for (let i = last - 1; i >= 0; i--) {
    const age = AGES[i]!
    const walk = new Survival(hazard, age)
    const cost = new Float64Array(many)
    for (let m = 0; m < many; m++) {
      const half = terms[m]! / 2
      walk.to(age + half)
      // Of those that end before the renewal: until the end of the term. They end at `walk.ended / (1 - walk.alive)` on average.
      const idle = dies * ((age + 2 * half) * (1 - walk.alive) - walk.ended)
      const at = placeOf(Math.min(age + half, AGES[last]!))
      const part = at === last ? 0 : Math.min(1, (age + half - AGES[at]!) / (AGES[at + 1]! - AGES[at]!))
      const next = Math.min(at + 1, last)
      if (at > i) cost[m] = idle + walk.alive * (renewalCost + (1 - part) * ahead[at * many + m]! + part * ahead[next * many + m]!)
      // The next renewal is at the same place in the list: the cost from here on is on both sides of the equation.
      else cost[m] = (idle + walk.alive * (renewalCost + part * ahead[next * many + m]!)) / (1 - walk.alive * (1 - part))
    }
    for (let m = many - 1; m >= 0; m--) {
      const here = i * many + m
      const longer = m === many - 1 ? Number.POSITIVE_INFINITY : ahead[here + 1]!
      best[here] = cost[m]! <= longer ? m : best[here + 1]!
      ahead[here] = Math.min(cost[m]!, longer)
    }
  }
  return best
}

/** Tells how many leases of an age are still there later, and when the others ended. Walks forward only. */
class Survival {
  readonly #hazard: Hazard
  #at: number
  #bin: number
  /** The share that is still there. */
  alive = 1
  /** The sum of the ages at which the others ended, by their share. */
  ended = 0

  constructor(hazard: Hazard, age: number) {
    this.#hazard = hazard
    this.#at = age
    this.#bin = binOf(age)
  }

  to(age: number): void {
    while (this.#at < age) {
      const edge = this.#bin === this.#hazard.length - 1 ? Number.POSITIVE_INFINITY : EDGES[this.#bin + 1]!
      const end = Math.min(age, edge)
      const length = end - this.#at
      const rate = this.#hazard[this.#bin]!
      const ends = -Math.expm1(-rate * length)
      const mean = ends > 1e-9 ? 1 / rate - (length * (1 - ends)) / ends : length / 2
      this.ended += this.alive * ends * (this.#at + mean)
      this.alive *= 1 - ends
      this.#at = end
      if (end === edge) this.#bin++
    }
  }
}
