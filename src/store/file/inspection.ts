/** Looks at PATH before SQLite opens it, so that a file which is not ours is refused and left as it is: SQLite changes files that it merely opens. */
import { closeSync, constants, lstatSync, openSync, readFileSync, readlinkSync, readSync } from 'node:fs'
import { damaged } from './errors.ts'
import { APPLICATION, checkVersion, foreign } from './schema.ts'

/** The length of SQLite's header, and its first words. */
const HEADER = 100
/** In the header of a database with a write-ahead file, which a log never has. */
const WRITE_AHEAD = 2
const MAGIC = 'SQLite format 3\0'

/**
 * Throws if the header is not that of a log of ours. `acknowledged` is called then: a file that was ours once is damaged.
 * A file that this process has open is known to be ours. Opening and closing it once more would release SQLite's locks on it.
 */
export function readHeader(path: string, acknowledged: () => number): void {
  if ((lstatSync(path, { throwIfNoEntry: false })?.size ?? 0) === 0 || isOpenHere(path)) return
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
  // A log without an application id comes from a crash during its creation: it has no tables yet.
  if (application !== APPLICATION && (application !== 0 || pages(header) > 1 || header[18] === WRITE_AHEAD))
    throw foreign(path, 'a database of another program', acknowledged())
  if (application === APPLICATION) checkVersion(path, header.readUInt32BE(60))
}

/** Returns whether a store of this process has the log open, in any of its threads. Each has a lock on PATH-owner all the time. */
function isOpenHere(path: string): boolean {
  const found = lstatSync(`${path}-owner`, { throwIfNoEntry: false })?.ino
  try {
    const me = Number(readlinkSync('/proc/self')) // our pid in this list: it may be that of another pid namespace
    // 1: POSIX  ADVISORY  READ 12350 fe:00:10002488 128 128
    return readFileSync('/proc/locks', 'latin1')
      .split('\n')
      .some(line => {
        const [, pid, inode] = /\s(-?\d+) \w+:\w+:(\d+) /.exec(line) ?? []
        return Number(inode) === found && Number(pid) === me
      })
  } catch {
    return found !== undefined // this system has no such list: SQLite is left to judge
  }
}

function pages(header: Buffer): number {
  return header.readUInt32BE(28)
}
