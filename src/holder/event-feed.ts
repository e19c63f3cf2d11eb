import { type Clock, pause } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import type { Event, EventType } from '../kernel/event.ts'
import type { Lessor } from '../lessor.ts'
import { LONGEST_RETRY, SHORTEST_RETRY } from './operations.ts'

export interface FeedWatch {
  readonly prefix: string
  readonly types: readonly EventType[] | undefined
  readonly stop: AbortController
  followers: number
  /** Everything up to here has been told. */
  revision: number
}

/** Who is told what the watches bring. */
interface Reader {
  heard(events: readonly Event[], watch: FeedWatch): void
  /** We may not watch there, or not so much at once: no news will come. In how many ms to ask again. */
  denied(watch: FeedWatch): number
}

/** One watch for all who want the same news under a prefix. */
export class EventFeed {
  readonly #lessor: Lessor
  readonly #clock: Clock
  readonly #reader: Reader
  readonly #watches = new Map<string, FeedWatch>()

  constructor(lessor: Lessor, clock: Clock, reader: Reader) {
    this.#lessor = lessor
    this.#clock = clock
    this.#reader = reader
  }

  get size(): number {
    return this.#watches.size
  }

  /** A watch that was there already may have passed `after`: then its `revision` says so. */
  follow(prefix: string, after: number, types?: readonly EventType[]): FeedWatch {
    const there = this.#watches.get(keyOf({ prefix, types }))
    if (there !== undefined) {
      there.followers++
      return there
    }
    const watch = { prefix, types, stop: new AbortController(), followers: 1, revision: after }
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
    const { prefix, types, stop } = watch
    const { signal } = stop
    for (let wait = SHORTEST_RETRY; !signal.aborted && !this.#lessor.signal.aborted; wait = Math.min(wait * 2, LONGEST_RETRY)) {
      let next = wait
      try {
        for await (const events of this.#lessor.watch(prefix, { after: watch.revision, signal, ...(types && { types }) })) {
          if (signal.aborted) return
          watch.revision = events[0]!.revision
          wait = SHORTEST_RETRY
          this.#reader.heard(events, watch)
        }
      } catch (error) {
        // Renewals bring the same news, later: so an outage is borne in silence. A refusal would last.
        if (!signal.aborted && isRefusal(error)) next = this.#reader.denied(watch)
      }
      if (!signal.aborted) await pause(this.#clock, next, signal).catch(() => {})
    }
  }

  stop(): void {
    for (const { stop } of this.#watches.values()) stop.abort()
    this.#watches.clear()
  }
}

/** No name contains the control character. */
function keyOf({ prefix, types }: Pick<FeedWatch, 'prefix' | 'types'>): string {
  return types === undefined ? prefix : `${types.join()}\n${prefix}`
}

function isRefusal(error: unknown): boolean {
  return error instanceof LeaseError && error.code !== 'UNAVAILABLE' && error.code !== 'UNKNOWN'
}
