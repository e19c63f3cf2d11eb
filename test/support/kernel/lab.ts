/**
 * A lab that shares the members of a pool: jobs of several users, in virtual time, on the real kernel. Jobs are submitted, wait, run for as long as they take
 * and release; they are told when they are preempted, and stop then or at the deadline. Log time is advanced by ticks, as replicas do it.
 */
import { strict as assert } from 'node:assert'
import { apply } from '../../../src/kernel/apply.ts'
import type { Command, PolicyRules, PoolRequest } from '../../../src/kernel/command.ts'
import type { Event } from '../../../src/kernel/event.ts'
import { Heap } from '../../../src/kernel/heap.ts'
import type { Outcome } from '../../../src/kernel/outcome.ts'
import { findLease } from '../../../src/kernel/state/leases.ts'
import { timerId, timerOf } from '../../../src/kernel/state/timers.ts'
import { createState, FROZEN, type LeaseState, type Slot, type State, TERM } from '../../../src/kernel/state.ts'
import { check } from './invariant.ts'

export const POOL = 'gpus'
const TTL = 20_000

export interface Job extends Omit<PoolRequest, 'pool'> {
  readonly account: string
  /** It runs this long once it has all its members. */
  readonly takes: number
  readonly priority?: number
  readonly maxLife?: number
  /** After a preemption it is submitted again, from the beginning or with what is left; left out: it is gone. */
  readonly again?: 'anew' | 'rest'
  /** It goes on this long after it was told; left out: until its deadline, and then until its term is over. */
  readonly stopsAfter?: number
}

export interface Run {
  readonly job: Job
  readonly submitted: number
  readonly lease: number
  started: number | undefined
  /** When its units were free again. */
  ended: number | undefined
  /** Told that it will be preempted. */
  told: number | undefined
  preempted: boolean
  units: number
  members: readonly string[]
}

interface Step {
  readonly at: number
  readonly order: number
  act(): void
}

export interface LabOptions {
  /** Labels and units by member. */
  readonly members: Readonly<Record<string, { readonly labels?: Readonly<Record<string, string>>; readonly units?: number }>>
  readonly rules?: PolicyRules
  readonly accounts?: Readonly<Record<string, PolicyRules>>
  /** Ms between ticks. */
  readonly tick?: number
  /** Checks all invariants after every command: for short runs. */
  readonly strict?: boolean
  /** Called after every command. */
  readonly each?: (lab: Lab) => void
}

/** Members m0, m1, … without labels. */
export function plainMembers(count: number): LabOptions['members'] {
  return Object.fromEntries(Array.from({ length: count }, (_, i) => [`m${i}`, {}]))
}

export class Lab {
  readonly state: State = createState()
  readonly runs: Run[] = []
  readonly events: Event[] = []
  now = 0
  readonly #byLease = new Map<number, Run>()
  readonly #steps = new Heap<Step>((one, other) => one.at < other.at || (one.at === other.at && one.order < other.order))
  #order = 0
  readonly #options: LabOptions
  readonly #offer: number
  readonly #copies: State[] = []

  constructor(options: LabOptions) {
    this.#options = options
    this.state.index = 1
    const { members, rules, accounts = {} } = options
    this.do({ kind: 'policy', prefix: POOL, rules: { ttlMax: 1e9, ...rules } })
    for (const [account, limits] of Object.entries(accounts))
      this.do({ kind: 'policy', prefix: `${POOL}/accounts/${account}`, rules: limits })
    const offer = this.do({ kind: 'acquire', holder: 'host', ttl: TTL, wants: [] })
    assert(offer.kind === 'granted')
    this.#offer = offer.lease
    for (const [name, offered] of Object.entries(members)) this.offer(name, offered)
    this.#tickOn()
  }

  offer(name: string, { labels = {}, units = 1 }: LabOptions['members'][string] = {}): void {
    this.do({ kind: 'put', lease: this.#offer, key: `pool/${POOL}/${name}`, value: JSON.stringify({ labels, units }) })
  }

  /** From now on this state gets the same commands, and must stay equal. */
  follow(copy: State): void {
    this.#copies.push(copy)
  }

  do(command: Command): Outcome {
    for (const copy of this.#copies) apply(copy, { command }, { events: [], timer() {} })
    const events: Event[] = []
    const changed: [LeaseState, Slot][] = []
    const outcome = apply(
      this.state,
      { command },
      { events, timer: (lease, slot) => void (lease !== undefined && changed.push([lease, slot])) },
    )
    for (const [lease, slot] of changed) this.#schedule(lease, slot)
    for (const event of events) this.#notice(event)
    this.events.push(...events)
    if (this.#options.strict) check(this.state)
    this.#options.each?.(this)
    return outcome
  }

  /** Submits a job now. */
  submit(job: Job): Run | undefined {
    const { takes: _, priority, maxLife, again: __, stopsAfter: ___, ...request } = job
    const outcome = this.do({
      kind: 'acquire',
      holder: job.account,
      ttl: TTL,
      wants: [],
      wait: true,
      ...(priority !== undefined && { priority }),
      ...(maxLife !== undefined && { maxLife }),
      pool: { pool: POOL, ...request },
    })
    if (outcome.kind === 'refused') return undefined
    assert(outcome.kind === 'queued' || outcome.kind === 'granted')
    const run: Run = {
      ...{ job, submitted: this.now, lease: outcome.lease, started: undefined, ended: undefined, told: undefined },
      ...{ preempted: false, units: 0, members: [] },
    }
    this.runs.push(run)
    this.#byLease.set(outcome.lease, run)
    if (outcome.kind === 'granted') this.#start(run)
    return run
  }

  /** Calls `act` at this time. */
  at(at: number, act: () => void): void {
    this.#steps.add({ at, order: this.#order++, act })
  }

  runUntil(end: number): void {
    for (let step = this.#steps.take(); step !== undefined; step = this.#steps.take()) {
      if (step.at > end) {
        this.#steps.add(step)
        break
      }
      this.now = step.at
      step.act()
    }
    this.now = end
  }

  /** Unit-ms that an account held between two times. */
  used(account: string, from: number, to: number): number {
    let sum = 0
    for (const { job, started, ended = this.now, units } of this.runs)
      if (job.account === account && started !== undefined) sum += units * Math.max(0, Math.min(ended, to) - Math.max(started, from))
    return sum
  }

  waiting(account: string): number {
    return this.runs.filter(run => run.job.account === account && run.started === undefined && run.ended === undefined).length
  }

  get preemptions(): number {
    return this.runs.filter(run => run.preempted).length
  }

  #tickOn(): void {
    const { tick = 1_000 } = this.#options
    this.at(this.now + tick, () => {
      this.do({ kind: 'tick', n: this.state.tick + 1, elapsed: tick })
      this.#tickOn()
    })
  }

  /** Holders renew, so the term of a lease counts only once it is frozen. */
  #schedule(lease: LeaseState, slot: Slot): void {
    const timer = timerOf(lease, slot)
    if (timer === undefined || findLease(this.state, lease.id) !== lease || slot === TERM) return
    this.#dueAt(this.now + timer.duration, lease, slot, timer.epoch)
  }

  #dueAt(at: number, lease: LeaseState, slot: Slot, epoch: number): void {
    this.at(at, () => {
      if (findLease(this.state, lease.id) === lease && timerOf(lease, slot)?.epoch === epoch)
        this.do({ kind: 'due', timer: timerId(lease, slot), epoch })
    })
  }

  #notice({ type, lease: id, cause }: Event): void {
    const run = this.#byLease.get(id)
    if (run === undefined) return
    const lease = findLease(this.state, id)
    if (type === 'granted' && run.started === undefined) this.#start(run)
    if (type === 'recalled' && cause === 'preempt' && run.told === undefined) {
      run.told = this.now
      const { stopsAfter } = run.job
      if (stopsAfter !== undefined)
        this.at(this.now + stopsAfter, () => {
          if (run.told !== undefined) this.#stop(run, true)
        })
    }
    if (type === 'kept') run.told = undefined
    if (type === 'revoked' && cause === 'preempted') this.#preempted(run)
    // Its holder went on until now: nothing was renewed since the last half of the term.
    if (type === 'frozen' && lease?.status === FROZEN) this.#dueAt(this.now + lease.term, lease, TERM, lease.epoch)
    if (lease === undefined && run.ended === undefined) run.ended = this.now
  }

  #preempted(run: Run): void {
    if (run.preempted) return
    run.preempted = true
    const { again, takes } = run.job
    if (again === undefined) return
    const left = again === 'rest' ? Math.max(1, takes - (this.now - run.started!)) : takes
    this.at(this.now, () => void this.submit({ ...run.job, takes: left }))
  }

  #start(run: Run): void {
    run.started = this.now
    const { grants } = findLease(this.state, run.lease)!
    run.units = grants.reduce((sum, { units }) => sum + units, 0)
    run.members = grants.map(({ resource }) => resource.name.slice(POOL.length + 1))
    this.at(this.now + run.job.takes, () => this.#stop(run, false))
  }

  /** The job has ended, or stops because it was told to. */
  #stop(run: Run, told: boolean): void {
    if (findLease(this.state, run.lease) === undefined) return
    if (told) this.#preempted(run)
    this.do({ kind: 'release', lease: run.lease })
    run.ended ??= this.now
  }
}
