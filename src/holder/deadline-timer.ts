import type { Clock, RearmableTimer } from '../clock.ts'

/**
 * A timer for moments that hardly ever come: set for the earliest of them, and asked what is due when it rings, which may be too early.
 *
 * Whoever asks again and again would set one and call it off for every question, which costs more than the question. So one that rests
 * stays set where the clock has such timers. It keeps no process alive.
 */
export class DeadlineTimer {
  /** When it rings. */
  at = Number.POSITIVE_INFINITY
  readonly #clock: Clock
  readonly #ring: (at: number) => void
  readonly #idle: (() => void) | undefined
  #timer: RearmableTimer | undefined
  #resting = false

  /** `ring` is told for when it was set, and sets it anew. `idle` is told when it is not set any more while at rest. */
  constructor(clock: Clock, ring: (at: number) => void, idle?: () => void) {
    this.#clock = clock
    this.#ring = ring
    this.#idle = idle
  }

  /** Not later than this. */
  set(at: number): void {
    if (this.#resting) {
      this.#resting = false
      this.#timer?.keepAlive?.(true)
    }
    if (this.at <= at) return
    this.#timer?.cancel()
    this.at = at
    const ms = Math.max(0, at - this.#clock.now())
    const rang = () => this.#rang(at)
    this.#timer = this.#clock.standing?.(ms, rang) ?? { cancel: this.#clock.after(ms, rang, { ref: true }) }
  }

  #rang(at: number): void {
    this.clear()
    if (this.#resting) this.#idle?.()
    else this.#ring(at)
  }

  /** There is nothing to wait for at the moment. */
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
