/**
 * Being listed: a lease that carries what an instance says of itself, renewed for as long as this process lives.
 *
 * Not promised: that nobody else is listed under the same name after this one lapsed; a registration excludes nobody and believes nothing.
 * So, unlike a lock, it is not given up when renewals stay unanswered: they are sent until one is answered, and if the lessor has let it
 * lapse meanwhile, it registers again, a little later than others do. Promised: it is told what happened (`onEvent`, and the diagnostics channel
 * `leasehold:registry`), and one that was replaced never comes back over its successor.
 */
import { channel } from 'node:diagnostics_channel'
import { type Clock, pause } from '../../clock.ts'
import { type Duration, milliseconds } from '../../duration.ts'
import { LeaseError } from '../../errors.ts'
import type { Acquire, Attachment, Command } from '../../kernel/command.ts'
import type { Outcome } from '../../kernel/outcome.ts'
import type { Lessor } from '../../lessor.ts'
import {
  entryOf,
  type InstanceState,
  type Registration,
  type RegistrationInput,
  registrationOf,
  stateEntryOf,
  stateOf,
} from '../../registry/entry.ts'

export interface RegisterOptions {
  readonly ttl?: Duration
  /** After the ttl, how long it is still listed, as suspect; half a ttl unless said otherwise. */
  readonly grace?: Duration
  /** When it leaves, how long it is listed as draining first; 0 unless said otherwise. */
  readonly drain?: Duration
  /** A name that another still has is waited for so long: the one before us may just have been killed. */
  readonly wait?: Duration
  readonly signal?: AbortSignal
  readonly onEvent?: (event: RegistrationEvent) => void
}

/** `instance` is this process's name unless said otherwise. */
export type RegisterInput = Omit<RegistrationInput, 'instance'> & { readonly instance?: string } & Partial<InstanceState>

export interface RegistrationEvent {
  /**
   * `unreachable`: renewals are not answered. `lapsed`: it was not listed any more. `registered`: again. `ended`: for good, see `reason`. `unchecked`: it asks
   * for a health check and no server makes any, so it stays `unknown`.
   */
  readonly type: 'unreachable' | 'reached' | 'lapsed' | 'registered' | 'ended' | 'unchecked'
  readonly services: readonly string[]
  readonly lease: number
  readonly reason?: LeaseError
}

/** What of it may change while it is registered. */
export type RegistrationChange = Partial<InstanceState> & Partial<Omit<RegistrationInput, 'service' | 'instance' | 'generation'>>

/** What the process around it lends: operation ids and timeout. */
export interface RegistrationRequest {
  readonly holder: string
  readonly clock: Clock
  readonly lessor: Lessor
  decide(command: Command, options?: { readonly ttl?: number; readonly late?: (outcome: Outcome) => void }): Promise<Outcome>
  within<T>(ms: number, answer: Promise<T>): Promise<T>
}

/** Whoever renews it, and brings it back. */
export interface RegistrationKeeper {
  forget(registered: Registered): void
  lost(registered: Registered): void
  abandon(outcome: Outcome): void
  release(lease: number, ttl: number): Promise<void>
}

const told = channel('leasehold:registry')
export const FIRST_RETRY = 250
export const LAST_RETRY = 5_000
/** A load that changes all the time is written so often at most. */
const LOAD_EVERY = 1_000

interface Listing {
  registration: Registration
  state: InstanceState
  /** What of both was sent to the log last; undefined when that failed: nobody knows what it has. */
  listed: Registration | undefined
  written: InstanceState | undefined
  readonly entries: Line
  readonly states: Line
}

/** One write at a time, each with what is said by then: one that is sent again must not come after a newer one. */
class Line {
  #last: Promise<void> = Promise.resolve()
  #next: Promise<void> | undefined

  write(write: () => Promise<void>): Promise<void> {
    this.#next ??= this.#last
      .catch(() => {}) // told to whoever asked for it
      .then(() => {
        this.#next = undefined
        this.#last = write()
        return this.#last
      })
    return this.#next
  }
}

/** One or more registrations on one lease. */
export class Registered implements AsyncDisposable {
  readonly ttl: number
  readonly #grace: number
  readonly #drain: number
  readonly #asking: RegistrationRequest
  readonly #keeper: RegistrationKeeper
  readonly #listings: Listing[]
  readonly #onEvent: RegisterOptions['onEvent']
  readonly #over = new AbortController()
  #incarnation: number | undefined
  #lease = 0
  #unreachable = false
  #farewell: Promise<void> | undefined
  #loadWritten = Number.NEGATIVE_INFINITY
  #loadPending: Promise<void> | undefined

  /** For its keeper: when to renew, and what failed so far. */
  next = 0
  failures = 0
  busy = false

  constructor(asking: RegistrationRequest, keeper: RegistrationKeeper, inputs: readonly RegisterInput[], options: RegisterOptions) {
    const ttl = milliseconds(options.ttl ?? '30s', 'ttl')
    this.ttl = ttl
    this.#grace = options.grace === undefined ? Math.floor(ttl / 2) : milliseconds(options.grace, 'grace')
    this.#drain = milliseconds(options.drain ?? 0, 'drain')
    this.#asking = asking
    this.#keeper = keeper
    this.#onEvent = options.onEvent
    this.#listings = inputs.map(({ status, load, instance = asking.holder.replaceAll('/', '-'), ...rest }) => {
      const state = stateOf({ ...(status !== undefined && { status }), ...(load !== undefined && { load }) })
      const registration = registrationOf({ ...rest, instance })
      return { registration, state, listed: undefined, written: undefined, entries: new Line(), states: new Line() }
    })
    if (inputs.length === 0) throw new LeaseError('INVALID', 'there is nothing to register')
  }

  /** 0 while it is not listed. */
  get lease(): number {
    return this.#lease
  }

  get registered(): boolean {
    return this.#lease !== 0
  }

  get registrations(): readonly Registration[] {
    return this.#listings.map(({ registration }) => registration)
  }

  /** Fires when it is over for good: left, replaced by another, or refused. */
  get signal(): AbortSignal {
    return this.#over.signal
  }

  /** Takes the lease and is listed. Throws what the lessor refused. */
  async enter(): Promise<void> {
    const { clock, holder } = this.#asking
    const sent = clock.now()
    const listings = [...this.#listings]
    const said = listings.map(({ registration, state }) => ({ registration, state }))
    const command: Acquire = {
      kind: 'acquire',
      holder,
      ttl: this.ttl,
      wants: [],
      grace: this.#grace,
      entries: listings.flatMap(({ registration, state }): Attachment[] =>
        state.status === 'passing' && state.load === 0
          ? [entryOf(registration)]
          : [entryOf(registration), stateEntryOf(registration, state)],
      ),
      ...(this.#incarnation !== undefined && { incarnation: this.#incarnation }),
    }
    const outcome = await this.#asking.decide(command, { ttl: this.ttl, late: late => this.#keeper.abandon(late) })
    if (outcome.kind !== 'granted') throw refusalOf(outcome)
    this.#incarnation ??= outcome.incarnation
    if (this.#over.signal.aborted) return this.#keeper.abandon(outcome)
    this.#lease = outcome.lease
    this.answered(sent, outcome.ttl)
    for (const [i, listing] of listings.entries()) {
      listing.listed = said[i]!.registration
      listing.written = said[i]!.state
      // What changed while it was under way.
      this.#writeEntry(listing).catch(() => {})
      this.#writeState(listing).catch(() => {})
    }
  }

  /** A renewal sent then was answered. */
  answered(sent: number, term: number): void {
    this.failures = 0
    this.next = sent + (term / 2) * (0.9 + this.#asking.clock.random() / 10)
    if (this.#unreachable) this.tell('reached')
    this.#unreachable = false
  }

  /** A renewal was not answered. */
  missed(): void {
    if (!this.#unreachable) this.tell('unreachable')
    this.#unreachable = true
    this.next = this.#asking.clock.now() + this.retry()
  }

  retry(): number {
    const longest = Math.min(LAST_RETRY, this.ttl / 4)
    return Math.min(longest, FIRST_RETRY * 2 ** this.failures++) * (0.5 + this.#asking.clock.random() / 2)
  }

  /** The lessor does not have it any more. */
  lapsed(): void {
    if (this.#lease === 0) return
    this.tell('lapsed')
    this.#lease = 0
    this.#unreachable = false
  }

  tell(type: RegistrationEvent['type'], reason?: LeaseError): void {
    const event = { type, services: this.#listings.map(({ registration }) => registration.service), lease: this.#lease }
    const message: RegistrationEvent = reason === undefined ? event : { ...event, reason }
    if (told.hasSubscribers) told.publish(message)
    // Nobody else would say it, and nothing else fails.
    if (type === 'unchecked' && this.#onEvent === undefined)
      process.emitWarning(`${event.services.join(', ')}: ${reason?.message}`, { type: 'LeaseholdWarning', code: 'LEASEHOLD_UNCHECKED' })
    try {
      this.#onEvent?.(message)
    } catch (error) {
      // Whoever listens must not stop the renewals of others; but it must not be swallowed either.
      process.emitWarning(`a registration's onEvent failed: ${String(error)}`, { type: 'LeaseholdWarning', code: 'LEASEHOLD_EVENT' })
    }
  }

  /** `other`, of this process too, is listed under these names now. What is left of this one goes on without them. */
  replacedBy(other: Registered): void {
    const theirs = new Set(other.registrations.map(({ service, instance }) => `${service}/${instance}`))
    const { service, instance } = this.#listings[0]!.registration
    const kept = this.#listings.filter(({ registration }) => !theirs.has(`${registration.service}/${registration.instance}`))
    if (kept.length === this.#listings.length) return
    if (kept.length > 0) {
      this.#listings.splice(0, this.#listings.length, ...kept)
      return
    }
    const lease = this.#lease
    this.end(
      new LeaseError('GONE', `${service}/${instance} was registered again by this process: give each an instance of its own to have both`),
    )
    if (lease !== 0) this.#keeper.release(lease, this.ttl).catch(() => {}) // nothing hangs on it any more, and it lapses by itself
  }

  /** Over for good. */
  end(reason: LeaseError): void {
    if (this.#over.signal.aborted) return
    this.#keeper.forget(this)
    this.tell('ended', reason)
    this.#lease = 0
    this.#over.abort(reason)
  }

  /**
   * Changes what it says of itself: all of them on this lease, or those of one `service`. A status is written at once, a load that changes all the time
   * once a second; what is as it was is not written at all. Resolves when the log has it.
   */
  async update(change: RegistrationChange, { service }: { readonly service?: string } = {}): Promise<void> {
    if (this.#over.signal.aborted) throw this.#over.signal.reason
    const { status, load, ...rest } = change
    const writes: Promise<void>[] = []
    for (const listing of this.#listings) {
      if (service !== undefined && listing.registration.service !== service) continue
      if (Object.keys(rest).length > 0) writes.push(this.#writeRegistration(listing, rest))
      listing.state = stateOf({ ...(status !== undefined && { status }), ...(load !== undefined && { load }) }, listing.state)
      if (listing.state.status !== listing.written?.status) writes.push(this.#writeState(listing))
      else if (listing.state.load !== listing.written.load) writes.push(this.#writeLoad())
    }
    await Promise.all(writes)
  }

  /** Listed, and not picked any more. */
  drain(): Promise<void> {
    return this.update({ status: 'draining' })
  }

  async #writeRegistration(listing: Listing, change: Partial<RegistrationInput>): Promise<void> {
    const { service, instance, generation, check, ...before } = listing.registration
    const { address, ...after } = change
    const next = registrationOf({
      ...{ service, instance, generation, check, ...before },
      ...(address !== undefined && { addresses: [address] }),
      ...after,
    })
    listing.registration = next
    await this.#writeEntry(listing)
  }

  #writeEntry(listing: Listing): Promise<void> {
    return listing.entries.write(async () => {
      const { registration, listed } = listing
      const entry = entryOf(registration)
      if (listed !== undefined && entryOf(listed).value === entry.value) return
      listing.listed = registration
      await this.#put(entry).catch(error => {
        listing.listed = undefined
        throw error
      })
    })
  }

  #writeState(listing: Listing): Promise<void> {
    return listing.states.write(async () => {
      const { registration, state, written } = listing
      if (written !== undefined && equal(written, state)) return
      listing.written = state
      await this.#put(stateEntryOf(registration, state)).catch(error => {
        listing.written = undefined
        throw error
      })
    })
  }

  /** One write for all loads that changed within a second. */
  #writeLoad(): Promise<void> {
    this.#loadPending ??= this.#writeLoadInTime()
    return this.#loadPending
  }

  async #writeLoadInTime(): Promise<void> {
    const { clock } = this.#asking
    const wait = this.#loadWritten + LOAD_EVERY - clock.now()
    await (wait > 0 ? pause(clock, wait, this.#over.signal).catch(() => {}) : undefined)
    this.#loadPending = undefined
    this.#loadWritten = clock.now()
    const changed = this.#listings.filter(({ state, written }) => state.load !== written?.load)
    if (!this.#over.signal.aborted) await Promise.all(changed.map(listing => this.#writeState(listing)))
  }

  /** While it is not listed there is nothing to write to: it comes back with what it says by then. */
  async #put(entry: Attachment): Promise<void> {
    const lease = this.#lease
    if (lease === 0) return
    const outcome = await this.#asking.decide({ kind: 'put', lease, ...entry })
    if (outcome.kind === 'done') return
    const refused = refusalOf(outcome)
    if (refused.code === 'GONE') {
      if (this.#lease === lease) this.#keeper.lost(this)
      return
    }
    throw refused
  }

  /** Leaves: listed as draining first if it was asked to, then gone in one revision. Again: nothing happens. */
  deregister(): Promise<void> {
    this.#farewell ??= this.#leave()
    return this.#farewell
  }

  async #leave(): Promise<void> {
    if (this.#over.signal.aborted) return
    if (this.#drain > 0 && this.#lease !== 0) {
      await this.drain().catch(() => {}) // whoever cannot be told is not kept waiting either
      await pause(this.#asking.clock, this.#drain, undefined, { ref: true })
    }
    const lease = this.#lease
    const { service, instance } = this.#listings[0]!.registration
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
  return new LeaseError(outcome.code, outcome.message, { facts: outcome.facts })
}
