/** Snapshots in Postgres: written in chunks by one process at a time, in force once the log's row points to them, deleted when no reader can be using them. */
import { type Clock, pause } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import type { Position, Snapshot } from '../../store.ts'
import { rechunk } from '../rechunk.ts'
import { divergence } from './answer.ts'
import type { PostgresRow, PostgresValue } from './driver.ts'
import { signed, unsigned } from './nonce.ts'

const CHUNK_BYTES = 262_144
/** Rows deleted in one transaction: other processes do not wait long for it. */
const ROWS_AT_ONCE = 1_000
/** An unfinished snapshot that has not grown for this many ms is abandoned. A wrong guess only delays a snapshot. */
const ABANDONED = 5_000
/** The store checks this often, in ms, whether the snapshot of another process is finished. */
const CHECK_AGAIN = 100

export interface PostgresSnapshotsOptions {
  readonly schema: string
  readonly name: string
  readonly clock: Clock
  /** The clock of the server is trusted: the age of a snapshot is known. */
  readonly trusted: boolean
  /** Runs a statement. `done`: it may have taken effect if no answer came. */
  readonly query: (
    text: string,
    values: readonly PostgresValue[],
    options?: { readonly done: 'perhaps' },
  ) => Promise<readonly PostgresRow[]>
  readonly closing: AbortSignal
}

export class PostgresSnapshots {
  readonly #options: PostgresSnapshotsOptions

  constructor(options: PostgresSnapshotsOptions) {
    this.#options = options
  }

  async write(at: Position, bytes: AsyncIterable<Uint8Array>): Promise<'kept' | 'older'> {
    const { schema, name, query } = this.#options
    const id = await this.#begin(at)
    if (id === undefined) return 'older'
    let chunks = 0
    try {
      for await (const chunk of rechunk(CHUNK_BYTES, bytes)) if (!(await this.#put(id, chunks++, chunk))) return 'older'
      const text = `select ${schema}.keep_snapshot($1, $2, $3)`
      const [[kept]] = (await query(text, [name, id, chunks], { done: 'perhaps' })) as [[string]]
      if (kept.startsWith('diverged')) throw diverged(at, kept)
      if (kept !== 'kept') return 'older'
    } catch (error) {
      await this.#drop(id)
      throw error
    }
    await this.#tidy()
    return 'kept'
  }

  async newest(): Promise<Snapshot | undefined> {
    const { schema, name, query, trusted } = this.#options
    const [[found]] = (await query(`select ${schema}.newest($1)`, [name])) as [[string | null]]
    if (found === null) return undefined
    const [id, index, nonce, chunks, age] = found.split(' ') as [string, string, string, string, string]
    return {
      position: { index: Number(index), nonce: unsigned(nonce) },
      age: trusted ? Math.max(0, Number(age)) : 0,
      bytes: this.#chunks(id, Number(chunks)),
    }
  }

  async *#chunks(id: string, chunks: number): AsyncGenerator<Uint8Array> {
    const { schema, query } = this.#options
    for (let n = 0; n < chunks; n++) {
      const [[bytes]] = (await query(`select ${schema}.chunk_bytes($1, $2)`, [id, n])) as [[string | null]]
      if (bytes === null)
        throw new LeaseError('UNAVAILABLE', 'the snapshot was replaced by newer ones while it was read: start again from the newest')
      yield Buffer.from(bytes, 'hex')
    }
  }

  /** One snapshot is written at a time. A second process waits, and then finds that its own is older, or writes the next one. */
  async #begin(at: Position): Promise<string | undefined> {
    const { schema, name, query, clock, closing } = this.#options
    let seen = { id: '', written: '', since: clock.now() }
    for (let stale = '0'; ; ) {
      const text = `select kind, snapshot::text, written::text from ${schema}.begin_snapshot($1, $2, $3, $4)`
      const [[kind, id, written]] = (await query(text, [name, at.index, signed(at.nonce), stale])) as [[string, string, string]]
      if (kind === 'begun') return id
      if (kind === 'older' || kind === 'trimmed') return undefined
      if (kind !== 'busy') throw diverged(at, kind)
      const now = clock.now()
      if (seen.id !== id || seen.written !== written) seen = { id, written, since: now }
      stale = now - seen.since > ABANDONED ? id : '0'
      if (stale === '0') await pause(clock, CHECK_AGAIN, closing, { ref: true })
    }
  }

  /** False if the snapshot was deleted: a newer one is in force, or this process was presumed dead. */
  async #put(id: string, n: number, bytes: Uint8Array): Promise<boolean> {
    const { schema, query } = this.#options
    return (await query(`select ${schema}.put_chunk($1, $2, $3)::text`, [id, n, bytes]))[0]![0] === 'true'
  }

  /** Deletes an unfinished snapshot. If this fails too, the next writer finds it abandoned. */
  async #drop(id: string): Promise<void> {
    const { schema, query } = this.#options
    await query(`select ${schema}.drop_snapshot($1)::text`, [id]).catch(() => {})
  }

  async #tidy(): Promise<void> {
    const { schema, name, query, closing } = this.#options
    try {
      for (let gone = 1; gone > 0 && !closing.aborted; )
        gone = Number((await query(`select ${schema}.tidy($1, $2)::text`, [name, ROWS_AT_ONCE]))[0]![0])
    } catch {
      // What is left is deleted after the next snapshot.
    }
  }
}

function diverged(at: Position, answer: string): LeaseError {
  return new LeaseError('DIVERGED', `no snapshot can be kept of ${at.index}: ${divergence(answer)}`)
}
