/** Counts the usage of the devices that a host offers, publishes it now and then, and keeps it across restarts. */
import type { Lease } from '../lease.ts'
import type { Device } from './device.ts'
import type { OfferContext, PoolHolder } from './offer-event.ts'
import type { DeviceReport } from './report.ts'
import { SumsWriter } from './sums-writer.ts'
import { formatUsage, UsageLedger, usageKey } from './usage-ledger.ts'

/** Usage is published and stored this often, in ms. The first times come sooner, so that a new offer shows something. */
const INTERVAL = 300_000
const FIRST_INTERVAL = 5_000
const CLOSE_TIMEOUT = 2_000

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
  readonly #sums: SumsWriter
  #publishedAt: number | undefined
  #pause = FIRST_INTERVAL
  /** The wall time of the log at a moment of our clock: that of the grant of a lease. */
  #anchor: { readonly lease: number; readonly since: number; readonly now: number } | undefined

  constructor(options: UsageRecorderOptions) {
    this.#options = options
    this.#ledger = new UsageLedger(options.host)
    this.#sums = new SumsWriter(options)
  }

  /** Adds the last `ms` of a device to the usage of its holders, and of processes that use it without a lease. */
  async count(
    lease: Lease,
    ms: number,
    { units = 1, labels }: Device,
    { utilisation = 0, processes }: DeviceReport,
    holders: readonly PoolHolder[],
  ): Promise<void> {
    if (ms === 0) return
    const at = await this.now(lease)
    const kind = labels.kind ?? labels.model ?? ''
    for (const { user, account, units: taken } of holders) {
      const held = (ms * Math.min(taken, units)) / units
      const amounts = { held, busy: utilisation >= this.#options.busyFrom ? held : 0 }
      this.#ledger.add(at, user, amounts)
      this.#sums.add(at, { account, user, kind }, amounts)
    }
    const strangers = new Set(processes.filter(({ lease }) => lease === 0).map(({ user }) => user))
    for (const user of strangers) {
      this.#ledger.add(at, user, { unleased: ms })
      this.#sums.add(at, { account: user, user, kind }, { unleased: ms })
    }
  }

  /** Publishes what has changed, if it is time. */
  async publish(lease: Lease): Promise<void> {
    const { leases, pool, host } = this.#options
    const now = leases.clock.now()
    const all = this.#publishedAt === undefined
    if (!all && now - this.#publishedAt! < this.#pause) return
    const at = await this.now(lease)
    const days = this.#ledger.publish({ all }).filter(({ rows }) => rows.length > 0)
    if (days.length === 0) return // publish the first use at once
    this.#pause = Math.min(INTERVAL, 2 * this.#pause)
    for (const day of days) await lease.put(usageKey(pool, host, day.day), formatUsage({ ...day, at }))
    this.#publishedAt = now
    await this.#sums.write(at, this.#options.signal)
    await this.store()
  }

  /** The entries were lost with their lease. */
  publishAgain(): void {
    this.#publishedAt = undefined
  }

  /** Keeps what was counted since it was published last. The offer has ended, so there is little time. */
  async close(): Promise<void> {
    const { leases } = this.#options
    await this.store()
    if (this.#anchor === undefined) return
    const over = new AbortController()
    const cancel = leases.clock.after(CLOSE_TIMEOUT, () => over.abort(), { ref: true })
    const at = this.#anchor.since + (leases.clock.now() - this.#anchor.now)
    await this.#sums.write(at, over.signal).catch(() => {}) // a lessor that does not answer now has what was written before
    cancel()
  }

  async store(): Promise<void> {
    if (this.#anchor === undefined) return // what is stored was not read yet, and must not be overwritten
    await this.#options.storage?.save(this.#ledger.save()).catch(error => this.#failed(error))
  }

  /**
   * The wall time of the log, as far as it is known: when the lease of the offer was granted, and what our monotonic clock has counted since. So all hosts
   * count in the days of the server, whatever their own clocks show.
   */
  async now(lease: Lease): Promise<number> {
    const { leases, signal, storage } = this.#options
    const now = leases.clock.now()
    if (this.#anchor?.lease !== lease.id) {
      const { value } = await leases.read({ kind: 'lease', lease: lease.id }, { signal })
      const since = value?.since ?? leases.clock.wall()
      const stored = this.#anchor === undefined ? await storage?.load().catch(error => this.#failed(error)) : undefined
      if (stored !== undefined) this.#ledger.load(stored, since)
      this.#anchor = { lease: lease.id, since, now }
    }
    return this.#anchor.since + (now - this.#anchor.now)
  }

  #failed(error: unknown): undefined {
    this.#options.emit({ type: 'problem', message: `the records of usage are not kept across restarts: ${(error as Error).message}` })
  }
}
