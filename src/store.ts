/**
 * The contract of a store: an ordered log of records with snapshots, shared by replicas.
 *
 * A store orders and keeps records. It never interprets them: replicas read the log and apply the rules of leases to it, so a store needs
 * no clock that others trust and no knowledge of leases. The suite in `leasehold/testing` (`storeSuite`) is this contract as tests.
 *
 * Every store guarantees:
 * - One order. All stores on one log see the same records at the same indexes, without gaps. The first index is 1.
 * - A check with each append. In one atomic step, `append` verifies that the log still contains the record at `after`, and adds the new one.
 * - A changed log is reported. Each record gets a random nonce. A log that lost its tail has other nonces at the same indexes, and every
 *   call with a position from before the loss answers `diverged`.
 * - Honest failures. `UNAVAILABLE` means that nothing was done. Anything less certain is `UNKNOWN`.
 *
 * A store does not guarantee:
 * - that an append failed because its answer was lost: the record may be in the log, also twice if it was sent again;
 * - that the age of a record is known (`age` may be 0);
 * - that acknowledged records survive a crash or a failover. The `profile` states what a store guarantees of this.
 */

/// <reference lib="esnext.disposable" preserve="true" />

/** A store throws this, see `Store`. */
export { type ErrorCode, LeaseError } from './errors.ts'

/** A place in the log: the index of a record and the nonce that identifies the record at that index. */
export interface Position {
  /** 1 for the first record, then one more for each record. */
  readonly index: number
  /** 64 random bits, unsigned, drawn for each append. A log that lost its tail and grew again has other nonces at the same indexes. */
  readonly nonce: bigint
}

/** The position before the first record of any log. */
export const START: Position = { index: 0, nonce: 0n }

/** One record of the log. */
export interface LogRecord {
  readonly position: Position
  readonly bytes: Uint8Array
  /** A lower bound, in milliseconds, of the time since the record was appended. Never an overestimate. 0 if the store cannot know. */
  readonly age: number
  /**
   * About how long ago the record was appended, in milliseconds, by the engine's own clock, which may have been set. No lease ends by it: it tells whether it is
   * worth waiting for that. Left out, the wall clock of the process that wrote the record is used.
   */
  readonly advisoryAge?: number
}

/** A replica's state at a position, from which other replicas start instead of at the first record. */
export interface Snapshot {
  /** The snapshot contains the effect of every record up to and including this one. */
  readonly position: Position
  /** A lower bound, in milliseconds, of the time since the snapshot was taken. 0 if the store cannot know. */
  readonly age: number
  /** May be read later and in part. Throws `UNAVAILABLE` if newer snapshots have replaced it meanwhile. */
  readonly bytes: AsyncIterable<Uint8Array>
}

export interface Opened {
  /** The newest complete snapshot, if there is one. */
  readonly snapshot?: Snapshot
  /** The last record of the log; `START` if it is empty. */
  readonly head: Position
}

export type Appended =
  /** The record is in the log at `position`. `missed` holds all records between `after` and it, in order. */
  | { readonly kind: 'appended'; readonly position: Position; readonly missed: readonly LogRecord[] }
  /** The record is in the log at `position`, but one answer cannot carry all that was missed: read on from `after`. */
  | { readonly kind: 'behind'; readonly position: Position }
  /** The record is in the log at `position`, and all records after `past.read` are renewals. */
  | { readonly kind: 'passed'; readonly position: Position }
  | Rejected

export type Read =
  /**
   * Records that follow `after`, in order, as many as one answer carries: all that were in the log when the read began, or at least `LARGE_ANSWER` of them. Empty: `after`
   * was the end of the log during the call. A read that waits may answer with fewer.
   */
  { readonly kind: 'records'; readonly records: readonly LogRecord[] } | Rejected

/** An answer with fewer records and fewer bytes than this is no part of a longer one. */
export const LARGE_ANSWER = { records: 500, bytes: 262_144 } as const

/** The call did nothing, because of where the log stands. */
export type Rejected =
  /** The store has deleted records after `after`: start again from the newest snapshot. */
  | { readonly kind: 'trimmed' }
  /** The log does not contain the record at `after`: it lost or changed its tail. The replica must not decide anything on this log. */
  | { readonly kind: 'diverged'; readonly reason: string }
  /** Another process owns the log now, or this store never owned it. `by` names the owner. */
  | { readonly kind: 'disowned'; readonly by: string }

/**
 * Of a record that only renews leases, in a way that other processes need not know. The store keeps, with the end of the log, the index of the last record that is none of
 * them, and of the last one whose writer `reads`.
 */
export interface RenewalMark {
  /** The writer reads the log at each of its renewals: others need not. */
  readonly reads: boolean
  /**
   * Do not return the records before it, which the writer has not read: answer `passed` if all records after `read` are renewals, and the writer of one after `since` reads.
   * Checked in the step that appends. Otherwise, and if nothing follows `read`, answer as usual.
   */
  readonly past?: { readonly read: number; readonly since: number }
}

/** A store guarantees this, as data. Users require it with `acquire(…, { require: ['durable'] })`. */
export interface Profile {
  /** The kind of store, for messages. */
  readonly store: string
  /** An acknowledged append survives a crash of the process and of the machine. */
  readonly durable: boolean
  /** An acknowledged append survives the loss of a machine. */
  readonly failover: boolean
  /** Waiting readers are notified of new records. If false, they poll. */
  readonly push: boolean
  /** Several replicas may append. If false, this store is the only one on its log. */
  readonly shared: boolean
  /** `age` is known, so that even replicas that run briefly see a lease expire. */
  readonly ages: boolean
  /** These notes say, in words for operators, what weakens the guarantees. */
  readonly notes: readonly string[]
}

/** Keeps how far the log has come outside the log, on the same machine: it stays if the log is put back from an older copy. */
export interface WitnessKeeper {
  /** Returns what was written last, if anything. */
  read(): Uint8Array | undefined
  /** Called for each record, before it is answered, with at most 256 bytes. Never throws. */
  write(witness: Uint8Array): void
}

/**
 * Tells single processes that something became of their leases, so that they read the log at once. A process that only holds leases reads it otherwise with its renewals.
 * Correctness does not depend on it: what is told may get lost.
 */
export interface Waker {
  /** False once the store is open: without a connection of its own, this process is told nothing. It can wake others all the same. */
  readonly listens: boolean
  /**
   * Calls `woken` once when it has begun to listen, since what was told before may be lost, and then whenever another process calls `wake` with this name: up to 64
   * letters and digits. Costs no connection beyond the one of an idle process.
   */
  listen(name: string, woken: () => void): void
  /** Never throws. */
  wake(names: readonly string[]): void
}

/**
 * An ordered log shared by all replicas. It stores records and never interprets them.
 *
 * Calls may overlap, but a replica has at most one append in flight. A call that cannot be carried out throws a `LeaseError`: `UNAVAILABLE`
 * if nothing was done, `UNKNOWN` if it may have been. After disposal, every call throws `UNAVAILABLE`.
 */
export interface Store extends AsyncDisposable {
  /** May change while the store is opened: some engines reveal their settings only then. */
  readonly profile: Profile

  /**
   * Fires when this store can never answer again although it was not closed, e.g. because another process took the log over. An owner
   * renews leases in memory and would not notice that by itself. A store without this signal reports it with its next answer.
   */
  readonly ended?: AbortSignal | undefined

  /** Known once the store is open, where it owns a log that people can copy and put back. There its owner keeps how far the log has come. */
  readonly witness?: WitnessKeeper | undefined

  /** A process that only holds leases need not follow a log with a waker. Without one it follows the log at all times. Optional. */
  readonly waker?: Waker | undefined

  /** `append` answers `passed` where its contract says so. A store that never does need not look at `renewal`. @default false */
  readonly passesRenewals?: boolean

  /** Called once, before all other calls. Connects, finds the newest complete snapshot and the end of the log, and takes ownership if asked to. */
  open(): Promise<Opened>

  /**
   * Appends `record` and returns everything appended between `after` and it. One atomic step with the check that the log contains `after`;
   * durable as the profile says before it returns. Safe to retry: replicas apply a record once, however often it appears.
   */
  append(record: Uint8Array, after: Position, renewal?: RenewalMark): Promise<Appended>

  /** Returns what follows `after`, up to a bound in bytes, so that one answer never has to hold a whole log. With `wait`, resolves only once there is a record to return, or rejects with the signal's reason. */
  read(after: Position, options?: { readonly wait?: AbortSignal }): Promise<Read>

  /**
   * Saves a snapshot and may delete records up to the snapshot before it, so that a reader slightly behind need not start again.
   * `older`: the log has a newer one, and nothing was done. A crash while saving leaves the previous snapshot in force. A position that the log does
   * not contain is refused: a snapshot of records that were lost would bring them back.
   */
  snapshot(at: Position, bytes: AsyncIterable<Uint8Array>): Promise<'kept' | 'older'>

  /** The newest complete snapshot, for a reader whose position was `trimmed`. */
  newest(): Promise<Snapshot | undefined>
}
