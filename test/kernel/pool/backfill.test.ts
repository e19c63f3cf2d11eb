/** Backfill in virtual time: the same jobs under strict fifo and under backfill, with their actual durations. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type Job, Lab, type LabOptions, plainMembers, type Run } from '../../support/kernel/lab.ts'
import { runs } from '../../support/runs.ts'

const second = 1_000
const minute = 60 * second

interface Submitted {
  readonly at: number
  readonly job: Job
}

function play(
  queue: 'fifo' | 'backfill',
  submitted: readonly Submitted[],
  { notice = 0, ...options }: { readonly notice?: number } & LabOptions,
): Lab {
  const lab = new Lab({ ...options, rules: { queue, preemptNotice: notice, ...options.rules } })
  for (const { at, job } of submitted) lab.at(at, () => void lab.submit(job))
  lab.runUntil(submitted.reduce((end, { at, job }) => Math.max(end, at) + job.takes, 0) + 60 * minute)
  return lab
}

const jobs = fc.array(
  fc.record({
    at: fc.integer({ min: 0, max: 60 }),
    account: fc.constantFrom('ann', 'bob', 'eve'),
    count: fc.integer({ min: 1, max: 4 }),
    minutes: fc.integer({ min: 1, max: 20 }),
    /** How far its expectation is off: 0 says nothing, 50 % is half of what it takes. */
    says: fc.constantFrom(0, 50, 100, 100, 100, 200),
    preemptible: fc.boolean(),
  }),
  { minLength: 2, maxLength: 30 },
)

function listed(drawn: typeof jobs extends fc.Arbitrary<infer T> ? T : never, stopsAfter: number): Submitted[] {
  return drawn
    .map(({ at, account, count, minutes, says, preemptible }) => ({
      // Never two at the same moment: the order of arrival is the same in both runs.
      at: at * minute,
      job: {
        ...{ account, count, preemptible, stopsAfter, takes: minutes * minute },
        ...(says > 0 && { expect: Math.round((minutes * minute * says) / 100) }),
      },
    }))
    .sort((a, b) => a.at - b.at)
    .map((one, i) => ({ ...one, at: one.at + i * second }))
}

const waited = ({ started, submitted }: Run): number => (started ?? Number.POSITIVE_INFINITY) - submitted

describe('backfill', { timeout: 900_000 }, () => {
  test('delays no job beyond its start under strict fifo, whatever was expected, if leases that yield stop at once', () => {
    fc.assert(
      fc.property(jobs, drawn => {
        const submitted = listed(drawn, 0)
        const fifo = play('fifo', submitted, { members: plainMembers(4) })
        const backfill = play('backfill', submitted, { members: plainMembers(4) })
        for (const [i, run] of backfill.runs.entries())
          expect(waited(run), `job ${i}: ${JSON.stringify(run.job)}`).toBeLessThanOrEqual(waited(fifo.runs[i]!))
      }),
      { numRuns: runs(300) },
    )
  })

  test('with a notice, the head starts at most the notice and the freeze after it would fit without the leases that yield', () => {
    fc.assert(
      fc.property(jobs, fc.constantFrom(undefined, 5 * second), (drawn, stopsAfter) => {
        const notice = 30 * second
        const submitted = listed(drawn, 0).map(({ at, job }) => {
          const { stopsAfter: _, ...rest } = job
          return { at, job: stopsAfter === undefined ? rest : { ...rest, stopsAfter } }
        })
        const fifo = play('fifo', submitted, { members: plainMembers(4) })
        const backfill = play('backfill', submitted, { members: plainMembers(4), notice })
        // The term of a holder that does not listen is 20 s. Each job before it can have been delayed once.
        const each = stopsAfter === undefined ? notice + 20 * second : 5 * second
        for (const [i, run] of backfill.runs.entries())
          expect(waited(run), `job ${i}`).toBeLessThanOrEqual(waited(fifo.runs[i]!) + (i + 1) * (each + second))
      }),
      { numRuns: runs(120) },
    )
  })

  test('starts a short job in a gap, which strict fifo leaves empty', () => {
    const submitted = [
      { at: 0, job: { account: 'ann', count: 3, takes: 10 * minute, expect: 10 * minute } },
      { at: second, job: { account: 'bob', count: 4, takes: 10 * minute, expect: 10 * minute } },
      { at: 2 * second, job: { account: 'eve', count: 1, takes: 5 * minute, expect: 5 * minute } },
      { at: 3 * second, job: { account: 'eve', count: 1, takes: 15 * minute, expect: 15 * minute } },
    ]
    const fifo = play('fifo', submitted, { members: plainMembers(4) })
    const backfill = play('backfill', submitted, { members: plainMembers(4) })
    expect(backfill.runs.map(run => run.started)).toEqual([0, 10 * minute, 2 * second, 20 * minute])
    expect(fifo.runs.map(run => run.started)).toEqual([0, 10 * minute, 20 * minute, 20 * minute])
    expect(backfill.preemptions).toBe(0)
  })

  test('preempts a job that overtook and stayed longer than it said, as soon as the head fits without it', () => {
    const submitted = [
      { at: 0, job: { account: 'ann', count: 3, takes: 10 * minute, expect: 10 * minute } },
      { at: second, job: { account: 'bob', count: 4, takes: 10 * minute } },
      { at: 2 * second, job: { account: 'eve', count: 1, takes: 60 * minute, expect: 5 * minute } },
    ]
    const lab = play('backfill', submitted, { members: plainMembers(4), notice: 30 * second })
    // Eve does not listen: her term of 20 s runs after the notice.
    expect(lab.runs[1]!.started).toBe(10 * minute + 50 * second)
    expect(lab.runs[2]).toMatchObject({ told: 10 * minute, preempted: true })
  })

  test('without known ends, only jobs that may be preempted overtake', () => {
    const submitted = [
      { at: 0, job: { account: 'ann', count: 3, takes: 10 * minute } },
      { at: second, job: { account: 'bob', count: 4, takes: 10 * minute } },
      { at: 2 * second, job: { account: 'eve', count: 1, takes: minute, expect: minute } },
      { at: 3 * second, job: { account: 'zoe', count: 1, takes: minute, preemptible: true } },
    ]
    const lab = play('backfill', submitted, { members: plainMembers(4) })
    expect(lab.runs.map(run => run.started)).toEqual([0, 10 * minute, 20 * minute, 3 * second])
  })

  test('jobs for members that no waiter before them could use start at once, and do not yield', () => {
    const members = { a: { labels: { model: 'a100' } }, h: { labels: { model: 'h100' } } }
    const match = (model: string) => [{ label: 'model', test: 'in' as const, values: [model] }]
    const submitted = [
      { at: 0, job: { account: 'ann', match: match('h100'), takes: 10 * minute } },
      { at: second, job: { account: 'bob', match: match('h100'), takes: 10 * minute } },
      { at: 2 * second, job: { account: 'eve', match: match('a100'), takes: 60 * minute } },
    ]
    const lab = play('backfill', submitted, { members })
    expect(lab.runs.map(run => run.started)).toEqual([0, 10 * minute, 2 * second])
    expect(lab.preemptions).toBe(0)
  })
})
