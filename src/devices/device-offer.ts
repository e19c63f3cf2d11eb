/**
 * Offers the devices of this host in a pool, while this process lives: one lease with an entry for each device, so that a host that dies takes all of them
 * out of the pool in one revision.
 *
 * Once in each interval it discovers the devices, corrects the entries, reports use and processes, and acts on idle holders. Promised: a device that another host
 * offers already is refused and reported, never taken over. A device stays offered while its discovery fails, for `patience` (presence.ts). A device is reclaimed
 * only for idleness that this process has watched (idle.ts).
 *
 * Not promised: that use without a lease is seen between two looks, or is prevented. It is shown.
 */
import { hostname } from 'node:os'
import { chainAbort, pause } from '../clock.ts'
import { type Duration, milliseconds } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import type { LeaseClient } from '../holder/lease-client.ts'
import type { Lease } from '../lease.ts'
import type { LeaseView } from '../lessor.ts'
import { checkOptionNames } from '../options.ts'
import { ACCOUNT_LABEL, attribute, holderOf } from './attribution.ts'
import type { Device, DeviceDiscovery, DeviceListing } from './device.ts'
import { type Drain, drainOf, drainPrefix, parseDrain } from './drain.ts'
import { type HostProcesses, procProcesses } from './host-processes.ts'
import { IdleMeter, type IdleRules, idleStage } from './idle.ts'
import { type Idleness, IdleReclaim } from './idle-reclaim.ts'
import type { DeviceOfferEvent, PoolHolder } from './offer-event.ts'
import { DevicePresence } from './presence.ts'
import { type DeviceReport, isNews, REFRESH, reportKey, reportOf } from './report.ts'
import { UsageRecorder, type UsageStorage } from './usage-recorder.ts'

export type { DeviceOfferEvent } from './offer-event.ts'

export interface DeviceOfferOptions {
  /** Finds the devices: `nvidiaDiscovery`, `commandDiscovery`, or a function of your own. */
  readonly discover: DeviceDiscovery
  /** Ends the offer. Present holders keep their devices. */
  readonly signal?: AbortSignal | undefined
  /** The name of this host in reports. @default the name of this host */
  readonly host?: string | undefined
  /** The offer looks this often. @default '10s' */
  readonly interval?: Duration | undefined
  /** The devices stay offered this long without a renewal, for example after this host has crashed. @default '30s' */
  readonly ttl?: Duration | undefined
  /** They are suspect this long after that: given to no new taker, and not yet taken from their holders. @default '30s' */
  readonly grace?: Duration | undefined
  /** A device stays offered this long while the discovery fails or does not list it. @default '1m' */
  readonly patience?: Duration | undefined
  /** The offer treats idle holders by these rules. @default nothing */
  readonly idle?: IdleRules | undefined
  /** Where the records of usage are kept across restarts. @default nowhere: they begin anew */
  readonly usage?: UsageStorage | undefined
  readonly onEvent?: ((event: DeviceOfferEvent) => void) | undefined
  /** @default the processes in /proc */
  readonly processes?: HostProcesses | undefined
}

const OPTIONS = ['discover', 'signal', 'host', 'interval', 'ttl', 'grace', 'patience', 'idle', 'usage', 'onEvent', 'processes'] as const

/** Utilisation in percent from which a device counts as busy, if the idle rules do not say. */
const BUSY = 5

interface OfferedDevice {
  readonly meter: IdleMeter
  /** The value of its entry in the pool; undefined while it is refused or drained. */
  listed: string | undefined
  /** It is not offered, and its present holders and its use are still reported. */
  drained: boolean
  report: DeviceReport | undefined
  reportedAt: number
  /** The last refusal, so that each is reported once. */
  refusal: string
}

/**
 * @example
 * await using offer = await DeviceOffer.start(leases, 'gpus', { discover })
 */
export class DeviceOffer implements AsyncDisposable {
  readonly #leases: LeaseClient
  readonly #pool: string
  readonly #host: string
  readonly #options: DeviceOfferOptions
  readonly #interval: number
  readonly #presence: DevicePresence
  readonly #devices = new Map<string, OfferedDevice>()
  /** The holders of our devices by lease: what a lease says about them never changes. */
  readonly #known = new Map<number, PoolHolder>()
  readonly #usage: UsageRecorder
  readonly #reclaim: IdleReclaim
  readonly #stop = new AbortController()
  #lookedAt: number | undefined
  #lease: Lease | undefined
  #problem = ''
  #reading = ''
  /** The key may not read drains. */
  #isBlind = false
  /** Settles when the offer has ended: undefined, or the reason why it cannot go on. */
  ended: Promise<LeaseError | undefined> = Promise.resolve(undefined)

  private constructor(leases: LeaseClient, pool: string, options: DeviceOfferOptions) {
    checkOptionNames('DeviceOffer', options, OPTIONS)
    this.#leases = leases
    this.#pool = pool
    this.#options = options
    this.#host = options.host ?? hostname()
    this.#interval = milliseconds(options.interval ?? '10s', 'interval')
    if (this.#interval < 100) throw new LeaseError('INVALID', `interval must be at least 100 ms, not ${this.#interval} ms`)
    const context = {
      leases,
      pool,
      host: this.#host,
      signal: this.#stop.signal,
      emit: (event: DeviceOfferEvent) => options.onEvent?.(event),
    }
    this.#usage = new UsageRecorder({ ...context, storage: options.usage, busyFrom: options.idle?.below ?? BUSY })
    this.#reclaim = new IdleReclaim(context)
    this.#presence = new DevicePresence(milliseconds(options.patience ?? '1m', 'patience'))
    checkIdleRules(options.idle)
  }

  /** Resolves when the devices that were found first are offered. Rejects if the first discovery fails. */
  static async start(leases: LeaseClient, pool: string, options: DeviceOfferOptions): Promise<DeviceOffer> {
    const offer = new DeviceOffer(leases, pool, options)
    const unchain = chainAbort(options.signal, offer.#stop)
    try {
      const listing = await options.discover(offer.#stop.signal)
      const [problem = ''] = listing.problems
      if (problem !== '' && listing.devices.length === 0) throw new LeaseError('UNAVAILABLE', problem, { reason: 'program-output' })
      offer.#setProblem(problem)
      await offer.#offer(listing)
    } catch (error) {
      unchain()
      await offer.#release()
      throw error
    }
    offer.ended = offer.#run().finally(unchain)
    return offer
  }

  /** The ids of the devices that are offered now. */
  get members(): readonly string[] {
    return [...this.#devices].flatMap(([id, { listed }]) => (listed === undefined ? [] : [id]))
  }

  /** Ends the offer. No new taker gets its devices, and present holders keep theirs. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort(new LeaseError('GONE', 'the offer has ended'))
    await this.ended
  }

  async #run(): Promise<LeaseError | undefined> {
    const { clock } = this.#leases
    try {
      for (;;) {
        await pause(clock, this.#interval, this.#stop.signal, { ref: true })
        await this.#look()
      }
    } catch (error) {
      return this.#stop.signal.aborted || !(error instanceof LeaseError) ? undefined : error
    } finally {
      await this.#release()
    }
  }

  async #release(): Promise<void> {
    await this.#usage.close()
    await this.#lease?.release().catch(() => {}) // it lapses by itself
  }

  async #look(): Promise<void> {
    const { signal } = this.#stop
    let listing: DeviceListing | undefined
    try {
      listing = await this.#options.discover(signal)
      this.#setProblem(listing.problems[0] ?? '')
    } catch (error) {
      signal.throwIfAborted()
      this.#setProblem((error as Error).message)
    }
    try {
      await this.#offer(listing)
    } catch (error) {
      signal.throwIfAborted()
      // A newer process offers the devices of this host. Two of them would take turns.
      if (LeaseError.is(error, 'STALE', 'FORBIDDEN', 'INVALID', 'UNAUTHENTICATED')) throw error
      if (this.#leases.lessor.signal.aborted) throw error
      this.#setProblem((error as Error).message)
    }
  }

  /** Corrects the entries and reports after a run of the discovery; undefined if that failed. */
  async #offer(listing: DeviceListing | undefined): Promise<void> {
    const { clock } = this.#leases
    const now = clock.now()
    const lease = await this.#held()
    await this.#compare(lease)
    for (const id of this.#presence.update(now, listing)) await this.#withdraw(lease, id)
    const drains = await this.#drains()
    const at = drains.length === 0 ? 0 : await this.#usage.now(lease)
    for (const device of this.#presence.devices) {
      const drain = drainOf(drains, device.id, this.#host)
      if (drain !== undefined && drain.from <= at) await this.#drain(lease, device.id, drain)
      else await this.#list(lease, device)
    }
    const seen = new Map(listing?.devices.map(device => [device.id, device]))
    const holders = await this.#holders()
    if (holders === undefined) return
    for (const device of this.#presence.devices) {
      const offered = this.#devices.get(device.id)
      if (offered === undefined || !isReported(offered)) continue
      const present = seen.get(device.id)
      const leasesOn = holders.filter(({ resources }) => resources.includes(`${this.#pool}/${device.id}`))
      const { below = 0 } = this.#options.idle ?? {}
      const key = leasesOn.map(({ lease }) => lease).join()
      offered.meter.sample(now, key, present?.utilisation, below, this.#longestGap)
      await this.#report(lease, device, offered, present, leasesOn)
      const ms = now - (this.#lookedAt ?? now)
      // After a longer gap this process did not run, and nothing is known about that time.
      if (ms <= this.#longestGap) await this.#usage.count(lease, ms, device, offered.report!, leasesOn)
    }
    this.#lookedAt = now
    await this.#usage.publish(lease)
    if (this.#options.idle !== undefined) await this.#reclaim.act(holders, resource => this.#idleness(resource))
  }

  /** Returns how idle one of our devices is; undefined for a resource that is not ours. */
  #idleness(resource: string): Idleness | undefined {
    const { report, meter } = this.#devices.get(resource.slice(this.#pool.length + 1)) ?? {}
    return report && meter && { stage: report.stage, ms: meter.ms }
  }

  /** The most ms between two looks that count. */
  get #longestGap(): number {
    return 3 * this.#interval + 60_000
  }

  /** The lease of the offer. It is made again after it was lost. */
  async #held(): Promise<Lease> {
    if (this.#lease?.held) return this.#lease
    if (this.#lease !== undefined) {
      this.#emit({ type: 'lost', message: `the offer of ${this.#pool} was lost: ${endOf(this.#lease)}. It is made again.` })
      for (const offered of this.#devices.values()) Object.assign(offered, { listed: undefined, report: undefined })
      this.#usage.publishAgain()
    }
    const { ttl = '30s', grace = '30s' } = this.#options
    this.#lease = undefined
    this.#lease = await this.#leases.grant({ ttl, advanced: { grace }, labels: { host: this.#host, offers: this.#pool } })
    return this.#lease
  }

  /** Finds entries that are no longer ours. One that is missing is written again; if a newer process of this host has them, this offer ends. */
  async #compare(lease: Lease): Promise<void> {
    if (this.members.length === 0) return
    const prefix = `pool/${this.#pool}`
    const { value } = await this.#leases.read({ kind: 'entries', prefix }, { signal: this.#stop.signal }).catch(error => {
      if (LeaseError.is(error, 'FORBIDDEN')) return { value: undefined }
      throw error
    })
    if (value === undefined) return
    const owners = new Map(value.map(entry => [entry.key, entry]))
    for (const [id, offered] of this.#devices) {
      const entry = owners.get(`${prefix}/${id}`)
      if (offered.listed === undefined || entry?.lease === lease.id) continue
      if (entry?.holder === lease.holder)
        throw new LeaseError('STALE', `another process of ${lease.holder} offers the devices of ${this.#pool} now, so this one ends`)
      Object.assign(offered, { listed: undefined, report: undefined })
    }
  }

  async #list(lease: Lease, { id, labels, units = 1 }: Device): Promise<void> {
    const known = this.#devices.get(id)
    const offered = known ?? newDevice()
    this.#devices.set(id, offered)
    offered.drained = false
    const value = JSON.stringify({ labels, units })
    if (offered.listed === value) return
    const isNew = offered.listed === undefined
    try {
      await lease.put(`pool/${this.#pool}/${id}`, value)
    } catch (error) {
      if (!LeaseError.is(error, 'HELD')) throw error
      offered.listed = undefined
      const holder = String(error.facts.holder)
      if (offered.refusal === holder) return
      offered.refusal = holder
      const message = `${id} is refused: ${holder} offers a device with the same id already. Two hosts cannot offer one device.`
      this.#emit({ type: 'refused', member: id, message })
      return
    }
    Object.assign(offered, { listed: value, refusal: '' })
    if (isNew) this.#emit({ type: 'offered', member: id, message: `offered ${id} (${labels.model ?? labels.kind ?? 'no model'})` })
  }

  /** The drains of the pool. A key that may not read them offers everything. */
  async #drains(): Promise<readonly Drain[]> {
    const { signal } = this.#stop
    try {
      const { value } = await this.#leases.read({ kind: 'entries', prefix: drainPrefix(this.#pool) }, { signal })
      return value.flatMap(({ value }) => parseDrain(value) ?? [])
    } catch (error) {
      if (!LeaseError.is(error, 'FORBIDDEN')) throw error
      if (!this.#isBlind) this.#emit({ type: 'problem', message: `drains of ${this.#pool} have no effect here: ${error.message}` })
      this.#isBlind = true
      return []
    }
  }

  async #drain(lease: Lease, id: string, { by }: Drain): Promise<void> {
    const offered = this.#devices.get(id) ?? newDevice()
    this.#devices.set(id, offered)
    if (offered.listed !== undefined)
      await lease.delete(`pool/${this.#pool}/${id}`).catch(error => {
        if (!LeaseError.is(error, 'NOT_FOUND', 'STALE')) throw error
      })
    offered.listed = undefined
    if (offered.drained) return
    offered.drained = true
    const message = `${id} is drained by ${by}: its holders keep it, and no other taker gets it until the drain is cancelled`
    this.#emit({ type: 'withdrawn', member: id, message })
  }

  async #withdraw(lease: Lease, id: string): Promise<void> {
    const offered = this.#devices.get(id)
    this.#devices.delete(id)
    if (offered === undefined || !isReported(offered)) return
    for (const key of [`pool/${this.#pool}/${id}`, reportKey(this.#pool, id)])
      await lease.delete(key).catch(error => {
        if (!LeaseError.is(error, 'NOT_FOUND', 'STALE')) throw error
      })
    const message = `withdrew ${id}: it is no longer found. Its holder keeps the lease, and no other taker gets the device.`
    this.#emit({ type: 'withdrawn', member: id, message })
  }

  async #report(
    lease: Lease,
    device: Device,
    offered: OfferedDevice,
    present: Device | undefined,
    holders: readonly PoolHolder[],
  ): Promise<void> {
    const { clock } = this.#leases
    const { idle, processes: table = procProcesses } = this.#options
    const context = { processes: table, host: this.#host, uptime: clock.uptime() }
    const processes = attribute(present?.processes ?? [], holders, context)
    const stage = idle === undefined ? 'none' : idleStage(idle, offered.meter.ms)
    const problem = this.#problem === '' ? undefined : this.#problem
    const { utilisation: _, memoryUsed: __, ...unknown } = device
    const report = reportOf({ host: this.#host, device: present ?? unknown, processes, idle: offered.meter.ms, stage, problem })
    for (const { pid, user, lease } of report.processes)
      if (lease === 0 && !offered.report?.processes.some(before => before.pid === pid && before.lease === 0))
        this.#emit({ type: 'unleased', member: device.id, message: `${device.id} is used without a lease: process ${pid} of ${user}` })
    const due = clock.now() - offered.reportedAt >= REFRESH && JSON.stringify(report) !== JSON.stringify(offered.report)
    if (!due && !isNews(offered.report, report)) return
    await lease.put(reportKey(this.#pool, device.id), JSON.stringify(report))
    Object.assign(offered, { report, reportedAt: clock.now() })
  }

  /** The leases that hold our devices. Undefined if the key may not read them: then the devices are only offered. */
  async #holders(): Promise<readonly PoolHolder[] | undefined> {
    const { signal } = this.#stop
    try {
      const grants = new Map<string, readonly number[]>()
      for (const [id, offered] of this.#devices) {
        if (!isReported(offered)) continue
        const resource = `${this.#pool}/${id}`
        const { value } = await this.#leases.read({ kind: 'resource', resource }, { signal })
        grants.set(
          resource,
          value.grants.map(({ lease }) => lease),
        )
      }
      const ids = new Set([...grants.values()].flat())
      for (const known of this.#known.keys()) if (!ids.has(known)) this.#known.delete(known)
      let accounts: ReadonlyMap<number, string> | undefined
      for (const lease of ids)
        if (!this.#known.has(lease)) {
          const { value } = await this.#leases.read({ kind: 'lease', lease }, { signal })
          accounts ??= await this.#accounts()
          const holder = value && poolHolder(value, this.#pool, accounts.get(lease))
          if (holder !== undefined) this.#known.set(lease, holder)
        }
      this.#reading = ''
      // It may have given back one of its members.
      const holds = (lease: number, resource: string) => grants.get(resource)?.includes(lease) ?? true
      return [...this.#known.values()].map(holder => ({
        ...holder,
        resources: holder.resources.filter(resource => holds(holder.lease, resource)),
      }))
    } catch (error) {
      if (!LeaseError.is(error, 'FORBIDDEN')) throw error
      if (this.#reading === '')
        this.#emit({ type: 'problem', message: `use is not reported, because the holders cannot be read: ${error.message}` })
      this.#reading = error.message
      return undefined
    }
  }

  /** The accounts that the leases of the pool count for. */
  async #accounts(): Promise<ReadonlyMap<number, string>> {
    const { value } = await this.#leases.read({ kind: 'pool', pool: this.#pool, limit: 0 }, { signal: this.#stop.signal })
    return new Map(value.members.flatMap(({ grants }) => grants.map(({ lease, account }) => [lease, account] as const)))
  }

  #setProblem(problem: string): void {
    if (problem === this.#problem) return
    this.#problem = problem
    if (problem === '') this.#emit({ type: 'recovered', message: 'the devices are found again' })
    else this.#emit({ type: 'problem', message: `${problem}. Devices stay offered for a while.` })
  }

  #emit(event: DeviceOfferEvent): void {
    this.#options.onEvent?.(event)
  }
}

function newDevice(): OfferedDevice {
  return { meter: new IdleMeter(), listed: undefined, drained: false, report: undefined, reportedAt: 0, refusal: '' }
}

function isReported({ listed, drained }: OfferedDevice): boolean {
  return listed !== undefined || drained
}

function poolHolder({ lease, labels, holder, grants, status }: LeaseView, pool: string, account = ''): PoolHolder | undefined {
  if (status === 'frozen') return undefined // it has ended, and its units are withheld until its holder has stopped
  const inPool = grants.filter(({ resource }) => resource.startsWith(`${pool}/`)).map(({ resource }) => resource)
  const process = holderOf(lease, labels, holder)
  const named = account || (new Map(labels).get(ACCOUNT_LABEL) ?? process.user)
  const units = grants[0]?.units ?? 1
  return { ...process, account: named, resources: inPool, units, others: inPool.length < grants.length }
}

function checkIdleRules(idle: IdleRules | undefined): void {
  if (idle === undefined) return
  const { below, warn, recall, end } = idle
  if (!(below > 0 && below <= 100)) throw new LeaseError('INVALID', `idle.below must be a percentage above 0, not ${below}`)
  const given = [warn, recall, end].filter(ms => ms !== undefined)
  if (given.length === 0) throw new LeaseError('INVALID', 'idle has no stage: give warn, recall or end')
  for (const [i, ms] of given.entries())
    if (i > 0 && ms <= given[i - 1]!)
      throw new LeaseError('INVALID', 'the stages of idle come one after the other: warn before recall, recall before end')
}

function endOf({ signal }: Lease): string {
  return (signal.reason as Error | undefined)?.message ?? 'it has ended'
}
