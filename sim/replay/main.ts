/**
 * `npm run replay -- --trace FILE… [--policy all|terms|queue|fair|worst] [--cost 0.1,1,10] [--jobs N] [--seed N] [--svg FILE] [--json]`
 *
 * Exits with 1 if a number is not what it should be.
 */
import { existsSync, writeFileSync } from 'node:fs'
import { parseArgs } from 'node:util'
import { barChart } from './plot.ts'
import { reportFair, reportQueue } from './queue-report.ts'
import { type Report, tableOf } from './report.ts'
import { reportTerms, reportWorst } from './terms-report.ts'
import { readTrace } from './trace.ts'

const OPTIONS = {
  trace: { type: 'string', multiple: true },
  policy: { type: 'string', default: 'all' },
  cost: { type: 'string', default: '0.1,1,10' },
  jobs: { type: 'string', default: '5000' },
  asks: { type: 'string', default: '400' },
  seed: { type: 'string', default: '7' },
  svg: { type: 'string' },
  json: { type: 'boolean', default: false },
} as const

/** These policies can be replayed. `worst` takes no trace: it makes up its own. */
const POLICIES = ['all', 'terms', 'queue', 'fair', 'worst'] as const
/** The made-up traces have these numbers of jobs. */
const WORST = [100, 300] as const

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

function wholeNumber(text: string, option: string): number {
  const value = Number(text)
  if (!Number.isSafeInteger(value) || value < 1) refuse(`${option} takes a whole number above 0, not ${text}`)
  return value
}

const values = parseOptions()
const policy =
  POLICIES.find(known => known === values.policy) ?? refuse(`--policy must be one of ${POLICIES.join(', ')}, not ${values.policy}`)
const files = values.trace ?? []
if (policy !== 'worst' && files.length === 0) refuse('Name a trace: npm run replay -- --trace ../shared/data/alibaba-gpu-2023.csv')
for (const file of files)
  if (!existsSync(file))
    refuse(`${file} does not exist. The traces are not part of this repository: docs/learned-terms.md says where they come from`)
const costs = values.cost.split(',').map(Number)
if (!costs.every(c => c > 0)) refuse(`--cost takes numbers of seconds above 0, separated by commas, not ${values.cost}`)
const seed = wholeNumber(values.seed, '--seed')
const sizes = { jobs: wholeNumber(values.jobs, '--jobs'), asks: wholeNumber(values.asks, '--asks'), seed }

const progress = (text: string) => process.stderr.write(`${text}\n`)
const traces = files.map(file => readTrace(file, seed))
const reports: Report[] = []
if (policy === 'all' || policy === 'terms') reports.push(reportTerms(traces, costs, progress))
if (policy === 'all' || policy === 'queue') reports.push(reportQueue(traces, sizes, progress))
if (policy === 'all' || policy === 'fair') reports.push(reportFair(traces, sizes, progress))
if (policy === 'worst') reports.push(reportWorst(WORST, costs, seed, progress))

for (const { head, rows, facts } of joined(reports)) {
  if (values.json) for (const fact of facts) process.stdout.write(`${JSON.stringify(fact)}\n`)
  else process.stdout.write(`${tableOf([head, ...rows])}\n\n`)
}
const drawn = reports.find(({ bars }) => bars.length > 0)
if (values.svg !== undefined && drawn !== undefined) writeFileSync(values.svg, barChart(drawn.plotTitle, drawn.bars, 1))
else if (values.svg !== undefined) progress(`--policy ${policy} has no plot`)
if (reports.some(({ facts }) => facts.some(fact => 'holds' in fact && fact.holds === false))) process.exitCode = 1

/** Tables with the same columns become one. */
function joined(all: readonly Report[]): readonly Pick<Report, 'head' | 'rows' | 'facts'>[] {
  const tables: { head: readonly string[]; rows: (readonly string[])[]; facts: object[] }[] = []
  for (const { head, rows, facts } of all) {
    const last = tables.at(-1)
    if (last?.head === head) {
      last.rows.push(...rows)
      last.facts.push(...facts)
    } else tables.push({ head, rows: [...rows], facts: [...facts] })
  }
  return tables
}
