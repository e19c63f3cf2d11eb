/** The part `terms` of the replay: what learned terms cost on traces, and on made-up ones (`worst`), relative to the best fixed ttl. */
import { inWords } from '../../src/duration.ts'
import type { Progress, Report } from './report.ts'
import { ADVERSARY, adversarialTrace, SYNTHETIC, syntheticTrace } from './synthetic.ts'
import {
  bestExpected,
  bestFixed,
  expectedFixedCost,
  expectedLearnedCost,
  fixedTerm,
  hindsightTerms,
  learnedTerms,
  oracleCost,
  replayTerms,
} from './terms.ts'
import type { Job, Trace } from './trace.ts'

export interface TermsRow {
  readonly trace: string
  readonly jobs: number
  /** Which holders die: a tenth of them, or those of the tasks that failed. */
  readonly deaths: 'tenth' | 'failed'
  readonly c: number
  readonly fixed: number
  /** Costs relative to the best single term. */
  readonly learned: number
  readonly hindsight: number
  readonly oracle: number
  /** The learned terms cost this much more than the oracle, in seconds for each job. */
  readonly regret: number
  readonly renewals: number
  readonly idle: number
}

const HEAD = [
  ...['TRACE', 'JOBS', 'DEATHS', 'c', 'BEST FIXED', 'LEARNED / FIXED', 'HINDSIGHT / FIXED', 'ORACLE / FIXED'],
  ...['REGRET', 'RENEWALS', 'IDLE'],
]

export function reportTerms(traces: readonly Trace[], costs: readonly number[], progress: Progress): Report {
  const rows: TermsRow[] = []
  for (const trace of traces) {
    const variants: [Trace, TermsRow['deaths']][] = [[trace, 'tenth']]
    if (trace.jobs.some(({ failed }) => failed)) variants.push([withFailures(trace), 'failed'])
    for (const [variant, deaths] of variants)
      for (const c of costs) {
        progress(`terms of ${trace.jobs.length} jobs of ${trace.name}, c = ${c} s`)
        rows.push(termsRow(variant, deaths, c))
      }
  }
  return {
    head: HEAD,
    rows: rows.map(row => [
      ...[row.trace, String(row.jobs), row.deaths === 'tenth' ? 'a tenth' : 'failed tasks', `${row.c} s`, inWords(row.fixed)],
      ...[row.learned, row.hindsight, row.oracle].map(ratio => ratio.toFixed(3)),
      ...[`${row.regret.toFixed(2)} s a job`, String(row.renewals), `${Math.round(row.idle)} s`],
    ]),
    facts: rows,
    bars: rows.map(row => ({
      title: `${row.trace}, ${row.deaths === 'tenth' ? 'a tenth dies' : 'failed tasks die'}, c = ${row.c} s`,
      bars: [
        { label: 'learned', value: row.learned },
        { label: 'by age, in hindsight', value: row.hindsight },
        { label: 'oracle', value: row.oracle },
      ],
    })),
    plotTitle: 'Cost relative to the best fixed ttl (dashed line)',
  }
}

/** The failures of the trace instead of a random tenth. */
function withFailures(trace: Trace): Trace {
  return { ...trace, jobs: trace.jobs.map((job): Job => ({ ...job, dies: job.failed })) }
}

function termsRow(trace: Trace, deaths: TermsRow['deaths'], c: number): TermsRow {
  const fixed = bestFixed(trace, c)
  // The same kernel for both: the sum above is checked by it.
  const checked = replayTerms(trace, c, () => fixedTerm(fixed.ttl))
  if (Math.abs(checked.cost - fixed.cost) > fixed.cost / 1_000)
    throw new Error(`the kernel counts ${checked.cost} s for a ttl of ${fixed.ttl} ms, arithmetic ${fixed.cost} s`)
  const learned = replayTerms(trace, c, learnedTerms(c))
  const hindsight = replayTerms(trace, c, () => hindsightTerms(trace, c))
  const oracle = oracleCost(trace, c)
  return {
    ...{ trace: trace.name, jobs: trace.jobs.length, deaths, c, fixed: fixed.ttl },
    learned: learned.cost / fixed.cost,
    hindsight: hindsight.cost / fixed.cost,
    oracle: oracle / fixed.cost,
    regret: (learned.cost - oracle) / trace.jobs.length,
    renewals: learned.renewals,
    idle: learned.idle,
  }
}

/** A made-up trace: what learned terms cost relative to the best fixed ttl, by arithmetic and if each death counts by its probability. */
export interface WorstRow {
  readonly trace: string
  readonly jobs: number
  readonly c: number
  readonly ratio: number
  /** The same if each job also costs its grant, as much as a renewal: every policy pays that, also for work that ends at once. */
  readonly granted: number
  /** They cost this much more than 1.05 times the best fixed ttl, in jobs of the trace with the default ttl; 0: not more. */
  readonly excess: number
}

const DYING = 0.1
const DEFAULT = 30_000

/** `counts`: how many jobs each trace has. */
export function reportWorst(counts: readonly number[], costs: readonly number[], seed: number, progress: Progress): Report {
  const rows: WorstRow[] = []
  const names = [...SYNTHETIC, ADVERSARY]
  for (const trace of names) {
    progress(`terms of made-up traces: ${trace}`)
    for (const jobs of counts) for (const c of costs) rows.push(worstRow(trace, jobs, c, seed))
  }
  return {
    head: ['TRACE', ...counts.flatMap(jobs => costs.map(c => `${jobs} JOBS, c = ${c} s`)), 'WITH GRANTS', 'MOST EXCESS'],
    rows: names.map(trace => {
      const own = rows.filter(row => row.trace === trace)
      const most = (of: (row: WorstRow) => number) => Math.max(...own.map(of))
      const cells = own.map(({ ratio }) => ratio.toFixed(2))
      return [trace, ...cells, most(({ granted }) => granted).toFixed(2), `${most(({ excess }) => excess).toFixed(1)} jobs`]
    }),
    facts: rows,
    bars: [],
    plotTitle: '',
  }
}

function worstRow(name: string, jobs: number, c: number, seed: number): WorstRow {
  const trace = name === ADVERSARY ? adversarialTrace(jobs, seed, c) : syntheticTrace(name, jobs, seed)
  const learned = expectedLearnedCost(trace, c, DYING)
  const fixed = bestExpected(trace, c, DYING).cost
  const job = expectedFixedCost(trace, c, DYING, DEFAULT) / jobs
  const granted = (learned + c * jobs) / (fixed + c * jobs)
  return { trace: name, jobs, c, ratio: learned / fixed, granted, excess: Math.max(0, learned - 1.05 * fixed) / job }
}
