/** Renews all registrations of a process together, and registers those again that lapsed. */
import { BACKOFF, pauseAfter } from '../../backoff.ts'
import { pause, unlessAborted } from '../../clock.ts'
import { inWords, milliseconds } from '../../duration.ts'
import { LeaseError } from '../../errors.ts'
import type { Outcome } from '../../kernel/outcome.ts'
import { propose } from '../../lessor/propose.ts'
import { CHECKERS, keyOf } from '../../registry/entry.ts'
import {
  OwnRegistration,
  type RegisterInput,
  type RegisterOptions,
  type RegistrationKeeper,
  type RegistryContext,
  refusalOf,
} from './registration.ts'
import { UnresolvedAcquires } from './unresolved-acquires.ts'

const NO_CHECKERS =
  'no server makes health checks, so the instance is listed as unknown and not picked. Start one with leasehold serve --check-allow, or register without a check'

/** Renewals in one command. */
const MAX_BATCH = 10_000
/** Registrations that lapsed together return within this time, or a third of their ttl if that is shorter. */
const SPREAD = 10_000
/** Registrations that are due to return within this many ms return in the same turn. */
const TOGETHER = 100
/** The registrar checks this often whether the machine slept. Its timers stood still then, and renewals may be overdue. */
const SLEEP_CHECK = 1_000
/** A release is repeated for this long. */
const RELEASE_TIMEOUT = 5_000
/** `close` waits this long for registrations that are in flight. */
const CLOSE_TIMEOUT = 1_000

export class Registrar implements AsyncDisposable, RegistrationKeeper {
  readonly #context: RegistryContext
  readonly #registrations = new Set<OwnRegistration>()
  /** Who registered each instance last, by the key of its entry. */
  readonly #byKey = new Map<string, OwnRegistration>()
  #cancel: (() => void) | undefined
  #armedFor = Number.POSITIVE_INFINITY
  /** The uptime was ahead of the monotonic clock by this much. It grows while the machine sleeps. */
  #slept = Number.POSITIVE_INFINITY
  #closed = false
  /** Registrations being made, and releases of those that came too late. */
  readonly #inFlight = new Set<Promise<unknown>>()
  readonly unresolved = new UnresolvedAcquires()
  /** For tests and metrics. */
  readonly stats = { messages: 0, renewals: 0, returns: 0 }

  constructor(context: RegistryContext) {
    this.#context = context
  }

  get size(): number {
    return this.#registrations.size
  }

  async register(inputs: readonly RegisterInput[], options: RegisterOptions): Promise<OwnRegistration> {
    const { signal } = options
    signal?.throwIfAborted()
    if (this.#closed) throw closed()
    const registration = new OwnRegistration(this.#context, this, inputs, options)
    const { clock } = this.#context
    const end = clock.now() + milliseconds(options.wait ?? 0, 'wait')
    for (let tries = 0; ; tries++) {
      try {
        await unlessAborted(this.#track(registration.acquire()), signal)
        break
      } catch (error) {
        if (signal?.aborted) break
        if (this.#closed) throw closed()
        if (!(error instanceof LeaseError && error.code === 'HELD') || clock.now() >= end) throw error
        const wait = Math.min(end - clock.now(), pauseAfter(BACKOFF.registration, tries))
        await pause(clock, wait, signal, { ref: true })
      }
    }
    if (signal?.aborted || this.#closed) {
      // A lease that is granted from here on is released.
      const left = this.#track(registration.deregister())
      left.catch(() => {}) // the lease lapses by itself
      signal?.throwIfAborted()
      await left
      throw closed()
    }
    const keys = registration.instances.map(each => keyOf(each))
    for (const before of new Set(keys.map(key => this.#byKey.get(key)))) before?.replacedBy(registration)
    for (const key of keys) this.#byKey.set(key, registration)
    this.#registrations.add(registration)
    this.#arm(registration.nextRenewal)
    if (registration.instances.some(({ check }) => check !== undefined)) this.#reportUnchecked(registration).catch(() => {})
    return registration
  }

  async checkers(options: { readonly signal?: AbortSignal } = {}): Promise<readonly string[]> {
    const { value } = await this.#context.lessor.read({ kind: 'entries', prefix: CHECKERS }, options)
    return value.map(({ key }) => key.slice(CHECKERS.length + 1))
  }

  /** Without this report an instance whose check is never made would be ignored silently. If the list cannot be read, nothing is reported. */
  async #reportUnchecked(registration: OwnRegistration): Promise<void> {
    if ((await this.checkers()).length > 0 || registration.signal.aborted) return
    registration.report('unchecked', new LeaseError('UNAVAILABLE', NO_CHECKERS))
  }

  forget(registration: OwnRegistration): void {
    this.#registrations.delete(registration)
    for (const each of registration.instances) if (this.#byKey.get(keyOf(each)) === registration) this.#byKey.delete(keyOf(each))
  }

  #track(work: Promise<void>): Promise<void> {
    this.#inFlight.add(work)
    return work.finally(() => this.#inFlight.delete(work))
  }

  #arm(at: number): void {
    if (this.#closed || at >= this.#armedFor) return
    this.#cancel?.()
    this.#armedFor = at
    this.#wait()
  }

  /** Runs in a timer: never throws. */
  #wait(): void {
    const { clock } = this.#context
    const now = clock.now()
    const slept = clock.uptime() - now
    const woken = slept - this.#slept > SLEEP_CHECK
    this.#slept = slept
    if (woken) for (const registration of this.#registrations) registration.nextRenewal = Math.min(registration.nextRenewal, now)
    if (woken || this.#armedFor <= now) this.#cancel = clock.after(0, () => this.#renewDue())
    else this.#cancel = clock.after(Math.min(SLEEP_CHECK, this.#armedFor - now), () => this.#wait())
  }

  /** Also renews registrations that are due soon: one message instead of two. Runs in a timer: never throws. */
  #renewDue(): void {
    this.#cancel = undefined
    this.#armedFor = Number.POSITIVE_INFINITY
    const now = this.#context.clock.now()
    const renewing: OwnRegistration[] = []
    let next = Number.POSITIVE_INFINITY
    for (const registration of this.#registrations) {
      if (registration.busy) continue
      // Returns stay spread out, as `lost` planned them.
      const soon = registration.lease === 0 ? TOGETHER : registration.ttl / 8
      if (registration.nextRenewal - soon > now) {
        next = Math.min(next, registration.nextRenewal)
        continue
      }
      registration.busy = true
      if (registration.lease === 0) void this.#registerAgain(registration)
      else renewing.push(registration)
    }
    for (let i = 0; i < renewing.length; i += MAX_BATCH) void this.#renew(renewing.slice(i, i + MAX_BATCH))
    if (next < Number.POSITIVE_INFINITY) this.#arm(next)
  }

  async #renew(group: readonly OwnRegistration[]): Promise<void> {
    const { clock, lessor } = this.#context
    const sent = clock.now()
    const leases = group.map(({ lease }) => lease)
    this.stats.messages++
    this.stats.renewals += leases.length
    let ttls: readonly number[] = []
    try {
      // Short enough for several tries within the ttl: one lost message must not end a registration.
      const timeout = group.reduce((least, { ttl }) => Math.min(least, ttl / 6), BACKOFF.registration.longest)
      const outcome = await this.#context.within(timeout, propose(lessor, { kind: 'renew', leases }))
      if (outcome.kind === 'renewed') ttls = outcome.ttls
    } catch {
      // Unanswered: each registration reports it and plans another try below.
    }
    let next = Number.POSITIVE_INFINITY
    for (const [i, registration] of group.entries()) {
      registration.busy = false
      if (registration.signal.aborted) continue
      const term = ttls[i]
      if (registration.lease === leases[i]) {
        if (term === undefined) registration.missed()
        else if (term > 0) registration.renewed(sent, term)
        else this.lost(registration)
      }
      next = Math.min(next, registration.nextRenewal)
    }
    if (next < Number.POSITIVE_INFINITY) this.#arm(next)
  }

  /** Plans a return at a random moment: registrations that lapsed together must not return together, and overload the lessor again. */
  lost(registration: OwnRegistration): void {
    registration.lapsed()
    const { clock } = this.#context
    registration.failures = 0
    registration.nextRenewal = clock.now() + clock.random() * Math.min(SPREAD, registration.ttl / 3)
    if (!registration.busy) this.#arm(registration.nextRenewal)
  }

  async #registerAgain(registration: OwnRegistration): Promise<void> {
    this.stats.returns++
    try {
      await this.#track(registration.acquire())
      if (!registration.signal.aborted) registration.report('registered')
    } catch (error) {
      const reason = error instanceof LeaseError ? error : new LeaseError('UNAVAILABLE', String(error), { cause: error })
      // Another holder has the name, or the key is refused. Trying again would only compete with the successor.
      if (['HELD', 'STALE', 'FORBIDDEN', 'INVALID', 'UNAUTHENTICATED'].includes(reason.code)) registration.end(reason)
      else registration.missed()
    }
    registration.busy = false
    if (!registration.signal.aborted) this.#arm(registration.nextRenewal)
  }

  /** Releases a lease that was granted too late. */
  abandon(outcome: Outcome): void {
    if (outcome.kind === 'granted') this.#track(this.release(outcome.lease, outcome.ttl)).catch(() => {})
  }

  /** Resolves when the lease is gone. Throws `UNKNOWN` if the lessor does not answer. */
  async release(lease: number, ttl: number): Promise<void> {
    const { clock, lessor } = this.#context
    const end = clock.now() + Math.min(RELEASE_TIMEOUT, ttl)
    for (let tries = 0; ; tries++) {
      try {
        const outcome = await this.#context.within(end - clock.now(), propose(lessor, { kind: 'release', lease }))
        if (outcome.kind === 'done' || (outcome.kind === 'refused' && outcome.code === 'GONE')) return
        throw refusalOf(outcome)
      } catch (cause) {
        if (lessor.signal.aborted || clock.now() >= end)
          throw new LeaseError('UNKNOWN', `lease ${lease} may still be listed: it lapses in at most ${inWords(ttl)} and its grace`, {
            cause,
          })
        await pause(clock, pauseAfter(BACKOFF.registration, tries), undefined, { ref: true })
      }
    }
  }

  /** Deregisters all. Leases that cannot be released lapse by themselves. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true
    this.#cancel?.()
    await Promise.allSettled([...[...this.#registrations].map(registration => registration.deregister()), this.#settled()])
  }

  /** Waits for registrations in flight, so that they are released, too. */
  async #settled(): Promise<void> {
    const end = this.#context.clock.now() + CLOSE_TIMEOUT
    while (this.#inFlight.size > 0) await this.#context.within(end - this.#context.clock.now(), Promise.allSettled(this.#inFlight))
  }
}

function closed(): LeaseError {
  return new LeaseError('UNAVAILABLE', 'these leases were closed')
}
