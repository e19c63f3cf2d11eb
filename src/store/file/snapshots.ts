/** Snapshots in the file: written in chunks, in force once the state points to them, deleted when no reader can be using them. */
import { type Clock, pause } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import type { Position, Rejected } from '../../store.ts'
import type { FileDatabase } from './database.ts'
import type { SqliteRow } from './engine.ts'
import { damaged } from './errors.ts'
import { age, type FileLogState, signed, stamp, sumOfChunk, sumOfSnapshot, unsigned } from './record.ts'

/** A chunk's id combines the ids of its snapshot and its own number, so that a snapshot is a range of ids. */
export const MAX_CHUNKS = 1_000_000
/** Rows deleted in one transaction: other processes do not wait long for it. */
const RECORDS_AT_ONCE = 100
const CHUNKS_AT_ONCE = 16

/** A complete snapshot, to be read chunk by chunk. */
export interface FileSnapshot {
  readonly id: number
  readonly position: Position
  readonly age: number
  readonly chunks: number
}

export interface FileSnapshotsOptions {
  readonly database: FileDatabase
  readonly clock: Clock
  /** Undefined if the log contains the position and this store may still use it. */
  readonly locate: (at: Position, state: FileLogState) => Rejected | undefined
}

export class FileSnapshots {
  readonly #database: FileDatabase
  readonly #clock: Clock
  readonly #locate: FileSnapshotsOptions['locate']

  constructor({ database, clock, locate }: FileSnapshotsOptions) {
    this.#database = database
    this.#clock = clock
    this.#locate = locate
  }

  /** Begins to write a snapshot and returns its id; undefined if there is a newer one. */
  begin(at: Position, writer: number): Promise<number | undefined> {
    return this.#database.write(() => {
      if (this.#outdated(at)) return undefined
      const insert = this.#database.sql("insert into snapshot (idx, nonce, boot, stamp, chunks, writer, sum) values (?, ?, '', 0, 0, ?, 0)")
      return Number(insert.run(at.index, signed(at.nonce), writer).lastInsertRowid)
    })
  }

  put(snapshot: number, number: number, bytes: Uint8Array): Promise<void> {
    const id = snapshot * MAX_CHUNKS + number
    return this.#database.write(() => {
      this.#database.sql('insert into chunk values (?, ?, ?)').run(id, bytes, sumOfChunk(id, bytes))
    })
  }

  /** In one transaction puts the snapshot in force and trims up to the previous one. */
  async keep(id: number, at: Position, chunks: number): Promise<'kept' | 'older'> {
    const answer = await this.#database.write(() => {
      if (this.#outdated(at)) return 'older' // another process was quicker
      if (this.#written(id) !== chunks) throw removed(at)
      const now = stamp(this.#clock)
      const update = this.#database.sql('update snapshot set boot = ?, stamp = ?, chunks = ?, writer = 0, sum = ? where id = ?')
      // The chunks may outlive the row. A state that points to a missing snapshot would count as damaged.
      if (Number(update.run(now.boot, now.at, chunks, sumOfSnapshot(id, at, now, chunks), id).changes) !== 1) throw removed(at)
      const state = this.#database.state()
      this.#database.save({ ...state, snapshot: id, floor: this.newest(state)?.position ?? state.floor })
      return 'kept'
    })
    if (answer === 'older') await this.drop(id)
    return answer
  }

  async drop(id: number): Promise<void> {
    await this.#database.write(() => void this.#database.sql('delete from snapshot where id = ?').run(id))
  }

  /** Deletes, a little at a time, what no reader can ask for any more. The next call continues where this one stopped. */
  async tidy(): Promise<void> {
    const sql = (text: string) => this.#database.sql(text)
    const slices = [
      () => {
        const delete_ = sql('delete from entry where idx in (select idx from entry where idx <= ? order by idx limit ?)')
        return delete_.run(this.#database.state().floor.index, RECORDS_AT_ONCE)
      },
      // Keep the last but one for its readers, and an unfinished one while its writer lives.
      () =>
        sql(`delete from snapshot where writer not in (select id from user)
          and id not in (select id from snapshot where writer = 0 order by idx desc limit 2)`).run(),
      () =>
        sql(`delete from chunk where id in
          (select id from chunk where id / ${MAX_CHUNKS} not in (select id from snapshot) order by id limit ?)`).run(CHUNKS_AT_ONCE),
    ]
    for (const slice of slices) {
      while (Number((await this.#database.write(slice)).changes) > 0) await pause(this.#clock, 0)
    }
  }

  /** The snapshot in force. */
  newest({ snapshot: id }: FileLogState): FileSnapshot | undefined {
    if (id === 0) return undefined
    const row = this.#database.sql('select * from snapshot where id = ?').get(id) as SqliteRow | undefined
    if (!row) throw damaged(this.#database.path, `snapshot ${id} is missing`)
    const position = { index: Number(row.idx), nonce: unsigned(row.nonce as bigint) }
    const taken = { boot: String(row.boot), at: Number(row.stamp) }
    const chunks = Number(row.chunks)
    if (Number(row.sum) !== sumOfSnapshot(id, position, taken, chunks)) {
      throw damaged(this.#database.path, `snapshot ${id} does not match its checksum`)
    }
    return { id, position, age: age(taken, stamp(this.#clock)), chunks }
  }

  chunk(snapshot: number, number: number): Uint8Array {
    const id = snapshot * MAX_CHUNKS + number
    const row = this.#database.sql('select bytes, sum from chunk where id = ?').get(id) as SqliteRow | undefined
    if (row && Number(row.sum) === sumOfChunk(id, row.bytes as Uint8Array)) return row.bytes as Uint8Array
    if (!row && !this.#database.sql('select id from snapshot where id = ? and writer = 0').get(snapshot)) {
      throw new LeaseError('UNAVAILABLE', 'two newer snapshots were saved while this one was read: start again from the newest')
    }
    throw damaged(this.#database.path, `part ${number} of snapshot ${snapshot} ${row ? 'does not match its checksum' : 'is missing'}`)
  }

  #outdated(at: Position): boolean {
    const { path } = this.#database
    const state = this.#database.state()
    const rejected = this.#locate(at, state)
    if (rejected?.kind === 'disowned') {
      throw new LeaseError('UNAVAILABLE', `no snapshot was saved: ${path} was taken over by ${rejected.by}`, {
        reason: 'owned',
        facts: { path, name: rejected.by },
      })
    }
    if (at.index <= (this.newest(state)?.position.index ?? 0)) return true
    if (rejected?.kind === 'diverged') throw new LeaseError('DIVERGED', `no snapshot can be kept of ${at.index}: ${rejected.reason}`)
    return false
  }

  #written(id: number): number {
    const select = this.#database.sql('select count(*) there from chunk where id >= ? and id < ?')
    return Number((select.get(id * MAX_CHUNKS, (id + 1) * MAX_CHUNKS) as { there: bigint }).there)
  }
}

function removed({ index }: Position): LeaseError {
  return new LeaseError('UNAVAILABLE', `the snapshot of ${index} was deleted while it was written: write it again`)
}
