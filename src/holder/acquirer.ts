/** Acquires leases: sends the request, waits in the queue, confirms the grant. However a call ends, it leaves no lease behind. */
import { inWords } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import type { Want } from '../kernel/command.ts'
import type { Outcome, Queued } from '../kernel/outcome.ts'
import type { DecidedOptions } from './acquire-options.ts'
import { type AcquireRequest, acquireCommand, assertPromised, namesOf } from './acquire-request.ts'
import { channels } from './diagnostics.ts'
import type { EventWaiter, GrantNews } from './event-router.ts'
import { HeldLease } from './held-lease.ts'
import type { HeldLeases } from './held-leases.ts'
import type { Identity } from './identity.ts'
import type { LearnedTerm } from './learned-terms.ts'
import type { Nesting } from './nesting.ts'
import { type Operations, refused, TIMEOUT } from './operations.ts'
import { PendingAcquire } from './pending-acquire.ts'

const NONE: readonly HeldLease[] = []

export interface AcquirerOptions {
  readonly heldLeases: HeldLeases
  readonly operations: Operations
  readonly identity: Identity
  readonly nesting: Nesting
  /** The ttl of leases that do not name one. */
  readonly ttl: number
}

export class Acquirer {
  readonly #options: AcquirerOptions
  readonly #pending = new Map<PendingAcquire<HeldLease>, Promise<void>>()
  readonly #late = (outcome: Outcome) => this.#options.heldLeases.releaseUnwanted(outcome)

  constructor(options: AcquirerOptions) {
    this.#options = options
  }

  /** A lease that is ready for use, within `limit` ms. `learned` decides how its terms grow. */
  obtain(names: readonly string[], options: DecidedOptions, limit: number, learned?: LearnedTerm): Promise<HeldLease> {
    const { operations, identity, nesting, ttl } = this.#options
    const { signal } = options
    const request = acquireCommand(names, options, {
      holder: identity.name,
      incarnation: identity.incarnation,
      lessor: operations.lessor,
      ttl,
      inside: nesting.running === 0 ? NONE : nesting.inside,
      wait: limit > 0,
      learned,
    })
    if (channels.asking.hasSubscribers) {
      const { requestId, holder, ttl } = request
      channels.asking.publish({ ask: requestId, holder, resources: namesOf(request), ttl, limit })
    }
    return new Promise((resolve, reject) => {
      const pending = new PendingAcquire<HeldLease>(request.requestId, limit === Number.POSITIVE_INFINITY, resolve, reject)
      if (signal !== undefined) pending.endWith(signal)
      if (limit > 0 && limit < Number.POSITIVE_INFINITY)
        pending.endAfter(operations.clock, limit, ms => timedOut(namesOf(request), ms, [], operations.lessor.delayReason))
      this.#pending.set(pending, this.#run(request, pending))
    })
  }

  /** Cancels all pending calls. Resolves when each has been answered; a lease that was granted meanwhile is being released then. */
  async stop(reason: unknown): Promise<void> {
    const answers = [...this.#pending.values()]
    for (const pending of [...this.#pending.keys()]) pending.stop(reason)
    await Promise.all(answers)
  }

  async #run(request: AcquireRequest, pending: PendingAcquire<HeldLease>): Promise<void> {
    const { identity } = this.#options
    try {
      // The first lease of a process decides the incarnation of all that follow.
      while (identity.incarnation === undefined && identity.pending !== undefined) {
        await (pending.endless ? identity.pending : this.#options.operations.within(TIMEOUT, identity.pending).catch(notSent))
        if (pending.over) throw pending.stopReason
      }
      let held: HeldLease | undefined
      do {
        held = await this.#attempt(request, pending)
        if (pending.over) throw pending.stopReason
      } while (held === undefined && request.command.wait === true) // it was over before we could use it: try again
      if (held === undefined) throw answeredTooLate(request)
      pending.succeed(this.handOut(held, request.maxHold))
    } catch (error) {
      pending.fail(error)
    } finally {
      this.#pending.delete(pending)
    }
  }

  /** A lease that is ready for use; undefined when it was over before that. */
  async #attempt(request: AcquireRequest, pending: PendingAcquire<HeldLease>): Promise<HeldLease | undefined> {
    const { heldLeases } = this.#options
    const { heartbeat } = heldLeases
    if (request.command.wait !== true) await this.#confirm(request, pending)
    const sent = heartbeat.sent()
    const outcome = await this.#decide(request, pending)
    if (outcome.kind !== 'granted' && outcome.kind !== 'queued') throw refused(outcome)
    const stage = outcome.kind === 'granted' ? 'held' : 'waiting'
    const held = new HeldLease(heldLeases.keeper, outcome.lease, stage, outcome.ttl, request)
    held.sent = sent
    held.revision = outcome.revision
    if (outcome.kind === 'granted') {
      held.resources = outcome.resources
      held.tokens = outcome.tokens
    }
    heldLeases.add(held)
    pending.onStop = () => heldLeases.discard(held)
    try {
      if (pending.over) throw pending.stopReason
      if (request.require.length > 0) assertPromised(this.#options.operations.lessor, request.require) // the request may have met another server than the one before
    } catch (error) {
      heldLeases.discard(held)
      throw error
    }
    if (held.parent?.stage === 'ended') {
      heldLeases.loseWithParent(held)
      throw new LeaseError('GONE', held.endReason.message, held.endReason)
    }
    if (outcome.kind === 'queued') return this.#queue(held, outcome, request)
    const left = heartbeat.join(held)
    if (left <= 0) {
      heldLeases.discard(held)
      return undefined
    }
    // The first term of a long lease is short. Strategies that renew by the clock lengthen it in time; the others must renew now.
    const short = held.term < request.ttl && request.strategy !== 'half' && request.strategy !== 'continuous'
    const doubtful = sent.number <= heartbeat.doubtedUpTo // the wall clock jumped while the request was under way
    if (!short && !doubtful && left > held.validity / 4) return held
    return (await heldLeases.confirm(held, outcome)) ? held : undefined
  }

  /** The lease of a dead holder ends before the request is sent, if only this process counts its time. */
  async #confirm({ command, confirm }: AcquireRequest, pending: PendingAcquire<HeldLease>): Promise<void> {
    const { lessor } = this.#options.operations
    if (lessor.confirm === undefined) return
    const stopped = new AbortController()
    pending.onStop = () => stopped.abort()
    await lessor.confirm(command, { signal: stopped.signal, ...(confirm !== undefined && { limit: confirm }) })
    pending.onStop = undefined
    if (pending.over) throw pending.stopReason
  }

  /** An endless wait also waits through an outage: it has no lease that could be lost meanwhile. */
  #decide({ command, ttl, onAway }: AcquireRequest, pending: PendingAcquire<HeldLease>): Promise<Outcome> {
    const { operations, identity } = this.#options
    const { incarnation } = identity
    const current = incarnation === command.incarnation || incarnation === undefined ? command : { ...command, incarnation }
    const retryOutage = (error: LeaseError) => {
      if (!pending.endless || pending.over) return false
      onAway?.(error)
      return true
    }
    const deciding = operations.decide(current, { ttl, late: this.#late, retryOutage })
    if (incarnation === undefined) identity.introduce(deciding)
    return deciding
  }

  async #queue(held: HeldLease, { position, revision }: Queued, request: AcquireRequest): Promise<HeldLease | undefined> {
    const { heldLeases } = this.#options
    const news = await new Promise<GrantNews | undefined>((settle, fail) => {
      const waiter: EventWaiter = { held, request, position: -1, settle, fail }
      heldLeases.waiters.set(held.id, waiter)
      heldLeases.heartbeat.join(held)
      heldLeases.events.follow(waiter, position, revision)
    })
    heldLeases.waiters.delete(held.id)
    if (news === undefined) {
      heldLeases.discard(held)
      return undefined
    }
    return (await heldLeases.confirm(held, news)) ? held : undefined
  }

  /** Adds resources to the choice of a waiter. False: that lease is not waiting, or no longer. */
  async widen(lease: number, more: readonly Want[]): Promise<boolean> {
    const { heldLeases, operations } = this.#options
    const waiter = heldLeases.waiters.get(lease)
    if (waiter === undefined) return false
    const { request } = waiter
    const outcome = await operations.decide({ kind: 'widen', lease, wants: more })
    if (outcome.kind === 'refused' && outcome.code === 'GONE') return false
    if (outcome.kind !== 'done') throw refused(outcome)
    const known = new Set(namesOf(request))
    request.command = { ...request.command, wants: [...request.command.wants, ...more.filter(({ resource }) => !known.has(resource))] }
    if (heldLeases.waiters.get(lease) === waiter) heldLeases.events.followWidened(waiter, outcome.revision)
    return true
  }

  /** Starts what runs while a lease is in the user's hands. */
  handOut(held: HeldLease, maxHold: number): HeldLease {
    const { heldLeases, operations } = this.#options
    const { clock } = operations
    held.grantedAt = clock.now()
    held.lastProgress = held.grantedAt
    if (held.backup !== undefined || held.maxStall < Number.POSITIVE_INFINITY) heldLeases.heartbeat.progressed(held) // the wait was no stall
    heldLeases.events.hold(held)
    if (maxHold < Number.POSITIVE_INFINITY)
      held.cancelHold = clock.after(maxHold, () =>
        heldLeases.lose(held, 'max-hold', `it was held for ${inWords(maxHold)}, the limit set by maxHold`, { ms: maxHold }),
      )
    if (channels.acquired.hasSubscribers)
      channels.acquired.publish({ ask: held.requestId, ...held.facts, resources: held.resources, tokens: held.tokens })
    return held
  }
}

/** The first request of this process has no answer yet, and waits without a limit. */
function notSent(cause: unknown): never {
  throw new LeaseError('UNAVAILABLE', `no answer for ${inWords(TIMEOUT)} to the first request of this process: this request was not sent`, {
    cause,
  })
}

/** It was granted. The lease is released by now, or its release is under way. */
function answeredTooLate(request: AcquireRequest): LeaseError {
  const names = namesOf(request)
  return new LeaseError(
    'LOST',
    `${names.join(', ')} was granted, but the answer took longer than the ttl of ${inWords(request.ttl)}: the lease is released. Retry with a longer ttl`,
    { facts: { resource: names[0] ?? '', resources: names, holder: request.holder, cause: 'late-answer' } },
  )
}

/** `holders`: the present holders, where they are known. */
export function timedOut(names: readonly string[], ms: number, holders: readonly string[] = [], delay?: string): LeaseError {
  const why = delay ?? (holders.length === 0 ? 'it is still held, or other waiters come first' : `it is held by ${holders.join(', ')}`)
  const who = holders.length === 0 ? {} : { holder: holders[0]!, holders }
  return new LeaseError('TIMEOUT', `${names.join(', ')} was not granted within ${inWords(ms)}: ${why}`, {
    facts: { resource: names[0] ?? '', resources: names, waited: Math.round(ms), ...who },
  })
}
