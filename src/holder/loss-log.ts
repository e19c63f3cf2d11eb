/** Records which leases this process lost, and why. Kept in this process, so that it can be read without a lessor. */
import type { Clock } from '../clock.ts'
import type { PastGrant } from '../lessor.ts'
import { channels } from './diagnostics.ts'
import type { HeldLease } from './held-lease.ts'

const MAX_LOSSES = 256

/** This process lost a lease in this way. */
export interface Loss {
  readonly lease: number
  readonly resources: readonly string[]
  readonly token: number
  readonly cause: string
  readonly message: string
  /** Wall-clock time, for people. */
  readonly at: number
  /** For this many ms, code that watched only `signal` may have acted beside the next holder. Normally 0. */
  readonly overlap: number
}

/** A past grant of a resource. */
export interface PastLease extends PastGrant {
  /** If this process held and lost it: what it knows of that. */
  readonly loss?: Loss
}

export class LossLog {
  readonly #clock: Clock
  readonly #losses: Loss[] = []

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Newest last. */
  get all(): readonly Loss[] {
    return this.#losses
  }

  record(held: HeldLease, cause: string, message: string, overlap: number): void {
    const { id: lease, resources, tokens } = held
    const loss: Loss = { lease, resources, token: tokens[0] ?? 0, cause, message, at: this.#clock.wall(), overlap }
    this.#losses.push(loss)
    if (this.#losses.length > MAX_LOSSES) this.#losses.shift()
    if (channels.lost.hasSubscribers) channels.lost.publish({ ask: held.requestId, ...held.facts, ...loss, reason: held.endReason })
  }

  /** The lessor's history, with the losses of this process added. */
  addTo(history: readonly PastGrant[], resource: string): readonly PastLease[] {
    const losses = new Map(this.#losses.filter(({ resources }) => resources.includes(resource)).map(loss => [loss.lease, loss]))
    return history.map(past => {
      const loss = losses.get(past.lease)
      return loss === undefined ? past : { ...past, loss }
    })
  }
}
