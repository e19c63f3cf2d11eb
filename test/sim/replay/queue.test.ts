/** The claims about queues of pools, on a small made-up trace: the real traces are not part of the repository. */
import { describe, expect, test } from 'vitest'
import { type QueueJob, replayQueue } from '../../../sim/replay/queue.ts'
import { coverageOf, delaysOf, meanOf, quantileOf, sharesOf, useOf, waitsOf } from '../../../sim/replay/queue-measures.ts'
import { parseTrace, randomFrom } from '../../../sim/replay/trace.ts'
import { twoUsers, workloadOf } from '../../../sim/replay/workload.ts'

const GPUS = 16

/** Jobs of three classes with heavy tails, of 1 to 8 GPUs, a little more than the pool can do. */
function jobsOf(count: number): readonly QueueJob[] {
  const random = randomFrom(21)
  let created = 0
  return Array.from({ length: count }, () => {
    created += Math.round(-150_000 * Math.log(1 - random()))
    const kind = Math.floor(3 * random())
    const gpus = random() < 0.8 ? 1 : random() < 0.7 ? 4 : 8
    const ms = Math.round([30_000, 300_000, 1_200_000][kind]! * (1 - random()) ** -0.6)
    return { created, ms: Math.min(ms, 20 * 3_600_000), gpus, user: `user-${kind}`, class: `gpus/kind=${kind}` }
  })
}

const jobs = jobsOf(500)
const fifo = replayQueue(jobs, { gpus: GPUS, rules: { queue: 'fifo' }, expects: 'nothing', asks: 250 })

describe('a replay of a queue', () => {
  test('runs every job once to its end', () => {
    expect(fifo.stays).toHaveLength(jobs.length)
    for (const { job, start, end } of fifo.stays) expect(end - start).toBe(jobs[job]!.ms)
    expect(fifo.starts.every((start, job) => start >= jobs[job]!.created)).toBe(true)
  })

  test('never uses more GPUs than there are', () => {
    const changes = fifo.stays.flatMap(({ job, start, end }) => [
      { at: start, by: jobs[job]!.gpus },
      { at: end, by: -jobs[job]!.gpus },
    ])
    changes.sort((a, b) => a.at - b.at || a.by - b.by)
    let used = 0
    for (const { by } of changes) {
      used += by
      expect(used).toBeLessThanOrEqual(GPUS)
    }
  })

  test.each(['truth', 'guess', 'learned'] as const)('under backfill starts no job later than under fifo, if requests state %s', expects => {
    const result = replayQueue(jobs, { gpus: GPUS, rules: { queue: 'backfill', preemptNotice: 0 }, expects, repeats: 'nothing' })
    expect(quantileOf(delaysOf(result, fifo), 1)).toBe(0)
    if (expects === 'guess') expect(result.preemptions).toBeGreaterThan(0)
    if (expects !== 'truth') return
    expect(useOf(jobs, GPUS, result)).toBeGreaterThan(useOf(jobs, GPUS, fifo))
    expect(meanOf(waitsOf(jobs, result))).toBeLessThan(0.8 * meanOf(waitsOf(jobs, fifo)))
  })

  test('has 70 to 90 % of the starts in their estimated intervals', () => {
    const { asked, within } = coverageOf(fifo.asked)
    expect(asked).toBeGreaterThan(100)
    expect(within).toBeGreaterThanOrEqual(0.7)
    expect(within).toBeLessThanOrEqual(0.9)
  })
})

describe('two equal users', () => {
  const trace = parseTrace('t', ['runtime', ...jobs.map(({ ms }) => ms / 1_000)].join('\n'), 7)
  const demand = twoUsers(trace, 240, 4 * 3_600_000, 7)
  const plain = { gpus: 8, expects: 'nothing', repeats: 'rest', tick: 30_000 } as const

  test('get 45 to 55 % of each hour with preemption', () => {
    const result = replayQueue(demand, { ...plain, rules: { queue: 'fair', preempt: 'marked' }, preemptible: true })
    const { hours } = sharesOf(demand, result, ['ann', 'ben'])
    expect(hours.length).toBeGreaterThan(2)
    for (const share of hours) {
      expect(share).toBeGreaterThanOrEqual(0.45)
      expect(share).toBeLessThanOrEqual(0.55)
    }
  })

  test('are even within twice the longest job without preemption', () => {
    const result = replayQueue(demand, { ...plain, rules: { queue: 'fair' } })
    const { repaid } = sharesOf(demand, result, ['ann', 'ben'])
    expect(repaid).toBeLessThanOrEqual(2 * Math.max(...demand.map(({ ms }) => ms)))
    expect(result.preemptions).toBe(0)
  })
})

test('a workload has at most as many jobs as asked for, and says how it was made', () => {
  const trace = parseTrace('t', ['runtime', ...Array.from({ length: 50 }, (_, i) => i)].join('\n'), 7)
  const workload = workloadOf(trace, 20, 7)
  expect(workload.jobs).toHaveLength(20)
  expect(workload.made).toContain('20 of 50 jobs by a fixed seed')
  expect(workloadOf(trace, 20, 7)).toEqual(workload)
})
