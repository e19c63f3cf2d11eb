/** One watch that outlives its connections: where it continues, and the events that wait for its reader. */
import type { LeaseError } from '../../errors.ts'
import type { Event, EventType } from '../../kernel/event.ts'

/** Stop the watch on the server when this many revisions wait for the reader. Start it again when only `LOW` are left. */
const FULL = 1_024
const LOW = 128

export class Subscription {
  readonly prefix: string
  readonly types: readonly EventType[] | undefined
  /** Events up to this revision were delivered or wait here; undefined until the watch has begun. */
  after: number | undefined
  /** A new one each time the watch is begun. */
  id = 0
  /** Equals `id` while the current connection carries the watch; otherwise 0. */
  wireId = 0
  readonly #waiting: (readonly Event[])[] = []
  #error: LeaseError | undefined
  #wake = () => {}

  constructor(prefix: string, after: number | undefined, types: readonly EventType[] | undefined) {
    this.prefix = prefix
    this.after = after
    this.types = types
  }

  get full(): boolean {
    return this.#waiting.length >= FULL
  }

  get low(): boolean {
    return this.#waiting.length <= LOW
  }

  begun(revision: number): void {
    this.after ??= revision
  }

  /** All events of one revision. */
  push(events: readonly Event[]): void {
    this.after = events[0]!.revision
    this.#waiting.push(events)
    this.#wake()
  }

  /** The log went back: what was delivered did not happen. The reader must start over from `revision`. */
  resync(revision: number, at: number): void {
    if (this.after === undefined) return
    this.#waiting.length = 0
    this.push([{ revision, type: 'resync', lease: 0, at }])
  }

  fail(error: LeaseError): void {
    this.#error ??= error
    this.#wake()
  }

  /** The events of the next revision; undefined when the signal has fired. Leaves no listener behind. */
  async next(signal: AbortSignal): Promise<readonly Event[] | undefined> {
    while (!signal.aborted) {
      const events = this.#waiting.shift()
      if (events !== undefined) return events
      if (this.#error !== undefined) throw this.#error
      await new Promise<void>(resolve => {
        this.#wake = () => {
          signal.removeEventListener('abort', this.#wake)
          this.#wake = () => {}
          resolve()
        }
        signal.addEventListener('abort', this.#wake, { once: true })
      })
    }
    return undefined
  }
}
