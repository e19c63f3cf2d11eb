/** The flight recorder: what this process lost, and how. Kept here, so that it can be read with or without a lessor. */
import type { Clock } from '../clock.ts'
import type { HeldLease } from '../lease.ts'
import type { PastGrant } from '../lessor.ts'
import { publish } from './diagnostics.ts'

const RECORDED = 256

/** How a lease was lost here. Kept for `history`. */
export interface Loss {
  readonly lease: number
  readonly resources: readonly string[]
  readonly token: number
  readonly cause: string
  readonly message: string
  /** Wall time, for people. */
  readonly at: number
  /** For so many ms someone who watched only `signal` may have acted beside the next holder. Normally 0. */
  readonly overlap: number
}

export interface PastLease extends PastGrant {
  /** When this process held it and lost it: what it knows of that. */
  readonly loss?: Loss
}

export class LossLog {
  readonly #clock: Clock
  readonly #recorded: Loss[] = []

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Newest last. */
  get all(): readonly Loss[] {
    return this.#recorded
  }

  record(belief: HeldLease, cause: string, message: string, overlap: number): void {
    const { id: lease, resources, tokens } = belief
    const loss: Loss = { lease, resources, token: tokens[0] ?? 0, cause, message, at: this.#clock.wall(), overlap }
    this.#recorded.push(loss)
    if (this.#recorded.length > RECORDED) this.#recorded.shift()
    publish('lost', () => ({ ask: belief.ask, ...belief.facts, ...loss, reason: belief.end }))
  }

  /** What the lessor remembers, with what is known here. */
  beside(resource: string, history: readonly PastGrant[]): readonly PastLease[] {
    const losses = new Map(this.#recorded.filter(({ resources }) => resources.includes(resource)).map(loss => [loss.lease, loss]))
    return history.map(past => {
      const loss = losses.get(past.lease)
      return loss === undefined ? past : { ...past, loss }
    })
  }
}
