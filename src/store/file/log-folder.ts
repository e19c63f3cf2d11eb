/**
 * The folder with the segments and snapshots of a log, as far as the store uses it. The tests put a simulated disk in its place, which fails and loses power.
 *
 * All calls run on the pool of Node, so that the event loop never waits for a disk. Look-ups of names run there as well, but on half of its threads at most, so
 * that those which hang delay no append. A write is durable when it returns: with O_DSYNC where the system has it, else by a sync after it.
 */
import { close, constants, fdatasync, fstat, fsync, open, read, readdir, rename, unlink, write } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { openPrivatelyOnPool } from '../../private-file.ts'

export interface LogFile {
  size(): Promise<number>
  /** Returns how many bytes were read: fewer than asked for only at the end of the file. */
  read(into: Uint8Array, at: number): Promise<number>
  /** Durable when it returns. After a failure nothing is known of the bytes between, and none of what a sync says: close the file and open it again. */
  write(bytes: Uint8Array, at: number): Promise<void>
  close(): Promise<void>
}

/** A file that is being made. It has its name, and is durable, when `keep` returns. */
export interface NewLogFile {
  write(bytes: Uint8Array, at: number): Promise<void>
  /** Gives it its name, in the place of a file that has it. */
  keep(name: string): Promise<void>
  /** Removes it. Never throws. */
  drop(): Promise<void>
}

export interface LogFolder {
  list(): Promise<readonly string[]>
  /** Undefined if there is no such file. */
  open(name: string): Promise<LogFile | undefined>
  create(temporaryName: string): Promise<NewLogFile>
  remove(name: string): Promise<void>
  /** Makes all names durable. */
  sync(): Promise<void>
}

const { O_CREAT, O_EXCL, O_RDWR, O_WRONLY, O_RDONLY } = constants
/** Absent on Windows and macOS. */
const O_DSYNC = (constants as { readonly O_DSYNC?: number }).O_DSYNC ?? 0

const calls = {
  close: promisify(close),
  fdatasync: promisify(fdatasync),
  fsync: promisify(fsync),
  open: promisify(open),
  read: promisify(read),
  readdir: promisify(readdir),
  rename: promisify(rename),
  unlink: promisify(unlink),
  write: promisify(write),
}

export class DiskFolder implements LogFolder {
  readonly #path: string

  constructor(path: string) {
    this.#path = path
  }

  list(): Promise<string[]> {
    return calls.readdir(this.#path)
  }

  async open(name: string): Promise<LogFile | undefined> {
    try {
      return new DiskFile(await openPrivatelyOnPool(join(this.#path, name), O_RDWR | O_DSYNC), O_DSYNC === 0)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined
      throw error
    }
  }

  async create(temporaryName: string): Promise<NewLogFile> {
    const path = join(this.#path, temporaryName)
    return new NewDiskFile(await openPrivatelyOnPool(path, O_WRONLY | O_CREAT | O_EXCL), path, this.#path)
  }

  async remove(name: string): Promise<void> {
    await calls.unlink(join(this.#path, name)).catch(error => {
      if (error.code !== 'ENOENT') throw error
    })
  }

  sync(): Promise<void> {
    return syncFolder(this.#path)
  }
}

class DiskFile implements LogFile {
  readonly #file: number
  /** A write is durable only after a sync. */
  readonly #syncs: boolean
  /** Calls under way. The number of a closed file may be that of another one at once, so it is closed after them. */
  #calls = 0
  #closing: (() => void) | undefined

  constructor(file: number, syncs: boolean) {
    this.#file = file
    this.#syncs = syncs
  }

  size(): Promise<number> {
    return new Promise((resolve, reject) => fstat(this.#file, (error, found) => (error ? reject(error) : resolve(found.size))))
  }

  async read(into: Uint8Array, at: number): Promise<number> {
    this.#calls++
    try {
      let done = 0
      while (done < into.length) {
        const { bytesRead } = await calls.read(this.#file, into, done, into.length - done, at + done)
        if (bytesRead === 0) break
        done += bytesRead
      }
      return done
    } finally {
      if (--this.#calls === 0) this.#closing?.()
    }
  }

  /** A short write is continued: the error of a full disk comes with the next part. */
  async write(bytes: Uint8Array, at: number): Promise<void> {
    this.#calls++
    try {
      for (let done = 0; done < bytes.length; )
        done += (await calls.write(this.#file, bytes, done, bytes.length - done, at + done)).bytesWritten
      if (this.#syncs) await calls.fdatasync(this.#file)
    } finally {
      if (--this.#calls === 0) this.#closing?.()
    }
  }

  async close(): Promise<void> {
    if (this.#calls > 0) await new Promise<void>(resolve => (this.#closing = resolve))
    await calls.close(this.#file)
  }
}

class NewDiskFile implements NewLogFile {
  readonly #number: number
  readonly #file: DiskFile
  readonly #path: string
  readonly #folder: string
  #closed = false

  constructor(number: number, path: string, folder: string) {
    this.#number = number
    this.#file = new DiskFile(number, false)
    this.#path = path
    this.#folder = folder
  }

  write(bytes: Uint8Array, at: number): Promise<void> {
    return this.#file.write(bytes, at)
  }

  async keep(name: string): Promise<void> {
    await calls.fsync(this.#number)
    await this.#close()
    await calls.rename(this.#path, join(this.#folder, name))
    await syncFolder(this.#folder)
  }

  async drop(): Promise<void> {
    await this.#close().catch(() => {})
    await calls.unlink(this.#path).catch(() => {}) // it was kept, or never made
  }

  async #close(): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    await this.#file.close()
  }
}

/** Makes names in the folder durable. Windows cannot, and needs no such call. */
async function syncFolder(path: string): Promise<void> {
  if (process.platform === 'win32') return
  const folder = await calls.open(path, O_RDONLY)
  try {
    await calls.fsync(folder)
  } finally {
    await calls.close(folder)
  }
}
