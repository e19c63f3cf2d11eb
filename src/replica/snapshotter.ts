/**
 * Takes snapshots of the state in slices, while records go on being applied. One snapshot or copy is taken at a time.
 *
 * Every replica counts the records since the last snapshot, and one snapshot is enough: each replica waits a little longer than the one before it.
 */
import type { Clock } from '../clock.ts'
import { saveState } from '../kernel/codec/snapshot.ts'
import { frameChunk } from './frame.ts'
import type { Lifetime } from './lifetime.ts'
import type { Log } from './log.ts'
import { isTransient } from './retry.ts'

/** About how many bytes a lease or an entry takes in a snapshot, and how many bytes a record costs a store beside its contents. */
const LEASE_BYTES = 64
const RECORD_BYTES = 1_024
/** The replica with this turn waits for twice as many records as the first one. */
const TURNS = 8

export interface SnapshotterOptions {
  readonly clock: Clock
  readonly log: Log
  readonly lifetime: Lifetime
  /** A snapshot is due after this many records, or this many bytes of them; later where the state itself is larger. */
  readonly records: number
  readonly bytes: number
}

export class Snapshotter {
  readonly #options: SnapshotterOptions
  /** Below both of these, no snapshot is due. */
  readonly records: number
  readonly bytes: number
  #running: Promise<void> | undefined
  #stopped = false
  /** The size of the last snapshot: what the values of entries take is not counted otherwise. */
  #lastBytes = 0
  readonly #counts = { snapshots: 0, snapshotFailures: 0, snapshotSeconds: 0 }

  constructor(options: SnapshotterOptions) {
    this.#options = options
    this.records = options.records
    this.bytes = options.bytes
  }

  /** For metrics and tests. */
  get stats() {
    const { records, bytes, before } = this.#options.log.sinceSnapshot
    return {
      ...this.#counts,
      recordsSinceSnapshot: records + (before?.records ?? 0),
      bytesSinceSnapshot: bytes + (before?.bytes ?? 0),
    }
  }

  /** The snapshot or copy that is being taken. Never rejects. */
  get running(): Promise<void> | undefined {
    return this.#running
  }

  stop(): void {
    this.#stopped = true
  }

  /** Called after a record beyond `records` or `bytes` (`afterRecord` of the log). */
  takeWhenDue(): void {
    if (this.#stopped || this.#running !== undefined || !this.#isDue()) return
    this.#running = this.#takeInTurn().finally(() => (this.#running = undefined))
  }

  #isDue(): boolean {
    const { log, records, bytes } = this.#options
    if (log.state.awaiting) return false // it would replace the leases that are being moved in
    const { sinceSnapshot } = log
    const later = 1 + log.turn() / TURNS
    return (
      sinceSnapshot.records >= Math.max(records * later, this.#weight / RECORD_BYTES) ||
      sinceSnapshot.bytes >= Math.max(bytes * later, this.#weight)
    )
  }

  /** About how many bytes a snapshot takes. As much is written between two of them; a large state would otherwise be copied over and over. */
  get #weight(): number {
    const { leases, entries, free } = this.#options.log.state
    const counted = LEASE_BYTES * (leases.size + entries.size + free.size) + free.under('').bytes
    return Math.max(counted, this.#lastBytes)
  }

  async #takeInTurn(): Promise<void> {
    if (this.#options.log.turn() > 0 && (await this.#isTakenByOther())) return
    if (!this.#stopped) await this.#take()
  }

  async #isTakenByOther(): Promise<boolean> {
    const { log, records } = this.#options
    const newest = await log.store.newest().catch(() => undefined) // taking a snapshot will show whether the store can be reached
    const since = log.state.index - (newest?.position.index ?? 0)
    if (newest === undefined || since >= Math.max(records, this.#weight / RECORD_BYTES) / 2) return false
    log.sinceSnapshot = { records: Math.max(0, since), bytes: 0 }
    return true
  }

  async #take(): Promise<void> {
    const { clock, log, lifetime } = this.#options
    const at = log.position
    const began = clock.now()
    const { recordsSinceSnapshot, bytesSinceSnapshot } = this.stats
    log.sinceSnapshot = { records: 0, bytes: 0, before: { records: recordsSinceSnapshot, bytes: bytesSinceSnapshot } }
    const { slices, end } = this.#slices()
    let bytes = 0
    async function* frames(): AsyncGenerator<Uint8Array> {
      for await (const slice of slices) {
        bytes += slice.length
        yield frameChunk(slice)
      }
    }
    try {
      if ((await log.store.snapshot(at, frames())) === 'kept') this.#counts.snapshots++
      this.#counts.snapshotSeconds = (clock.now() - began) / 1_000
      this.#lastBytes = bytes
      delete log.sinceSnapshot.before
    } catch (error) {
      this.#counts.snapshotFailures++
      // The log is whole without it. The next attempt comes after as many records again.
      if (!isTransient(error) && !lifetime.isOver) lifetime.fail(error)
    } finally {
      end()
    }
  }

  /** Copies the state as it is now, in memory. The caller has waited until nothing is `running`. */
  copy(): Promise<readonly Uint8Array[]> {
    const copying = this.#copy()
    this.#running = copying.then(
      () => (this.#running = undefined),
      () => (this.#running = undefined),
    )
    return copying
  }

  async #copy(): Promise<readonly Uint8Array[]> {
    const { slices, end } = this.#slices()
    const copied: Uint8Array[] = []
    try {
      for await (const slice of slices) copied.push(slice)
      return copied
    } finally {
      end()
    }
  }

  /** The first slice is made before this returns, so all slices are of the state at this moment. */
  #slices(): { readonly slices: AsyncIterable<Uint8Array>; end(): void } {
    const { clock, lifetime, log } = this.#options
    const chunks = saveState(log.state)
    const first = chunks.next()
    async function* slices(): AsyncGenerator<Uint8Array> {
      for (let slice = first; !slice.done; slice = chunks.next()) {
        if (lifetime.isOver) throw lifetime.signal.reason
        yield slice.value
        await new Promise<void>(resolve => clock.soon(resolve))
      }
    }
    return { slices: slices(), end: () => void chunks.return() }
  }
}
