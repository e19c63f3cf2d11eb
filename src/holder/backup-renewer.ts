/** The worker thread's side of the worker heartbeat: renews leases that the main loop is late with, unless that loop is late by `maxStall`. */
import type { Clock } from '../clock.ts'
import { propose } from '../lessor/propose.ts'
import type { Lessor } from '../lessor.ts'
import { MAX_RENEWALS } from './renewal-group.ts'
import { validityOf } from './validity.ts'
import { type LeaseSlot, type LoopPulse, SlotPage } from './worker-heartbeat.ts'

/** The heartbeat renews at half of a term, and retries. With less than this part left, it is late. */
const LATE = 0.4
const [SHORTEST_CHECK, LONGEST_CHECK] = [5, 1_000]

export interface BackupRenewerOptions {
  readonly lessor: Pick<Lessor, 'submit'>
  readonly clock: Clock
  readonly pulse: LoopPulse
  /** The part of a term that is given up for clocks of different rates. */
  readonly margin: number
  readonly maxStall: number
}

export class BackupRenewer {
  readonly #options: BackupRenewerOptions
  readonly #pages: SlotPage[] = []
  /** By lease: do not renew before then, because a renewal is under way or the lease is gone. */
  readonly #notBefore = new Map<number, number>()
  #shortest = Number.POSITIVE_INFINITY
  #cancel: (() => void) | undefined
  #closed = false

  constructor(options: BackupRenewerOptions) {
    this.#options = options
    this.#check()
  }

  addPage(memory: SharedArrayBuffer): void {
    this.#pages.push(new SlotPage(memory))
  }

  /** Checks often enough for a term of this length. */
  mindTerm(shortest: number): void {
    this.#shortest = Math.min(this.#shortest, shortest)
    this.#check()
  }

  close(): void {
    this.#closed = true
    this.#cancel?.()
  }

  #check(): void {
    const { clock, pulse, maxStall } = this.#options
    this.#cancel?.()
    if (this.#closed) return
    const pause = Math.min(LONGEST_CHECK, Math.max(SHORTEST_CHECK, this.#shortest / 16))
    this.#cancel = clock.after(pause, () => this.#check(), { ref: true })
    const now = clock.now()
    if (now - pulse.at > maxStall) return
    const late = this.#pages.flatMap(page => [...page.slots()].filter(slot => this.#isLate(slot, now)))
    if (late.length === 0) this.#notBefore.clear()
    for (let first = 0; first < late.length; first += MAX_RENEWALS) void this.#renew(late.slice(first, first + MAX_RENEWALS), now)
  }

  #isLate({ lease, sent, term, working }: LeaseSlot, now: number): boolean {
    const left = this.#timeLeft(sent, term, now)
    // A lease that its own clock has ended stays ended.
    return left > 0 && left < term * LATE && working > now && (this.#notBefore.get(lease) ?? now) <= now
  }

  #timeLeft(sent: number, term: number, now: number): number {
    const { margin, clock } = this.#options
    return sent + validityOf(term, margin, clock.lateness) - now
  }

  async #renew(late: readonly LeaseSlot[], now: number): Promise<void> {
    const { lessor, clock } = this.#options
    const uptime = clock.uptime()
    for (const { lease, sent, term } of late) this.#notBefore.set(lease, now + this.#timeLeft(sent, term, now) / 3)
    try {
      const outcome = await propose(lessor, { kind: 'renew', leases: late.map(({ lease }) => lease) })
      if (outcome.kind !== 'renewed') return
      for (const [i, { page, slot, lease }] of late.entries()) {
        const term = outcome.ttls[i]!
        if (term > 0) page.renewed(slot, lease, { now, uptime, term })
        else this.#notBefore.set(lease, Number.POSITIVE_INFINITY)
      }
    } catch {
      // Retried while there is time. The main loop finds out what is wrong, and reports it.
    }
  }
}
