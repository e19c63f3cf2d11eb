/**
 * One connection to PATH: checks whether the file is a log of ours, keeps who owns it, and holds the lock of one append.
 *
 * SQLite is here for what Node lacks: a lock between processes that ends with its process. Nothing blocks: while another process has the lock, it is tried again,
 * until a timeout whose error names that process. Nothing may open and close PATH outside SQLite while it is open here: closing any descriptor of a file ends
 * all locks that the process has on it.
 */
import { statSync } from 'node:fs'
import { type Clock, pause } from '../../clock.ts'
import { storeClosed } from '../closed.ts'
import type { Database, Engine, Statement } from './engine.ts'
import { damaged, fileError, isBusy, stuck } from './errors.ts'
import { decodeState, encodeState, type FileLogState } from './record.ts'
import { APPLICATION, type Described, recognize, SCHEMA, TABLES, VERSION } from './schema.ts'

export interface FileDatabaseOptions {
  readonly path: string
  readonly engine: Engine
  readonly clock: Clock
  /** Other processes may keep the file locked this long, in ms. */
  readonly timeout: number
  /** Called now and then while another process has the lock. */
  readonly onWait?: () => void
}

/** Attempts to get the lock between two calls of `onWait`. */
const TELL = 4

export class FileDatabase {
  readonly path: string
  readonly #db: Database
  readonly #clock: Clock
  readonly #timeout: number
  readonly #onWait: (() => void) | undefined
  readonly #statements = new Map<string, Statement>()
  /** Identifies the file: another file may be put at its path while it is open here. */
  readonly #inode: number
  /** The end of the last call that has the lock, or waits for it. */
  #turn: Promise<unknown> = Promise.resolve()
  /** The lock is held between the calls that need it: nothing can have changed since the last one. Only this class changes it. */
  isLockKept = false
  #closed = false

  constructor({ path, engine, clock, timeout, onWait }: FileDatabaseOptions) {
    this.path = path
    this.#clock = clock
    this.#timeout = timeout
    this.#onWait = onWait
    this.#db = new engine.DatabaseSync(path, { timeout: 0 })
    this.#inode = statSync(path).ino
  }

  /** Throws unless the file is a log of ours in a known version. Creates the tables in an empty file, unless records were `acknowledged` in it. */
  recognize(acknowledged: number): Promise<void> {
    return this.#retryWhileBusy(() => {
      if (recognize(this.path, this.#described(), acknowledged) === 'empty') this.#create()
      recognize(this.path, this.#described(), acknowledged)
    })
  }

  /** Runs `work` with the lock of one append: no other process appends, repairs or changes the state meanwhile. */
  locked<T, Args extends readonly unknown[]>(work: (...args: Args) => Promise<T>, ...args: Args): Promise<T> {
    const turn = this.#turn.then(() => (this.isLockKept ? work(...args) : this.#withLock(work, ...args)))
    this.#turn = turn.catch(() => {})
    return turn
  }

  async #withLock<T, Args extends readonly unknown[]>(work: (...args: Args) => Promise<T>, ...args: Args): Promise<T> {
    await this.#retryWhileBusy(() => this.sql('begin immediate').run())
    try {
      return await work(...args)
    } finally {
      if (!this.isLockKept) this.#rollback()
    }
  }

  /** Within the lock: keeps it for the next calls. */
  keepLock(): void {
    this.isLockKept = true
  }

  /** Gives up a lock that was kept, after the calls that need it. */
  giveUpLock(): void {
    this.#turn = this.#turn.then(() => this.#giveUp())
  }

  #giveUp(): void {
    if (!this.isLockKept) return
    this.isLockKept = false
    this.#rollback()
  }

  /** Runs `work` in a transaction of PATH. */
  write<T>(work: () => T, timeout = this.#timeout): Promise<T> {
    const turn = this.#turn.then(() => this.#retryWhileBusy(() => this.#write(work), timeout))
    this.#turn = turn.catch(() => {})
    return turn
  }

  #write<T>(work: () => T): T {
    this.#giveUp()
    this.sql('begin immediate').run()
    try {
      const result = work()
      this.sql('commit').run()
      return result
    } catch (error) {
      this.#rollback()
      throw error
    }
  }

  /** Within the lock, or a transaction. */
  state(): FileLogState {
    const row = this.sql('select bytes from state where one = 1').get() as { bytes: Uint8Array } | undefined
    const state = row && decodeState(row.bytes)
    if (!state) throw damaged(this.path, 'its state does not match its checksum')
    return state
  }

  /** Returns the state outside the lock; undefined while another process changes it. */
  peek(): FileLogState | undefined {
    try {
      return this.state()
    } catch (error) {
      if (isBusy(error)) return undefined
      throw fileError(error, this.path)
    }
  }

  /** Outside the lock. */
  read<T>(look: () => T): Promise<T> {
    return this.#retryWhileBusy(look)
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

  replaced(): boolean {
    return statSync(this.path, { throwIfNoEntry: false })?.ino !== this.#inode
  }

  /** After the last call that had the lock. */
  async close(): Promise<void> {
    this.#closed = true
    await this.#turn
    this.#giveUp()
    this.#statements.clear()
    this.#db.close()
  }

  #create(): void {
    this.#db.exec('begin exclusive')
    try {
      if (this.#tables().length === 0) {
        for (const table of SCHEMA) this.#db.exec(table)
        this.#db.exec(`pragma application_id = ${APPLICATION}; pragma user_version = ${VERSION}`)
        this.#db.prepare('insert into state values (1, ?)').run(encodeState({ epoch: 0, owner: 0, log: this.#clock.bits() }))
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

  /**
   * Retries at once first, since an append is short. Later retries pause only briefly: a process that started to wait later would otherwise always win. A process
   * that appends without a pause would win as well: it is told to make one.
   */
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
      if (tries % TELL === 0 && tries >= 20) this.#onWait?.()
      if (tries < 20) await new Promise<void>(resolve => this.#clock.soon(resolve))
      else await pause(this.#clock, tries < 500 ? 1 : 10, undefined, { ref: true }) // the process must not end before its call
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
