/**
 * The queue of a pool of GPUs under the real kernel: jobs of a trace arrive, wait, start, are recalled and end in virtual time. The same jobs under two
 * disciplines say what each discipline is worth.
 */
import type { PolicyRules } from '../../src/kernel/command.ts'
import type { Event } from '../../src/kernel/event.ts'
import { expectedDuration } from '../../src/learn/expectation.ts'
import { explainWaiter } from '../../src/pool/explain.ts'
import type { StartForecast } from '../../src/pool/forecast.ts'
import { classesIn, learnedDurations } from '../../src/pool/learned-durations.ts'
import { poolView } from '../../src/replica/pool-view.ts'
import { sketchViews } from '../../src/replica/sketch-view.ts'
import { randomFrom } from './trace.ts'
import { VirtualLog } from './virtual-log.ts'

export interface QueueJob {
  /** When it asks, in ms. */
  readonly created: number
  readonly ms: number
  readonly gpus: number
  readonly user: string
  /** The class of its work: a path under the name of the pool. */
  readonly class: string
}

export interface QueueOptions {
  readonly gpus: number
  readonly rules: PolicyRules
  /** Requests say this about their durations: nothing, the truth, a guess that is a quarter to four times the truth, or the answer of `expect: 'auto'`. */
  readonly expects: 'nothing' | 'truth' | 'guess' | 'learned'
  /** All jobs may be preempted. */
  readonly preemptible?: boolean
  /**
   * A job that was preempted asks to do this again: everything, only the rest, or nothing. It asks at the end of the queue.
   * @default 'everything'
   */
  readonly repeats?: 'everything' | 'rest' | 'nothing'
  /** This many estimated starts are asked for, of waiters at random times. */
  readonly asks?: number
  /** Ms between two ticks of the log while jobs wait. Besides, the log knows the time of each request and each release. */
  readonly tick?: number
}

/** One stay of a job on its GPUs. */
export interface Stay {
  readonly job: number
  readonly start: number
  readonly end: number
  /** It was preempted, and its work was lost if jobs repeat everything. */
  readonly preempted: boolean
}

/** An estimated start, and the real one, both in ms from the time of asking. */
export interface AskedStart {
  readonly forecast: StartForecast
  readonly real: number
}

export interface QueueResult {
  /** When each job started for the first time, in ms. */
  readonly starts: readonly number[]
  readonly stays: readonly Stay[]
  readonly preemptions: number
  readonly asked: readonly AskedStart[]
  readonly waits: readonly UserWait[]
}

/** From when to when a user had at least one waiting job. */
export interface UserWait {
  readonly user: string
  readonly from: number
  readonly to: number
}

const POOL = 'gpus'
const PER_HOST = 8

export function replayQueue(jobs: readonly QueueJob[], options: QueueOptions): QueueResult {
  return new QueueReplay(jobs, options).run()
}

interface Request {
  readonly job: number
  /** This much is left to run, in ms. */
  readonly ms: number
}

class QueueReplay {
  readonly #jobs: readonly QueueJob[]
  readonly #options: QueueOptions
  readonly #log = new VirtualLog({ renewed: true })
  readonly #starts: number[]
  readonly #stays: Stay[] = []
  readonly #asked: AskedStart[] = []
  /** By lease, of leases that wait or hold. */
  readonly #requests = new Map<number, Request>()
  /** By lease, when it started. */
  readonly #began = new Map<number, number>()
  readonly #waiting = new Set<number>()
  readonly #questions = new Map<number, { readonly at: number; readonly forecast: StartForecast }[]>()
  readonly #userWaits: UserWait[] = []
  readonly #users = new Map<string, { count: number; since: number }>()
  readonly #random = randomFrom(99)
  readonly #guess = randomFrom(98)
  #isTicking = false

  constructor(jobs: readonly QueueJob[], options: QueueOptions) {
    this.#jobs = jobs
    this.#options = options
    this.#starts = new Array<number>(jobs.length).fill(Number.POSITIVE_INFINITY)
  }

  run(): QueueResult {
    const log = this.#log
    this.#offer()
    log.onEvent = event => this.#onEvent(event)
    for (const [job, { created, ms }] of this.#jobs.entries()) log.at(created, () => this.#ask({ job, ms }))
    log.run()
    return {
      ...{ starts: this.#starts, stays: this.#stays, asked: this.#asked, waits: this.#userWaits },
      preemptions: this.#stays.filter(({ preempted }) => preempted).length,
    }
  }

  #offer(): void {
    const { gpus, rules } = this.#options
    this.#log.propose({ kind: 'policy', prefix: POOL, rules: { waiters: 100_000, ...rules } })
    for (let first = 0; first < gpus; first += PER_HOST) {
      const members = Array.from({ length: Math.min(PER_HOST, gpus - first) }, (_, i) => first + i)
      const entries = members.map(gpu => ({
        key: `pool/${POOL}/gpu-${String(gpu).padStart(4, '0')}`,
        value: JSON.stringify({ labels: { host: `host-${first / PER_HOST}` }, units: 1 }),
      }))
      this.#log.propose({ kind: 'acquire', holder: `host-${first / PER_HOST}`, ttl: 86_400_000, wants: [], entries })
    }
  }

  #ask(request: Request): void {
    const log = this.#log
    const { gpus, user, class: name } = this.#jobs[request.job]!
    const { preemptible = false, asks = 0, tick = 0 } = this.#options
    const expect = this.#expectation(request)
    log.tick()
    const outcome = log.propose({
      ...{ kind: 'acquire', holder: `job-${request.job}`, ttl: 3_600_000, wants: [], wait: true, labels: [['learn', name]] },
      pool: { pool: POOL, count: gpus, account: user, ...(expect > 0 && { expect }), ...(preemptible && { preemptible }) },
    })
    if (outcome.kind !== 'granted' && outcome.kind !== 'queued')
      throw new Error(`job ${request.job} was refused: ${JSON.stringify(outcome)}`)
    this.#requests.set(outcome.lease, request)
    if (outcome.kind === 'granted') return this.#begin(outcome.lease)
    this.#wait(outcome.lease, user, 1)
    if (asks > 0) this.#askStarts(outcome.lease)
    if (tick > 0 && !this.#isTicking) this.#tickLater(tick)
  }

  #expectation({ job, ms }: Request): number {
    const { expects } = this.#options
    if (expects === 'truth') return Math.max(1, Math.round(ms))
    if (expects === 'guess') return Math.max(1, Math.round(ms * 4 ** (2 * this.#guess() - 1)))
    if (expects === 'nothing') return 0
    return expectedDuration(sketchViews(this.#log.state, this.#jobs[job]!.class)) ?? 0
  }

  #onEvent({ type, lease, cause }: Event): void {
    if (type === 'granted' && this.#waiting.has(lease)) {
      this.#wait(lease, this.#jobs[this.#requests.get(lease)!.job]!.user, -1)
      this.#begin(lease)
    }
    // The holder stops at once, and asks again.
    if (type === 'recalled' && cause === 'preempt') this.#log.at(this.#log.now, () => this.#end(lease, true))
  }

  #begin(lease: number): void {
    const log = this.#log
    const { job, ms } = this.#requests.get(lease)!
    this.#starts[job] = Math.min(this.#starts[job]!, log.now)
    this.#began.set(lease, log.now)
    for (const { at, forecast } of this.#questions.get(lease) ?? []) this.#asked.push({ forecast, real: log.now - at })
    this.#questions.delete(lease)
    log.at(log.now + ms, () => this.#end(lease, false))
  }

  #end(lease: number, preempted: boolean): void {
    const log = this.#log
    const start = this.#began.get(lease)
    if (start === undefined) return // it was preempted before
    const { job, ms } = this.#requests.get(lease)!
    const ran = Math.round(log.now - start)
    this.#began.delete(lease)
    this.#requests.delete(lease)
    this.#stays.push({ job, start, end: log.now, preempted })
    log.tick()
    log.propose({ kind: 'release', lease, ...(!preempted && { ran }) })
    const { repeats = 'everything' } = this.#options
    if (preempted && repeats !== 'nothing') this.#ask({ job, ms: repeats === 'rest' ? ms - ran : ms })
  }

  #wait(lease: number, user: string, change: 1 | -1): void {
    if (change === 1) this.#waiting.add(lease)
    else this.#waiting.delete(lease)
    const { now } = this.#log
    const known = this.#users.get(user) ?? { count: 0, since: now }
    if (known.count === 0) known.since = now
    known.count += change
    if (known.count === 0) this.#userWaits.push({ user, from: known.since, to: now })
    this.#users.set(user, known)
  }

  #tickLater(ms: number): void {
    this.#isTicking = true
    this.#log.at(this.#log.now + ms, () => {
      this.#log.tick()
      if (this.#waiting.size > 0) this.#tickLater(ms)
      else this.#isTicking = false
    })
  }

  /** Asks for the start of the lease that has just queued, and of one that waits already. */
  #askStarts(queued: number): void {
    const { asks = 0 } = this.#options
    if (this.#random() > asks / this.#jobs.length) return
    const { state, now } = this.#log
    const waiting = [...this.#waiting]
    const view = poolView(state, POOL)
    const duration = learnedDurations(view, new Map(classesIn(view).map(name => [name, sketchViews(state, name)])))
    for (const lease of new Set([queued, waiting[Math.floor(this.#random() * waiting.length)]!])) {
      const forecast = explainWaiter(view, lease, { duration })?.start
      if (forecast === undefined) throw new Error(`lease ${lease} waits, and has no estimated start`)
      this.#questions.set(lease, [...(this.#questions.get(lease) ?? []), { at: now, forecast }])
    }
  }
}
