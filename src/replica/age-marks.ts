/**
 * Writes marks into the log: how long timers have run at least, so that a crash loses little of what a replica has counted.
 *
 * On a shared log each timer has marks of its own. Under an owner, one mark stands for all timers that the owner's run found and that were not renewed
 * since.
 */
import type { Aged, Command } from '../kernel/command.ts'
import { findLease } from '../kernel/state/leases.ts'
import { agedOf, timerId } from '../kernel/state/timers.ts'
import { CAP, type LeaseState, SLOTS, type Slot, type State } from '../kernel/state.ts'
import { type Countdown, type Countdowns, leaseOf, SlotCountdown } from './countdowns.ts'
import type { Outbox } from './outbox.ts'

/** The least time between two marks of one timer, in ms. */
const MARK_STEP = 1_000
/** Marks in one command, and those that a replica writes before it leaves. */
export const MAX_MARKS = 1_000
const MAX_LAST_MARKS = 5_000

export class AgeMarks {
  readonly #outbox: Pick<Outbox, 'writeUntilSettled'>
  #state!: State
  #countdowns!: Countdowns
  /** When the present run of the log began, at the latest. A timer that the run found, and that was not renewed since, is at least that old. */
  runZero = 0
  /** The age of the present run in the last mark for all. */
  #marked = 0
  /** This replica owns the run, and the timers that it found are marked together. */
  together = false
  /** The leases that a request has waited for. */
  readonly confirming = new WeakSet<LeaseState>()

  constructor(outbox: Pick<Outbox, 'writeUntilSettled'>) {
    this.#outbox = outbox
  }

  /** Called at first, and whenever a snapshot was loaded. */
  load(state: State, countdowns: Countdowns): void {
    this.#state = state
    this.#countdowns = countdowns
  }

  /** This replica has begun a run as the owner. */
  ownRunBegan(now: number): void {
    this.together = true
    this.runZero = now
    this.#marked = 0
  }

  /** When to look at a countdown again: when it is due, or when the log should learn how long it has run. */
  look(countdown: Countdown): number {
    const ofTerm = countdown instanceof SlotCountdown ? undefined : countdown
    const duration = ofTerm === undefined ? this.#countdowns.duration(countdown) : ofTerm.term
    const due = countdown.zero + duration
    const step = Math.max(MARK_STEP, duration / 8)
    if (this.#state.run.owned && this.together && countdown.found) return due // marked together with all others
    // Renewals usually come at half of the term. Only a timer that runs beyond that is worth a mark.
    const first = countdown.found ? step : Math.max(step, (duration * 5) / 8)
    // The log knows no age of a term that began in this run and was not marked since.
    const known = ofTerm?.aged === 0 && ofTerm.run === this.#state.run.number ? 0 : this.#countdowns.knownAge(countdown)
    const mark = countdown.zero + Math.max(first, known + step)
    return mark < due ? mark : due
  }

  /** Marks become rarer as the run grows older: a crash costs a small share of the time that has passed. */
  togetherDue(now: number): boolean {
    const ms = now - this.runZero
    return this.together && this.#state.run.owned && ms - this.#marked >= Math.max(MARK_STEP, ms / 16)
  }

  /** Marks all timers that the run found, as long as there are any. */
  markTogether(now: number): void {
    const { run, leases, quiet } = this.#state
    let any = quiet !== undefined && quiet.run < run.number
    for (const lease of leases.values()) {
      if (any) break
      any = lease.run < run.number || (lease.extras?.timers?.some(timer => timer !== undefined && timer.run < run.number) ?? false)
    }
    if (any) this.#markAll(now)
    else this.together = false
  }

  #markAll(now: number, key = 0): void {
    this.#marked = now - this.runZero
    this.#write({ kind: 'aged-together', run: this.#state.run.number, ms: Math.floor(this.#marked) }, key)
  }

  /**
   * Before a lease is transferred: the new lease inherits the age of the timers that bind the old one, as the log knows it. Without this mark, a lease
   * that is transferred again and again would never reach its limits. `key`: that of the transfer, so that the mark stays before it in the outbox.
   */
  markBeforeTransfer(id: number, now: number, key: number): void {
    const state = this.#state
    const { run, moved } = state
    const lease = findLease(state, id)
    const timers = lease?.extras?.timers
    if (lease === undefined || timers === undefined || moved !== undefined) return
    const marks: Aged['marks'][number][] = []
    let found = false
    for (let slot = CAP as Slot; slot < SLOTS; slot++) {
      const timer = timers[slot]
      const countdown = this.#countdowns.of(lease, slot)
      if (timer === undefined || countdown?.counted !== timer.epoch) continue
      const ms = Math.floor(now - countdown.zero)
      if (ms <= agedOf(state, timer)) continue
      // Under an owner, timers that its run found age by the marks for all.
      if (run.owned && timer.run < run.number) found = true
      else marks.push({ timer: timerId(lease, slot), epoch: timer.epoch, ms })
    }
    if (found) this.#markAll(now, key)
    if (marks.length > 0) this.#write({ kind: 'aged', marks }, key)
  }

  /**
   * Before this replica leaves: writes what it has counted and the log does not know yet. No renewal may be kept in memory after this. Where the store
   * knows the age of records (`ages`), up to MARK_STEP may be left out; where it does not, or a request waits for the end, many short lives must add up.
   */
  markBeforeLeaving(now: number, { ages }: { readonly ages: boolean }): void {
    if (this.#state.run.owned) {
      if (this.together && now - this.runZero - this.#marked >= 1) this.#markAll(now)
      return
    }
    const countdowns = this.#countdowns
    const marks: Aged['marks'][number][] = []
    for (const countdown of countdowns) {
      const ms = Math.floor(now - countdown.zero)
      const lease = leaseOf(countdown)
      const isExact = !ages || (lease !== undefined && this.confirming.has(lease))
      if (countdown.busy !== 0 || ms - countdowns.knownAge(countdown) < (isExact ? 1 : MARK_STEP)) continue
      marks.push({ timer: countdowns.idOf(countdown), epoch: countdown.counted, ms })
      if (marks.length === MAX_LAST_MARKS) break
    }
    for (let at = 0; at < marks.length; at += MAX_MARKS) this.#write({ kind: 'aged', marks: marks.slice(at, at + MAX_MARKS) })
  }

  #write(command: Command, key = 0): void {
    this.#outbox.writeUntilSettled(command, () => {}, key)
  }
}
