/**
 * The terms of the leases of a trace, under the real kernel: renewals at half of each term, and some holders that die without a release at the end of
 * their job. The cost is the number of renewals times the cost of one, plus the time that resources stay taken after those deaths.
 */
import { classOf } from '../../src/holder/learned-terms.ts'
import { levelsOf } from '../../src/kernel/rule/learn.ts'
import { sameTermUntil } from '../../src/learn/growth.ts'
import { RecentLeases } from '../../src/learn/recent.ts'
import { Sketch } from '../../src/learn/sketch.ts'
import { planTerm, type TermPlan } from '../../src/learn/term.ts'
import { sketchViews } from '../../src/replica/sketch-view.ts'
import type { Job, Trace } from './trace.ts'
import { VirtualLog } from './virtual-log.ts'

export interface TermsResult {
  readonly renewals: number
  /** Seconds that resources stayed taken after their holders died. */
  readonly idle: number
  /** Seconds: renewals × c + idle. */
  readonly cost: number
}

/** Gives the terms of one job: the first, and each of the following. */
export interface TermSource {
  /** A job starts. */
  first(job: Job): number
  next(job: Job, age: number, present: number): number
}

const MIN = 100
const MAX = 86_400_000
const DEFAULT = 30_000

/** Replays a trace under the kernel. `source` is made for a log, so that it can learn from what the log has counted. */
export function replayTerms(trace: Trace, c: number, source: (log: VirtualLog) => TermSource): TermsResult {
  const log = new VirtualLog()
  const terms = source(log)
  let renewals = 0
  let idle = 0
  const ends = new Map<number, number>()
  log.onEvent = ({ type, lease }) => {
    const end = ends.get(lease)
    if (type === 'lapsed' && end !== undefined) idle += (log.now - end) / 1_000
    if (type === 'lapsed' || type === 'released') ends.delete(lease)
  }
  const begin = (job: Job, name: string, done: () => void) => {
    const began = log.now
    const ttl = terms.first(job)
    const resource = `${job.class.split('/')[0]!}/${name}`
    const labels = [['learn', classOf([resource], { class: job.class }, {})] as const]
    const granted = log.propose({ kind: 'acquire', holder: 'replay', ttl, wants: [{ resource }], labels })
    if (granted.kind !== 'granted') throw new Error(`${resource} was not granted: ${JSON.stringify(granted)}`)
    const { lease } = granted
    // The holder confirms its lease: before, a long term is cut to 30 s. This renewal is the same for all terms, and not counted.
    log.propose({ kind: 'renew', leases: [lease] })
    const end = began + job.ms
    ends.set(lease, end)
    const renew = (term: number) => {
      if (log.now + term / 2 >= end) return
      log.at(log.now + term / 2, () => {
        renewals++
        const next = terms.next(job, log.now - began, term)
        const outcome = log.propose({ kind: 'renew', leases: [lease], ...(next > term && { ttl: next }) })
        if (outcome.kind !== 'renewed' || outcome.ttls[0]! < 0) throw new Error(`lease ${lease} was lost while it was renewed`)
        renew(outcome.ttls[0]!)
      })
    }
    renew(ttl)
    log.at(end, () => {
      if (!job.dies) log.propose({ kind: 'release', lease, ran: job.ms })
      done()
    })
  }
  if (trace.timed) for (const [i, job] of trace.jobs.entries()) log.at(job.start, () => begin(job, `job-${i}`, () => {}))
  else {
    const next = (i: number) => {
      const job = trace.jobs[i]
      if (job !== undefined) begin(job, `job-${i}`, () => next(i + 1))
    }
    log.at(0, () => next(0))
  }
  log.run()
  return { renewals, idle, cost: renewals * c + idle }
}

export function fixedTerm(ttl: number): TermSource {
  return { first: () => ttl, next: () => ttl }
}

/** Terms that are learned from what a log has counted. */
export function learnedTerms(c: number): (log: VirtualLog) => TermSource {
  return ({ state }) => {
    const levels = (name: string) => sketchViews(state, name).map(view => Sketch.from(view))
    return termsLearnedFrom(c, { ended: name => state.durations.get(name)?.ended ?? 0, levels })
  }
}

/** The known durations of each class. */
interface Known {
  /** Returns how many leases of a class have ended. */
  readonly ended: (name: string) => number
  /** From all work to the class itself. */
  readonly levels: (name: string) => readonly Sketch[]
}

/** A decision is made again when its class has grown by a tenth or by this many, or all work by a quarter. */
const GROWN = 200

function termsLearnedFrom(c: number, known: Known): TermSource {
  const plans = new Map<string, { readonly plan: TermPlan; readonly ended: number; readonly all: number }>()
  const recents = new RecentLeases()
  const planOf = (job: Job): TermPlan => {
    const [ended, all] = [known.ended(job.class), known.ended('')]
    const kept = plans.get(job.class)
    if (kept !== undefined && ended < Math.min(kept.ended * 1.1 + 1, kept.ended + GROWN) && all < kept.all * 1.25 + 1) return kept.plan
    const levels = known.levels(job.class)
    const recent = recents.of(levels)
    const plan = planTerm(levels, { renewalCost: c * 1_000, min: MIN, max: MAX, fallback: DEFAULT, recent })
    plans.set(job.class, { plan, ended, all })
    return plan
  }
  return { first: job => planOf(job).first, next: (job, age, present) => planOf(job).at(age, present) }
}

/**
 * Returns what the learned terms cost, in seconds, by arithmetic without the kernel, if each death counts by its probability: whether the one job of a month dies
 * is luck, and decides which of two rules is better on a small trace. One job follows the other.
 */
export function expectedLearnedCost({ jobs }: Trace, c: number, dying: number): number {
  const sketches = new Map<string, Sketch>()
  const terms = termsLearnedFrom(c, {
    ended: name => sketches.get(name)?.ended ?? 0,
    // Copies, as a reader of the log gets: these go on counting.
    levels: name => levelsOf(name).flatMap(level => (sketches.has(level) ? Sketch.from(sketches.get(level)!.toJSON()) : [])),
  })
  let cost = 0
  for (const job of jobs) {
    let [age, term] = [0, terms.first(job)]
    while (age + term / 2 < job.ms) {
      // A job of months with terms of milliseconds has too many renewals to walk through: all with the same term are counted at once.
      const half = term / 2
      const renewals = Math.max(1, Math.ceil((Math.min(job.ms, sameTermUntil(age)) - age) / half) - 1)
      cost += renewals * c
      age += renewals * half
      term = terms.next(job, age, term)
    }
    cost += (dying * (age + term - job.ms)) / 1_000
    for (const level of levelsOf(job.class)) {
      const sketch = sketches.get(level) ?? new Sketch(level)
      sketch.add(job.ms, job.dies)
      sketches.set(level, sketch)
    }
  }
  return cost
}

/** The same for one term at all ages. */
export function expectedFixedCost({ jobs }: Trace, c: number, dying: number, ttl: number): number {
  const dead = jobs.map(job => ({ ...job, dies: true }))
  const renewals = fixedCost(
    jobs.map(job => ({ ...job, dies: false })),
    c,
    ttl,
  )
  return renewals + dying * (fixedCost(dead, c, ttl) - renewals)
}

/** Terms by age alone, planned with the whole trace in hindsight: what no method that looks at nothing but ages can be much better than. */
export function hindsightTerms(trace: Trace, c: number): TermSource {
  const sketch = new Sketch()
  for (const { ms, dies } of trace.jobs) sketch.add(ms, dies)
  const plan = planTerm([sketch], { renewalCost: c * 1_000, min: MIN, max: MAX, fallback: DEFAULT })
  return { first: () => plan.first, next: (_, age, present) => plan.at(age, present) }
}

/** The best single term in hindsight, in ms, and its cost in seconds. */
export function bestFixed({ jobs }: Trace, c: number): { readonly ttl: number; readonly cost: number } {
  return bestOf(ttl => fixedCost(jobs, c, ttl))
}

/** The same, if each death counts by its probability. */
export function bestExpected(trace: Trace, c: number, dying: number): { readonly ttl: number; readonly cost: number } {
  return bestOf(ttl => expectedFixedCost(trace, c, dying, ttl))
}

function bestOf(costOf: (ttl: number) => number): { readonly ttl: number; readonly cost: number } {
  let best = { ttl: DEFAULT, cost: Number.POSITIVE_INFINITY }
  for (let i = 0; i <= 300; i++) {
    const ttl = Math.round(MIN * (MAX / MIN) ** (i / 300))
    const cost = costOf(ttl)
    if (cost < best.cost) best = { ttl, cost }
  }
  return best
}

/** Returns what these jobs cost with one term, in seconds. */
export function fixedCost(jobs: readonly Job[], c: number, ttl: number): number {
  const half = ttl / 2
  let cost = 0
  for (const { ms, dies } of jobs) {
    const renewals = Math.max(0, Math.ceil(ms / half) - 1)
    cost += renewals * c + (dies ? (renewals * half + ttl - ms) / 1_000 : 0)
  }
  return cost
}

/**
 * An oracle: it knows how long each job will run, but not whether its holder dies, and gives it the best single term for that. In seconds, with the
 * deaths of the trace.
 */
export function oracleCost({ jobs }: Trace, c: number): number {
  const dying = jobs.filter(({ dies }) => dies).length / Math.max(1, jobs.length)
  let cost = 0
  for (const { ms, dies } of jobs) {
    // With k renewals the shortest term is 2·ms / (k + 1), and half of it is idle after a death.
    const k = Math.max(0, Math.round(Math.sqrt((dying * ms) / 1_000 / c)) - 1)
    cost += k * c + (dies ? ms / 1_000 / (k + 1) : 0)
  }
  return cost
}
