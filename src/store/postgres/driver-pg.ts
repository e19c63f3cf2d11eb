/** The store's driver on npm `pg`. */
import type { PoolClient, QueryArrayConfig } from 'pg'
import { driverMissing } from '../driver-package.ts'
import {
  type ConnectionSettings,
  isAnswer,
  type ListeningConnection,
  type NotificationListener,
  NotSent,
  PG,
  type PostgresDriver,
  type PostgresRow,
  type PostgresValue,
  SCRIPT_TIMEOUT,
  withTimeout,
} from './driver.ts'
import { inText, type PgClient, type PgConnection, type PgPool, type PgQuery } from './pg-client.ts'
import { PreparedConnection } from './prepared-connection.ts'

/** In a `try`, which tells webpack that the package may be missing. */
async function driver(): Promise<typeof import('pg')> {
  try {
    return await import('pg')
  } catch (cause) {
    throw driverMissing(PG, cause)
  }
}

/** A pool whose idle connections do not keep the process alive. */
export async function pgPool(url: string, { timeout }: Pick<ConnectionSettings, 'timeout'>): Promise<PgPool> {
  const pg = await driver()
  const pool = new pg.default.Pool({
    connectionString: url,
    max: 4, // one append, two reads, one snapshot at a time
    connectionTimeoutMillis: timeout,
    // The connection that listens carries statements, too. Processes that start together need two each only for a moment.
    idleTimeoutMillis: 1_000,
    keepAlive: true,
    allowExitOnIdle: true,
    application_name: 'leasehold',
    verify: refuseStandby,
  })
  pool.on('error', () => {}) // an idle connection was lost: the pool connects again when needed
  return pool
}

/** The log on a standby is out of date. A server does not become a standby under an open connection. */
function refuseStandby(client: PoolClient, done: (error?: Error) => void): void {
  const ignore = () => {} // the pool does not listen yet, and an error event without a listener would end the process
  client.on('error', ignore)
  const standby = inText('select pg_is_in_recovery()::text') as unknown as QueryArrayConfig
  client.query<[string]>(standby, (error: Error | null, result) => {
    client.removeListener('error', ignore)
    if (error) done(error)
    else done(result.rows[0]![0] === 'true' ? Object.assign(new Error('this is a standby'), { code: '25006' }) : undefined)
  })
}

export class PgDriver implements PostgresDriver {
  readonly #pool: PgPool
  readonly #own: boolean
  readonly #settings: ConnectionSettings

  /** `own`: disposing of the driver ends the pool. */
  constructor(pool: PgPool, { own, ...settings }: ConnectionSettings & { readonly own: boolean }) {
    this.#pool = pool
    this.#own = own
    this.#settings = settings
  }

  async run(text: string, values: readonly PostgresValue[]): Promise<readonly PostgresRow[]> {
    return (await this.#on(client => client.query(inText(text, values)))).rows
  }

  async script(text: string): Promise<void> {
    await this.#on(client => client.query({ text }), SCRIPT_TIMEOUT)
  }

  async #on<T>(work: (client: PgConnection) => Promise<T>, timeout = this.#settings.timeout): Promise<T> {
    const connecting = this.#connection()
    const { connection, release } = await withTimeout(this.#settings, connecting).catch(cause => {
      connecting.then(late => late.release()).catch(() => {}) // too late
      throw new NotSent('no connection', { cause })
    })
    let reusable = false
    try {
      const result = await withTimeout({ ...this.#settings, timeout }, work(connection))
      reusable = true
      return result
    } catch (error) {
      reusable = isAnswer(error)
      throw error
    } finally {
      release(!reusable) // a late answer must not be taken for that of the next statement
    }
  }

  /**
   * A connection that breaks emits an error event, which ends the process if it has no listener. So the listener is added within the
   * callback: the server's first message and its end may arrive together, and a promise would then be too late.
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

  async listen(channel: string | undefined, { notified, lost, greeting }: NotificationListener): Promise<ListeningConnection> {
    const { Client, options } = this.#pool as PgPool & { readonly Client?: new (options: object) => PgClient }
    if (Client === undefined) throw new NotSent('this pool does not offer a Client to make a connection with')
    const client = new Client(options) // the object itself: the password is not enumerable, and a copy would lack it
    let over = false
    const end = () => {
      if (over) return
      over = true
      lost()
    }
    client.on('error', end)
    client.on('end', end)
    client.on('notification', message => notified(message.payload ?? '', message.channel))
    const prepared = new PreparedConnection(client, this.#settings, end)
    const close = async () => {
      over = true
      await prepared.end()
      // A silent server would never answer the goodbye.
      await withTimeout({ ...this.#settings, timeout: 100 }, client.end()).catch(() => destroy(client))
    }
    const query = (config: PgQuery) => withTimeout(this.#settings, client.query(config))
    try {
      await withTimeout(this.#settings, client.connect())
      if (channel !== undefined) await query({ text: `listen ${channel}` })
      const { rows } = await query(inText('select pg_backend_pid()::text'))
      // A pooler reports a process id of its own.
      const direct = rows[0]![0] === String(client.processID)
      if (direct) await query({ text: greeting })
      client.unref()
      return {
        ...(direct && {
          run: (text, values) => (prepared.busy ? this.run(text, values) : prepared.run(text, values)),
          script: async text => void (await query({ text })),
        }),
        [Symbol.asyncDispose]: close,
      }
    } catch (error) {
      void close()
      throw error
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#own) await withTimeout({ ...this.#settings, timeout: 1_000 }, this.#pool.end()).catch(() => {})
  }
}

function destroy(client: PgClient): void {
  const { connection } = client as unknown as { readonly connection?: { readonly stream?: { destroy(): void } } }
  connection?.stream?.destroy()
}
