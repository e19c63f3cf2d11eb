import { type Clock, pause } from '../clock.ts'
import type { Event } from '../kernel/event.ts'
import type { Lessor } from '../lessor.ts'
import { LONGEST_RETRY, SHORTEST_RETRY } from './operations.ts'

export interface Watch {
  readonly prefix: string
  readonly stop: AbortController
  followers: number
  /** Everything up to here has been told. */
  revision: number
}

/** One watch for all who want news under a prefix. */
export class News {
  readonly #lessor: Lessor
  readonly #clock: Clock
  readonly #heard: (events: readonly Event[], prefix: string) => void
  readonly #watches = new Map<string, Watch>()

  constructor(lessor: Lessor, clock: Clock, heard: (events: readonly Event[], prefix: string) => void) {
    this.#lessor = lessor
    this.#clock = clock
    this.#heard = heard
  }

  get size(): number {
    return this.#watches.size
  }

  /** A watch that was there already may have passed `after`: then its `revision` says so. */
  follow(prefix: string, after: number): Watch {
    const there = this.#watches.get(prefix)
    if (there !== undefined) {
      there.followers++
      return there
    }
    const watch = { prefix, stop: new AbortController(), followers: 1, revision: after }
    this.#watches.set(prefix, watch)
    void this.#run(watch)
    return watch
  }

  unfollow(watch: Watch): void {
    if (--watch.followers > 0) return
    this.#watches.delete(watch.prefix)
    watch.stop.abort()
  }

  async #run(watch: Watch): Promise<void> {
    const { prefix, stop } = watch
    for (let wait = SHORTEST_RETRY; !stop.signal.aborted && !this.#lessor.signal.aborted; wait = Math.min(wait * 2, LONGEST_RETRY)) {
      try {
        for await (const events of this.#lessor.watch(prefix, { after: watch.revision, signal: stop.signal })) {
          if (stop.signal.aborted) return
          watch.revision = events[0]!.revision
          wait = SHORTEST_RETRY
          this.#heard(events, prefix)
        }
        if (stop.signal.aborted) return
        await pause(this.#clock, wait, stop.signal)
      } catch {
        // Renewals bring the same news, later. So it is tried again, and nobody needs to be told.
        if (!stop.signal.aborted) await pause(this.#clock, wait, stop.signal).catch(() => {})
      }
    }
  }

  stop(): void {
    for (const { stop } of this.#watches.values()) stop.abort()
    this.#watches.clear()
  }
}
