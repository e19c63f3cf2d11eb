/** A watch through connections that come and go: what it has told, where it goes on, and a bound on what waits for its reader. */
import type { LeaseError } from '../../errors.ts'
import type { Event, EventType } from '../../kernel/event.ts'

/** More revisions than this are not fetched before some were taken; below the second, they are again. */
const FULL = 1_024
const LOW = 128

export class Subscription {
  readonly prefix: string
  readonly types: readonly EventType[] | undefined
  /** Everything up to here has been told or waits here; undefined: it has not begun. */
  after: number | undefined
  /** Its number, another one for each time it was begun. */
  number = 0
  /** As `number` while the present connection carries it; else 0. */
  wire = 0
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

  told(events: readonly Event[]): void {
    this.after = events[0]!.revision
    this.#waiting.push(events)
    this.#wake()
  }

  /** What was told is not what happened: begin anew from this revision. */
  resync(revision: number, at: number): void {
    if (this.after === undefined) return
    this.#waiting.length = 0
    this.told([{ revision, type: 'resync', lease: 0, at }])
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
