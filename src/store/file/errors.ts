/** What can be wrong with a file, said so that a person knows what to do. `facts.reason` is for programs. */
import { type ErrorCode, LeaseError } from '../../errors.ts'
import { describe, lockers, stopped } from './process.ts'

/** The primary result codes of SQLite that mean something to us. */
const [ERROR, BUSY, LOCKED, READONLY, IOERR, CORRUPT, FULL, CANTOPEN, PROTOCOL, CONSTRAINT, NOTADB] = [
  1, 5, 6, 8, 10, 11, 13, 14, 15, 19, 26,
] as const

/** In a WAL index, the bytes whose locks say who writes, checkpoints or recovers. */
const [FIRST_LOCK, LAST_LOCK] = [120, 122]

export function isBusy(error: unknown): boolean {
  const code = resultCode(error)
  return code === BUSY || code === LOCKED || code === PROTOCOL
}

/** `done`: whether what was asked for may have happened all the same. */
export function fileError(error: unknown, path: string, done: 'never' | 'perhaps' = 'never'): LeaseError {
  if (error instanceof LeaseError) return error
  const code = done === 'never' ? 'UNAVAILABLE' : 'UNKNOWN'
  const made = (reason: string, message: string) => new LeaseError(code, message, { cause: error, facts: { path, reason } })
  const said = error instanceof Error ? error.message : String(error)
  switch (resultCode(error)) {
    case FULL:
      return made('full', `the disk of ${path} is full: nothing more is accepted until there is room. What was acknowledged is kept`)
    case READONLY:
      return made('readonly', `${path} cannot be written by this process: see who owns it and its folder, and how the disk is mounted`)
    case IOERR:
      return made('io', `the disk failed under ${path} (${said}): what was acknowledged before is kept; see the system's log (dmesg)`)
    case ERROR: // a statement of ours that SQLite does not understand: the tables are not what we made them
    case CONSTRAINT: // a row where none should be
    case CORRUPT:
    case NOTADB:
      return damaged(path, said, { cause: error, code })
    case CANTOPEN:
      return made('permission', `${path} cannot be opened (${said}): does its folder exist, and may this process write there?`)
    default:
      return made('failed', `${path}: ${said}`)
  }
}

/** `code`: unless a commit failed of it, it is certain that nothing was done. */
export function damaged(
  path: string,
  what: string,
  { cause, code = 'UNAVAILABLE' }: { cause?: unknown; code?: ErrorCode } = {},
): LeaseError {
  return new LeaseError(
    code,
    `${path} is damaged: ${what}. Restore it from a backup, or move it away together with ${path}-* to begin anew`,
    { cause, facts: { path, reason: 'damaged' } },
  )
}

/** Damage that was found before anything was written. */
export function untouched(error: LeaseError): LeaseError {
  const { code, message, facts, cause } = error
  if (facts.reason !== 'damaged') return error
  return new LeaseError(code, message.replace('. Restore it', '. It was left as it is. Restore it'), { cause, facts })
}

/** Names who has kept the file locked for `ms`. */
export function stuck(path: string, ms: number): LeaseError {
  const [pid] = lockers(`${path}-shm`, FIRST_LOCK, LAST_LOCK).filter(pid => pid !== process.pid)
  const waited = `waited ${Math.round(ms)} ms to write ${path}`
  if (pid === undefined) {
    return new LeaseError('UNAVAILABLE', `${waited}: another process is in the middle of a transaction`, {
      facts: { path, reason: 'busy' },
    })
  }
  const facts = { path, pid, reason: stopped(pid) ? 'stopped' : 'busy' }
  const what = stopped(pid)
    ? `is stopped inside a transaction: resume it with kill -CONT ${pid}, or end it`
    : 'is still in the middle of a transaction: if it does not go on, end it'
  return new LeaseError('UNAVAILABLE', `${waited}: ${describe(pid)} ${what}`, { facts })
}

/** What the operating system says before SQLite gets to see the file. */
const ofSystem: Record<string, number> = {
  EACCES: CANTOPEN,
  EPERM: CANTOPEN,
  ENOTDIR: CANTOPEN,
  ENOENT: CANTOPEN,
  EROFS: READONLY,
  ENOSPC: FULL,
  EIO: IOERR,
}

/** What SQLite says of each code, where a driver leaves the code out: the one from npm does so when it reads several rows. */
const ofWords: readonly (readonly [words: RegExp, code: number])[] = [
  [/^database( table| schema)? is locked/, BUSY],
  [/^locking protocol/, PROTOCOL],
  [/^attempt to write a readonly database/, READONLY],
  [/^disk I\/O error/, IOERR],
  [/^database disk image is malformed|^malformed database schema/, CORRUPT],
  [/^database or disk is full/, FULL],
  [/^unable to open database file/, CANTOPEN],
  [/^constraint failed|constraint failed:/, CONSTRAINT],
  [/^file is not a database/, NOTADB],
  [/^no such (table|column)|^SQL logic error/, ERROR],
]

function resultCode(error: unknown): number {
  const { errcode, code, message = '' } = error as { readonly errcode?: number; readonly code?: string; readonly message?: string }
  if (typeof errcode === 'number') return errcode & 0xff
  return ofSystem[code ?? ''] ?? ofWords.find(([words]) => words.test(message))?.[1] ?? -1
}
