/** The store's driver on npm `postgres` (postgres.js). */
import {
  bufferOf,
  type ConnectionSettings,
  codeOf,
  type ListeningConnection,
  NoAnswer,
  type NotificationListener,
  NotSent,
  type PostgresDriver,
  type PostgresRow,
  type PostgresValue,
  SCRIPT_TIMEOUT,
  withTimeout,
} from './driver.ts'

/** A query of `postgres` (postgres.js). */
export interface PostgresJsQuery extends PromiseLike<readonly unknown[]> {
  raw(): PromiseLike<readonly (readonly (Uint8Array | null)[])[]> & { cancel(): void }
  simple(): PromiseLike<unknown>
}

/** An instance of `postgres` (postgres.js). */
export interface PostgresJs {
  unsafe(text: string, values?: unknown[], options?: { readonly prepare?: boolean }): PostgresJsQuery
  listen(channel: string, notified: (payload: string) => void): Promise<{ unlisten(): Promise<void> }>
}

export class PostgresJsDriver implements PostgresDriver {
  readonly #sql: PostgresJs
  readonly #settings: ConnectionSettings

  constructor(sql: PostgresJs, settings: ConnectionSettings) {
    this.#sql = sql
    this.#settings = settings
  }

  async run(text: string, values: readonly PostgresValue[]): Promise<readonly PostgresRow[]> {
    const query = this.#sql.unsafe(text, values.map(bufferOf), { prepare: false }).raw()
    try {
      const rows = await withTimeout(this.#settings, query)
      return rows.map(row => row.map(value => value && Buffer.from(value).toString()))
    } catch (error) {
      // Never cancel what was sent: a commit that waits for a standby would end its wait and be visible without being replicated, and a late cancellation
      // would meet the next statement of that connection.
      if (error instanceof NoAnswer && 'state' in query && query.state === null) {
        query.cancel()
        throw new NotSent('no connection', { cause: error })
      }
      if (NEVER_CONNECTED.has(codeOf(error))) throw new NotSent('no connection', { cause: error })
      throw error
    }
  }

  async script(text: string): Promise<void> {
    await withTimeout({ ...this.#settings, timeout: SCRIPT_TIMEOUT }, this.#sql.unsafe(text).simple())
  }

  /** postgres.js reconnects by itself. The poll of waiting readers finds what was missed meanwhile. */
  async listen(channel: string | undefined, { notified }: NotificationListener): Promise<ListeningConnection> {
    if (channel === undefined) return { [Symbol.asyncDispose]: async () => {} }
    const { unlisten } = await withTimeout(
      this.#settings,
      this.#sql.listen(channel, payload => notified(payload, channel)),
    )
    return { [Symbol.asyncDispose]: () => withTimeout({ ...this.#settings, timeout: 1_000 }, unlisten()).catch(() => {}) }
  }

  /** The application ends the instance that it handed in. */
  async [Symbol.asyncDispose](): Promise<void> {}
}

const NEVER_CONNECTED = new Set(['CONNECT_TIMEOUT', 'CONNECTION_ENDED', 'ECONNREFUSED', 'ENOTFOUND', 'EHOSTUNREACH', 'ENETUNREACH'])
