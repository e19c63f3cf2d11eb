/** Looks at the clocks of a process, and notices that the machine slept, that the wall clock jumped or that the loop stood still. */
import type { Clock } from '../clock.ts'
import type { ClockReading } from '../lease.ts'

/** How often the clocks are looked at while anything is held: after a suspend nobody is told sooner. */
const PULSE = 250
/** The wall clock is stepped and slewed; more than this between two looks is a jump that someone must explain. */
const JUMP = 500
/** A timer that is so late means that the loop stood still, and that answers may be waiting to be read. */
export const LATE = 10

/** Who is told what the clocks show. */
interface Watched {
  /** It is about to be looked. Whether there is anything to look for. */
  pulse(): boolean
  /** A restored snapshot of a machine looks like this: its other clocks stood still and do not know it. */
  jumped(): void
  slept(now: number): void
}

export class ClockWatch {
  readonly #clock: Clock
  readonly #watched: Watched
  #pulse: (() => void) | undefined
  /** By how much the uptime was ahead of the monotonic clock when last looked at: what the machine slept, and a constant. */
  #slept = 0
  /** The same of the wall clock and the uptime. */
  #wall = 0
  /** The last time that the loop stood still: until when, and for how long. */
  stall = { at: Number.NEGATIVE_INFINITY, ms: 0 }

  constructor(clock: Clock, watched: Watched) {
    this.#clock = clock
    this.#watched = watched
  }

  /** As `glance`, at the moment of a request: from here on the clocks are watched. */
  begin(): ClockReading {
    if (this.#pulse === undefined) {
      const uptime = this.#clock.uptime()
      this.#slept = uptime - this.#clock.now()
      this.#wall = this.#clock.wall() - uptime
      this.#nextPulse()
    }
    return this.glance()
  }

  /**
   * Reading the uptime costs more than all the rest of asking, so it is taken from the last look unless the wall clock hints at a sleep.
   * For the moment of sending that errs on the safe side: too small an uptime makes us believe for shorter. `held` always looks.
   */
  glance(): ClockReading {
    const now = this.#clock.now()
    if (Math.abs(this.#clock.wall() - now - this.#slept - this.#wall) > 2 * LATE) return this.look()
    return { now, uptime: now + this.#slept }
  }

  look(): ClockReading {
    const now = this.#clock.now()
    const uptime = this.#clock.uptime()
    if (this.#pulse === undefined) return { now, uptime }
    const slept = uptime - now - this.#slept
    const wall = this.#clock.wall() - uptime
    const jumped = wall - this.#wall
    this.#wall = wall
    this.#slept = uptime - now
    if (Math.abs(jumped) > JUMP) this.#watched.jumped()
    if (Math.abs(slept) > 2 * LATE) this.#watched.slept(now)
    return { now, uptime }
  }

  /** A timer was so late. */
  noteStall(late: number): void {
    if (late > LATE) this.stall = { at: this.#clock.now(), ms: late }
  }

  /** Goes on for a beat when nothing is held any more: who asks again and again need not begin anew each time. */
  #nextPulse(): void {
    const due = this.#clock.now() + PULSE
    this.#pulse = this.#clock.after(PULSE, () => {
      this.#pulse = undefined
      if (!this.#watched.pulse()) return
      this.noteStall(this.#clock.now() - due)
      this.#nextPulse()
      this.look()
    })
  }

  stop(): void {
    this.#pulse?.()
    this.#pulse = undefined
  }
}
