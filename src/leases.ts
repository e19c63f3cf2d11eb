/**
 * The leases of one process: acquired, kept alive together, given back.
 *
 * Not promised: that `acquire` settles before its `wait` or its `signal` ends it; that a release which could not be delivered frees anything
 * before the ttl has run. Promised: whatever ends a call, nothing is left behind that outlives a ttl, and an aborted one is given back at
 * once when it turns out to have been granted.
 *
 * Whoever waits is kept in its queue by renewals that cannot confirm a grant; belief begins with a renewal that
 * left after the news of the grant (rule 4 of the time law).
 */
import { hostname } from 'node:os'
import { type Clock, systemClock } from './clock.ts'
import { type Duration, milliseconds } from './duration.ts'
import { LeaseError } from './errors.ts'
import { type AcquireOptions, checkNames, checkNoWait, checkOptions, checkSignal, maxHoldOf, waitOf } from './holder/acquire-request.ts'
import { Acquirer, waitedInVain } from './holder/acquirer.ts'
import { HeldLeases } from './holder/held-leases.ts'
import { Identity } from './holder/identity.ts'
import { keepProcessAlive } from './holder/keep-process-alive.ts'
import type { Loss, PastLease } from './holder/loss-log.ts'
import { isPromise, Nesting } from './holder/nesting.ts'
import { Operations } from './holder/operations.ts'
import { adoptLease } from './holder/transfer.ts'
import type { WorkerHeartbeat } from './holder/worker-heartbeat.ts'
import type { Command, PolicyRules, Want } from './kernel/command.ts'
import type { Event } from './kernel/event.ts'
import { type HeldLease, Lease } from './lease.ts'
import { holdersOf } from './lessor/holders-of.ts'
import type { GrantView, Lessor, Query, ReadOptions, View, WaiterView, WatchOptions } from './lessor.ts'
import { checkExcess, checkOptionNames } from './options.ts'
import { Cache, type CacheOptions } from './recipe/cache.ts'
import { Election, type ElectionOptions } from './recipe/election.ts'
import { Lock } from './recipe/lock.ts'
import { type Labels, Pool } from './recipe/pool.ts'
import { Registry } from './recipe/registry/registry.ts'
import { Session, type SessionOptions } from './recipe/session.ts'

export type { AcquireOptions, Mode } from './holder/acquire-request.ts'
export type { Loss, PastLease } from './holder/loss-log.ts'

export interface LeasesOptions {
  /** A name that people can read; `host:pid` unless said otherwise. */
  readonly holder?: string
  readonly clock?: Clock
  /** ρ: by how much the rate of any clock may be off. */
  readonly clockError?: number
  /** For leases that do not say. */
  readonly ttl?: Duration
  /** `'worker'`: another thread renews while this loop is blocked, for at most `maxStall`. Needs a place that a URL opens twice. */
  readonly heartbeat?: 'loop' | 'worker'
  /** With `heartbeat: 'worker'`: for how long the loop may be blocked before its leases are let go of; 10 s unless said otherwise. */
  readonly maxStall?: Duration
}

/** `apiKey` is for the place: see `connect`. */
export const LEASES_OPTIONS = ['holder', 'clock', 'clockError', 'ttl', 'heartbeat', 'maxStall', 'apiKey'] as const
/** Of `acquire`, without meaning for a lease on nothing. */
const NOT_OPEN = ['wait', 'ifAvailable', 'mode', 'units', 'any', 'priority', 'steal', 'recall'] as const
const REQUEST = 'request(names, options, callback), request(names, callback, options) or request(names, callback)'

/** So long it is asked who was in the way of a wait in vain. */
const NAMING = 250
/** So long an answer is waited for that only says whether something must be given back. */
const GOODBYE = 1_000

export class Leases implements AsyncDisposable {
  readonly holder: string
  readonly clock: Clock
  readonly lessor: Lessor
  readonly #identity: Identity
  readonly #operations: Operations
  readonly #beliefs: HeldLeases
  readonly #applicant: Acquirer
  readonly #nesting = new Nesting()
  readonly #pacemaker: WorkerHeartbeat | undefined
  #registry: Registry | undefined
  #closed: Promise<void> | undefined

  constructor(lessor: Lessor, options: LeasesOptions = {}, pacemaker?: WorkerHeartbeat) {
    checkOptionNames('Leases', options, LEASES_OPTIONS)
    if (options.heartbeat === 'worker' && pacemaker === undefined)
      throw new LeaseError('UNSUPPORTED', "heartbeat: 'worker' opens the place of leases a second time, by its URL: use connect(url, …)")
    const { holder = `${hostname()}:${process.pid}`, clock = systemClock, ttl = 30_000 } = options
    this.lessor = lessor
    this.holder = holder
    this.clock = clock
    this.#pacemaker = pacemaker
    const identity = new Identity(holder)
    const operations = new Operations(lessor, clock)
    this.#identity = identity
    this.#operations = operations
    const beliefs = new HeldLeases(operations, identity, marginOf(options), pacemaker)
    this.#beliefs = beliefs
    this.#applicant = new Acquirer({ beliefs, operations, identity, nesting: this.#nesting, ttl: milliseconds(ttl, 'ttl') })
  }

  /** For metrics and tests. */
  get stats(): { readonly messages: number; readonly renewals: number; readonly leases: number } {
    return { ...this.#beliefs.heartbeat.stats, leases: this.#beliefs.size }
  }

  // Asking

  /**
   * Runs `work` under a lease and gives it back afterwards, whatever happens. With `ifAvailable`, `work` gets null when it is held.
   *
   * Rejects with `LOST` when the lease was lost and `work` ended without having been told: it never looked at `signal`, `held` or `assertHeld`, or it
   * kept the event loop from turning until its deadline was over. `result` of that error is what `work` returned. What `work` throws comes first.
   */
  request<T>(names: string | readonly string[], work: (lease: Lease) => T | PromiseLike<T>): Promise<T>
  request<T>(
    names: string | readonly string[],
    options: AcquireOptions & { readonly ifAvailable: true },
    work: (lease: Lease | null) => T | PromiseLike<T>,
  ): Promise<T>
  request<T>(
    names: string | readonly string[],
    options: AcquireOptions & { readonly ifAvailable?: false },
    work: (lease: Lease) => T | PromiseLike<T>,
  ): Promise<T>
  request<T>(names: string | readonly string[], options: AcquireOptions, work: (lease: Lease | null) => T | PromiseLike<T>): Promise<T>
  /** The options may come last as well. */
  request<T>(
    names: string | readonly string[],
    work: (lease: Lease | null) => T | PromiseLike<T>,
    options: AcquireOptions & { readonly ifAvailable: true },
  ): Promise<T>
  request<T>(
    names: string | readonly string[],
    work: (lease: Lease) => T | PromiseLike<T>,
    options: AcquireOptions & { readonly ifAvailable?: false },
  ): Promise<T>
  request<T>(names: string | readonly string[], work: (lease: Lease | null) => T | PromiseLike<T>, options: AcquireOptions): Promise<T>
  async request<T>(names: string | readonly string[], second: unknown, third?: unknown, ...excess: readonly unknown[]): Promise<T> {
    checkExcess(REQUEST, excess)
    const [given, callback] = typeof second === 'function' ? [third, second] : [second, third]
    if (typeof callback !== 'function' || typeof given === 'function')
      throw new LeaseError('INVALID', `request takes one callback: write ${REQUEST}`)
    const options = (given ?? (given === null ? null : {})) as AcquireOptions
    const work = callback as (lease: Lease | null) => T | PromiseLike<T>
    checkOptions(options, 'request')
    if (options.ifAvailable === true) checkNoWait(options, 'request with ifAvailable')
    const belief = await (options.ifAvailable === true ? this.#tryObtain(names, options) : this.#obtain(names, options, waitOf(options)))
    if (belief === undefined) return work(null)
    const lease = new Lease(belief)
    try {
      const running = this.#nesting.run(belief, work, lease)
      const result = isPromise(running) ? await running : running
      const untold = this.#beliefs.untold(belief)
      if (untold !== undefined)
        throw new LeaseError(
          'LOST',
          `${untold.message}. The work under it ended without being told: it may have run beside that of the next holder`,
          {
            cause: untold,
            facts: untold.facts,
            result,
          },
        )
      return result
    } finally {
      try {
        await this.#beliefs.release(belief)
      } catch {
        // It lapses by itself; the outcome of the work is what the caller asked for.
      }
    }
  }

  /** All of the resources or none. Waits until granted unless `wait`, `ifAvailable` or `signal` say otherwise. */
  acquire(names: string | readonly string[], options?: AcquireOptions): Promise<Lease>
  async acquire(names: string | readonly string[], options: AcquireOptions = {}, ...excess: readonly unknown[]): Promise<Lease> {
    checkExcess('acquire(names, options)', excess)
    checkOptions(options)
    if (options.ifAvailable === true) checkNoWait(options, 'acquire with ifAvailable')
    const belief = await this.#obtain(names, options, waitOf(options)).catch(error => this.#withRemaining(error))
    return this.#beliefs.handle(belief)
  }

  /** A wait in vain, with who is in the way where that can be seen. It is for people, and must not keep them waiting much longer. */
  async #withHolders(error: unknown): Promise<never> {
    if (!(error instanceof LeaseError && error.code === 'TIMEOUT')) throw error
    const { resources, waited } = error.facts as { readonly resources: readonly string[]; readonly waited: number }
    const holders = await this.#operations.within(NAMING, holdersOf(this.lessor, resources)).catch(() => [])
    throw holders.length === 0 ? error : waitedInVain(resources, waited, holders)
  }

  /** Why it was refused, with how long its holder has left: the kernel knows no time. */
  async #withRemaining(error: unknown): Promise<never> {
    if (!(error instanceof LeaseError && error.code === 'HELD') || typeof error.facts.lease !== 'number' || error.facts.lease === 0)
      throw error
    const asked = this.lessor.read({ kind: 'lease', lease: error.facts.lease })
    const remaining = await this.#operations.within(1_000, asked).then(
      ({ value }) => value?.remaining,
      () => undefined, // it is for people: what was refused is refused without it
    )
    if (remaining === undefined) throw error
    throw new LeaseError('HELD', error.message, { facts: { ...error.facts, remaining: Math.max(0, Math.round(remaining)) } })
  }

  /** Undefined when it is held: that is an answer, not a failure. */
  tryAcquire(names: string | readonly string[], options?: AcquireOptions): Promise<Lease | undefined>
  async tryAcquire(
    names: string | readonly string[],
    options: AcquireOptions = {},
    ...excess: readonly unknown[]
  ): Promise<Lease | undefined> {
    checkExcess('tryAcquire(names, options)', excess)
    checkOptions(options, 'tryAcquire')
    checkNoWait(options, 'tryAcquire')
    const belief = await this.#tryObtain(names, options)
    return belief === undefined ? undefined : this.#beliefs.handle(belief)
  }

  /** A lease on nothing: what others hang on. */
  async grant(
    options: Omit<AcquireOptions, 'wait' | 'ifAvailable' | 'mode' | 'units' | 'any' | 'priority' | 'steal' | 'recall'> = {},
  ): Promise<Lease> {
    checkOptions(options, 'open', NOT_OPEN)
    return this.#beliefs.handle(await this.#ask([], options, 0))
  }

  /**
   * More to choose from, for an `acquire` with `any` that waits: `lease` is what its `onQueued` was told. It keeps its place, in the new queues
   * too. False: it does not wait, or not any more.
   */
  async widen(lease: number, more: readonly Want[]): Promise<boolean> {
    this.#mustBeOpen()
    return this.#applicant.widen(lease, more)
  }

  /** Takes over a lease that was transferred to this holder. It is renewed first and handed out when that is acknowledged. */
  async adopt(lease: number, options: Pick<AcquireOptions, 'renew' | 'maxHold' | 'maxStall'> = {}): Promise<Lease> {
    checkOptionNames('adopt', options, ['renew', 'maxHold', 'maxStall'])
    this.#mustBeOpen()
    const belief = await adoptLease(this.#beliefs, this.#operations, this.#identity, lease, options)
    return this.#beliefs.handle(this.#applicant.handOut(belief, maxHoldOf(options)))
  }

  async #tryObtain(names: string | readonly string[], options: AcquireOptions): Promise<HeldLease | undefined> {
    try {
      return await this.#obtain(names, options, 0)
    } catch (error) {
      if (error instanceof LeaseError && error.code === 'HELD') return undefined
      throw error
    }
  }

  #obtain(names: string | readonly string[], options: AcquireOptions, limit: number): Promise<HeldLease> {
    return this.#ask(checkNames(names), options, limit).catch(error => this.#withHolders(error))
  }

  #ask(names: readonly string[], options: AcquireOptions, limit: number): Promise<HeldLease> {
    checkOptions(options)
    options.signal?.throwIfAborted()
    this.#mustBeOpen()
    return this.#applicant.obtain(names, options, limit)
  }

  #mustBeOpen(): void {
    if (this.#closed !== undefined) throw new LeaseError('UNAVAILABLE', 'these leases were closed')
    this.lessor.signal.throwIfAborted()
  }

  // Recipes

  lock(names: string | readonly string[], options?: ConstructorParameters<typeof Lock>[2]): Lock {
    if (options !== undefined) checkOptions(options, 'lock', ['mode', 'signal', 'ifAvailable'])
    return new Lock(this, names, options)
  }

  election(name: string, options?: ElectionOptions): Election {
    return new Election(this, name, options)
  }

  session(options?: SessionOptions): Promise<Session> {
    return Session.begin(this, options)
  }

  cache<V>(prefix: string, options: CacheOptions<V>): Cache<V> {
    return new Cache(this, prefix, options)
  }

  /** Agents and services that are listed only while they live. */
  get registry(): Registry {
    const { holder, clock, lessor } = this
    const operations = this.#operations
    this.#registry ??= new Registry({
      ...{ holder, clock, lessor },
      decide: (command, options) => operations.decide(command, options),
      within: (ms, answer) => operations.within(ms, answer),
    })
    return this.#registry
  }

  pool(name: string, options?: { readonly match?: Labels }): Pool {
    return new Pool(this, name, options)
  }

  // Looking, and governing

  /** Who holds and who waits, as Web Locks has it, under a prefix. */
  async query(prefix = ''): Promise<{
    readonly revision: number
    readonly held: readonly GrantView[]
    readonly pending: readonly (WaiterView & { readonly resource: string })[]
  }> {
    const { revision, value } = await this.lessor.read({ kind: 'resources', prefix }, { consistent: true })
    return {
      revision,
      held: value.flatMap(({ grants }) => grants),
      pending: value.flatMap(({ resource, queue }) => queue.map(waiter => ({ ...waiter, resource }))),
    }
  }

  /** One array per revision. A gap can only appear as one event `resync`. */
  watch(prefix: string, options: WatchOptions): AsyncIterable<readonly Event[]> {
    checkSignal(options?.signal, `a watch of ${prefix}`)
    checkOptionNames('watch', options, ['after', 'types', 'signal'])
    return keepProcessAlive(this.clock, this.lessor.watch(prefix, options))
  }

  read<K extends Query['kind']>(query: Extract<Query, { readonly kind: K }>, options?: ReadOptions): Promise<View<K>> {
    return this.lessor.read(query, options)
  }

  /** The last holders of a resource and how each ended; for those that this process lost, with what it knows of that. */
  async history(resource: string): Promise<readonly PastLease[]> {
    const { value } = await this.lessor.read({ kind: 'history', resource }, { consistent: true })
    return this.#beliefs.losses.beside(resource, value)
  }

  /** What this process lost, newest last, reachable lessor or not. */
  get losses(): readonly Loss[] {
    return this.#beliefs.losses.all
  }

  #change(command: Command): Promise<unknown> {
    this.#mustBeOpen()
    return this.#operations.change(command)
  }

  async policy(prefix: string, rules: PolicyRules | undefined): Promise<void> {
    await this.#change(rules === undefined ? { kind: 'policy', prefix } : { kind: 'policy', prefix, rules })
  }

  async revoke(
    target: { readonly lease: number } | { readonly holder: string } | { readonly prefix: string },
    options: { readonly force?: boolean; readonly by?: string } = {},
  ): Promise<void> {
    checkOptionNames('revoke', options, ['force', 'by'])
    const { force, by = this.holder } = options
    await this.#change({ kind: 'revoke', target, by, ...(force !== undefined && { force }) })
  }

  async recall(resource: string): Promise<void> {
    await this.#change({ kind: 'recall', resource, by: this.holder })
  }

  /** Gives back everything that is held, calls off everything that waits, and lets go of the lessor. */
  [Symbol.asyncDispose](): Promise<void> {
    this.#closed ??= this.#close()
    return this.#closed
  }

  async #close(): Promise<void> {
    const answered = this.#applicant.stop(new LeaseError('UNAVAILABLE', 'these leases were closed while this was waiting'))
    // What was asked for may be granted yet: whoever leaves without hearing of it leaves a lease behind.
    const givenBack = this.#operations.within(
      GOODBYE,
      answered.then(() => this.#beliefs.givenBack()),
    )
    await Promise.allSettled([givenBack, ...[...this.#beliefs].map(belief => this.#beliefs.release(belief))])
    await this.#registry?.[Symbol.asyncDispose]()
    this.#beliefs.hearing.stop()
    this.#beliefs.heartbeat.stop()
    await this.#pacemaker?.[Symbol.asyncDispose]()
    await this.lessor[Symbol.asyncDispose]()
  }
}

/** δ: the part of a term that is given up. */
export function marginOf({ clockError = 0.005 }: Pick<LeasesOptions, 'clockError'>): number {
  if (!(clockError >= 0 && clockError < 0.5)) throw new LeaseError('INVALID', `clockError must be from 0 to 0.5, not ${clockError}`)
  return 2 * clockError
}
