/**
 * Makes the health checks that registrations ask for. Of all servers on a store one checks each instance (see work-shares.ts).
 *
 * A result is an entry on the instance's own lease, written only when it changes. The first result counts at once: until then the instance is
 * `unknown`, and not picked. After that it takes several equal results in a row to change the status. The lease of an instance that stays
 * critical for `endAfter` is ended.
 */
import { setMaxListeners } from 'node:events'
import type { Clock } from '../../clock.ts'
import { propose } from '../../lessor/propose.ts'
import type { Lessor } from '../../lessor.ts'
import { type CheckResult, type HealthCheck, keyOf, UNCHECKED } from '../../registry/entry.ts'
import type { KnownInstance } from '../../registry/known-instance.ts'
import { type Instance, matcherOf } from '../../registry/match.ts'
import type { ServerLog } from '../listener.ts'
import type { Catalog } from './catalog.ts'
import { runCheckCommand } from './check-command.ts'
import { probe as probeTarget } from './probe.ts'
import type { ProbeRules } from './probe-rules.ts'
import { FAST_PROBES, ProbeSlots, SLOW_PROBES } from './probe-slots.ts'
import { WorkShares } from './work-shares.ts'

export interface HealthChecksOptions {
  readonly lessor: Lessor
  readonly catalog: Catalog
  readonly clock: Clock
  readonly log: ServerLog
  readonly rules: ProbeRules
  readonly own: (address: string, port: number) => boolean
  /** Programs that check services, by service: a path and its arguments. Only from the server's own configuration. */
  readonly commands?: Readonly<Record<string, readonly string[]>>
  /** For tests. */
  readonly probe?: typeof probeTarget
}

const INTERVAL = 10_000
const TIMEOUT = 5_000
const FALL = 3
const RISE = 2
/** The first probe of a new instance comes within this time. */
const FIRST_PROBE = 1_000

/** An instance that asks for checks, and the results of its probes on this server. */
class CheckedInstance {
  readonly known: KnownInstance
  instance: Instance
  readonly check: HealthCheck | undefined
  /** The result that this server wrote last; used until the watch has brought it back. */
  written: (CheckResult & { readonly revision: number }) | undefined
  /** True if it ever passed. Until then one success is enough: it is starting, not unstable. */
  hasPassed: boolean
  /** The status of the last probes, and how many in a row had it. */
  lastStatus: CheckResult['status'] | undefined
  inARow = 0
  criticalSince: number | undefined
  cancel: (() => void) | undefined

  constructor(known: KnownInstance) {
    this.known = known
    this.instance = known.instance
    this.check = known.instance.check
    // Another server may have checked it before. Its result is not overturned by a single probe.
    this.hasPassed = isResult(known.result)
  }
}

export class HealthChecks implements AsyncDisposable {
  readonly #options: HealthChecksOptions
  readonly #shares: WorkShares
  readonly #checked = new Map<string, CheckedInstance>()
  readonly #unlisten: () => void
  readonly #slots: ProbeSlots
  readonly #closing = new AbortController()
  /** For metrics and tests. */
  readonly stats = { probes: 0, written: 0, ended: 0 }

  private constructor(options: HealthChecksOptions) {
    const { lessor, catalog, clock } = options
    this.#options = options
    // One listener for each probe in flight; Node warns of more than ten.
    setMaxListeners(FAST_PROBES + SLOW_PROBES, this.#closing.signal)
    this.#slots = new ProbeSlots(clock)
    this.#shares = new WorkShares({ lessor, clock, name: 'checks', id: `checks:${clock.bits().toString(36)}` })
    this.#unlisten = catalog.directory.listen((known, before, after) => this.#changed(known, before, after))
    for (const known of catalog.directory.search(matcherOf({}))) this.#changed(known, undefined, known.instance)
  }

  static async open(options: HealthChecksOptions): Promise<HealthChecks> {
    await options.catalog.ready()
    return new HealthChecks(options)
  }

  /** The number of instances to check, by this server or another. */
  get size(): number {
    return this.#checked.size
  }

  /** Slots in use: probes and commands in flight. */
  get inFlight(): number {
    return this.#slots.inUse
  }

  get #closed(): boolean {
    return this.#closing.signal.aborted
  }

  #changed(known: KnownInstance, before: Instance | undefined, after: Instance | undefined): void {
    const { service, instance } = (after ?? before)!
    const key = `${service}/${instance}`
    const existing = this.#checked.get(key)
    const wanted = after !== undefined && (after.check !== undefined || this.#commandOf(after) !== undefined)
    if (existing !== undefined && wanted && existing.instance.lease === after.lease && existing.check === after.check) {
      existing.instance = after
      return
    }
    existing?.cancel?.()
    this.#checked.delete(key)
    if (!wanted || this.#closed) return
    const checked = new CheckedInstance(known)
    this.#checked.set(key, checked)
    // Spread over the interval: instances that registered together should not be probed together forever.
    this.#plan(key, checked, { share: this.#options.clock.random(), soon: true })
  }

  /** The result in the log, as far as this server knows. */
  #resultOf({ known, written }: CheckedInstance): CheckResult | undefined {
    return written !== undefined && written.revision > this.#options.catalog.directory.revision ? written : known.result
  }

  #commandOf({ service }: Instance): readonly string[] | undefined {
    const { commands = {} } = this.#options
    return Object.hasOwn(commands, service) ? commands[service] : undefined
  }

  /** `soon`: an instance without a result is not picked, so its first probe does not wait for a whole interval. */
  #plan(key: string, checked: CheckedInstance, { share = 0.9 + this.#options.clock.random() / 5, soon = false } = {}): void {
    if (this.#closed || this.#checked.get(key) !== checked) return
    const { interval = INTERVAL } = checked.check ?? {}
    const wait = soon && this.#resultOf(checked) === undefined ? Math.min(interval, FIRST_PROBE) : interval
    checked.cancel = this.#options.clock.after(wait * share, () => void this.#run(key, checked))
  }

  async #run(key: string, checked: CheckedInstance): Promise<void> {
    const isOurs = () => this.#shares.has(partOf(key, this.#shares.parts))
    let probed = false
    try {
      if (!isOurs()) return
      await this.#begin(checked)
      // Ask again inside: another server may have taken the part over while this probe waited for a known.
      const result = await this.#slots.run(checked.instance.service, checked.lastStatus === 'critical', async () =>
        isOurs() && !this.#closed ? this.#probe(checked) : undefined,
      )
      probed = result !== undefined
      // After the slot was released: a store that does not answer must not stop other probes.
      if (result !== undefined && !this.#closed) await this.#record(checked, result)
    } catch (error) {
      this.#options.log.debug({ error: String(error) }, 'the result of a health check could not be written')
    } finally {
      // If no probe was made, the server that has this part may be gone. Its successor should probe soon.
      this.#plan(key, checked, { soon: !probed })
    }
  }

  /** A registration does not know of a command in this server's configuration, so this server must mark the instance as unchecked. */
  async #begin(checked: CheckedInstance): Promise<void> {
    if (checked.check === undefined && this.#resultOf(checked) === undefined)
      await this.#write(checked, { status: 'critical', reason: UNCHECKED })
  }

  #probe({ instance, check }: CheckedInstance): Promise<CheckResult> {
    const { rules, own, clock, probe = probeTarget } = this.#options
    this.stats.probes++
    const command = this.#commandOf(instance)
    const { signal } = this.#closing
    if (command !== undefined) return runCheckCommand(command, { signal, timeout: TIMEOUT })
    return probe(check!.url, { rules, own, clock, signal, timeout: Math.min(check!.timeout ?? TIMEOUT, TIMEOUT) })
  }

  /** Writes the result once it counts: the first one at once, later ones after `fall` or `rise` equal results in a row. */
  async #record(checked: CheckedInstance, result: CheckResult): Promise<void> {
    const { clock } = this.#options
    const { fall = FALL, rise = RISE, endAfter } = checked.check ?? {}
    const { status, reason = '' } = result
    checked.inARow = checked.lastStatus === status ? checked.inARow + 1 : 1
    checked.lastStatus = status
    const enough = checked.inARow >= (status !== 'passing' ? fall : checked.hasPassed ? rise : 1)
    const before = this.#resultOf(checked)
    if (enough || !isResult(before)) {
      if (status === 'passing') checked.hasPassed = true
      if (before?.status !== status || (status !== 'passing' && reason !== (before?.reason ?? '')))
        if (await this.#write(checked, { status, reason })) this.stats.written++
    }
    if (this.#resultOf(checked)?.status !== 'critical') checked.criticalSince = undefined
    else if (status === 'critical' && enough) checked.criticalSince ??= clock.now()
    if (endAfter !== undefined && checked.criticalSince !== undefined && clock.now() - checked.criticalSince >= endAfter)
      await this.#end(checked)
  }

  /** False if the instance was deregistered or replaced. */
  async #write(checked: CheckedInstance, { status, reason = '' }: CheckResult): Promise<boolean> {
    const { instance } = checked
    const { generation, lease } = instance
    const value = JSON.stringify({ status, ...(reason !== '' && { reason }) })
    const outcome = await propose(this.#options.lessor, {
      kind: 'put',
      lease,
      key: keyOf(instance, 'check'),
      value,
      ...(generation > 0 && { generation }),
    })
    if (outcome.kind !== 'done') return false
    checked.written = { status, reason, revision: outcome.revision }
    return true
  }

  async #end({ instance }: CheckedInstance): Promise<void> {
    this.stats.ended++
    await propose(this.#options.lessor, { kind: 'revoke', target: { lease: instance.lease }, by: 'a failed health check' })
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closing.abort()
    this.#unlisten()
    for (const { cancel } of this.#checked.values()) cancel?.()
    this.#checked.clear()
    await this.#shares[Symbol.asyncDispose]()
  }
}

/** False for the mark of an instance that was not checked yet. */
function isResult(result: CheckResult | undefined): boolean {
  return result !== undefined && result.reason !== UNCHECKED
}

/** The part of the work that an instance belongs to: the same on every server. */
function partOf(key: string, parts: number): number {
  let hash = 0x811c9dc5
  for (let i = 0; i < key.length; i++) hash = Math.imul(hash ^ key.charCodeAt(i), 0x01000193)
  return (hash >>> 0) % parts
}
