/**
 * `LeaseClient`: acquires, renews, releases, reads and governs leases over a Lessor. Recipes are built on it, and `Leases` adds them.
 *
 * Promised: however a call ends, it leaves no lease behind that outlives a ttl, and an aborted call releases at once what turns out to have
 * been granted. Not promised: that `acquire` settles before its `wait` or `signal` ends it, or that a release which could not be delivered
 * frees anything before the ttl has run.
 *
 * Renewals keep a waiter queued, but do not confirm a grant that the waiter has not seen. A lease is held from the answer to a renewal that was
 * sent after the news of the grant (rule 4 of the time law).
 */
import { hostname } from 'node:os'
import { type Clock, systemClock } from '../clock.ts'
import { type Duration, milliseconds } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import type { Command, Want } from '../kernel/command.ts'
import type { Event } from '../kernel/event.ts'
import { Lease } from '../lease.ts'
import { holdersOf } from '../lessor/holders-of.ts'
import type { GrantView, Lessor, Query, ReadOptions, View, WaiterView, WatchOptions } from '../lessor.ts'
import { checkOptionNames, tooManyArguments } from '../options.ts'
import {
  type AcquireOptions,
  type AdoptOptions,
  checkAdoptOptions,
  checkNames,
  checkNoWait,
  checkOptions,
  checkSignal,
  type DecidedOptions,
  type GrantOptions,
  type TryAcquireOptions,
  waitOf,
} from './acquire-options.ts'
import { Acquirer, timedOut } from './acquirer.ts'
import { withFittingTtl } from './fitting-ttl.ts'
import { GoverningClient } from './governing-client.ts'
import type { HeldLease } from './held-lease.ts'
import { HeldLeases } from './held-leases.ts'
import { Identity } from './identity.ts'
import { keepProcessAlive } from './keep-process-alive.ts'
import { CLASS_LABEL, classOf, type LearnedTerm, LearnedTerms, type LearnOptions } from './learned-terms.ts'
import type { Loss, PastLease } from './loss-log.ts'
import { isPromise, Nesting } from './nesting.ts'
import { Operations } from './operations.ts'
import { adoptLease } from './transfer.ts'
import { marginOf } from './validity.ts'
import type { WorkerHeartbeat } from './worker-heartbeat.ts'

/** Options of `connect` that concern the holder. */
export interface LeasesOptions {
  /**
   * The name of this process, for people.
   * @default `host:pid`
   */
  readonly holder?: string | undefined
  /** @default the clock of the machine */
  readonly clock?: Clock | undefined
  /**
   * ρ: by how much the rate of any clock may be off.
   * @default 0.005, which is 0.5 %
   */
  readonly clockError?: number | undefined
  /**
   * The ttl of leases that do not name one.
   * @default '30s'
   */
  readonly ttl?: Duration | undefined
  /**
   * `'worker'`: a second thread renews while the event loop is blocked, for at most `maxStall`. It opens the same URL again, so `memory:` cannot
   * have it.
   * @default 'loop'
   */
  readonly heartbeat?: 'loop' | 'worker' | undefined
  /**
   * With `heartbeat: 'worker'`: how long the loop may be blocked before its leases are no longer renewed.
   * @default '10s'
   */
  readonly maxStall?: Duration | undefined
}

/** `apiKey` is an option of `connect`. */
export const LEASES_OPTIONS = ['holder', 'clock', 'clockError', 'ttl', 'heartbeat', 'maxStall', 'apiKey'] as const
/** Options of `acquire` without a meaning for a lease without resources. */
const NOT_FOR_GRANT = ['wait', 'ifAvailable', 'mode', 'units', 'any', 'priority', 'steal', 'recall', 'onWait'] as const
const REQUEST = 'request(names, options, callback), request(names, callback, options) or request(names, callback)'

/** After a `TIMEOUT`, the present holders are looked up for at most this long. */
const HOLDERS_TIMEOUT = 250
/** `close` waits this long for answers that only say whether a lease must be released. */
const CLOSE_TIMEOUT = 1_000

/** Resource names: one, or several that are acquired together. */
export type Names = string | readonly string[]

/** `query` returns this: grants and waiters, named as in Web Locks. */
export interface LeasesSnapshot {
  readonly revision: number
  readonly held: readonly GrantView[]
  readonly pending: readonly (WaiterView & { readonly resource: string })[]
}

export class LeaseClient extends GoverningClient implements AsyncDisposable {
  /** The name of this process. */
  readonly holder: string
  readonly clock: Clock
  /** The replica or server connection underneath. */
  readonly lessor: Lessor
  /** @internal For recipes that propose commands of their own. */
  protected readonly operations: Operations
  readonly #identity: Identity
  readonly #heldLeases: HeldLeases
  readonly #acquirer: Acquirer
  readonly #learned: LearnedTerms
  readonly #nesting = new Nesting()
  readonly #workerHeartbeat: WorkerHeartbeat | undefined
  #closed: Promise<void> | undefined

  constructor(lessor: Lessor, options: LeasesOptions = {}, workerHeartbeat?: WorkerHeartbeat) {
    super()
    checkOptionNames('Leases', options, LEASES_OPTIONS)
    if (options.heartbeat === 'worker' && workerHeartbeat === undefined)
      throw new LeaseError('UNSUPPORTED', "heartbeat: 'worker' opens the URL a second time: use connect(url, …)")
    const { holder = `${hostname()}:${process.pid}`, clock = systemClock, ttl = 30_000 } = options
    this.lessor = lessor
    this.holder = holder
    this.clock = clock
    this.#workerHeartbeat = workerHeartbeat
    const identity = new Identity(holder)
    const operations = new Operations(lessor, clock)
    this.#identity = identity
    this.operations = operations
    const heldLeases = new HeldLeases(operations, marginOf(options), workerHeartbeat)
    this.#heldLeases = heldLeases
    this.#learned = new LearnedTerms(operations, milliseconds(ttl, 'ttl'))
    this.#acquirer = new Acquirer({ heldLeases, operations, identity, nesting: this.#nesting, ttl: milliseconds(ttl, 'ttl') })
  }

  /** Counters, for metrics and tests. */
  get stats(): { readonly messages: number; readonly renewals: number; readonly leases: number } {
    return { ...this.#heldLeases.heartbeat.stats, leases: this.#heldLeases.size }
  }

  // Acquiring

  /**
   * Runs `work` under a lease and releases it afterwards, whatever happens. Like `navigator.locks.request` of Web Locks and `using` of Redlock:
   * the lease is renewed while `work` runs, and `lease.signal` fires if it is lost. With `ifAvailable`, `work` gets null when it is held.
   *
   * Rejects with `LOST` if the lease was lost and `work` could not know: it never looked at `signal`, `held` or `assertHeld`, or it blocked the
   * event loop until the deadline was over. `result` of that error is what `work` returned. What `work` throws comes first.
   *
   * @example
   * await leases.request('jobs/nightly', { ttl: '30s', wait: '5m' }, async lease => {
   *   await db.write(rows, { fence: lease.token, signal: lease.signal })
   * })
   */
  request<T>(names: Names, work: (lease: Lease) => T | PromiseLike<T>): Promise<T>
  request<T>(
    names: Names,
    options: AcquireOptions & { readonly ifAvailable: true },
    work: (lease: Lease | null) => T | PromiseLike<T>,
  ): Promise<T>
  request<T>(
    names: Names,
    options: AcquireOptions & { readonly ifAvailable?: false | undefined },
    work: (lease: Lease) => T | PromiseLike<T>,
  ): Promise<T>
  request<T>(names: Names, options: AcquireOptions, work: (lease: Lease | null) => T | PromiseLike<T>): Promise<T>
  /** The options may come last as well. */
  request<T>(
    names: Names,
    work: (lease: Lease | null) => T | PromiseLike<T>,
    options: AcquireOptions & { readonly ifAvailable: true },
  ): Promise<T>
  request<T>(
    names: Names,
    work: (lease: Lease) => T | PromiseLike<T>,
    options: AcquireOptions & { readonly ifAvailable?: false | undefined },
  ): Promise<T>
  request<T>(names: Names, work: (lease: Lease | null) => T | PromiseLike<T>, options: AcquireOptions): Promise<T>
  async request<T>(names: Names, second: unknown, third?: unknown, ...excess: readonly unknown[]): Promise<T> {
    if (excess.length > 0) throw tooManyArguments(REQUEST)
    const [given, callback] = typeof second === 'function' ? [third, second] : [second, third]
    if (typeof callback !== 'function' || typeof given === 'function')
      throw new LeaseError('INVALID', `request takes one callback: write ${REQUEST}`)
    const options = (given ?? (given === null ? null : {})) as AcquireOptions
    const work = callback as (lease: Lease | null) => T | PromiseLike<T>
    checkOptions(options, 'request')
    const limit = waitOf(options, 'request')
    const held = await (options.ifAvailable === true ? this.#tryObtain(names, options) : this.#obtain(checkNames(names), options, limit))
    if (held === undefined) return work(null)
    const lease = new Lease(held)
    try {
      const running = this.#nesting.run(held, work, lease)
      const result = isPromise(running) ? await running : running
      const loss = this.#heldLeases.unreportedLoss(held)
      if (loss !== undefined)
        throw new LeaseError(
          'LOST',
          `${loss.message}. The work under it ended without knowing that: it may have run at the same time as that of the next holder`,
          { cause: loss, facts: loss.facts, result },
        )
      return result
    } finally {
      try {
        await this.#heldLeases.release(held)
      } catch {
        // It lapses by itself. The caller wants the outcome of its work.
      }
    }
  }

  /**
   * Acquires all of the resources or none. Waits until granted, unless `wait`, `ifAvailable` or `signal` end the wait. Release the lease, or
   * declare it with `await using`.
   *
   * @example
   * await using lease = await leases.acquire(['account/1', 'account/2'], { ttl: '10s' })
   */
  acquire(names: Names, options?: AcquireOptions): Promise<Lease>
  async acquire(names: Names, options: AcquireOptions = {}, ...excess: readonly unknown[]): Promise<Lease> {
    if (excess.length > 0) throw tooManyArguments('acquire(names, options)')
    checkOptions(options)
    const limit = waitOf(options, 'acquire')
    return new Lease(await this.#obtain(checkNames(names), options, limit).catch(error => this.#withRemaining(error)))
  }

  /**
   * Acquires without waiting: undefined if it is held, which is an answer and not a failure.
   *
   * @example
   * const lease = await leases.tryAcquire('jobs/nightly')
   * if (lease === undefined) return // another process is at it
   */
  tryAcquire(names: Names, options?: TryAcquireOptions): Promise<Lease | undefined>
  async tryAcquire(names: Names, options: TryAcquireOptions = {}, ...excess: readonly unknown[]): Promise<Lease | undefined> {
    if (excess.length > 0) throw tooManyArguments('tryAcquire(names, options)')
    checkOptions(options, 'tryAcquire')
    checkNoWait(options, 'tryAcquire')
    const held = await this.#tryObtain(names, options)
    return held === undefined ? undefined : new Lease(held)
  }

  /**
   * A lease without resources: the parent of other leases, or the owner of entries.
   *
   * @example
   * await using agent = await leases.grant({ ttl: '1m', entries: { 'agents/7': 'busy' } })
   * await leases.acquire('task/1', { parent: agent })
   */
  async grant(options: GrantOptions = {}): Promise<Lease> {
    checkOptions(options, 'grant', NOT_FOR_GRANT)
    return new Lease(await this.#obtain([], options, 0))
  }

  /**
   * Adds resources to the choice of an `acquire` that waits with `advanced.any`. `lease` is the number that its `onQueued` got. It keeps its
   * place, in the new queues too. Resolves with false if that lease is not waiting, or no longer.
   */
  async widen(lease: number, more: readonly Want[]): Promise<boolean> {
    this.#mustBeOpen()
    return this.#acquirer.widen(lease, more)
  }

  /** Takes over a lease that was transferred to this holder. It is renewed first, and returned when that is acknowledged. */
  async adopt(lease: number, options: AdoptOptions = {}): Promise<Lease> {
    checkAdoptOptions(options)
    this.#mustBeOpen()
    const held = await adoptLease(this.#heldLeases, this.operations, this.#identity, lease, options)
    const { maxHold } = options
    return new Lease(this.#acquirer.handOut(held, maxHold === undefined ? Number.POSITIVE_INFINITY : milliseconds(maxHold, 'maxHold')))
  }

  async #tryObtain(names: Names, options: TryAcquireOptions): Promise<HeldLease | undefined> {
    try {
      return await this.#obtain(checkNames(names), options, 0)
    } catch (error) {
      if (LeaseError.is(error, 'HELD')) return undefined
      throw error
    }
  }

  #obtain(names: readonly string[], options: AcquireOptions, limit: number): Promise<HeldLease> {
    options.signal?.throwIfAborted()
    if (this.#closed !== undefined || this.lessor.signal.aborted) this.#mustBeOpen()
    const { ttl, learn } = options
    if (typeof ttl === 'object' && ttl !== null)
      return withFittingTtl(this.lessor, names, ttl, fitting => this.#obtain(names, { ...options, ttl: fitting }, limit))
    const isPlain = ttl !== 'auto' && learn === undefined
    const held = isPlain ? this.#acquirer.obtain(names, options as DecidedOptions, limit) : this.#obtainLearned(names, options, limit)
    return held.catch(error => this.#withHolders(error))
  }

  /** Decides the ttl by what is known of this class of work, and lets the log count how long the lease is held. */
  async #obtainLearned(names: readonly string[], options: AcquireOptions, limit: number): Promise<HeldLease> {
    const { ttl, learn = {}, labels = {} } = options
    const counted = { ...labels, [CLASS_LABEL]: classOf(names, learn, labels) }
    if (ttl !== 'auto') return this.#acquirer.obtain(names, { ...options, labels: counted } as DecidedOptions, limit)
    const learned = await this.#learned.get(names, learn, labels)
    options.signal?.throwIfAborted()
    this.#mustBeOpen()
    const { ttl: _, ...others } = options
    return this.#acquirer.obtain(names, { ...others, labels: counted, ...(learned && { ttl: learned.plan.first }) }, limit, learned)
  }

  /** Adds the present holders to a `TIMEOUT`, where they can be seen. This is for people, and must not delay the answer much. */
  async #withHolders(error: unknown): Promise<never> {
    if (!LeaseError.is(error, 'TIMEOUT')) throw error
    const { resources = [], waited = 0 } = error.facts
    const holders = await this.operations.within(HOLDERS_TIMEOUT, holdersOf(this.lessor, resources)).catch(() => [])
    throw holders.length === 0 ? error : timedOut(resources, waited, holders)
  }

  /** Adds how long the holder's lease has left to a `HELD`: the kernel does not know the time. */
  async #withRemaining(error: unknown): Promise<never> {
    if (!LeaseError.is(error, 'HELD') || error.facts.lease === undefined || error.facts.lease === 0) throw error
    const answer = this.lessor.read({ kind: 'lease', lease: error.facts.lease })
    const remaining = await this.operations.within(1_000, answer).then(
      ({ value }) => value?.remaining,
      () => undefined, // it is only for people
    )
    if (remaining === undefined) throw error
    const facts = { ...error.facts, remaining: Math.max(0, Math.round(remaining)) }
    throw new LeaseError('HELD', error.message, { reason: error.reason, facts })
  }

  #mustBeOpen(): void {
    if (this.#closed !== undefined) throw new LeaseError('UNAVAILABLE', 'these leases are closed')
    this.lessor.signal.throwIfAborted()
  }

  // Learning

  /**
   * Returns what is known of a class of work: the terms that `ttl: 'auto'` gives its leases, and why.
   *
   * @example
   * const { explanation, expect } = await leases.learned('jobs/nightly')
   */
  async learned(names: Names, options: LearnOptions & { readonly values?: Readonly<Record<string, string>> } = {}): Promise<LearnedTerm> {
    const { values = {}, ...learn } = options
    checkOptions({ learn }, 'learned')
    return this.#learned.read(checkNames(names), learn, values)
  }

  // Reading

  /**
   * The present grants and waiters under a prefix, named as in Web Locks.
   *
   * @example
   * const { held, pending } = await leases.query('jobs')
   */
  async query(prefix = ''): Promise<LeasesSnapshot> {
    const { revision, value } = await this.lessor.read({ kind: 'resources', prefix }, { consistent: true })
    return {
      revision,
      held: value.flatMap(({ grants }) => grants),
      pending: value.flatMap(({ resource, queue }) => queue.map(waiter => ({ ...waiter, resource }))),
    }
  }

  /**
   * The events under a prefix, one array per revision. A gap can only appear as one event `resync`: then read, and go on.
   *
   * @example
   * for await (const events of leases.watch('jobs', { signal })) for (const { type, resource } of events) console.log(type, resource)
   */
  watch(prefix: string, options: WatchOptions): AsyncIterable<readonly Event[]> {
    checkSignal(options?.signal, `a watch of ${prefix}`)
    checkOptionNames('watch', options, ['after', 'types', 'signal'])
    return keepProcessAlive(this.clock, this.lessor.watch(prefix, options))
  }

  /**
   * Reads the state.
   *
   * @example
   * const { value } = await leases.read({ kind: 'resource', resource: 'jobs/nightly' }, { consistent: true })
   */
  read<K extends Query['kind']>(query: Extract<Query, { readonly kind: K }>, options?: ReadOptions): Promise<View<K>> {
    return this.lessor.read(query, options)
  }

  /** The last holders of a resource and how each lease ended; with the details of losses of this process. */
  async history(resource: string): Promise<readonly PastLease[]> {
    const { value } = await this.lessor.read({ kind: 'history', resource }, { consistent: true })
    return this.#heldLeases.losses.addTo(value, resource)
  }

  /** Returns what this process lost, newest last. Needs no lessor. */
  get losses(): readonly Loss[] {
    return this.#heldLeases.losses.all
  }

  protected change(command: Command): Promise<unknown> {
    this.#mustBeOpen()
    return this.operations.change(command)
  }

  // Closing

  /** Releases all leases, cancels all waits, and closes the lessor. Further calls reject with `UNAVAILABLE`. */
  close(): Promise<void> {
    this.#closed ??= this.#close()
    return this.#closed
  }

  /** The same as `close`. */
  [Symbol.asyncDispose](): Promise<void> {
    return this.close()
  }

  /** Closes what was built on this client. It runs while the lessor still answers. */
  protected async closeRecipes(): Promise<void> {}

  async #close(): Promise<void> {
    const answered = this.#acquirer.stop(new LeaseError('UNAVAILABLE', 'these leases were closed during the wait'))
    // A pending request may still be granted. A process that leaves before it knows leaves a lease behind.
    const released = this.operations.within(
      CLOSE_TIMEOUT,
      answered.then(() => this.#heldLeases.releasesDone()),
    )
    await Promise.allSettled([released, ...[...this.#heldLeases].map(held => this.#heldLeases.release(held))])
    await this.closeRecipes()
    this.#heldLeases.events.stop()
    this.#heldLeases.heartbeat.stop()
    await this.#workerHeartbeat?.[Symbol.asyncDispose]()
    await this.lessor[Symbol.asyncDispose]()
  }
}
