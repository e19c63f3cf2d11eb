/**
 * The timekeeper of one replica: it counts the timers of the state and proposes `due` when a timer has run for its duration. The kernel decides.
 *
 * What keeps this safe, whatever happens to this process (docs/proofs.md has the argument):
 * - A timer is counted from the moment when the record that started its epoch was *applied* here, minus the age that the store reports, minus the age
 *   that the log reports. Each is a lower bound, so a proposal can be late and never early.
 * - In an owned run, renewals may have been kept in memory, so the age of a record does not tell when its lease was last renewed. There only marks
 *   count: they are written for leases whose next renewal goes through the log too.
 * - After a stall, the timekeeper first reads pending input and adds the stall to every timer: the silence was this process's own. It does so before
 *   it starts or restarts any timer: a timer that did not run during the stall must not be credited with it.
 */
import type { Clock } from '../clock.ts'
import type { Outcome } from '../kernel/outcome.ts'
import { findLease } from '../kernel/state/leases.ts'
import { agedOf, timerOf } from '../kernel/state/timers.ts'
import { type LeaseState, LIVE, QUIET, SLOTS, type Slot, type State, TERM } from '../kernel/state.ts'
import type { DurationHistogram } from '../lessor/duration-histogram.ts'
import { AgeMarks, MAX_MARKS } from './age-marks.ts'
import { type Countdown, Countdowns } from './countdowns.ts'
import { LastHeard } from './last-heard.ts'
import type { Log } from './log.ts'
import type { Outbox } from './outbox.ts'
import { StallClock } from './stall-clock.ts'
import { TimerProposals } from './timer-proposals.ts'

/** The longest time between two timers of the event loop while countdowns run, so that a stall is measured and not guessed. */
const BEAT = 250
/** The same while the log is read now and then. Most of what an idle process costs is that it wakes. */
const IDLE_BEAT = 1_000
/** Countdowns looked at in one turn of the event loop. Ten thousand waiters may time out in one moment. */
const MAX_JUDGED = 1_000

export class Timekeeper {
  readonly #clock: Clock
  readonly #time: StallClock
  readonly #marks: AgeMarks
  readonly #log: Pick<Log, 'owned' | 'toTheEnd'>
  #state: State
  #countdowns: Countdowns
  /** The age of the record that is being applied. */
  #age = 0
  /** The time when that record was read: it is in the log by then. */
  #moment = 0
  /** When the holders of leases that were found in the log were last heard of, as far as clocks tell that may be wrong. */
  readonly #lastHeard = new LastHeard()
  /** True if records of the past are being applied. */
  isReplaying = true
  /** True if countdowns reflect the latest run and mark for all. */
  #learned = true
  /** Cancels the one real timer. */
  #cancel: (() => void) | undefined
  #armedFor = Number.POSITIVE_INFINITY
  #judging = false
  readonly #proposals: TimerProposals
  #stopped = false
  /** The log is read now and then (idle-mode.ts): timers are set for the leases of this process only, and those of others are judged after each read. */
  #isIdle = false
  /** The ids of the leases of this process. */
  readonly #own = new Set<number>()

  constructor(clock: Clock, log: Pick<Log, 'state' | 'owned' | 'toTheEnd' | 'turn'>, outbox: Pick<Outbox, 'writeUntilSettled'>) {
    this.#state = log.state
    this.#countdowns = new Countdowns(log.state, this.#own)
    this.#clock = clock
    this.#time = new StallClock(clock)
    this.#marks = new AgeMarks(outbox)
    this.#marks.load(this.#state, this.#countdowns)
    this.#log = log
    this.#proposals = new TimerProposals(clock, log, outbox, this)
  }

  /** For metrics and tests: stalls, proposals, and the greatest lateness of a proposal in ms. */
  get stats(): { readonly stalls: number; readonly stalled: number; readonly proposed: number; readonly lateness: number } {
    return { ...this.#time.stats, ...this.#proposals.stats }
  }

  get delays(): DurationHistogram {
    return this.#proposals.delays
  }

  /** The time that countdowns are measured in (see StallClock). */
  now(): number {
    return this.#time.now()
  }

  /** Takes over a state that was loaded from a snapshot which is at least `age` ms old, and about `advisoryAge`. */
  load(state: State, age: number, advisoryAge: number): void {
    this.#lastHeard.load(this.now(), advisoryAge, state.nextLease)
    this.#state = state
    for (const lease of this.#own) if (findLease(state, lease) === undefined) this.#own.delete(lease)
    this.#countdowns = new Countdowns(state, this.#own)
    this.#marks.load(state, this.#countdowns)
    this.isReplaying = true
    const now = this.now()
    this.#marks.runZero = now - age - state.run.ms
    for (const lease of state.leases.values()) {
      for (let slot = TERM as Slot; slot < SLOTS; slot++) {
        const timer = timerOf(lease, slot)
        if (timer === undefined) continue
        // Under an owner, a lease renewed in this run may have been renewed in memory since the snapshot was taken.
        const vouched = !state.run.owned || timer.run < state.run.number || timer.aged > 0 ? age : 0
        this.#begin(lease, slot, timer.epoch, now - agedOf(state, timer) - vouched, true)
      }
    }
    if (state.quiet !== undefined) this.#begin(undefined, QUIET, state.quiet.epoch, now - agedOf(state, state.quiet) - age, true)
  }

  /** Called before each record is applied, with its least age in ms. `advisoryAge`: its age by a clock that may be wrong. */
  entering(age: number, advisoryAge: number): void {
    this.#age = age
    this.#moment = this.#time.now()
    if (this.isReplaying) this.#lastHeard.entering(this.#moment, advisoryAge)
  }

  /**
   * About how many ms ago the holder was last heard of, for deciding whether it is worth waiting for the end of the lease: nothing else may depend on it.
   * Infinity: that is not known.
   */
  silence(lease: LeaseState): number {
    if (lease.counted === 0) return 0
    const now = this.now()
    return lease.found ? this.#lastHeard.silence(lease, now) : now - lease.zero
  }

  /** Returns whether the end of the lease is being written to the log. */
  isBeingEnded(lease: LeaseState): boolean {
    return lease.counted !== 0 && lease.busy !== 0 && this.now() >= lease.zero + lease.term
  }

  /** A request waits for the end of this lease: what was counted here is marked when this replica leaves, however little it is. */
  confirming(lease: LeaseState): void {
    this.#marks.confirming.add(lease)
  }

  /** Called by the kernel when it starts, restarts, marks or cancels a timer. */
  timer(lease: LeaseState | undefined, slot: Slot): void {
    // When a timer began that the present record starts. Under an owner, its lease may have been renewed in memory after the record.
    const began = this.#moment - (this.#state.run.owned ? 0 : this.#age)
    if (lease === undefined) return this.#logTimer(began)
    // A lease gets the countdown of its term when it is opened, and loses it when it ends.
    const isNew = slot === TERM && lease.counted === 0
    const exists = isNew || findLease(this.#state, lease.id) === lease
    const timer = !exists ? undefined : slot === TERM ? lease : timerOf(lease, slot)
    const countdown = isNew ? undefined : this.#countdowns.of(lease, slot)
    if (timer === undefined) {
      if (countdown !== undefined) this.#countdowns.remove(countdown)
      return
    }
    if (countdown === undefined) {
      if (this.isReplaying && slot === TERM) this.#lastHeard.acquired(lease)
      return this.#begin(lease, slot, timer.epoch, began, this.isReplaying)
    }
    if (countdown.counted !== timer.epoch) {
      if (this.isReplaying && slot === TERM) this.#lastHeard.renewed(lease)
      countdown.counted = timer.epoch
      countdown.zero = Math.ceil(began)
      countdown.busy = 0
      countdown.found = this.isReplaying
    } else this.#marked(countdown, agedOf(this.#state, timer))
    this.#countdowns.schedule(countdown, this.look(countdown))
    this.#arm()
  }

  #marked(countdown: Countdown, aged: number): void {
    countdown.zero = Math.min(countdown.zero, Math.ceil(this.#moment - this.#age - aged))
  }

  /** Something changed for the log as a whole: a run began, all timers were marked, or a quiet period began or ended. `began`: as in `timer`. */
  #logTimer(began: number): void {
    const { quiet, run } = this.#state
    const runBegan = this.#moment - this.#age - run.ms
    this.#marks.runZero = run.ms === 0 ? runBegan : Math.min(this.#marks.runZero, runBegan)
    this.#learned = false
    const countdown = this.#countdowns.of(undefined, QUIET)
    if (quiet === undefined) {
      if (countdown !== undefined) this.#countdowns.remove(countdown)
    } else if (countdown?.counted !== quiet.epoch) {
      if (countdown !== undefined) this.#countdowns.remove(countdown)
      this.#begin(undefined, QUIET, quiet.epoch, began, this.isReplaying)
    } else {
      this.#marked(countdown, agedOf(this.#state, quiet))
      this.#countdowns.schedule(countdown, this.look(countdown))
      this.#arm()
    }
  }

  /** The past has been read; records are of the present from now on. */
  caughtUp(): void {
    this.isReplaying = false
    this.learnTogether()
    this.#arm() // timers found in the log run even if no record follows
  }

  /**
   * Proposes what is overdue already, at once and out of turn. The log has just been read to its end. A process that only looks in may be gone before
   * any timer fires; if all processes were like that, nothing would ever lapse.
   */
  judgeFound(): void {
    this.#judgeNow({ inTurn: false, most: Number.POSITIVE_INFINITY })
    this.#arm()
  }

  /** From now on the log is read now and then, or as it grows. */
  set isIdle(isIdle: boolean) {
    this.#isIdle = isIdle
    this.#arm()
  }

  /** The log was read now and then, and to its end just now: proposes what is due since the last reads, and marks. */
  judgeRead(): void {
    if (this.#stopped || !this.#isIdle || this.#judging || this.isReplaying) return
    this.#judgeNow()
    this.#arm()
  }

  keepOwn(lease: number): void {
    this.#countdowns.keepOwn(lease, this.look)
  }

  /** Takes over what a new run, or a mark for all, tells of the timers that it found. At start, one call after all records is enough. */
  learnTogether(): void {
    if (this.#learned) return
    this.#learned = true
    for (const countdown of this.#countdowns) {
      const timer = this.#countdowns.timerOf(countdown)
      if (timer === undefined || timer.run >= this.#state.run.number) continue
      countdown.zero = Math.min(countdown.zero, Math.ceil(this.#marks.runZero - timer.aged))
      this.#countdowns.schedule(countdown, this.look(countdown))
    }
    this.#arm()
  }

  /** Returns how long the present run has lasted at least. Written before a new run begins, so that not even a fast crash loop keeps a lease alive. */
  runSoFar(): number {
    return Math.max(0, Math.floor(this.now() - this.#marks.runZero))
  }

  /** This replica began a run as the owner: the timers that it found age together until they are renewed. */
  ownRunBegan(): void {
    this.#learned = true // this replica has counted at least as much itself
    this.#marks.ownRunBegan(this.now())
    this.#arm()
  }

  /** Renews a lease in memory, if time allows that. Returns whether it did. */
  renewInMemory(lease: LeaseState, now: number): boolean {
    if (lease.counted === 0 || lease.busy !== 0 || !lease.confirmed || lease.status !== LIVE) return false
    // The first renewal after a restart, and the first after a mark, must be in the log before a holder relies on it.
    if (lease.aged > 0 || lease.run !== this.#state.run.number) return false
    // After a generation a term may be longer than the ttl, once: a renewal in the log ends that.
    if (lease.term !== lease.ttl) return false
    lease.zero = Math.ceil(now)
    return true
  }

  /** About how many ms the lease has left unless renewed. For display only. */
  remaining(lease: LeaseState): number {
    if (lease.counted === 0) return lease.term
    return Math.max(0, Math.round(lease.zero + lease.term - this.now()))
  }

  readonly look = (countdown: Countdown): number => this.#marks.look(countdown)

  #begin(lease: LeaseState | undefined, slot: Slot, epoch: number, zero: number, found: boolean): void {
    const countdown = this.#countdowns.begin(lease, slot, epoch, zero, found)
    const at = this.#marks.look(countdown)
    this.#countdowns.schedule(countdown, at)
    if (this.#cancel === undefined || at < this.#armedFor) this.#arm() // else the armed timer fires first
  }

  /** Sets the one real timer for the next countdown, or for the next beat if that comes sooner. */
  #arm(): void {
    if (this.#stopped || this.isReplaying || this.#judging) return
    const next = this.#next
    if (this.#cancel !== undefined && this.#armedFor <= next) return // it is armed for the next beat at the latest
    if (this.#countdowns.next === Number.POSITIVE_INFINITY && !this.#marks.together) return
    const now = this.now()
    // Also while the log is read now and then: a stall between two reads must not count.
    const at = Math.min(next, now + (this.#isIdle ? IDLE_BEAT : BEAT))
    this.#cancel?.()
    this.#armedFor = at
    // Not before now: a countdown that was overdue when it was armed is no stall.
    this.#time.expectBy(Math.max(at, now))
    this.#cancel = this.#clock.after(Math.max(0, at - now), () => this.#fire(), { aligned: at !== next })
  }

  /** The next countdown that a timer is set for. */
  get #next(): number {
    return this.#isIdle ? this.#countdowns.nextOwn : this.#countdowns.next
  }

  #armForBeat(): void {
    if (this.#stopped || this.#cancel !== undefined) return
    this.#armedFor = this.now() + BEAT
    this.#time.expectBy(this.#armedFor)
    this.#cancel = this.#clock.after(BEAT, () => this.#fire())
  }

  #fire(): void {
    this.#cancel = undefined
    this.#armedFor = Number.POSITIVE_INFINITY
    const { now, stalled } = this.#time.fired()
    if (this.#isIdle && !this.#countdowns.isOwnDue(now, this.look)) return this.#arm()
    if (stalled === 0 && this.#next > now && !this.#marks.togetherDue(now)) return this.#arm()
    this.#judging = true
    void this.#judge()
  }

  /** Reads pending input, allows for further stalls, and only then proposes what is due. Never throws: it runs off a timer. */
  async #judge(): Promise<void> {
    // Overdue timers fire before queued input is read; a renewal may be waiting in a socket or in the log. Read first, then judge.
    // After a stall during the read, read again: the answer may have come before newer input was read.
    let read: boolean
    let stalled: number
    do {
      read = true
      const reading = this.#readAll().catch(() => {
        read = false // the reader reports its own error
      })
      stalled = await this.#time.stalledWhile(reading)
    } while (stalled > 0)
    this.#judging = false
    if (this.#stopped) return
    // A replica that cannot read cannot judge either. It tries again at the next beat.
    if (!read) return this.#armForBeat()
    this.#judgeNow()
    this.#arm()
  }

  /** Reads all pending input: the sockets of this process, and the log. */
  async #readAll(): Promise<void> {
    // One turn for input that is ready, one more for what that input causes.
    await new Promise<void>(resolve => this.#clock.soon(resolve))
    await new Promise<void>(resolve => this.#clock.soon(resolve))
    if (!this.#log.owned) await this.#log.toTheEnd()
  }

  #judgeNow({ inTurn = !this.#isIdle, most = MAX_JUDGED }: { readonly inTurn?: boolean; readonly most?: number } = {}): void {
    const now = this.now()
    const due: Countdown[] = []
    const marks: Countdown[] = []
    for (const countdown of this.#countdowns.take(now, most)) {
      if (countdown.busy !== 0) continue // scheduled again when its proposal is settled
      if (now >= countdown.zero + this.#countdowns.duration(countdown)) due.push(countdown)
      else if (this.look(countdown) <= now && marks.length < MAX_MARKS) marks.push(countdown)
      else this.#countdowns.schedule(countdown, Math.max(this.look(countdown), now + 1))
    }
    if (this.#state.moved !== undefined) {
      // The log would accept none of it. Look again later, in case the leases stay after all.
      for (const countdown of [...due, ...marks]) this.#countdowns.schedule(countdown, now + BEAT)
      return
    }
    this.#proposals.due(due, this.#countdowns, inTurn)
    this.#proposals.marks(marks, this.#countdowns, now)
    if (this.#marks.togetherDue(now)) this.#marks.markTogether(now)
  }

  /** When its proposal is settled. Without an outcome, the store could not be reached: an immediate retry would only add load. */
  settled(countdown: Countdown, outcome: Outcome | undefined): void {
    this.#countdowns.schedule(countdown, Math.max(this.look(countdown), this.now() + (outcome === undefined ? BEAT : 1)))
    this.#arm()
  }

  markBeforeTransfer(lease: number, key: number): void {
    this.#marks.markBeforeTransfer(lease, this.now(), key)
  }

  markBeforeLeaving(profile: { readonly ages: boolean }): void {
    this.#marks.markBeforeLeaving(this.now(), profile)
  }

  stop(): void {
    this.#stopped = true
    this.#cancel?.()
    this.#cancel = undefined
    this.#proposals.stop()
  }
}
