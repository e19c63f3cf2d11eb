/**
 * Tells when another process may have appended to the file: by the file events of the operating system if they arrive, by polling if they do not, and by a slow
 * check in any case. Correctness depends on none of them, only latency does.
 *
 * Every append writes PATH-head after its record is durable, so an event of that file comes when there is something to read. Not every file system has events,
 * so they are trusted only after a test: changing the times of PATH-head is an event, too. A check that finds a change without an event ends that trust.
 */
import { utimesSync, watch } from 'node:fs'
import type { Clock } from '../../clock.ts'

/** Poll intervals without trusted events, in ms: while other processes append, and when the log has not changed for `IDLE_AFTER`. */
const [POLL_BUSY, POLL_IDLE] = [8, 20]
const IDLE_AFTER = 1_000
/** The log is checked this often although events are trusted. */
const CHECK = 1_000
/** The process that appended may not have written PATH-head yet. */
const EVENT_WITHIN = 100
/** Events that do not arrive are tested again after this time. */
const TEST_AGAIN = 60_000

/** Watches one file until it is closed. */
export type WatchFile = (path: string, changed: () => void, failed: () => void) => { close(): void }

export interface LogChangesOptions {
  readonly clock: Clock
  /** PATH-head. */
  readonly path: string
  /** Returns whether the log may have changed since the last call. Cheap. */
  readonly moved: () => boolean
  /** Called when the log has changed. */
  readonly changed: () => void
  /** `moved` has thrown. */
  readonly failed: (error: unknown) => void
  /** Returns whether a read waits: otherwise nothing is watched. */
  readonly isNeeded: () => boolean
  readonly watchFile?: WatchFile
  /** Causes an event. */
  readonly touch?: (path: string, wall: number) => void
}

export class LogChanges {
  readonly #options: Required<LogChangesOptions>
  #watcher: { close(): void } | undefined
  /** File events arrive here. */
  #trusted = false
  #testAt = Number.NEGATIVE_INFINITY
  #cancel: (() => void) | undefined
  #lastChange: number
  #events = 0
  /** The events after which the log was looked at. */
  #seen = 0
  #looking = false

  constructor(options: LogChangesOptions) {
    this.#options = { watchFile, touch: touchFile, ...options }
    this.#lastChange = options.clock.now()
  }

  /** A read waits from now on. */
  begin(): void {
    if (this.#cancel !== undefined) return
    if (this.#watcher === undefined && this.#options.clock.now() >= this.#testAt) this.#test()
    this.#arm()
  }

  close(): void {
    this.#cancel?.()
    this.#cancel = undefined
    this.#unwatch()
  }

  #arm(): void {
    const { clock } = this.#options
    const poll = clock.now() - this.#lastChange > IDLE_AFTER ? POLL_IDLE : POLL_BUSY
    this.#cancel?.()
    this.#cancel = clock.after(this.#trusted ? CHECK : poll, () => this.#check())
  }

  #check(): void {
    const { clock, isNeeded } = this.#options
    this.#cancel = undefined
    if (!isNeeded()) {
      // Reads follow each other closely: none has come for a whole interval.
      this.#unwatch()
      this.#testAt = Number.NEGATIVE_INFINITY
      return
    }
    const isMissed = this.#look() && this.#trusted && this.#events === this.#seen
    if (isMissed) return this.#expectEvent()
    if (!this.#trusted && clock.now() >= this.#testAt) this.#test()
    this.#arm()
  }

  /** The check has found a change before its event came. Without that event, no other can be relied on. */
  #expectEvent(): void {
    const before = this.#events
    this.#cancel = this.#options.clock.after(EVENT_WITHIN, () => {
      if (this.#events === before) this.#unwatch()
      this.#arm()
    })
  }

  /** Returns whether the log has changed. */
  #look(): boolean {
    const { clock, moved, changed, failed } = this.#options
    try {
      if (!moved()) return false
    } catch (error) {
      failed(error)
      return false
    }
    this.#lastChange = clock.now()
    changed()
    return true
  }

  #test(): void {
    const { clock, path, watchFile, touch } = this.#options
    this.#unwatch()
    this.#testAt = clock.now() + TEST_AGAIN
    try {
      this.#watcher = watchFile(
        path,
        () => this.#event(),
        () => this.#unwatch(),
      )
      touch(path, clock.wall())
    } catch {
      this.#unwatch() // this system has no events, or too many processes want them
    }
  }

  #event(): void {
    if (this.#watcher === undefined) return
    this.#events++
    if (!this.#trusted && this.#cancel !== undefined) {
      this.#trusted = true
      this.#arm()
    }
    if (this.#looking) return
    // One look for all events of this turn.
    this.#looking = true
    this.#options.clock.soon(() => {
      this.#looking = false
      this.#seen = this.#events
      if (this.#watcher !== undefined && this.#options.isNeeded()) this.#look()
    })
  }

  #unwatch(): void {
    this.#watcher?.close()
    this.#watcher = undefined
    this.#trusted = false
  }
}

/** File events of the operating system. They do not keep the process alive. */
export function watchFile(path: string, changed: () => void, failed: () => void): { close(): void } {
  const watcher = watch(path, { persistent: false })
  watcher.on('change', changed)
  watcher.on('error', failed)
  return watcher
}

function touchFile(path: string, wall: number): void {
  utimesSync(path, wall / 1_000, wall / 1_000)
}
