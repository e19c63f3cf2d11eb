/**
 * When the holders of leases that a replica found in its log were last heard of, by the clock of the engine or by wall clocks. These may be wrong, so they
 * only tell whether it is worth waiting for the end of a lease (confirmation.ts).
 */
import type { Countdown } from './countdowns.ts'

/** The wall clocks of two machines may differ by this many ms without either of them having been set back. */
const CLOCKS_DIFFER = 1_000

export class LastHeard {
  /** When the record that is being applied was written, and the snapshot that the state was loaded from. Undefined: not even that is known. */
  #writtenAt: number | undefined
  #loadedAt: number | undefined
  readonly #heardAt = new WeakMap<Countdown, number | undefined>()

  /** A state was loaded. Its holders count as heard of when it was saved. */
  load(now: number, age: number): void {
    this.#loadedAt = writtenAt(now, age)
  }

  entering(now: number, age: number): void {
    this.#writtenAt = writtenAt(now, age)
  }

  /** The record that is being applied renews the lease. */
  set(countdown: Countdown): void {
    this.#heardAt.set(countdown, this.#writtenAt)
  }

  /** In ms; infinity if it is not known. */
  silence(countdown: Countdown, now: number): number {
    const heard = this.#heardAt.has(countdown) ? this.#heardAt.get(countdown) : this.#loadedAt
    return heard === undefined ? Number.POSITIVE_INFINITY : now - Math.min(heard, countdown.zero)
  }
}

/** An age below 0 means that a clock was set back, so nothing is known. */
function writtenAt(now: number, age: number): number | undefined {
  return age < -CLOCKS_DIFFER ? undefined : now - Math.max(0, age)
}
