/**
 * What the store needs of a driver, and the two that can do it: `pg` and `postgres` (postgres.js). They are described by their shape, so that
 * neither has to be installed for the other.
 *
 * No statement has a name and none relies on the one before it: behind a pooler in transaction mode each may run in another session.
 */
import type { Clock } from '../clock.ts'
import { LeaseError } from '../errors.ts'

export type Value = string | number | Uint8Array
export type Row = readonly unknown[]

/** The engine never got to see it: the connection failed before anything was sent. */
export class NotSent extends Error {
  override readonly name = 'NotSent'
}

/** It was sent, and no answer came in time. */
export class NoAnswer extends Error {
  override readonly name = 'NoAnswer'
}

export interface Driver extends AsyncDisposable {
  /** One statement in a transaction of its own. Rejects with NotSent, NoAnswer, or what the driver says. */
  run(text: string, values: readonly Value[]): Promise<readonly Row[]>
  /** Several statements without values, in one transaction. */
  script(text: string): Promise<void>
  /** Resolves when `heard` is to be told of what is sent to the channel. `lost`: from now on it will not be. */
  listen(channel: string, heard: (payload: string) => void, lost: () => void): Promise<Listening>
}

export interface Listening extends AsyncDisposable {
  /** Nothing stands between us and the engine, so it will be heard. */
  readonly direct: boolean
}

interface Settings {
  readonly clock: Clock
  /** How long an answer may take, in ms. */
  readonly patience: number
}

/** Tables are made once, and whoever comes second waits for the first. */
const SCRIPT_PATIENCE = 30_000

// ---------------------------------------------------------------------------------------------------------------------------
// pg

interface PgResult {
  readonly rows: readonly Row[]
}

export interface PgConnection {
  query(config: { readonly text: string; readonly values?: unknown[]; readonly rowMode?: 'array' }): Promise<PgResult>
  on(event: 'error', listener: (error: Error) => void): unknown
  removeListener(event: 'error', listener: (error: Error) => void): unknown
}

/** A `Pool` of `pg`. */
export interface PgPool {
  connect(then: (error: Error | undefined, connection: PgConnection | undefined, release: (destroy?: boolean) => void) => void): void
  end(): Promise<void>
  readonly options: object
}

/** A connection of its own, beside the pool. */
interface PgClient extends Pick<PgConnection, 'query'> {
  readonly processID: number | null
  connect(): Promise<unknown>
  end(): Promise<void>
  unref(): void
  on(event: 'error' | 'end', listener: () => void): unknown
  on(event: 'notification', listener: (message: { readonly channel: string; readonly payload?: string }) => void): unknown
}

/** Idle connections keep no process alive. */
export async function pgPool(url: string, { patience }: Pick<Settings, 'patience'>): Promise<PgPool> {
  const pg = await import('pg').catch(cause => {
    throw new LeaseError('UNSUPPORTED', 'postgres:// needs the package pg, which is not installed here: npm install pg', {
      cause,
      facts: { package: 'pg' },
    })
  })
  const pool = new pg.default.Pool({
    connectionString: url,
    max: 4, // one append, two reads, one snapshot at a time
    connectionTimeoutMillis: patience,
    keepAlive: true,
    allowExitOnIdle: true,
    application_name: 'leasehold',
  })
  pool.on('error', () => {}) // an idle connection was lost: the next one is made when it is needed
  return pool
}

export class PgDriver implements Driver {
  readonly #pool: PgPool
  readonly #own: boolean
  readonly #settings: Settings

  /** `own`: the pool is ended with this. */
  constructor(pool: PgPool, { own, ...settings }: Settings & { readonly own: boolean }) {
    this.#pool = pool
    this.#own = own
    this.#settings = settings
  }

  async run(text: string, values: readonly Value[]): Promise<readonly Row[]> {
    return (await this.#on(client => client.query({ text, values: values.map(bufferOf), rowMode: 'array' }))).rows
  }

  async script(text: string): Promise<void> {
    await this.#on(client => client.query({ text }), SCRIPT_PATIENCE)
  }

  async #on<T>(work: (client: PgConnection) => Promise<T>, patience = this.#settings.patience): Promise<T> {
    const connecting = this.#connection()
    const { connection, release } = await within(this.#settings, connecting).catch(cause => {
      connecting.then(late => late.release()).catch(() => {}) // nobody waits for it any more
      throw new NotSent('no connection', { cause })
    })
    let whole = false
    try {
      const result = await within({ ...this.#settings, patience }, work(connection))
      whole = true
      return result
    } catch (error) {
      whole = isAnswer(error)
      throw error
    } finally {
      release(!whole) // what may still be answered is not to be used for anything else
    }
  }

  /**
   * A connection that breaks says so with an event, and one that nobody listens to ends the process. So we listen within the callback: a greeting
   * and a goodbye may come in one piece, and then a promise would be too late.
   */
  #connection(): Promise<{ readonly connection: PgConnection; readonly release: (destroy?: boolean) => void }> {
    return new Promise((resolve, reject) => {
      this.#pool.connect((error, connection, done) => {
        if (connection === undefined) return reject(error)
        const ignore = () => {}
        connection.on('error', ignore)
        const release = (destroy?: boolean) => {
          connection.removeListener('error', ignore)
          done(destroy)
        }
        resolve({ connection, release })
      })
    })
  }

  async listen(channel: string, heard: (payload: string) => void, lost: () => void): Promise<Listening> {
    const { Client, options } = this.#pool as PgPool & { readonly Client?: new (options: object) => PgClient }
    if (Client === undefined) throw new NotSent('this pool does not say how to make a connection of its own')
    const client = new Client(options) // the object itself: a copy would be without the password, which is hidden in it
    let over = false
    const end = () => {
      if (over) return
      over = true
      lost()
    }
    client.on('error', end)
    client.on('end', end)
    client.on('notification', message => {
      if (message.channel === channel) heard(message.payload ?? '')
    })
    const close = async () => {
      over = true
      // A peer that is silent would never let us go politely.
      await within({ ...this.#settings, patience: 100 }, client.end()).catch(() => destroy(client))
    }
    try {
      await within(this.#settings, client.connect())
      await within(this.#settings, client.query({ text: `listen ${channel}` }))
      const { rows } = await within(this.#settings, client.query({ text: 'select pg_backend_pid()', rowMode: 'array' }))
      client.unref()
      // A pooler greets with a number of its own.
      return { direct: rows[0]![0] === client.processID, [Symbol.asyncDispose]: close }
    } catch (error) {
      void close()
      throw error
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#own) await within({ ...this.#settings, patience: 1_000 }, this.#pool.end()).catch(() => {})
  }
}

function bufferOf(value: Value): unknown {
  return value instanceof Uint8Array ? Buffer.from(value.buffer, value.byteOffset, value.byteLength) : value
}

function destroy(client: PgClient): void {
  const { connection } = client as unknown as { readonly connection?: { readonly stream?: { destroy(): void } } }
  connection?.stream?.destroy()
}

// ---------------------------------------------------------------------------------------------------------------------------
// postgres.js

interface PendingQuery extends PromiseLike<readonly unknown[]> {
  values(): PromiseLike<readonly Row[]> & { cancel(): void }
  simple(): PromiseLike<unknown>
}

/** An instance of `postgres` (postgres.js). */
export interface PostgresJs {
  unsafe(text: string, values?: unknown[], options?: { readonly prepare?: boolean }): PendingQuery
  listen(channel: string, heard: (payload: string) => void): Promise<{ unlisten(): Promise<void> }>
}

export class PostgresJsDriver implements Driver {
  readonly #sql: PostgresJs
  readonly #settings: Settings

  constructor(sql: PostgresJs, settings: Settings) {
    this.#sql = sql
    this.#settings = settings
  }

  async run(text: string, values: readonly Value[]): Promise<readonly Row[]> {
    const query = this.#sql.unsafe(text, values.map(bufferOf), { prepare: false }).values()
    try {
      return await within(this.#settings, query)
    } catch (error) {
      if (error instanceof NoAnswer) query.cancel() // it may not even have left yet
      if (NEVER_CONNECTED.has(codeOf(error))) throw new NotSent('no connection', { cause: error })
      throw error
    }
  }

  async script(text: string): Promise<void> {
    await within({ ...this.#settings, patience: SCRIPT_PATIENCE }, this.#sql.unsafe(text).simple())
  }

  /** It connects again by itself; what was missed meanwhile the poll beneath finds. */
  async listen(channel: string, heard: (payload: string) => void): Promise<Listening> {
    const { unlisten } = await within(this.#settings, this.#sql.listen(channel, heard))
    return { direct: false, [Symbol.asyncDispose]: () => within({ ...this.#settings, patience: 1_000 }, unlisten()).catch(() => {}) }
  }

  /** It is whoever handed it in who ends it. */
  async [Symbol.asyncDispose](): Promise<void> {}
}

const NEVER_CONNECTED = new Set(['CONNECT_TIMEOUT', 'CONNECTION_ENDED', 'ECONNREFUSED', 'ENOTFOUND', 'EHOSTUNREACH', 'ENETUNREACH'])

// ---------------------------------------------------------------------------------------------------------------------------

/** Five characters, as the SQL standard has them, or what the system or the driver calls it. */
export function codeOf(error: unknown): string {
  const { code } = (error ?? {}) as { readonly code?: unknown }
  return typeof code === 'string' ? code : ''
}

/** What ends the connection, or says that nobody knows: a shutdown, a broken connection, trouble of the engine itself. */
const NO_ANSWER = /^(08|25P|57P|58|F0|XX|40003|53300)/

/** The engine said that the statement failed, and goes on: its transaction was rolled back. (Severities are translated, codes are not.) */
export function isAnswer(error: unknown): boolean {
  return /^[0-9A-Z]{5}$/.test(codeOf(error)) && !NO_ANSWER.test(codeOf(error))
}

async function within<T>({ clock, patience }: Settings, promise: PromiseLike<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const cancel = clock.after(patience, () => reject(new NoAnswer(`no answer for ${patience} ms`)), { ref: true })
    promise.then(
      value => {
        cancel()
        resolve(value)
      },
      error => {
        cancel()
        reject(error)
      },
    )
  })
}
