/**
 * Keeps beliefs alive and notices when it could not. Leases of one term and strategy form groups of up to 10,000; a group has one timer and
 * is renewed by one message, so a hundred thousand leases cost ten timers.
 */
import type { Clock } from '../clock.ts'
import type { Outcome } from '../kernel/outcome.ts'
import { type ClockReading, type HeldLease, type Sent, since } from '../lease.ts'
import { ClockWatch, LATE } from './clock-watch.ts'
import { DeadlineTimer } from './deadline-timer.ts'
import { publish } from './diagnostics.ts'
import { LONGEST_RETRY, refused, SHORTEST_RETRY } from './operations.ts'
import { RENEWAL_INTERVALS, RenewalGroup, type RenewalKind } from './renewal-group.ts'
import type { WorkerHeartbeat } from './worker-heartbeat.ts'

/** Renewals that one message may carry. */
const MAX = 10_000
/** What is left after rounding is nothing: a timer set for it would fire at the same moment again and again. */
const INSTANT = 0.01
/** Renewals of one group that may be without an answer at a time. */
const MAX_UNDERWAY = 4
/** Groups beyond this are not kept when they are empty. */
const MAX_EMPTY = 64

/** What the heartbeat is for: it measures and renews, and tells what it found. */
interface Ward {
  renew(leases: readonly number[], waiting: boolean): Promise<Outcome>
  /** A waiter turns out to have been granted. */
  granted(belief: HeldLease): void
  /** The lessor says that it has ended. */
  gone(belief: HeldLease): void
  /** The clocks say that it is over. */
  expired(belief: HeldLease, cause: string, ms: number): void
  /** Several times a second while anything is held, and once when nothing is any more. */
  pulse(held: boolean): void
}

export class Heartbeat {
  readonly #clock: Clock
  readonly #ward: Ward
  readonly #pacemaker: WorkerHeartbeat | undefined
  readonly #groups = new Map<string, RenewalGroup[]>()
  readonly #urgent = new Set<HeldLease>()
  #requests = 0
  readonly #watch: ClockWatch
  /** Nothing will be answered any more. */
  #dead = false
  doubted = 0
  failure: unknown
  readonly stats = { messages: 0, renewals: 0 }

  constructor(clock: Clock, ward: Ward, pacemaker?: WorkerHeartbeat) {
    this.#pacemaker = pacemaker
    this.#clock = clock
    this.#ward = ward
    this.#watch = new ClockWatch(clock, {
      pulse: () => this.#pulse(),
      jumped: () => this.#doubt(),
      slept: now => this.#overslept(now),
    })
  }

  /** A request is about to leave. */
  sent(): Sent {
    const { now, uptime } = this.#watch.begin()
    return { number: ++this.#requests, now, uptime }
  }

  get lastSent(): number {
    return this.#requests
  }

  *#all(): Generator<RenewalGroup> {
    for (const groups of this.#groups.values()) yield* [...groups]
  }

  *members(): Generator<HeldLease> {
    for (const group of this.#all()) yield* [...group.members]
  }

  // Joining and leaving

  /** Takes the belief into the group where it belongs now, and says what is left of it. */
  join(belief: HeldLease, { now, uptime } = this.#watch.glance()): number {
    this.#part(belief)
    const kind = this.#kindOf(belief)
    if (kind === 'half' || kind === 'continuous') this.#spare(belief)
    const key = `${kind} ${belief.term}`
    const groups = this.#groups.get(key) ?? []
    let group = groups.find(({ members }) => members.size < MAX)
    if (group === undefined) {
      group = new RenewalGroup(kind, belief.term, belief.valid, this.#alarm)
      groups.push(group)
      this.#groups.set(key, groups)
    }
    group.members.add(belief)
    belief.group = group
    const round = RENEWAL_INTERVALS[kind]
    if (round !== undefined && !this.#dead) group.beat = Math.min(group.beat, belief.sent.now + this.#jittered(round * group.term))
    const left = belief.left(now, uptime)
    group.attention = Math.min(group.attention, now + left - (belief.jeopardised ? 0 : group.valid / 4))
    this.#schedule(group)
    return left
  }

  /** Another thread goes on renewing it while this one cannot. */
  #spare(belief: HeldLease): void {
    if (this.#pacemaker === undefined || belief.spare !== undefined) return
    belief.spare = this.#pacemaker.keep(belief)
    belief.spare.renewed()
    belief.spare.progressed()
  }

  leave(belief: HeldLease): void {
    belief.spare?.drop()
    belief.spare = undefined
    this.#part(belief)
  }

  #part(belief: HeldLease): void {
    const group = belief.group as RenewalGroup | undefined
    if (group === undefined) return
    belief.group = undefined
    group.members.delete(belief)
    if (group.members.size > 0) return
    // Whoever asks again and again finds it again; but terms may all be different.
    group.beat = Number.POSITIVE_INFINITY
    group.attention = Number.POSITIVE_INFINITY
    if (this.#groups.size > MAX_EMPTY) this.#drop(group)
    else group.alarm.rest()
  }

  #drop(group: RenewalGroup): void {
    group.alarm.clear()
    const key = `${group.kind} ${group.term}`
    const others = this.#groups.get(key)?.filter(other => other !== group) ?? []
    if (others.length > 0) this.#groups.set(key, others)
    else this.#groups.delete(key)
  }

  #kindOf({ stage, strategy, maxStall, progress }: HeldLease): RenewalKind {
    if (stage === 'waiting' || stage === 'told') return stage
    if (maxStall !== Number.POSITIVE_INFINITY && this.#clock.now() - progress > maxStall) return 'stalled'
    return strategy
  }

  /** Spread by a tenth, always to the early side: processes started together must not renew together for ever. */
  #jittered(ms: number): number {
    return ms * (1 - this.#clock.random() / 10)
  }

  // The timer of a group

  // What is held keeps the process alive; once it is given back, nothing does.
  readonly #alarm = (group: RenewalGroup) =>
    new DeadlineTimer(
      this.#clock,
      at => this.#wake(group, at),
      () => this.#drop(group),
    )

  #schedule(group: RenewalGroup): void {
    const next = Math.min(group.beat, group.attention)
    if (next < Number.POSITIVE_INFINITY) group.alarm.set(next)
  }

  #wake(group: RenewalGroup, at: number): void {
    const late = this.#clock.now() - at
    this.#watch.noteStall(late)
    // Overdue timers fire before queued input is read: an answer may be waiting in the socket. Belief is over meanwhile, by the clocks.
    if (late > LATE && group.underway > 0) this.#clock.soon(() => this.#attend(group))
    else this.#attend(group)
  }

  #attend(group: RenewalGroup): void {
    if (group.members.size === 0) return
    const now = this.#clock.now()
    if (now >= group.attention) this.#sweep(group, now)
    if (now >= group.beat) this.#round(group, now)
    if (group.members.size > 0) this.#schedule(group)
  }

  /** Tells those in jeopardy and ends those whose time is over. */
  #sweep(group: RenewalGroup, now: number): void {
    const uptime = this.#clock.uptime()
    for (const belief of [...group.members]) {
      const left = belief.left(now, uptime)
      if (left <= INSTANT) this.expire(belief, now, uptime)
      else if (left <= group.valid / 4 + INSTANT) belief.endanger()
    }
    this.#survey(group, now, uptime)
  }

  #survey(group: RenewalGroup, now = this.#clock.now(), uptime = this.#clock.uptime()): void {
    let soonest = Number.POSITIVE_INFINITY
    for (const belief of group.members) {
      const left = belief.left(now, uptime) - (belief.jeopardised ? 0 : group.valid / 4)
      if (left < soonest) soonest = left
    }
    group.attention = now + soonest
  }

  /** Before it is given back: what was over by then was lost, though no timer has fired yet. */
  expireIfOver(belief: HeldLease): void {
    const { now, uptime } = this.#watch.glance()
    if (belief.left(now, uptime) <= 0) this.expire(belief, now, uptime)
  }

  expire(belief: HeldLease, now = this.#clock.now(), uptime = this.#clock.uptime()): void {
    const { sent, strategy } = belief
    const group = belief.group as RenewalGroup | undefined
    const stalled = group?.kind === 'stalled'
    // Asked before overdue timers had a chance to fire: the stall is not noted yet.
    if (group !== undefined) this.#watch.noteStall(now - group.alarm.at)
    const { stall } = this.#watch
    this.leave(belief)
    const ran = now - sent.now
    const slept = since(sent, now, uptime) - ran
    const unanswered = belief.asked > sent.number
    if (slept > 0) this.#ward.expired(belief, 'suspend', slept)
    else if (stalled) this.#ward.expired(belief, 'no-progress', now - belief.progress)
    else if (!unanswered && belief.stage === 'held' && RENEWAL_INTERVALS[strategy] === undefined)
      this.#ward.expired(belief, 'not-renewed', ran)
    else if (!unanswered && belief.stage === 'held' && strategy === 'on-activity' && !belief.touched)
      this.#ward.expired(belief, 'inactive', ran)
    else if (stall.at > sent.now && stall.ms * 4 > belief.valid) this.#ward.expired(belief, 'stall', stall.ms)
    else this.#ward.expired(belief, 'unreachable', ran)
  }

  // Renewing

  #round(group: RenewalGroup, now: number): void {
    const round = this.#jittered((RENEWAL_INTERVALS[group.kind] ?? 0) * group.term)
    if (this.#dead) {
      group.beat = Number.POSITIVE_INFINITY
      return
    }
    this.#absorb(group)
    for (const belief of [...group.members]) if (this.#kindOf(belief) === 'stalled') this.join(belief)
    let members = [...group.members]
    if (group.kind === 'on-activity') {
      members = members.filter(belief => belief.touched)
      for (const belief of members) belief.touched = false
    }
    if (members.length === 0 || group.underway >= MAX_UNDERWAY) {
      group.beat = now + round
      return
    }
    // Without an answer, again after a third of what remains.
    const oldest = members.reduce((first, { sent }) => Math.min(first, sent.now), Number.POSITIVE_INFINITY)
    group.beat = Math.min(now + round, now + Math.max(SHORTEST_RETRY, (oldest + group.valid - now) / 3))
    this.#renew(group, members)
  }

  progressed(belief: HeldLease): void {
    belief.spare?.progressed()
    if ((belief.group as RenewalGroup | undefined)?.kind !== 'stalled') return
    this.join(belief)
    this.urge(belief)
  }

  /** Two groups that fit into one message become one: what was released must not leave many small ones. */
  #absorb(group: RenewalGroup): void {
    for (const other of this.#groups.get(`${group.kind} ${group.term}`) ?? []) {
      if (other === group || other.underway > 0 || group.members.size + other.members.size > MAX) continue
      for (const belief of other.members) {
        group.members.add(belief)
        belief.group = group
      }
      group.attention = Math.min(group.attention, other.attention)
      other.members.clear()
      this.#drop(other)
    }
  }

  #renew(group: RenewalGroup, members: readonly HeldLease[]): void {
    group.underway++
    const settled = (sent: Sent, answered: boolean) => {
      group.underway--
      if (group.members.size === 0) return
      const now = this.#clock.now()
      if (!answered) {
        if (group.kind === 'on-activity') for (const belief of members) belief.touched = true
        const left = group.attention - now
        group.beat = Math.min(group.beat, now + this.#retry(group.failures++, left > 0 ? left : group.valid / 4))
      } else if (sent.number > group.answered) {
        group.answered = sent.number
        group.failures = 0
        const round = this.#jittered(RENEWAL_INTERVALS[group.kind]! * group.term)
        group.beat = Math.max(now, (group.kind === 'on-activity' ? now : sent.now) + round)
      }
      this.#survey(group)
      this.#schedule(group)
    }
    this.#send(members, group.kind === 'waiting', settled)
  }

  #retry(failures: number, left: number): number {
    const most = Math.min(LONGEST_RETRY, SHORTEST_RETRY * 2 ** Math.min(failures, 10), Math.max(SHORTEST_RETRY, left / 3))
    return most * (0.5 + this.#clock.random() / 2)
  }

  #send(members: readonly HeldLease[], waiting: boolean, settled: (sent: Sent, answered: boolean) => void): Sent {
    const sent = this.sent()
    for (const belief of members) belief.asked = sent.number
    this.stats.messages++
    this.stats.renewals += members.length
    this.#ward
      .renew(
        members.map(({ id }) => id),
        waiting,
      )
      .then(outcome => {
        if (outcome.kind !== 'renewed') throw refused(outcome)
        this.#answered(members, outcome.ttls, sent)
        publish('renewed', () => ({ leases: members.length, ms: this.#clock.now() - sent.now }))
        settled(sent, true)
      })
      .catch((error: unknown) => {
        this.failure = error
        settled(sent, false)
      })
    return sent
  }

  #answered(members: readonly HeldLease[], ttls: readonly number[], sent: Sent): void {
    const reading = this.look()
    for (let i = 0; i < members.length; i++) {
      const belief = members[i]!
      const ttl = ttls[i]!
      if (ttl < 0) this.#ward.gone(belief)
      else if (ttl === 0) this.#ward.granted(belief)
      else if (belief.renewed(sent, ttl)) {
        const group = belief.group as RenewalGroup | undefined
        if (group === undefined || group.term !== ttl || group.kind === 'told' || group.kind === 'stalled') this.join(belief, reading)
      }
    }
  }

  /** Renews at once, with all others that ask for it in this turn; asked again until it is answered or over. */
  urge(belief: HeldLease, failures = 0): void {
    if (this.#dead) return
    if (this.#urgent.size === 0) queueMicrotask(() => this.#flush(failures))
    this.#urgent.add(belief)
  }

  #flush(failures: number): void {
    const urgent = [...this.#urgent].filter(({ stage }) => stage === 'told' || stage === 'held')
    this.#urgent.clear()
    for (let first = 0; first < urgent.length; first += MAX) {
      const members = urgent.slice(first, first + MAX)
      let cancel = () => {}
      const again = () => {
        for (const belief of members) if (belief.sent.number < sent.number && belief.group !== undefined) this.urge(belief, failures + 1)
      }
      const sent = this.#send(members, false, (_, answered) => {
        cancel()
        if (!answered) cancel = this.#clock.after(this.#retry(failures, members[0]!.valid / 4), again)
        for (const group of new Set(members.map(({ group }) => group as RenewalGroup | undefined))) {
          if (group === undefined) continue
          this.#survey(group)
          this.#schedule(group)
        }
      })
      cancel = this.#clock.after(Math.max(SHORTEST_RETRY, members[0]!.valid / (3 + failures)), again)
    }
  }

  // The clocks

  #pulse(): boolean {
    let held = false
    for (const { members } of this.#all()) held ||= members.size > 0
    this.#ward.pulse(held)
    return held
  }

  look(): ClockReading {
    return this.#watch.look()
  }

  #doubt(): void {
    this.doubted = this.#requests
    for (const belief of this.members()) if (belief.stage === 'held') this.urge(belief)
  }

  #overslept(now: number): void {
    for (const group of this.#all()) {
      this.#sweep(group, now)
      group.beat = RENEWAL_INTERVALS[group.kind] === undefined ? group.beat : now
      if (group.members.size > 0) this.#schedule(group)
    }
  }

  /** No renewal will be answered any more: everyone is in jeopardy, and is told. */
  die(): void {
    this.#dead = true
    for (const belief of this.members()) belief.endanger()
    for (const group of this.#all()) this.#survey(group)
  }

  stop(): void {
    this.#watch.stop()
    for (const group of this.#all()) group.alarm.clear()
  }
}
