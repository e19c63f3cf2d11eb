/**
 * The log in its SQLite file: one row per entry, one transaction per append. Runs on the store's worker thread.
 *
 * Every row that decides anything carries a checksum of its own, checked whenever the row is read, because SQLite has none. The state row
 * is the hub: the end of the log, the last entry no longer kept, the snapshot in force, and the epoch of ownership, which every
 * transaction checks. What is found damaged is refused and left as it is.
 */
import { copyFileSync, rmSync, statSync } from 'node:fs'
import { hostname } from 'node:os'
import { crc32 } from 'node:zlib'
import { type Clock, pause, systemClock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import { type Appended, type Entry, type NotThere, type Position, type Read, START } from '../store.ts'
import { createPrivately, type Database, type Engine, type Row, type Statement } from './file-engine.ts'
import { Grip } from './file-grip.ts'
import { alive, describe, stopped, thisProcess } from './file-process.ts'
import { damaged, isBusy, stuck, trouble } from './file-trouble.ts'
import { Witness } from './file-witness.ts'

/** What one answer carries at most. An entry that is larger travels alone. */
const MOST_ENTRIES = 1_000
const MOST_BYTES = 1_048_576
/** Rows read, or forgotten, at a time: nobody waits long behind us. */
const ROWS = 16
const TRIMMED_AT_ONCE = 100

const APPLICATION = 0x4c656173 // 'Leas'
const VERSION = 1
const SCHEMA = [
  'CREATE TABLE entry (idx INTEGER PRIMARY KEY, nonce INTEGER NOT NULL, boot TEXT NOT NULL, stamp REAL NOT NULL, bytes BLOB NOT NULL, sum INTEGER NOT NULL)',
  'CREATE TABLE state (one INTEGER PRIMARY KEY, bytes BLOB NOT NULL)',
  // Complete once nobody writes it any more.
  'CREATE TABLE snapshot (id INTEGER PRIMARY KEY AUTOINCREMENT, idx INTEGER NOT NULL, nonce INTEGER NOT NULL, boot TEXT NOT NULL, stamp REAL NOT NULL, chunks INTEGER NOT NULL, writer INTEGER NOT NULL, sum INTEGER NOT NULL)',
  // The id is the snapshot's and the chunk's number in one, so that a snapshot is a range.
  'CREATE TABLE chunk (id INTEGER PRIMARY KEY, bytes BLOB NOT NULL, sum INTEGER NOT NULL)',
  'CREATE TABLE user (id INTEGER PRIMARY KEY AUTOINCREMENT, pid INTEGER NOT NULL, started TEXT NOT NULL, boot TEXT NOT NULL, host TEXT NOT NULL, name TEXT NOT NULL, since INTEGER NOT NULL, address TEXT NOT NULL)',
]
const CHUNKS = 1_000_000

export interface FileLogOptions {
  readonly path: string
  readonly engine: Engine
  readonly clock?: Clock
  /** How long, in ms, others may keep the file locked before we give up and name them. */
  readonly patience: number
  readonly own?: { readonly name: string; readonly address?: string }
}

/** A complete snapshot, to be read chunk by chunk. */
export interface KeptSnapshot {
  readonly id: number
  readonly position: Position
  readonly age: number
  readonly chunks: number
}

export interface State {
  readonly epoch: number
  readonly head: Position
  readonly floor: Position
  readonly snapshot: number
  readonly owner: number
}

interface User {
  readonly id: number
  readonly pid: number
  readonly started: string
  readonly boot: string
  readonly host: string
  readonly name: string
  readonly since: number
  readonly address: string
}

export class FileLog {
  readonly #path: string
  readonly #engine: Engine
  readonly #clock: Clock
  readonly #patience: number
  readonly #own: FileLogOptions['own']
  readonly #statements = new Map<string, Statement>()
  #db: Database | undefined
  #grip: Grip | undefined
  #witness: Witness | undefined
  /** Which file it is: another may be put in its place while we have it open. */
  #inode = 0
  #epoch = 0
  #user = 0
  #version = -1
  /** Drawn in advance. */
  #nonce: bigint | undefined
  #closed = false

  constructor({ path, engine, clock = systemClock, patience, own }: FileLogOptions) {
    this.#path = path
    this.#engine = engine
    this.#clock = clock
    this.#patience = patience
    this.#own = own
  }

  async open(): Promise<{ head: Position; snapshot: KeptSnapshot | undefined }> {
    try {
      if (statSync(this.#path, { throwIfNoEntry: false })?.isDirectory()) {
        throw new LeaseError('INVALID', `${this.#path} is a folder: name a file in it`, { facts: { path: this.#path, reason: 'folder' } })
      }
      if (!exists(this.#path)) {
        rmSync(`${this.#path}-head`, { force: true }) // it speaks of a log that was taken away
        createPrivately(this.#path, this.#clock)
      }
      if (!exists(`${this.#path}-owner`)) createPrivately(`${this.#path}-owner`, this.#clock)
      this.#witness = new Witness(`${this.#path}-head`)
      this.#db = new this.#engine.DatabaseSync(this.#path, { timeout: 0 })
      this.#inode = statSync(this.#path).ino
      await this.#patiently(() => this.#recognize())
      this.#grip = new Grip(this.#engine, `${this.#path}-owner`, this.#own !== undefined)
      await this.#enter()
      await this.#write(() => this.#register())
      const snapshot = await this.newest()
      return { head: await this.#reading(() => this.#state().head), snapshot }
    } catch (error) {
      const reported = trouble(error, this.#path)
      this.#letGo()
      throw reported
    }
  }

  async append(bytes: Uint8Array, after: Position): Promise<Appended> {
    const answer = await this.#write((): Appended => {
      const state = this.#state()
      const elsewhere = this.#locate(after, state)
      if (elsewhere) return elsewhere
      const gap = state.head.index - after.index
      const missed = gap === 0 || gap > MOST_ENTRIES ? [] : this.#following(after, state.head.index)
      const position = { index: state.head.index + 1, nonce: this.#nonce ?? this.#clock.bits() }
      const [boot, stamp] = [this.#clock.boot(), this.#clock.now()]
      const sum = sumOfEntry(position, boot, stamp, bytes)
      this.#nonce = undefined
      this.#sql('insert into entry values (?, ?, ?, ?, ?, ?)').run(position.index, signed(position.nonce), boot, stamp, bytes, sum)
      this.#save({ ...state, head: position })
      const complete = missed.length === gap && size(missed) <= MOST_BYTES
      return complete ? { kind: 'appended', position, missed } : { kind: 'behind', position }
    })
    if (answer.kind === 'appended' || answer.kind === 'behind') this.#clock.soon(() => this.#afterwards(answer.position))
    return answer
  }

  read(after: Position): Promise<Read> {
    return this.#reading((): Read => {
      const state = this.#state()
      return this.#locate(after, state) ?? { kind: 'entries', entries: this.#following(after, state.head.index) }
    })
  }

  /** What can be done when the answer has left. */
  #afterwards(head: Position): void {
    this.#witness?.write(head)
    this.#nonce = this.#clock.bits()
  }

  /** Whether anything may have happened since this was last asked. Cheap. */
  moved(): boolean {
    const last = this.#version
    try {
      const { data_version } = this.#sql('pragma data_version').get() as { data_version: bigint }
      this.#version = Number(data_version)
    } catch (error) {
      if (!isBusy(error)) throw trouble(error, this.#path)
    }
    return this.#version !== last || this.#replaced()
  }

  /** Begins to write a snapshot. What it returns names it; undefined when there is a newer one. */
  beginSnapshot(at: Position): Promise<number | undefined> {
    return this.#write(() => {
      if (this.#outdated(at)) return undefined
      const insert = this.#sql('insert into snapshot (idx, nonce, boot, stamp, chunks, writer, sum) values (?, ?, ?, ?, 0, ?, 0)')
      return Number(insert.run(at.index, signed(at.nonce), '', 0, this.#user).lastInsertRowid)
    })
  }

  putChunk(snapshot: number, number: number, bytes: Uint8Array): Promise<void> {
    const id = snapshot * CHUNKS + number
    return this.#write(() => void this.#sql('insert into chunk values (?, ?, ?)').run(id, bytes, sumOfChunk(id, bytes)))
  }

  /** The pointer is flipped, and what came before the last snapshot is forgotten, in one transaction. */
  async keepSnapshot(id: number, at: Position, chunks: number): Promise<'kept' | 'older'> {
    const answer = await this.#write(() => {
      if (this.#outdated(at)) return 'older' // another was quicker
      const state = this.#state()
      const last = this.#newest(state)
      const [first, end] = [id * CHUNKS, (id + 1) * CHUNKS]
      const { there } = this.#sql('select count(*) there from chunk where id >= ? and id < ?').get(first, end) as { there: bigint }
      if (Number(there) !== chunks) throw new LeaseError('UNAVAILABLE', `the snapshot of ${at.index} was taken away while it was written`)
      const [boot, stamp] = [this.#clock.boot(), this.#clock.now()]
      const sum = sumOfSnapshot(id, at, boot, stamp, chunks)
      this.#sql('update snapshot set boot = ?, stamp = ?, chunks = ?, writer = 0, sum = ? where id = ?').run(boot, stamp, chunks, sum, id)
      this.#save({ ...state, snapshot: id, floor: last?.position ?? state.floor })
      return 'kept'
    })
    if (answer === 'older') await this.dropSnapshot(id)
    return answer
  }

  async dropSnapshot(id: number): Promise<void> {
    await this.#write(() => void this.#sql('delete from snapshot where id = ?').run(id))
  }

  /** Takes away, a little at a time, what no reader can ask for any more. Whatever it does not come to is left to the next time. */
  async tidy(): Promise<void> {
    const slices = [
      () => {
        const { floor } = this.#state()
        const sql = 'delete from entry where idx in (select idx from entry where idx <= ? order by idx limit ?)'
        return this.#sql(sql).run(floor.index, TRIMMED_AT_ONCE)
      },
      // The last but one stays for those who are reading it; one that is being written stays while its writer lives.
      () =>
        this.#sql(`delete from snapshot where id not in (select id from snapshot where writer = 0 order by idx desc limit 2)
          and writer not in (select id from user)`).run(),
      () =>
        this.#sql(`delete from chunk where id in
          (select id from chunk where id / ${CHUNKS} not in (select id from snapshot) order by id limit ?)`).run(ROWS),
    ]
    for (const slice of slices) {
      while (!this.#closed && Number((await this.#write(slice)).changes) > 0) await pause(this.#clock, 0)
    }
  }

  newest(): Promise<KeptSnapshot | undefined> {
    return this.#reading(() => this.#newest(this.#state()))
  }

  chunk(snapshot: number, number: number): Promise<Uint8Array> {
    const id = snapshot * CHUNKS + number
    return this.#reading(() => {
      const row = this.#sql('select bytes, sum from chunk where id = ?').get(id) as Row | undefined
      if (row && Number(row.sum) === sumOfChunk(id, row.bytes as Uint8Array)) return row.bytes as Uint8Array
      if (!row && !this.#sql('select id from snapshot where id = ? and writer = 0').get(snapshot)) {
        throw new LeaseError('UNAVAILABLE', 'two newer snapshots were kept while this one was read: begin again with the newest')
      }
      throw damaged(this.#path, `part ${number} of snapshot ${snapshot} ${row ? 'does not match its checksum' : 'is missing'}`)
    })
  }

  /** Tells those who are refused where this owner serves. */
  async announce(address: string): Promise<void> {
    await this.#write(() => void this.#sql('update user set address = ? where id = ?').run(address, this.#user))
  }

  async close(): Promise<void> {
    if (this.#closed) return
    try {
      if (this.#user) await this.#write(() => this.#unregister(), Math.min(this.#patience, 500))
    } catch {
      // Our row stays behind and is taken for what it is: that of a process that has gone.
    } finally {
      this.#letGo()
    }
  }

  #letGo(): void {
    this.#closed = true
    this.#statements.clear()
    this.#db?.close()
    this.#witness?.close()
    this.#grip?.release() // last: until here we may have been writing
    this.#db = this.#witness = this.#grip = undefined
  }

  /** Is it ours, of a version we know, and as we made it? An empty file becomes ours. */
  #recognize(): void {
    const db = this.#db!
    const pragma = (name: string) => Object.values(db.prepare(`pragma ${name}`).get() as object)[0]
    const tables = () =>
      db.prepare("select sql from sqlite_master where name not like 'sqlite_%' order by rowid").all() as { sql: string }[]
    const facts = { path: this.#path }
    if (pragma('application_id') === 0 && pragma('user_version') === 0 && tables().length === 0) {
      const acknowledged = this.#witness!.read()
      if (acknowledged > 0) throw damaged(this.#path, `it is empty, though ${acknowledged} entries were acknowledged`)
      db.exec('pragma journal_mode = wal')
      db.exec('begin immediate')
      try {
        if (tables().length === 0) this.#create(db)
        db.exec('commit')
      } catch (error) {
        db.exec('rollback')
        throw error
      }
    }
    if (pragma('application_id') !== APPLICATION) {
      throw new LeaseError('INVALID', `${this.#path} is a database of another program: name another file`, {
        facts: { ...facts, reason: 'foreign' },
      })
    }
    const version = pragma('user_version') as number
    if (version > VERSION) {
      const message = `${this.#path} was written by a newer Leasehold (format ${version}; this one knows ${VERSION}): use that one`
      throw new LeaseError('UNSUPPORTED', message, { facts: { ...facts, reason: 'newer', version } })
    }
    const found = tables().map(({ sql }) => sql)
    if (version < VERSION || pragma('auto_vacuum') !== 0 || found.join() !== SCHEMA.join()) {
      throw damaged(this.#path, 'its tables are not those that were made')
    }
    db.exec('pragma journal_mode = wal; pragma synchronous = full')
  }

  #create(db: Database): void {
    for (const table of SCHEMA) db.exec(table)
    db.exec(`pragma application_id = ${APPLICATION}; pragma user_version = ${VERSION}`)
    db.prepare('insert into state values (1, ?)').run(encodeState({ epoch: 0, head: START, floor: START, snapshot: 0, owner: 0 }))
  }

  async #enter(): Promise<void> {
    const began = this.#clock.now()
    for (;;) {
      try {
        return this.#grip!.take()
      } catch (error) {
        if (!isBusy(error)) throw error
        const waited = this.#clock.now() - began
        const refusal = await this.#reading(() => this.#refusal(waited >= this.#patience))
        if (refusal) throw refusal
      }
      await pause(this.#clock, 5) // someone is just coming or going
    }
  }

  /** Who keeps us out. Undefined while nobody who lives says so, unless that has to be an answer too. */
  #refusal(whoever: boolean): LeaseError | undefined {
    const facts = { path: this.#path }
    const owner = this.#users().find(({ id }) => id === this.#state().owner)
    if (owner && (whoever || this.#lives(owner))) {
      const { name, pid, host, address, since } = owner
      const who = `${this.#path} is owned by ${name} (${describe(pid)} on ${host}, since ${time(since)})`
      const serves = address ? `, which serves it at ${address}: connect there, or stop it first` : ': stop it first'
      const sleeps = stopped(pid) ? `. It is stopped: kill -CONT ${pid} resumes it` : ''
      return new LeaseError('UNAVAILABLE', `${who}${serves}${sleeps}`, {
        facts: { ...facts, reason: 'owned', owner: pid, name, host, since, ...(address ? { address } : {}) },
      })
    }
    const users = this.#users().filter(user => this.#lives(user))
    if (this.#own && users.length > 0) {
      const pids = [...new Set(users.map(({ pid }) => pid))]
      const who = pids.map(describe).join(', ')
      return new LeaseError(
        'UNAVAILABLE',
        `${this.#path} cannot be owned while it is in shared use by ${who}: end them first, or share it too`,
        {
          facts: { ...facts, reason: 'used', users: pids },
        },
      )
    }
    if (!whoever) return undefined
    return new LeaseError('UNAVAILABLE', `${this.#path} is in use by a process that cannot be named (in another container?)`, {
      facts: { ...facts, reason: 'used' },
    })
  }

  /** The grip is ours, so whoever is still written down as owner has gone, or has lost its grip: either way its epoch ends here. */
  #register(): void {
    const state = this.#state()
    this.#examine(state)
    for (const user of this.#users()) if (!this.#lives(user)) this.#sql('delete from user where id = ?').run(user.id)
    const { pid, started } = thisProcess()
    const insert = this.#sql('insert into user (pid, started, boot, host, name, since, address) values (?, ?, ?, ?, ?, ?, ?)')
    const { name = '', address = '' } = this.#own ?? {}
    const { lastInsertRowid } = insert.run(pid, started, this.#clock.boot(), hostname(), name, Math.floor(this.#clock.wall()), address)
    const user = Number(lastInsertRowid)
    const owner = this.#own ? user : 0
    const epoch = owner === state.owner ? state.epoch : state.epoch + 1
    if (epoch !== state.epoch) this.#save({ ...state, epoch, owner })
    this.#user = user
    this.#epoch = epoch
  }

  #unregister(): void {
    const state = this.#state()
    if (state.owner === this.#user) this.#save({ ...state, owner: 0 })
    this.#sql('delete from user where id = ?').run(this.#user)
  }

  /** Nothing that was acknowledged is missing from the end. */
  #examine({ head, floor }: State): void {
    const acknowledged = this.#witness!.read()
    const last = this.#sql('select nonce from entry where idx = ?').get(head.index) as { nonce: bigint } | undefined
    if (acknowledged <= head.index && (head.index === floor.index || (last && unsigned(last.nonce) === head.nonce))) return
    // Closing the file would tidy away what is left in there for an expert to see.
    const [wal, copy] = [`${this.#path}-wal`, `${this.#path}-wal-damaged`]
    if (exists(wal) && !exists(copy)) copyFileSync(wal, copy)
    const what =
      acknowledged > head.index ? `it ends at ${head.index}, though ${acknowledged} was acknowledged` : `entry ${head.index} is missing`
    throw damaged(this.#path, what)
  }

  #lives({ pid, started, boot }: User): boolean {
    return boot === this.#clock.boot() && alive({ pid, started })
  }

  #users(): User[] {
    return (this.#sql('select * from user').all() as Row[]).map(({ id, pid, started, boot, host, name, since, address }) => ({
      ...({ started, boot, host, name, address } as Pick<User, 'started' | 'boot' | 'host' | 'name' | 'address'>),
      ...{ id: Number(id), pid: Number(pid), since: Number(since) },
    }))
  }

  #state(): State {
    const row = this.#sql('select bytes from state where one = 1').get() as { bytes: Uint8Array } | undefined
    const state = row && decodeState(row.bytes)
    if (!state) throw damaged(this.#path, 'its state does not match its checksum')
    return state
  }

  #save(state: State): void {
    this.#sql('update state set bytes = ? where one = 1').run(encodeState(state))
  }

  /** Undefined when the log contains `after` and we may still use it. */
  #locate({ index, nonce }: Position, { epoch, owner, head, floor }: State): NotThere | undefined {
    if (this.#replaced()) return { kind: 'diverged', reason: `${this.#path} was removed or replaced while it was in use` }
    if (epoch !== this.#epoch)
      return { kind: 'disowned', by: this.#users().find(({ id }) => id === owner)?.name || 'those who share it now' }
    if (index > head.index) return { kind: 'diverged', reason: `the log ends at ${head.index}, before ${index}` }
    if (index < floor.index) return { kind: 'trimmed' }
    const found = index === head.index ? head.nonce : index === floor.index ? floor.nonce : this.#nonceAt(index)
    return found === nonce ? undefined : { kind: 'diverged', reason: `another entry stands at ${index}` }
  }

  #nonceAt(index: number): bigint {
    const row = this.#sql('select nonce from entry where idx = ?').get(index) as { nonce: bigint } | undefined
    if (!row) throw damaged(this.#path, `entry ${index} is missing`)
    return unsigned(row.nonce)
  }

  #following(after: Position, head: number): Entry[] {
    const entries: Entry[] = []
    const [boot, now] = [this.#clock.boot(), this.#clock.now()]
    let bytes = 0
    for (let last = after.index; last < head && entries.length < MOST_ENTRIES; ) {
      const rows = this.#sql('select * from entry where idx > ? order by idx limit ?').all(last, ROWS) as Row[]
      if (rows.length === 0) throw damaged(this.#path, `entry ${last + 1} is missing`)
      for (const row of rows) {
        const entry = this.#entry(row, ++last, boot, now)
        bytes += entry.bytes.length
        if (entries.length > 0 && (bytes > MOST_BYTES || entries.length === MOST_ENTRIES)) return entries
        entries.push(entry)
      }
    }
    return entries
  }

  #entry(row: Row, index: number, boot: string, now: number): Entry {
    if (Number(row.idx) !== index) throw damaged(this.#path, `entry ${index} is missing`)
    const position = { index, nonce: unsigned(row.nonce as bigint) }
    const { bytes, stamp } = row as { bytes: Uint8Array; stamp: number }
    if (!(bytes instanceof Uint8Array) || Number(row.sum) !== sumOfEntry(position, String(row.boot), Number(stamp), bytes)) {
      throw damaged(this.#path, `entry ${index} does not match its checksum`)
    }
    return { position, bytes, age: age(String(row.boot), stamp, boot, now) }
  }

  #newest({ snapshot: id }: State): KeptSnapshot | undefined {
    if (id === 0) return undefined
    const row = this.#sql('select * from snapshot where id = ?').get(id) as Row | undefined
    if (!row) throw damaged(this.#path, `snapshot ${id} is missing`)
    const position = { index: Number(row.idx), nonce: unsigned(row.nonce as bigint) }
    const [boot, stamp, chunks] = [String(row.boot), Number(row.stamp), Number(row.chunks)]
    if (Number(row.sum) !== sumOfSnapshot(id, position, boot, stamp, chunks)) {
      throw damaged(this.#path, `snapshot ${id} does not match its checksum`)
    }
    return { id, position, age: age(boot, stamp, this.#clock.boot(), this.#clock.now()), chunks }
  }

  #outdated(at: Position): boolean {
    const state = this.#state()
    const elsewhere = this.#locate(at, state)
    if (elsewhere?.kind === 'disowned')
      throw new LeaseError('UNAVAILABLE', `no snapshot was kept: ${this.#path} was taken over by ${elsewhere.by}`)
    if (at.index <= (this.#newest(state)?.position.index ?? 0)) return true
    if (elsewhere?.kind === 'diverged') throw new LeaseError('DIVERGED', `no snapshot can be kept of ${at.index}: ${elsewhere.reason}`)
    return false
  }

  #replaced(): boolean {
    return statSync(this.#path, { throwIfNoEntry: false })?.ino !== this.#inode
  }

  /** One transaction, which no await interrupts. What fails before the commit certainly did not happen; a failed commit may have. */
  #write<T>(work: () => T, patience = this.#patience): Promise<T> {
    return this.#patiently(() => {
      this.#sql('begin immediate').run()
      let result: T
      try {
        result = work()
      } catch (error) {
        this.#rollback()
        throw trouble(error, this.#path)
      }
      try {
        this.#sql('commit').run()
      } catch (error) {
        // The commit may already stand in the write-ahead file and come back to life when that is recovered.
        this.#rollback()
        throw trouble(error, this.#path, 'perhaps')
      }
      return result
    }, patience)
  }

  /** One look at one moment of the file. */
  #reading<T>(look: () => T): Promise<T> {
    return this.#patiently(() => {
      this.#sql('begin').run()
      try {
        return look()
      } finally {
        this.#rollback()
      }
    })
  }

  /** Tries again while others keep the file locked: at first at once, since a commit is short, then less and less often. */
  async #patiently<T>(attempt: () => T, patience = this.#patience): Promise<T> {
    const began = this.#clock.now()
    for (let tries = 0; ; tries++) {
      if (this.#closed) throw new LeaseError('UNAVAILABLE', 'the store was closed')
      try {
        return attempt()
      } catch (error) {
        if (!isBusy(error)) throw trouble(error, this.#path)
      }
      const waited = this.#clock.now() - began
      if (waited >= patience) throw stuck(this.#path, waited)
      if (tries < 20) await new Promise<void>(resolve => this.#clock.soon(resolve))
      else await pause(this.#clock, Math.min(10, tries - 19))
    }
  }

  #rollback(): void {
    try {
      this.#sql('rollback').run()
    } catch {
      // SQLite has rolled back already
    }
  }

  #sql(text: string): Statement {
    let statement = this.#statements.get(text)
    if (!statement) {
      statement = this.#db!.prepare(text)
      statement.setReadBigInts(true)
      this.#statements.set(text, statement)
    }
    return statement
  }
}

/** Written with every append: a few fixed fields and their checksum. */
export function encodeState({ epoch, head, floor, snapshot, owner }: State): Uint8Array {
  const bytes = Buffer.allocUnsafe(60)
  for (const [i, field] of [epoch, head.index, floor.index, snapshot, owner].entries()) bytes.writeDoubleLE(field, i * 8)
  bytes.writeBigUInt64LE(head.nonce, 40)
  bytes.writeBigUInt64LE(floor.nonce, 48)
  bytes.writeUInt32LE(crc32(bytes.subarray(0, 56)), 56)
  return bytes
}

export function decodeState(bytes: Uint8Array): State | undefined {
  if (bytes.length !== 60) return undefined
  const view = Buffer.from(bytes.buffer, bytes.byteOffset, 60)
  if (view.readUInt32LE(56) !== crc32(view.subarray(0, 56))) return undefined
  return {
    epoch: view.readDoubleLE(0),
    head: { index: view.readDoubleLE(8), nonce: view.readBigUInt64LE(40) },
    floor: { index: view.readDoubleLE(16), nonce: view.readBigUInt64LE(48) },
    snapshot: view.readDoubleLE(24),
    owner: view.readDoubleLE(32),
  }
}

const fixed = Buffer.alloc(24)

function sumOfEntry({ index, nonce }: Position, boot: string, stamp: number, bytes: Uint8Array): number {
  fixed.writeDoubleLE(index, 0)
  fixed.writeBigUInt64LE(nonce, 8)
  fixed.writeDoubleLE(stamp, 16)
  return crc32(bytes, crc32(boot, crc32(fixed)))
}

function sumOfSnapshot(id: number, { index, nonce }: Position, boot: string, stamp: number, chunks: number): number {
  return crc32([id, index, nonce, boot, stamp, chunks].join())
}

function sumOfChunk(id: number, bytes: Uint8Array): number {
  return crc32(bytes, crc32(String(id)))
}

/** Only a stamp of this boot can be compared with our clock. */
function age(boot: string, stamp: number, ours: string, now: number): number {
  return boot === ours && boot !== '' ? Math.max(0, now - stamp) : 0
}

/** SQLite's integers are signed. */
function signed(nonce: bigint): bigint {
  return BigInt.asIntN(64, nonce)
}

function unsigned(nonce: bigint): bigint {
  return BigInt.asUintN(64, nonce)
}

function size(entries: readonly Entry[]): number {
  return entries.reduce((sum, { bytes }) => sum + bytes.length, 0)
}

function exists(path: string): boolean {
  return statSync(path, { throwIfNoEntry: false }) !== undefined
}

function time(wall: number): string {
  return `${new Intl.DateTimeFormat('sv-SE', { dateStyle: 'short', timeStyle: 'medium', timeZone: 'UTC' }).format(wall)} UTC`
}
