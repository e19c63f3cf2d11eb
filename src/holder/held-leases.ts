/** What one process believes it has: kept alive together, and how each of it ends. */
import { inWords } from '../duration.ts'
import { type Facts, LeaseError } from '../errors.ts'
import type { Command } from '../kernel/command.ts'
import type { Outcome } from '../kernel/outcome.ts'
import { type HeldLease, Lease, type LeaseKeeper, since } from '../lease.ts'
import type { PastGrant } from '../lessor.ts'
import { publish } from './diagnostics.ts'
import { EventRouter, type EventWaiter, type RoutedEvents } from './event-router.ts'
import { Heartbeat } from './heartbeat.ts'
import type { Identity } from './identity.ts'
import { LossLog } from './loss-log.ts'
import type { Operations } from './operations.ts'
import { releaseWithRetry } from './release-with-retry.ts'
import { transferLease } from './transfer.ts'
import type { WorkerHeartbeat } from './worker-heartbeat.ts'

/** Why the clocks said that it is over. */
const EXPIRED: Readonly<Record<string, (ms: number) => string>> = {
  suspend: ms => `this machine slept for ${inWords(ms)}`,
  stall: ms => `this process stood still for ${inWords(ms)}`,
  'no-progress': ms => `its work made no progress for ${inWords(ms)}`,
  'not-renewed': ms => `nobody renewed it for ${inWords(ms)}`,
  inactive: ms => `nothing was done with it for ${inWords(ms)}`,
  unreachable: ms => `no renewal was answered for ${inWords(ms)}`,
}

interface LoseOptions {
  readonly by?: string
  readonly ms?: number
  readonly error?: unknown
  readonly definite?: boolean
  readonly above?: number[]
}

export class HeldLeases implements Iterable<HeldLease> {
  readonly heartbeat: Heartbeat
  readonly keeper: LeaseKeeper
  readonly losses: LossLog
  readonly waiters = new Map<number, EventWaiter>()
  readonly #operations: Operations
  readonly hearing: EventRouter
  readonly #beliefs = new Map<number, HeldLease>()
  /** Of what nobody was handed, or was lost. */
  readonly #farewells = new Set<Promise<void>>()
  readonly #handles = new FinalizationRegistry<HeldLease>(belief => this.#forgotten(belief))
  #warned = false

  constructor(operations: Operations, identity: Identity, margin: number, pacemaker?: WorkerHeartbeat) {
    const { lessor, clock } = operations
    this.#operations = operations
    this.losses = new LossLog(clock)
    const heartbeat = new Heartbeat(
      clock,
      {
        renew: (leases, waiting) => lessor.propose(waiting ? { kind: 'renew', leases, waiting } : { kind: 'renew', leases }),
        granted: belief => void this.hearing.check(belief),
        gone: belief => void this.gone(belief),
        expired: (belief, cause, ms) => this.#expired(belief, cause, ms),
        pulse: held => this.hearing.pulse(held),
      },
      pacemaker,
    )
    this.heartbeat = heartbeat
    this.keeper = {
      clock,
      margin,
      get doubted() {
        return heartbeat.doubted
      },
      look: () => heartbeat.look(),
      expire: belief => heartbeat.expire(belief),
      renew: belief => this.#renew(belief),
      progressed: belief => heartbeat.progressed(belief),
      release: belief => this.release(belief),
      transfer: (belief, to, incarnation) => transferLease(this, operations, belief, to, incarnation),
      put: (belief, key, value) => this.#changeOn(belief, { kind: 'put', lease: belief.id, key, value }),
      delete: (belief, key) => this.#changeOn(belief, { kind: 'delete', lease: belief.id, key }),
      listen: belief => this.hearing.listen(belief),
      endangered: belief => publish('jeopardy', () => ({ ask: belief.ask, ...belief.facts, remaining: belief.remaining() })),
    }
    this.hearing = new EventRouter(this, operations, identity)
    lessor.signal.addEventListener('abort', () => this.#lessorEnded(), { once: true })
    lessor.onRewound?.(why => this.#rewound(why))
  }

  get size(): number {
    return this.#beliefs.size
  }

  get(lease: number): HeldLease | undefined {
    return this.#beliefs.get(lease)
  }

  /** As they are now: some may end while they are looked at. */
  [Symbol.iterator](): Iterator<HeldLease> {
    return [...this.#beliefs.values()][Symbol.iterator]()
  }

  add(belief: HeldLease): void {
    this.#beliefs.set(belief.id, belief)
    const { parent } = belief
    if (parent === undefined) return
    parent.children ??= new Set()
    parent.children.add(belief)
  }

  /** The handle of one that may be forgotten. */
  handle(belief: HeldLease): Lease {
    const lease = new Lease(belief)
    this.#handles.register(lease, belief, belief)
    belief.registered = true
    return lease
  }

  // Renewing

  /** Belief begins with a renewal that leaves after the news. False: it was over before that. */
  async confirm(belief: HeldLease, { resources, tokens }: Pick<RoutedEvents, 'resources' | 'tokens'>): Promise<boolean> {
    if (belief.stage === 'ended') return false // it was called off, or ran out, while the news was on its way
    belief.stage = 'told'
    belief.resources = resources
    belief.tokens = tokens
    belief.hollow = this.heartbeat.lastSent
    // An heir has no request of its own behind it: it has as long as the lessor gives it, from now.
    if (belief.sent.number === 0) belief.sent = { ...this.heartbeat.sent(), number: 0 }
    this.heartbeat.join(belief)
    this.heartbeat.urge(belief)
    try {
      await belief.nextRenewal()
      return true
    } catch (error) {
      // Asked again it would be refused, or taken away again.
      if (error instanceof LeaseError && (error.facts.cause === 'revoked' || error.facts.cause === 'parent'))
        throw new LeaseError('GONE', error.message, error)
      return false
    }
  }

  #renew(belief: HeldLease): Promise<void> {
    if (belief.stage !== 'held') return Promise.reject(belief.end)
    const { signal } = this.#operations.lessor
    if (signal.aborted) return Promise.reject(signal.reason) // it is held until its time is over, and no answer will come
    const renewed = belief.nextRenewal()
    this.heartbeat.urge(belief)
    return renewed
  }

  async #changeOn(belief: HeldLease, command: Command): Promise<void> {
    if (belief.stage !== 'held') throw belief.end
    try {
      await this.#operations.change(command)
    } catch (error) {
      if (error instanceof LeaseError && error.code === 'GONE') await this.gone(belief)
      throw error
    }
  }

  // Losing

  /** The lessor says it has ended: believed in no more, from here on. What is frozen waits for us, so there is time to ask why. */
  async gone(belief: HeldLease): Promise<void> {
    if (belief.stage === 'ended' || belief.stage === 'leaving') return
    this.waiters.get(belief.id)?.settle(undefined)
    if (belief.stage === 'waiting') return
    const left = belief.remaining()
    belief.stage = 'leaving'
    belief.endedWith = left
    this.heartbeat.leave(belief)
    let past: PastGrant | undefined
    const [resource] = belief.resources
    if (resource !== undefined) {
      const asked = this.#operations.lessor.read({ kind: 'history', resource })
      const history = await this.#operations.within(Math.min(250, left), asked).catch(() => undefined)
      past = history?.value.find(({ lease }) => lease === belief.id)
    }
    this.loseTo(belief, past?.cause ?? 'ended', past?.by ?? '', left)
  }

  /** The lessor has ended it, and there were `left` ms to go. */
  loseTo(belief: HeldLease, cause: string, by: string, left: number): void {
    // It was over here before the lessor said so: why it was not renewed in time is what there is to tell.
    if (cause === 'lapsed' && left === 0) return this.heartbeat.expire(belief)
    const who = by === '' ? '' : cause === 'transferred' ? ` to ${by}` : ` by ${by}`
    this.lose(belief, cause, `the lessor has ended it: ${cause}${who}`, { by, definite: cause === 'lapsed' })
  }

  #expired(belief: HeldLease, cause: string, ms: number): void {
    const waiter = this.waiters.get(belief.id)
    if (waiter !== undefined) return waiter.settle(undefined)
    this.lose(belief, cause, EXPIRED[cause]!(ms), cause === 'unreachable' ? { ms, error: this.heartbeat.failure } : { ms })
  }

  /**
   * `definite`: the lessor has nothing left to be given back. `above`: it ends with what it hangs on, whose release will name those that are added there.
   */
  lose(belief: HeldLease, cause: string, text: string, { by = '', ms = 0, error, definite = false, above }: LoseOptions = {}): void {
    if (belief.stage === 'ended') return
    const { clock } = this.#operations
    const handed = belief.grantedAt > 0
    const over = since(belief.sent, clock.now(), clock.uptime()) - belief.term
    const waiter = this.waiters.get(belief.id)
    this.forget(belief)
    const below = above ?? []
    for (const child of [...(belief.children ?? [])]) this.orphan(child, below)
    const facts: Facts = { ...belief.facts, cause, ms: Math.round(ms), ...(by !== '' && { by }) }
    belief.finish(new LeaseError('LOST', `${belief.name} is lost: ${text}`, { cause: error, facts }))
    waiter?.fail(new LeaseError('GONE', `what was waited for is called off: ${text}`, { facts }))
    if (handed) this.losses.record(belief, cause, text, Math.max(0, over))
    // Its queued renewals must not keep alive what nobody believes in; and frozen units are free when their holder says that it stopped.
    const { onLost } = belief
    if (onLost === undefined || !handed) {
      if (above !== undefined) above.push(belief.id)
      else if (!definite) this.giveBack(belief.id, belief.term, below)
      else for (const child of below) this.giveBack(child, belief.term)
      return
    }
    belief.told = true
    const stopped = (async () => onLost(belief.end))().catch(error => warnOfOnLost(belief, error))
    const release = () =>
      definite ? undefined : releaseWithRetry(this.#operations, belief.id, belief.term, above === undefined ? below : [])
    if (above === undefined && definite) for (const child of below) this.giveBack(child, belief.term)
    belief.farewell = stopped.then(release).catch(() => {})
  }

  /** Why it was lost, if it was and the code that has it could not know. Asks the clocks: a timer may be late. */
  untold(belief: HeldLease): LeaseError | undefined {
    const { told } = belief
    this.#catchUp(belief)
    return !told && belief.stage === 'ended' && belief.end.code === 'LOST' ? belief.end : undefined
  }

  /** Ends what is over already: by the clocks, before a timer could fire, or because the lessor said so. */
  #catchUp(belief: HeldLease): void {
    if (belief.stage === 'leaving' && belief.endedWith !== undefined) this.loseTo(belief, 'ended', '', belief.endedWith)
    else if (belief.stage === 'held') this.heartbeat.expireIfOver(belief)
  }

  /**
   * Stops believing in all that hangs on it, however deep. What has stopped with that is returned, to be named by the release of what it hung on; what has
   * something to stop first says so itself.
   */
  endChildren(belief: HeldLease): number[] {
    const stopped: number[] = []
    for (const child of [...(belief.children ?? [])]) this.orphan(child, stopped)
    return stopped
  }

  /** What it hangs on has ended, here at least: the lessor may not have heard of it yet. */
  orphan(child: HeldLease, above?: number[]): void {
    const { name, id } = child.parent!
    this.lose(child, 'parent', `${name}, which it hung on, has ended`, { by: String(id), ...(above !== undefined && { above }) })
  }

  #forgotten(belief: HeldLease): void {
    if (belief.stage === 'ended') return
    if (!this.#warned) {
      this.#warned = true
      process.emitWarning(`${belief.name} was never released and nothing refers to it any more: use request(), or await using`, {
        type: 'LeaseholdWarning',
        code: 'LEASEHOLD_FORGOTTEN',
      })
    }
    this.lose(belief, 'forgotten', 'its handle was collected without a release')
  }

  #lessorEnded(): void {
    const { reason } = this.#operations.lessor.signal
    this.heartbeat.failure = reason
    this.heartbeat.die()
    const diverged = reason instanceof LeaseError && reason.code === 'DIVERGED'
    for (const belief of this) {
      this.waiters.get(belief.id)?.fail(reason)
      // Nothing can be said about what was granted: what is believed now rests on entries that are gone.
      if (diverged) this.lose(belief, 'diverged', reason.message, { error: reason, definite: true })
      // Nobody will ever hear that it was granted, or confirm it.
      else if (belief.stage === 'waiting' || belief.stage === 'told') this.leave(belief)
    }
  }

  /**
   * The server's log does not contain what we were told: another may be granted what we believe we have. A waiter keeps its place, if the log knows it;
   * else its next renewal says so. Nothing is given back: what the log knows under our numbers may not be ours.
   */
  #rewound(why: LeaseError): void {
    for (const belief of this) if (belief.stage !== 'waiting') this.lose(belief, 'rewound', why.message, { error: why, definite: true })
  }

  // Giving back

  forget(belief: HeldLease): void {
    this.heartbeat.leave(belief)
    this.hearing.unlisten(belief)
    this.#beliefs.delete(belief.id)
    this.waiters.delete(belief.id)
    if (belief.registered) this.#handles.unregister(belief)
    belief.parent?.children?.delete(belief)
  }

  /** Gives back what nobody was handed. */
  leave(belief: HeldLease): void {
    if (belief.stage === 'ended') return
    const waiter = this.waiters.get(belief.id)
    this.forget(belief)
    belief.finish(() => belief.gone('given back'))
    waiter?.settle(undefined) // whoever asked is told elsewhere; but its question must come to an end
    this.giveBack(belief.id, belief.term)
  }

  /** An answer that nobody waits for any more. */
  abandon(outcome: Outcome): void {
    if (outcome.kind === 'granted' || outcome.kind === 'queued') this.giveBack(outcome.lease, outcome.ttl)
  }

  giveBack(lease: number, term: number, stopped: readonly number[] = []): void {
    const said = releaseWithRetry(this.#operations, lease, term, stopped)
      .catch(() => {}) // it lapses by itself
      .finally(() => this.#farewells.delete(said))
    this.#farewells.add(said)
  }

  /** Resolves when what was given back until now is, or could not be. */
  async givenBack(): Promise<void> {
    await Promise.all(this.#farewells)
  }

  release(belief: HeldLease): Promise<void> {
    this.#catchUp(belief)
    if (belief.farewell !== undefined) return belief.farewell
    if (belief.stage === 'ended') return Promise.resolve()
    // Stops believing before it sends, with all that hangs on it.
    this.forget(belief)
    const stopped = this.endChildren(belief)
    belief.finish(() => belief.gone('released by its holder'))
    belief.farewell = releaseWithRetry(this.#operations, belief.id, belief.term, stopped)
    this.published(belief)
    return belief.farewell
  }

  published(belief: HeldLease, to?: string): void {
    publish('released', () => ({
      ask: belief.ask,
      ...belief.facts,
      resources: belief.resources,
      ...(to !== undefined && { to }),
      held: this.#operations.clock.now() - belief.grantedAt,
    }))
  }
}

/** Nothing may throw out of a timer, and a failure to stop must not be kept quiet: as Node's own, it is a warning of the process. */
function warnOfOnLost({ name }: HeldLease, cause: unknown): void {
  const warning = new Error(`onLost of ${name} failed, so it counts as stopped: ${String(cause)}`, { cause })
  process.emitWarning(Object.assign(warning, { name: 'LeaseholdWarning', code: 'LEASEHOLD_ON_LOST' }))
}
