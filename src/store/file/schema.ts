/** What our tables are, and what a file says of itself: is it ours, and of a version that we know? */
import { LeaseError } from '../../errors.ts'
import { damaged } from './errors.ts'

/** 'Leas', in the header of the file: SQLite keeps a place for it. */
export const APPLICATION = 0x4c656173
export const VERSION = 1
export const SCHEMA = [
  'CREATE TABLE state (one INTEGER PRIMARY KEY, bytes BLOB NOT NULL)',
  'CREATE TABLE entry (idx INTEGER PRIMARY KEY, nonce INTEGER NOT NULL, boot TEXT NOT NULL, stamp REAL NOT NULL, bytes BLOB NOT NULL, sum INTEGER NOT NULL)',
  // Complete once it has no writer any more.
  'CREATE TABLE snapshot (id INTEGER PRIMARY KEY AUTOINCREMENT, idx INTEGER NOT NULL, nonce INTEGER NOT NULL, boot TEXT NOT NULL, stamp REAL NOT NULL, chunks INTEGER NOT NULL, writer INTEGER NOT NULL, sum INTEGER NOT NULL)',
  'CREATE TABLE chunk (id INTEGER PRIMARY KEY, bytes BLOB NOT NULL, sum INTEGER NOT NULL)',
  'CREATE TABLE user (id INTEGER PRIMARY KEY AUTOINCREMENT, pid INTEGER NOT NULL, started TEXT NOT NULL, boot TEXT NOT NULL, host TEXT NOT NULL, name TEXT NOT NULL, since INTEGER NOT NULL, address TEXT NOT NULL)',
]

export interface Described {
  readonly application: number
  readonly version: number
  readonly vacuum: number
  /** The statements that made the tables, in their order. */
  readonly tables: readonly string[]
}

export const TABLES = "select sql from sqlite_master where name not like 'sqlite_%' order by rowid"

/**
 * Throws unless it is ours and as we made it. `empty`: nothing was ever written, so it may become ours.
 * `acknowledged`: so many entries are known to have stood in it.
 */
export function recognize(path: string, found: Described, acknowledged: number): 'ours' | 'empty' {
  if (found.application === 0 && found.version === 0 && found.tables.length === 0) {
    if (acknowledged > 0) throw damaged(path, `it is empty, though ${acknowledged} entries were acknowledged`)
    return 'empty'
  }
  if (found.application !== APPLICATION) throw foreign(path, 'a database of another program', acknowledged)
  if (found.version > VERSION) {
    const message = `${path} was written by a newer Leasehold (format ${found.version}; this one knows ${VERSION}): use that one`
    throw new LeaseError('UNSUPPORTED', message, { facts: { path, reason: 'newer', version: found.version } })
  }
  if (found.version < VERSION || found.vacuum !== 0 || found.tables.join() !== SCHEMA.join())
    throw damaged(path, 'its tables are not those that were made')
  return 'ours'
}

/** A file that was ours, as what lies beside it shows, is damaged. Of any other we say only that it is not ours. */
export function foreign(path: string, what: string, acknowledged: number): LeaseError {
  if (acknowledged > 0) return damaged(path, `it is ${what}, though ${acknowledged} entries were acknowledged`)
  return new LeaseError('INVALID', `${path} is not a Leasehold file, but ${what}: name another file`, {
    facts: { path, reason: 'foreign' },
  })
}
