/**
 * A guard in Postgres: the fence is in the same transaction as the write.
 *
 * A transaction belongs to one connection. `write` on a pool therefore checks out a connection itself, and refuses a connection that is in use for another
 * transaction: `begin` on it would only be a warning, and the commit would be that of both.
 */
import type { EventEmitter } from 'node:events'
import { LeaseError } from '../../errors.ts'
import { checkOptionNames } from '../../options.ts'
import { checkToken, type FencedWrite, type Guard, stale, tokensOf } from './guard.ts'

/** The table of the fence. Run this once, or use the option `create`. `updated` is for deleting rows that are not needed any more. */
export const POSTGRES_TABLE =
  'create table if not exists leasehold_fence (resource text primary key, token bigint not null, updated timestamptz not null default now())'

/** Run this first in each transaction that writes, with the resource and the token. If it returns no row, the token is stale: roll back. */
export const POSTGRES_FENCE = `insert into leasehold_fence as fence (resource, token) values ($1, $2)
on conflict (resource) do update set token = excluded.token, updated = excluded.updated where fence.token <= excluded.token
returning token`

/** Two processes that create the same table at once would fail: one of them waits here. */
const CREATE_LOCK = 'select pg_advisory_xact_lock(7420, 1)'
const EXISTS = "select to_regclass('leasehold_fence')::text as name"

/**
 * One connection, by the part of a `pg` client that is used. To fence in a transaction of a query builder, give an object whose `query` runs on that
 * transaction.
 */
export interface PostgresClient {
  query(text: string, values?: unknown[]): Promise<{ readonly rows: readonly unknown[] }>
}

/** A client that was checked out of a pool. */
export interface PostgresPoolClient extends PostgresClient {
  /** With an error, the pool closes the connection instead of using it again. */
  release(error?: Error | boolean): void
}

/** The part of a `pg` pool that is used. */
export interface PostgresPool<C extends PostgresPoolClient = PostgresPoolClient> {
  connect(): Promise<C>
  /** Not used: the types of `pg` name their client here last, and the compiler infers it from the last one. */
  connect(callback: (error: Error | undefined, client: C | undefined, done: (error?: Error | boolean) => void) => void): void
}

export interface PostgresGuardOptions {
  /**
   * Creates the table of the fence, where there is none, in the transaction that needs it.
   * @default false
   */
  readonly create?: boolean | undefined
}

/** `pg` clients have this beside `query`. */
interface KnownClient extends PostgresClient {
  /** `T` or `E` inside a transaction. In `pg` since 8.17. */
  getTransactionStatus?(): string | null
}

const OF_CLIENTS = ['release', 'getTransactionStatus', 'escapeIdentifier', 'native']
const IN_USE = new WeakSet<PostgresClient>()

/**
 * Fences writes to Postgres. It locks a row for each resource: a writer with another token waits until this transaction is committed.
 *
 * @example
 * const guard = new PostgresGuard(pool, { create: true })
 * await guard.write(lease, client => client.query('update reports set …'))
 */
export class PostgresGuard<C extends PostgresClient = PostgresClient> implements Guard {
  readonly #checkOut: () => Promise<Connection<C>>
  /** Set if it was given one connection, whose transactions are the caller's. */
  readonly #client: C | undefined
  readonly #create: boolean
  /** The table was there after a commit. */
  #exists = false

  /** Takes a pool, or one connection: a client of `pg`, or an object whose `query` runs on one. */
  constructor(pool: PostgresPool<C & PostgresPoolClient>, options?: PostgresGuardOptions)
  constructor(client: C, options?: PostgresGuardOptions)
  constructor(place: PostgresPool<C & PostgresPoolClient> | C, options: PostgresGuardOptions = {}) {
    checkOptionNames('PostgresGuard', options, ['create'])
    this.#create = options.create ?? false
    if (isPool(place)) {
      this.#client = undefined
      this.#checkOut = async () => checkedOut(await place.connect())
      return
    }
    if (typeof (place as Partial<PostgresClient> | undefined)?.query !== 'function')
      throw new LeaseError(
        'INVALID',
        'PostgresGuard takes a pool or a client of pg, or an object with query(text, values) on one connection',
      )
    this.#client = place
    this.#checkOut = async () => ({ client: place, release() {} })
  }

  /**
   * Runs the fence in the transaction that the client is in: the caller has begun it, writes in it, and commits it. Rejects with `STALE` for an older
   * token: roll back. With a pool it is a transaction of its own, and no fence for what is written elsewhere.
   */
  async admit(resource: string, token: number): Promise<void> {
    checkToken(resource, token)
    if (this.#client === undefined) return this.#transaction([[resource, token]], async () => {})
    if (this.#create) await createTable(this.#client)
    await fence(this.#client, resource, token)
  }

  /**
   * Runs the fence and the work in one transaction, on one connection: both happen or neither. `work` gets that connection, and must use no other one. Rejects
   * with `STALE` before the work begins if a newer token was seen.
   */
  async write<T>(lease: FencedWrite, work: (client: C) => T | PromiseLike<T>): Promise<T> {
    const tokens = tokensOf(lease)
    if (typeof work !== 'function') throw new LeaseError('INVALID', 'write takes the work as a callback: write(lease, client => …)')
    return this.#transaction(tokens, work)
  }

  async #transaction<T>(tokens: ReturnType<typeof tokensOf>, work: (client: C) => T | PromiseLike<T>): Promise<T> {
    const { client, release } = await this.#checkOut()
    let unusable: Error | undefined
    try {
      mustBeIdle(client)
      IN_USE.add(client)
      try {
        await client.query('begin')
        const created = this.#create && !this.#exists
        if (created) await createTable(client)
        for (const [resource, token] of tokens) await fence(client, resource, token)
        const result = await work(client)
        await commit(client)
        this.#exists ||= created
        return result
      } catch (error) {
        // The first error matters more than a failed rollback, which fails whenever the connection is gone.
        unusable = await client.query('rollback').then(
          () => undefined,
          failure => (failure instanceof Error ? failure : new Error(String(failure))),
        )
        throw error
      } finally {
        IN_USE.delete(client)
      }
    } finally {
      release(unusable)
    }
  }
}

interface Connection<C> {
  readonly client: C
  release(error?: Error): void
}

/** A client of `pg` has `connect`, too. Everything else that has it is a pool: a pool that was taken for a client would lose and mix up writes. */
function isPool<C extends PostgresClient>(place: PostgresPool<C & PostgresPoolClient> | C): place is PostgresPool<C & PostgresPoolClient> {
  const connects = typeof (place as Partial<PostgresPool> | undefined)?.connect === 'function'
  return connects && !OF_CLIENTS.some(name => name in (place as object))
}

function checkedOut<C extends PostgresPoolClient>(client: C): Connection<C> {
  if (typeof client?.query !== 'function' || typeof client.release !== 'function')
    throw new LeaseError('INVALID', 'connect() of the pool gave no client with query() and release(): PostgresGuard takes a pool of pg')
  const { on, removeListener }: Partial<EventEmitter> = client as Partial<EventEmitter>
  on?.call(client, 'error', ignore)
  return {
    client,
    release(error) {
      // One that is closed may still emit an error.
      if (error === undefined) removeListener?.call(client, 'error', ignore)
      client.release(error)
    },
  }
}

/** A client emits the loss of its connection as well, which ends the process if no listener is there. The query under way rejects with it. */
function ignore(): void {}

function mustBeIdle(client: KnownClient): void {
  if (IN_USE.has(client))
    throw new LeaseError(
      'INVALID',
      'another write is under way on this connection: give the guard a pool, or await one write after the other',
    )
  const status = client.getTransactionStatus?.()
  if (status === 'T' || status === 'E')
    throw new LeaseError(
      'INVALID',
      'this connection is inside a transaction: call admit(resource, token) in it, write, and commit it yourself',
    )
}

async function fence(client: PostgresClient, resource: string, token: number): Promise<void> {
  const { rows } = await client.query(POSTGRES_FENCE, [resource, token])
  if (rows.length === 0) throw stale(resource, token, undefined)
}

async function createTable(client: PostgresClient): Promise<void> {
  const { rows } = await client.query(EXISTS)
  if ((rows[0] as { readonly name?: unknown } | undefined)?.name) return
  await client.query(CREATE_LOCK)
  await client.query(POSTGRES_TABLE)
}

/** The commit of a transaction in which a statement failed is a rollback, and no error. */
async function commit(client: PostgresClient): Promise<void> {
  const { command } = (await client.query('commit')) as { readonly command?: unknown }
  if (command === 'ROLLBACK')
    throw new LeaseError('INVALID', 'nothing was written: a statement of the work failed, and the work did not throw its error')
}
