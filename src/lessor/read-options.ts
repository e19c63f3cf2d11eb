/** The options of `Lessor.read`, `Lessor.watch` and `Lessor.backup`. */
import type { EventType } from '../kernel/event.ts'

export interface BackupOptions {
  /**
   * Streams the state, then every record of the log from then on, for a move to another log (format: src/replica/record-tail.ts). Ends by `signal`, or with
   * an error when the lessor can stream no more. @default false
   */
  readonly follow?: boolean
  /** Stops the stream. */
  readonly signal?: AbortSignal
}

export interface ReadOptions {
  /** Reads at the end of the log, not at what happens to be applied. @default false */
  readonly consistent?: boolean
  /** Reads at this revision or a later one. Throws `UNAVAILABLE` if the log has not reached it. @default 0 */
  readonly atLeast?: number
  /** Stops waiting for the answer. */
  readonly signal?: AbortSignal
}

export interface WatchOptions {
  /** Delivers all events after this revision, without a gap. @default the present revision, as far as this process has read the log: up to a minute ago if it only holds leases */
  readonly after?: number
  /** Delivers only events of these types, and `resync`. @default all types */
  readonly types?: readonly EventType[]
  /** May deliver the events of several revisions together. For watchers of everything, which have nothing to do for each revision. @default false */
  readonly grouped?: boolean
  /** Events may come late: a process that opened a shared store itself, and only holds leases, need not follow the log for this watch. @default false */
  readonly lazy?: boolean
  /** Ends the watch. */
  readonly signal: AbortSignal
}
