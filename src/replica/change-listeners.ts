/**
 * The watches of a replica that wait for records. They are found by the names that events have: two thousand watches of other names cost an event nothing.
 */
import type { Event, EventType } from '../kernel/event.ts'
import type { EventFilter } from './recent-events.ts'

/** After these a watch ends or begins anew, whatever it wants. */
const CONCERNING_ALL: ReadonlySet<EventType> = new Set(['moved', 'generation'])

/** Waits for records that a watch could see. */
export class ChangeListener implements Disposable {
  /** The watch sees this name and those under it; empty: all. */
  readonly root: string
  readonly #wanted: EventFilter | undefined
  /** Of events that could be wanted; undefined: all of them. */
  readonly types: ReadonlySet<EventType> | undefined
  readonly #stop: () => void
  /** Only this class changes it. */
  isWaiting = false
  #wake = () => {}
  /** The last revision whose events the watch need not look at, because it waited and wanted none of them. */
  seen = 0

  constructor(root: string, wanted: EventFilter | undefined, types: ReadonlySet<EventType> | undefined, stop: () => void) {
    this.root = root
    this.#wanted = wanted
    this.types = types
    this.#stop = stop
  }

  /** Resolves with the next change after this call that the watch wants, or when the watch ends. */
  next(): Promise<void> {
    return new Promise(resolve => {
      this.isWaiting = true
      this.#wake = resolve
    })
  }

  /** The next record has caused this event, after `revision`. Called while it waits. */
  offer(event: Event, revision: number): void {
    if (this.#wanted !== undefined && !CONCERNING_ALL.has(event.type) && !this.#wanted(event)) return
    this.seen = revision
    this.wake()
  }

  wake(): void {
    this.isWaiting = false
    this.#wake()
  }

  [Symbol.dispose](): void {
    this.#stop()
  }
}

export class ChangeListeners {
  readonly #byRoot = new Map<string, Set<ChangeListener>>()

  add(listener: ChangeListener): void {
    const there = this.#byRoot.get(listener.root)
    if (there === undefined) this.#byRoot.set(listener.root, new Set([listener]))
    else there.add(listener)
  }

  delete(listener: ChangeListener): void {
    const there = this.#byRoot.get(listener.root)
    there?.delete(listener)
    if (there?.size === 0) this.#byRoot.delete(listener.root)
  }

  /** A record has caused these events, after `revision`. A watch that does not wait reads them by itself. */
  offer(events: readonly Event[], revision: number): void {
    if (this.#byRoot.size === 0) return
    for (const event of events) {
      if (CONCERNING_ALL.has(event.type)) {
        for (const there of this.#byRoot.values()) for (const listener of there) if (listener.isWaiting) listener.offer(event, revision)
        continue
      }
      const name = event.resource ?? event.key ?? ''
      // First those of all names, then those of this name, and of each prefix of it.
      let end = 0
      do {
        const there = this.#byRoot.get(name.slice(0, end))
        if (there !== undefined)
          for (const listener of there) if (listener.isWaiting && listener.types?.has(event.type) !== false) listener.offer(event, revision)
        end = end === 0 ? name.length : name.lastIndexOf('/', end - 1)
      } while (end > 0)
    }
  }

  wake(): void {
    for (const there of this.#byRoot.values()) for (const listener of there) listener.wake()
  }
}
