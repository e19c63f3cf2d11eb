/** The shortest ttl that answers have told of late: how long a client may wait for a silent server depends on it. */
import { GONE, type Outcome } from '../../kernel/outcome.ts'

/** What was told is remembered for one to two of these. */
const WINDOW = 30_000

export class ShortestTtl {
  #present = Number.POSITIVE_INFINITY
  #former = Number.POSITIVE_INFINITY
  #since = 0

  /** Whether it has become shorter. */
  learn(outcome: Outcome): boolean {
    const before = Math.min(this.#present, this.#former)
    if (outcome.kind === 'granted') this.#told(outcome.ttl)
    else if (outcome.kind === 'renewed') for (const ttl of outcome.ttls) if (ttl !== GONE && ttl > 0) this.#told(ttl)
    return this.#present < before
  }

  #told(ttl: number): void {
    if (ttl < this.#present) this.#present = ttl
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
