/** What others decided, and whom of ours it concerns: grants, recalls, transfers and ends. */
import { LeaseError } from '../errors.ts'
import type { Event, EventType } from '../kernel/event.ts'
import { ELSEWHERE } from '../kernel/event.ts'
import type { HeldLease } from '../lease.ts'
import { type AcquireRequest, namesOf } from './acquire-request.ts'
import { publish } from './diagnostics.ts'
import { EventFeed, type FeedWatch } from './event-feed.ts'
import type { HeldLeases } from './held-leases.ts'
import type { Identity } from './identity.ts'
import { type Operations, TIMEOUT } from './operations.ts'

/** What others do to a lease that is held. When one lapses, its holder's own clocks have said so before. */
const ENDS: readonly EventType[] = ['revoked', 'transferred', 'recalled']
/** Where we may watch names alone, those that are held have so many watches between them. */
const MAX_WATCHES = 32
/** Where we may not watch, those who wait are asked about so often; and it is tried again whether we may. */
const LOOK = 1_000
const RETRY_DENIED = 30_000

/** News of a grant. */
export interface RoutedEvents {
  readonly lease: number
  readonly resources: readonly string[]
  readonly tokens: readonly number[]
}

export interface EventWaiter {
  readonly belief: HeldLease
  readonly asked: AcquireRequest
  position: number
  /** Undefined: the place is lost, ask again. */
  readonly settle: (heard: RoutedEvents | undefined) => void
  readonly fail: (error: unknown) => void
}

export class EventRouter {
  readonly #beliefs: HeldLeases
  readonly #operations: Operations
  readonly #identity: Identity
  readonly #news: EventFeed
  /** Leases that a transfer has made for this holder, and that nobody has adopted yet. */
  readonly #heirs = new Set<number>()
  /** One watch for all that is held: under what its names have in common. */
  #ends: FeedWatch | undefined
  /** Held, and not under that watch yet. */
  readonly #uncovered = new Set<HeldLease>()

  constructor(beliefs: HeldLeases, operations: Operations, identity: Identity) {
    this.#beliefs = beliefs
    this.#operations = operations
    this.#identity = identity
    this.#news = new EventFeed(operations.lessor, operations.clock, {
      heard: (events, watch) => this.#heard(events, watch),
      denied: watch => this.#denied(watch),
    })
  }

  stop(): void {
    this.#news.stop()
  }

  #heard(events: readonly Event[], watch: FeedWatch): void {
    if (events[0]!.type === 'resync') {
      if (watch.types !== undefined) void this.#checkHeld()
      else this.#checkWaiters(watch)
      return
    }
    this.#noteHeirs(events)
    const grants = new Map<HeldLease, Event[]>()
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
    if (watch.types !== undefined) return
    for (const waiter of this.#beliefs.waiters.values()) if (waiter.asked.onWait !== undefined) void this.check(waiter.belief)
  }

  /** Whoever waits must not wait for its next renewal to learn that it was granted. Most of what is held hears of its end with that. */
  #denied(watch: FeedWatch): number {
    if (watch === this.#ends) this.#listenApart()
    if (watch.types !== undefined) return RETRY_DENIED
    this.#checkWaiters(watch)
    return LOOK
  }

  /** A key that may acquire a name may watch that very name. */
  #listenApart(): void {
    for (const belief of this.#beliefs) {
      if (this.#news.size >= MAX_WATCHES) return
      const { stage, resources, revision, news } = belief
      if (stage === 'held' && resources.length === 1 && news === undefined) belief.news = this.#news.follow(resources[0]!, revision, ENDS)
    }
  }

  #checkWaiters(watch: FeedWatch): void {
    for (const { belief } of this.#beliefs.waiters.values()) if (belief.news === watch) void this.check(belief)
  }

  /** Something happened that was not told. A renewal says which are gone, ten thousand at a time; those that only activity renews are read. */
  async #checkHeld(): Promise<void> {
    const read: HeldLease[] = []
    for (const belief of this.#beliefs) {
      if (belief.stage !== 'held') continue
      if (belief.strategy === 'half' || belief.strategy === 'continuous') this.#beliefs.heartbeat.urge(belief)
      else read.push(belief)
    }
    for (const belief of read) if (belief.stage === 'held') await this.check(belief)
  }

  #ended(belief: HeldLease, cause: string, by: string): void {
    // A farewell is under way, or someone asks already: the answer says what became of it.
    if (belief.stage !== 'leaving') this.#beliefs.loseTo(belief, cause, by, belief.remaining())
  }

  // Waiting

  /** Brings the news for which a waiter waits. */
  attend(waiter: EventWaiter, position: number, revision: number): void {
    const { belief, asked } = waiter
    const { wants, any } = asked.command
    const watch = this.#news.follow(any === undefined ? wants[0]!.resource : commonPrefix(namesOf(asked)), revision)
    belief.news = watch
    if (watch.revision > revision) void this.check(belief)
    this.#placed(waiter, position)
  }

  /** It waits for more than before, since `revision`. */
  attendAnew({ belief, asked }: EventWaiter, revision: number): void {
    this.unlisten(belief)
    belief.news = this.#news.follow(commonPrefix(namesOf(asked)), revision)
    void this.check(belief) // it may have been granted in that very revision
  }

  /** All of them belong to one revision; those outside what is watched are read. */
  #granted(belief: HeldLease, events: readonly Event[]): void {
    const waiter = this.#beliefs.waiters.get(belief.id)
    if (waiter === undefined) return
    const { wants, any } = waiter.asked.command
    if (events.length < (any ?? wants.length)) return void this.check(belief)
    belief.revision = events[0]!.revision
    const heard = { lease: belief.id, resources: events.map(({ resource }) => resource!), tokens: events.map(({ token }) => token!) }
    waiter.settle(heard)
  }

  /** A renewal, a resync or a late watch says that something happened: see what. The revision it was seen at, if it could be. */
  async check(belief: HeldLease): Promise<number | undefined> {
    try {
      const asked = this.#operations.lessor.read({ kind: 'lease', lease: belief.id }, { atLeast: belief.revision })
      const { value, revision } = await this.#operations.within(TIMEOUT, asked)
      const waiter = this.#beliefs.waiters.get(belief.id)
      if (value === undefined || value.status === 'frozen') void this.#beliefs.gone(belief)
      else if (value.recalled) belief.recall('')
      if (waiter === undefined || value === undefined || value.status === 'frozen') return revision
      if (value.status !== 'waiting') {
        const { grants } = value
        belief.revision = revision
        waiter.settle({ lease: belief.id, resources: grants.map(grant => grant.resource), tokens: grants.map(({ token }) => token) })
      } else this.#placed(waiter, Math.max(...value.wants.map(({ position }) => position)))
      return revision
    } catch (error) {
      // The key was revoked: nothing will ever be heard of the place in the queue.
      const waiter = this.#beliefs.waiters.get(belief.id)
      if (waiter !== undefined && error instanceof LeaseError && error.code === 'UNAUTHENTICATED') {
        waiter.fail(error)
        this.#beliefs.leave(belief)
      }
      return undefined // else the next renewal brings the same news
    }
  }

  #placed(waiter: EventWaiter, position: number): void {
    if (position === waiter.position) return
    const { asked, belief } = waiter
    const { id: lease } = belief
    const first = waiter.position < 0
    waiter.position = position
    publish('queued', () => ({ ask: asked.ask, lease, resources: namesOf(asked), position }))
    try {
      if (first) asked.onQueued?.(lease)
      asked.onWait?.({ lease, position })
    } catch (error) {
      waiter.fail(error)
      this.#beliefs.leave(belief)
    }
  }

  #withdrawn(belief: HeldLease, cause: string): void {
    const waiter = this.#beliefs.waiters.get(belief.id)
    if (waiter === undefined) return
    if (cause === ELSEWHERE) return // one of the queues it stood in; the grant is told beside it
    if (cause === 'lapsed') return waiter.settle(undefined)
    this.#beliefs.forget(belief)
    const names = namesOf(waiter.asked).join(', ')
    const facts = { lease: belief.id, cause }
    const error =
      cause === 'unkeyed'
        ? new LeaseError('UNAUTHENTICATED', `the key with which ${names} was waited for was revoked: ask an administrator for another`, {
            facts,
          })
        : new LeaseError('GONE', `the place in the queue for ${names} was taken away: ${cause}`, { facts })
    belief.finish(error)
    waiter.fail(error)
  }

  // Inheriting

  /** The giver stopped before it sent: the heir is ours when it says so, and is of this very process. */
  #noteHeirs(events: readonly Event[]): void {
    const { name } = this.#identity
    if (!events.some(({ type, by }) => type === 'transferred' && by === name)) return
    for (const { type, lease, holder } of events)
      if (holder === name && (type === 'granted' || type === 'queued') && this.#beliefs.get(lease) === undefined) this.#heirs.add(lease)
  }

  async #inherit({ lease, resource }: Event): Promise<void> {
    this.#heirs.delete(lease)
    try {
      const { value } = await this.#operations.lessor.read({ kind: 'lease', lease })
      if (value?.status !== 'live' || value.incarnation !== this.#identity.incarnation) return
      const mine = [...this.#beliefs.waiters.values()].find(({ asked }) => asked.command.wants.some(want => want.resource === resource))
      mine?.settle({ lease, resources: value.grants.map(grant => grant.resource), tokens: value.grants.map(({ token }) => token) })
    } catch {
      // Nobody renews it, so it lapses and goes to the next in the queue.
    }
  }

  // Listening

  /** It is in its asker's hands: from here on what others do to it is of interest. */
  hold(belief: HeldLease): void {
    this.unlisten(belief)
    const watch = this.#ends
    if (watch === undefined || !namesUnder(belief).every(name => commonPrefix([watch.prefix, name]) === watch.prefix))
      this.#uncovered.add(belief)
    else if (watch.revision > belief.revision) void this.check(belief) // it may have been told before we knew of the lease
  }

  /** At once, for one who asks to be told. */
  listen(belief: HeldLease): void {
    if (this.#uncovered.has(belief)) this.#widen()
  }

  /** Now and then, so that whoever holds for a moment again and again costs no watch. */
  pulse(held: boolean): void {
    if (held) return this.#uncovered.size > 0 ? this.#widen() : undefined
    if (this.#ends !== undefined) this.#news.unfollow(this.#ends)
    this.#ends = undefined
  }

  /** From the oldest grant that is not covered yet: nothing is missed, or a resync says so. */
  #widen(): void {
    const before = this.#ends
    const names = [...this.#uncovered].flatMap(namesUnder)
    let after = before?.revision ?? Number.POSITIVE_INFINITY
    for (const { revision } of this.#uncovered) after = Math.min(after, revision)
    this.#uncovered.clear()
    this.#ends = this.#news.follow(commonPrefix(before === undefined ? names : [before.prefix, ...names]), after, ENDS)
    if (before !== undefined) this.#news.unfollow(before)
  }

  unlisten(belief: HeldLease): void {
    if (belief.news !== undefined) this.#news.unfollow(belief.news as FeedWatch)
    belief.news = undefined
    this.#uncovered.delete(belief)
  }
}

/** What names nothing can be heard of only under everything. */
function namesUnder({ resources }: HeldLease): readonly string[] {
  return resources.length === 0 ? [''] : resources
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
