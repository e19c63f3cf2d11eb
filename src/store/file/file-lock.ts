/**
 * The lock that decides who may use the file: one owner, or any number of shared users.
 *
 * It is a lock of the operating system on a file of its own, held by an open SQLite transaction: exclusive for an owner, shared for a user.
 * It ends with the process, however that ends, so there is nothing to clean up and no process has to be presumed dead.
 */
import { statSync } from 'node:fs'
import type { Database, Engine } from './engine.ts'

export class FileLock {
  readonly #database: Database
  readonly #own: boolean
  readonly #path: string
  readonly #inode: number

  constructor(engine: Engine, path: string, own: boolean) {
    this.#database = new engine.DatabaseSync(path, { timeout: 0 })
    this.#own = own
    this.#path = path
    this.#inode = statSync(path).ino
  }

  /** Throws SQLite's busy error if the lock of another process excludes this one. */
  take(): void {
    // No journal on disk: there is never anything to roll back. `off` is ignored by an engine in defensive mode.
    if (this.#own) return this.#database.exec('pragma journal_mode = memory; begin exclusive')
    this.#database.exec('begin')
    try {
      this.#database.prepare('select count(*) from sqlite_master').get() // takes the lock until the transaction ends
    } catch (error) {
      this.#database.exec('rollback')
      throw error
    }
  }

  /** Returns whether another file is at its path, or none. */
  isReplaced(): boolean {
    return statSync(this.#path, { throwIfNoEntry: false })?.ino !== this.#inode
  }

  release(): void {
    try {
      this.#database.exec('rollback') // `close` would wait for the garbage collection of every statement
    } catch {
      // it was not held
    }
    this.#database.close()
  }
}
