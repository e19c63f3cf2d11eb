/**
 * Inspects a file before SQLite may write to it, so that a refused open changes nothing.
 *
 * SQLite changes files that it merely opens. It deletes the write-ahead file of an empty database, it plays back the journal of another
 * program, and the last connection to close copies the write-ahead file into the database, even one from an older copy of the database. So
 * the header is read first. Then a log that has a write-ahead file, and that no process has open, is read to its end by a read-only
 * connection over links in a folder of its own: neither the log nor the files beside it are touched.
 */
import {
  closeSync,
  constants,
  copyFileSync,
  linkSync,
  lstatSync,
  mkdtempSync,
  openSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  readSync,
  rmSync,
} from 'node:fs'
import { basename, dirname, join } from 'node:path'
import { type Clock, pause } from '../../clock.ts'
import type { Database, Engine, SqliteValue } from './engine.ts'
import { damaged, isBusy } from './errors.ts'
import { FileLock } from './file-lock.ts'
import { decodeState, type Stamp, sumOfChunk, sumOfRecord, sumOfSnapshot, unsigned } from './record.ts'
import { APPLICATION, foreign, recognize, TABLES } from './schema.ts'
import { MAX_CHUNKS } from './snapshots.ts'

const MAGIC = 'SQLite format 3\0'
const HEADER = 100
/** After the path: the folder of a process that inspects the file. */
const INSPECTING = '-look-'
/** After this many attempts that found the lock taken but no such folder, the lock belongs to a process that uses the log. */
const CERTAIN = 3

export interface Inspection {
  readonly path: string
  readonly engine: Engine
  readonly clock: Clock
  /** The number of records that are known to have been acknowledged. */
  readonly acknowledged: number
  /** How long, in ms, to wait for other processes. */
  readonly timeout: number
}

/** Tells whether every page was checked, or only the header. */
export type Inspected = 'whole' | 'header'

/** Throws if a file with our header is damaged. */
export async function inspect(inspection: Inspection): Promise<Inspected> {
  const { path } = inspection
  const [size, wal] = [sizeOf(path), sizeOf(`${path}-wal`)]
  if ((size ?? 0) === 0) {
    if ((wal ?? 0) > 0) throw damaged(path, `it ${size === 0 ? 'is empty' : 'is missing'}, although ${path}-wal holds records`)
    return 'header'
  }
  if ((wal ?? 0) === 0) return 'header'
  return whileUnused(inspection, folder => overLinks(inspection, folder, db => verify(inspection, db)))
}

/**
 * Runs `look` while no process has the file open, in a folder that exists as long as the work takes. `header` if processes have the file open:
 * they have inspected it. A process that is inspecting has the lock as well, but also a folder, and it may still refuse the file.
 */
async function whileUnused({ path, engine, clock, timeout }: Inspection, look: (folder: string) => Inspected): Promise<Inspected> {
  const began = clock.now()
  for (let unseen = 0; ; ) {
    const folder = mkdtempSync(`${path}${INSPECTING}`)
    try {
      if (sizeOf(`${path}-owner`) === undefined) {
        return isOpen(path) ? 'header' : look(folder)
      }
      const lock = new FileLock(engine, `${path}-owner`, true)
      try {
        lock.take()
        return look(folder)
      } catch (error) {
        if (!isBusy(error)) throw error
      } finally {
        lock.release()
      }
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
    unseen = othersInspect(path) ? 0 : unseen + 1
    // A process in another container cannot be seen.
    if (isOpen(path) || unseen === CERTAIN || clock.now() - began > timeout) return 'header'
    await pause(clock, 5)
  }
}

function othersInspect(path: string): boolean {
  return readdirSync(dirname(path)).some(name => name.startsWith(`${basename(path)}${INSPECTING}`))
}

/** Each connection to a log has a lock on the index of its write-ahead file. An inspection over links has an index of its own. */
function isOpen(path: string): boolean {
  return lockedBy([`${path}-shm`]) !== 'none'
}

/** Which processes have a lock on one of the files. */
function lockedBy(files: readonly [...string[], index: string]): 'self' | 'others' | 'none' {
  const found = files.map(file => lstatSync(file, { throwIfNoEntry: false })?.ino)
  let locks: string
  let me: number
  try {
    locks = readFileSync('/proc/locks', 'latin1')
    me = Number(readlinkSync('/proc/self')) // our pid in this list: it may be that of another pid namespace
  } catch {
    // This system has no such list. The last connection removes the index, unless it crashed.
    return found.at(-1) === undefined ? 'none' : 'self'
  }
  // 1: POSIX  ADVISORY  READ 12350 fe:00:10002488 128 128
  const pids = locks.split('\n').flatMap(line => {
    const [, pid, inode] = /\s(-?\d+) \w+:\w+:(\d+) /.exec(line) ?? []
    return found.includes(Number(inode)) ? [Number(pid)] : []
  })
  return pids.includes(me) ? 'self' : pids.length > 0 ? 'others' : 'none'
}

/**
 * Throws if the header is not that of a log of ours. `acknowledged` is called then: a file that was ours once is damaged.
 * A file that this process has open is known to be ours. Opening and closing it once more would release SQLite's locks on it.
 */
export function readHeader(path: string, acknowledged: () => number): void {
  if ((sizeOf(path) ?? 0) === 0 || lockedBy([path, `${path}-shm`]) === 'self') return
  const header = Buffer.alloc(HEADER)
  const file = openSync(path, constants.O_RDONLY | (constants.O_NOFOLLOW ?? 0))
  let length: number
  try {
    length = readSync(file, header, 0, HEADER, 0)
  } finally {
    closeSync(file)
  }
  const application = header.readUInt32BE(68)
  if (length < HEADER || header.toString('latin1', 0, MAGIC.length) !== MAGIC) {
    if (application === APPLICATION) throw damaged(path, 'its header is not that of a database')
    throw foreign(path, 'a file of another kind', acknowledged())
  }
  // A log without an application id comes from a crash during its creation: it has no tables yet, or has them in the write-ahead file.
  if (application !== APPLICATION && (application !== 0 || pages(header) > 1))
    throw foreign(path, 'a database of another program', acknowledged())
}

function pages(header: Buffer): number {
  return header.readUInt32BE(28)
}

function overLinks({ path, engine }: Inspection, folder: string, look: (db: Database) => void): Inspected {
  const there = join(folder, 'log')
  linkOrCopy(path, there)
  try {
    linkOrCopy(`${path}-wal`, `${there}-wal`)
  } catch (error) {
    // The last process that had the log open has closed it since, and with that removed this file.
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return 'header'
    throw error
  }
  const db = new engine.DatabaseSync(there, { timeout: 0, readOnly: true })
  try {
    look(db)
    return 'whole'
  } finally {
    db.close()
  }
}

function linkOrCopy(from: string, to: string): void {
  try {
    linkSync(from, to)
  } catch {
    copyFileSync(from, to, constants.COPYFILE_FICLONE) // not every file system has links
  }
}

/** Checks everything that a replica reads when it opens the log. */
function verify({ path, acknowledged }: Inspection, db: Database): void {
  const rows = reader(db)
  const one = (sql: string) => rows(sql)[0]?.[0]
  const described = {
    application: Number(one('select application_id from pragma_application_id')),
    version: Number(one('select user_version from pragma_user_version')),
    vacuum: Number(one('select auto_vacuum from pragma_auto_vacuum')),
    tables: rows(TABLES).map(([sql]) => String(sql)),
  }
  if (recognize(path, described, acknowledged) === 'empty') return
  const result = one('select quick_check from pragma_quick_check')
  if (result !== 'ok') throw damaged(path, String(result))
  const bytes = one('select bytes from state where one = 1')
  const state = bytes instanceof Uint8Array ? decodeState(bytes) : undefined
  if (!state) throw damaged(path, 'its state does not match its checksum')
  const { head, floor, snapshot } = state
  if (acknowledged > head.index) throw damaged(path, `it ends at ${head.index}, although ${acknowledged} was acknowledged`)

  let last = { index: floor.index, nonce: floor.nonce }
  const records = `select idx, cast(nonce as text), boot, stamp, bytes, sum from entry where idx > ${floor.index} and idx <= ${head.index} order by idx`
  rows(records, ([idx, nonce, boot, at, bytes, sum]) => {
    last = { index: last.index + 1, nonce: unsigned(BigInt(String(nonce))) }
    if (Number(idx) !== last.index) throw damaged(path, `record ${last.index} is missing`)
    if (Number(sum) !== sumOfRecord(last, stampOf(boot, at), blob(bytes)))
      throw damaged(path, `record ${last.index} does not match its checksum`)
  })
  if (last.index !== head.index) throw damaged(path, `record ${last.index + 1} is missing`)
  if (last.nonce !== head.nonce) throw damaged(path, `record ${head.index} is another one`)
  if (snapshot !== 0) verifySnapshot(path, snapshot, rows)
}

function verifySnapshot(path: string, id: number, rows: Rows): void {
  const [row] = rows(`select idx, cast(nonce as text), boot, stamp, chunks, sum from snapshot where id = ${id}`)
  if (!row) throw damaged(path, `snapshot ${id} is missing`)
  const [idx, nonce, boot, at, chunks, sum] = row
  const position = { index: Number(idx), nonce: unsigned(BigInt(String(nonce))) }
  if (Number(sum) !== sumOfSnapshot(id, position, stampOf(boot, at), Number(chunks)))
    throw damaged(path, `snapshot ${id} does not match its checksum`)
  let number = 0
  rows(
    `select id, bytes, sum from chunk where id >= ${id * MAX_CHUNKS} and id < ${(id + 1) * MAX_CHUNKS} order by id`,
    ([chunk, bytes, sum]) => {
      const expected = id * MAX_CHUNKS + number
      if (Number(chunk) !== expected) throw damaged(path, `part ${number} of snapshot ${id} is missing`)
      if (Number(sum) !== sumOfChunk(expected, blob(bytes)))
        throw damaged(path, `part ${number} of snapshot ${id} does not match its checksum`)
      number++
    },
  )
  if (number !== Number(chunks)) throw damaged(path, `part ${number} of snapshot ${id} is missing`)
}

type Rows = (sql: string, each?: (row: SqliteValue[]) => void) => SqliteValue[][]

/**
 * Reads without a prepared statement. A statement that is not garbage-collected yet would keep its connection open, and with it the index of
 * the write-ahead file in our folder. A later connection of this process would then use that index, which no other process sees.
 */
function reader(db: Database): Rows {
  let take: (row: SqliteValue[]) => void
  let thrown: unknown
  db.function('leasehold_row', { varargs: true }, (...row) => {
    try {
      if (thrown === undefined) take(row.map(value => (value instanceof Uint8Array ? value.slice() : value)))
    } catch (error) {
      thrown = error
    }
    return null
  })
  return (sql, each) => {
    const found: SqliteValue[][] = []
    take = each ?? (row => void found.push(row))
    thrown = undefined
    const [columns, rest] = split(sql)
    db.exec(`select leasehold_row(${columns}) ${rest}`)
    if (thrown !== undefined) throw thrown
    return found
  }
}

function split(sql: string): [columns: string, rest: string] {
  const from = sql.indexOf(' from ')
  return [sql.slice('select '.length, from), sql.slice(from + 1)]
}

function stampOf(boot: SqliteValue | undefined, at: SqliteValue | undefined): Stamp {
  return { boot: String(boot), at: Number(at) }
}

function blob(value: SqliteValue | undefined): Uint8Array {
  return value instanceof Uint8Array ? value : new Uint8Array()
}

function sizeOf(path: string): number | undefined {
  return lstatSync(path, { throwIfNoEntry: false })?.size
}
