/**
 * A timer for deadlines that are hardly ever reached. It is set for the earliest deadline. When it fires, which may be too early, its owner
 * checks what is due.
 *
 * Setting and cancelling a timer for every request costs more than the request. So an idle timer stays set where the clock has rearmable
 * timers. It keeps no process alive.
 */
import type { Clock, RearmableTimer } from '../clock.ts'

export class DeadlineTimer {
  /** When it fires. */
  at = Number.POSITIVE_INFINITY
  readonly #clock: Clock
  readonly #fire: (at: number) => void
  readonly #idle: (() => void) | undefined
  #timer: RearmableTimer | undefined
  #resting = false

  /** `fire` gets the time that the timer was set for, and sets it anew. `idle` is called when a resting timer is no longer set. */
  constructor(clock: Clock, fire: (at: number) => void, idle?: () => void) {
    this.#clock = clock
    this.#fire = fire
    this.#idle = idle
  }

  /** Fires at `at` or earlier. */
  set(at: number): void {
    if (this.#resting) {
      this.#resting = false
      this.#timer?.keepAlive?.(true)
    }
    if (this.at <= at) return
    this.#timer?.cancel()
    this.at = at
    const ms = Math.max(0, at - this.#clock.now())
    const fired = () => this.#fired(at)
    this.#timer = this.#clock.standing?.(ms, fired) ?? { cancel: this.#clock.after(ms, fired, { ref: true }) }
  }

  #fired(at: number): void {
    this.clear()
    if (this.#resting) this.#idle?.()
    else this.#fire(at)
  }

  /** There is no deadline at the moment. */
  rest(): void {
    this.#resting = true
    if (this.#timer?.keepAlive !== undefined) return this.#timer.keepAlive(false)
    this.clear()
    this.#idle?.()
  }

  clear(): void {
    this.#timer?.cancel()
    this.#timer = undefined
    this.at = Number.POSITIVE_INFINITY
  }
}
