/**
 * A lease in hand, and what this process may believe about it.
 *
 * Not promised: that code which never looks at `signal` or `assertHeld` stops in time; that work already sent to others is undone. What
 * writes for long after it asked needs a resource that checks tokens (recipe/fence). Promised, while clock rates are within ρ: `held` is
 * never true when another may have the lease, whatever happened to timers, answers and the wall clock.
 *
 * Time law, rule 1: validity is counted from before the send of the request that was acknowledged, for the term in the answer less a margin,
 * on the monotonic clock and on the machine's uptime, whichever says sooner.
 */
import type { Clock } from './clock.ts'
import { inWords } from './duration.ts'
import { type Facts, LeaseError } from './errors.ts'
import { checkOptionNames } from './options.ts'

export type RenewalStrategy = 'half' | 'continuous' | 'on-activity' | 'manual' | 'never'

/** Of both clocks, at one moment. */
export interface ClockReading {
  readonly now: number
  readonly uptime: number
}

/** A request left at this moment. Requests are numbered, since several may leave within one reading of a clock. */
export interface Sent extends ClockReading {
  readonly number: number
}

/** The uptime is read in steps of 10 ms. A difference beyond that can only be time that the machine slept. */
const COARSE = 10

/** How long ago by whichever clock says more. */
export function since(sent: Sent, now: number, uptime: number): number {
  const ran = now - sent.now
  const passed = uptime - sent.uptime
  return passed - ran > COARSE ? passed + COARSE : ran
}

/** The most of a term that is given up for late timers. */
const MAX_FOR_TIMERS = 1 / 10

/**
 * How much of a term may be believed in: less the part for clocks of different rates, and of short terms no less than a timer may be late, so that
 * the signal still fires before the term is over.
 */
export function validOf(term: number, margin: number, { lateness = 0 }: Pick<Clock, 'lateness'>): number {
  return term - Math.max(term * margin, Math.min(lateness, term * MAX_FOR_TIMERS))
}

/** Whoever keeps the beliefs of a process: what a lease in hand asks of it. */
export interface LeaseKeeper {
  readonly clock: Clock
  /** The part of a term that is given up, for clocks of different rates. */
  readonly margin: number
  /** Answers to requests up to this number prove nothing any more: the wall clock has jumped since, and nobody knows why. */
  readonly doubted: number
  /** Looks at the clocks for a sleep of the machine or a jump of the wall clock. */
  look(): ClockReading
  expire(belief: HeldLease): void
  renew(belief: HeldLease): Promise<void>
  progressed(belief: HeldLease): void
  release(belief: HeldLease): Promise<void>
  transfer(belief: HeldLease, to: string, incarnation: number | undefined): Promise<number>
  put(belief: HeldLease, key: string, value: string): Promise<void>
  delete(belief: HeldLease, key: string): Promise<void>
  listen(belief: HeldLease): void
  endangered(belief: HeldLease): void
}

/** Another thread that renews this lease while the main loop is blocked. */
export interface RenewalFigures {
  /** Until when its renewals let us believe, by each clock. */
  stood(): ClockReading | undefined
  renewed(): void
  progressed(): void
  drop(): void
}

export interface HeldLeaseOptions {
  /** Under which it is spoken of to those who listen. */
  readonly ask: number
  readonly holder: string
  readonly ttl: number
  readonly strategy: RenewalStrategy
  readonly maxStall?: number | undefined
  readonly parent?: HeldLease | undefined
  readonly onLost?: ((reason: LeaseError) => void | PromiseLike<void>) | undefined
}

/** waiting: in a queue. told: granted, and not renewed since. held: an answer of its own stands behind it. leaving: a farewell is under way. */
export type HeldStage = 'waiting' | 'told' | 'held' | 'leaving' | 'ended'

const NEVER: Sent = { number: 0, now: Number.NEGATIVE_INFINITY, uptime: Number.NEGATIVE_INFINITY }

/** What this process knows of one lease of its own. The handle that users have may be forgotten; this is what is renewed. */
export class HeldLease {
  readonly keeper: LeaseKeeper
  readonly id: number
  readonly ask: number
  readonly holder: string
  readonly ttl: number
  readonly strategy: RenewalStrategy
  readonly maxStall: number
  readonly parent: HeldLease | undefined
  readonly onLost: HeldLeaseOptions['onLost']
  children: Set<HeldLease> | undefined

  stage: HeldStage
  resources: readonly string[] = []
  tokens: readonly number[] = []
  /** The revision that granted it, or queued it. */
  revision = 0
  /** As the last counted answer said, never as it was asked for. */
  term: number
  sent: Sent = NEVER
  /** The last request that was to renew it, answered or not. */
  asked = 0
  /** Answers to requests up to this number give no belief: they left before the news of the grant, or before a farewell. */
  hollow = 0

  /** The group it is renewed with, and the watch that brings its news: theirs to keep. */
  group: unknown
  news: unknown
  spare: RenewalFigures | undefined
  /** Its handle may be collected: then it is released. */
  registered = false
  /** The code that has it was told that it is over: by a signal it had asked for, by `onLost`, or by an answer to its own question. */
  told = false
  /** The lessor said that it has ended, with so many ms to go; why is being asked. */
  endedWith: number | undefined
  jeopardised = false
  touched = false
  progress: number
  grantedAt = 0
  farewell: Promise<void> | undefined
  /** Called off when it ends: the limit on holding. */
  cancelHold: (() => void) | undefined
  #renewals: { readonly resolve: () => void; readonly reject: (error: unknown) => void }[] | undefined

  /** Made when first asked for: an error that nobody reads is the most expensive part of giving back. */
  #end: LeaseError | (() => LeaseError) | undefined
  #signal: AbortController | undefined
  #jeopardy: AbortController | undefined
  #recalled: AbortController | undefined

  constructor(keeper: LeaseKeeper, id: number, stage: HeldStage, term: number, options: HeldLeaseOptions) {
    this.keeper = keeper
    this.id = id
    this.stage = stage
    this.term = term
    this.ask = options.ask
    this.holder = options.holder
    this.ttl = options.ttl
    this.strategy = options.strategy
    this.maxStall = options.maxStall ?? Number.POSITIVE_INFINITY
    this.progress = options.maxStall === undefined ? 0 : keeper.clock.now()
    this.parent = options.parent
    this.onLost = options.onLost
  }

  /** How much of the term may be believed in. */
  get valid(): number {
    return validOf(this.term, this.keeper.margin, this.keeper.clock)
  }

  /** What is left, by the clocks; not above 0 when it is over. */
  left(now: number, uptime: number): number {
    if (this.spare !== undefined) this.#catchUp(this.spare)
    return this.valid - since(this.sent, now, uptime)
  }

  /** What was renewed for us while we stood still. It lifts no doubt: that needs an answer to a request of our own. */
  #catchUp(spare: RenewalFigures): void {
    const until = spare.stood()
    if (until === undefined || this.stage !== 'held' || until.now <= this.sent.now + this.valid) return
    this.sent = { number: this.sent.number, now: until.now - this.valid, uptime: until.uptime - this.valid }
    this.jeopardised = false
    spare.renewed()
  }

  remaining(): number {
    if (this.stage !== 'held') return 0
    const { clock } = this.keeper
    return Math.max(0, this.left(clock.now(), clock.uptime()))
  }

  get held(): boolean {
    const { now, uptime } = this.keeper.look()
    if (this.stage !== 'held' || this.sent.number <= this.keeper.doubted) return false
    if (this.left(now, uptime) > 0) return true
    this.keeper.expire(this)
    return false
  }

  /** An answer to the request `sent`: the lease runs for `term` from then. Whether it counts. */
  renewed(sent: Sent, term: number): boolean {
    if (sent.number <= this.hollow || sent.number <= this.sent.number || this.stage === 'leaving' || this.stage === 'ended') return false
    this.sent = sent
    this.term = term
    this.jeopardised = false
    if (this.stage === 'told') this.stage = 'held'
    this.spare?.renewed()
    if (this.#jeopardy?.signal.aborted) this.#jeopardy = undefined
    if (this.#renewals !== undefined) for (const { resolve } of this.#renewals.splice(0)) resolve()
    return true
  }

  /** Resolves with the next answer that counts. */
  nextRenewal(): Promise<void> {
    return new Promise((resolve, reject) => {
      if (this.stage === 'ended' || this.stage === 'leaving') return reject(this.end)
      this.#renewals ??= []
      this.#renewals.push({ resolve, reject })
    })
  }

  endanger(): void {
    if (this.jeopardised) return
    this.jeopardised = true
    if (this.stage === 'held') this.keeper.endangered(this)
    this.#jeopardy?.abort(
      new LeaseError('LOST', `${this.name} will be lost in ${inWords(this.remaining())} unless a renewal is answered`, {
        facts: { ...this.facts, cause: 'jeopardy' },
      }),
    )
  }

  recall(by: string): void {
    this.#recalled ??= new AbortController()
    this.#recalled.abort(new LeaseError('HELD', `${by === '' ? 'somebody' : by} waits for ${this.name}`, { facts: { ...this.facts, by } }))
  }

  /** From here on no answer gives belief back. */
  finish(reason: LeaseError | (() => LeaseError)): void {
    if (this.stage === 'ended') return
    this.stage = 'ended'
    this.#end = reason
    this.cancelHold?.()
    if (this.#renewals !== undefined) for (const { reject } of this.#renewals.splice(0)) reject(this.end)
    if (this.#jeopardy !== undefined) this.endanger()
    if (this.#signal === undefined) return
    this.told = true
    this.#signal.abort(this.end)
  }

  /** Why it is over, once it is. */
  get end(): LeaseError {
    if (typeof this.#end === 'function') this.#end = this.#end()
    return this.#end ?? this.gone('given back')
  }

  gone(how: string): LeaseError {
    return new LeaseError('GONE', `${this.name} was ${how}`, { facts: this.facts })
  }

  get name(): string {
    return this.resources.length === 0 ? `lease ${this.id}` : `${this.resources.join(', ')} (lease ${this.id})`
  }

  get facts(): Facts {
    return { lease: this.id, resource: this.resources[0] ?? '', holder: this.holder }
  }

  // Made when first asked for: with a hundred thousand leases most signals are never looked at.

  get signal(): AbortSignal {
    this.#signal ??= new AbortController()
    if (this.stage === 'ended') {
      this.told = true
      this.#signal.abort(this.end)
    }
    return this.#signal.signal
  }

  get jeopardy(): AbortSignal {
    if (this.#jeopardy === undefined) {
      this.#jeopardy = new AbortController()
      if (this.jeopardised || this.stage === 'ended') {
        this.jeopardised = false
        this.endanger()
      }
    }
    return this.#jeopardy.signal
  }

  get recalled(): AbortSignal {
    if (this.#recalled === undefined) {
      this.#recalled = new AbortController()
      this.keeper.listen(this)
    }
    return this.#recalled.signal
  }
}

/** The belief behind a handle, for whoever keeps it: nobody else's business. */
export let heldLeaseOf: (lease: Lease) => HeldLease

/** A lease in hand. Give it back with `release`, or let `await using` do so; one that is forgotten is released when it is collected. */
export class Lease implements AsyncDisposable {
  readonly #belief: HeldLease

  static {
    heldLeaseOf = lease => lease.#belief
  }

  constructor(belief: HeldLease) {
    this.#belief = belief
  }

  get id(): number {
    return this.#belief.id
  }

  get holder(): string {
    return this.#belief.holder
  }

  get resources(): readonly string[] {
    return this.#belief.resources
  }

  /** The fencing number of the (first) resource: greater than that of every grant before. 0 for a lease on nothing. */
  get token(): number {
    return this.#belief.tokens[0] ?? 0
  }

  /** By resource. */
  get tokens(): Readonly<Record<string, number>> {
    const { resources, tokens } = this.#belief
    return Object.fromEntries(resources.map((resource, i) => [resource, tokens[i]!]))
  }

  /** The term in force, in ms. */
  get ttl(): number {
    return this.#belief.term
  }

  /**
   * Fires when the lease is over: from a local deadline and not from an answer, and before another can have it unless this process was kept from
   * running for longer than `lateness` of its clock. `held` is right even then. The reason is a LeaseError: `LOST` with the cause, or `GONE` when its
   * own holder gave it back.
   */
  get signal(): AbortSignal {
    return this.#belief.signal
  }

  /** Fires before loss, while there is still time. Averted by a renewal; then this is a new signal. */
  get jeopardy(): AbortSignal {
    return this.#belief.jeopardy
  }

  /** Fires when another waits for what this lease holds and asked for it politely. Nothing is taken away. */
  get recalled(): AbortSignal {
    return this.#belief.recalled
  }

  /** Asks the clocks: right even when timers are late. */
  get held(): boolean {
    const belief = this.#belief
    if (belief.held) return true
    if (belief.stage !== 'held') belief.told = true // else the clocks are in doubt, which may pass
    return false
  }

  /** Milliseconds of validity left unless renewed; 0 when lost. */
  remaining(): number {
    return this.held ? this.#belief.remaining() : 0
  }

  /** Throws why the lease is not held, or returns. Asks the clocks. */
  assertHeld(): void {
    const belief = this.#belief
    if (this.held) return
    if (belief.stage !== 'held') throw belief.end
    throw new LeaseError(
      'UNKNOWN',
      `the wall clock jumped and nobody knows why: whether ${belief.name} is still held is known when the renewal under way is answered`,
      { facts: belief.facts },
    )
  }

  /** Renews now, whatever the strategy; resolves when that is acknowledged. */
  renew(): Promise<void> {
    const belief = this.#belief
    if (belief.strategy === 'never') return Promise.reject(new LeaseError('INVALID', `${belief.name} was asked for with renew: 'never'`))
    return belief.keeper.renew(belief)
  }

  /** With `renew: 'on-activity'`: someone is still there. */
  touch(): void {
    const belief = this.#belief
    belief.touched = true
    // Too late for the next round.
    if (belief.strategy === 'on-activity' && belief.held && belief.remaining() < belief.term / 4)
      belief.keeper.renew(belief).catch(() => {})
  }

  /** With `maxStall`: the work goes on. Without this call for so long, the lease is not renewed any more. */
  progress(): void {
    const belief = this.#belief
    belief.progress = belief.keeper.clock.now()
    belief.keeper.progressed(belief)
  }

  /** Attaches an entry: gone in the same revision as the lease. */
  put(key: string, value: string): Promise<void> {
    return this.#belief.keeper.put(this.#belief, key, value)
  }

  delete(key: string): Promise<void> {
    return this.#belief.keeper.delete(this.#belief, key)
  }

  /**
   * Gives the grants to another holder, who gets new tokens, and resolves with the number of its lease. `incarnation`: that of the
   * process meant, as a queue or a registration shows it; left out, it is the one of that name that waits for it, and where none does,
   * whoever has the name may `adopt` it, with any key that may acquire it. It is not held from the call on, and held again if it was refused; `signal` fires when it is
   * gone. So end the work first: it cannot be told in time by a signal.
   */
  async transfer(to: string, options: { readonly incarnation?: number } = {}): Promise<number> {
    checkOptionNames('transfer', options, ['incarnation'])
    return this.#belief.keeper.transfer(this.#belief, to, options.incarnation)
  }

  /** Stops believing, then tells the lessor. Again, or after a loss: nothing happens, and with `onLost` this waits until the lessor was told. */
  release(): Promise<void> {
    return this.#belief.keeper.release(this.#belief)
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.release()
  }
}
