/**
 * The log in its SQLite file: one row per record, one transaction per append. Runs on the store's worker thread.
 *
 * Every row has a checksum, which is verified whenever the row is read, and records must follow each other without a gap up to the head in
 * the state. A damaged file is refused and left as it is.
 */
import { lstatSync, rmSync } from 'node:fs'
import { dirname } from 'node:path'
import { type Clock, systemClock } from '../../clock.ts'
import { createPrivately, makeFolder, makePrivateIfEmpty, mustBePlain, mustBePrivate } from '../../private-file.ts'
import type { Appended, LogRecord, Position, Read, Rejected } from '../../store.ts'
import type { Ownership } from '../store-module.ts'
import { FileDatabase } from './database.ts'
import type { Engine, SqliteRow } from './engine.ts'
import { damaged, fileError, untouched } from './errors.ts'
import { HeadFile } from './head-file.ts'
import { inspect, readHeader } from './inspection.ts'
import { age, type FileLogState, type Stamp, signed, stamp, sumOfRecord, unsigned } from './record.ts'
import { type FileSnapshot, FileSnapshots } from './snapshots.ts'
import { FileUsers } from './users.ts'

/** One answer carries at most this much. A larger record travels alone. */
const MAX_RECORDS = 1_000
const MAX_BYTES = 1_048_576
/** Rows read at a time. */
const ROWS = 16

export interface FileLogOptions {
  readonly path: string
  readonly engine: Engine
  readonly clock?: Clock
  /** How long, in ms, other processes may keep the file locked before a call fails and names them. */
  readonly timeout: number
  readonly own?: Ownership
}

export class FileLog {
  readonly #path: string
  readonly #engine: Engine
  readonly #clock: Clock
  readonly #timeout: number
  readonly #own: Ownership | undefined
  #database!: FileDatabase
  #users: FileUsers | undefined
  #snapshots!: FileSnapshots
  #headFile: HeadFile | undefined
  #epoch = 0
  /** The nonce of the next append, drawn in advance. */
  #nonce: bigint | undefined

  constructor({ path, engine, clock = systemClock, timeout, own }: FileLogOptions) {
    this.#path = path
    this.#engine = engine
    this.#clock = clock
    this.#timeout = timeout
    this.#own = own
  }

  async open(): Promise<{ head: Position; snapshot: FileSnapshot | undefined }> {
    const [path, engine, clock, timeout] = [this.#path, this.#engine, this.#clock, this.#timeout]
    try {
      makeFolder(dirname(path))
      mustBePlain(path)
      readHeader(path, () => HeadFile.read(`${path}-head`))
      mustBePrivateFiles(path)
      const inspected = await inspect({ path, engine, clock, timeout, acknowledged: HeadFile.read(`${path}-head`) })
      this.#createFile()
      const database = new FileDatabase({ path, engine, clock, timeout })
      this.#database = database
      await database.recognize(HeadFile.read(`${path}-head`))
      // From here on the file is known to be ours.
      if (mustBePrivate(`${path}-owner`) === undefined) createPrivately(`${path}-owner`, clock)
      const users = new FileUsers(database, engine, clock, this.#own)
      this.#users = users
      this.#snapshots = new FileSnapshots({ database, clock, locate: (at, state) => this.#locate(at, state) })
      await users.enter(timeout)
      if (inspected === 'header' && (await database.read(() => users.isFirst()))) await database.checkPages()
      const opened = await database.write(() => {
        this.#checkEnd(database.state(), HeadFile.read(`${path}-head`))
        this.#epoch = users.register()
        const state = database.state()
        return { head: state.head, snapshot: this.#snapshots.newest(state) }
      })
      this.#headFile = new HeadFile(`${path}-head`)
      return opened
    } catch (error) {
      const described = untouched(fileError(error, path)) // before the locks are released: it may name who holds them
      this.#closeFiles()
      throw described
    }
  }

  async append(bytes: Uint8Array, after: Position): Promise<Appended> {
    const answer = await this.#database.write(() => this.#append(bytes, after))
    if (answer.kind === 'appended' || answer.kind === 'behind') this.#clock.soon(() => this.afterAppend(answer.position))
    return answer
  }

  /** One attempt without a promise; undefined if other processes keep the file locked. The caller calls `afterAppend` once it has answered. */
  appendNow(bytes: Uint8Array, after: Position): Appended | undefined {
    return this.#database.writeNow(() => this.#append(bytes, after))
  }

  #append(bytes: Uint8Array, after: Position): Appended {
    const state = this.#database.state()
    const rejected = this.#locate(after, state)
    if (rejected) return rejected
    const gap = state.head.index - after.index
    const missed = gap === 0 || gap > MAX_RECORDS ? [] : this.#following(after, state.head.index)
    const position = this.#put(bytes, state)
    const complete = missed.length === gap && size(missed) <= MAX_BYTES
    return complete ? { kind: 'appended', position, missed } : { kind: 'behind', position }
  }

  read(after: Position): Promise<Read> {
    return this.#database.read((): Read => {
      const state = this.#database.state()
      return this.#locate(after, state) ?? { kind: 'records', records: this.#following(after, state.head.index) }
    })
  }

  /** Returns whether the log may have changed since the last call. Cheap. */
  moved(): boolean {
    return this.#database.moved()
  }

  beginSnapshot(at: Position): Promise<number | undefined> {
    return this.#snapshots.begin(at, this.#users!.me)
  }

  putChunk(snapshot: number, number: number, bytes: Uint8Array): Promise<void> {
    return this.#snapshots.put(snapshot, number, bytes)
  }

  keepSnapshot(id: number, at: Position, chunks: number): Promise<'kept' | 'older'> {
    return this.#snapshots.keep(id, at, chunks)
  }

  dropSnapshot(id: number): Promise<void> {
    return this.#snapshots.drop(id)
  }

  tidy(): Promise<void> {
    return this.#snapshots.tidy()
  }

  newest(): Promise<FileSnapshot | undefined> {
    return this.#database.read(() => this.#snapshots.newest(this.#database.state()))
  }

  chunk(snapshot: number, number: number): Promise<Uint8Array> {
    return this.#database.read(() => this.#snapshots.chunk(snapshot, number))
  }

  /** Publishes where this owner serves the log. */
  announce(address: string): Promise<void> {
    return this.#database.write(() => this.#users!.announce(address))
  }

  async close(): Promise<void> {
    const users = this.#users
    if (!users) return
    try {
      const leave = () => {
        users.unregister()
        return this.#database.state().head
      }
      this.#headFile!.write(await this.#database.write(leave, Math.min(this.#timeout, 500)))
    } catch {
      // The row stays behind. Other processes see that its process has ended.
    } finally {
      this.#closeFiles()
    }
  }

  #closeFiles(): void {
    this.#database?.close()
    this.#headFile?.close()
    this.#users?.leave() // last: until here this process may have been writing
    this.#headFile = this.#users = undefined
  }

  #createFile(): void {
    const path = this.#path
    if (exists(path)) return
    rmSync(`${path}-head`, { force: true }) // it belongs to a log that was removed
    createPrivately(path, this.#clock)
  }

  /** Throws if acknowledged records are missing from the end of the log. */
  #checkEnd({ head, floor }: FileLogState, acknowledged: number): void {
    const whole = head.index === floor.index || this.#nonceAt(head.index) === head.nonce
    if (whole && acknowledged <= head.index) return
    throw damaged(
      this.#path,
      whole ? `it ends at ${head.index}, although ${acknowledged} was acknowledged` : `record ${head.index} is another one`,
    )
  }

  /** Undefined if the log contains the position and this store may still use it. */
  #locate({ index, nonce }: Position, { epoch, owner, head, floor }: FileLogState): Rejected | undefined {
    if (this.#database.replaced()) return { kind: 'diverged', reason: `${this.#path} was removed or replaced while it was in use` }
    if (epoch !== this.#epoch) return { kind: 'disowned', by: this.#users!.nameOf(owner) ?? 'processes that share it now' }
    if (index > head.index) return { kind: 'diverged', reason: `the log ends at ${head.index}, before ${index}` }
    if (index < floor.index) return { kind: 'trimmed' }
    const found = index === head.index ? head.nonce : index === floor.index ? floor.nonce : this.#nonceAt(index)
    return found === nonce ? undefined : { kind: 'diverged', reason: `another record is at ${index}` }
  }

  #nonceAt(index: number): bigint {
    const row = this.#database.sql('select nonce from entry where idx = ?').get(index) as { nonce: bigint } | undefined
    if (!row) throw damaged(this.#path, `record ${index} is missing`)
    return unsigned(row.nonce)
  }

  #put(bytes: Uint8Array, state: FileLogState): Position {
    const position = { index: state.head.index + 1, nonce: this.#nonce ?? this.#clock.bits() }
    this.#nonce = undefined
    const now = stamp(this.#clock)
    // Some versions of Node's SQLite bind an empty array as null.
    const insert = this.#database.sql('insert into entry values (?, ?, ?, ?, coalesce(?, zeroblob(0)), ?)')
    insert.run(position.index, signed(position.nonce), now.boot, now.at, bytes, sumOfRecord(position, now, bytes))
    this.#database.save({ ...state, head: position })
    return position
  }

  /** Work that can wait until the answer has been sent. */
  afterAppend(head: Position): void {
    this.#headFile?.write(head)
    this.#nonce = this.#clock.bits()
  }

  #following(after: Position, head: number): LogRecord[] {
    const records: LogRecord[] = []
    const now = stamp(this.#clock)
    let bytes = 0
    for (let last = after.index; last < head && records.length < MAX_RECORDS; ) {
      const rows = this.#database.sql('select * from entry where idx > ? order by idx limit ?').all(last, ROWS) as SqliteRow[]
      if (rows.length === 0) throw damaged(this.#path, `record ${last + 1} is missing`)
      for (const row of rows) {
        const record = this.#record(row, ++last, now)
        bytes += record.bytes.length
        if (records.length > 0 && (bytes > MAX_BYTES || records.length === MAX_RECORDS)) return records
        records.push(record)
      }
    }
    return records
  }

  #record(row: SqliteRow, index: number, now: Stamp): LogRecord {
    if (Number(row.idx) !== index) throw damaged(this.#path, `record ${index} is missing`)
    const position = { index, nonce: unsigned(row.nonce as bigint) }
    const appended = { boot: String(row.boot), at: Number(row.stamp) }
    const { bytes } = row
    if (!(bytes instanceof Uint8Array) || Number(row.sum) !== sumOfRecord(position, appended, bytes)) {
      throw damaged(this.#path, `record ${index} does not match its checksum`)
    }
    return { position, bytes, age: age(appended, now) }
  }
}

function size(records: readonly LogRecord[]): number {
  return records.reduce((sum, { bytes }) => sum + bytes.length, 0)
}

/** The log and all files beside it: SQLite trusts what it finds there. */
function mustBePrivateFiles(path: string): void {
  for (const side of ['', '-owner', '-head']) mustBePrivate(`${path}${side}`)
  for (const side of ['-wal', '-shm', '-journal', '-owner-journal']) makePrivateIfEmpty(`${path}${side}`)
}

function exists(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) !== undefined
}
