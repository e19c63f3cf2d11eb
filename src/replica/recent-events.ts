/** The recent events of a replica, for watches that resume. */
import { type Event, type EventType, LOST } from '../kernel/event.ts'

/** Returns whether a watch wants an event. */
export type EventFilter = (event: Pick<Event, 'type' | 'lease' | 'resource' | 'key'>) => boolean

/** The most that one answer carries; a watch that is further behind asks again. A watcher that never reads holds one answer in memory. */
const MAX_REVISIONS = 128
const MAX_ANSWERED = 256 * 1_024
/** The most bytes that the texts of all events take. Otherwise one key that rewrites one large entry would fill the memory of every replica. */
const MAX_BYTES = 64 * 1_024 * 1_024
const FIRST_SLOTS = 64

/**
 * The last events, so that a watch can resume after a revision, or learn that it must resync.
 *
 * A ring of slots that are overwritten: there may be a hundred thousand events a second, and keeping an object for each made the garbage collector the most
 * expensive part of a grant.
 */
export class RecentEvents {
  readonly #limit: number
  readonly #most: number
  #ring: (KeptEvent | undefined)[] = []
  #oldest = 0
  #count = 0
  #bytes = 0
  #forgotten: number

  /** `start`: the revision of the first state; earlier events are not known. Keeps at most `limit` events and `bytes` of their texts. */
  constructor(start: number, { limit = 100_000, bytes = MAX_BYTES }: { readonly limit?: number; readonly bytes?: number } = {}) {
    this.#forgotten = start
    this.#limit = limit
    this.#most = bytes
  }

  /** The size of the texts of the kept events, at two bytes for each UTF-16 unit. */
  get bytes(): number {
    return this.#bytes
  }

  /** Adds the events of one revision, or of several. */
  push(events: readonly Event[]): void {
    for (const event of events) {
      // A watcher may have seen events that are lost now: every watch must resync.
      if (event.type === 'generation' && event.cause === LOST) this.#forgotten = Math.max(this.#forgotten, event.revision)
      // Leases have arrived from another log: no event tells how.
      if (event.type === 'moved' && event.cause === 'arrived') this.#forgotten = Math.max(this.#forgotten, event.revision - 1)
      const { holder, resource, key, value, cause, by } = event
      const names = (holder?.length ?? 0) + (resource?.length ?? 0) + (key?.length ?? 0)
      const bytes = 2 * (names + (value?.length ?? 0) + (cause?.length ?? 0) + (by?.length ?? 0))
      while (this.#count === this.#limit || (this.#count > 0 && this.#bytes + bytes > this.#most)) this.#forget()
      if (this.#count === this.#ring.length) this.#grow()
      const place = (this.#oldest + this.#count) % this.#ring.length
      this.#ring[place] ??= new KeptEvent()
      this.#ring[place].write(event, bytes)
      this.#count++
      this.#bytes += bytes
    }
  }

  #forget(): void {
    const slot = this.#at(0)
    // The rest of its revision is no longer whole: forget all of it.
    this.#forgotten = Math.max(this.#forgotten, slot.revision)
    this.#bytes -= slot.bytes
    slot.clear()
    this.#oldest = (this.#oldest + 1) % this.#ring.length
    this.#count--
  }

  #grow(): void {
    const ring = new Array<KeptEvent | undefined>(Math.min(this.#limit, Math.max(FIRST_SLOTS, 2 * this.#ring.length)))
    for (let i = 0; i < this.#count; i++) ring[i] = this.#at(i)
    this.#ring = ring
    this.#oldest = 0
  }

  /**
   * One array per revision after `revision`, oldest first, of the events that pass `wanted`; undefined when some are no longer known. `upTo` is the last
   * revision that the answer covers. Events that are not wanted are never allocated: most watches want few of them.
   */
  after(revision: number, wanted?: EventFilter): { readonly revisions: readonly Event[][]; readonly upTo: number } | undefined {
    if (revision < this.#forgotten) return undefined
    let low = 0
    let high = this.#count
    while (low < high) {
      const middle = (low + high) >>> 1
      if (this.#at(middle).revision > revision) high = middle
      else low = middle + 1
    }
    const revisions: Event[][] = []
    let last: Event[] = []
    let upTo = revision
    let bytes = 0
    for (let i = low; i < this.#count; i++) {
      const kept = this.#at(i)
      if (kept.revision !== upTo && (revisions.length === MAX_REVISIONS || bytes >= MAX_ANSWERED)) break
      upTo = kept.revision
      if (wanted !== undefined && !wanted(kept)) continue
      bytes += kept.bytes
      if (last.length > 0 && last[0]!.revision === upTo) last.push(kept.read())
      else {
        last = [kept.read()]
        revisions.push(last)
      }
    }
    return { revisions, upTo }
  }

  #at(i: number): KeptEvent {
    return this.#ring[(this.#oldest + i) % this.#ring.length]!
  }
}

/** A slot of the ring. Numbers stay numbers (0 for none), so that overwriting them allocates nothing. */
class KeptEvent {
  revision = 0
  lease = 0
  token = 0
  at = 0
  type: EventType = 'resync'
  holder: string | undefined
  resource: string | undefined
  key: string | undefined
  value: string | undefined
  cause: string | undefined
  by: string | undefined
  bytes = 0

  write(event: Event, bytes: number): void {
    this.bytes = bytes
    this.revision = event.revision
    this.lease = event.lease
    this.token = event.token ?? 0
    this.at = event.at
    this.type = event.type
    this.holder = event.holder
    this.resource = event.resource
    this.key = event.key
    this.value = event.value
    this.cause = event.cause
    this.by = event.by
  }

  /** Releases its texts. */
  clear(): void {
    this.bytes = 0
    this.holder = this.resource = this.key = this.value = this.cause = this.by = undefined
  }

  read(): Event {
    const { revision, type, lease, holder, resource, token, key, value, cause, by, at } = this
    return { revision, type, lease, holder, resource, token: token === 0 ? undefined : token, key, value, cause, by, at }
  }
}
