/** Proposes to the log what a timekeeper has counted: timers that are due, and marks of how long others have run. */
import type { Clock } from '../clock.ts'
import type { Command } from '../kernel/command.ts'
import type { Outcome } from '../kernel/outcome.ts'
import { DurationHistogram } from '../lessor/duration-histogram.ts'
import type { Countdown, Countdowns } from './countdowns.ts'
import type { Log } from './log.ts'
import type { Outbox } from './outbox.ts'

/** Every replica proposes up to this many due timers at once. For more, replicas take turns, so that a mass lapse is proposed about once. */
const FEW = 16
/** Each replica waits this long for the replica before it, in ms. */
const TURN = 15

/** The timekeeper. */
interface TimerOwner {
  now(): number
  /** When to look at a countdown again. */
  look(countdown: Countdown): number
  /** Its proposal is settled; without an outcome if the store could not be reached. */
  settled(countdown: Countdown, outcome: Outcome | undefined): void
}

export class TimerProposals {
  readonly #clock: Clock
  readonly #log: Pick<Log, 'turn'>
  readonly #outbox: Pick<Outbox, 'writeUntilSettled'>
  readonly #keeper: TimerOwner
  /** Cancels the proposals that wait for this replica's turn. */
  readonly #turns = new Set<() => void>()
  /** The number of the last proposal. */
  #last = 0
  readonly stats = { proposed: 0, lateness: 0 }
  /** By how much proposals were late. */
  readonly delays = new DurationHistogram()

  constructor(clock: Clock, log: Pick<Log, 'turn'>, outbox: Pick<Outbox, 'writeUntilSettled'>, keeper: TimerOwner) {
    this.#clock = clock
    this.#log = log
    this.#outbox = outbox
    this.#keeper = keeper
  }

  due(due: readonly Countdown[], countdowns: Countdowns, inTurn: boolean): void {
    if (inTurn && due.length > FEW && this.#log.turn() > 0) this.#dueInTurn(due, countdowns)
    else this.#dueNow(due, countdowns)
  }

  #dueInTurn(due: readonly Countdown[], countdowns: Countdowns): void {
    const wait = ++this.#last
    for (const countdown of due) countdown.busy = wait
    const cancel = this.#clock.after(this.#log.turn() * TURN, () => {
      this.#turns.delete(cancel)
      const still = due.filter(countdown => countdown.busy === wait)
      for (const countdown of still) countdown.busy = 0
      this.#dueNow(still, countdowns)
    })
    this.#turns.add(cancel)
  }

  #dueNow(due: readonly Countdown[], countdowns: Countdowns): void {
    for (const countdown of due) {
      if (!countdowns.runs(countdown)) continue
      const late = this.#keeper.now() - countdown.zero - countdowns.duration(countdown)
      if (late < 0) {
        countdowns.schedule(countdown, this.#keeper.look(countdown))
        continue
      }
      this.stats.proposed++
      this.stats.lateness = Math.max(this.stats.lateness, late)
      this.delays.add(late)
      this.#propose([countdown], countdowns, { kind: 'due', timer: countdowns.idOf(countdown), epoch: countdown.counted })
    }
  }

  marks(marked: readonly Countdown[], countdowns: Countdowns, now: number): void {
    const running = marked.filter(countdown => countdowns.runs(countdown))
    if (running.length === 0) return
    const marks = running.map(countdown => ({
      timer: countdowns.idOf(countdown),
      epoch: countdown.counted,
      ms: Math.max(0, Math.floor(now - countdown.zero)),
    }))
    this.#propose(running, countdowns, { kind: 'aged', marks })
  }

  #propose(about: readonly Countdown[], countdowns: Countdowns, command: Command): void {
    const proposal = ++this.#last
    for (const countdown of about) countdown.busy = proposal
    this.#outbox.writeUntilSettled(command, outcome => {
      for (const countdown of about) {
        if (!countdowns.runs(countdown) || countdown.busy !== proposal) continue
        countdown.busy = 0
        this.#keeper.settled(countdown, outcome)
      }
    })
  }

  /** Withdraws what waits for its turn. */
  stop(): void {
    for (const cancel of this.#turns) cancel()
    this.#turns.clear()
  }
}
