/** Shares watches: all followers of the same prefix and event types get their events from one watch of the lessor. */
import { BACKOFF, pauseAfter } from '../backoff.ts'
import { type Clock, pause } from '../clock.ts'
import { isRefusal } from '../errors.ts'
import type { Event, EventType } from '../kernel/event.ts'
import type { Lessor } from '../lessor.ts'

export interface FeedWatch {
  readonly prefix: string
  readonly types: readonly EventType[] | undefined
  /** Events may come with the next renewal of this process only. */
  readonly lazy: boolean
  readonly stop: AbortController
  followers: number
  /** Events up to this revision have been delivered. */
  revision: number
}

/** Receives what the watches bring. */
interface FeedReader {
  received(events: readonly Event[], watch: FeedWatch): void
  /** The watch is refused, or the limit of watches is reached: no events will come. Returns after how many ms to retry. */
  denied(watch: FeedWatch): number
}

export class EventFeed {
  readonly #lessor: Lessor
  readonly #clock: Clock
  readonly #reader: FeedReader
  readonly #watches = new Map<string, FeedWatch>()

  constructor(lessor: Lessor, clock: Clock, reader: FeedReader) {
    this.#lessor = lessor
    this.#clock = clock
    this.#reader = reader
  }

  get size(): number {
    return this.#watches.size
  }

  /** An existing watch may have passed `after` already; its `revision` says so. */
  follow(prefix: string, after: number, types?: readonly EventType[], lazy = false): FeedWatch {
    const existing = this.#watches.get(keyOf({ prefix, types, lazy }))
    if (existing !== undefined) {
      existing.followers++
      return existing
    }
    const watch = { prefix, types, lazy, stop: new AbortController(), followers: 1, revision: after }
    this.#watches.set(keyOf(watch), watch)
    void this.#run(watch)
    return watch
  }

  unfollow(watch: FeedWatch): void {
    if (--watch.followers > 0) return
    this.#watches.delete(keyOf(watch))
    watch.stop.abort()
  }

  async #run(watch: FeedWatch): Promise<void> {
    const { prefix, types, lazy, stop } = watch
    const { signal } = stop
    for (let failures = 0; !signal.aborted && !this.#lessor.signal.aborted; failures++) {
      let denied: number | undefined
      try {
        for await (const events of this.#lessor.watch(prefix, { after: watch.revision, signal, lazy, ...(types && { types }) })) {
          if (signal.aborted) return
          watch.revision = events[0]!.revision
          failures = 0
          this.#reader.received(events, watch)
        }
      } catch (error) {
        // Renewals bring the same news later, so an outage needs no report. A refusal would last.
        if (!signal.aborted && isRefusal(error)) denied = this.#reader.denied(watch)
      }
      if (!signal.aborted) await pause(this.#clock, denied ?? pauseAfter(BACKOFF.request, failures), signal).catch(() => {})
    }
  }

  stop(): void {
    for (const { stop } of this.#watches.values()) stop.abort()
    this.#watches.clear()
  }
}

/** Names contain no control characters, so the line break separates safely. */
function keyOf({ prefix, types, lazy }: Pick<FeedWatch, 'prefix' | 'types' | 'lazy'>): string {
  return types === undefined ? prefix : `${types.join()}${lazy ? ' lazy' : ''}\n${prefix}`
}
