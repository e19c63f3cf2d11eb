/**
 * A guard in SQLite: the fence is in the same transaction as the write, in the database of the application.
 *
 * It is synchronous, as the connection is: between the begin and the commit of a transaction no other code may use the connection.
 */
import { LeaseError } from '../../errors.ts'
import { checkOptionNames } from '../../options.ts'
import { checkToken, type FencedWrite, type Guard, stale, tokensOf } from './guard.ts'

/** The table of the fence. Run this once, or use the option `create`. `updated` is for deleting rows that are not needed any more. */
export const SQLITE_TABLE =
  'create table if not exists leasehold_fence (resource text primary key, token integer not null, updated text not null default current_timestamp)'

/** Run this first in each transaction that writes, with the resource and the token. If it returns no row, the token is stale: roll back. */
export const SQLITE_FENCE = `insert into leasehold_fence (resource, token) values (?, ?)
on conflict (resource) do update set token = excluded.token, updated = excluded.updated where leasehold_fence.token <= excluded.token
returning token`

/** The part that `node:sqlite`, `better-sqlite3` and `@photostructure/sqlite` have in common. */
export interface SqliteDatabase {
  exec(sql: string): unknown
  prepare(sql: string): { get(...values: (string | number)[]): unknown }
}

export interface SqliteGuardOptions {
  /**
   * Creates the table of the fence, where there is none.
   * @default false
   */
  readonly create?: boolean | undefined
}

/**
 * Fences writes to a SQLite database, for all processes that open it.
 *
 * @example
 * const guard = new SqliteGuard(new DatabaseSync('reports.db'), { create: true })
 * guard.write(lease, database => database.exec('update reports set …'))
 */
export class SqliteGuard<D extends SqliteDatabase = SqliteDatabase> implements Guard {
  readonly #database: D
  readonly #create: boolean

  constructor(database: D, options: SqliteGuardOptions = {}) {
    checkOptionNames('SqliteGuard', options, ['create'])
    this.#database = database
    this.#create = options.create ?? false
  }

  /**
   * Runs the fence in the transaction that the database is in: the caller has begun it, writes in it, and commits it. Throws `STALE` for an older token: roll
   * back. Without a transaction it is one of its own.
   */
  admit(resource: string, token: number): void {
    checkToken(resource, token)
    if (this.#create) this.#database.exec(SQLITE_TABLE)
    if (this.#database.prepare(SQLITE_FENCE).get(resource, token) === undefined) throw stale(resource, token, undefined)
  }

  /**
   * Runs the fence and the work in one transaction: both happen or neither. Throws `STALE` before the work begins if a newer token was seen. `work` must be
   * synchronous. Inside a transaction of the caller use `admit`.
   */
  write<T>(lease: FencedWrite, work: (database: D) => T): T {
    const tokens = tokensOf(lease)
    if (typeof work !== 'function') throw new LeaseError('INVALID', 'write takes the work as a callback: write(lease, database => …)')
    const database = this.#database
    database.exec('begin immediate') // fails inside a transaction, which is the caller's
    try {
      for (const [resource, token] of tokens) this.admit(resource, token)
      const result = work(database)
      if (typeof (result as PromiseLike<unknown> | undefined)?.then === 'function')
        throw new LeaseError('INVALID', 'the work of a write must be synchronous: what it awaits would run in the same transaction')
      database.exec('commit')
      return result
    } catch (error) {
      try {
        database.exec('rollback')
      } catch {
        // The failure had rolled it back.
      }
      throw error
    }
  }
}
