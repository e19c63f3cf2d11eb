/** What watchers are told. All events of one revision belong together: nobody ever sees some of them. */

export const EVENT_TYPES = [
  'granted',
  'queued',
  'withdrawn',
  'released',
  'lapsed',
  'revoked',
  'transferred',
  'recalled',
  'suspected',
  'recovered',
  'frozen',
  'thawed',
  'put',
  'deleted',
  'policy',
  'key',
  'generation',
  'moved',
  'resync',
  'suppressed',
  'reused',
  'preserving',
  'relaxed',
] as const
/** The cause of a `generation` that begins because entries were lost; another ends its quiet. */
export const LOST = 'the log lost entries'
/** The cause of a `withdrawn` of one who waited for any of several and was granted others: only its place in this queue is gone. */
export const ELSEWHERE = 'granted elsewhere'
export type EventType = (typeof EVENT_TYPES)[number]

export interface Event {
  readonly revision: number
  readonly type: EventType
  /** 0 where none is concerned. */
  readonly lease: number
  readonly holder?: string | undefined
  readonly resource?: string | undefined
  readonly token?: number | undefined
  readonly key?: string | undefined
  readonly value?: string | undefined
  /** Why it ended or was told: an operator's name, `parent`, `break`, `stolen`, `cap`, `hold`, `lapsed`, `forbidden`, … */
  readonly cause?: string | undefined
  readonly by?: string | undefined
  /** Wall time that the batch carried, for people. */
  readonly at: number
}

/** Whether a watch wants it. */
export type Wanted = (event: Pick<Event, 'type' | 'lease' | 'resource' | 'key'>) => boolean

/** Answers carry at most so many revisions; whoever is further behind asks again from where that ended. One who never reads keeps an answer. */
const MOST_REVISIONS = 128

/**
 * The last events, so that a watch can go on after revision r, or learn that it must begin anew.
 *
 * A ring of records that are written over: events come by the hundred thousand a second, and keeping each of them as an object of its own
 * for a while made the garbage collector the dearest part of a grant.
 */
export class RecentEvents {
  readonly #limit: number
  readonly #ring: Kept[] = []
  /** The oldest, once the ring is full. */
  #oldest = 0
  #forgotten: number

  /** `start`: the revision of the state one begins with; what came before is not known here. */
  constructor(start: number, { limit = 100_000 }: { readonly limit?: number } = {}) {
    this.#forgotten = start
    this.#limit = limit
  }

  /** All events of one revision: those from `first` on. */
  push(events: readonly Event[], first = 0): void {
    for (let i = first; i < events.length; i++) {
      const event = events[i]!
      // What was seen before may be among what was lost: everyone begins anew.
      if (event.type === 'generation' && event.cause === LOST) this.#forgotten = Math.max(this.#forgotten, event.revision)
      if (this.#ring.length < this.#limit) {
        this.#ring.push(new Kept(event))
        continue
      }
      const slot = this.#ring[this.#oldest]!
      // What is left of its revision is no longer whole: all of it is forgotten.
      this.#forgotten = Math.max(this.#forgotten, slot.revision)
      slot.write(event)
      this.#oldest = (this.#oldest + 1) % this.#limit
    }
  }

  /**
   * One array per revision after `revision`, oldest first, of what `wanted` lets pass; undefined when some are no longer known: resync. `upTo`
   * is how far this answer goes. What is not wanted is never made an event of: most watches want little of what passes.
   */
  after(revision: number, wanted?: Wanted): { readonly revisions: readonly Event[][]; readonly upTo: number } | undefined {
    if (revision < this.#forgotten) return undefined
    let low = 0
    let high = this.#ring.length
    while (low < high) {
      const middle = (low + high) >>> 1
      if (this.#at(middle).revision > revision) high = middle
      else low = middle + 1
    }
    const revisions: Event[][] = []
    let last: Event[] = []
    let upTo = revision
    for (let i = low; i < this.#ring.length; i++) {
      const kept = this.#at(i)
      if (kept.revision !== upTo && revisions.length === MOST_REVISIONS) break
      upTo = kept.revision
      if (wanted !== undefined && !wanted(kept)) continue
      if (last.length > 0 && last[0]!.revision === upTo) last.push(kept.read())
      else {
        last = [kept.read()]
        revisions.push(last)
      }
    }
    return { revisions, upTo }
  }

  #at(i: number): Kept {
    return this.#ring[(this.#oldest + i) % this.#ring.length]!
  }
}

/** An event as the ring keeps it. Numbers stay numbers (0 for none), so that writing over them makes no garbage. */
class Kept {
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

  constructor(event: Event) {
    this.write(event)
  }

  write(event: Event): void {
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

  read(): Event {
    const { revision, type, lease, holder, resource, token, key, value, cause, by, at } = this
    return { revision, type, lease, holder, resource, token: token === 0 ? undefined : token, key, value, cause, by, at }
  }
}
