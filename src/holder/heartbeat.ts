/**
 * Renews the leases of this process, and notices when it could not. Leases of one term and strategy form groups of up to 10,000; a group has
 * one timer and is renewed by one message, so a hundred thousand leases cost ten timers.
 */
import { BACKOFF, jittered, pauseAfter } from '../backoff.ts'
import { type Clock, microtask } from '../clock.ts'
import type { Outcome } from '../kernel/outcome.ts'
import { ClockWatch, LATE } from './clock-watch.ts'
import { DeadlineTimer } from './deadline-timer.ts'
import { channels } from './diagnostics.ts'
import type { HeldLease } from './held-lease.ts'
import { refused } from './operations.ts'
import { Pace } from './pace.ts'
import { MAX_RENEWALS, RENEWAL_INTERVALS, type RenewalGroup, RenewalGroups } from './renewal-group.ts'
import { type ClockReading, type Sent, since } from './validity.ts'
import type { WorkerHeartbeat } from './worker-heartbeat.ts'

/** Less than this is a rounding error. A timer set for it would fire at the same moment again and again. */
const INSTANT = 0.01
/** Renewals of one group that may be unanswered at a time. */
const MAX_IN_FLIGHT = 4
/** With more groups than this, empty ones are dropped. */
const MAX_EMPTY_GROUPS = 64
/** The clocks are read at least once in this part of the shortest term. */
const PULSE_SHARE = 1 / 16

/** The heartbeat sends and reports through this. */
interface HeartbeatTarget {
  /** `ttl`: the leases have this ttl from now on. */
  renew(leases: readonly number[], waiting: boolean, ttl: number | undefined): Promise<Outcome>
  /** A waiter turns out to have been granted. */
  granted(held: HeldLease): void
  /** The lessor says that the lease has ended. */
  gone(held: HeldLease): void
  /** The clocks say that the lease is over. */
  expired(held: HeldLease, cause: string, ms: number): void
  /** Called every second or more often while any lease is held, and once after the last has ended. */
  pulse(holdsAny: boolean): void
}

export class Heartbeat {
  readonly #clock: Clock
  readonly #target: HeartbeatTarget
  readonly #workerHeartbeat: WorkerHeartbeat | undefined
  readonly #groups: RenewalGroups
  readonly #urgent = new Set<HeldLease>()
  #requests = 0
  readonly #watch: ClockWatch
  readonly pace = new Pace()
  /** No request will be answered any more. */
  #lessorIsOver = false
  /** Answers to requests up to this number prove nothing: see `LeaseKeeper`. */
  doubtedUpTo = 0
  failure: unknown
  readonly stats = { messages: 0, renewals: 0 }

  constructor(clock: Clock, target: HeartbeatTarget, workerHeartbeat?: WorkerHeartbeat) {
    this.#workerHeartbeat = workerHeartbeat
    this.#clock = clock
    this.#target = target
    // A held lease keeps the process alive; after its release nothing does.
    this.#groups = new RenewalGroups(
      group =>
        new DeadlineTimer(
          clock,
          at => this.#wake(group, at),
          () => this.#groups.drop(group),
        ),
    )
    this.#watch = new ClockWatch(clock, {
      pulse: () => this.#pulse(),
      jumped: () => this.#clockJumped(),
      slept: now => this.#machineSlept(now),
    })
  }

  /** Call this just before a request is sent. */
  sent(): Sent {
    const { now, uptime } = this.#watch.begin()
    return { number: ++this.#requests, now, uptime }
  }

  get lastSent(): number {
    return this.#requests
  }

  // Joining and leaving

  /** Moves the lease to the group for its present term and strategy. Returns its remaining ms. */
  join(held: HeldLease, { now, uptime } = this.#watch.estimate()): number {
    if (held.group !== undefined) this.#leaveGroup(held)
    const { stage, strategy } = held
    const isStalled = held.maxStall < Number.POSITIVE_INFINITY && this.#isStalled(held)
    const kind = stage === 'waiting' || stage === 'granted' ? stage : isStalled ? 'stalled' : strategy
    const worker = this.#workerHeartbeat
    if (worker !== undefined && held.backup === undefined && (kind === 'half' || kind === 'continuous')) this.#addBackup(held, worker)
    const group = this.#groups.withRoom(kind, held)
    group.members.add(held)
    held.group = group
    const interval = RENEWAL_INTERVALS[kind]
    if (interval !== undefined && !this.#lessorIsOver) group.renewAt = Math.min(group.renewAt, held.sent.now + this.#interval(group))
    const left = held.timeLeft(now, uptime)
    group.checkAt = Math.min(group.checkAt, now + left - (held.endangered ? 0 : group.validity / 4))
    this.#schedule(group)
    return left
  }

  /** Lets the worker thread renew it while this loop is blocked. */
  #addBackup(held: HeldLease, worker: WorkerHeartbeat): void {
    held.backup = worker.keep(held)
    held.backup.renewed()
    held.backup.progressed()
  }

  leave(held: HeldLease): void {
    held.backup?.drop()
    held.backup = undefined
    this.#leaveGroup(held)
  }

  #leaveGroup(held: HeldLease): void {
    const group = held.group as RenewalGroup | undefined
    if (group === undefined) return
    held.group = undefined
    group.members.delete(held)
    if (group.members.size > 0) return
    // A process that acquires again and again reuses its group. But if all terms differ, empty groups must not pile up.
    group.renewAt = Number.POSITIVE_INFINITY
    group.checkAt = Number.POSITIVE_INFINITY
    if (this.#groups.kinds > MAX_EMPTY_GROUPS) this.#groups.drop(group)
    else group.timer.rest()
  }

  /** Its work has made no progress for too long. */
  #isStalled({ stage, maxStall, lastProgress }: HeldLease): boolean {
    return stage !== 'waiting' && stage !== 'granted' && this.#clock.now() - lastProgress > maxStall
  }

  /** Returns how long after a renewal the next one is sent. Up to a tenth earlier, so that processes that were started together do not renew together for ever. */
  #interval({ kind, term, validity }: RenewalGroup): number {
    const interval = this.pace.interval((RENEWAL_INTERVALS[kind] ?? 0) * term, term, validity)
    return interval * (1 - this.#clock.random() / 10)
  }

  // The timer of a group

  #schedule(group: RenewalGroup): void {
    const next = Math.min(group.renewAt, group.checkAt)
    if (next < Number.POSITIVE_INFINITY) group.timer.set(next)
  }

  #wake(group: RenewalGroup, at: number): void {
    const late = this.#clock.now() - at
    this.#watch.noteStall(late)
    this.pace.fired(late)
    // Overdue timers fire before queued input is read, and an answer may be waiting in the socket: read first. `held` is false meanwhile.
    if (late > LATE && group.inFlight > 0) this.#clock.soon(() => this.#serve(group))
    else this.#serve(group)
  }

  #serve(group: RenewalGroup): void {
    if (group.members.size === 0) return
    const now = this.#clock.now()
    if (now >= group.checkAt) this.#checkMembers(group, now)
    if (now >= group.renewAt) this.#renewGroup(group, now)
    if (group.members.size > 0) this.#schedule(group)
  }

  /** Warns leases in jeopardy, and ends leases whose time is over. */
  #checkMembers(group: RenewalGroup, now: number): void {
    const uptime = this.#clock.uptime()
    for (const held of [...group.members]) {
      const left = held.timeLeft(now, uptime)
      if (left <= INSTANT) this.expire(held, now, uptime)
      else if (left <= group.validity / 4 + INSTANT) held.endanger()
    }
    this.#planCheck(group, now, uptime)
  }

  #planCheck(group: RenewalGroup, now = this.#clock.now(), uptime = this.#clock.uptime()): void {
    let soonest = Number.POSITIVE_INFINITY
    for (const held of group.members) {
      const left = held.timeLeft(now, uptime) - (held.endangered ? 0 : group.validity / 4)
      if (left < soonest) soonest = left
    }
    group.checkAt = now + soonest
  }

  /** Before a release: a lease whose time was over by then counts as lost, although its timer has not fired yet. */
  expireIfOver(held: HeldLease): void {
    const { now, uptime } = this.#watch.estimate()
    if (held.timeLeft(now, uptime) <= 0) this.expire(held, now, uptime)
  }

  expire(held: HeldLease, now = this.#clock.now(), uptime = this.#clock.uptime()): void {
    const { sent, strategy } = held
    const group = held.group as RenewalGroup | undefined
    const stalled = group?.kind === 'stalled'
    // Overdue timers may not have fired yet, so the stall may not be noted yet.
    if (group !== undefined) this.#watch.noteStall(now - group.timer.at)
    const longestStall = this.#watch.longestStall(sent.now)
    this.leave(held)
    const ran = now - sent.now
    const slept = since(sent, now, uptime) - ran
    const unanswered = held.lastRequest > sent.number
    // A shorter difference explains nothing: the process did not run for a moment between the readings of its two clocks.
    if (slept * 4 > held.validity) this.#target.expired(held, 'suspend', slept)
    else if (stalled) this.#target.expired(held, 'no-progress', now - held.lastProgress)
    else if (!unanswered && held.stage === 'held' && RENEWAL_INTERVALS[strategy] === undefined)
      this.#target.expired(held, 'not-renewed', ran)
    else if (!unanswered && held.stage === 'held' && strategy === 'on-activity' && !held.touched)
      this.#target.expired(held, 'inactive', ran)
    else if (longestStall * 4 > held.validity) this.#target.expired(held, 'stall', longestStall)
    else this.#target.expired(held, 'unreachable', ran)
  }

  // Renewing

  #renewGroup(group: RenewalGroup, now: number): void {
    const interval = this.#interval(group)
    if (this.#lessorIsOver) {
      group.renewAt = Number.POSITIVE_INFINITY
      return
    }
    this.#groups.absorbInto(group)
    for (const held of [...group.members]) if (held.maxStall < Number.POSITIVE_INFINITY && this.#isStalled(held)) this.join(held)
    let members = [...group.members]
    if (group.kind === 'on-activity') {
      members = members.filter(held => held.touched)
      for (const held of members) held.touched = false
    }
    if (members.length === 0 || group.inFlight >= MAX_IN_FLIGHT) {
      group.renewAt = now + interval
      return
    }
    // Without an answer, retry after a third of what remains.
    const oldest = members.reduce((first, { sent }) => Math.min(first, sent.now), Number.POSITIVE_INFINITY)
    group.renewAt = Math.min(now + interval, now + Math.max(BACKOFF.request.first, (oldest + group.validity - now) / 3))
    for (const [ttl, some] of byNextTerm(members, now)) this.#sendGroup(group, some, ttl)
  }

  progressed(held: HeldLease): void {
    held.backup?.progressed()
    if ((held.group as RenewalGroup | undefined)?.kind !== 'stalled') return
    this.join(held)
    this.renewNow(held)
  }

  #sendGroup(group: RenewalGroup, members: readonly HeldLease[], ttl: number | undefined): void {
    group.inFlight++
    const settled = (sent: Sent, answered: boolean) => {
      group.inFlight--
      if (group.members.size === 0) return
      const now = this.#clock.now()
      if (!answered) {
        if (group.kind === 'on-activity') for (const held of members) held.touched = true
        const left = group.checkAt - now
        group.renewAt = Math.min(group.renewAt, now + this.#retryPause(group.failures++, left > 0 ? left : group.validity / 4))
      } else if (sent.number > group.answered) {
        group.answered = sent.number
        group.failures = 0
        group.renewAt = Math.max(now, (group.kind === 'on-activity' ? now : sent.now) + this.#interval(group))
      }
      this.#planCheck(group)
      this.#schedule(group)
    }
    this.#send(members, group.kind === 'waiting', settled, ttl)
  }

  #retryPause(failures: number, left: number): number {
    return jittered(this.#clock, Math.min(pauseAfter(BACKOFF.request, failures), Math.max(BACKOFF.request.first, left / 3)))
  }

  #send(members: readonly HeldLease[], waiting: boolean, settled: (sent: Sent, answered: boolean) => void, ttl?: number): Sent {
    const sent = this.sent()
    for (const held of members) held.lastRequest = sent.number
    this.stats.messages++
    this.stats.renewals += members.length
    this.#target
      .renew(
        members.map(({ id }) => id),
        waiting,
        ttl,
      )
      .then(outcome => {
        if (outcome.kind !== 'renewed') throw refused(outcome)
        this.pace.answered(this.#clock.now() - sent.now)
        this.#answered(members, outcome.ttls, sent)
        if (channels.renewed.hasSubscribers) channels.renewed.publish({ leases: members.length, ms: this.#clock.now() - sent.now })
        settled(sent, true)
      })
      .catch((error: unknown) => {
        this.failure = error
        settled(sent, false)
      })
    return sent
  }

  #answered(members: readonly HeldLease[], ttls: readonly number[], sent: Sent): void {
    const reading = this.readClocks()
    for (let i = 0; i < members.length; i++) {
      const held = members[i]!
      const ttl = ttls[i]!
      if (ttl < 0) this.#target.gone(held)
      else if (ttl === 0) this.#target.granted(held)
      else if (held.renewed(sent, ttl)) {
        const group = held.group as RenewalGroup | undefined
        if (group === undefined || group.term !== ttl || group.kind === 'granted' || group.kind === 'stalled') this.join(held, reading)
      }
    }
  }

  /** Renews at once, in one message with all others of this turn. Retried until answered or over. */
  renewNow(held: HeldLease, failures = 0): void {
    if (this.#lessorIsOver) return
    if (this.#urgent.size === 0) microtask(() => this.#renewUrgent(failures))
    this.#urgent.add(held)
  }

  #renewUrgent(failures: number): void {
    const urgent = [...this.#urgent].filter(({ stage }) => stage === 'granted' || stage === 'held')
    this.#urgent.clear()
    for (let first = 0; first < urgent.length; first += MAX_RENEWALS) {
      const members = urgent.slice(first, first + MAX_RENEWALS)
      let cancel = () => {}
      const again = () => {
        for (const held of members) if (held.sent.number < sent.number && held.group !== undefined) this.renewNow(held, failures + 1)
      }
      const sent = this.#send(members, false, (_, answered) => {
        cancel()
        // A grant that may not be confirmed yet, since the log lost records, is asked about again.
        if (!answered || members.some(({ stage }) => stage === 'granted'))
          cancel = this.#clock.after(this.#retryPause(failures, members[0]!.validity / 4), again)
        for (const group of new Set(members.map(({ group }) => group as RenewalGroup | undefined))) {
          if (group === undefined) continue
          this.#planCheck(group)
          this.#schedule(group)
        }
      })
      cancel = this.#clock.after(Math.max(BACKOFF.request.first, members[0]!.validity / (3 + failures)), again)
    }
  }

  // The clocks

  #pulse(): number {
    let shortest = Number.POSITIVE_INFINITY
    for (const { members, validity } of this.#groups) if (members.size > 0) shortest = Math.min(shortest, validity)
    const holdsAny = shortest < Number.POSITIVE_INFINITY
    this.#target.pulse(holdsAny)
    return holdsAny ? Math.max(1, shortest * PULSE_SHARE) : 0
  }

  readClocks(): ClockReading {
    return this.#watch.readClocks()
  }

  /** A lease that the clock does not renew stays in doubt until its program renews it, or its time is over. */
  #clockJumped(): void {
    this.doubtedUpTo = this.#requests
    for (const { kind, members } of this.#groups)
      if (RENEWAL_INTERVALS[kind] !== undefined) for (const held of members) if (held.stage === 'held') this.renewNow(held)
  }

  #machineSlept(now: number): void {
    for (const group of this.#groups) {
      this.#checkMembers(group, now)
      group.renewAt = RENEWAL_INTERVALS[group.kind] === undefined ? group.renewAt : now
      if (group.members.size > 0) this.#schedule(group)
    }
  }

  /** No renewal will be answered any more: every lease is in jeopardy. */
  lessorEnded(): void {
    this.#lessorIsOver = true
    for (const held of this.#groups.members()) held.endanger()
    for (const group of this.#groups) this.#planCheck(group)
  }

  stop(): void {
    this.#watch.stop()
    for (const group of this.#groups) group.timer.clear()
  }
}

/**
 * The leases by the ttl that they should have from the next renewal on; undefined for those that keep theirs. Learned terms grow in steps, so there are
 * few of them. A lease that the lessor keeps at a shorter ttl, as a policy says, is not asked about again at each renewal.
 */
function byNextTerm(members: readonly HeldLease[], now: number): Map<number | undefined, HeldLease[]> {
  const groups = new Map<number | undefined, HeldLease[]>()
  for (const held of members) {
    const ttl = held.nextTerm(now)
    const group = groups.get(ttl)
    if (group === undefined) groups.set(ttl, [held])
    else group.push(held)
  }
  return groups
}
