/** Snapshots in the file: written in chunks, in force when the state points to them, taken away when nobody can be reading them. */
import { type Clock, pause } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import type { Position, Rejected } from '../../store.ts'
import type { FileDatabase } from './database.ts'
import type { SqliteRow } from './engine.ts'
import { damaged } from './errors.ts'
import { age, type FileLogState, signed, stamp, sumOfChunk, sumOfSnapshot, unsigned } from './record.ts'

/** A chunk's id is its snapshot's and its own number in one, so that a snapshot is a range. */
export const MAX_CHUNKS = 1_000_000
/** Rows taken away at a time: nobody waits long behind us. */
const ENTRIES_AT_ONCE = 100
const CHUNKS_AT_ONCE = 16

/** A complete one, to be read chunk by chunk. */
export interface StoredSnapshot {
  readonly id: number
  readonly position: Position
  readonly age: number
  readonly chunks: number
}

export interface FileSnapshotsOptions {
  readonly database: FileDatabase
  readonly clock: Clock
  /** Whether the log contains a position, and we may still use it. */
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

  /** Begins to write one. What it returns names it; undefined when there is a newer one. */
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

  /** In one transaction it comes into force and what came before the last one is forgotten. */
  async keep(id: number, at: Position, chunks: number): Promise<'kept' | 'older'> {
    const answer = await this.#database.write(() => {
      if (this.#outdated(at)) return 'older' // another was quicker
      if (this.#written(id) !== chunks) throw takenAway(at)
      const now = stamp(this.#clock)
      const update = this.#database.sql('update snapshot set boot = ?, stamp = ?, chunks = ?, writer = 0, sum = ? where id = ?')
      // Its parts may still be there when the row is gone. A state that names a snapshot which is not there would be damaged.
      if (Number(update.run(now.boot, now.at, chunks, sumOfSnapshot(id, at, now, chunks), id).changes) !== 1) throw takenAway(at)
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

  /** Takes away, a little at a time, what no reader can ask for any more. Whatever it does not come to is left to the next time. */
  async tidy(): Promise<void> {
    const sql = (text: string) => this.#database.sql(text)
    const slices = [
      () => {
        const delete_ = sql('delete from entry where idx in (select idx from entry where idx <= ? order by idx limit ?)')
        return delete_.run(this.#database.state().floor.index, ENTRIES_AT_ONCE)
      },
      // The last but one stays for those who are reading it; one that is being written stays while its writer lives.
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

  /** The one in force. */
  newest({ snapshot: id }: FileLogState): StoredSnapshot | undefined {
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
      throw new LeaseError('UNAVAILABLE', 'two newer snapshots were kept while this one was read: begin again with the newest')
    }
    throw damaged(this.#database.path, `part ${number} of snapshot ${snapshot} ${row ? 'does not match its checksum' : 'is missing'}`)
  }

  #outdated(at: Position): boolean {
    const { path } = this.#database
    const state = this.#database.state()
    const elsewhere = this.#locate(at, state)
    if (elsewhere?.kind === 'disowned') {
      throw new LeaseError('UNAVAILABLE', `no snapshot was kept: ${path} was taken over by ${elsewhere.by}`, {
        facts: { path, reason: 'owned', name: elsewhere.by },
      })
    }
    if (at.index <= (this.newest(state)?.position.index ?? 0)) return true
    if (elsewhere?.kind === 'diverged') throw new LeaseError('DIVERGED', `no snapshot can be kept of ${at.index}: ${elsewhere.reason}`)
    return false
  }

  #written(id: number): number {
    const select = this.#database.sql('select count(*) there from chunk where id >= ? and id < ?')
    return Number((select.get(id * MAX_CHUNKS, (id + 1) * MAX_CHUNKS) as { there: bigint }).there)
  }
}

function takenAway({ index }: Position): LeaseError {
  return new LeaseError('UNAVAILABLE', `the snapshot of ${index} was taken away while it was written: write it again`)
}
