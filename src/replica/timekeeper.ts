/**
 * Counts for one replica: when a timer of the state has run for its duration, it proposes that this is due. The kernel decides.
 *
 * What keeps this safe, whatever happens to this process (docs/guarantees.md has the argument):
 * - A timer is counted from the moment the entry that started its epoch was *applied* here, less the age the store vouches for, less what
 *   the log says has aged. Each of these is a lower bound, so a proposal can be late and never early.
 * - In a run that is owned, renewals may have been kept in memory, so the age of an entry says nothing about when its lease was last
 *   renewed. There only marks count: they are written for leases whose next renewal will be written too.
 * - After a stall, what waits is read first, and the stall is added to every timer: the silence was ours. The stall is added before any timer is
 *   started or restarted after waking: such a timer did not run during the stall, and must not gain from it.
 */
import type { Clock } from '../clock.ts'
import type { Command } from '../kernel/command.ts'
import type { Outcome } from '../kernel/outcome.ts'
import { findLease } from '../kernel/state/leases.ts'
import { agedOf, timerId, timerOf } from '../kernel/state/timers.ts'
import { CAP, type LeaseState, LIVE, QUIET, SLOTS, type Slot, type State, TERM } from '../kernel/state.ts'
import { type Bucket, TimerWheel, type WheelAlarm } from './timer-wheel.ts'

/** So much later than usual, and the loop was not just busy: it stood still. */
const STALL = 100
/** How often the loop is looked at while timers run, so that a stall is measured and not guessed. */
const BEAT = 250
const MARK_STEP = 1_000
const MAX_MARKS = 5_000
/** So few are proposed by everyone at once; more wait for their proposer's turn, so that a mass lapse is proposed about once. */
const FEW = 16
const TURN = 15

export interface TimekeeperOptions {
  readonly clock: Clock
  /** Writes commands; `settled` is called with the outcome, or with undefined when it is certain that nothing was done. */
  readonly propose: (command: Command, settled: (outcome: Outcome | undefined) => void) => void
  /** Resolves when everything that waits to be read, in sockets and in the log, has been read. */
  readonly drain: () => Promise<void>
  /** This replica's place among those that propose: 0 goes first. */
  readonly turn: () => number
}

class Countdown implements WheelAlarm {
  bucket: Bucket | undefined = undefined
  place = 0
  readonly lease: LeaseState | undefined
  readonly slot: Slot
  epoch: number
  /**
   * When it began to run, on the wheel's time; only ever moved back within an epoch. Whole milliseconds, rounded to the late side: a small
   * number is kept in its place, a fraction elsewhere, and a renewal should touch as little memory as it can.
   */
  zero: number
  /**
   * The proposal about it that is under way, 0 when none is: until that very one is settled, its renewals go through the log. (An older
   * one that settles late must not open the door for a renewal in memory while the newer one can still end the lease.)
   */
  busy = 0
  /** It ran already when this replica came: nobody may have stayed a whole term, so it is marked early and often. */
  found: boolean

  constructor(lease: LeaseState | undefined, slot: Slot, epoch: number, zero: number, found: boolean) {
    this.lease = lease
    this.slot = slot
    this.epoch = epoch
    this.zero = Math.ceil(zero)
    this.found = found
  }
}

export class Timekeeper {
  readonly #clock: Clock
  readonly #origin: number
  readonly #propose: TimekeeperOptions['propose']
  readonly #drain: () => Promise<void>
  readonly #turn: () => number
  #wheel = new TimerWheel<Countdown>()
  /** CAP, HOLD, BREAK and the log's own, by timer id. A lease's TERM hangs on the lease. */
  #others = new Map<number, Countdown>()
  #state: State
  /** Sum of the stalls so far: the wheel's time stands still while we do. */
  #stalls = 0
  /** The age of the entry being applied, and whether it is one of the past. */
  #age = 0
  /** The wheel's time when that entry was taken up: it is in the log by then. */
  #moment = 0
  #replaying = true
  /** When the log's present run began, at the latest; what it found and nobody renewed since is at least that much older. */
  #runZero = 0
  #learned = true
  #runMarked = 0
  #cohort = false
  #cancel: (() => void) | undefined
  #armedFor = Number.POSITIVE_INFINITY
  /**
   * When the real timer should fire, on the wheel's time; never while none is set. Later than what it is armed for when that was overdue already: no
   * stall of ours.
   */
  #expected = Number.POSITIVE_INFINITY
  /** How much of the present lateness of the real timer has been added to the stalls already. */
  #added = 0
  /** How late timers fire of late. A loop with much to do in every turn reads all its input in every turn: that is no stall. */
  #usual = 0
  #judging = false
  /** What calls off those who wait for their turn. */
  readonly #turns = new Set<() => void>()
  #proposals = 0
  #stopped = false
  /** For metrics and tests: lateness of the last proposals, stalls seen. */
  readonly stats = { stalls: 0, stalled: 0, proposed: 0, lateness: 0 }

  constructor(state: State, { clock, propose, drain, turn }: TimekeeperOptions) {
    this.#state = state
    this.#clock = clock
    this.#origin = clock.now()
    this.#propose = propose
    this.#drain = drain
    this.#turn = turn
  }

  /**
   * The wheel's time: monotonic, from when this began, less all the time that we stood still. Input may be read before the overdue timer fires, so a
   * stall is noticed here and not only there: a renewal that is read first would otherwise be credited with a stall that it did not live through.
   */
  now(): number {
    const now = this.#elapsed()
    const late = now - this.#expected
    if (late <= 0 || (this.#added === 0 && !this.#isStall(late))) return now
    if (this.#added === 0) this.stats.stalls++
    this.stats.stalled += late
    this.#added += late
    this.#stalls += late
    return now - late
  }

  #elapsed(): number {
    return this.#clock.now() - this.#origin - this.#stalls
  }

  /** A state loaded from a snapshot that is at least `age` old. */
  load(state: State, age: number): void {
    this.#state = state
    this.#wheel = new TimerWheel()
    this.#others = new Map()
    this.#replaying = true
    const now = this.now()
    this.#runZero = now - age - state.run.ms
    for (const lease of state.leases.values()) {
      for (let slot = TERM as Slot; slot < SLOTS; slot++) {
        const timer = timerOf(lease, slot)
        if (timer === undefined) continue
        // Under an owner, a lease renewed in this run may have been renewed in memory since the snapshot was taken.
        const vouched = !state.run.owned || timer.run < state.run.number || timer.aged > 0 ? age : 0
        this.#place(new Countdown(lease, slot, timer.epoch, now - agedOf(state, timer) - vouched, true))
      }
    }
    if (state.quiet !== undefined)
      this.#place(new Countdown(undefined, QUIET, state.quiet.epoch, now - agedOf(state, state.quiet) - age, true))
  }

  /** Told before each entry is applied: at least how old it is, and whether it is of the past (read at start) or of the present. */
  entering(age: number): void {
    this.#age = age
    this.#moment = this.now()
  }

  /** Called by the kernel when it starts, restarts, marks or cancels a timer. */
  timer(lease: LeaseState | undefined, slot: Slot): void {
    if (lease === undefined) return this.#logTimer()
    const timer = findLease(this.#state, lease.id) !== lease ? undefined : slot === TERM ? lease : timerOf(lease, slot)
    const countdown = slot === TERM ? (lease.alarm as Countdown | undefined) : this.#others.get(timerId(lease, slot))
    if (timer === undefined) {
      if (countdown !== undefined) this.#drop(countdown)
      return
    }
    if (countdown === undefined) {
      return this.#place(new Countdown(lease, slot, timer.epoch, this.#started(), this.#replaying))
    }
    if (countdown.epoch !== timer.epoch) {
      countdown.epoch = timer.epoch
      countdown.zero = Math.ceil(this.#started())
      countdown.busy = 0
      countdown.found = this.#replaying
    } else this.#marked(countdown, agedOf(this.#state, timer))
    this.#wheel.set(countdown, this.#look(countdown))
    this.#arm()
  }

  /** When a timer began that the present entry starts. An owner's renewals may be younger than the entry that started the epoch. */
  #started(): number {
    return this.#moment - (this.#state.run.owned ? 0 : this.#age)
  }

  #marked(countdown: Countdown, aged: number): void {
    countdown.zero = Math.min(countdown.zero, Math.ceil(this.#moment - this.#age - aged))
  }

  /** Something about the log as a whole: a run began, all aged together, or it became quiet. */
  #logTimer(): void {
    const { quiet, run } = this.#state
    const began = this.#moment - this.#age - run.ms
    this.#runZero = run.ms === 0 ? began : Math.min(this.#runZero, began)
    this.#learned = false
    const countdown = this.#others.get(QUIET)
    if (quiet === undefined) {
      if (countdown !== undefined) this.#drop(countdown)
    } else if (countdown?.epoch !== quiet.epoch) {
      if (countdown !== undefined) this.#drop(countdown)
      this.#place(new Countdown(undefined, QUIET, quiet.epoch, this.#started(), this.#replaying))
    } else {
      this.#marked(countdown, agedOf(this.#state, quiet))
      this.#wheel.set(countdown, this.#look(countdown))
      this.#arm()
    }
  }

  /** The past has been read; from now on entries are of the present. */
  caughtUp(): void {
    this.#replaying = false
    this.learnTogether()
    this.#arm() // what was found runs, even if nothing new ever comes
  }

  /**
   * Says what was overdue already, at once and out of turn: a process that only looks in may be gone before any timer fires, and if all of
   * them were like that nothing would ever lapse. All there is has just been read.
   */
  judgeFound(): void {
    this.#judgeNow({ inTurn: false })
    this.#arm()
  }

  /** Takes over what a run or a mark for all says of those that it found. At start one look at the end is enough. */
  learnTogether(): void {
    if (this.#learned) return
    this.#learned = true
    const state = this.#state
    for (const countdown of this.#all()) {
      const timer = countdown.lease === undefined ? state.quiet : timerOf(countdown.lease, countdown.slot)
      if (timer === undefined || timer.run >= state.run.number) continue
      countdown.zero = Math.min(countdown.zero, Math.ceil(this.#runZero - timer.aged))
      this.#wheel.set(countdown, this.#look(countdown))
    }
    this.#arm()
  }

  *#all(): Generator<Countdown> {
    for (const lease of this.#state.leases.values()) if (lease.alarm !== undefined) yield lease.alarm as Countdown
    yield* this.#others.values()
  }

  /** Before a new run begins: how long the present one has lasted at least, so that even a fast crash loop makes nothing immortal. */
  runSoFar(): number {
    return Math.max(0, Math.floor(this.now() - this.#runZero))
  }

  /** This replica began a run as the owner: what it found ages together until it is renewed. */
  ownRunBegan(): void {
    this.#learned = true // it has counted at least as much itself
    this.#cohort = true
    this.#runZero = this.now()
    this.#runMarked = 0
    this.#arm()
  }

  /** Whether a renewal may be acknowledged from memory, as far as time is concerned. If it may, it has been. */
  renewInMemory(lease: LeaseState, now: number): boolean {
    const countdown = lease.alarm as Countdown | undefined
    if (countdown === undefined || countdown.busy !== 0 || !lease.confirmed || lease.status !== LIVE) return false
    // The first renewal after a restart, and the first after a mark, must be in the log before anyone relies on it.
    if (lease.aged > 0 || lease.run !== this.#state.run.number) return false
    countdown.zero = Math.ceil(now)
    return true
  }

  /** For people. */
  remaining(lease: LeaseState): number {
    const countdown = lease.alarm as Countdown | undefined
    if (countdown === undefined) return lease.term
    return Math.max(0, Math.round(countdown.zero + lease.term - this.now()))
  }

  #duration(countdown: Countdown): number {
    if (countdown.lease === undefined) return this.#state.quiet?.duration ?? 0
    return timerOf(countdown.lease, countdown.slot)?.duration ?? 0
  }

  /** When to look at it again: when it is due, or when the log should learn how long it has run. */
  #look(countdown: Countdown): number {
    const duration = countdown.lease !== undefined && countdown.slot === TERM ? countdown.lease.term : this.#duration(countdown)
    const due = countdown.zero + duration
    const step = Math.max(MARK_STEP, duration / 8)
    const run = this.#state.run
    if (run.owned && this.#cohort && countdown.found) return due // marked together with all the others
    // Renewals usually come at half of the term; only what stays silent beyond that is worth a mark.
    const first = countdown.found ? step : Math.max(step, (duration * 5) / 8)
    const mark = countdown.zero + Math.max(first, this.#known(countdown) + step)
    return mark < due ? mark : due
  }

  /** How long the log already knows that it has run. */
  #known({ lease, slot }: Countdown): number {
    if (lease !== undefined && slot === TERM) return agedOf(this.#state, lease)
    const timer = lease === undefined ? this.#state.quiet : timerOf(lease, slot)
    return timer === undefined ? 0 : agedOf(this.#state, timer)
  }

  #place(countdown: Countdown): void {
    if (countdown.lease !== undefined && countdown.slot === TERM) countdown.lease.alarm = countdown
    else this.#others.set(countdown.lease === undefined ? QUIET : timerId(countdown.lease, countdown.slot), countdown)
    const at = this.#look(countdown)
    this.#wheel.set(countdown, at)
    if (this.#cancel === undefined || at < this.#armedFor) this.#arm() // else what is armed comes first
  }

  #drop(countdown: Countdown): void {
    this.#wheel.remove(countdown)
    if (countdown.lease === undefined) this.#others.delete(QUIET)
    else if (countdown.slot === TERM) countdown.lease.alarm = undefined
    else this.#others.delete(timerId(countdown.lease, countdown.slot))
  }

  /** Sets the one real timer for the next bucket, or for the next beat if that is sooner. */
  #arm(): void {
    if (this.#stopped || this.#replaying || this.#judging) return
    const next = this.#wheel.next() ?? Number.POSITIVE_INFINITY
    if (this.#cancel !== undefined && this.#armedFor <= next) return // it is armed for the next beat at the latest
    if (next === Number.POSITIVE_INFINITY && !this.#cohort) return
    const now = this.now()
    const at = Math.min(next, now + BEAT)
    this.#cancel?.()
    this.#armedFor = at
    // One that is overdue stays so: whatever comes sooner is not what the loop was late for.
    this.#expected = Math.min(this.#expected, Math.max(at, now))
    this.#cancel = this.#clock.after(Math.max(0, at - now), () => this.#fire())
  }

  #fire(): void {
    this.#cancel = undefined
    this.#armedFor = Number.POSITIVE_INFINITY
    const now = this.now()
    const late = this.#added + Math.max(0, now - this.#expected)
    const stood = this.#added > 0
    this.#usual += (Math.min(late, 4 * STALL) - this.#usual) / 8
    this.#expect(Number.POSITIVE_INFINITY)
    if (!stood && (this.#wheel.next() ?? Number.POSITIVE_INFINITY) > now && !this.#markTogetherDue(now)) return this.#arm()
    this.#judging = true
    void this.#judge()
  }

  #expect(time: number): void {
    this.#expected = time
    this.#added = 0
  }

  #isStall(late: number): boolean {
    return late > STALL + 2 * this.#usual
  }

  /** Reads what waits, allows for further stalls, and only then says what is due. Never throws: it runs off a timer. */
  async #judge(): Promise<void> {
    // Overdue timers fire before queued input is read; a renewal may be waiting in a socket or in the log. Read first, then judge.
    // Whoever stood still while it read begins again: the answer may have come before what was sent meanwhile was read.
    let read: boolean
    let more: number
    do {
      read = true
      const reading = this.#drain().catch(() => {
        read = false // the reader tells its own story
      })
      more = await this.#stalledWhile(reading)
    } while (more > 0)
    this.#judging = false
    if (this.#stopped) return
    // Whoever cannot read cannot judge either: looked at again at the next beat.
    if (!read) return this.#armAgain()
    this.#judgeNow()
    this.#arm()
  }

  /** How long we stood still while something else, however slow, was waited for. It has been added to the stalls. */
  async #stalledWhile(work: Promise<void>): Promise<number> {
    const before = this.#stalls
    let cancel = () => {}
    const beat = () => {
      this.#expect(this.now() + STALL)
      cancel = this.#clock.after(STALL, beat)
    }
    beat()
    try {
      await work
      this.now() // its timer may be overdue, and not have fired yet
      return this.#stalls - before
    } finally {
      cancel()
      this.#expect(Number.POSITIVE_INFINITY)
    }
  }

  #armAgain(): void {
    if (this.#stopped || this.#cancel !== undefined) return
    this.#armedFor = this.now() + BEAT
    this.#expect(this.#armedFor)
    this.#cancel = this.#clock.after(BEAT, () => this.#fire())
  }

  #judgeNow({ inTurn = true }: { readonly inTurn?: boolean } = {}): void {
    const now = this.now()
    const due: Countdown[] = []
    const marks: Countdown[] = []
    for (const countdown of this.#wheel.take(now)) {
      if (countdown.busy !== 0) continue // set again when what is under way is settled
      if (now >= countdown.zero + this.#duration(countdown)) due.push(countdown)
      else if (this.#look(countdown) <= now && marks.length < MAX_MARKS) marks.push(countdown)
      else this.#wheel.set(countdown, Math.max(this.#look(countdown), now + 1))
    }
    if (this.#state.moved !== undefined) {
      // The log would take none of it: they are looked at again in case the leases stay after all.
      for (const countdown of [...due, ...marks]) this.#wheel.set(countdown, now + BEAT)
      return
    }
    if (inTurn && due.length > FEW && this.#turn() > 0) {
      const wait = ++this.#proposals
      for (const countdown of due) countdown.busy = wait
      const cancel = this.#clock.after(this.#turn() * TURN, () => {
        this.#turns.delete(cancel)
        const still = due.filter(countdown => countdown.busy === wait)
        for (const countdown of still) countdown.busy = 0
        this.#proposeDue(still)
      })
      this.#turns.add(cancel)
    } else this.#proposeDue(due)
    this.#proposeMarks(marks, now)
    if (this.#markTogetherDue(now)) this.#markTogether(now)
  }

  #timerIdOf(countdown: Countdown): number {
    return countdown.lease === undefined ? QUIET : timerId(countdown.lease, countdown.slot)
  }

  /** Still the countdown of a running timer, in the epoch it counts. */
  #runs(countdown: Countdown): boolean {
    if (countdown.lease === undefined) return this.#others.get(QUIET) === countdown && this.#state.quiet?.epoch === countdown.epoch
    // Of a lease as the state has it now: after a snapshot was loaded, what is under way still speaks of those before.
    if (countdown.slot === TERM)
      return countdown.lease.alarm === countdown && findLease(this.#state, countdown.lease.id) === countdown.lease
    return this.#others.get(timerId(countdown.lease, countdown.slot)) === countdown
  }

  #proposeDue(due: readonly Countdown[]): void {
    for (const countdown of due) {
      if (!this.#runs(countdown)) continue
      const late = this.now() - countdown.zero - this.#duration(countdown)
      if (late < 0) {
        this.#wheel.set(countdown, this.#look(countdown))
        continue
      }
      this.stats.proposed++
      this.stats.lateness = Math.max(this.stats.lateness, late)
      this.#proposeFor(countdown, { kind: 'due', timer: this.#timerIdOf(countdown), epoch: countdown.epoch })
    }
  }

  #proposeFor(countdown: Countdown, command: Command): void {
    const proposal = ++this.#proposals
    countdown.busy = proposal
    this.#propose(command, outcome => this.#settled(countdown, proposal, outcome))
  }

  #settled(countdown: Countdown, proposal: number, outcome: Outcome | undefined): void {
    if (!this.#runs(countdown) || countdown.busy !== proposal) return
    countdown.busy = 0
    // Without an outcome the store could not be reached: asking again at once would only add to its troubles.
    this.#wheel.set(countdown, Math.max(this.#look(countdown), this.now() + (outcome === undefined ? BEAT : 1)))
    this.#arm()
  }

  #proposeMarks(marked: readonly Countdown[], now: number): void {
    const running = marked.filter(countdown => this.#runs(countdown))
    if (running.length === 0) return
    const marks = running.map(countdown => ({
      timer: this.#timerIdOf(countdown),
      epoch: countdown.epoch,
      ms: Math.max(0, Math.floor(now - countdown.zero)),
    }))
    const proposal = ++this.#proposals
    for (const countdown of running) countdown.busy = proposal
    this.#propose({ kind: 'aged', marks }, outcome => {
      for (const countdown of running) this.#settled(countdown, proposal, outcome)
    })
  }

  /** Marks become rarer as the run grows older: what a crash can cost stays a small share of what has passed. */
  #markTogetherDue(now: number): boolean {
    const ms = now - this.#runZero
    return this.#cohort && this.#state.run.owned && ms - this.#runMarked >= Math.max(MARK_STEP, ms / 16)
  }

  #markTogether(now: number): void {
    const { run, leases, quiet } = this.#state
    let any = quiet !== undefined && quiet.run < run.number
    for (const lease of leases.values()) {
      if (any) break
      any = lease.run < run.number || (lease.rare?.timers?.some(timer => timer !== undefined && timer.run < run.number) ?? false)
    }
    if (!any) {
      this.#cohort = false
      return
    }
    this.#markAll(now)
  }

  #markAll(now: number): void {
    const { run } = this.#state
    this.#runMarked = now - this.#runZero
    this.#propose({ kind: 'aged-together', run: run.number, ms: Math.floor(this.#runMarked) }, () => {})
  }

  /**
   * Before a lease is passed on: its heir inherits what the log knows of the timers that bind it. So the log is told first how long each has run, or to
   * pass a lease on again and again would keep it for ever.
   */
  markForHeir(id: number): void {
    const { run, moved } = this.#state
    const lease = findLease(this.#state, id)
    const timers = lease?.rare?.timers
    if (lease === undefined || timers === undefined || moved !== undefined) return
    const now = this.now()
    const marks: { timer: number; epoch: number; ms: number }[] = []
    let found = false
    for (let slot = CAP as Slot; slot < SLOTS; slot++) {
      const timer = timers[slot]
      const countdown = this.#others.get(timerId(lease, slot))
      if (timer === undefined || countdown?.epoch !== timer.epoch) continue
      const ms = Math.floor(now - countdown.zero)
      if (ms <= agedOf(this.#state, timer)) continue
      // Under an owner, what its run has found ages by marks for all.
      if (run.owned && timer.run < run.number) found = true
      else marks.push({ timer: timerId(lease, slot), epoch: timer.epoch, ms })
    }
    if (found) this.#markAll(now)
    if (marks.length > 0) this.#propose({ kind: 'aged', marks }, () => {})
  }

  /**
   * Before it goes: what this replica has counted and the log does not know yet. No renewal may be kept in memory after this. Where the next
   * one learns the age of entries from the store, a little may be left out; where it does not, a row of short lives must add up.
   */
  markBeforeLeaving({ ages }: { readonly ages: boolean }): void {
    const now = this.now()
    if (this.#state.run.owned) {
      if (this.#cohort && now - this.#runZero - this.#runMarked >= 1) this.#markAll(now)
      return
    }
    const marks: { timer: number; epoch: number; ms: number }[] = []
    for (const countdown of this.#all()) {
      const ms = Math.floor(now - countdown.zero)
      if (countdown.busy !== 0 || ms - this.#known(countdown) < (ages ? MARK_STEP : 1)) continue
      marks.push({ timer: this.#timerIdOf(countdown), epoch: countdown.epoch, ms })
      if (marks.length === MAX_MARKS) break
    }
    if (marks.length > 0) this.#propose({ kind: 'aged', marks }, () => {})
  }

  stop(): void {
    this.#stopped = true
    this.#cancel?.()
    this.#cancel = undefined
    for (const cancel of this.#turns) cancel()
    this.#turns.clear()
  }
}
