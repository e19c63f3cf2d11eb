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
  'resync',
] as const
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

/** The last events, so that a watch can go on after revision r, or learn that it must begin anew. */
export class RecentEvents {
  readonly #limit: number
  #revisions: Event[][] = []
  #first = 0
  #events = 0
  #forgotten: number

  /** `start`: the revision of the state one begins with; what came before is not known here. */
  constructor(start: number, { limit = 100_000 }: { readonly limit?: number } = {}) {
    this.#forgotten = start
    this.#limit = limit
  }

  push(events: Event[]): void {
    this.#revisions.push(events)
    this.#events += events.length
    while (this.#events > this.#limit && this.#first < this.#revisions.length) {
      const oldest = this.#revisions[this.#first]!
      this.#events -= oldest.length
      this.#forgotten = oldest[0]!.revision
      this.#revisions[this.#first++] = []
    }
    // Drop what was forgotten only now and then: shifting an array for every event would cost its length each time.
    if (this.#first > 1_024 && this.#first * 2 > this.#revisions.length) {
      this.#revisions = this.#revisions.slice(this.#first)
      this.#first = 0
    }
  }

  /** One array per revision after `revision`, oldest first; undefined when some of them are no longer known: resync. */
  after(revision: number): readonly Event[][] | undefined {
    if (revision < this.#forgotten) return undefined
    let low = this.#first
    let high = this.#revisions.length
    while (low < high) {
      const middle = (low + high) >>> 1
      if (this.#revisions[middle]![0]!.revision > revision) high = middle
      else low = middle + 1
    }
    return this.#revisions.slice(low)
  }
}
