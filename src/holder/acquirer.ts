/** Asks for leases: queues, waits, and hands out what can be believed in. Whatever ends a call, nothing is left behind. */
import { inWords } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import type { Want } from '../kernel/command.ts'
import type { Granted, Outcome, Queued } from '../kernel/outcome.ts'
import { HeldLease, type Sent } from '../lease.ts'
import { type AcquireOptions, type AcquireRequest, acquireCommand, namesOf } from './acquire-request.ts'
import { publish } from './diagnostics.ts'
import type { EventWaiter, RoutedEvents } from './event-router.ts'
import type { HeldLeases } from './held-leases.ts'
import type { Identity } from './identity.ts'
import type { Nesting } from './nesting.ts'
import { type Operations, refused, TIMEOUT } from './operations.ts'
import { PendingAcquire } from './pending-acquire.ts'

export interface AcquirerOptions {
  readonly beliefs: HeldLeases
  readonly operations: Operations
  readonly identity: Identity
  readonly nesting: Nesting
  /** For leases that do not say. */
  readonly ttl: number
}

export class Acquirer {
  readonly #options: AcquirerOptions
  readonly #asking = new Map<PendingAcquire<HeldLease>, Promise<void>>()
  readonly #late = (outcome: Outcome) => this.#options.beliefs.abandon(outcome)

  constructor(options: AcquirerOptions) {
    this.#options = options
  }

  /** A lease to hand out, within `limit`. */
  obtain(names: readonly string[], options: AcquireOptions, limit: number): Promise<HeldLease> {
    const { operations, identity, nesting, ttl } = this.#options
    const { signal } = options
    const asked = acquireCommand(names, options, {
      holder: identity.name,
      incarnation: identity.incarnation,
      profile: operations.lessor.profile,
      ttl,
      inside: nesting.inside,
      wait: limit > 0,
    })
    publish('asking', () => ({ ask: asked.ask, holder: identity.name, resources: namesOf(asked), ttl: asked.ttl, limit }))
    return new Promise((resolve, reject) => {
      const asking = new PendingAcquire<HeldLease>(asked.ask, limit === Number.POSITIVE_INFINITY, resolve, reject)
      if (signal !== undefined) asking.endWith(signal)
      if (limit > 0 && limit < Number.POSITIVE_INFINITY) asking.endAfter(operations.clock, limit, ms => waitedInVain(namesOf(asked), ms))
      this.#asking.set(asking, this.#ask(asked, asking))
    })
  }

  /** Calls off all that is under way. Resolves when all of it has been answered: some may have been granted by then, and is given back. */
  async stop(reason: unknown): Promise<void> {
    const answers = [...this.#asking.values()]
    for (const asking of [...this.#asking.keys()]) asking.stop(reason)
    await Promise.all(answers)
  }

  async #ask(asked: AcquireRequest, asking: PendingAcquire<HeldLease>): Promise<void> {
    const { identity } = this.#options
    try {
      // The first lease makes the incarnation of all that follow.
      for (let { pending } = identity; pending !== undefined; pending = identity.pending)
        await (asking.endless ? pending : this.#options.operations.within(TIMEOUT, pending).catch(notAsked))
      let belief: HeldLease | undefined
      do {
        asking.throwIfStopped()
        belief = await this.#attempt(asked, asking)
        asking.throwIfStopped()
      } while (belief === undefined && asked.command.wait === true) // granted or queued, and over before we could use it: once more
      if (belief === undefined) throw tooLate(asked)
      asking.succeed(this.handOut(belief, asked.maxHold))
    } catch (error) {
      asking.fail(error)
    } finally {
      this.#asking.delete(asking)
    }
  }

  /** A lease to hand out; undefined when it was over before that. */
  async #attempt(asked: AcquireRequest, asking: PendingAcquire<HeldLease>): Promise<HeldLease | undefined> {
    const { beliefs } = this.#options
    const { heartbeat } = beliefs
    const sent = heartbeat.sent()
    const outcome = await this.#decide(asked, asking)
    if (outcome.kind !== 'granted' && outcome.kind !== 'queued') throw refused(outcome)
    const belief = this.#believe(outcome, sent, asked)
    asking.onStop = () => beliefs.leave(belief)
    try {
      asking.throwIfStopped()
    } catch (stopped) {
      beliefs.leave(belief)
      throw stopped
    }
    if (belief.parent?.stage === 'ended') {
      beliefs.orphan(belief)
      throw new LeaseError('GONE', belief.end.message, belief.end)
    }
    if (outcome.kind === 'queued') return this.#queue(belief, outcome, asked, asking)
    const left = heartbeat.join(belief)
    if (left <= 0) {
      beliefs.leave(belief)
      return undefined
    }
    // A long grant begins short; whoever renews by the clock lengthens it in good time, the others must do so now.
    const short = belief.term < asked.ttl && asked.strategy !== 'half' && asked.strategy !== 'continuous'
    const doubtful = sent.number <= heartbeat.doubted // the wall clock jumped while it was under way
    if (!short && !doubtful && left > belief.valid / 4) return belief
    return (await beliefs.confirm(belief, outcome)) ? belief : undefined
  }

  /** Whoever waits until it is granted waits through an outage, too: it has nothing that could be lost meanwhile. */
  #decide({ command, ttl, onAway }: AcquireRequest, asking: PendingAcquire<HeldLease>): Promise<Outcome> {
    const { operations, identity } = this.#options
    const { incarnation } = identity
    const current = incarnation === command.incarnation || incarnation === undefined ? command : { ...command, incarnation }
    const waits = (error: LeaseError) => {
      if (!asking.endless || asking.over) return false
      onAway?.(error)
      return true
    }
    const deciding = operations.decide(current, { ttl, late: this.#late, waits })
    if (incarnation === undefined) identity.introduce(deciding)
    return deciding
  }

  #believe(outcome: Granted | Queued, sent: Sent, asked: AcquireRequest): HeldLease {
    const { beliefs } = this.#options
    const { lease, ttl, kind, revision } = outcome
    const belief = new HeldLease(beliefs.keeper, lease, kind === 'granted' ? 'held' : 'waiting', ttl, asked)
    belief.revision = revision
    if (kind === 'granted') {
      belief.resources = outcome.resources
      belief.tokens = outcome.tokens
    }
    belief.renewed(sent, ttl)
    beliefs.add(belief)
    return belief
  }

  async #queue(
    belief: HeldLease,
    { position, revision }: Queued,
    asked: AcquireRequest,
    asking: PendingAcquire<HeldLease>,
  ): Promise<HeldLease | undefined> {
    const { beliefs } = this.#options
    const heard = await new Promise<RoutedEvents | undefined>((settle, fail) => {
      const waiter: EventWaiter = { belief, asked, position: -1, settle, fail }
      beliefs.waiters.set(belief.id, waiter)
      beliefs.heartbeat.join(belief)
      beliefs.hearing.attend(waiter, position, revision)
    })
    beliefs.waiters.delete(belief.id)
    if (heard === undefined) {
      beliefs.leave(belief)
      return undefined
    }
    if (heard.lease === belief.id) return (await beliefs.confirm(belief, heard)) ? belief : undefined
    // It came by transfer: our own place in the queue is given back.
    const heir = new HeldLease(beliefs.keeper, heard.lease, 'told', belief.term, asked)
    heir.revision = belief.revision // it was handed over later than that
    beliefs.add(heir)
    asking.onStop = () => beliefs.leave(heir)
    beliefs.leave(belief)
    return (await beliefs.confirm(heir, heard)) ? heir : undefined
  }

  /** More to choose from, for one that waits. False: it does not wait, or not any more. */
  async widen(lease: number, more: readonly Want[]): Promise<boolean> {
    const { beliefs, operations } = this.#options
    const waiter = beliefs.waiters.get(lease)
    if (waiter === undefined) return false
    const { asked } = waiter
    const outcome = await operations.decide({ kind: 'widen', lease, wants: more })
    if (outcome.kind === 'refused' && outcome.code === 'GONE') return false
    if (outcome.kind !== 'done') throw refused(outcome)
    const known = new Set(namesOf(asked))
    asked.command = { ...asked.command, wants: [...asked.command.wants, ...more.filter(({ resource }) => !known.has(resource))] }
    if (beliefs.waiters.get(lease) === waiter) beliefs.hearing.attendAnew(waiter, outcome.revision)
    return true
  }

  handOut(belief: HeldLease, maxHold: number): HeldLease {
    const { beliefs, operations } = this.#options
    const { clock } = operations
    belief.grantedAt = clock.now()
    belief.progress = belief.grantedAt
    beliefs.heartbeat.progressed(belief) // waiting was no stall
    beliefs.hearing.hold(belief)
    if (maxHold < Number.POSITIVE_INFINITY)
      belief.cancelHold = clock.after(maxHold, () =>
        beliefs.lose(belief, 'max-hold', `it was held for ${inWords(maxHold)}, as long as was allowed`, { ms: maxHold }),
      )
    publish('acquired', () => ({ ask: belief.ask, ...belief.facts, resources: belief.resources, tokens: belief.tokens }))
    return belief
  }
}

/** Whoever went before us waits as long as it takes. */
function notAsked(cause: unknown): never {
  throw new LeaseError('UNAVAILABLE', `no answer for ${inWords(TIMEOUT)} to what was asked first: this was not asked at all`, { cause })
}

/** It was done: what was granted is given back by now, or on its way back. */
function tooLate(asked: AcquireRequest): LeaseError {
  const names = namesOf(asked)
  return new LeaseError(
    'LOST',
    `${names.join(', ')} was granted, but the answer took longer than the ttl of ${inWords(asked.ttl)}: it is given back; ask again, with a longer ttl`,
    { facts: { resource: names[0] ?? '', resources: names, holder: asked.holder, cause: 'late-answer' } },
  )
}

/** `holders`: who is in the way, where that is known. */
export function waitedInVain(names: readonly string[], ms: number, holders: readonly string[] = []): LeaseError {
  const why = holders.length === 0 ? 'it is still held, or others come first' : `it is held by ${holders.join(', ')}`
  const who = holders.length === 0 ? {} : { holder: holders[0]!, holders }
  return new LeaseError('TIMEOUT', `${names.join(', ')} was not granted within ${inWords(ms)}: ${why}`, {
    facts: { resource: names[0] ?? '', resources: names, waited: Math.round(ms), ...who },
  })
}
