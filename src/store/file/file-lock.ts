/**
 * Who may use the file: one owner, or any number of shared users.
 *
 * A grip is a lock of the operating system on a side file of its own, held through an open SQLite transaction on it: exclusive for an
 * owner, shared for a user. It ends with the process, however that ends, so there is nothing to clean up and nothing to guess.
 */
import type { Database, Engine } from './engine.ts'

export class FileLock {
  readonly #side: Database
  readonly #own: boolean

  constructor(engine: Engine, path: string, own: boolean) {
    this.#side = new engine.DatabaseSync(path, { timeout: 0 })
    this.#own = own
  }

  /** Throws what SQLite throws when it is busy: someone else's grip excludes ours. */
  take(): void {
    // Without a journal on the disk: there is never anything to roll back. `off` is ignored by an engine that defends its files.
    if (this.#own) return this.#side.exec('pragma journal_mode = memory; begin exclusive')
    this.#side.exec('begin')
    try {
      this.#side.prepare('select count(*) from sqlite_master').get() // takes the lock, and keeps it until the transaction ends
    } catch (error) {
      this.#side.exec('rollback')
      throw error
    }
  }

  release(): void {
    try {
      this.#side.exec('rollback') // not left to `close`, which waits for every statement to be collected
    } catch {
      // it was never taken
    }
    this.#side.close()
  }
}
