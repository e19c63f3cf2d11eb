/**
 * Decides the terms of a lease from what happened before: the first term, and how it grows with age.
 *
 * Two kinds of plan compete: the best single term, and terms that grow with age (growth.ts). They are judged by cross-validation: learned from one half
 * of the past, charged for the other half. With too little past the default is used, which grows with age as the prior says, and never below it.
 */
import { inWords } from '../duration.ts'
import { Growth, sameTermSince, sameTermUntil, type TermCosts, termsBetween } from './growth.ts'
import { hazardOf } from './hazard.ts'
import type { Fold, Sketch, Typical } from './sketch.ts'

export interface TermOptions {
  /** One renewal costs this much, in ms of idle time. */
  readonly renewalCost: number
  /** The bounds of the policy, in ms. */
  readonly min: number
  readonly max: number
  /** The term without a past, in ms. */
  readonly fallback: number
  /** The last leases of classes, where they are known: work may have changed. Those of the class that decides are used. */
  readonly recent?: readonly Sketch[]
}

/** The decision, and the numbers it was decided by. */
export interface TermPlan {
  /** `cold`: too little is known. `fixed`: one term at all ages. `growing`: longer terms for older leases. */
  readonly kind: 'cold' | 'fixed' | 'growing'
  /** The first term, in ms. */
  readonly first: number
  /** The term at an age, for a lease whose present term is `present`. Never below it, and within the bounds. */
  at(age: number, present: number): number
  /** The class that decided, and how many of its leases are known. */
  readonly class: string
  readonly ended: number
  readonly died: number
  /** The share of leases that were taken to end by the death of their holder. */
  readonly dies: number
  /** A lease is expected to cost this much under this plan and with the best single term, in ms of idle time. 0: not known. */
  readonly cost: number
  readonly fixedCost: number
  /** The best single term, in ms. */
  readonly fixed: number
  /** It was learned from the last leases only. */
  readonly isRecent?: boolean
}

/** Leases that must have ended before anything is decided by them. */
const ENOUGH = 5
/** With this many leases, a class decides for itself and terms may grow by what was learned. */
const MANY = 20
/** With few leases, the term may differ from the default by this factor for each lease that has ended. */
const TRUST = 1.2
/** Fixed terms that are compared: each is longer than the one before it by this factor. */
const FINE = 1.03
/** The prior of the share of holders that die, as if this many leases had been seen. */
const DEATHS = { share: 0.1, weight: 20 } as const
/** Terms that grow must be expected to be better than the best single term by this factor. */
const EDGE = 0.9
/** The best single term of a class must be better for it than that of the level above by this factor. */
const OWN_EDGE = 0.97
/** A plan that was learned from the last leases only must be better for them than one from the whole past by this factor. */
const RECENT_EDGE = 0.9
/** `exactTerms` looks at this many numbers of renewals above and below the usual one. */
const NEAR = 20
/** Renewals after which a plan is not followed any further: it renews far too often. */
const MAX_STEPS = 50_000

/** `levels` go from all work to the class itself; levels that nothing is known of may be left out. */
export function planTerm(levels: readonly Sketch[], options: TermOptions): TermPlan {
  const plan = planFrom(levels, options)
  const recent = options.recent?.find(sketch => sketch.class === plan.class)
  if (recent === undefined || plan.kind === 'cold' || recent.ended > plan.ended / 2) return plan
  const later = planFrom([recent], options)
  const { renewalCost } = options
  const whole = costOf(recent.typical(undefined), plan.first, plan.at, { renewalCost, dies: plan.dies })
  const last = recent.ended * Math.min(later.cost, later.fixedCost)
  return later.kind !== 'cold' && last < whole * RECENT_EDGE ? { ...later, isRecent: true } : plan
}

function planFrom(levels: readonly Sketch[], options: TermOptions): TermPlan {
  const { renewalCost, min, max } = options
  const fallback = clamp(options.fallback, min, max)
  const known = levels.findLast(({ ended }) => ended >= MANY) ?? levels.findLast(({ ended }) => ended >= ENOUGH)
  const { ended, died, class: name } = known ?? levels.at(-1) ?? { ended: 0, died: 0, class: '' }
  const dies = (died + DEATHS.share * DEATHS.weight) / (ended + DEATHS.weight)
  const costs = { renewalCost, dies }
  const facts = { class: name, ended, died, dies }
  if (known === undefined) {
    const growth = new Growth(termsBetween(fallback, max), hazardOf(levels, undefined), costs)
    return { kind: 'cold', first: fallback, at: growing(growth, fallback), ...facts, cost: 0, fixedCost: 0, fixed: fallback }
  }
  const trusted = { least: Math.max(min, fallback / TRUST ** ended), most: Math.min(max, fallback * TRUST ** ended) }
  const candidates = fixedTerms(known, fallback, trusted, costs)
  const single = bestSingle(levels, known, candidates, costs)
  const terms = termsBetween(min, max)
  const plan = new Growth(terms, hazardOf(levels, undefined), costs)
  const grown =
    ended < MANY
      ? Number.POSITIVE_INFINITY
      : crossValidated(known, fold => {
          const half = new Growth(terms, hazardOf(levels, fold), costs)
          return past => costOf(past, half.at(0, 0), growing(half, 0), costs)
        })
  const judged = { fixed: single.term, cost: grown / ended, fixedCost: single.cost / ended }
  if (grown > single.cost * EDGE) {
    const isHeldBack = ended < MANY && single.term * FINE > trusted.most
    const at = isHeldBack ? growingWithAge(single.term, plan) : fixedWhileKnown(single.term, plan, known)
    return { kind: 'fixed', first: single.term, at, ...facts, ...judged }
  }
  return { kind: 'growing', first: plan.at(0, 0), at: growing(plan, 0), ...facts, ...judged }
}

function growing(growth: Growth, least: number): TermPlan['at'] {
  return (age, present) => growth.at(age, Math.max(present, least))
}

/** With few leases, terms longer than the first ones may not be trusted yet. A lease that has run for long may have one of twice its age. */
function growingWithAge(first: number, growth: Growth): TermPlan['at'] {
  return (age, present) => Math.max(present, Math.min(growth.at(age, Math.max(present, first)), Math.round(2 * sameTermSince(age))))
}

/** One term up to the longest duration that is known. A lease that is older is unlike all before it, and its term grows. */
function fixedWhileKnown(fixed: number, growth: Growth, sketch: Sketch): TermPlan['at'] {
  const longest = sameTermUntil(sketch.quantile(1) ?? 0)
  return (age, present) => (age < longest ? Math.max(present, fixed) : growth.at(age, Math.max(present, fixed)))
}

/**
 * Terms whose last renewal comes just before the end of a lease of a usual length, or that need none. They matter for work that always takes about
 * the same time: there the next longer term may cost an idle half term more.
 */
function exactTerms(sketch: Sketch, { renewalCost, dies }: TermCosts): readonly number[] {
  const [low = 0, high = 0] = [sketch.quantile(0.1), sketch.quantile(0.9)]
  const usual = [...new Set([0.5, 0.9, 0.99, 1].map(share => sketch.quantile(share) ?? 0))]
  return usual.flatMap(ms => {
    if (high > 2 * low) return [Math.ceil(2 * ms) + 1]
    // About the best number of terms for this length, if the end came at a random moment of the last one.
    const about = Math.round(Math.sqrt((1.5 * dies * ms) / renewalCost))
    const least = Math.max(1, about - NEAR)
    return Array.from({ length: 2 * NEAR }, (_, i) => Math.ceil((2 * ms) / (least + i)) + 1)
  })
}

function clamp(ms: number, min: number, max: number): number {
  return Math.min(Math.max(ms, min), max)
}

/** The terms that are compared as single terms. */
function fixedTerms(
  known: Sketch,
  fallback: number,
  { least, most }: { readonly least: number; readonly most: number },
  costs: TermCosts,
): readonly number[] {
  const terms = [fallback, ...exactTerms(known, costs)]
  for (let term = least; term < most; term *= FINE) terms.push(Math.round(term))
  return terms.filter(term => term >= least && term <= most)
}

/** The best single term, and what it costs for leases that it was not chosen by. */
function bestSingle(
  levels: readonly Sketch[],
  known: Sketch,
  candidates: readonly number[],
  costs: TermCosts,
): { readonly term: number; readonly cost: number } {
  const best = (sketch: Sketch, fold: Fold) => {
    const past = sketch.typical(fold)
    return cheapest(candidates, term => fixedCost(past, term, costs))
  }
  const own = { term: best(known, undefined), cost: crossValidated(known, fold => past => fixedCost(past, best(known, fold), costs)) }
  const above = levels[levels.indexOf(known) - 1]
  if (above === undefined || above.ended < 2 * known.ended) return own
  const term = best(above, undefined)
  const cost = fixedCost(known.typical(undefined), term, costs)
  return own.cost > cost * OWN_EDGE ? { term, cost } : own
}

/** Returns what a plan costs in all if each half of the past is charged for the plan that was learned from the other half. */
function crossValidated(sketch: Sketch, learn: (fold: Fold) => (past: readonly Typical[]) => number): number {
  return learn(0)(sketch.typical(1)) + learn(1)(sketch.typical(0))
}

function cheapest(terms: readonly number[], cost: (term: number) => number): number {
  let best = terms[0]!
  let least = Number.POSITIVE_INFINITY
  for (const term of terms) {
    const of = cost(term)
    if (of < least) [best, least] = [term, of]
  }
  return best
}

/** Returns what these leases would have cost in all with one term. */
function fixedCost(past: readonly Typical[], term: number, { renewalCost, dies }: TermCosts): number {
  const half = term / 2
  let cost = 0
  for (const { ms, count } of past) {
    const renewals = Math.max(0, Math.ceil(ms / half) - 1)
    cost += count * (renewals * renewalCost + dies * (renewals * half + term - ms))
  }
  return cost
}

/** Returns what these leases would have cost in all with terms that may grow. They are listed shortest first, so all are followed in one walk. */
function costOf(past: readonly Typical[], first: number, at: TermPlan['at'], { renewalCost, dies }: TermCosts): number {
  let cost = 0
  let age = 0
  let renewals = 0
  let term = first
  for (const { ms, count } of past) {
    for (; age + term / 2 < ms; renewals++) {
      if (renewals > MAX_STEPS) return Number.POSITIVE_INFINITY
      age += term / 2
      term = at(age, term)
    }
    cost += count * (renewals * renewalCost + dies * (age + term - ms))
  }
  return cost
}

const MINUTE = 60_000
const HOUR = 3_600_000

/** One sentence that says why, with the numbers. */
export function explainTerm(plan: TermPlan, { renewalCost, min, max }: TermOptions): string {
  const { kind, first, ended, died, fixed, cost, fixedCost } = plan
  const work = plan.class === '' ? 'all work' : plan.class
  const past =
    plan.isRecent === true
      ? `the last ${ended} leases of ${work} differ from those before, ${died} of them ended by a lapse`
      : `${ended} lease${ended === 1 ? '' : 's'} of ${work} ended before, ${died} of them by a lapse`
  const bounds = `a policy allows ${inWords(min)} to ${inWords(max)}`
  if (kind === 'cold')
    return `The first term is the default, ${inWords(first)}, and grows with age: only ${past}, and it takes ${ENOUGH} to learn from them; ${bounds}.`
  const price = `a renewal counts as ${inWords(renewalCost)} of idle time`
  if (kind === 'fixed') {
    const grows = plan.at(HOUR, first) > first
    const why = Number.isFinite(cost)
      ? `terms that grow with age would cost ${inWords(cost)} a lease instead of ${inWords(fixedCost)}`
      : `it takes ${MANY} of them to learn how terms should grow with age`
    return `${grows ? `Terms start at ${inWords(first)} and grow with the age of a lease` : `Every term is ${inWords(first)}`}: ${past}, ${price}, and ${why}; ${bounds}.`
  }
  const later = [MINUTE, HOUR].map(age => `${inWords(plan.at(age, first))} at the age of ${inWords(age)}`).join(' and ')
  return `The first term is ${inWords(first)}, then ${later}: ${past}, ${price}, and this is expected to cost ${inWords(cost)} a lease instead of ${inWords(fixedCost)} with the best single term, ${inWords(fixed)}; ${bounds}.`
}
