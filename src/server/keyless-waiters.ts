/**
 * The places in queues that callers without a key have asked for. When a key is required from some moment on, because the first one was created, such a caller
 * can neither be granted its lease nor give up its place: the server gives it up, so that it does not block others.
 */
import type { Queued } from '../kernel/outcome.ts'
import { propose } from '../lessor/propose.ts'
import type { Lessor } from '../lessor.ts'
import type { AccessControl, Caller } from './access-control.ts'

/** Places that are remembered. Beyond that the oldest are forgotten: they end with their term. */
const MAX_PLACES = 10_000

export class KeylessWaiters {
  readonly #lessor: Lessor
  readonly #access: AccessControl
  /** Leases that were queued. Most of them have been granted since. */
  readonly #queued = new Set<number>()
  #subscribed = false

  constructor(lessor: Lessor, access: AccessControl) {
    this.#lessor = lessor
    this.#access = access
  }

  /** Remembers the place that a request of the caller has got. */
  note(caller: Caller, { lease }: Queued): void {
    this.#queued.add(lease)
    const [oldest] = this.#queued
    if (this.#queued.size > MAX_PLACES) this.#queued.delete(oldest!)
    if (this.#subscribed) return
    this.#subscribed = true
    this.#access.onRevoked(caller, () => {
      this.#subscribed = false
      void this.#giveUp()
    })
  }

  async #giveUp(): Promise<void> {
    const leases = [...this.#queued]
    this.#queued.clear()
    for (const lease of leases) {
      try {
        const { value } = await this.#lessor.read({ kind: 'lease', lease })
        if (value?.status === 'waiting') await propose(this.#lessor, { kind: 'release', lease })
      } catch {
        // It ends with its term: its caller cannot renew it.
      }
    }
  }
}
