/** One of the leases of this process, as the process knows it. This record is what gets renewed, whether or not the program keeps its handle (`Lease`). */
import type { Clock } from '../clock.ts'
import { inWords } from '../duration.ts'
import { type Facts, LeaseError } from '../errors.ts'
import type { Profile } from '../store.ts'
import type { LearnedTerm } from './learned-terms.ts'
import { type ClockReading, type Sent, since, validityOf } from './validity.ts'

/**
 * When a lease is renewed: at half of its term, eight times per term, after `touch()`, by `renew()` alone, or not at all.
 */
export type RenewalStrategy = 'half' | 'continuous' | 'on-activity' | 'manual' | 'never'

/** The part of HeldLeases that a held lease uses. */
export interface LeaseKeeper {
  readonly clock: Clock
  /** The present promises of the store. It changes with a failover, and when the leases move to another store. */
  readonly profile: Profile
  /** The part of a term that is given up for clocks of different rates. */
  readonly margin: number
  /** The timers of this process have fired this late recently. */
  readonly pace: { readonly lateness: number }
  /** Answers to requests up to this number prove nothing: the wall clock has jumped since, for an unknown reason. */
  readonly doubtedUpTo: number
  /** Reads the clocks, and notices a sleep of the machine or a jump of the wall clock. */
  readClocks(): ClockReading
  expire(held: HeldLease): void
  renew(held: HeldLease): Promise<void>
  progressed(held: HeldLease): void
  release(held: HeldLease): Promise<void>
  transfer(held: HeldLease, to: string, incarnation: number | undefined): Promise<number>
  put(held: HeldLease, key: string, value: string): Promise<void>
  delete(held: HeldLease, key: string): Promise<void>
  listen(held: HeldLease): void
  publishJeopardy(held: HeldLease): void
}

/** The slot by which a worker thread renews this lease while the main loop is blocked. */
export interface BackupRenewal {
  /** The worker's last renewal that was answered: when it was sent, by each clock, and the term in the answer. */
  last(): (ClockReading & { readonly term: number }) | undefined
  renewed(): void
  progressed(): void
  drop(): void
}

export interface HeldLeaseOptions {
  /** Identifies the acquire request in diagnostics messages. */
  readonly requestId: number
  readonly holder: string
  readonly ttl: number
  readonly strategy: RenewalStrategy
  readonly maxStall?: number | undefined
  readonly parent?: HeldLease | undefined
  /** Decides its terms by what is known of its class of work. */
  readonly learned?: LearnedTerm | undefined
  /** The store had to promise this for the lease. */
  readonly require?: readonly Requirement[] | undefined
  readonly onLost?: ((reason: LeaseError) => void | PromiseLike<void>) | undefined
  /** Its holder must be told at once what others want of it, and not with its next renewal. */
  readonly listens?: boolean | undefined
}

/**
 * waiting: in a queue. granted: granted, not renewed since. held: confirmed by an answer to our own request. ending: a release or transfer is
 * under way, or the lessor has ended it and we ask why.
 */
export type HeldStage = 'waiting' | 'granted' | 'held' | 'ending' | 'ended'

/** A request may require this of the store. */
export type Requirement = 'durable' | 'failover'

/** A callback of `onJeopardy` gets this. */
export interface Jeopardy {
  /** Milliseconds until the lease is lost, unless a renewal is answered first. */
  readonly remaining: number
  /**
   * The lease requires this (`advanced.require`) and the store no longer promises it, e.g. `['failover']` after a failover to a server without a standby.
   * The lease stays held and is renewed. Empty: renewals are not answered.
   */
  readonly broken: readonly Requirement[]
}

export type JeopardyCallback = (jeopardy: Jeopardy) => void | PromiseLike<void>

const NOTHING: readonly Requirement[] = []
const NEVER: Sent = { number: 0, now: Number.NEGATIVE_INFINITY, uptime: Number.NEGATIVE_INFINITY }

export class HeldLease {
  readonly keeper: LeaseKeeper
  readonly id: number
  readonly requestId: number
  readonly holder: string
  readonly ttl: number
  readonly strategy: RenewalStrategy
  readonly maxStall: number
  readonly parent: HeldLease | undefined
  readonly onLost: HeldLeaseOptions['onLost']
  readonly learned: LearnedTerm | undefined
  readonly #require: readonly Requirement[]
  /** True if its holder was told that the store does not promise what the lease requires. */
  #toldBroken = false
  /** The longest ttl that was asked for. */
  #asked = 0
  children: Set<HeldLease> | undefined

  stage: HeldStage
  resources: readonly string[] = []
  tokens: readonly number[] = []
  /** The revision that granted it, or queued it. */
  revision = 0
  /** As in the last answer that counted, not as requested. */
  term: number
  sent: Sent = NEVER
  /** Number of the last renewal request, answered or not. */
  lastRequest = 0
  /** Answers to requests up to this number are ignored: they were sent before we learned of the grant, or before a release. */
  ignoreUpTo = 0

  /** Its renewal group; owned by the heartbeat. */
  group: unknown
  /** The watch that reports on it; owned by the event router. */
  watch: unknown
  backup: BackupRenewal | undefined
  /** The user's code knows that the lease is over: from its signal, from `onLost`, or from the answer to a call. */
  lossReported = false
  readonly listens: boolean
  /** The lessor said that it has ended; this many ms were left then. The reason is being read. */
  leftAtEnd: number | undefined
  endangered = false
  touched = false
  lastProgress: number
  grantedAt = 0
  releasing: Promise<void> | undefined
  /** Cancels the timer of `maxHold`. */
  cancelHold: (() => void) | undefined
  #renewals: { readonly resolve: () => void; readonly reject: (error: unknown) => void }[] | undefined

  /** Created on first use: an error that no code reads is the most expensive part of a release. */
  #endReason: LeaseError | (() => LeaseError) | undefined
  #signal: AbortController | undefined
  #recalled: AbortController | undefined
  #jeopardyCallbacks: Set<JeopardyCallback> | undefined

  constructor(keeper: LeaseKeeper, id: number, stage: HeldStage, term: number, options: HeldLeaseOptions) {
    this.keeper = keeper
    this.id = id
    this.stage = stage
    this.term = term
    this.requestId = options.requestId
    this.holder = options.holder
    this.ttl = options.ttl
    this.strategy = options.strategy
    this.maxStall = options.maxStall ?? Number.POSITIVE_INFINITY
    this.lastProgress = options.maxStall === undefined ? 0 : keeper.clock.now()
    this.parent = options.parent
    this.onLost = options.onLost
    this.learned = options.learned
    this.#require = options.require ?? NOTHING
    this.listens = options.listens ?? false
  }

  /** The ttl to ask for with the next renewal, by the age of the lease. Undefined: it keeps its ttl. */
  nextTerm(now: number): number | undefined {
    if (this.learned === undefined || this.stage !== 'held') return undefined
    const wanted = this.learned.plan.at(Math.max(0, now - this.grantedAt), this.ttl)
    if (wanted <= Math.max(this.term, this.#asked)) return undefined
    this.#asked = wanted
    return wanted
  }

  /** For how many ms it was held, for the statistics of its class. Undefined: it has none. */
  ran(now: number): number | undefined {
    return this.learned === undefined || this.grantedAt === 0 ? undefined : Math.max(0, Math.round(now - this.grantedAt))
  }

  /** Returns how many ms of the term this process may trust. */
  get validity(): number {
    const { margin, clock, pace } = this.keeper
    return validityOf(this.term, margin, Math.max(clock.lateness ?? 0, pace.lateness))
  }

  /** Milliseconds left by the clocks; 0 or less when it is over. */
  timeLeft(now: number, uptime: number): number {
    if (this.backup !== undefined) this.#catchUp(this.backup)
    return this.validity - since(this.sent, now, uptime)
  }

  /** Takes over what the worker renewed while this loop was blocked. It resolves no doubt: only an answer to our own request does. */
  #catchUp(backup: BackupRenewal): void {
    const renewal = backup.last()
    if (renewal === undefined || this.stage !== 'held' || renewal.now <= this.sent.now) return
    this.sent = { number: this.sent.number, now: renewal.now, uptime: renewal.uptime }
    this.term = renewal.term
    this.endangered = false
    backup.renewed()
  }

  remaining(): number {
    if (this.stage !== 'held') return 0
    const { clock } = this.keeper
    return Math.max(0, this.timeLeft(clock.now(), clock.uptime()))
  }

  get isHeld(): boolean {
    const { now, uptime } = this.keeper.readClocks()
    if (this.stage !== 'held' || this.sent.number <= this.keeper.doubtedUpTo) return false
    if (this.timeLeft(now, uptime) > 0) return true
    this.keeper.expire(this)
    return false
  }

  /** Returns what it requires and the store does not promise now. */
  get broken(): readonly Requirement[] {
    if (this.#require.length === 0) return NOTHING
    const { profile } = this.keeper
    return this.#require.filter(promise => !profile[promise])
  }

  /** Held, but less than a quarter of its validity is left, no renewal can be answered any more, or the store promises less than it requires. */
  get atRisk(): boolean {
    return this.isHeld && (this.endangered || this.remaining() <= this.validity / 4 || this.broken.length > 0)
  }

  /** Applies an answer to the request `sent`: the lease runs for `term` from then. Returns whether the answer counts. */
  renewed(sent: Sent, term: number): boolean {
    if (sent.number <= this.ignoreUpTo || sent.number <= this.sent.number || this.stage === 'ending' || this.stage === 'ended') return false
    this.sent = sent
    this.term = term
    this.endangered = false
    if (this.stage === 'granted') this.stage = 'held'
    this.backup?.renewed()
    if (this.#require.length > 0) this.#checkPromises()
    if (this.#renewals !== undefined) for (const { resolve } of this.#renewals.splice(0)) resolve()
    return true
  }

  /** Resolves with the next answer that counts. */
  nextRenewal(): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.stage === 'ended' || this.stage === 'ending') return reject(this.endReason)
      this.#renewals ??= []
      this.#renewals.push({ resolve, reject })
    })
  }

  /** A jeopardy begins. It ends with the next renewal that is answered. */
  endanger(): void {
    if (this.endangered) return
    this.endangered = true
    if (this.stage === 'held') this.#warnAll()
  }

  /** The answer to a renewal may come from another server than the one before. Before the lease is handed out, the request itself is refused. */
  #checkPromises(): void {
    const isBroken = this.grantedAt !== 0 && this.broken.length > 0
    if (isBroken && !this.#toldBroken && this.stage === 'held') this.#warnAll()
    this.#toldBroken = isBroken
  }

  #warnAll(): void {
    this.keeper.publishJeopardy(this)
    if (this.#jeopardyCallbacks !== undefined) for (const callback of [...this.#jeopardyCallbacks]) this.#warn(callback)
  }

  onJeopardy(callback: JeopardyCallback): () => void {
    this.#jeopardyCallbacks ??= new Set()
    this.#jeopardyCallbacks.add(callback)
    if ((this.endangered || this.#toldBroken) && this.stage === 'held') this.#warn(callback)
    return () => this.#jeopardyCallbacks?.delete(callback)
  }

  /** This runs in a timer, which must not throw: a failing callback becomes a process warning. */
  #warn(callback: JeopardyCallback): void {
    const call = async () => callback({ remaining: this.remaining(), broken: this.broken })
    call().catch((cause: unknown) => {
      const warning = new Error(`an onJeopardy callback of ${this.name} failed: ${String(cause)}`, { cause })
      process.emitWarning(Object.assign(warning, { name: 'LeaseholdWarning', code: 'LEASEHOLD_ON_JEOPARDY' }))
    })
  }

  /** `notice`: the lease is preempted in so many ms. */
  recall(by: string, notice?: number): void {
    this.#recalled ??= new AbortController()
    const end = notice === undefined ? '' : `; it ends in ${inWords(notice)}`
    const facts = { ...this.facts, by, ...(notice !== undefined && { notice }) }
    this.#recalled.abort(new LeaseError('HELD', `${by === '' ? 'another holder' : by} asks for ${this.name} back${end}`, { facts }))
  }

  /** Ends it for good: no later answer makes it valid again. */
  end(reason: LeaseError | (() => LeaseError)): void {
    if (this.stage === 'ended') return
    this.stage = 'ended'
    this.#endReason = reason
    this.#jeopardyCallbacks = undefined
    this.cancelHold?.()
    if (this.#renewals !== undefined) for (const { reject } of this.#renewals.splice(0)) reject(this.endReason)
    if (this.#signal === undefined) return
    this.lossReported = true
    this.#signal.abort(this.endReason)
  }

  /** Why it is over. */
  get endReason(): LeaseError {
    if (typeof this.#endReason === 'function') this.#endReason = this.#endReason()
    return this.#endReason ?? this.goneError('released')
  }

  goneError(how: string): LeaseError {
    return new LeaseError('GONE', `${this.name} was ${how}`, { facts: this.facts })
  }

  get name(): string {
    return this.resources.length === 0 ? `lease ${this.id}` : `${this.resources.join(', ')} (lease ${this.id})`
  }

  get facts(): Facts {
    return { lease: this.id, resource: this.resources[0] ?? '', holder: this.holder }
  }

  // Signals are created on first use: of a hundred thousand leases, most signals are never read.

  get signal(): AbortSignal {
    this.#signal ??= new AbortController()
    if (this.stage === 'ended') {
      this.lossReported = true
      this.#signal.abort(this.endReason)
    }
    return this.#signal.signal
  }

  get recalled(): AbortSignal {
    if (this.#recalled === undefined) {
      this.#recalled = new AbortController()
      this.keeper.listen(this)
    }
    return this.#recalled.signal
  }
}
