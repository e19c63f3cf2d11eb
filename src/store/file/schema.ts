/** The tables of PATH, and the check whether a file is a log of ours in a known version. */
import { LeaseError } from '../../errors.ts'
import { damaged } from './errors.ts'

/** 'Leas', the application id in SQLite's file header. */
export const APPLICATION = 0x4c656173
/** Version 1 had the records and the snapshots in tables. */
export const VERSION = 2
export const SCHEMA = [
  'CREATE TABLE state (one INTEGER PRIMARY KEY, bytes BLOB NOT NULL)',
  'CREATE TABLE user (id INTEGER PRIMARY KEY AUTOINCREMENT, pid INTEGER NOT NULL, started TEXT NOT NULL, boot TEXT NOT NULL, host TEXT NOT NULL, name TEXT NOT NULL, since INTEGER NOT NULL, address TEXT NOT NULL)',
]

export interface Described {
  readonly application: number
  readonly version: number
  readonly vacuum: number
  /** The statements that created the tables, in order. */
  readonly tables: readonly string[]
}

export const TABLES = "select sql from sqlite_master where name not like 'sqlite_%' order by rowid"

/**
 * Throws unless the file is ours and unchanged. `empty`: nothing was ever written, so the tables can be created.
 * `acknowledged`: the number of records that are known to have been in it.
 */
export function recognize(path: string, found: Described, acknowledged: number): 'ours' | 'empty' {
  if (found.application === 0 && found.version === 0 && found.tables.length === 0) {
    if (acknowledged > 0) throw damaged(path, `it is empty, although ${acknowledged} records were acknowledged`)
    return 'empty'
  }
  if (found.application !== APPLICATION) throw foreign(path, 'a database of another program', acknowledged)
  checkVersion(path, found.version)
  if (found.vacuum !== 0 || found.tables.join() !== SCHEMA.join()) throw damaged(path, 'its tables were changed')
  return 'ours'
}

/** Throws if a file of ours has another layout. */
export function checkVersion(path: string, version: number): void {
  if (version === VERSION) return
  const facts = { path, version }
  if (version > VERSION) {
    const message = `${path} was written by a newer Leasehold (format ${version}; this one knows ${VERSION}): use that one`
    throw new LeaseError('UNSUPPORTED', message, { reason: 'newer', facts })
  }
  const message = `${path} was written by an earlier build of Leasehold (format ${version}; this one knows ${VERSION} only): it was left as it is. Copy its leases with leasehold backup of that build and leasehold restore of this one, or choose another file`
  throw new LeaseError('UNSUPPORTED', message, { reason: 'older', facts })
}

/** A file that was ours, as the files beside it show, is damaged. Any other file is reported as foreign. */
export function foreign(path: string, what: string, acknowledged: number): LeaseError {
  if (acknowledged > 0)
    // It may be the only copy of what another program wrote, so nothing is said of moving it.
    return new LeaseError(
      'UNAVAILABLE',
      `${path} was replaced: it is ${what}, although ${acknowledged} records were acknowledged in a Leasehold file of that name. It was left as it is. Restore the last backup into a new file`,
      { reason: 'damaged', facts: { path } },
    )
  return new LeaseError('INVALID', `${path} is not a Leasehold file, but ${what}: choose another file`, {
    reason: 'foreign',
    facts: { path },
  })
}
