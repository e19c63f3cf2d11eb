/** The shortest ttl in a client's recent answers. It limits how long the client may wait for a silent server. */
import { GONE, type Outcome } from '../../kernel/outcome.ts'

/** A ttl is remembered for one to two of these, in ms. */
const WINDOW = 30_000

export class ShortestTtl {
  #present = Number.POSITIVE_INFINITY
  #former = Number.POSITIVE_INFINITY
  #since = 0

  /** Returns whether the shortest ttl became shorter. */
  learn(outcome: Outcome): boolean {
    const before = Math.min(this.#present, this.#former)
    if (outcome.kind === 'granted') this.#present = Math.min(this.#present, outcome.ttl)
    else if (outcome.kind === 'renewed')
      for (const ttl of outcome.ttls) if (ttl !== GONE && ttl > 0) this.#present = Math.min(this.#present, ttl)
    return this.#present < before
  }

  shortest(now: number): number {
    if (now - this.#since >= WINDOW) {
      this.#former = this.#present
      this.#present = Number.POSITIVE_INFINITY
      this.#since = now
    }
    return Math.min(this.#present, this.#former)
  }
}
