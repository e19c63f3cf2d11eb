/**
 * Files that grant rights. Each must be a regular file of the user who runs this process, and no other user may read or write it.
 *
 * A symbolic link is never followed: the user who made the link would choose what this process reads, overwrites or sends elsewhere. Links
 * among the folders above a file are followed.
 *
 * Not guaranteed: anything in a folder where other users may rename or remove files that are not theirs.
 */

import type { Stats } from 'node:fs'
import {
  close,
  closeSync,
  constants,
  fchmodSync,
  fstat,
  fstatSync,
  linkSync,
  lstatSync,
  mkdirSync,
  open,
  openSync,
  readFileSync,
  readlinkSync,
  rmSync,
} from 'node:fs'
import { dirname } from 'node:path'
import { promisify } from 'node:util'
import type { Clock } from './clock.ts'
import { LeaseError } from './errors.ts'

/** Absent on Windows. O_NONBLOCK: opening a named pipe in the place of a file must not block. */
const { O_NOFOLLOW = 0, O_NONBLOCK = 0, O_RDONLY } = constants

/** Throws unless `path` is missing or a file private to this user. Does not open the file: closing it would release locks on it. */
export function mustBePrivate(path: string): Stats | undefined {
  const found = lstatSync(path, { throwIfNoEntry: false })
  if (found) checkPrivate(path, found)
  return found
}

/** Throws unless `path` is missing or a folder that only this user may enter. */
export function mustBePrivateFolder(path: string): void {
  const found = lstatSync(path, { throwIfNoEntry: false })
  if (found === undefined) return
  const kind = found.mode & constants.S_IFMT
  if (kind === constants.S_IFLNK) throw linkError(path)
  if (kind !== constants.S_IFDIR)
    throw new LeaseError('INVALID', `${path} is not a folder: move it away`, { reason: 'kind', facts: { path } })
  checkAccess(path, found, '700')
}

/** As `mustBePrivate`. An empty file of this user becomes private: nothing in it can have been read or written by others. */
export function makePrivateIfEmpty(path: string): void {
  const found = mustBePlain(path)
  if (found === undefined) return
  if (found.size === 0 && found.uid === process.getuid?.() && (found.mode & 0o077) !== 0) {
    const file = openSync(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK)
    try {
      if (fstatSync(file).size === 0) fchmodSync(file, 0o600)
    } finally {
      closeSync(file)
    }
  }
  mustBePrivate(path)
}

/** Throws unless `path` is missing or a regular file. Its owner and mode do not matter. */
export function mustBePlain(path: string): Stats | undefined {
  const found = lstatSync(path, { throwIfNoEntry: false })
  if (found) checkKind(path, found)
  return found
}

/** Opens a file private to this user. A file that is created has mode 0600. */
export function openPrivately(path: string, flags: number): number {
  let file: number
  try {
    file = openSync(path, flags | O_NOFOLLOW | O_NONBLOCK, 0o600)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ELOOP') throw linkError(path)
    throw error
  }
  try {
    checkPrivate(path, fstatSync(file))
    return file
  } catch (error) {
    closeSync(file)
    throw error
  }
}

/** As `openPrivately`, without waiting for the disk on the event loop. */
export async function openPrivatelyOnPool(path: string, flags: number): Promise<number> {
  const file = await promisify(open)(path, flags | O_NOFOLLOW | O_NONBLOCK, 0o600).catch(error => {
    throw error.code === 'ELOOP' ? linkError(path) : error
  })
  try {
    checkPrivate(path, await promisify(fstat)(file))
    return file
  } catch (error) {
    await promisify(close)(file)
    throw error
  }
}

export function readPrivately(path: string): string {
  const file = openPrivately(path, O_RDONLY)
  try {
    return readFileSync(file, 'utf8')
  } finally {
    closeSync(file)
  }
}

/**
 * Creates an empty file that only its user may read, unless the file exists. It is closed before it is linked into place: closing a file that
 * SQLite has open elsewhere in this process would release SQLite's locks. Linking never follows a symbolic link.
 */
export function createPrivately(path: string, clock: Clock): void {
  const temporary = `${path}-new-${clock.bits().toString(36)}`
  closeSync(openPrivately(temporary, constants.O_WRONLY | constants.O_CREAT | constants.O_EXCL))
  try {
    linkSync(temporary, path)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  } finally {
    rmSync(temporary)
  }
}

/** Creates missing folders with mode 0700. Not `recursive`: in /proc that never ends, because mkdir fails with ENOENT below a folder that exists. */
export function makeFolder(folder: string): void {
  const missing: string[] = []
  for (let at = folder; !exists(at); at = dirname(at)) missing.unshift(at)
  for (const each of missing) {
    try {
      mkdirSync(each, 0o700)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error // else another process created it first
    }
  }
}

function exists(path: string): boolean {
  return path === dirname(path) || lstatSync(path, { throwIfNoEntry: false }) !== undefined
}

function checkKind(path: string, { mode }: Stats): void {
  const kind = mode & constants.S_IFMT
  if (kind === constants.S_IFLNK) throw linkError(path)
  if (kind === constants.S_IFDIR)
    throw new LeaseError('INVALID', `${path} is a folder: name a file in it`, { reason: 'folder', facts: { path } })
  if (kind !== constants.S_IFREG)
    throw new LeaseError('INVALID', `${path} is not a plain file: name another`, { reason: 'kind', facts: { path } })
}

function checkPrivate(path: string, found: Stats): void {
  checkKind(path, found)
  checkAccess(path, found, '600')
}

function checkAccess(path: string, found: Stats, wanted: string): void {
  if (process.getuid === undefined) return
  const { mode, uid } = found
  const me = process.getuid()
  if (uid !== me) {
    const message = `${path} belongs to user ${uid}, and this process runs as user ${me}: run it as user ${uid}, or give the file to user ${me} (chown ${me} ${path})`
    throw new LeaseError('UNAVAILABLE', message, { reason: 'permission', facts: { path, owner: uid } })
  }
  if ((mode & 0o077) !== 0) {
    const octal = (mode & 0o777).toString(8).padStart(4, '0')
    const message = `${path} has mode ${octal}, so other users may read or write it. It is refused for that reason: chmod ${wanted} ${path}`
    throw new LeaseError('UNAVAILABLE', message, { reason: 'mode', facts: { path, mode: octal } })
  }
}

function linkError(path: string): LeaseError {
  let to = ''
  try {
    to = ` to ${readlinkSync(path)}`
  } catch {
    // the link has been removed
  }
  return new LeaseError(
    'INVALID',
    `${path} is a symbolic link${to}, and symbolic links are not followed: name the file itself, or remove the link`,
    {
      reason: 'link',
      facts: { path },
    },
  )
}
