/**
 * Looks at a file before anything of ours may write to it, so that an open which is refused changes nothing.
 *
 * SQLite changes files that it merely opens. It deletes the write-ahead file of an empty database, it plays back the journal of another
 * program, and the connection that is closed last copies the write-ahead file into the database, even one that belongs to an earlier day of
 * it. So the header is read first. Then a log that has a write-ahead file, and that no process has open, is read to its end over links in a
 * folder of its own, by a connection without the right to write: neither the log nor what lies beside it is touched.
 */
import { closeSync, constants, copyFileSync, linkSync, lstatSync, mkdtempSync, openSync, readFileSync, readSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { type Clock, pause } from '../clock.ts'
import type { Database, Engine, Value } from './file-engine.ts'
import { Grip } from './file-grip.ts'
import { decodeState, type Stamp, sumOfChunk, sumOfEntry, sumOfSnapshot, unsigned } from './file-record.ts'
import { APPLICATION, foreign, recognize, TABLES } from './file-schema.ts'
import { CHUNKS } from './file-snapshots.ts'
import { damaged, isBusy } from './file-trouble.ts'

const MAGIC = 'SQLite format 3\0'
const HEADER = 100
/** Whoever keeps the file to itself for longer than this, and cannot be seen, uses it: an inspection is shorter. */
const INSPECTION = 300

export interface Inspected {
  readonly path: string
  readonly engine: Engine
  readonly clock: Clock
  /** So many entries are known to have been acknowledged. */
  readonly acknowledged: number
}

/** Throws what is wrong with a file whose header is ours. Says whether every page of it was looked at. */
export async function inspect(of: Inspected): Promise<'whole' | 'header'> {
  const { path } = of
  const [size, wal] = [sizeOf(path), sizeOf(`${path}-wal`)]
  if ((size ?? 0) === 0) {
    if ((wal ?? 0) > 0) throw damaged(path, `it ${size === 0 ? 'is empty' : 'is missing'}, though ${path}-wal holds entries`)
    return 'header'
  }
  if ((wal ?? 0) === 0) return 'header'
  const grip = await alone(of)
  if (grip === undefined) return 'header' // the processes that use it have looked
  try {
    overLinks(of, db => verify(of, db))
    return 'whole'
  } finally {
    grip.release()
  }
}

/** Waits until no other process looks at the file. Undefined when one has it open. */
async function alone({ path, engine, clock }: Inspected): Promise<Pick<Grip, 'release'> | undefined> {
  const began = clock.now()
  for (;;) {
    if (sizeOf(`${path}-owner`) === undefined) return openBy(path) === 'nobody' ? { release: () => {} } : undefined
    const grip = new Grip(engine, `${path}-owner`, true)
    try {
      grip.take()
      return grip
    } catch (error) {
      grip.release()
      if (!isBusy(error)) throw error
    }
    if (openBy(path) !== 'nobody' || clock.now() - began > INSPECTION) return undefined
    await pause(clock, 5)
  }
}

/** Each connection has a lock on the database, or on the index of its write-ahead file. */
function openBy(path: string): 'us' | 'others' | 'nobody' {
  const found = [path, `${path}-shm`].map(file => lstatSync(file, { throwIfNoEntry: false })?.ino)
  let locks: string
  try {
    locks = readFileSync('/proc/locks', 'latin1')
  } catch {
    // No such list on this system. The index is removed with the last connection, unless that crashed.
    return found[1] === undefined ? 'nobody' : 'us'
  }
  // 1: POSIX  ADVISORY  READ 12350 fe:00:10002488 128 128
  const pids = locks.split('\n').flatMap(line => {
    const [, pid, inode] = /\s(-?\d+) \w+:\w+:(\d+) /.exec(line) ?? []
    return found.includes(Number(inode)) ? [Number(pid)] : []
  })
  return pids.includes(process.pid) ? 'us' : pids.length > 0 ? 'others' : 'nobody'
}

/**
 * Throws when the header says that it is not ours. `acknowledged` is asked for then: a file that was ours once is damaged.
 * A file that this process has open is known to be ours, and to open and close it once more would release SQLite's locks on it.
 */
export function readHeader(path: string, acknowledged: () => number): void {
  if ((sizeOf(path) ?? 0) === 0 || openBy(path) === 'us') return
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
    throw foreign(path, 'no database', acknowledged())
  }
  // A log without an application has crashed in the moment of its creation: it has no table yet, or it has its tables in the write-ahead file.
  if (application !== APPLICATION && (application !== 0 || pages(header) > 1))
    throw foreign(path, 'a database of another program', acknowledged())
}

function pages(header: Buffer): number {
  return header.readUInt32BE(28)
}

function overLinks({ path, engine }: Inspected, look: (db: Database) => void): void {
  const folder = mkdtempSync(`${path}-look-`)
  try {
    const there = join(folder, 'log')
    for (const side of ['', '-wal']) linkOrCopy(`${path}${side}`, `${there}${side}`)
    const db = new engine.DatabaseSync(there, { timeout: 0, readOnly: true })
    try {
      look(db)
    } finally {
      db.close()
    }
  } finally {
    rmSync(folder, { recursive: true })
  }
}

function linkOrCopy(from: string, to: string): void {
  try {
    linkSync(from, to)
  } catch {
    copyFileSync(from, to, constants.COPYFILE_FICLONE) // not every file system has links
  }
}

/** Everything that a replica reads when it opens the log. */
function verify({ path, acknowledged }: Inspected, db: Database): void {
  const rows = reader(db)
  const one = (sql: string) => rows(sql)[0]?.[0]
  const described = {
    application: Number(one('select application_id from pragma_application_id')),
    version: Number(one('select user_version from pragma_user_version')),
    vacuum: Number(one('select auto_vacuum from pragma_auto_vacuum')),
    tables: rows(TABLES).map(([sql]) => String(sql)),
  }
  if (recognize(path, described, acknowledged) === 'empty') return
  const wrong = one('select quick_check from pragma_quick_check')
  if (wrong !== 'ok') throw damaged(path, String(wrong))
  const bytes = one('select bytes from state where one = 1')
  const state = bytes instanceof Uint8Array ? decodeState(bytes) : undefined
  if (!state) throw damaged(path, 'its state does not match its checksum')
  const { head, floor, snapshot } = state
  if (acknowledged > head.index) throw damaged(path, `it ends at ${head.index}, though ${acknowledged} was acknowledged`)

  let last = { index: floor.index, nonce: floor.nonce }
  const entries = `select idx, cast(nonce as text), boot, stamp, bytes, sum from entry where idx > ${floor.index} and idx <= ${head.index} order by idx`
  rows(entries, ([idx, nonce, boot, at, bytes, sum]) => {
    last = { index: last.index + 1, nonce: unsigned(BigInt(String(nonce))) }
    if (Number(idx) !== last.index) throw damaged(path, `entry ${last.index} is missing`)
    if (Number(sum) !== sumOfEntry(last, stampOf(boot, at), blob(bytes)))
      throw damaged(path, `entry ${last.index} does not match its checksum`)
  })
  if (last.index !== head.index) throw damaged(path, `entry ${last.index + 1} is missing`)
  if (last.nonce !== head.nonce) throw damaged(path, `entry ${head.index} is another`)
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
  rows(`select id, bytes, sum from chunk where id >= ${id * CHUNKS} and id < ${(id + 1) * CHUNKS} order by id`, ([chunk, bytes, sum]) => {
    const expected = id * CHUNKS + number
    if (Number(chunk) !== expected) throw damaged(path, `part ${number} of snapshot ${id} is missing`)
    if (Number(sum) !== sumOfChunk(expected, blob(bytes)))
      throw damaged(path, `part ${number} of snapshot ${id} does not match its checksum`)
    number++
  })
  if (number !== Number(chunks)) throw damaged(path, `part ${number} of snapshot ${id} is missing`)
}

type Rows = (sql: string, each?: (row: Value[]) => void) => Value[][]

/**
 * Reads without a prepared statement: one that is not collected yet would keep its connection open, and with it the index of the write-ahead
 * file that lies in our folder. A later connection of this process would then use that index, which no other process knows.
 */
function reader(db: Database): Rows {
  let take: (row: Value[]) => void
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
    const found: Value[][] = []
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

function stampOf(boot: Value | undefined, at: Value | undefined): Stamp {
  return { boot: String(boot), at: Number(at) }
}

function blob(value: Value | undefined): Uint8Array {
  return value instanceof Uint8Array ? value : new Uint8Array()
}

function sizeOf(path: string): number | undefined {
  return lstatSync(path, { throwIfNoEntry: false })?.size
}
