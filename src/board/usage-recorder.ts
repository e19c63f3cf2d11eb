/** Counts the usage of the devices that a host offers, publishes it now and then, and keeps it across restarts. */
import type { Lease } from '../lease.ts'
import type { Device } from './device.ts'
import type { OfferContext, PoolHolder } from './offer-event.ts'
import type { DeviceReport } from './report.ts'
import { formatUsage, UsageLedger, usageKey } from './usage-ledger.ts'

/** How often usage is published and stored, in ms. */
const INTERVAL = 300_000

/** Keeps a text across restarts. */
export interface UsageStorage {
  /** Undefined: nothing is kept yet. */
  load(): Promise<string | undefined>
  save(text: string): Promise<void>
}

export interface UsageRecorderOptions extends OfferContext {
  readonly storage: UsageStorage | undefined
  /** Utilisation in percent from which a device is busy. */
  readonly busyFrom: number
}

export class UsageRecorder {
  readonly #options: UsageRecorderOptions
  readonly #ledger: UsageLedger
  #publishedAt: number | undefined
  /** The log's own time at a moment of our clock. */
  #logTime: { readonly elapsed: number; readonly now: number } | undefined

  constructor(options: UsageRecorderOptions) {
    this.#options = options
    this.#ledger = new UsageLedger(options.host)
  }

  /** Adds the last `ms` of a device to the usage of its holders, and of processes that use it without a lease. */
  async count(
    ms: number,
    { units = 1 }: Device,
    { utilisation = 0, processes }: DeviceReport,
    holders: readonly PoolHolder[],
  ): Promise<void> {
    if (ms === 0) return
    const at = await this.#now()
    for (const { user, units: taken } of holders) {
      const held = (ms * Math.min(taken, units)) / units
      this.#ledger.add(at, user, { held, busy: utilisation >= this.#options.busyFrom ? held : 0 })
    }
    const strangers = new Set(processes.filter(({ lease }) => lease === 0).map(({ user }) => user))
    for (const user of strangers) this.#ledger.add(at, user, { unleased: ms })
  }

  /** Publishes what has changed, if it is time. */
  async publish(lease: Lease): Promise<void> {
    const { leases, pool, host } = this.#options
    const now = leases.clock.now()
    const all = this.#publishedAt === undefined
    if (!all && now - this.#publishedAt! < INTERVAL) return
    await this.#now()
    for (const day of this.#ledger.publish({ all })) await lease.put(usageKey(pool, host, day.day), formatUsage(day))
    this.#publishedAt = now
    await this.store()
  }

  /** The entries were lost with their lease. */
  publishAgain(): void {
    this.#publishedAt = undefined
  }

  async store(): Promise<void> {
    if (this.#logTime === undefined) return // what is stored was not read yet, and must not be overwritten
    await this.#options.storage?.save(this.#ledger.save()).catch(error => this.#failed(error))
  }

  /** The log's own time, read now and then. In between, our monotonic clock counts. */
  async #now(): Promise<number> {
    const { leases, pool, signal, storage } = this.#options
    const now = leases.clock.now()
    if (this.#logTime === undefined || now - this.#logTime.now > INTERVAL) {
      const { value } = await leases.read({ kind: 'pool', pool }, { signal })
      const stored = this.#logTime === undefined ? await storage?.load().catch(error => this.#failed(error)) : undefined
      if (stored !== undefined) this.#ledger.load(stored, value.elapsed)
      this.#logTime = { elapsed: value.elapsed, now }
    }
    return this.#logTime.elapsed + (now - this.#logTime.now)
  }

  #failed(error: unknown): undefined {
    this.#options.emit({ type: 'problem', message: `the records of usage are not kept across restarts: ${(error as Error).message}` })
  }
}
