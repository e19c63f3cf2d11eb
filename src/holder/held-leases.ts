/** All leases that this process holds or waits for: how they are renewed together, and how each one ends. */
import { inWords } from '../duration.ts'
import { type Facts, LeaseError } from '../errors.ts'
import type { Command } from '../kernel/command.ts'
import { isLossCause } from '../kernel/loss-cause.ts'
import type { Outcome } from '../kernel/outcome.ts'
import { propose } from '../lessor/propose.ts'
import type { PastGrant } from '../lessor.ts'
import { channels } from './diagnostics.ts'
import { EventRouter, type EventWaiter, type GrantNews } from './event-router.ts'
import { Heartbeat } from './heartbeat.ts'
import type { HeldLease, LeaseKeeper } from './held-lease.ts'
import { LossLog } from './loss-log.ts'
import type { Operations } from './operations.ts'
import { type HowEnded, releaseWithRetry } from './release-with-retry.ts'
import { transferLease } from './transfer.ts'
import { since } from './validity.ts'
import type { WorkerHeartbeat } from './worker-heartbeat.ts'

/** Why the clocks said that a lease is over. */
const EXPIRED: Readonly<Record<string, (ms: number) => string>> = {
  suspend: ms => `this machine slept for ${inWords(ms)}`,
  stall: ms => `this process stood still for ${inWords(ms)}`,
  'no-progress': ms => `its work made no progress for ${inWords(ms)}`,
  'not-renewed': ms => `it was not renewed for ${inWords(ms)}`,
  inactive: ms => `there was no activity for ${inWords(ms)}`,
  unreachable: ms => `no renewal was answered for ${inWords(ms)}`,
}

/** The cause of an end that the lessor could not be asked about in time. */
const UNKNOWN_CAUSE = 'ended'

interface LoseOptions {
  readonly by?: string
  readonly ms?: number
  readonly error?: unknown
  /** The lessor has nothing left to release. */
  readonly definite?: boolean
  /** It ends with its parent, whose release will name the leases that are added to this array. */
  readonly above?: number[]
}

export class HeldLeases implements Iterable<HeldLease> {
  readonly heartbeat: Heartbeat
  readonly keeper: LeaseKeeper
  readonly losses: LossLog
  readonly waiters = new Map<number, EventWaiter>()
  readonly #operations: Operations
  readonly events: EventRouter
  readonly #held = new Map<number, HeldLease>()
  /** Releases under way of leases that were lost, or never handed out. */
  readonly #releases = new Set<Promise<void>>()

  constructor(operations: Operations, margin: number, workerHeartbeat?: WorkerHeartbeat) {
    const { lessor, clock } = operations
    this.#operations = operations
    this.losses = new LossLog(clock)
    const heartbeat = new Heartbeat(
      clock,
      {
        renew: (leases, waiting, ttl) =>
          propose(lessor, { kind: 'renew', leases, ...(waiting && { waiting }), ...(ttl !== undefined && { ttl }) }),
        granted: held => void this.events.check(held),
        gone: held => void this.endedByLessor(held),
        expired: (held, cause, ms) => this.#expired(held, cause, ms),
        pulse: holdsAny => this.events.pulse(holdsAny),
      },
      workerHeartbeat,
    )
    this.heartbeat = heartbeat
    this.keeper = {
      clock,
      margin,
      get profile() {
        return lessor.profile
      },
      pace: heartbeat.pace,
      get doubtedUpTo() {
        return heartbeat.doubtedUpTo
      },
      readClocks: () => heartbeat.readClocks(),
      expire: held => heartbeat.expire(held),
      renew: held => this.#renew(held),
      progressed: held => heartbeat.progressed(held),
      release: held => this.release(held),
      transfer: (held, to, incarnation) => transferLease(this, operations, held, to, incarnation),
      put: (held, key, value) => this.#changeOn(held, { kind: 'put', lease: held.id, key, value }),
      delete: (held, key) => this.#changeOn(held, { kind: 'delete', lease: held.id, key }),
      listen: held => this.events.listen(held),
      publishJeopardy: held => {
        if (channels.jeopardy.hasSubscribers)
          channels.jeopardy.publish({ ask: held.requestId, ...held.facts, remaining: held.remaining(), broken: held.broken })
      },
    }
    this.events = new EventRouter(this, operations)
    lessor.signal.addEventListener('abort', () => this.#lessorEnded(), { once: true })
    lessor.onRewound?.(why => this.#rewound(why))
  }

  get size(): number {
    return this.#held.size
  }

  get(lease: number): HeldLease | undefined {
    return this.#held.get(lease)
  }

  /** A copy: leases may end during the iteration. */
  [Symbol.iterator](): Iterator<HeldLease> {
    return [...this.#held.values()][Symbol.iterator]()
  }

  add(held: HeldLease): void {
    this.#held.set(held.id, held)
    const { parent } = held
    if (parent === undefined) return
    parent.children ??= new Set()
    parent.children.add(held)
  }

  // Renewing

  /** A lease is held from the answer to a renewal that was sent after the news of its grant. False: it was over before that. */
  async confirm(held: HeldLease, { resources, tokens }: Pick<GrantNews, 'resources' | 'tokens'>): Promise<boolean> {
    if (held.stage === 'ended') return false // it was cancelled, or ran out, while the news was on its way
    held.stage = 'granted'
    held.resources = resources
    held.tokens = tokens
    held.ignoreUpTo = this.heartbeat.lastSent
    // A transferred lease has no request of its own yet: it has as long as the lessor gives it, from now.
    if (held.sent.number === 0) held.sent = { ...this.heartbeat.sent(), number: 0 }
    this.heartbeat.join(held)
    this.heartbeat.renewNow(held)
    try {
      await held.nextRenewal()
      return true
    } catch (error) {
      // A new request would be refused, or its lease taken away again.
      if (error instanceof LeaseError && (error.facts.cause === 'revoked' || error.facts.cause === 'parent'))
        throw new LeaseError('GONE', error.message, error)
      return false
    }
  }

  #renew(held: HeldLease): Promise<void> {
    if (held.stage !== 'held') return Promise.reject(held.endReason)
    const { signal } = this.#operations.lessor
    if (signal.aborted) return Promise.reject(signal.reason) // it is held until its time is over, and no answer will come
    const renewed = held.nextRenewal()
    this.heartbeat.renewNow(held)
    return renewed
  }

  async #changeOn(held: HeldLease, command: Command): Promise<void> {
    if (held.stage !== 'held') throw held.endReason
    try {
      await this.#operations.change(command)
    } catch (error) {
      if (LeaseError.is(error, 'GONE')) await this.endedByLessor(held)
      throw error
    }
  }

  // Losing

  /** The lessor says that the lease has ended. It is not held from here on. A frozen lease waits for our release, so there is time to ask why. */
  async endedByLessor(held: HeldLease): Promise<void> {
    if (held.stage === 'ended' || held.stage === 'ending') return
    this.waiters.get(held.id)?.settle(undefined)
    if (held.stage === 'waiting') return
    const left = held.remaining()
    held.stage = 'ending'
    held.leftAtEnd = left
    this.heartbeat.leave(held)
    let past: PastGrant | undefined
    const [resource] = held.resources
    if (resource !== undefined) {
      const answer = this.#operations.lessor.read({ kind: 'history', resource })
      const history = await this.#operations.within(Math.min(250, left), answer).catch(() => undefined)
      past = history?.value.find(({ lease }) => lease === held.id)
    }
    this.loseToLessor(held, past?.cause ?? UNKNOWN_CAUSE, past?.by ?? '', left)
  }

  /** The lessor has ended it, with `left` ms to go. */
  loseToLessor(held: HeldLease, cause: string, by: string, left: number): void {
    // It was over here before the lessor said so. Report why it was not renewed in time.
    if ((cause === 'lapsed' || cause === UNKNOWN_CAUSE) && left === 0) return this.heartbeat.expire(held)
    const who = by === '' ? '' : cause === 'transferred' ? ` to ${by}` : ` by ${by}`
    this.lose(held, cause, `the lessor has ended it: ${cause}${who}`, { by, definite: cause === 'lapsed' })
  }

  #expired(held: HeldLease, cause: string, ms: number): void {
    const waiter = this.waiters.get(held.id)
    if (waiter !== undefined) return waiter.settle(undefined)
    this.lose(held, cause, EXPIRED[cause]!(ms), cause === 'unreachable' ? { ms, error: this.heartbeat.failure } : { ms })
  }

  lose(held: HeldLease, cause: string, text: string, { by = '', ms = 0, error, definite = false, above }: LoseOptions = {}): void {
    if (held.stage === 'ended') return
    const { clock } = this.#operations
    const handedOut = held.grantedAt > 0
    const over = since(held.sent, clock.now(), clock.uptime()) - held.term
    const waiter = this.waiters.get(held.id)
    this.remove(held)
    const below = above ?? []
    for (const child of [...(held.children ?? [])]) this.loseWithParent(child, below)
    const facts: Facts = { ...held.facts, cause, ms: Math.round(ms), ...(by !== '' && { by }) }
    held.end(new LeaseError('LOST', `${held.name} is lost: ${text}`, { cause: error, facts }))
    waiter?.fail(new LeaseError('GONE', `the wait is cancelled: ${text}`, { facts }))
    if (handedOut) this.losses.record(held, cause, text, Math.max(0, over))
    const how: HowEnded = isLossCause(cause) ? { ran: held.ran(clock.now()), lost: cause } : {}
    // Release it: queued renewals must not keep a lost lease alive, and frozen units become free when their holder says that it has stopped.
    const { onLost } = held
    if (onLost === undefined || !handedOut) {
      if (above !== undefined) above.push(held.id)
      else if (!definite) this.releaseInBackground(held.id, held.term, below, how)
      else for (const child of below) this.releaseInBackground(child, held.term)
      return
    }
    held.lossReported = true
    const stopped = (async () => onLost(held.endReason))().catch(error => warnOfOnLost(held, error))
    const release = () =>
      definite ? undefined : releaseWithRetry(this.#operations, held.id, held.term, above === undefined ? below : [], how)
    if (above === undefined && definite) for (const child of below) this.releaseInBackground(child, held.term)
    held.releasing = stopped.then(release).catch(() => {})
  }

  /** The loss of a lease whose user could not know of it; otherwise undefined. Reads the clocks: a timer may be late. */
  unreportedLoss(held: HeldLease): LeaseError | undefined {
    const { lossReported } = held
    this.#catchUp(held)
    return !lossReported && held.stage === 'ended' && held.endReason.code === 'LOST' ? held.endReason : undefined
  }

  /** Ends a lease that is already over: by the clocks, before its timer fired, or because the lessor said so. */
  #catchUp(held: HeldLease): void {
    if (held.stage === 'ending' && held.leftAtEnd !== undefined) this.loseToLessor(held, UNKNOWN_CAUSE, '', held.leftAtEnd)
    else if (held.stage === 'held') this.heartbeat.expireIfOver(held)
  }

  /**
   * Ends all leases below `held`, at any depth. Returns those that have stopped with that, for the release of `held` to name. A lease with
   * `onLost` has work to stop first, and is released by itself.
   */
  endChildren(held: HeldLease): number[] {
    const stopped: number[] = []
    for (const child of [...(held.children ?? [])]) this.loseWithParent(child, stopped)
    return stopped
  }

  /** Its parent has ended, at least here: the lessor may not know yet. */
  loseWithParent(child: HeldLease, above?: number[]): void {
    const { name, id } = child.parent!
    this.lose(child, 'parent', `its parent, ${name}, has ended`, { by: String(id), ...(above !== undefined && { above }) })
  }

  #lessorEnded(): void {
    const { reason } = this.#operations.lessor.signal
    this.heartbeat.failure = reason
    this.heartbeat.lessorEnded()
    const diverged = LeaseError.is(reason, 'DIVERGED')
    for (const held of this) {
      this.waiters.get(held.id)?.fail(reason)
      // The grant may rest on records that are gone, so it cannot be trusted.
      if (diverged) this.lose(held, 'diverged', reason.message, { error: reason, definite: true })
      // No news of a grant, and no confirmation, can come any more.
      else if (held.stage === 'waiting' || held.stage === 'granted') this.discard(held)
    }
  }

  /**
   * The server's log does not contain what it answered us: another holder may be granted what we hold. A waiter keeps its place if the log knows
   * it; otherwise its next renewal says so. Nothing is released: a lease with our number may belong to another holder in that log.
   */
  #rewound(why: LeaseError): void {
    for (const held of this) if (held.stage !== 'waiting') this.lose(held, 'rewound', why.message, { error: why, definite: true })
  }

  // Releasing

  /** Stops renewing and following it. */
  remove(held: HeldLease): void {
    this.heartbeat.leave(held)
    this.events.unfollow(held)
    this.#held.delete(held.id)
    this.waiters.delete(held.id)
    held.parent?.children?.delete(held)
  }

  /** Releases a lease that was never handed out. */
  discard(held: HeldLease): void {
    if (held.stage === 'ended') return
    const waiter = this.waiters.get(held.id)
    this.remove(held)
    held.end(() => held.goneError('released'))
    waiter?.settle(undefined) // the caller gets its answer elsewhere, but the waiter's promise must settle
    this.releaseInBackground(held.id, held.term)
  }

  /** Releases a lease whose answer came after its caller had gone. */
  releaseUnwanted(outcome: Outcome): void {
    if (outcome.kind === 'granted' || outcome.kind === 'queued') this.releaseInBackground(outcome.lease, outcome.ttl)
  }

  releaseInBackground(lease: number, term: number, stopped: readonly number[] = [], how: HowEnded = {}): void {
    const release = releaseWithRetry(this.#operations, lease, term, stopped, how)
      .catch(() => {}) // it lapses by itself
      .finally(() => this.#releases.delete(release))
    this.#releases.add(release)
  }

  /** Resolves when the background releases that have begun are done, or have failed. */
  async releasesDone(): Promise<void> {
    await Promise.all(this.#releases)
  }

  release(held: HeldLease): Promise<void> {
    this.#catchUp(held)
    if (held.releasing !== undefined) return held.releasing
    if (held.stage === 'ended') return Promise.resolve()
    // End it here, with its children, before the release is sent.
    this.remove(held)
    const stopped = this.endChildren(held)
    held.end(() => held.goneError('released by its holder'))
    held.releasing = releaseWithRetry(this.#operations, held.id, held.term, stopped, { ran: held.ran(this.#operations.clock.now()) })
    this.publishReleased(held)
    return held.releasing
  }

  publishReleased(held: HeldLease, to?: string): void {
    if (!channels.released.hasSubscribers) return
    channels.released.publish({
      ask: held.requestId,
      ...held.facts,
      resources: held.resources,
      ...(to !== undefined && { to }),
      held: this.#operations.clock.now() - held.grantedAt,
    })
  }
}

/** A timer must not throw, and a failure to stop must not be hidden: as Node does, emit a process warning. */
function warnOfOnLost({ name }: HeldLease, cause: unknown): void {
  const warning = new Error(`onLost of ${name} failed, so its work counts as stopped: ${String(cause)}`, { cause })
  process.emitWarning(Object.assign(warning, { name: 'LeaseholdWarning', code: 'LEASEHOLD_ON_LOST' }))
}
