/** What others decided, and whom of ours it concerns: grants, recalls, transfers and ends. */
import { LeaseError } from '../errors.ts'
import type { Event } from '../kernel/event.ts'
import type { Belief } from '../lease.ts'
import { type Asked, namesOf } from './asked.ts'
import type { Beliefs } from './beliefs.ts'
import { publish } from './channels.ts'
import type { Identity } from './identity.ts'
import { News, type Watch } from './news.ts'
import { type Operations, PATIENCE } from './operations.ts'

/** Watches kept for leases that are merely held, so that a revoke is heard of at once and not with the next renewal. */
const MOST_WATCHES = 32

/** News of a grant. */
export interface Heard {
  readonly lease: number
  readonly resources: readonly string[]
  readonly tokens: readonly number[]
}

export interface Waiter {
  readonly belief: Belief
  readonly asked: Asked
  position: number
  /** Undefined: the place is lost, ask again. */
  readonly settle: (heard: Heard | undefined) => void
  readonly fail: (error: unknown) => void
}

export class Hearing {
  readonly #beliefs: Beliefs
  readonly #operations: Operations
  readonly #identity: Identity
  readonly #news: News
  /** Leases that a transfer has made for this holder, and that nobody has adopted yet. */
  readonly #heirs = new Set<number>()
  /** Watches that are about to begin. */
  #beginning = 0

  constructor(beliefs: Beliefs, operations: Operations, identity: Identity) {
    this.#beliefs = beliefs
    this.#operations = operations
    this.#identity = identity
    this.#news = new News(operations.lessor, operations.clock, events => this.#heard(events))
  }

  stop(): void {
    this.#news.stop()
  }

  #heard(events: readonly Event[]): void {
    if (events[0]!.type === 'resync') {
      for (const belief of this.#beliefs) if (belief.news !== undefined) void this.check(belief)
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
    for (const waiter of this.#beliefs.waiters.values()) if (waiter.asked.onWait !== undefined) void this.check(waiter.belief)
  }

  #ended(belief: Belief, cause: string, by: string): void {
    // A farewell is under way, or someone asks already: the answer says what became of it.
    if (belief.stage !== 'leaving') this.#beliefs.loseTo(belief, cause, by, belief.remaining())
  }

  // Waiting

  /** Brings the news for which a waiter waits. */
  attend(waiter: Waiter, position: number, revision: number): void {
    const { belief, asked } = waiter
    const { wants, any } = asked.command
    const watch = this.#news.follow(any === undefined ? wants[0]!.resource : commonPrefix(namesOf(asked)), revision)
    belief.news = watch
    if (watch.revision > revision) void this.check(belief)
    this.#placed(waiter, position)
  }

  /** It waits for more than before, since `revision`. */
  attendAnew({ belief, asked }: Waiter, revision: number): void {
    this.unlisten(belief)
    belief.news = this.#news.follow(commonPrefix(namesOf(asked)), revision)
    void this.check(belief) // it may have been granted in that very revision
  }

  /** All of them belong to one revision; those outside what is watched are read. */
  #granted(belief: Belief, events: readonly Event[]): void {
    const waiter = this.#beliefs.waiters.get(belief.id)
    if (waiter === undefined) return
    const { wants, any } = waiter.asked.command
    if (events.length < (any ?? wants.length)) return void this.check(belief)
    const heard = { lease: belief.id, resources: events.map(({ resource }) => resource!), tokens: events.map(({ token }) => token!) }
    waiter.settle(heard)
  }

  /** A renewal, a resync or a late watch says that something happened: see what. The revision it was seen at, if it could be. */
  async check(belief: Belief): Promise<number | undefined> {
    try {
      const asked = this.#operations.lessor.read({ kind: 'lease', lease: belief.id }, { atLeast: belief.revision })
      const { value, revision } = await this.#operations.within(PATIENCE, asked)
      const waiter = this.#beliefs.waiters.get(belief.id)
      if (value === undefined || value.status === 'frozen') void this.#beliefs.gone(belief)
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
    const { asked, belief } = waiter
    const { id: lease } = belief
    const first = waiter.position < 0
    waiter.position = position
    publish('queued', () => ({ ask: asked.ask, lease, resources: namesOf(asked), position }))
    try {
      if (first) asked.onQueued?.(lease)
      asked.onWait?.({ lease, position })
    } catch (error) {
      this.#beliefs.leave(belief)
      waiter.fail(error)
    }
  }

  #withdrawn(belief: Belief, cause: string): void {
    const waiter = this.#beliefs.waiters.get(belief.id)
    if (waiter === undefined) return
    if (cause === 'lapsed') return waiter.settle(undefined)
    this.#beliefs.forget(belief)
    const error = new LeaseError('GONE', `the place in the queue for ${namesOf(waiter.asked).join(', ')} was taken away: ${cause}`, {
      facts: { lease: belief.id, cause },
    })
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

  listen(belief: Belief): void {
    void this.#listen(belief)
  }

  /** From now on, and not from its grant: what happened before is read, and a long history need not be told. */
  async #listen(belief: Belief): Promise<void> {
    if (belief.news !== undefined || belief.listening || belief.resources.length === 0) return
    belief.listening = true
    this.#beginning++
    const revision = await this.check(belief)
    this.#beginning--
    belief.listening = false
    if (revision === undefined || belief.stage === 'ended' || belief.news !== undefined) return
    const watch = this.#news.follow(commonPrefix(belief.resources), revision)
    belief.news = watch
    if (watch.revision > revision) await this.check(belief) // others had it open, and it was past that already
  }

  /** Those that are held for long hear of a revoke at once, as far as a few watches go. */
  listenTo(beliefs: readonly Belief[]): void {
    for (const belief of beliefs) {
      if (this.#news.size + this.#beginning >= MOST_WATCHES) return
      if (belief.stage === 'held' && belief.resources.length === 1) this.listen(belief)
    }
  }

  unlisten(belief: Belief): void {
    if (belief.news !== undefined) this.#news.unfollow(belief.news as Watch)
    belief.news = undefined
  }
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
