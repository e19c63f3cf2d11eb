/** The parts `queue` and `fair` of the replay: what disciplines are worth on a trace, how fair they are, and how good estimated starts were. */
import { inWords } from '../../src/duration.ts'
import type { BarGroup } from './plot.ts'
import { type AskedStart, type QueueJob, type QueueOptions, type QueueResult, replayQueue } from './queue.ts'
import { coverageOf, delaysOf, lostOf, meanOf, quantileOf, sharesOf, useOf, waitsOf } from './queue-measures.ts'
import { type Progress, percent, type Report } from './report.ts'
import { syntheticTrace } from './synthetic.ts'
import type { Trace } from './trace.ts'
import { twoUsers, type Workload, workloadOf } from './workload.ts'

/** One measured number, and what it should be. */
interface Measure {
  readonly trace: string
  readonly case: string
  readonly measure: string
  readonly value: string
  readonly wanted: string
  readonly holds: boolean
}

const HEAD = ['TRACE', 'CASE', 'MEASURE', 'VALUE', 'WANTED', 'HOLDS']

/** No notice, as docs/pool-queues.md demands for its promise that no head is delayed. */
const BACKFILL = { queue: 'backfill', preemptNotice: 0 } as const
const CASES: readonly (readonly [string, Pick<QueueOptions, 'rules' | 'expects'>])[] = [
  ['backfill, true durations', { rules: BACKFILL, expects: 'truth' }],
  ['backfill, guesses ¼ to 4 ×', { rules: BACKFILL, expects: 'guess' }],
  ["backfill, expect: 'auto'", { rules: BACKFILL, expects: 'learned' }],
]

/** Made-up traces that the widths of estimated starts were not chosen by. */
const UNSEEN = ['log-normal', 'exponential', 'heavy tail that drifts'] as const
const UNSEEN_JOBS = 2_000

export interface QueueReportOptions {
  /** The most jobs of a trace. */
  readonly jobs: number
  readonly asks: number
  readonly seed: number
}

export function reportQueue(traces: readonly Trace[], options: QueueReportOptions, progress: Progress): Report {
  const measures: Measure[] = []
  const bars: BarGroup[] = []
  for (const trace of traces) {
    const workload = workloadOf(trace, options.jobs, options.seed)
    progress(`queue of ${trace.name}: ${workload.made}; fifo`)
    const fifo = replayQueue(workload.jobs, { gpus: workload.gpus, rules: { queue: 'fifo' }, expects: 'nothing', asks: options.asks })
    measures.push(...fifoMeasures(trace.name, workload, fifo))
    const compared = [{ name: 'fifo', result: fifo }]
    for (const queue of ['fit', 'fair'] as const) {
      progress(`queue of ${trace.name}: ${queue}`)
      const { asked } = replayQueue(workload.jobs, { gpus: workload.gpus, rules: { queue }, expects: 'nothing', asks: options.asks })
      // Requests that come later overtake by their size or their account, which no forecast knows.
      measures.push(measuring(trace.name, queue)('starts in their 80 % interval', coverageText(asked)))
    }
    for (const [name, how] of CASES) {
      progress(`queue of ${trace.name}: ${name}`)
      const result = replayQueue(workload.jobs, { gpus: workload.gpus, ...how, asks: options.asks })
      // A job that asks again is a new request at the end of the queue, which strict FIFO does not have. The promise is about equal requests.
      const once = result.preemptions === 0 ? result : replayQueue(workload.jobs, { gpus: workload.gpus, ...how, repeats: 'nothing' })
      measures.push(...backfillMeasures(trace.name, name, workload, { result, once, fifo }))
      compared.push({ name, result })
    }
    const relative = (title: string, of: (result: QueueResult) => number): BarGroup => ({
      title: `${trace.name}: ${title}`,
      bars: compared.map(({ name, result }) => ({ label: name, value: of(result) / of(fifo) })),
    })
    bars.push(relative('use of the GPUs', result => useOf(workload.jobs, workload.gpus, result)))
    bars.push(relative('mean wait', result => meanOf(waitsOf(workload.jobs, result))))
  }
  for (const name of UNSEEN) {
    progress(`estimated starts of a made-up trace: ${name}`)
    const { jobs, gpus } = workloadOf(syntheticTrace(name, UNSEEN_JOBS, options.seed), UNSEEN_JOBS, options.seed)
    const { asked } = replayQueue(jobs, { gpus, rules: { queue: 'fifo' }, expects: 'nothing', asks: options.asks })
    measures.push(measuring(`made up: ${name}`, 'fifo')('starts in their 80 % interval', coverageText(asked)))
  }
  return reportOf(measures, bars, 'Relative to strict FIFO (dashed line)')
}

function fifoMeasures(trace: string, { jobs, gpus, made }: Workload, fifo: QueueResult): Measure[] {
  const { asked } = fifo
  const row = measuring(trace, 'fifo')
  const half = Math.floor(asked.length / 2)
  return [
    row('jobs', made),
    row('use of the GPUs', percent(useOf(jobs, gpus, fifo))),
    row('wait', waitText(waitsOf(jobs, fifo))),
    coverageMeasure(row, asked),
    row('the same, first half of the time', coverageText(asked.slice(0, half))),
    row('the same, second half', coverageText(asked.slice(half))),
  ]
}

function coverageMeasure(row: RowOf, asked: readonly AskedStart[]): Measure {
  const { within } = coverageOf(asked)
  return row('starts in their 80 % interval', coverageText(asked), '70 to 90 %', within >= 0.7 && within <= 0.9)
}

function coverageText(starts: readonly AskedStart[]): string {
  const { asked, within, before, after } = coverageOf(starts)
  return `${percent(within)} of ${asked} (${percent(before)} before, ${percent(after)} after)`
}

/** `once`: the same, but jobs that were preempted do not ask again. */
interface Compared {
  readonly result: QueueResult
  readonly once: QueueResult
  readonly fifo: QueueResult
}

function backfillMeasures(trace: string, name: string, { jobs, gpus }: Workload, { result, once, fifo }: Compared): Measure[] {
  const row = measuring(trace, name)
  const [use, least] = [useOf(jobs, gpus, result), useOf(jobs, gpus, fifo)]
  const late = (of: QueueResult) => [0.5, 0.99, 1].map(share => inWords(quantileOf(delaysOf(of, fifo), share))).join(', ')
  const measures = [
    row('use of the GPUs', percent(use), `at least ${percent(least)}`, use >= least),
    row('wait', waitText(waitsOf(jobs, result))),
    // Guesses are wrong on purpose.
    name.includes('guesses') ? row('starts in their 80 % interval', coverageText(result.asked)) : coverageMeasure(row, result.asked),
    row('start after that of fifo: median, 99 %, most', late(once), '0 ms', quantileOf(delaysOf(once, fifo), 1) === 0),
  ]
  if (result.preemptions === 0) return measures
  return [
    ...measures,
    row('the same, preempted jobs ask again', late(result)),
    row('preemptions', `${result.preemptions}, ${percent(lostOf(jobs, result))} of the work lost`),
  ]
}

function waitText(waits: readonly number[]): string {
  return `${inWords(Math.round(meanOf(waits)))} mean, ${inWords(quantileOf(waits, 0.5))} median, ${inWords(quantileOf(waits, 0.9))} for 9 of 10`
}

const USERS = ['ann', 'ben'] as const
const FAIR_GPUS = 16
const FAIR_JOBS = 800
const FAIR_LONGEST = 4 * 3_600_000

export function reportFair(traces: readonly Trace[], { seed }: Pick<QueueReportOptions, 'seed'>, progress: Progress): Report {
  const measures = traces.flatMap(trace => {
    const jobs = twoUsers(trace, FAIR_JOBS, FAIR_LONGEST, seed)
    const plain = { gpus: FAIR_GPUS, expects: 'nothing', repeats: 'rest', tick: 10_000 } as const
    progress(`two users of ${trace.name}: with preemption`)
    const preempting = replayQueue(jobs, { ...plain, rules: { queue: 'fair', preempt: 'marked' }, preemptible: true })
    progress(`two users of ${trace.name}: without`)
    const patient = replayQueue(jobs, { ...plain, rules: { queue: 'fair' } })
    return [
      ...preemptingMeasures(measuring(trace.name, 'fair, preemption'), jobs, preempting),
      ...patientMeasures(measuring(trace.name, 'fair, no preemption'), jobs, patient),
    ]
  })
  return reportOf(measures, [], '')
}

type RowOf = ReturnType<typeof measuring>

function preemptingMeasures(row: RowOf, jobs: readonly QueueJob[], result: QueueResult): Measure[] {
  const { hours } = sharesOf(jobs, result, USERS)
  const [least, most] = [Math.min(...hours), Math.max(...hours)]
  return [
    row('jobs', `${jobs.length} of at most ${inWords(FAIR_LONGEST)} by a fixed seed, half of them of each user, ${FAIR_GPUS} GPUs`),
    row(
      `share of one of two users in each of ${hours.length} hours`,
      `${percent(least)} to ${percent(most)}`,
      '45 to 55 %',
      least >= 0.45 && most <= 0.55,
    ),
    row('preemptions', String(result.preemptions)),
  ]
}

function patientMeasures(row: RowOf, jobs: readonly QueueJob[], result: QueueResult): Measure[] {
  const { hours, debt, repaid } = sharesOf(jobs, result, USERS)
  const longest = Math.max(...jobs.map(({ ms }) => ms))
  return [
    row(`share of one of two users in each of ${hours.length} hours`, `${percent(Math.min(...hours))} to ${percent(Math.max(...hours))}`),
    row(
      'debt is repaid after',
      `${inWords(repaid)} (at most ${(debt / 3_600_000).toFixed(1)} GPU-hours)`,
      `${inWords(2 * longest)}, twice the longest job`,
      repaid <= 2 * longest,
    ),
  ]
}

function measuring(trace: string, name: string) {
  return (measure: string, value: string, wanted = '', holds = true): Measure => ({ trace, case: name, measure, value, wanted, holds })
}

function reportOf(measures: readonly Measure[], bars: readonly BarGroup[], plotTitle: string): Report {
  return {
    head: HEAD,
    rows: measures.map(({ trace, case: name, measure, value, wanted, holds }) => [
      ...[trace, name, measure, value, wanted],
      wanted === '' ? '' : holds ? 'yes' : 'NO',
    ]),
    facts: measures,
    bars,
    plotTitle,
  }
}
