/** The recent events of a replica, for watches that resume. */
import { EVENT_TYPES, type Event, type EventType, LOST } from '../kernel/event.ts'

/** Returns whether a watch wants an event. */
export type EventFilter = (event: Pick<Event, 'type' | 'lease' | 'resource' | 'key'>) => boolean

/** The most that one answer carries; a watch that is further behind asks again. A watcher that never reads holds one answer in memory. */
const MAX_REVISIONS = 128
const MAX_ANSWERED = 256 * 1_024
/** The most bytes that the texts of all events take. Otherwise one key that rewrites one large entry would fill the memory of every replica. */
const MAX_BYTES = 64 * 1_024 * 1_024
const FIRST_PLACES = 64

/**
 * The last events, so that a watch can resume after a revision, or learn that it must resync.
 *
 * A ring of places that are overwritten, with a column for each property: there may be a hundred thousand events a second, and keeping an object for each made
 * the garbage collector the most expensive part of a grant.
 */
export class RecentEvents {
  readonly #limit: number
  readonly #most: number
  #ring = new Columns(0)
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
      // Two bytes for each UTF-16 unit.
      const bytes = 2 * (names + (value?.length ?? 0) + (cause?.length ?? 0) + (by?.length ?? 0))
      while (this.#count === this.#limit || (this.#count > 0 && this.#bytes + bytes > this.#most)) this.#forget()
      if (this.#count === this.#ring.size) this.#grow()
      this.#ring.write(this.#place(this.#count), event, bytes)
      this.#count++
      this.#bytes += bytes
    }
  }

  #forget(): void {
    const place = this.#place(0)
    // The rest of its revision is no longer whole: forget all of it.
    this.#forgotten = Math.max(this.#forgotten, this.#ring.revision(place))
    this.#bytes -= this.#ring.bytes(place)
    this.#ring.clear(place)
    this.#oldest = (this.#oldest + 1) % this.#ring.size
    this.#count--
  }

  #grow(): void {
    const ring = new Columns(Math.min(this.#limit, Math.max(FIRST_PLACES, 2 * this.#ring.size)))
    for (let i = 0; i < this.#count; i++) ring.write(i, this.#ring.read(this.#place(i)), this.#ring.bytes(this.#place(i)))
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
      if (this.#ring.revision(this.#place(middle)) > revision) high = middle
      else low = middle + 1
    }
    const revisions: Event[][] = []
    let last: Event[] = []
    let upTo = revision
    let bytes = 0
    const ring = this.#ring
    for (let i = low; i < this.#count; i++) {
      const place = this.#place(i)
      const at = ring.revision(place)
      if (at !== upTo && (revisions.length === MAX_REVISIONS || bytes >= MAX_ANSWERED)) break
      upTo = at
      if (wanted !== undefined && !wanted(ring.filtered(place))) continue
      bytes += ring.bytes(place)
      if (last.length > 0 && last[0]!.revision === upTo) last.push(ring.read(place))
      else {
        last = [ring.read(place)]
        revisions.push(last)
      }
    }
    return { revisions, upTo }
  }

  #place(i: number): number {
    return (this.#oldest + i) % this.#ring.size
  }
}

const TEXTS = ['holder', 'resource', 'key', 'value', 'cause', 'by'] as const
/** Where the numbers of an event are, in the column of numbers. */
const [REVISION, LEASE, TOKEN, AT, BYTES, NUMBERS] = [0, 1, 2, 3, 4, 5]

/** Columns for `size` events. Overwriting a place allocates nothing, and the collector finds a few arrays instead of an object for each event. */
class Columns {
  readonly size: number
  readonly #types: Uint8Array
  readonly #numbers: Float64Array
  readonly #texts: (string | undefined)[]
  /** Shown to filters, and overwritten with each event. */
  readonly #filtered: { type: EventType; lease: number; resource: string | undefined; key: string | undefined }

  constructor(size: number) {
    this.size = size
    this.#types = new Uint8Array(size)
    this.#numbers = new Float64Array(size * NUMBERS)
    this.#texts = new Array<string | undefined>(size * TEXTS.length).fill(undefined)
    this.#filtered = { type: 'resync', lease: 0, resource: undefined, key: undefined }
  }

  revision(place: number): number {
    return this.#numbers[place * NUMBERS + REVISION]!
  }

  bytes(place: number): number {
    return this.#numbers[place * NUMBERS + BYTES]!
  }

  /** Valid until the next call. */
  filtered(place: number): Pick<Event, 'type' | 'lease' | 'resource' | 'key'> {
    const filtered = this.#filtered
    filtered.type = EVENT_TYPES[this.#types[place]!]!
    filtered.lease = this.#numbers[place * NUMBERS + LEASE]!
    filtered.resource = this.#texts[place * TEXTS.length + 1]
    filtered.key = this.#texts[place * TEXTS.length + 2]
    return filtered
  }

  /** A token of 0 stands for none. */
  write(place: number, event: Event, bytes: number): void {
    this.#types[place] = EVENT_TYPES.indexOf(event.type)
    const number = place * NUMBERS
    this.#numbers[number + REVISION] = event.revision
    this.#numbers[number + LEASE] = event.lease
    this.#numbers[number + TOKEN] = event.token ?? 0
    this.#numbers[number + AT] = event.at
    this.#numbers[number + BYTES] = bytes
    const text = place * TEXTS.length
    this.#texts[text] = event.holder
    this.#texts[text + 1] = event.resource
    this.#texts[text + 2] = event.key
    this.#texts[text + 3] = event.value
    this.#texts[text + 4] = event.cause
    this.#texts[text + 5] = event.by
  }

  /** Releases the texts. */
  clear(place: number): void {
    this.#texts.fill(undefined, place * TEXTS.length, (place + 1) * TEXTS.length)
  }

  read(place: number): Event {
    const number = place * NUMBERS
    const text = place * TEXTS.length
    const token = this.#numbers[number + TOKEN]!
    return {
      revision: this.#numbers[number + REVISION]!,
      type: EVENT_TYPES[this.#types[place]!]!,
      lease: this.#numbers[number + LEASE]!,
      holder: this.#texts[text],
      resource: this.#texts[text + 1],
      token: token === 0 ? undefined : token,
      key: this.#texts[text + 2],
      value: this.#texts[text + 3],
      cause: this.#texts[text + 4],
      by: this.#texts[text + 5],
      at: this.#numbers[number + AT]!,
    }
  }
}
