/**
 * A log in its files: PATH says who owns it and has the lock of one append, PATH-log has the segments and snapshots, PATH-head the last acknowledged position.
 *
 * A damaged log is refused and left as it is.
 */
import { lstatSync, truncateSync } from 'node:fs'
import { dirname } from 'node:path'
import { type Clock, pause, systemClock } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import { createPrivately, makeFolder, makePrivateIfEmpty, mustBePlain, mustBePrivate, mustBePrivateFolder } from '../../private-file.ts'
import type { Appended, LogRecord, Opened, Position, Read, Rejected, Snapshot } from '../../store.ts'
import type { Ownership } from '../store-module.ts'
import { FileDatabase } from './database.ts'
import type { Engine } from './engine.ts'
import { damaged, fileError, untouched } from './errors.ts'
import { HeadFile } from './head-file.ts'
import { readHeader } from './inspection.ts'
import { DiskFolder, type LogFolder } from './log-folder.ts'
import { SegmentLog } from './segment-log.ts'
import { TEMPORARY } from './segment-maker.ts'
import { SnapshotFiles } from './snapshot-files.ts'
import { FileUsers } from './users.ts'

/** For how long, in ms, this process does not take the lock again if another one waits for it. Those that wait try about every millisecond. */
const YIELD = 3
/** An owner keeps the lock of one append for so long, in ms, before it looks whether it still needs the lock. */
const LOOK = 250

export interface FileLogOptions {
  readonly path: string
  readonly engine: Engine
  readonly clock?: Clock
  /** Other processes may keep the file locked this long, in ms, before a call fails and names them. */
  readonly timeout: number
  readonly own?: Ownership
}

export class FileLog {
  readonly #path: string
  readonly #engine: Engine
  readonly #clock: Clock
  readonly #timeout: number
  readonly #own: Ownership | undefined
  readonly #folder: LogFolder
  readonly #segments: SegmentLog
  readonly #snapshots: SnapshotFiles
  #database!: FileDatabase
  #users: FileUsers | undefined
  #headFile: HeadFile | undefined
  /** The last process that waited for the lock has written this, as far as this one has seen or written it. */
  #waiting = 0n
  /** Until when this process leaves the lock to others. */
  #yieldUntil = 0
  #epoch = 0
  /** Records up to this index may be trimmed. */
  #floor = 0
  /** A record was appended since the last look at the lock that this owner keeps. */
  #isAppending = false
  #cancelLook = () => {}
  /** Of an owner: the position that is being written to PATH-head. */
  #publishing: Position | undefined
  #onPublished: (() => void) | undefined

  constructor({ path, engine, clock = systemClock, timeout, own }: FileLogOptions) {
    this.#path = path
    this.#engine = engine
    this.#clock = clock
    this.#timeout = timeout
    this.#own = own
    this.#folder = new DiskFolder(`${path}-log`)
    const files = { folder: this.#folder, clock, path, writer: () => String(this.#users?.me ?? 0) }
    this.#segments = new SegmentLog(files)
    this.#snapshots = new SnapshotFiles(files)
  }

  async open(): Promise<Opened> {
    const [path, engine, clock, timeout] = [this.#path, this.#engine, this.#clock, this.#timeout]
    try {
      makeFolder(dirname(path))
      mustBePlain(path)
      readHeader(path, () => acknowledgedIn(path))
      mustBePrivateFiles(path)
      this.#createFile()
      const database = new FileDatabase({ path, engine, clock, timeout, onWait: () => this.#tellThatWaits() })
      this.#database = database
      await database.recognize(acknowledgedIn(path))
      // From here on the file is known to be ours.
      if (mustBePrivate(`${path}-owner`) === undefined) createPrivately(`${path}-owner`, clock)
      const users = new FileUsers(database, engine, clock, this.#own)
      await users.enter(timeout)
      this.#users = users
      makeFolder(`${path}-log`)
      await database.locked(() => this.#load())
      this.#epoch = await database.write(() => users.register())
      const snapshot = await this.#snapshots.newest()
      this.#floor = (await this.#snapshots.positions())[1]?.index ?? 0
      const at = snapshot?.position.index ?? 0
      if (at < this.#segments.floor.index) throw damaged(path, `record ${at + 1} is missing`)
      return { head: this.#segments.end.position, ...(snapshot && { snapshot }) }
    } catch (error) {
      const described = untouched(fileError(error, path)) // before the locks are released: it may name who holds them
      await this.#closeFiles()
      throw described
    }
  }

  /** Finds the end of the log. With the lock. */
  async #load(): Promise<void> {
    const { log } = this.#database.state()
    await this.#removeTemporary() // first: they may have the names that are used next
    await this.#segments.load(log, acknowledgedIn(this.#path), this.#users!.hadUsers())
    this.#headFile = new HeadFile(`${this.#path}-head`)
    await this.#publish(this.#segments.end.position)
  }

  /** Removes what killed processes were writing. A file is named after the row of its process; 0 is that of a process that opens the log, with the lock. */
  async #removeTemporary(): Promise<void> {
    const living = this.#users!.living()
    for (const name of await this.#folder.list())
      if (name.endsWith(TEMPORARY) && !living.has(Number(name.split('-')[1]))) await this.#folder.remove(name)
  }

  append(bytes: Uint8Array, after: Position): Promise<Appended> {
    const isShared = this.#own === undefined || this.#yieldUntil > 0
    return isShared ? this.#appendAfterOthers(bytes, after) : this.#database.locked(this.#append, bytes, after)
  }

  async #appendAfterOthers(bytes: Uint8Array, after: Position): Promise<Appended> {
    const rest = this.#yieldUntil - this.#clock.now()
    if (rest > 0) await pause(this.#clock, rest, undefined, { ref: true })
    return this.#database.locked(async () => {
      if (this.#own === undefined) await this.#catchUp()
      const appended = await this.#append(bytes, after)
      if (this.#own === undefined) this.#yieldIfOthersWait()
      return appended
    })
  }

  /** With the lock. */
  readonly #append = async (bytes: Uint8Array, after: Position): Promise<Appended> => {
    const segments = this.#segments
    if (segments.isBroken) await segments.catchUp(segments.end.position.index)
    const head = segments.end.position
    if (after.index !== head.index || after.nonce !== head.nonce || !this.#database.isLockKept || this.#database.replaced()) {
      const rejected = await this.#locate(after, head)
      if (rejected) return rejected
    }
    const gap = head.index - after.index
    const missed = gap === 0 ? NOTHING : await segments.read(after, head.index)
    const position = await segments.append(bytes, this.#clock.bits())
    if (this.#own === undefined) await this.#publish(position)
    // No other process reads it while this one lives, and the next owner finds the end by itself.
    else if (this.#publishing === undefined) {
      this.#publishing = position
      this.#headFile!.publish(position, this.#published)
    }
    this.#isAppending = true
    if (this.#own !== undefined && !this.#database.isLockKept) this.#keepLock()
    return missed?.length === gap ? { kind: 'appended', position, missed } : { kind: 'behind', position }
  }

  /**
   * Of an owner: keeps the lock of one append while it appends again and again. No other process needs the lock then, and as long as it is held, none can have changed
   * the epoch. If PATH-owner is removed, so that another process can take the log over, the next look gives the lock up. From then on each append takes it and
   * compares the epoch, and leaves the lock to others for a moment, as in a shared log.
   */
  #keepLock(): void {
    if (this.#users!.hasLostLock()) {
      this.#yieldUntil = this.#clock.now() + YIELD
      return
    }
    this.#database.keepLock()
    this.#planLook()
  }

  #planLook(): void {
    this.#isAppending = false
    this.#cancelLook()
    this.#cancelLook = this.#clock.after(LOOK, () => {
      if (!this.#database.isLockKept) return
      if (this.#isAppending && !this.#users!.hasLostLock()) this.#planLook()
      else this.#database.giveUpLock()
    })
  }

  #tellThatWaits(): void {
    this.#waiting = this.#clock.bits()
    this.#headFile?.markWaiting(this.#waiting)
  }

  /** A process that appends one record after the other would otherwise always have the lock. */
  #yieldIfOthersWait(): void {
    const waiting = this.#headFile!.waiting()
    if (waiting === this.#waiting) return
    this.#waiting = waiting
    this.#yieldUntil = this.#clock.now() + YIELD
  }

  /** With the lock of a shared log. */
  async #catchUp(): Promise<void> {
    const head = this.#segments.end.position
    const published = this.#headFile!.read() ?? head
    const isOther = published.index < head.index || (published.index === head.index && published.nonce !== head.nonce)
    try {
      if (!isOther) return await this.#segments.catchUp(published.index)
    } catch (error) {
      if (!(error instanceof LeaseError) || error.reason !== 'damaged') throw error
    }
    // The log is not the one that was known here: it lost its tail, or it is damaged. Which of the two is decided from its first segment on.
    await this.#segments.load(this.#database.state().log, published.index, true)
  }

  #publish(position: Position): Promise<void> {
    return new Promise(resolve => this.#headFile!.publish(position, resolve))
  }

  /** Of an owner. */
  readonly #published = (): void => {
    const head = this.#segments.end.position
    if (head.index === this.#publishing?.index) {
      this.#publishing = undefined
      return this.#onPublished?.()
    }
    this.#publishing = head
    this.#headFile!.publish(head, this.#published)
  }

  async read(after: Position): Promise<Read> {
    const last = this.#end()
    const rejected = await this.#locate(after, last)
    if (rejected) return rejected
    const records = await this.#segments.read(after, last.index)
    return records === undefined ? { kind: 'trimmed' } : { kind: 'records', records }
  }

  /** Returns how far this store may read. */
  #end(): Position {
    const head = this.#segments.end.position
    // While another process writes it, it may not match its checksum. What is known here is durable.
    return this.#own === undefined ? (this.#headFile!.read() ?? head) : head
  }

  /** The last record that was published, and the epoch: cheap, to tell whether something has changed. */
  look(): string {
    const { index, nonce } = this.#end()
    return [index, nonce, this.#database.replaced(), this.#database.peek()?.epoch ?? this.#epoch].join()
  }

  async snapshot(at: Position, bytes: AsyncIterable<Uint8Array>): Promise<'kept' | 'older'> {
    if (await this.#isOutdated(at)) return 'older'
    const file = await this.#snapshots.write(at, bytes)
    try {
      return await this.#database.locked(async () => {
        if (await this.#isOutdated(at)) {
          await file.drop()
          return 'older' // another process was quicker
        }
        const before = (await this.#snapshots.positions())[0]
        await this.#snapshots.keep(file, at)
        this.#floor = before?.index ?? 0
        await this.#trim()
        return 'kept'
      })
    } catch (error) {
      await file.drop()
      throw error
    }
  }

  newest(): Promise<Snapshot | undefined> {
    return this.#snapshots.newest()
  }

  /** Publishes where this owner serves the log. */
  announce(address: string): Promise<void> {
    return this.#database.write(() => this.#users!.announce(address))
  }

  async close(): Promise<void> {
    const users = this.#users
    if (!users) return
    try {
      if (this.#publishing !== undefined) await new Promise<void>(resolve => (this.#onPublished = resolve))
      await this.#database.write(() => users.unregister(), Math.min(this.#timeout, 500))
    } catch {
      // The row stays behind. Other processes see that its process has ended.
    } finally {
      await this.#closeFiles()
    }
  }

  async #closeFiles(): Promise<void> {
    this.#cancelLook()
    await this.#segments.close().catch(() => {})
    await this.#database?.close()
    this.#headFile?.close()
    this.#users?.leave() // last: until here this process may have been writing
    this.#headFile = this.#users = undefined
  }

  #createFile(): void {
    const path = this.#path
    const hasRecords = exists(`${path}-log`)
    if (exists(path)) {
      // The folder is made after the tables.
      if (hasRecords && lstatSync(path).size === 0) throw damaged(path, `it is empty, although ${path}-log has the records of a log`)
      const acknowledged = hasRecords ? 0 : acknowledgedIn(path)
      if (acknowledged > 0) throw damaged(path, `${path}-log is missing, although ${acknowledged} records were acknowledged`)
      return
    }
    if (hasRecords) throw damaged(path, `it is missing, and ${path}-log has the records of a log`, { untouched: true })
    // The last position of a log that was deleted. The file itself stays: another process may be creating the log as well.
    if (exists(`${path}-head`)) truncateSync(`${path}-head`, 0)
    createPrivately(path, this.#clock)
  }

  /** Removes what no reader can ask for any more. A failure leaves it for the next snapshot. */
  async #trim(): Promise<void> {
    await this.#snapshots.trim().catch(() => {})
    await this.#segments.trim(this.#floor).catch(() => {})
  }

  async #isOutdated(at: Position): Promise<boolean> {
    const rejected = await this.#locate(at, this.#end())
    if (rejected?.kind === 'disowned')
      throw new LeaseError('UNAVAILABLE', `no snapshot was saved: ${this.#path} was taken over by ${rejected.by}`, {
        reason: 'owned',
        facts: { path: this.#path, name: rejected.by },
      })
    if (at.index <= ((await this.#snapshots.positions())[0]?.index ?? 0)) return true
    if (rejected?.kind === 'diverged') throw new LeaseError('DIVERGED', `no snapshot can be kept of ${at.index}: ${rejected.reason}`)
    return false
  }

  /** Undefined if the log contains the position and this store may still use it. */
  async #locate({ index, nonce }: Position, head: Position): Promise<Rejected | undefined> {
    if (this.#database.replaced()) return { kind: 'diverged', reason: `${this.#path} was removed or replaced while it was in use` }
    if (!this.#database.isLockKept) {
      const { epoch, owner } = await this.#database.read(() => this.#database.state())
      if (epoch !== this.#epoch) {
        const name = await this.#database.read(() => this.#users!.nameOf(owner))
        return { kind: 'disowned', by: name ?? 'processes that share it now' }
      }
    }
    if (index > head.index) return { kind: 'diverged', reason: `the log ends at ${head.index}, before ${index}` }
    if (index < this.#floor) return { kind: 'trimmed' }
    const found = index === head.index ? head.nonce : await this.#segments.nonceAt(index)
    if (found === undefined) return { kind: 'trimmed' }
    return found === nonce ? undefined : { kind: 'diverged', reason: `another record is at ${index}` }
  }
}

/** The number of records that are known to have been in the log. */
function acknowledgedIn(path: string): number {
  return HeadFile.read(`${path}-head`)?.index ?? 0
}

const NOTHING: readonly LogRecord[] = []

/** The log and all files beside it: SQLite trusts what it finds there. */
function mustBePrivateFiles(path: string): void {
  for (const side of ['', '-owner', '-head']) mustBePrivate(`${path}${side}`)
  for (const side of ['-journal', '-owner-journal']) makePrivateIfEmpty(`${path}${side}`)
  mustBePrivateFolder(`${path}-log`)
}

function exists(path: string): boolean {
  return lstatSync(path, { throwIfNoEntry: false }) !== undefined
}
