/** `npm run replay -- --trace FILE [--policy terms] [--cost 0.1,1,10] [--seed N] [--svg FILE] [--json]` */
import { existsSync, writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { inWords } from '../../src/duration.ts'
import { type BarGroup, barChart } from './plot.ts'
import { bestFixed, fixedTerm, hindsightTerms, learnedTerms, oracleCost, replayTerms } from './terms.ts'
import { type Job, readTrace, type Trace } from './trace.ts'

const OPTIONS = {
  trace: { type: 'string', multiple: true },
  policy: { type: 'string', default: 'terms' },
  cost: { type: 'string', default: '0.1,1,10' },
  seed: { type: 'string', default: '7' },
  svg: { type: 'string' },
  json: { type: 'boolean', default: false },
} as const

/** What can be replayed. */
const POLICIES = ['terms'] as const

const HEAD = [
  'TRACE',
  'JOBS',
  'DEATHS',
  'c',
  'BEST FIXED',
  'LEARNED / FIXED',
  'HINDSIGHT / FIXED',
  'ORACLE / FIXED',
  'REGRET',
  'RENEWALS',
  'IDLE',
]

interface TermsRow {
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
  /** What the learned terms cost more than the oracle, in seconds for each job. */
  readonly regret: number
  readonly renewals: number
  readonly idle: number
}

function refuse(why: string): never {
  process.stderr.write(`${why}\n`)
  process.exit(2)
}

function parseOptions() {
  try {
    return parseArgs({ options: OPTIONS }).values
  } catch (error) {
    return refuse(`${(error as Error).message}. Options: ${Object.keys(OPTIONS).map(name => `--${name}`)}`)
  }
}

const values = parseOptions()
if (!POLICIES.includes(values.policy as (typeof POLICIES)[number]))
  refuse(`--policy must be one of ${POLICIES.join(', ')}, not ${values.policy}`)
if (values.trace === undefined) refuse('Name a trace: npm run replay -- --trace ../shared/data/alibaba-gpu-2023.csv')
const costs = values.cost.split(',').map(Number)
if (!costs.every(c => c > 0)) refuse(`--cost takes numbers of seconds above 0, separated by commas, not ${values.cost}`)
const seed = Number(values.seed)
if (!Number.isSafeInteger(seed)) refuse(`--seed takes a whole number, not ${values.seed}`)

/** The failures of the trace instead of a random tenth. */
function withFailures(trace: Trace): Trace {
  return { ...trace, jobs: trace.jobs.map((job): Job => ({ ...job, dies: job.failed })) }
}

function rowOf(trace: Trace, deaths: TermsRow['deaths'], c: number): TermsRow {
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

function table(rows: readonly (readonly string[])[]): string {
  const widths = rows[0]!.map((_, i) => Math.max(...rows.map(row => row[i]!.length)))
  return rows
    .map(row =>
      row
        .map((cell, i) => cell.padEnd(widths[i]!))
        .join('  ')
        .trimEnd(),
    )
    .join('\n')
}

const rows: TermsRow[] = []
for (const file of values.trace) {
  if (!existsSync(file))
    refuse(`${file} does not exist. The traces are not part of this repository: docs/learned-terms.md says where they come from`)
  const trace = readTrace(file, seed)
  const variants: [Trace, TermsRow['deaths']][] = [[trace, 'tenth']]
  if (trace.jobs.some(({ failed }) => failed)) variants.push([withFailures(trace), 'failed'])
  for (const [variant, deaths] of variants)
    for (const c of costs) {
      if (!values.json) process.stderr.write(`replaying ${trace.jobs.length} jobs of ${trace.name}, c = ${c} s\n`)
      const row = rowOf(variant, deaths, c)
      rows.push(row)
      if (values.json) process.stdout.write(`${JSON.stringify(row)}\n`)
    }
}
const cells = rows.map(row => [
  ...[row.trace, String(row.jobs), row.deaths === 'tenth' ? 'a tenth' : 'failed tasks', `${row.c} s`, inWords(row.fixed)],
  ...[row.learned, row.hindsight, row.oracle].map(ratio => ratio.toFixed(3)),
  ...[`${row.regret.toFixed(2)} s a job`, String(row.renewals), `${Math.round(row.idle)} s`],
])
if (!values.json) process.stdout.write(`${table([HEAD, ...cells])}\n`)
if (values.svg !== undefined) {
  const groups = rows.map(
    (row): BarGroup => ({
      title: `${row.trace}, ${row.deaths === 'tenth' ? 'a tenth dies' : 'failed tasks die'}, c = ${row.c} s`,
      bars: [
        { label: 'learned', value: row.learned },
        { label: 'by age, in hindsight', value: row.hindsight },
        { label: 'oracle', value: row.oracle },
      ],
    }),
  )
  writeFileSync(values.svg, barChart('Cost relative to the best fixed ttl (dashed line)', groups, 1))
}
