/** Errors of the file store. The message tells operators what to do; the reason is for programs. */
import { statfsSync } from 'node:fs'
import { dirname } from 'node:path'
import { type ErrorCode, type ErrorReason, LeaseError } from '../../errors.ts'
import { describe, lockers, stopped } from './process.ts'

/** The primary result codes of SQLite that the store distinguishes. */
const [ERROR, BUSY, LOCKED, READONLY, IOERR, CORRUPT, FULL, CANTOPEN, PROTOCOL, CONSTRAINT, NOTADB] = [
  1, 5, 6, 8, 10, 11, 13, 14, 15, 19, 26,
] as const

/** A disk with fewer bytes is full: SQLite extends its files by as much. */
const ROOM = 65_536

/** The bytes of a SQLite file whose locks show which process has the lock of one append, or commits; and the last one, of those that read. */
const [FIRST_LOCK, LAST_LOCK, LAST_READ_LOCK] = [0x4000_0000, 0x4000_0001, 0x4000_01ff]

export function isBusy(error: unknown): boolean {
  const code = resultCode(error)
  return code === BUSY || code === LOCKED || code === PROTOCOL
}

/** `done`: whether the operation may have taken effect. */
export function fileError(error: unknown, path: string, done: 'never' | 'perhaps' = 'never'): LeaseError {
  if (error instanceof LeaseError) return error
  const code = done === 'never' ? 'UNAVAILABLE' : 'UNKNOWN'
  const failure = (reason: ErrorReason, message: string) => new LeaseError(code, message, { cause: error, reason, facts: { path } })
  const text = error instanceof Error ? error.message : String(error)
  const found = resultCode(error)
  // SQLite reports a full disk as a failed one where it extends its index.
  switch (found === IOERR && isFull(path) ? FULL : found) {
    case FULL:
      return failure('full', `the disk of ${path} is full: no appends are accepted until there is room. Acknowledged records are kept`)
    case READONLY:
      return failure(
        'readonly',
        `${path} cannot be written by this process: check the owner of the file and its folder, and how the disk is mounted`,
      )
    case IOERR:
      return failure('io', `the disk failed under ${path} (${text}): acknowledged records are kept; see the system's log (dmesg)`)
    case ERROR: // SQLite does not understand a statement of ours: the tables were changed
    case CONSTRAINT: // an unexpected row
    case CORRUPT:
    case NOTADB:
      return damaged(path, text, { cause: error, code })
    case CANTOPEN:
      return failure('permission', `${path} cannot be opened (${text}): does its folder exist, and may this process write there?`)
    default:
      return failure('failed', `${path}: ${text}`)
  }
}

function isFull(path: string): boolean {
  try {
    const { bavail, bsize } = statfsSync(dirname(path))
    return bavail * bsize < ROOM
  } catch {
    return false
  }
}

/** `code`: `UNKNOWN` if a commit failed because of the damage. */
export function damaged(
  path: string,
  what: string,
  { cause, code = 'UNAVAILABLE', untouched = false }: { cause?: unknown; code?: ErrorCode; untouched?: boolean } = {},
): LeaseError {
  const kept = untouched ? ' It was left as it is.' : ''
  return new LeaseError(
    code,
    `${path} is damaged: ${what}.${kept} Restore it from a backup, or move it away together with ${path}-* to start with an empty log`,
    { cause, reason: 'damaged', facts: { path, what } },
  )
}

/** The error for damage that was found before anything was written. */
export function untouched(error: LeaseError): LeaseError {
  const { code, reason, facts, cause } = error
  return reason === 'damaged' ? damaged(String(facts.path), String(facts.what), { cause, code, untouched: true }) : error
}

/** The error that names the process that has kept the file locked for `ms`. */
export function stuck(path: string, ms: number): LeaseError {
  const [pid] = [LAST_LOCK, LAST_READ_LOCK].flatMap(last => lockers(path, FIRST_LOCK, last)).filter(pid => pid !== process.pid)
  const waited = `waited ${Math.round(ms)} ms to write ${path}`
  if (pid === undefined) {
    return new LeaseError('UNAVAILABLE', `${waited}: another process is in the middle of an append`, {
      reason: 'busy',
      facts: { path },
    })
  }
  const halted = stopped(pid)
  const state = halted
    ? `is stopped in the middle of an append: resume it with kill -CONT ${pid}, or end it`
    : 'is in the middle of an append: end it if it does not continue'
  return new LeaseError('UNAVAILABLE', `${waited}: ${describe(pid)} ${state}`, {
    reason: halted ? 'stopped' : 'busy',
    facts: { path, pid },
  })
}

/** Errors of the operating system, before SQLite opens the file. */
const codeOfSystemError: Record<string, number> = {
  EACCES: CANTOPEN,
  EPERM: CANTOPEN,
  ENOTDIR: CANTOPEN,
  ENOENT: CANTOPEN,
  EROFS: READONLY,
  ENOSPC: FULL,
  EDQUOT: FULL,
  EIO: IOERR,
}

/** SQLite's messages for each code: the SQLite from npm leaves the code out when it reads several rows. */
const codeOfMessage: readonly (readonly [message: RegExp, code: number])[] = [
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
  return codeOfSystemError[code ?? ''] ?? codeOfMessage.find(([pattern]) => pattern.test(message))?.[1] ?? -1
}
