/**
 * The lower contract: an ordered log of batches with snapshots.
 *
 * Not promised: that an append whose answer was lost did not happen; that `age` is known; that a log cannot lose its tail. What a store
 * weakens, its profile says. A store carries entries and never judges what they mean: the order is the engine's, the meaning is decided
 * by whoever applies it.
 */

/** Where, and which entry it is: a log that lost its tail and grew again has other nonces at the same indexes. */
export interface Position {
  readonly index: number
  readonly nonce: bigint
}

/** Before the first entry of any log. */
export const START: Position = { index: 0, nonce: 0n }

export interface LogRecord {
  readonly position: Position
  readonly bytes: Uint8Array
  /** At least so many ms have passed since it was appended; 0 where the store cannot say. Never an overestimate. */
  readonly age: number
}

export interface Snapshot {
  /** It contains everything up to and including this entry. */
  readonly position: Position
  /** As an entry's: at least so many ms since it was taken. */
  readonly age: number
  readonly bytes: AsyncIterable<Uint8Array>
}

export interface Opened {
  readonly snapshot?: Snapshot
  readonly head: Position
}

export type Appended =
  /** It stands at `position`; `missed` is everything between `after` and it, in order. */
  | { readonly kind: 'appended'; readonly position: Position; readonly missed: readonly LogRecord[] }
  /** It stands at `position`, but more was missed than one answer carries: read on from `after`. */
  | { readonly kind: 'behind'; readonly position: Position }
  | NotThere

export type Read =
  /** What follows `after`, in order, as much as one answer carries. Empty: `after` was the end of the log when this was asked. */
  { readonly kind: 'entries'; readonly entries: readonly LogRecord[] } | NotThere

/** Nothing was appended or read. */
export type NotThere =
  /** Entries after `after` are no longer kept: begin from the snapshot. */
  | { readonly kind: 'trimmed' }
  /** The log does not contain the entry one stands on: it lost or changed its tail. Nothing may be decided on it. */
  | { readonly kind: 'diverged'; readonly reason: string }
  /** Another owns this log now, or this one never did. */
  | { readonly kind: 'disowned'; readonly by: string }

/** What a store promises, as data. `notes` say in words what weakens it. */
export interface Profile {
  readonly store: string
  /** An acknowledged append survives a crash of the process and of the machine. */
  readonly durable: boolean
  /** An acknowledged append survives the loss of a machine. */
  readonly failover: boolean
  /** Readers are told of new entries; else they poll. */
  readonly push: boolean
  /** Several replicas may append; else exactly one owns it. */
  readonly shared: boolean
  /** `age` is known, so that short-lived replicas can still see a lease lapse. */
  readonly ages: boolean
  readonly notes: readonly string[]
}

/**
 * Calls may overlap, except that one replica has one append under way. A call that cannot be carried out throws a LeaseError:
 * `UNAVAILABLE` when certainly nothing was done, `UNKNOWN` when it may have been.
 */
export interface Store extends AsyncDisposable {
  readonly profile: Profile

  /**
   * Aborted when it can never answer again though nobody closed it. An owner that renews in memory would not notice by itself that the log
   * has become somebody else's. Left out: each call tells.
   */
  readonly ended?: AbortSignal | undefined

  /** Called once, first. Finds the newest complete snapshot and the end of the log, and takes ownership where that was asked for. */
  open(): Promise<Opened>

  /**
   * Puts `entry` at the end, durably as the profile says, after checking in the same transaction that the log contains `after`.
   * Sending the same entry again after a lost answer is harmless: whoever applies the log applies it once.
   */
  append(entry: Uint8Array, after: Position): Promise<Appended>

  /** What follows `after`. With `wait`, answers only when there is something, or rejects with the signal's reason. */
  read(after: Position, options?: { readonly wait?: AbortSignal }): Promise<Read>

  /**
   * Keeps a snapshot and may forget entries up to the one before it. `older`: a newer one is there already, nothing was done.
   * Until it is complete it does not exist: a crash in the middle leaves the last one in force.
   */
  snapshot(at: Position, bytes: AsyncIterable<Uint8Array>): Promise<'kept' | 'older'>

  /** The newest complete snapshot, for a reader that was `trimmed`. */
  newest(): Promise<Snapshot | undefined>
}
