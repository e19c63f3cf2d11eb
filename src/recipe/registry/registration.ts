/**
 * A registration in the hands of its owner: a lease that carries the description of an instance, renewed while this process lives.
 *
 * Not promised: that no other process is listed under the same name after this registration lapsed. A registration is not a lock and does not
 * exclude other holders. So it is not given up when renewals stay unanswered: they are repeated until one is answered, and if the lease has lapsed meanwhile,
 * the instance registers again, after a random pause. Promised: its owner is told what happened (`onEvent`, and the diagnostics channel
 * `leasehold:registry`), and a registration that was replaced never takes the name back from its successor.
 */

import { channel } from 'node:diagnostics_channel'
import { BACKOFF, jittered, pauseAfter } from '../../backoff.ts'
import { type Clock, pause } from '../../clock.ts'
import { type Duration, inWords, milliseconds } from '../../duration.ts'
import { LeaseError } from '../../errors.ts'
import type { Acquire, Attachment, Command } from '../../kernel/command.ts'
import type { Outcome } from '../../kernel/outcome.ts'
import type { Lessor } from '../../lessor.ts'
import { refusedError } from '../../refused-error.ts'
import {
  entryOf,
  type InstanceState,
  keyOf,
  type RegistrationData,
  type RegistrationInput,
  registrationOf,
  stateEntryOf,
  stateOf,
} from '../../registry/entry.ts'
import type { UnresolvedAcquires } from './unresolved-acquires.ts'
import { WriteQueue } from './write-queue.ts'

export interface RegisterOptions {
  /**
   * The instance stays listed this long without a renewal. This process renews it about twice as often.
   * @default '30s'
   */
  readonly ttl?: Duration | undefined
  /**
   * The registration is renewed this often, at most half of the ttl: a lost renewal can then be repeated before the instance is suspect.
   * @default a third of the ttl
   */
  readonly heartbeat?: Duration | undefined
  /**
   * The instance is listed as `suspect` this long after its ttl, before it is removed.
   * @default half of the ttl
   */
  readonly grace?: Duration | undefined
  /**
   * `deregister` lists the instance as `draining` this long before it removes it.
   * @default 0
   */
  readonly drain?: Duration | undefined
  /**
   * The call waits this long for a name that another holder still has, for example a predecessor that was killed.
   * @default 0: throw `HELD` at once
   */
  readonly wait?: Duration | undefined
  /** Ends the attempt to register. It has no effect on a registration that was made. */
  readonly signal?: AbortSignal | undefined
  /** Called when something happens to the registration. */
  readonly onEvent?: ((event: RegistrationEvent) => void) | undefined
}

/** An instance to register. `instance` is the holder's name by default (`host:pid`). */
export type RegisterInput = Omit<RegistrationInput, 'instance'> & { readonly instance?: string } & Partial<InstanceState>

export interface RegistrationEvent {
  /**
   * - `unreachable`: a renewal was not answered.
   * - `reached`: a renewal was answered again.
   * - `lapsed`: the lease is gone. The instance registers again by itself.
   * - `registered`: it is registered again.
   * - `ended`: it is over for good, see `reason`.
   * - `unchecked`: the instance asks for a health check and no server makes any, so its status stays `unknown`.
   */
  readonly type: 'unreachable' | 'reached' | 'lapsed' | 'registered' | 'ended' | 'unchecked'
  readonly services: readonly string[]
  readonly lease: number
  readonly reason?: LeaseError
}

/** The fields that can be changed while an instance is registered. */
export type RegistrationChange = Partial<InstanceState> & Partial<Omit<RegistrationInput, 'service' | 'instance' | 'generation'>>

/** The part of `Leases` that the registry uses. */
export interface RegistryContext {
  readonly holder: string
  readonly clock: Clock
  readonly lessor: Lessor
  /** Proposes a command under an operation id, and repeats it until there is an outcome. */
  decide(
    command: Command,
    options?: { readonly ttl?: number; readonly late?: (outcome: Outcome) => void; readonly settled?: () => void },
  ): Promise<Outcome>
  /** Rejects after `ms` without an answer. */
  within<T>(ms: number, answer: Promise<T>): Promise<T>
}

/** Renews registrations, and registers them again after they lapsed. */
export interface RegistrationKeeper {
  forget(registered: OwnRegistration): void
  lost(registered: OwnRegistration): void
  abandon(outcome: Outcome): void
  readonly unresolved: UnresolvedAcquires
  release(lease: number, ttl: number): Promise<void>
}

const diagnostics = channel('leasehold:registry')
/** A registration waits this long, or for its ttl if that is longer, for an earlier one whose outcome is unknown. */
const UNRESOLVED_TIMEOUT = 10_000
/** Write a load at most once in this many ms. */
const LOAD_INTERVAL = 1_000

interface RegisteredInstance {
  registration: RegistrationData
  state: InstanceState
  /** This was last written to the log of both; undefined if that failed, and the log may have either. */
  listed: RegistrationData | undefined
  written: InstanceState | undefined
  readonly entryWrites: WriteQueue
  readonly stateWrites: WriteQueue
}

/**
 * One or more registered instances on one lease. They are renewed together, and end together.
 *
 * @example
 * await using me = await leases.registry.register({ service: 'planner', address: 'http://10.0.0.7:8080' })
 * await me.update({ load: 3 })
 * await me.deregister()
 */
export interface Registration extends AsyncDisposable {
  /** The ttl in ms: the instances stay listed this long without a renewal. */
  readonly ttl: number
  /** The id of the lease; 0 while the instance is not registered. */
  readonly lease: number
  /** True while it is registered. False after a lapse, until it is registered again. */
  readonly registered: boolean
  /** The instances, with all defaults filled in. */
  readonly instances: readonly RegistrationData[]
  /** Fires when it is over for good: deregistered, replaced by another, or refused. */
  readonly signal: AbortSignal
  /**
   * Changes all instances of this registration, or those of one `service`. A status is written at once, a load at most once a second, and an
   * unchanged value not at all. Resolves when the change is in the log.
   *
   * @example
   * await me.update({ status: 'warning', load: 7 })
   */
  update(change: RegistrationChange, options?: { readonly service?: string }): Promise<void>
  /** Sets the status to `draining`: still listed, but not picked any more. */
  drain(): Promise<void>
  /** Removes all instances in one revision, after they were listed as `draining` for the time of the `drain` option. Safe to repeat. */
  deregister(): Promise<void>
  /** The same as `deregister`. */
  close(): Promise<void>
}

/** A registration as its registrar sees it: with when to renew it, and what became of its renewals. */
export class OwnRegistration implements Registration {
  readonly ttl: number
  readonly #grace: number
  readonly #heartbeat: number
  readonly #drain: number
  readonly #context: RegistryContext
  readonly #keeper: RegistrationKeeper
  readonly #instances: RegisteredInstance[]
  readonly #onEvent: RegisterOptions['onEvent']
  readonly #over = new AbortController()
  #incarnation: number | undefined
  #lease = 0
  #unreachable = false
  #deregistering: Promise<void> | undefined
  #loadWrittenAt = Number.NEGATIVE_INFINITY
  #loadPending: Promise<void> | undefined

  /** For the keeper: when to renew, how many tries failed, and whether one is in flight. */
  nextRenewal = 0
  failures = 0
  busy = false

  constructor(context: RegistryContext, keeper: RegistrationKeeper, inputs: readonly RegisterInput[], options: RegisterOptions) {
    const ttl = milliseconds(options.ttl ?? '30s', 'ttl')
    this.ttl = ttl
    this.#grace = options.grace === undefined ? Math.floor(ttl / 2) : milliseconds(options.grace, 'grace')
    this.#heartbeat = options.heartbeat === undefined ? ttl / 3 : milliseconds(options.heartbeat, 'heartbeat')
    if (!(this.#heartbeat > 0 && this.#heartbeat <= ttl / 2))
      throw new LeaseError(
        'INVALID',
        `heartbeat must be above 0 and at most half of the ttl of ${inWords(ttl)}, which is ${inWords(ttl / 2)}`,
      )
    this.#drain = milliseconds(options.drain ?? 0, 'drain')
    this.#context = context
    this.#keeper = keeper
    this.#onEvent = options.onEvent
    this.#instances = inputs.map(({ status, load, instance = context.holder.replaceAll('/', '-'), ...rest }) => {
      const state = stateOf({ ...(status !== undefined && { status }), ...(load !== undefined && { load }) })
      const registration = registrationOf({ ...rest, instance })
      return { registration, state, listed: undefined, written: undefined, entryWrites: new WriteQueue(), stateWrites: new WriteQueue() }
    })
    if (inputs.length === 0) throw new LeaseError('INVALID', 'there is nothing to register')
  }

  get lease(): number {
    return this.#lease
  }

  get registered(): boolean {
    return this.#lease !== 0
  }

  get instances(): readonly RegistrationData[] {
    return this.#instances.map(({ registration }) => registration)
  }

  get signal(): AbortSignal {
    return this.#over.signal
  }

  /** Acquires the lease with all entries. Throws what the lessor refused. */
  async acquire(): Promise<void> {
    const { clock, holder } = this.#context
    const { unresolved } = this.#keeper
    const keys = this.instances.map(each => keyOf(each))
    const settled = unresolved.settled(keys)
    if (settled !== undefined) await this.#context.within(Math.max(UNRESOLVED_TIMEOUT, this.ttl), settled)
    const sent = clock.now()
    const instances = [...this.#instances]
    const sentValues = instances.map(({ registration, state }) => ({ registration, state }))
    const command: Acquire = {
      kind: 'acquire',
      holder,
      ttl: this.ttl,
      wants: [],
      grace: this.#grace,
      entries: instances.flatMap(({ registration, state }): Attachment[] =>
        state.status === 'passing' && state.load === 0
          ? [entryOf(registration)]
          : [entryOf(registration), stateEntryOf(registration, state)],
      ),
      ...(this.#incarnation !== undefined && { incarnation: this.#incarnation }),
    }
    const outcome = await unresolved.track(keys, settled =>
      this.#context.decide(command, { ttl: this.ttl, late: late => this.#keeper.abandon(late), settled }),
    )
    if (outcome.kind !== 'granted') throw refusalOf(outcome)
    this.#incarnation ??= outcome.incarnation
    if (this.#over.signal.aborted) return this.#keeper.abandon(outcome)
    this.#lease = outcome.lease
    this.renewed(sent, outcome.ttl)
    for (const [i, instance] of instances.entries()) {
      instance.listed = sentValues[i]!.registration
      instance.written = sentValues[i]!.state
      // Changes made while the acquire was in flight.
      this.#writeEntry(instance).catch(() => {})
      this.#writeState(instance).catch(() => {})
    }
  }

  /** A renewal sent at `sent` was answered with a ttl of `term`. */
  renewed(sent: number, term: number): void {
    this.failures = 0
    // The first term may be shorter than the ttl.
    this.nextRenewal = sent + Math.min(this.#heartbeat, term / 2) * (0.9 + this.#context.clock.random() / 10)
    if (this.#unreachable) this.report('reached')
    this.#unreachable = false
  }

  /** A renewal was not answered. */
  missed(): void {
    if (!this.#unreachable) this.report('unreachable')
    this.#unreachable = true
    this.nextRenewal = this.#context.clock.now() + this.retry()
  }

  retry(): number {
    return jittered(this.#context.clock, Math.min(this.ttl / 4, pauseAfter(BACKOFF.registration, this.failures++)))
  }

  /** The lessor has no such lease any more. */
  lapsed(): void {
    if (this.#lease === 0) return
    this.report('lapsed')
    this.#lease = 0
    this.#unreachable = false
  }

  /** Publishes an event to `onEvent` and the diagnostics channel. */
  report(type: RegistrationEvent['type'], reason?: LeaseError): void {
    const event = { type, services: this.#instances.map(({ registration }) => registration.service), lease: this.#lease }
    const message: RegistrationEvent = reason === undefined ? event : { ...event, reason }
    if (diagnostics.hasSubscribers) diagnostics.publish(message)
    // Without a warning the instance would never be picked, and no call would fail.
    if (type === 'unchecked' && this.#onEvent === undefined)
      process.emitWarning(`${event.services.join(', ')}: ${reason?.message}`, { type: 'LeaseholdWarning', code: 'LEASEHOLD_UNCHECKED' })
    try {
      this.#onEvent?.(message)
    } catch (error) {
      // An error in a callback must not stop renewals, and must not be swallowed either.
      process.emitWarning(`a registration's onEvent failed: ${String(error)}`, { type: 'LeaseholdWarning', code: 'LEASEHOLD_EVENT' })
    }
  }

  /** `other`, of the same process, has these names now. This registration continues with the rest of its instances, or ends. */
  replacedBy(other: OwnRegistration): void {
    const taken = new Set(other.instances.map(each => keyOf(each)))
    const { service, instance } = this.#instances[0]!.registration
    const kept = this.#instances.filter(({ registration }) => !taken.has(keyOf(registration)))
    if (kept.length === this.#instances.length) return
    if (kept.length > 0) {
      this.#instances.splice(0, this.#instances.length, ...kept)
      return
    }
    const lease = this.#lease
    this.end(
      new LeaseError('GONE', `${service}/${instance} was registered again by this process. To keep both, give each its own instance name`),
    )
    if (lease !== 0) this.#keeper.release(lease, this.ttl).catch(() => {}) // it carries nothing any more, and lapses by itself
  }

  /** Ends it for good. */
  end(reason: LeaseError): void {
    if (this.#over.signal.aborted) return
    this.#keeper.forget(this)
    this.report('ended', reason)
    this.#lease = 0
    this.#over.abort(reason)
  }

  async update(change: RegistrationChange, { service }: { readonly service?: string } = {}): Promise<void> {
    if (this.#over.signal.aborted) throw this.#over.signal.reason
    const { status, load, ...rest } = change
    const writes: Promise<void>[] = []
    for (const instance of this.#instances) {
      if (service !== undefined && instance.registration.service !== service) continue
      if (Object.keys(rest).length > 0) writes.push(this.#writeRegistration(instance, rest))
      instance.state = stateOf({ ...(status !== undefined && { status }), ...(load !== undefined && { load }) }, instance.state)
      if (instance.state.status !== instance.written?.status) writes.push(this.#writeState(instance))
      else if (instance.state.load !== instance.written.load) writes.push(this.#writeLoad())
    }
    await Promise.all(writes)
  }

  drain(): Promise<void> {
    return this.update({ status: 'draining' })
  }

  async #writeRegistration(instance: RegisteredInstance, change: Partial<RegistrationInput>): Promise<void> {
    const { address, ...rest } = change
    instance.registration = registrationOf({
      ...instance.registration,
      ...(address !== undefined && { addresses: [address] }),
      ...rest,
    })
    await this.#writeEntry(instance)
  }

  #writeEntry(instance: RegisteredInstance): Promise<void> {
    return instance.entryWrites.write(async () => {
      const { registration, listed } = instance
      const entry = entryOf(registration)
      if (listed !== undefined && entryOf(listed).value === entry.value) return
      instance.listed = registration
      await this.#put(entry).catch(error => {
        instance.listed = undefined
        throw error
      })
    })
  }

  #writeState(instance: RegisteredInstance): Promise<void> {
    return instance.stateWrites.write(async () => {
      const { registration, state, written } = instance
      if (written !== undefined && equal(written, state)) return
      instance.written = state
      await this.#put(stateEntryOf(registration, state)).catch(error => {
        instance.written = undefined
        throw error
      })
    })
  }

  /** One write for all loads that changed within a second. */
  #writeLoad(): Promise<void> {
    this.#loadPending ??= this.#writeLoads()
    return this.#loadPending
  }

  async #writeLoads(): Promise<void> {
    const { clock } = this.#context
    const wait = this.#loadWrittenAt + LOAD_INTERVAL - clock.now()
    await (wait > 0 ? pause(clock, wait, this.#over.signal).catch(() => {}) : undefined)
    this.#loadPending = undefined
    this.#loadWrittenAt = clock.now()
    const changed = this.#instances.filter(({ state, written }) => state.load !== written?.load)
    if (!this.#over.signal.aborted) await Promise.all(changed.map(instance => this.#writeState(instance)))
  }

  /** Does nothing after a lapse: the next acquire carries the newest values. */
  async #put(entry: Attachment): Promise<void> {
    const lease = this.#lease
    if (lease === 0) return
    const outcome = await this.#context.decide({ kind: 'put', lease, ...entry })
    if (outcome.kind === 'done') return
    const refused = refusalOf(outcome)
    if (refused.code === 'GONE') {
      if (this.#lease === lease) this.#keeper.lost(this)
      return
    }
    throw refused
  }

  deregister(): Promise<void> {
    this.#deregistering ??= this.#leave()
    return this.#deregistering
  }

  close(): Promise<void> {
    return this.deregister()
  }

  async #leave(): Promise<void> {
    if (this.#over.signal.aborted) return
    if (this.#drain > 0 && this.#lease !== 0) {
      await this.drain().catch(() => {}) // if the lessor does not answer, leave all the same
      await pause(this.#context.clock, this.#drain, undefined, { ref: true })
    }
    const lease = this.#lease
    const { service, instance } = this.#instances[0]!.registration
    this.end(new LeaseError('GONE', `${service}/${instance} was deregistered`))
    if (lease !== 0) await this.#keeper.release(lease, this.ttl)
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.deregister()
  }
}

function equal(a: InstanceState, b: InstanceState): boolean {
  return a.status === b.status && a.load === b.load
}

export function refusalOf(outcome: Outcome): LeaseError {
  if (outcome.kind !== 'refused') return new LeaseError('UNAVAILABLE', `the lessor answered ${outcome.kind}: nothing was done`)
  return refusedError(outcome)
}
