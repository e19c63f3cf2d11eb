/** Reads the clocks of a process, and notices that the machine slept, that the wall clock jumped or that the event loop stood still. */
import type { Clock } from '../clock.ts'
import type { ClockReading } from './validity.ts'

/**
 * The clocks are read this often while any lease is held: a suspend is noticed no sooner. In a process that sends nothing, the pause doubles up to `SLOWEST`, as far as
 * the terms of its leases allow: most of what such a process costs is that it wakes.
 */
const PULSE = 250
const SLOWEST = 1_000
/** The wall clock is stepped and slewed. A larger change between two readings is a jump that needs an explanation. */
const JUMP = 500
/** A timer that is later than this means that the loop stood still, and that answers may be waiting to be read. */
export const LATE = 10
/** The number of stalls that are remembered. */
const MAX_STALLS = 16

/** The clock watch reports here what the clocks show. */
interface ClockObserver {
  /** The clocks are about to be read. Returns the longest pause until they must be read again; 0: there is no reason to go on. */
  pulse(): number
  /** The wall clock jumped. A machine restored from a snapshot looks like this: its other clocks stood still, and cannot show it. */
  jumped(): void
  slept(now: number): void
}

export class ClockWatch {
  readonly #clock: Clock
  readonly #observer: ClockObserver
  #cancelPulse: (() => void) | undefined
  /** Uptime minus monotonic clock at the last reading: the time that the machine slept, plus a constant. */
  #slept = 0
  /** Wall clock minus uptime at the last reading. */
  #wall = 0
  #pulseDue = Number.POSITIVE_INFINITY
  #pause = PULSE
  /** When each stall of the loop ended, and how many ms it lasted. A stall is forgotten when a longer one follows, so the first one is the longest. */
  readonly #stalls: { readonly at: number; readonly ms: number }[] = []

  constructor(clock: Clock, observer: ClockObserver) {
    this.#clock = clock
    this.#observer = observer
  }

  /** As `estimate`, at the moment of a request. From here on the clocks are watched. */
  begin(): ClockReading {
    if (this.#cancelPulse === undefined) {
      const uptime = this.#clock.uptime()
      this.#slept = uptime - this.#clock.now()
      this.#wall = this.#clock.wall() - uptime
      this.#nextPulse(PULSE)
    } else if (this.#pause > PULSE) {
      this.noteStall(this.#clock.now() - this.#pulseDue) // the overdue pulse may not have fired yet
      this.#cancelPulse()
      this.#nextPulse(PULSE)
    }
    return this.estimate()
  }

  /**
   * Reading the uptime costs more than the rest of a request. So it is derived from the last reading, unless the wall clock hints at a sleep.
   * At the moment of sending this errs on the safe side: an uptime that is too small shortens the validity. `held` always reads.
   */
  estimate(): ClockReading {
    const now = this.#clock.now()
    if (Math.abs(this.#clock.wall() - now - this.#slept - this.#wall) > 2 * LATE) return this.readClocks()
    return { now, uptime: now + this.#slept }
  }

  readClocks(): ClockReading {
    const now = this.#clock.now()
    const uptime = this.#clock.uptime()
    if (this.#cancelPulse === undefined) return { now, uptime }
    const slept = uptime - now - this.#slept
    const wall = this.#clock.wall() - uptime
    const jumped = wall - this.#wall
    this.#wall = wall
    this.#slept = uptime - now
    if (Math.abs(jumped) > JUMP) this.#observer.jumped()
    if (Math.abs(slept) > 2 * LATE) this.#observer.slept(now)
    return { now, uptime }
  }

  /** Notes that a timer was `late` ms late. */
  noteStall(late: number): void {
    if (late <= LATE) return
    while (this.#stalls.length > 0 && this.#stalls.at(-1)!.ms <= late) this.#stalls.pop()
    this.#stalls.push({ at: this.#clock.now(), ms: late })
    if (this.#stalls.length > MAX_STALLS) this.#stalls.shift()
  }

  /** Returns how many ms the longest stall lasted, of those that ended after `begin`. 0: there was none. */
  longestStall(begin: number): number {
    this.noteStall(this.#clock.now() - this.#pulseDue) // the overdue pulse may not have fired yet
    return this.#stalls.find(({ at }) => at > begin)?.ms ?? 0
  }

  /** Goes on for one pulse after the last lease ended, so that a process that acquires again and again does not start over each time. */
  #nextPulse(pause: number): void {
    this.#pause = pause
    this.#pulseDue = this.#clock.now() + pause
    const pulse = () => {
      this.noteStall(this.#clock.now() - this.#pulseDue)
      this.#pulseDue = Number.POSITIVE_INFINITY
      this.#cancelPulse = undefined
      const longest = this.#observer.pulse()
      if (longest === 0) return
      const next = longest < pause ? PULSE : 2 * pause
      this.#nextPulse(next <= Math.min(longest, SLOWEST) ? next : Math.min(pause, next))
      this.readClocks()
    }
    this.#cancelPulse = this.#clock.after(pause, pulse, { aligned: true })
  }

  stop(): void {
    this.#cancelPulse?.()
    this.#cancelPulse = undefined
    this.#pulseDue = Number.POSITIVE_INFINITY
  }
}
