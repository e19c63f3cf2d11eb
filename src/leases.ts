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
import { type Clock, pause, systemClock } from './clock.ts'
import { type Duration, inWords, milliseconds } from './duration.ts'
import { type Facts, LeaseError } from './errors.ts'
import { Asking } from './holder/asking.ts'
import { nextAsk, publish } from './holder/channels.ts'
import { Heartbeat } from './holder/heartbeat.ts'
import { Nesting } from './holder/nesting.ts'
import { News, type Watch } from './holder/news.ts'
import { LONGEST_RETRY, Operations, PATIENCE, refused, SHORTEST_RETRY } from './holder/operations.ts'
import type { Pacemaker } from './holder/pacemaker.ts'
import type { Acquire, Command, PolicyRules } from './kernel/command.ts'
import type { Event } from './kernel/event.ts'
import type { Granted, Outcome, Queued } from './kernel/outcome.ts'
import { Belief, beliefOf, type Keeper, Lease, type Sent, type Strategy, since } from './lease.ts'
import type { GrantView, Lessor, PastGrant, Query, ReadOptions, View, WaiterView, WatchOptions } from './lessor.ts'
import { Cache, type CacheOptions } from './recipe/cache.ts'
import { Election, type ElectionOptions } from './recipe/election.ts'
import { Lock } from './recipe/lock.ts'
import { type Labels, Pool } from './recipe/pool.ts'
import { Registry } from './recipe/registry.ts'
import { Session, type SessionOptions } from './recipe/session.ts'

/** Watches kept for leases that are merely held, so that a revoke is heard of at once and not with the next renewal. */
const MOST_WATCHES = 32
const FAREWELL = 5_000
const RECORDED = 256

export type Mode = 'exclusive' | 'shared'

export interface AcquireOptions {
  readonly ttl?: Duration
  /** How long to wait; `true`, the default, until granted; `false` or 0 not at all. */
  readonly wait?: Duration | boolean
  /** As in Web Locks: do not wait. */
  readonly ifAvailable?: boolean
  readonly mode?: Mode
  /** Of each resource, or by name. */
  readonly units?: number | Readonly<Record<string, number>>
  /** Any so many of the resources instead of all. */
  readonly any?: number
  /** Higher goes first, -1000 to 1000. */
  readonly priority?: number
  /** Ends the wait, and gives back what was granted meanwhile. It has no say once the lease is handed out. */
  readonly signal?: AbortSignal
  /** Ends the present holders first and waits until they have stopped believing. `'force'` does not wait for that: two may believe at once. */
  readonly steal?: boolean | 'force'
  readonly renew?: Strategy
  /** Ends with this lease, in the same revision. */
  readonly parent?: Lease | number
  readonly labels?: Readonly<Record<string, string>>
  /** Keys and values that vanish with the lease. */
  readonly entries?: Readonly<Record<string, string>>
  /** After the ttl, how long it is merely suspect: granted to nobody else, and brought back by a renewal. */
  readonly grace?: Duration
  /** The lessor ends it so long after the grant, renewed or not. */
  readonly maxLife?: Duration
  /** This process gives it up after so long, whatever its work is doing. */
  readonly maxHold?: Duration
  /** Renewed only while `lease.progress()` is called at least this often: alive and working are two things. */
  readonly maxStall?: Duration
  /** Tells the present holders that someone waits. */
  readonly recall?: boolean
  /** Leases that are kept meanwhile, for finding deadlocks. Left out: those whose `request` callback this is called in. */
  readonly holding?: readonly Lease[]
  /** Told the place in the queue, 0 being next, whenever it changes. */
  readonly onWait?: (place: { readonly lease: number; readonly position: number }) => void
  /**
   * Called once when it is lost. Its units stay frozen until what this returns has settled, or its last term has run: for work that takes a
   * moment to stop. Left out: `signal` is when the work has stopped, and the lessor is told at once.
   */
  readonly onLost?: (reason: LeaseError) => void | PromiseLike<void>
  /** What the store must promise. */
  readonly require?: readonly ('durable' | 'failover')[]
}

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

/** How a lease was lost here. Kept for `history`. */
export interface Loss {
  readonly lease: number
  readonly resources: readonly string[]
  readonly token: number
  readonly cause: string
  readonly message: string
  /** Wall time, for people. */
  readonly at: number
  /** For so many ms someone who watched only `signal` may have acted beside the next holder. Normally 0. */
  readonly overlap: number
}

export interface PastLease extends PastGrant {
  /** When this process held it and lost it: what it knows of that. */
  readonly loss?: Loss
}

interface Asked {
  readonly ask: number
  readonly command: Acquire
  readonly ttl: number
  readonly strategy: Strategy
  readonly maxHold: number
  readonly maxStall: number | undefined
  readonly parent: Belief | undefined
  readonly onWait: AcquireOptions['onWait']
  readonly onLost: AcquireOptions['onLost']
}

/** News of a grant. */
interface Told {
  readonly lease: number
  readonly resources: readonly string[]
  readonly tokens: readonly number[]
}

interface Waiter {
  readonly belief: Belief
  readonly asked: Asked
  position: number
  /** Undefined: the place is lost, ask again. */
  readonly settle: (told: Told | undefined) => void
  readonly fail: (error: unknown) => void
}

export class Leases implements AsyncDisposable {
  readonly holder: string
  readonly clock: Clock
  readonly lessor: Lessor
  readonly #ttl: number
  readonly #keeper: Keeper
  readonly #heartbeat: Heartbeat
  readonly #pacemaker: Pacemaker | undefined
  readonly #news: News
  readonly #operations: Operations
  readonly #beliefs = new Map<number, Belief>()
  readonly #waiters = new Map<number, Waiter>()
  readonly #asking = new Set<Asking>()
  /** Leases that a transfer has made for this holder, and that nobody has adopted yet. */
  readonly #heirs = new Set<number>()
  readonly #nesting = new Nesting()
  readonly #handles = new FinalizationRegistry<Belief>(belief => this.#forgotten(belief))
  readonly #losses: Loss[] = []
  #incarnation: number | undefined
  #introduction: Promise<unknown> | undefined
  #warned = false
  /** Watches that are about to begin. */
  #beginning = 0
  #registry: Registry | undefined
  #closed: Promise<void> | undefined

  constructor(lessor: Lessor, options: LeasesOptions = {}, pacemaker?: Pacemaker) {
    if (options.heartbeat === 'worker' && pacemaker === undefined)
      throw new LeaseError('UNSUPPORTED', "heartbeat: 'worker' opens the place of leases a second time, by its URL: use connect(url, …)")
    this.#pacemaker = pacemaker
    const { holder = `${hostname()}:${process.pid}`, clock = systemClock, ttl = 30_000 } = options
    const margin = marginOf(options)
    this.lessor = lessor
    this.holder = holder
    this.clock = clock
    this.#ttl = milliseconds(ttl, 'ttl')
    this.#operations = new Operations(lessor, clock)
    const ward = {
      renew: (leases: readonly number[], waiting: boolean) =>
        lessor.propose(waiting ? { kind: 'renew', leases, waiting } : { kind: 'renew', leases }),
      granted: (belief: Belief) => void this.#check(belief),
      gone: (belief: Belief) => void this.#gone(belief),
      expired: (belief: Belief, cause: string, ms: number) => this.#expired(belief, cause, ms),
      beating: (beliefs: readonly Belief[]) => this.#listenTo(beliefs),
    }
    this.#heartbeat = new Heartbeat(clock, margin, ward, pacemaker)
    this.#news = new News(lessor, clock, events => this.#heard(events))
    const heartbeat = this.#heartbeat
    this.#keeper = {
      clock,
      margin,
      get doubted() {
        return heartbeat.doubted
      },
      look: () => heartbeat.look(),
      expire: belief => heartbeat.expire(belief),
      renew: belief => this.#renew(belief),
      progressed: belief => heartbeat.progressed(belief),
      release: belief => this.#release(belief),
      transfer: (belief, to, incarnation) => this.#transfer(belief, to, incarnation),
      put: async (belief, key, value) => void (await this.#changeOn(belief, { kind: 'put', lease: belief.id, key, value })),
      delete: async (belief, key) => void (await this.#changeOn(belief, { kind: 'delete', lease: belief.id, key })),
      listen: belief => void this.#listen(belief),
      endangered: belief => publish('jeopardy', () => ({ ask: belief.ask, ...belief.facts, remaining: belief.remaining() })),
    }
    lessor.signal.addEventListener('abort', () => this.#lessorEnded(), { once: true })
  }

  /** For metrics and tests. */
  get seen(): { readonly messages: number; readonly renewals: number; readonly leases: number } {
    return { ...this.#heartbeat.seen, leases: this.#beliefs.size }
  }

  // Asking

  /** Runs `work` under a lease and gives it back afterwards, whatever happens. With `ifAvailable`, `work` gets null when it is held. */
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
  async request<T>(
    names: string | readonly string[],
    second: AcquireOptions | ((lease: Lease) => T | PromiseLike<T>),
    third?: ((lease: Lease) => T | PromiseLike<T>) | ((lease: Lease | null) => T | PromiseLike<T>),
  ): Promise<T> {
    const options = typeof second === 'function' ? {} : second
    const work = (typeof second === 'function' ? second : third) as (lease: Lease | null) => T | PromiseLike<T>
    if (typeof work !== 'function') throw new LeaseError('INVALID', 'request takes a function as its last argument')
    const belief =
      options.ifAvailable === true ? await this.#tryObtain(names, options) : await this.#obtain(names, options, waitOf(options))
    if (belief === undefined) return work(null)
    const lease = new Lease(belief)
    try {
      return await this.#nesting.run(belief, () => work(lease))
    } finally {
      await this.#release(belief).catch(undelivered)
    }
  }

  /** All of the resources or none. Waits until granted unless `wait`, `ifAvailable` or `signal` say otherwise. */
  async acquire(names: string | readonly string[], options: AcquireOptions = {}): Promise<Lease> {
    return this.#handle(await this.#obtain(names, options, options.ifAvailable === true ? 0 : waitOf(options)))
  }

  /** Undefined when it is held: that is an answer, not a failure. */
  async tryAcquire(names: string | readonly string[], options: AcquireOptions = {}): Promise<Lease | undefined> {
    const belief = await this.#tryObtain(names, options)
    return belief === undefined ? undefined : this.#handle(belief)
  }

  /** A lease on nothing: what others hang on. */
  async open(
    options: Omit<AcquireOptions, 'wait' | 'ifAvailable' | 'mode' | 'units' | 'any' | 'priority' | 'steal' | 'recall'> = {},
  ): Promise<Lease> {
    return this.#handle(await this.#obtain([], options, 0))
  }

  /** Takes over a lease that was transferred to this holder. It is renewed first and handed out when that is acknowledged. */
  async adopt(lease: number, options: Pick<AcquireOptions, 'renew' | 'maxHold' | 'maxStall'> = {}): Promise<Lease> {
    const { value } = await this.#operations.within(PATIENCE, this.lessor.read({ kind: 'lease', lease }, { consistent: true }))
    if (value === undefined || value.status !== 'live')
      throw new LeaseError('GONE', `lease ${lease} has ended, or is not granted yet`, { facts: { lease } })
    if (value.holder !== this.holder || this.#beliefs.has(lease))
      throw new LeaseError(
        'INVALID',
        `lease ${lease} belongs to ${value.holder}${value.holder === this.holder ? ', which has it in hand' : ''}`,
      )
    // A lease that was transferred to nobody in particular has its own number there. Anything else has a process that may believe in it.
    if (value.incarnation !== lease && value.incarnation !== this.#incarnation)
      throw new LeaseError('INVALID', `lease ${lease} was transferred to another process of the name ${this.holder}`, {
        facts: { lease, incarnation: value.incarnation },
      })
    const asked = {
      ...this.#settings(options, value.ttl),
      command: { kind: 'acquire', holder: this.holder, ttl: value.ttl, wants: [] } as const,
    }
    const told = { lease, resources: value.grants.map(({ resource }) => resource), tokens: value.grants.map(({ token }) => token) }
    const belief = new Belief(this.#keeper, lease, 'told', value.ttl, { holder: this.holder, ...asked })
    this.#beliefs.set(lease, belief)
    if (!(await this.#confirm(belief, told))) throw belief.end
    return this.#handle(this.#handOut(belief, asked))
  }

  async #tryObtain(names: string | readonly string[], options: AcquireOptions): Promise<Belief | undefined> {
    try {
      return await this.#obtain(names, options, 0)
    } catch (error) {
      if (error instanceof LeaseError && error.code === 'HELD') return undefined
      throw error
    }
  }

  #obtain(names: string | readonly string[], options: AcquireOptions, limit: number): Promise<Belief> {
    const { signal } = options
    signal?.throwIfAborted()
    this.#mustBeOpen()
    const asked = this.#form(typeof names === 'string' ? [names] : names, options, limit > 0)
    const began = this.clock.now()
    const { ask, command } = asked
    publish('asking', () => ({ ask, holder: this.holder, resources: command.wants.map(({ resource }) => resource), ttl: asked.ttl, limit }))
    return new Promise((resolve, rejectPromise) => {
      const reject = (error: unknown) => {
        publish('refused', () => ({ ask, error }))
        rejectPromise(error)
      }
      const asking = new Asking(reject, this.clock, signal, limit, () => this.#waited(asked, this.clock.now() - began))
      this.#asking.add(asking)
      const done = () => {
        this.#asking.delete(asking)
        asking.finish()
      }
      this.#ask(asked, asking).then(
        belief => {
          done()
          resolve(belief)
        },
        error => {
          done()
          reject(error)
        },
      )
    })
  }

  async #ask(asked: Asked, asking: Asking): Promise<Belief> {
    // The first lease makes the incarnation of all that follow.
    while (this.#incarnation === undefined && this.#introduction !== undefined) await this.#introduction
    for (;;) {
      asking.throwIfStopped()
      const belief = await this.#attempt(asked, asking)
      asking.throwIfStopped()
      if (belief !== undefined) {
        asking.finish()
        return this.#handOut(belief, asked)
      }
      if (asked.command.wait === true) continue // granted or queued, and over before we could use it: once more
      const names = asked.command.wants.map(({ resource }) => resource).join(', ')
      throw new LeaseError('UNAVAILABLE', `${names} was granted, but the answer took longer than the ttl of ${inWords(asked.ttl)}`)
    }
  }

  /** A lease to hand out; undefined when it was over before that. */
  async #attempt(asked: Asked, asking: Asking): Promise<Belief | undefined> {
    const sent = this.#heartbeat.sent()
    const incarnation = this.#incarnation
    const command =
      incarnation === asked.command.incarnation || incarnation === undefined ? asked.command : { ...asked.command, incarnation }
    const deciding = this.#operations.decide(command, { ttl: asked.ttl, late: late => this.#abandon(late) })
    if (this.#incarnation === undefined) this.#introduce(deciding)
    const outcome = await deciding
    if (outcome.kind !== 'granted' && outcome.kind !== 'queued') throw refused(outcome)
    const belief = this.#believe(outcome, sent, asked)
    asking.onStop = () => this.#leave(belief)
    try {
      asking.throwIfStopped()
    } catch (stopped) {
      this.#leave(belief)
      throw stopped
    }
    if (outcome.kind === 'queued') return this.#queue(belief, outcome, asked, asking)
    const left = this.#heartbeat.join(belief)
    if (left <= 0) {
      this.#leave(belief)
      return undefined
    }
    // A long grant begins short; whoever renews by the clock lengthens it in good time, the others must do so now.
    const short = belief.term < asked.ttl && asked.strategy !== 'half' && asked.strategy !== 'continuous'
    const doubtful = sent.number <= this.#heartbeat.doubted // the wall clock jumped while it was under way
    if (!short && !doubtful && left > belief.valid / 4) return belief
    return (await this.#confirm(belief, { ...outcome, lease: belief.id })) ? belief : undefined
  }

  /** Everyone else waits for the first answer, which says who this process is. */
  #introduce(first: Promise<Outcome>): void {
    this.#introduction = first.then(
      outcome => {
        if (outcome.kind === 'granted' || outcome.kind === 'queued') this.#incarnation ??= outcome.incarnation
        this.#introduction = undefined
      },
      () => (this.#introduction = undefined),
    )
  }

  #believe(outcome: Granted | Queued, sent: Sent, asked: Asked): Belief {
    const { lease, ttl, kind, revision } = outcome
    const belief = new Belief(this.#keeper, lease, kind === 'granted' ? 'held' : 'waiting', ttl, { holder: this.holder, ...asked })
    belief.revision = revision
    if (kind === 'granted') Object.assign(belief, { resources: outcome.resources, tokens: outcome.tokens })
    belief.renewed(sent, ttl)
    this.#beliefs.set(lease, belief)
    if (asked.parent !== undefined) {
      asked.parent.children ??= new Set()
      asked.parent.children.add(belief)
    }
    return belief
  }

  async #queue(belief: Belief, { position, revision }: Queued, asked: Asked, asking: Asking): Promise<Belief | undefined> {
    const told = await new Promise<Told | undefined>((settle, fail) => {
      const waiter: Waiter = { belief, asked, position: -1, settle, fail }
      this.#waiters.set(belief.id, waiter)
      this.#heartbeat.join(belief)
      const { wants, any } = asked.command
      const watch = this.#news.follow(
        any === undefined ? wants[0]!.resource : commonPrefix(wants.map(({ resource }) => resource)),
        revision,
      )
      belief.news = watch
      if (watch.revision > revision) void this.#check(belief)
      this.#placed(waiter, position)
    })
    this.#waiters.delete(belief.id)
    if (told === undefined) {
      this.#leave(belief)
      return undefined
    }
    if (told.lease === belief.id) return (await this.#confirm(belief, told)) ? belief : undefined
    // It came by transfer: our own place in the queue is given back.
    const heir = new Belief(this.#keeper, told.lease, 'told', belief.term, { holder: this.holder, ...asked })
    this.#beliefs.set(heir.id, heir)
    asking.onStop = () => this.#leave(heir)
    this.#leave(belief)
    return (await this.#confirm(heir, told)) ? heir : undefined
  }

  /** Belief begins with a renewal that leaves after the news. False: it was over before that. */
  async #confirm(belief: Belief, told: Told): Promise<boolean> {
    if (belief.stage === 'ended') return false // it was called off, or ran out, while the news was on its way
    belief.stage = 'told'
    belief.resources = told.resources
    belief.tokens = told.tokens
    belief.hollow = this.#heartbeat.lastSent
    // An heir has no request of its own behind it: it has as long as the lessor gives it, from now.
    if (belief.sent.number === 0) belief.sent = { ...this.#heartbeat.sent(), number: 0 }
    this.#heartbeat.join(belief)
    this.#heartbeat.urge(belief)
    try {
      await belief.nextRenewal()
      return true
    } catch (error) {
      if (error instanceof LeaseError && error.facts.cause === 'revoked') throw new LeaseError('GONE', error.message, error)
      return false
    }
  }

  #handOut(belief: Belief, { maxHold }: Pick<Asked, 'maxHold'>): Belief {
    belief.grantedAt = this.clock.now()
    belief.progress = belief.grantedAt
    this.#heartbeat.progressed(belief) // waiting was no stall
    if (maxHold < Number.POSITIVE_INFINITY)
      belief.cancelHold = this.clock.after(maxHold, () =>
        this.#lose(belief, 'max-hold', `it was held for ${inWords(maxHold)}, as long as was allowed`, { ms: maxHold }),
      )
    publish('acquired', () => ({ ask: belief.ask, ...belief.facts, resources: belief.resources, tokens: belief.tokens }))
    return belief
  }

  /** The handle of one that may be forgotten. */
  #handle(belief: Belief): Lease {
    const lease = new Lease(belief)
    this.#handles.register(lease, belief, belief)
    belief.registered = true
    return lease
  }

  #form(names: readonly string[], options: AcquireOptions, wait: boolean): Asked {
    const { mode = 'exclusive', units, any, priority, steal = false, labels, entries, recall, holding, require = [] } = options
    for (const promise of require)
      if (!this.lessor.profile[promise])
        throw new LeaseError('UNSUPPORTED', `the ${this.lessor.profile.store} store is not ${promise}, which was required`)
    if (steal !== false && !wait) throw new LeaseError('INVALID', 'a steal waits until the present holders have stopped: let it wait')
    const settings = this.#settings(options, options.ttl === undefined ? this.#ttl : milliseconds(options.ttl, 'ttl'))
    const shared = mode === 'shared'
    const unitsOf = (name: string) => (typeof units === 'object' ? units[name] : units)
    const wants = names.map(resource => {
      const count = unitsOf(resource)
      return { resource, ...(count !== undefined && { units: count }), ...(shared && { shared }) }
    })
    const kept = holding?.map(beliefOf) ?? this.#nesting.inside
    const parent = typeof options.parent === 'number' ? options.parent : settings.parent?.id
    const command: Acquire = {
      kind: 'acquire',
      holder: this.holder,
      ttl: settings.ttl,
      wants,
      ...(this.#incarnation !== undefined && { incarnation: this.#incarnation }),
      ...(wait && names.length > 0 && { wait }),
      ...(any !== undefined && { any }),
      ...(priority !== undefined && { priority }),
      ...(entries !== undefined && { entries: Object.entries(entries).map(([key, value]) => ({ key, value })) }),
      ...(parent !== undefined && { parent }),
      ...(labels !== undefined && { labels: Object.entries(labels) }),
      ...(kept.length > 0 && { holding: kept.map(({ id }) => id) }),
      ...(options.grace !== undefined && { grace: milliseconds(options.grace, 'grace') }),
      ...(options.maxLife !== undefined && { maxLife: milliseconds(options.maxLife, 'maxLife') }),
      ...(steal !== false && { steal: steal === 'force' ? 'force' : 'after' }),
      ...(recall === true && { recall }),
    }
    return { ...settings, command }
  }

  #settings(
    options: Pick<AcquireOptions, 'renew' | 'maxHold' | 'maxStall' | 'parent' | 'onWait' | 'onLost'>,
    ttl: number,
  ): Omit<Asked, 'command'> {
    const { renew = 'half', maxHold, maxStall, parent, onWait, onLost } = options
    if (!['half', 'continuous', 'on-activity', 'manual', 'never'].includes(renew))
      throw new LeaseError('INVALID', `renew must be half, continuous, on-activity, manual or never, not ${String(renew)}`)
    return {
      ask: nextAsk(),
      ttl,
      strategy: renew,
      maxHold: maxHold === undefined ? Number.POSITIVE_INFINITY : milliseconds(maxHold, 'maxHold'),
      maxStall: maxStall === undefined ? undefined : milliseconds(maxStall, 'maxStall'),
      parent: parent instanceof Lease ? beliefOf(parent) : undefined,
      onWait,
      onLost,
    }
  }

  #waited({ command: { wants } }: Asked, ms: number): LeaseError {
    const names = wants.map(({ resource }) => resource)
    return new LeaseError('WAITED', `${names.join(', ')} was not granted within ${inWords(ms)}: it is still held, or others come first`, {
      facts: { resource: names[0] ?? '', resources: names, waited: Math.round(ms) },
    })
  }

  // What others decided

  #heard(events: readonly Event[]): void {
    if (events[0]!.type === 'resync') {
      for (const belief of [...this.#beliefs.values()]) if (belief.news !== undefined) void this.#check(belief)
      return
    }
    this.#noteHeirs(events)
    const grants = new Map<Belief, Event[]>()
    for (const event of events) {
      const belief = this.#beliefs.get(event.lease)
      if (belief === undefined) {
        if (event.type === 'granted' && this.#heirs.has(event.lease)) void this.#inherit(event)
      } else if (event.type === 'granted') {
        if (belief.stage === 'waiting') grants.set(belief, [...(grants.get(belief) ?? []), event])
      } else if (event.type === 'recalled') belief.recall(event.by ?? '')
      else if (event.type === 'withdrawn') this.#withdrawn(belief, event.cause ?? '')
      else if (event.type === 'revoked' || event.type === 'lapsed' || event.type === 'transferred')
        this.#ended(belief, event.cause ?? event.type, event.by ?? '')
    }
    for (const [belief, granted] of grants) this.#granted(belief, granted)
    for (const waiter of this.#waiters.values()) if (waiter.asked.onWait !== undefined) void this.#check(waiter.belief)
  }

  /** All of them belong to one revision; those outside what is watched are read. */
  #granted(belief: Belief, events: readonly Event[]): void {
    const waiter = this.#waiters.get(belief.id)
    if (waiter === undefined) return
    const { wants, any } = waiter.asked.command
    if (events.length < (any ?? wants.length)) return void this.#check(belief)
    const told = { lease: belief.id, resources: events.map(({ resource }) => resource!), tokens: events.map(({ token }) => token!) }
    waiter.settle(told)
  }

  /** A renewal, a resync or a late watch says that something happened: see what. The revision it was seen at, if it could be. */
  async #check(belief: Belief): Promise<number | undefined> {
    try {
      const asked = this.lessor.read({ kind: 'lease', lease: belief.id }, { atLeast: belief.revision })
      const { value, revision } = await this.#operations.within(PATIENCE, asked)
      const waiter = this.#waiters.get(belief.id)
      if (value === undefined || value.status === 'frozen') void this.#gone(belief)
      else if (value.recalled) belief.recall('')
      if (waiter === undefined || value === undefined || value.status === 'frozen') return revision
      if (value.status !== 'waiting') {
        const { grants } = value
        waiter.settle({ lease: belief.id, resources: grants.map(grant => grant.resource), tokens: grants.map(({ token }) => token) })
      } else this.#placed(waiter, Math.max(...value.wants.map(({ position }) => position)))
      return revision
    } catch {
      return undefined // the next renewal brings the same news
    }
  }

  #placed(waiter: Waiter, position: number): void {
    if (position === waiter.position) return
    waiter.position = position
    publish('queued', () => ({
      ask: waiter.asked.ask,
      lease: waiter.belief.id,
      resources: waiter.asked.command.wants.map(({ resource }) => resource),
      position,
    }))
    try {
      waiter.asked.onWait?.({ lease: waiter.belief.id, position })
    } catch (error) {
      this.#leave(waiter.belief)
      waiter.fail(error)
    }
  }

  #withdrawn(belief: Belief, cause: string): void {
    const waiter = this.#waiters.get(belief.id)
    if (waiter === undefined) return
    if (cause === 'lapsed') return waiter.settle(undefined)
    this.#forget(belief)
    const names = waiter.asked.command.wants.map(({ resource }) => resource).join(', ')
    const error = new LeaseError('GONE', `the place in the queue for ${names} was taken away: ${cause}`, {
      facts: { lease: belief.id, cause },
    })
    belief.finish(error)
    waiter.fail(error)
  }

  /** The giver stopped before it sent: the heir is ours when it says so, and is of this very process. */
  #noteHeirs(events: readonly Event[]): void {
    if (!events.some(({ type, by }) => type === 'transferred' && by === this.holder)) return
    for (const { type, lease, holder } of events)
      if (holder === this.holder && (type === 'granted' || type === 'queued') && !this.#beliefs.has(lease)) this.#heirs.add(lease)
  }

  async #inherit({ lease, resource }: Event): Promise<void> {
    this.#heirs.delete(lease)
    try {
      const { value } = await this.lessor.read({ kind: 'lease', lease })
      if (value?.status !== 'live' || value.incarnation !== this.#incarnation) return
      const mine = [...this.#waiters.values()].find(({ asked }) => asked.command.wants.some(want => want.resource === resource))
      mine?.settle({ lease, resources: value.grants.map(grant => grant.resource), tokens: value.grants.map(({ token }) => token) })
    } catch {
      // Nobody renews it, so it lapses and goes to the next in the queue.
    }
  }

  /** From now on, and not from its grant: what happened before is read, and a long history need not be told. */
  async #listen(belief: Belief): Promise<void> {
    if (belief.news !== undefined || belief.listening || belief.resources.length === 0) return
    belief.listening = true
    this.#beginning++
    const revision = await this.#check(belief)
    this.#beginning--
    belief.listening = false
    if (revision === undefined || belief.stage === 'ended' || belief.news !== undefined) return
    const watch = this.#news.follow(commonPrefix(belief.resources), revision)
    belief.news = watch
    if (watch.revision > revision) await this.#check(belief) // others had it open, and it was past that already
  }

  /** Those that are held for long hear of a revoke at once, as far as a few watches go. */
  #listenTo(beliefs: readonly Belief[]): void {
    for (const belief of beliefs) {
      if (this.#news.size + this.#beginning >= MOST_WATCHES) return
      if (belief.stage === 'held' && belief.resources.length === 1) void this.#listen(belief)
    }
  }

  // Renewing and ending

  #renew(belief: Belief): Promise<void> {
    if (belief.stage !== 'held') return Promise.reject(belief.end)
    const renewed = belief.nextRenewal()
    this.#heartbeat.urge(belief)
    return renewed
  }

  /** The lessor says it has ended: believed in no more, from here on. What is frozen waits for us, so there is time to ask why. */
  async #gone(belief: Belief): Promise<void> {
    if (belief.stage === 'ended' || belief.stage === 'leaving') return
    this.#waiters.get(belief.id)?.settle(undefined)
    if (belief.stage === 'waiting') return
    const left = belief.remaining()
    belief.stage = 'leaving'
    this.#heartbeat.leave(belief)
    let past: PastGrant | undefined
    const [resource] = belief.resources
    if (resource !== undefined) {
      const history = await this.#operations
        .within(Math.min(250, left), this.lessor.read({ kind: 'history', resource }))
        .catch(() => undefined)
      past = history?.value.find(({ lease }) => lease === belief.id)
    }
    this.#loseTo(belief, past?.cause ?? 'ended', past?.by ?? '', left)
  }

  #ended(belief: Belief, cause: string, by: string): void {
    // A farewell is under way, or someone asks already: the answer says what became of it.
    if (belief.stage !== 'leaving') this.#loseTo(belief, cause, by, belief.remaining())
  }

  #loseTo(belief: Belief, cause: string, by: string, left: number): void {
    // It was over here before the lessor said so: why it was not renewed in time is what there is to tell.
    if (cause === 'lapsed' && left === 0) return this.#heartbeat.expire(belief)
    const who = by === '' ? '' : cause === 'transferred' ? ` to ${by}` : ` by ${by}`
    this.#lose(belief, cause, `the lessor has ended it: ${cause}${who}`, { by, definite: cause === 'lapsed' })
  }

  #expired(belief: Belief, cause: string, ms: number): void {
    const waiter = this.#waiters.get(belief.id)
    if (waiter !== undefined) return waiter.settle(undefined)
    const why: Readonly<Record<string, string>> = {
      suspend: `this machine slept for ${inWords(ms)}`,
      stall: `this process stood still for ${inWords(ms)}`,
      'no-progress': `its work made no progress for ${inWords(ms)}`,
      'not-renewed': `nobody renewed it for ${inWords(ms)}`,
      inactive: `nothing was done with it for ${inWords(ms)}`,
      unreachable: `no renewal was answered for ${inWords(ms)}`,
    }
    this.#lose(belief, cause, why[cause]!, cause === 'unreachable' ? { ms, error: this.#heartbeat.failure } : { ms })
  }

  /** `definite`: the lessor has nothing left to be given back. */
  #lose(
    belief: Belief,
    cause: string,
    text: string,
    { by = '', ms = 0, error, definite = false }: { by?: string; ms?: number; error?: unknown; definite?: boolean } = {},
  ): void {
    if (belief.stage === 'ended') return
    const handed = belief.grantedAt > 0
    const over = since(belief.sent, this.clock.now(), this.clock.uptime()) - belief.term
    this.#forget(belief)
    this.#endChildren(belief)
    const facts: Facts = { ...belief.facts, cause, ms: Math.round(ms), ...(by !== '' && { by }) }
    belief.finish(new LeaseError('LOST', `${belief.name} is lost: ${text}`, { cause: error, facts }))
    if (handed) this.#record(belief, cause, text, Math.max(0, over))
    // Its queued renewals must not keep alive what nobody believes in; and frozen units are free when their holder says that it stopped.
    const { onLost } = belief
    if (onLost === undefined || !handed) {
      if (!definite) this.#farewell(belief.id, belief.term).catch(() => {})
      return
    }
    const stopped = (async () => onLost(belief.end))()
    const told = () => (definite ? undefined : this.#farewell(belief.id, belief.term))
    belief.farewell = stopped.then(told, told).catch(() => {})
  }

  #record(belief: Belief, cause: string, message: string, overlap: number): void {
    const { id: lease, resources, tokens } = belief
    const loss: Loss = { lease, resources, token: tokens[0] ?? 0, cause, message, at: this.clock.wall(), overlap }
    this.#losses.push(loss)
    if (this.#losses.length > RECORDED) this.#losses.shift()
    publish('lost', () => ({ ask: belief.ask, ...belief.facts, ...loss, reason: belief.end }))
  }

  #endChildren(belief: Belief): void {
    for (const child of [...(belief.children ?? [])])
      this.#lose(child, 'parent', `${belief.name}, which it hung on, has ended`, { by: String(belief.id) })
  }

  #forgotten(belief: Belief): void {
    if (belief.stage === 'ended') return
    if (!this.#warned) {
      this.#warned = true
      process.emitWarning(`${belief.name} was never released and nothing refers to it any more: use request(), or await using`, {
        type: 'LeaseholdWarning',
        code: 'LEASEHOLD_FORGOTTEN',
      })
    }
    this.#lose(belief, 'forgotten', 'its handle was collected without a release')
  }

  #forget(belief: Belief): void {
    this.#heartbeat.leave(belief)
    if (belief.news !== undefined) this.#news.unfollow(belief.news as Watch)
    belief.news = undefined
    this.#beliefs.delete(belief.id)
    this.#waiters.delete(belief.id)
    if (belief.registered) this.#handles.unregister(belief)
    belief.parent?.children?.delete(belief)
  }

  /** Gives back what nobody was handed. */
  #leave(belief: Belief): void {
    if (belief.stage === 'ended') return
    this.#forget(belief)
    belief.finish(() => belief.gone('given back'))
    this.#farewell(belief.id, belief.term).catch(() => {})
  }

  #abandon(outcome: Outcome): void {
    if (outcome.kind === 'granted' || outcome.kind === 'queued') this.#farewell(outcome.lease, outcome.ttl).catch(() => {})
  }

  #release(belief: Belief): Promise<void> {
    if (belief.farewell !== undefined) return belief.farewell
    if (belief.stage === 'ended') return Promise.resolve()
    // Stops believing before it sends, with all that hangs on it.
    this.#forget(belief)
    this.#endChildren(belief)
    belief.finish(() => belief.gone('released by its holder'))
    belief.farewell = this.#farewell(belief.id, belief.term)
    publish('released', () => ({
      ask: belief.ask,
      ...belief.facts,
      resources: belief.resources,
      held: this.clock.now() - belief.grantedAt,
    }))
    return belief.farewell
  }

  /** Resolves when the lessor has nothing of it any more; tried again for as long as that makes a difference. */
  async #farewell(lease: number, term: number): Promise<void> {
    const end = this.clock.now() + Math.min(FAREWELL, term)
    for (let failures = 0; ; failures++) {
      try {
        const outcome = await this.#operations.within(end - this.clock.now(), this.lessor.propose({ kind: 'release', lease }))
        if (outcome.kind === 'done' || (outcome.kind === 'refused' && outcome.code === 'GONE')) return
        throw refused(outcome)
      } catch (cause) {
        if (this.lessor.signal.aborted || this.clock.now() >= end)
          throw new LeaseError('UNKNOWN', `lease ${lease} may not have been released: it lapses in at most ${inWords(term)}`, {
            cause,
            facts: { lease, ttl: term },
          })
        await pause(this.clock, Math.min(LONGEST_RETRY, SHORTEST_RETRY * 2 ** failures), undefined, { ref: true })
      }
    }
  }

  async #transfer(belief: Belief, to: string, incarnation: number | undefined): Promise<number> {
    if (belief.stage !== 'held') throw belief.end
    const [resource] = belief.resources
    // Whoever waits under that name is the process that is meant.
    if (incarnation === undefined && resource !== undefined) {
      const asked = this.lessor.read({ kind: 'resource', resource }, { consistent: true })
      const { value } = await this.#operations.within(belief.remaining(), asked)
      incarnation = value.queue.find(({ holder }) => holder === to)?.incarnation
      if (!belief.held) throw belief.end
    }
    // From here on no answer to an older renewal gives belief back, and no renewal is sent until this is answered: it could overtake.
    const left = belief.remaining()
    belief.stage = 'leaving'
    belief.hollow = Number.POSITIVE_INFINITY
    this.#heartbeat.leave(belief)
    const command: Command = { kind: 'transfer', lease: belief.id, to, stopped: true, ...(incarnation !== undefined && { incarnation }) }
    let outcome: Outcome
    try {
      outcome = await this.#operations.decide(command, { patience: left })
    } catch (error) {
      if (error instanceof LeaseError && error.code === 'UNAVAILABLE' && (await this.#resume(belief))) throw error
      this.#lose(belief, 'transfer', `whether it was transferred to ${to} is not known`, { error })
      throw error
    }
    if (outcome.kind === 'done') {
      this.#forget(belief)
      this.#endChildren(belief)
      belief.finish(() => belief.gone(`transferred to ${to}`))
      publish('released', () => ({
        ask: belief.ask,
        ...belief.facts,
        resources: belief.resources,
        to,
        held: this.clock.now() - belief.grantedAt,
      }))
      return outcome.id!
    }
    if (outcome.kind === 'refused' && outcome.code === 'GONE') {
      belief.stage = 'told'
      await this.#gone(belief)
    } else await this.#resume(belief)
    throw refused(outcome)
  }

  /** A farewell was refused: belief returns with the next renewal. */
  async #resume(belief: Belief): Promise<boolean> {
    if (belief.stage !== 'leaving') return false
    return this.#confirm(belief, { ...belief, lease: belief.id }).catch(() => false)
  }

  #lessorEnded(): void {
    const { reason } = this.lessor.signal
    this.#heartbeat.failure = reason
    this.#heartbeat.die()
    if (!(reason instanceof LeaseError && reason.code === 'DIVERGED')) return
    // Nothing can be said about what was granted: what is believed now rests on entries that are gone.
    for (const belief of [...this.#beliefs.values()]) {
      this.#waiters.get(belief.id)?.fail(reason)
      this.#lose(belief, 'diverged', reason.message, { error: reason, definite: true })
    }
  }

  // Changing

  async #change(command: Command): Promise<Outcome> {
    this.#mustBeOpen()
    const outcome = await this.#operations.decide(command)
    if (outcome.kind === 'refused') throw refused(outcome)
    return outcome
  }

  async #changeOn(belief: Belief, command: Command): Promise<Outcome> {
    if (belief.stage !== 'held') throw belief.end
    try {
      return await this.#change(command)
    } catch (error) {
      if (error instanceof LeaseError && error.code === 'GONE') await this.#gone(belief)
      throw error
    }
  }

  #mustBeOpen(): void {
    if (this.#closed !== undefined) throw new LeaseError('UNAVAILABLE', 'these leases were closed')
    if (this.lessor.signal.aborted) throw this.lessor.signal.reason
  }

  // Recipes

  lock(names: string | readonly string[], options?: ConstructorParameters<typeof Lock>[2]): Lock {
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
    return this.lessor.watch(prefix, options)
  }

  read<K extends Query['kind']>(query: Extract<Query, { readonly kind: K }>, options?: ReadOptions): Promise<View<K>> {
    return this.lessor.read(query, options)
  }

  /** The last holders of a resource and how each ended; for those that this process lost, with what it knows of that. */
  async history(resource: string): Promise<readonly PastLease[]> {
    const { value } = await this.lessor.read({ kind: 'history', resource }, { consistent: true })
    const losses = new Map(this.#losses.filter(({ resources }) => resources.includes(resource)).map(loss => [loss.lease, loss]))
    return value.map(past => {
      const loss = losses.get(past.lease)
      return loss === undefined ? past : { ...past, loss }
    })
  }

  /** What this process lost, newest last, reachable lessor or not. */
  get losses(): readonly Loss[] {
    return this.#losses
  }

  async policy(prefix: string, rules: PolicyRules | undefined): Promise<void> {
    await this.#change(rules === undefined ? { kind: 'policy', prefix } : { kind: 'policy', prefix, rules })
  }

  async revoke(
    target: { readonly lease: number } | { readonly holder: string } | { readonly prefix: string },
    { force, by = this.holder }: { readonly force?: boolean; readonly by?: string } = {},
  ): Promise<void> {
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
    for (const asking of this.#asking) asking.stop(new LeaseError('UNAVAILABLE', 'these leases were closed while this was waiting'))
    await Promise.allSettled([...this.#beliefs.values()].map(belief => this.#release(belief)))
    await this.#registry?.[Symbol.asyncDispose]()
    this.#news.stop()
    this.#heartbeat.stop()
    await this.#pacemaker?.[Symbol.asyncDispose]()
    await this.lessor[Symbol.asyncDispose]()
  }
}

/** δ: the part of a term that is given up. */
export function marginOf({ clockError = 0.005 }: Pick<LeasesOptions, 'clockError'>): number {
  if (!(clockError >= 0 && clockError < 0.5)) throw new LeaseError('INVALID', `clockError must be from 0 to 0.5, not ${clockError}`)
  return 2 * clockError
}

/** It lapses by itself; the outcome of the work is what the caller asked for. */
function undelivered(): void {}

/** How long to wait at most. */
function waitOf({ wait = true }: AcquireOptions): number {
  if (typeof wait === 'boolean') return wait ? Number.POSITIVE_INFINITY : 0
  return wait === Number.POSITIVE_INFINITY ? wait : milliseconds(wait, 'wait')
}

/** The longest prefix by whole segments. */
function commonPrefix([first = '', ...others]: readonly string[]): string {
  let segments = first.split('/')
  for (const other of others) {
    const theirs = other.split('/')
    const differs = segments.findIndex((segment, i) => segment !== theirs[i])
    if (differs !== -1) segments = segments.slice(0, differs)
  }
  return segments.join('/')
}
