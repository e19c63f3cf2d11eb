/** The options of `Lessor.read` and `Lessor.backup`. */
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
