/**
 * The time of a timekeeper: monotonic, from when the timekeeper was made, minus the stalls of this process.
 *
 * A stall is noticed whenever the time is read, not only when the overdue timer fires: input may be read before that timer fires, and a renewal that
 * is read first would otherwise be credited with a stall that happened before it.
 */
import type { Clock } from '../clock.ts'

/** A timer that fires this many ms later than usual means that the process stood still. The event loop was not merely busy. */
const STALL = 100

export class StallClock {
  readonly #clock: Clock
  readonly #origin: number
  /** For metrics and tests: the number of stalls, and their sum in ms, which `now` leaves out. */
  readonly stats = { stalls: 0, stalled: 0 }
  /** When the timer that is set should fire; never while none is set. */
  #expected = Number.POSITIVE_INFINITY
  /** The part of the present lateness of that timer that was already added to the stalls. */
  #added = 0
  /** Timers have fired this late lately. A loop with much to do in every turn still reads all its input in every turn: that is no stall. */
  #usual = 0

  constructor(clock: Clock) {
    this.#clock = clock
    this.#origin = clock.now()
  }

  now(): number {
    const now = this.#clock.now() - this.#origin - this.stats.stalled
    const late = now - this.#expected
    if (late <= 0 || (this.#added === 0 && !this.#isStall(late))) return now
    if (this.#added === 0) this.stats.stalls++
    this.stats.stalled += late
    this.#added += late
    return now - late
  }

  #isStall(late: number): boolean {
    return late > STALL + 2 * this.#usual
  }

  /** A timer was set that fires at `time`. An earlier one that is overdue stays expected: the loop is late for that one. */
  expectBy(time: number): void {
    this.#expected = Math.min(this.#expected, time)
  }

  #expect(time: number): void {
    this.#expected = time
    this.#added = 0
  }

  /** The expected timer has fired. Returns the time, and for how many ms the process stood still before it; 0 when it did not. */
  fired(): { readonly now: number; readonly stalled: number } {
    const now = this.now()
    const stalled = this.#added
    const late = stalled + Math.max(0, now - this.#expected)
    this.#usual += (Math.min(late, 4 * STALL) - this.#usual) / 8
    this.#expect(Number.POSITIVE_INFINITY)
    return { now, stalled }
  }

  /** Waits for `work`, however slow, and returns for how long this process stood still meanwhile. */
  async stalledWhile(work: Promise<void>): Promise<number> {
    const before = this.stats.stalled
    let cancel = () => {}
    const beat = () => {
      this.#expect(this.now() + STALL)
      cancel = this.#clock.after(STALL, beat)
    }
    beat()
    try {
      await work
      this.now() // the beat may be overdue and not have fired yet
      return this.stats.stalled - before
    } finally {
      cancel()
      this.#expect(Number.POSITIVE_INFINITY)
    }
  }
}
