/** Follows the events of the log and passes each to the lease of this process that it concerns: grants, recalls, transfers and ends. */

import { LeaseError } from '../errors.ts'
import type { Event, EventType } from '../kernel/event.ts'
import { DEADLOCK, ELSEWHERE } from '../kernel/event.ts'
import { selfWaitError } from '../refused-error.ts'
import { type AcquireRequest, namesOf } from './acquire-request.ts'
import { channels } from './diagnostics.ts'
import { EventFeed, type FeedWatch } from './event-feed.ts'
import type { HeldLease } from './held-lease.ts'
import { type Operations, TIMEOUT } from './operations.ts'

/** Others can do this to a held lease. A lapse is not among them: the holder's own clocks notice it first. */
const ENDS: readonly EventType[] = ['revoked', 'transferred', 'recalled']
/** If we may watch only single names, held leases share this many watches. */
const MAX_WATCHES = 32
/** If we may not watch, read the state of waiters this often, and retry the watch. */
const POLL_WAITERS = 1_000
const RETRY_DENIED = 30_000

/** News of a grant. */
export interface GrantNews {
  readonly lease: number
  readonly resources: readonly string[]
  readonly tokens: readonly number[]
}

export interface EventWaiter {
  readonly held: HeldLease
  readonly request: AcquireRequest
  position: number
  /** Undefined: the place in the queue is lost, send the request again. */
  readonly settle: (news: GrantNews | undefined) => void
  readonly fail: (error: unknown) => void
}

/** The part of the held leases that the router uses. */
export interface RoutedLeases extends Iterable<HeldLease> {
  readonly waiters: ReadonlyMap<number, EventWaiter>
  readonly heartbeat: { renewNow(held: HeldLease): void }
  get(lease: number): HeldLease | undefined
  remove(held: HeldLease): void
  discard(held: HeldLease): void
  endedByLessor(held: HeldLease): Promise<void>
  loseToLessor(held: HeldLease, cause: string, by: string, left: number): void
}

export class EventRouter {
  readonly #heldLeases: RoutedLeases
  readonly #operations: Operations
  readonly #feed: EventFeed
  /** One watch for all held leases, on the common prefix of their names. */
  #ends: FeedWatch | undefined
  /** Held leases that this watch does not cover yet. */
  readonly #uncovered = new Set<HeldLease>()
  /** Held leases whose news must come at once; without any, renewals bring it soon enough. */
  readonly #listening = new Set<HeldLease>()

  constructor(heldLeases: RoutedLeases, operations: Operations) {
    this.#heldLeases = heldLeases
    this.#operations = operations
    this.#feed = new EventFeed(operations.lessor, operations.clock, {
      received: (events, watch) => this.#received(events, watch),
      denied: watch => this.#denied(watch),
    })
  }

  stop(): void {
    this.#feed.stop()
  }

  #received(events: readonly Event[], watch: FeedWatch): void {
    if (events[0]!.type === 'resync') {
      if (watch.types !== undefined) void this.#checkHeld()
      else this.#checkWaiters(watch)
      return
    }
    const grants = new Map<HeldLease, Event[]>()
    for (const event of events) {
      const held = this.#heldLeases.get(event.lease)
      if (held === undefined) continue
      if (event.type === 'granted') {
        if (held.stage === 'waiting') grants.set(held, [...(grants.get(held) ?? []), event])
      } else if (event.type === 'recalled') held.recall(event.by ?? '', noticeOf(event))
      else if (event.type === 'withdrawn') this.#withdrawn(held, event)
      else if (event.type === 'revoked' || event.type === 'lapsed' || event.type === 'transferred')
        this.#ended(held, event.cause ?? event.type, event.by ?? '')
    }
    for (const [held, granted] of grants) this.#granted(held, granted)
    if (watch.types !== undefined) return
    for (const waiter of this.#heldLeases.waiters.values()) if (waiter.request.onWait !== undefined) void this.check(waiter.held)
  }

  /**
   * Waiters are polled: otherwise they would learn of their grant only with the next renewal. Most held leases learn of their end with the next
   * renewal.
   */
  #denied(watch: FeedWatch): number {
    if (watch === this.#ends) this.#watchEachName()
    if (watch.types !== undefined) return RETRY_DENIED
    this.#checkWaiters(watch)
    return POLL_WAITERS
  }

  /** A key that may acquire a name may watch that very name. */
  #watchEachName(): void {
    for (const held of this.#heldLeases) {
      if (this.#feed.size >= MAX_WATCHES) return
      const { stage, resources, revision, watch } = held
      if (stage === 'held' && resources.length === 1 && watch === undefined) held.watch = this.#feed.follow(resources[0]!, revision, ENDS)
    }
  }

  #checkWaiters(watch: FeedWatch): void {
    for (const { held } of this.#heldLeases.waiters.values()) if (held.watch === watch) void this.check(held)
  }

  /** Events were missed. A renewal reports which leases are gone, up to 10,000 at a time; leases without a timed renewal are read. */
  async #checkHeld(): Promise<void> {
    const read: HeldLease[] = []
    for (const held of this.#heldLeases) {
      if (held.stage !== 'held') continue
      if (held.strategy === 'half' || held.strategy === 'continuous') this.#heldLeases.heartbeat.renewNow(held)
      else read.push(held)
    }
    for (const held of read) if (held.stage === 'held') await this.check(held)
  }

  #ended(held: HeldLease, cause: string, by: string): void {
    // While it is ending, the answer that is under way says what became of it.
    if (held.stage !== 'ending') this.#heldLeases.loseToLessor(held, cause, by, held.remaining())
  }

  // Waiters

  /** Reports to a waiter. */
  follow(waiter: EventWaiter, position: number, revision: number): void {
    const { held, request } = waiter
    const names = namesOf(request)
    const watch = this.#feed.follow(request.command.any === undefined ? names[0]! : commonPrefix(names), revision)
    held.watch = watch
    if (watch.revision > revision) void this.check(held)
    this.#placed(waiter, position)
  }

  /** The waiter waits for more than before, since `revision`. */
  followWidened({ held, request }: EventWaiter, revision: number): void {
    this.unfollow(held)
    held.watch = this.#feed.follow(commonPrefix(namesOf(request)), revision)
    void this.check(held) // it may have been granted in that very revision
  }

  /** `events` belong to one revision. Grants outside the watched prefix are read. */
  #granted(held: HeldLease, events: readonly Event[]): void {
    const waiter = this.#heldLeases.waiters.get(held.id)
    if (waiter === undefined) return
    const { wants, any } = waiter.request.command
    // A transfer may bring more than was asked for.
    if (events.length < (any ?? wants.length) || events[0]!.cause === 'transferred') return void this.check(held)
    held.revision = events[0]!.revision
    waiter.settle({ lease: held.id, resources: events.map(({ resource }) => resource!), tokens: events.map(({ token }) => token!) })
  }

  /** Reads the state of a lease after a hint: a renewal, a resync, or a watch that began late. Returns the revision it was read at, if any. */
  async check(held: HeldLease): Promise<number | undefined> {
    try {
      const answer = this.#operations.lessor.read({ kind: 'lease', lease: held.id }, { atLeast: held.revision })
      const { value, revision } = await this.#operations.within(TIMEOUT, answer)
      const waiter = this.#heldLeases.waiters.get(held.id)
      if (value === undefined || value.status === 'frozen') void this.#heldLeases.endedByLessor(held)
      else if (value.recalled) held.recall('')
      if (waiter === undefined || value === undefined || value.status === 'frozen') return revision
      if (value.status !== 'waiting') {
        const { grants } = value
        held.revision = revision
        waiter.settle({ lease: held.id, resources: grants.map(grant => grant.resource), tokens: grants.map(({ token }) => token) })
      } else this.#placed(waiter, Math.max(...value.wants.map(({ position }) => position)))
      return revision
    } catch (error) {
      // The key was revoked: no more news of the place in the queue can come.
      const waiter = this.#heldLeases.waiters.get(held.id)
      if (waiter !== undefined && LeaseError.is(error, 'UNAUTHENTICATED')) {
        waiter.fail(error)
        this.#heldLeases.discard(held)
      }
      return undefined // otherwise the next renewal brings the same news
    }
  }

  #placed(waiter: EventWaiter, position: number): void {
    if (position === waiter.position) return
    const { request, held } = waiter
    const { id: lease } = held
    const first = waiter.position < 0
    waiter.position = position
    if (channels.queued.hasSubscribers) channels.queued.publish({ ask: request.requestId, lease, resources: namesOf(request), position })
    try {
      if (first) request.onQueued?.(lease)
      request.onWait?.({ lease, position })
    } catch (error) {
      waiter.fail(error)
      this.#heldLeases.discard(held)
    }
  }

  #withdrawn(held: HeldLease, { cause = '', by = '' }: Event): void {
    const waiter = this.#heldLeases.waiters.get(held.id)
    if (waiter === undefined) return
    if (cause === ELSEWHERE) return // one of its queues; the grant is in the same revision
    if (cause === 'lapsed') return waiter.settle(undefined)
    this.#heldLeases.remove(held)
    const names = namesOf(waiter.request).join(', ')
    const error = withdrawnError(names, held.id, cause, by)
    held.end(error)
    waiter.fail(error)
  }

  // Held leases

  /** The lease is in the user's hands: from here on, what others do to it matters. */
  hold(held: HeldLease): void {
    const listens = held.listens || this.#listening.has(held)
    if (held.watch !== undefined) this.unfollow(held)
    if (listens) this.#listening.add(held)
    const watch = this.#ends
    if (watch === undefined || !namesUnder(held).every(name => commonPrefix([watch.prefix, name]) === watch.prefix))
      this.#uncovered.add(held)
    else if (watch.revision > held.revision) void this.check(held) // the event may have come before we knew of the lease
  }

  /** Covers the lease at once, because its user asked for a signal. */
  listen(held: HeldLease): void {
    if (held.stage !== 'ended') this.#listening.add(held)
    if (this.#uncovered.has(held) || this.#ends?.lazy === true) this.#widen()
  }

  /** Called now and then, so that a process that holds again and again for a moment costs no watch. */
  pulse(holdsAny: boolean): void {
    const isOther = this.#ends !== undefined && this.#ends.lazy !== (this.#listening.size === 0)
    if (holdsAny) return this.#uncovered.size > 0 || isOther ? this.#widen() : undefined
    if (this.#ends !== undefined) this.#feed.unfollow(this.#ends)
    this.#ends = undefined
  }

  /** Watches from the oldest uncovered grant on: no event is missed, or a resync says so. */
  #widen(): void {
    const before = this.#ends
    const names = [...this.#uncovered].flatMap(namesUnder)
    let after = before?.revision ?? Number.POSITIVE_INFINITY
    for (const { revision } of this.#uncovered) after = Math.min(after, revision)
    this.#uncovered.clear()
    const prefix = commonPrefix(before === undefined ? names : [before.prefix, ...names])
    this.#ends = this.#feed.follow(prefix, after, ENDS, this.#listening.size === 0)
    if (before !== undefined) this.#feed.unfollow(before)
  }

  unfollow(held: HeldLease): void {
    if (held.watch !== undefined) this.#feed.unfollow(held.watch as FeedWatch)
    held.watch = undefined
    this.#uncovered.delete(held)
    this.#listening.delete(held)
  }
}

function withdrawnError(names: string, lease: number, cause: string, by: string): LeaseError {
  const facts = { lease, cause }
  if (cause === 'unkeyed')
    return new LeaseError('UNAUTHENTICATED', `the key that waited for ${names} was revoked: ask an administrator for another`, { facts })
  if (cause === DEADLOCK) return selfWaitError(names, Number(by))
  return new LeaseError('GONE', `the place in the queue for ${names} was taken away: ${cause}`, { facts })
}

/** Events of a lease without resources appear only in a watch of everything. */
function namesUnder({ resources }: HeldLease): readonly string[] {
  return resources.length === 0 ? [''] : resources
}

/** The longest common prefix of whole segments. */
function commonPrefix([first = '', ...others]: readonly string[]): string {
  let segments = first.split('/')
  for (const other of others) {
    const theirs = other.split('/')
    const differs = segments.findIndex((segment, i) => segment !== theirs[i])
    if (differs !== -1) segments = segments.slice(0, differs)
  }
  return segments.join('/')
}

/** Ms until a preemption. Undefined for a request that ends nothing. */
function noticeOf({ cause, value = '' }: Event): number | undefined {
  return cause === 'preempt' && /^\d{1,15}$/.test(value) ? Number(value) : undefined
}
