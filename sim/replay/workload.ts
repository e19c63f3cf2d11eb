/** Jobs that ask a pool for GPUs, from a trace: all of them or a part, when each asks, and how many GPUs there are. */
import type { QueueJob } from './queue.ts'
import { type Job, randomFrom, type Trace } from './trace.ts'

export interface Workload {
  readonly jobs: readonly QueueJob[]
  readonly gpus: number
  /** People read here how it was made from the trace. */
  readonly made: string
}

const PER_HOST = 8
/** GPUs of the pool for a trace without times. */
const UNTIMED_GPUS = 64

/** At most `most` jobs: the last ones of a trace with times, otherwise some by a fixed seed with made-up arrivals and numbers of GPUs. */
export function workloadOf(trace: Trace, most: number, seed: number): Workload {
  return trace.timed ? timedWorkload(trace, most) : arrivingWorkload(trace, most, seed)
}

function timedWorkload({ jobs }: Trace, most: number): Workload {
  const created = [...jobs].sort((a, b) => a.created - b.created).slice(-most)
  const begin = created[0]?.created ?? 0
  const chosen = created.map(job => ({ ...queueJob(job), created: job.created - begin }))
  const span = Math.max(1, chosen.at(-1)?.created ?? 0)
  // As many as the jobs would use on average if none had to wait.
  const demand = chosen.reduce((sum, { created, ms, gpus }) => sum + gpus * (Math.min(created + ms, span) - created), 0) / span
  const largest = Math.max(1, ...chosen.map(({ gpus }) => gpus))
  const gpus = PER_HOST * Math.ceil(Math.max(demand, largest) / PER_HOST)
  const part = created.length < jobs.length ? `the last ${created.length} of ${jobs.length} jobs` : `all ${jobs.length} jobs`
  return { jobs: chosen, gpus, made: `${part} at their times, ${gpus} GPUs` }
}

function arrivingWorkload({ jobs }: Trace, most: number, seed: number): Workload {
  const random = randomFrom(seed)
  const chosen = jobs.slice(0, most).map(job => {
    const draw = random()
    return queueJob({ ...job, gpus: draw < 0.7 ? 1 : draw < 0.8 ? 2 : draw < 0.9 ? 4 : 8 })
  })
  const work = chosen.reduce((sum, { ms, gpus }) => sum + ms * gpus, 0)
  const pause = work / UNTIMED_GPUS / Math.max(1, chosen.length)
  let at = 0
  const arriving = chosen.map((job, i) => {
    at -= Math.log(1 - random()) * pause
    return { ...job, created: Math.round(at), user: `user-${i % 2}`, class: `gpus/count=${job.gpus}` }
  })
  return {
    jobs: arriving,
    gpus: UNTIMED_GPUS,
    made: `${chosen.length} of ${jobs.length} jobs by a fixed seed, random arrivals for a load of 1, ${UNTIMED_GPUS} GPUs`,
  }
}

function queueJob({ created, ms, gpus, user, class: name }: Job): QueueJob {
  return { created, ms, gpus, user, class: `gpus/${name.slice(name.indexOf('/') + 1)}` }
}

/** Jobs of two users for 16 GPUs, all of one GPU and of at most `longest` ms: `ann` asks for half of them at once, `ben` for the others an hour later. */
export function twoUsers({ jobs }: Trace, count: number, longest: number, seed: number): readonly QueueJob[] {
  const random = randomFrom(seed)
  const short = jobs.filter(({ ms }) => ms > 0 && ms <= longest)
  return Array.from({ length: short.length === 0 ? 0 : count }, (_, i) => {
    const { ms } = short[Math.floor(random() * short.length)]!
    const user = i % 2 === 0 ? 'ann' : 'ben'
    return { created: user === 'ann' ? 0 : 3_600_000, ms, gpus: 1, user, class: `gpus/${user}` }
  })
}
