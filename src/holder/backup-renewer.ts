import type { Clock } from '../clock.ts'
import { validOf } from '../lease.ts'
import type { Lessor } from '../lessor.ts'
import { BeliefPage, type BeliefSlot, type LoopPulse } from './worker-heartbeat.ts'

/** Renewals that one message may carry. */
const MAX = 10_000
/** The heartbeat renews at half of a term, and again when that fails: with less than this left it is late. */
const LATE = 0.4
const [SHORTEST_LOOK, LONGEST_LOOK] = [5, 1_000]

export interface BackupRenewerOptions {
  readonly lessor: Lessor
  readonly clock: Clock
  readonly pulse: LoopPulse
  /** The part of a term that is given up, for clocks of different rates. */
  readonly margin: number
  readonly maxStall: number
}

/** The worker's end of a pacemaker: renews what the main loop is late with, for as long as that loop is not late by `maxStall`. */
export class BackupRenewer {
  readonly #options: BackupRenewerOptions
  readonly #pages: BeliefPage[] = []
  /** Asked for, or gone: by lease, not again before then. */
  readonly #timeout = new Map<number, number>()
  #shortest = Number.POSITIVE_INFINITY
  #cancel: (() => void) | undefined
  #closed = false

  constructor(options: BackupRenewerOptions) {
    this.#options = options
    this.#look()
  }

  addPage(memory: SharedArrayBuffer): void {
    this.#pages.push(new BeliefPage(memory))
  }

  /** Looks often enough for a term so short. */
  mindTerm(shortest: number): void {
    this.#shortest = Math.min(this.#shortest, shortest)
    this.#look()
  }

  close(): void {
    this.#closed = true
    this.#cancel?.()
  }

  #look(): void {
    const { clock, pulse, maxStall } = this.#options
    this.#cancel?.()
    if (this.#closed) return
    this.#cancel = clock.after(Math.min(LONGEST_LOOK, Math.max(SHORTEST_LOOK, this.#shortest / 16)), () => this.#look(), { ref: true })
    const now = clock.now()
    if (now - pulse.at > maxStall) return
    const late = this.#pages.flatMap(page => [...page.slots()].filter(slot => this.#isLate(slot, now)))
    if (late.length === 0) this.#timeout.clear()
    for (let first = 0; first < late.length; first += MAX) void this.#renew(late.slice(first, first + MAX), now)
  }

  #isLate({ lease, until, term, working }: BeliefSlot, now: number): boolean {
    // What its own clock has ended stays ended, whoever asks.
    return until > now && until - now < term * LATE && working > now && (this.#timeout.get(lease) ?? now) <= now
  }

  async #renew(late: readonly BeliefSlot[], now: number): Promise<void> {
    const { lessor, clock, margin } = this.#options
    const uptime = clock.uptime()
    for (const { lease, until } of late) this.#timeout.set(lease, now + (until - now) / 3)
    try {
      const outcome = await lessor.propose({ kind: 'renew', leases: late.map(({ lease }) => lease) })
      if (outcome.kind !== 'renewed') return
      for (const [i, { page, slot, lease }] of late.entries()) {
        const ttl = outcome.ttls[i]!
        const valid = validOf(ttl, margin, clock)
        if (ttl > 0) page.standFor(slot, lease, { now: now + valid, uptime: uptime + valid })
        else this.#timeout.set(lease, Number.POSITIVE_INFINITY)
      }
    } catch {
      // Asked again while there is time. The main loop finds out what is wrong and tells.
    }
  }
}
