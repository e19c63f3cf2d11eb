/** These are the measures on the replay of a queue: use of the pool, waits, delays, shares of users, and how good the estimated starts were. */
import type { AskedStart, QueueJob, QueueResult } from './queue.ts'

const HOUR = 3_600_000

/** The share of the GPUs that did work which was not lost, between the first and the last arrival. */
export function useOf(jobs: readonly QueueJob[], gpus: number, { stays }: QueueResult): number {
  const [from, to] = [jobs[0]!.created, jobs.at(-1)!.created]
  let busy = 0
  for (const { job, start, end, preempted } of stays)
    if (!preempted) busy += jobs[job]!.gpus * Math.max(0, Math.min(end, to) - Math.max(start, from))
  return busy / (gpus * Math.max(1, to - from))
}

/** The share of the GPU time that was lost by preemption, of all that was used. */
export function lostOf(jobs: readonly QueueJob[], { stays }: QueueResult): number {
  let [lost, all] = [0, 0]
  for (const { job, start, end, preempted } of stays) {
    const used = jobs[job]!.gpus * (end - start)
    all += used
    if (preempted) lost += used
  }
  return all === 0 ? 0 : lost / all
}

/** In ms, shortest first. */
export function waitsOf(jobs: readonly QueueJob[], { starts }: QueueResult): readonly number[] {
  return starts.map((start, job) => start - jobs[job]!.created).sort((a, b) => a - b)
}

/** Returns how much later each job started than under strict FIFO, in ms, largest last. 0 for those that did not. */
export function delaysOf({ starts }: QueueResult, fifo: QueueResult): readonly number[] {
  return starts.map((start, job) => Math.max(0, start - fifo.starts[job]!)).sort((a, b) => a - b)
}

export function quantileOf(sorted: readonly number[], share: number): number {
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))] ?? 0
}

export function meanOf(list: readonly number[]): number {
  return list.length === 0 ? 0 : list.reduce((sum, value) => sum + value, 0) / list.length
}

export interface Coverage {
  readonly asked: number
  /** The shares of starts within the interval, before it and after it. */
  readonly within: number
  readonly before: number
  readonly after: number
}

export function coverageOf(asked: readonly AskedStart[]): Coverage {
  const share = (test: (asked: AskedStart) => boolean) => (asked.length === 0 ? 0 : asked.filter(test).length / asked.length)
  return {
    asked: asked.length,
    within: share(({ real, forecast }) => real >= forecast.low && real <= forecast.high),
    before: share(({ real, forecast }) => real < forecast.low),
    after: share(({ real, forecast }) => real > forecast.high),
  }
}

export interface Shares {
  /** The share of the first user in each hour in which both had jobs waiting all the time. */
  readonly hours: readonly number[]
  /** The most GPU time in ms that the first user had more than the second since both have demand, and how long that took to be repaid. */
  readonly debt: number
  readonly repaid: number
}

/** The shares of two users in the time in which both had jobs waiting. */
export function sharesOf(jobs: readonly QueueJob[], { stays, waits }: QueueResult, users: readonly [string, string]): Shares {
  const from = Math.max(...users.map(user => Math.min(...waits.filter(wait => wait.user === user).map(wait => wait.from))))
  // Both wait from `from` on without a pause, until one of them has no waiting job.
  const to = Math.min(...users.map(user => waits.find(wait => wait.user === user && wait.to > from)?.to ?? from))
  const held = (user: string, begin: number, end: number) =>
    stays.reduce((sum, { job, start, end: over }) => {
      const { gpus, user: of } = jobs[job]!
      return of === user ? sum + gpus * Math.max(0, Math.min(over, end) - Math.max(start, begin)) : sum
    }, 0)
  const hours: number[] = []
  for (let hour = from; hour + HOUR <= to; hour += HOUR) {
    const [first, second] = users.map(user => held(user, hour, hour + HOUR)) as [number, number]
    hours.push(first / Math.max(1, first + second))
  }
  let [debt, repaid] = [0, Number.POSITIVE_INFINITY]
  const step = 60_000
  for (let at = from + step; at <= to; at += step) {
    const owed = held(users[0], from, at) - held(users[1], from, at)
    debt = Math.max(debt, owed)
    if (owed <= 0) {
      repaid = at - from
      break
    }
  }
  return { hours, debt, repaid }
}
