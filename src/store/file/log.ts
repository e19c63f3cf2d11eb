/**
 * The log in its SQLite file: one row per entry, one transaction per append. Runs on the store's worker thread.
 *
 * Every row that decides anything carries a checksum, checked whenever it is read, and entries must follow each other without a gap up to
 * the head that the state names. What is found damaged is refused and left as it is.
 */
import { lstatSync, rmSync } from 'node:fs'
import { dirname } from 'node:path'
import { type Clock, systemClock } from '../../clock.ts'
import { createPrivately, makeFolder, makePrivateIfEmpty, mustBePlain, mustBePrivate } from '../../private-file.ts'
import type { Appended, LogRecord, Position, Read, Rejected } from '../../store.ts'
import { FileDatabase } from './database.ts'
import type { Engine, SqliteRow } from './engine.ts'
import { damaged, fileError, untouched } from './errors.ts'
import { HeadFile } from './head-file.ts'
import { inspect, readHeader } from './inspection.ts'
import { age, type FileLogState, type Stamp, signed, stamp, sumOfRecord, unsigned } from './record.ts'
import { FileSnapshots, type StoredSnapshot } from './snapshots.ts'
import { FileUsers, type Owning } from './users.ts'

/** What one answer carries at most. An entry that is larger travels alone. */
const MAX_ENTRIES = 1_000
const MAX_BYTES = 1_048_576
/** Rows read at a time. */
const ROWS = 16

export interface FileLogOptions {
  readonly path: string
  readonly engine: Engine
  readonly clock?: Clock
  /** How long, in ms, others may keep the file locked before we give up and name them. */
  readonly timeout: number
  readonly own?: Owning
}

export class FileLog {
  readonly #path: string
  readonly #engine: Engine
  readonly #clock: Clock
  readonly #timeout: number
  readonly #own: Owning | undefined
  #database!: FileDatabase
  #users: FileUsers | undefined
  #snapshots!: FileSnapshots
  #witness: HeadFile | undefined
  #epoch = 0
  /** Drawn in advance. */
  #nonce: bigint | undefined

  constructor({ path, engine, clock = systemClock, timeout, own }: FileLogOptions) {
    this.#path = path
    this.#engine = engine
    this.#clock = clock
    this.#timeout = timeout
    this.#own = own
  }

  async open(): Promise<{ head: Position; snapshot: StoredSnapshot | undefined }> {
    const [path, engine, clock, timeout] = [this.#path, this.#engine, this.#clock, this.#timeout]
    try {
      makeFolder(dirname(path))
      mustBePlain(path)
      readHeader(path, () => HeadFile.read(`${path}-head`))
      mustBeOurs(path)
      const looked = await inspect({ path, engine, clock, timeout, acknowledged: HeadFile.read(`${path}-head`) })
      this.#makeFile()
      const database = new FileDatabase({ path, engine, clock, timeout })
      this.#database = database
      await database.recognize(HeadFile.read(`${path}-head`))
      // From here on it is known to be ours.
      if (mustBePrivate(`${path}-owner`) === undefined) createPrivately(`${path}-owner`, clock)
      const users = new FileUsers(database, engine, clock, this.#own)
      this.#users = users
      this.#snapshots = new FileSnapshots({ database, clock, locate: (at, state) => this.#locate(at, state) })
      await users.enter(timeout)
      if (looked === 'header' && (await database.read(() => users.first()))) await database.checkPages()
      const opened = await database.write(() => {
        this.#examine(database.state(), HeadFile.read(`${path}-head`))
        this.#epoch = users.register()
        const state = database.state()
        return { head: state.head, snapshot: this.#snapshots.newest(state) }
      })
      this.#witness = new HeadFile(`${path}-head`)
      return opened
    } catch (error) {
      const said = untouched(fileError(error, path)) // before we let go: it may name who holds what
      this.#letGo()
      throw said
    }
  }

  async append(bytes: Uint8Array, after: Position): Promise<Appended> {
    const answer = await this.#database.write((): Appended => {
      const state = this.#database.state()
      const elsewhere = this.#locate(after, state)
      if (elsewhere) return elsewhere
      const gap = state.head.index - after.index
      const missed = gap === 0 || gap > MAX_ENTRIES ? [] : this.#following(after, state.head.index)
      const position = this.#put(bytes, state)
      const complete = missed.length === gap && size(missed) <= MAX_BYTES
      return complete ? { kind: 'appended', position, missed } : { kind: 'behind', position }
    })
    if (answer.kind === 'appended' || answer.kind === 'behind') this.#clock.soon(() => this.#afterwards(answer.position))
    return answer
  }

  read(after: Position): Promise<Read> {
    return this.#database.read((): Read => {
      const state = this.#database.state()
      return this.#locate(after, state) ?? { kind: 'records', records: this.#following(after, state.head.index) }
    })
  }

  /** Whether anything may have happened since this was last asked. Cheap. */
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

  newest(): Promise<StoredSnapshot | undefined> {
    return this.#database.read(() => this.#snapshots.newest(this.#database.state()))
  }

  chunk(snapshot: number, number: number): Promise<Uint8Array> {
    return this.#database.read(() => this.#snapshots.chunk(snapshot, number))
  }

  /** Tells those who are refused where this owner serves. */
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
      this.#witness!.write(await this.#database.write(leave, Math.min(this.#timeout, 500)))
    } catch {
      // Our row stays behind and is taken for what it is: that of a process that has gone.
    } finally {
      this.#letGo()
    }
  }

  #letGo(): void {
    this.#database?.close()
    this.#witness?.close()
    this.#users?.leave() // last: until here we may have been writing
    this.#witness = this.#users = undefined
  }

  #makeFile(): void {
    const path = this.#path
    if (exists(path)) return
    rmSync(`${path}-head`, { force: true }) // it speaks of a log that was taken away
    createPrivately(path, this.#clock)
  }

  /** Nothing that was acknowledged is missing from the end. */
  #examine({ head, floor }: FileLogState, acknowledged: number): void {
    const whole = head.index === floor.index || this.#nonceAt(head.index) === head.nonce
    if (whole && acknowledged <= head.index) return
    throw damaged(
      this.#path,
      whole ? `it ends at ${head.index}, though ${acknowledged} was acknowledged` : `entry ${head.index} is another`,
    )
  }

  /** Undefined when the log contains `after` and we may still use it. */
  #locate({ index, nonce }: Position, { epoch, owner, head, floor }: FileLogState): Rejected | undefined {
    if (this.#database.replaced()) return { kind: 'diverged', reason: `${this.#path} was removed or replaced while it was in use` }
    if (epoch !== this.#epoch) return { kind: 'disowned', by: this.#users!.nameOf(owner) ?? 'those who share it now' }
    if (index > head.index) return { kind: 'diverged', reason: `the log ends at ${head.index}, before ${index}` }
    if (index < floor.index) return { kind: 'trimmed' }
    const found = index === head.index ? head.nonce : index === floor.index ? floor.nonce : this.#nonceAt(index)
    return found === nonce ? undefined : { kind: 'diverged', reason: `another entry stands at ${index}` }
  }

  #nonceAt(index: number): bigint {
    const row = this.#database.sql('select nonce from entry where idx = ?').get(index) as { nonce: bigint } | undefined
    if (!row) throw damaged(this.#path, `entry ${index} is missing`)
    return unsigned(row.nonce)
  }

  #put(bytes: Uint8Array, state: FileLogState): Position {
    const position = { index: state.head.index + 1, nonce: this.#nonce ?? this.#clock.bits() }
    this.#nonce = undefined
    const now = stamp(this.#clock)
    // Some versions of Node's SQLite bind no bytes as null.
    const insert = this.#database.sql('insert into entry values (?, ?, ?, ?, coalesce(?, zeroblob(0)), ?)')
    insert.run(position.index, signed(position.nonce), now.boot, now.at, bytes, sumOfRecord(position, now, bytes))
    this.#database.save({ ...state, head: position })
    return position
  }

  /** What can be done when the answer has left. */
  #afterwards(head: Position): void {
    this.#witness?.write(head)
    this.#nonce = this.#clock.bits()
  }

  #following(after: Position, head: number): LogRecord[] {
    const entries: LogRecord[] = []
    const now = stamp(this.#clock)
    let bytes = 0
    for (let last = after.index; last < head && entries.length < MAX_ENTRIES; ) {
      const rows = this.#database.sql('select * from entry where idx > ? order by idx limit ?').all(last, ROWS) as SqliteRow[]
      if (rows.length === 0) throw damaged(this.#path, `entry ${last + 1} is missing`)
      for (const row of rows) {
        const entry = this.#entry(row, ++last, now)
        bytes += entry.bytes.length
        if (entries.length > 0 && (bytes > MAX_BYTES || entries.length === MAX_ENTRIES)) return entries
        entries.push(entry)
      }
    }
    return entries
  }

  #entry(row: SqliteRow, index: number, now: Stamp): LogRecord {
    if (Number(row.idx) !== index) throw damaged(this.#path, `entry ${index} is missing`)
    const position = { index, nonce: unsigned(row.nonce as bigint) }
    const appended = { boot: String(row.boot), at: Number(row.stamp) }
    const { bytes } = row
    if (!(bytes instanceof Uint8Array) || Number(row.sum) !== sumOfRecord(position, appended, bytes)) {
      throw damaged(this.#path, `entry ${index} does not match its checksum`)
    }
    return { position, bytes, age: age(appended, now) }
  }
}

function size(entries: readonly LogRecord[]): number {
  return entries.reduce((sum, { bytes }) => sum + bytes.length, 0)
}

/** The log and all that lies beside it: SQLite believes what it finds there. */
function mustBeOurs(path: string): void {
  for (const side of ['', '-owner', '-head']) mustBePrivate(`${path}${side}`)
  for (const side of ['-wal', '-shm', '-journal', '-owner-journal']) makePrivateIfEmpty(`${path}${side}`)
}

function exists(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) !== undefined
}
