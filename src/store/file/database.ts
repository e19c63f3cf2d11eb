/**
 * One connection to the file: checks whether the file is a log of ours, and runs transactions on it.
 *
 * A transaction is a function without an await, so that nothing else on this connection comes in between. While other processes keep the
 * file locked the transaction is retried, until a timeout whose error names those processes.
 */
import { statSync } from 'node:fs'
import { type Clock, pause } from '../../clock.ts'
import { START } from '../../store.ts'
import { storeClosed } from '../closed.ts'
import type { Database, Engine, Statement } from './engine.ts'
import { damaged, fileError, isBusy, stuck } from './errors.ts'
import { decodeState, encodeState, type FileLogState } from './record.ts'
import { APPLICATION, type Described, recognize, SCHEMA, TABLES, VERSION } from './schema.ts'

export interface FileDatabaseOptions {
  readonly path: string
  readonly engine: Engine
  readonly clock: Clock
  /** How long, in ms, other processes may keep the file locked. */
  readonly timeout: number
}

export class FileDatabase {
  readonly path: string
  readonly #db: Database
  readonly #clock: Clock
  readonly #timeout: number
  readonly #statements = new Map<string, Statement>()
  /** Identifies the file: another file may be put at its path while it is open here. */
  readonly #inode: number
  #version = -1
  #closed = false

  constructor({ path, engine, clock, timeout }: FileDatabaseOptions) {
    this.path = path
    this.#clock = clock
    this.#timeout = timeout
    this.#db = new engine.DatabaseSync(path, { timeout: 0 })
    this.#inode = statSync(path).ino
  }

  /** Throws unless the file is a log of ours in a known version. Creates the tables in an empty file, unless records were `acknowledged` in it. */
  recognize(acknowledged: number): Promise<void> {
    return this.#retryWhileBusy(() => {
      if (recognize(this.path, this.#described(), acknowledged) === 'empty') this.#create()
      recognize(this.path, this.#described(), acknowledged)
      this.#db.exec('pragma journal_mode = wal; pragma synchronous = full')
    })
  }

  /**
   * Throws if a page is damaged, or is listed as free although it is in use: SQLite would reuse it and overwrite acknowledged records. Reads
   * every page in use, about as much as a replica reads when it opens the log.
   */
  checkPages(): Promise<void> {
    return this.#retryWhileBusy(() => {
      const result = this.#pragma('quick_check(1)')
      if (result !== 'ok') throw damaged(this.path, String(result))
    })
  }

  /** A failure before the commit is `UNAVAILABLE`, a failed commit `UNKNOWN`. */
  write<T>(work: () => T, timeout = this.#timeout): Promise<T> {
    return this.#retryWhileBusy(() => this.#write(work), timeout)
  }

  /** As `write`, in one attempt; undefined if other processes keep the file locked. */
  writeNow<T>(work: () => T): T | undefined {
    try {
      return this.#write(work)
    } catch (error) {
      if (isBusy(error)) return undefined
      throw fileError(error, this.path)
    }
  }

  #write<T>(work: () => T): T {
    this.sql('begin immediate').run()
    let result: T
    try {
      result = work()
    } catch (error) {
      this.#rollback()
      throw fileError(error, this.path)
    }
    try {
      this.sql('commit').run()
    } catch (error) {
      // The commit may already be in the write-ahead file, and take effect when that is recovered.
      this.#rollback()
      throw fileError(error, this.path, 'perhaps')
    }
    return result
  }

  /** Runs `look` in a read transaction, so that it sees one state of the file. */
  read<T>(look: () => T): Promise<T> {
    return this.#retryWhileBusy(() => {
      this.sql('begin').run()
      try {
        return look()
      } finally {
        this.#rollback()
      }
    })
  }

  state(): FileLogState {
    const row = this.sql('select bytes from state where one = 1').get() as { bytes: Uint8Array } | undefined
    const state = row && decodeState(row.bytes)
    if (!state) throw damaged(this.path, 'its state does not match its checksum')
    return state
  }

  save(state: FileLogState): void {
    this.sql('update state set bytes = ? where one = 1').run(encodeState(state))
  }

  /** A statement that is prepared once. Integers are read as BigInt. */
  sql(text: string): Statement {
    let statement = this.#statements.get(text)
    if (!statement) {
      statement = this.#db.prepare(text)
      statement.setReadBigInts(true)
      this.#statements.set(text, statement)
    }
    return statement
  }

  /** Returns whether another connection may have written since the last call. Cheap. */
  moved(): boolean {
    const last = this.#version
    try {
      const { data_version } = this.sql('pragma data_version').get() as { data_version: bigint }
      this.#version = Number(data_version)
    } catch (error) {
      if (!isBusy(error)) throw fileError(error, this.path)
    }
    return this.#version !== last || this.replaced()
  }

  replaced(): boolean {
    return statSync(this.path, { throwIfNoEntry: false })?.ino !== this.#inode
  }

  close(): void {
    this.#closed = true
    this.#statements.clear()
    this.#db.close()
  }

  /** Runs before the switch to WAL mode, so that after a crash at any moment the file itself says that it is ours. */
  #create(): void {
    this.#db.exec('begin exclusive')
    try {
      if (this.#tables().length === 0) {
        for (const table of SCHEMA) this.#db.exec(table)
        this.#db.exec(`pragma application_id = ${APPLICATION}; pragma user_version = ${VERSION}`)
        const state = encodeState({ epoch: 0, head: START, floor: START, snapshot: 0, owner: 0 })
        this.#db.prepare('insert into state values (1, ?)').run(state)
      }
      this.#db.exec('commit')
    } catch (error) {
      this.#rollback()
      throw error
    }
  }

  /** Reads in one transaction: another process may create the tables between two statements, and the file would look like a foreign one. */
  #described(): Described {
    const number = (name: string) => Number(this.#pragma(name))
    this.#db.exec('begin')
    try {
      return {
        application: number('application_id'),
        version: number('user_version'),
        vacuum: number('auto_vacuum'),
        tables: this.#tables(),
      }
    } finally {
      this.#rollback()
    }
  }

  #pragma(name: string): unknown {
    return Object.values(this.#db.prepare(`pragma ${name}`).get() as object)[0]
  }

  #tables(): string[] {
    const made = this.#db.prepare(TABLES).all()
    return (made as { sql: string }[]).map(({ sql }) => sql)
  }

  /** Retries at once first, since a commit is short. Later retries pause only briefly: a process that started to wait later would otherwise always win. */
  async #retryWhileBusy<T>(attempt: () => T, timeout = this.#timeout): Promise<T> {
    const began = this.#clock.now()
    for (let tries = 0; ; tries++) {
      if (this.#closed) throw storeClosed()
      try {
        return attempt()
      } catch (error) {
        if (!isBusy(error)) throw fileError(error, this.path)
      }
      const waited = this.#clock.now() - began
      if (waited >= timeout) throw stuck(this.path, waited)
      if (tries < 20) await new Promise<void>(resolve => this.#clock.soon(resolve))
      else await pause(this.#clock, tries < 500 ? 1 : 10)
    }
  }

  #rollback(): void {
    try {
      this.sql('rollback').run()
    } catch {
      // SQLite has rolled back already
    }
  }
}
