/** The driver `postgres` (postgres.js). */
import {
  bufferOf,
  type ConnectionSettings,
  codeOf,
  type PostgresDriver,
  type ListeningConnection,
  NoAnswer,
  type NotificationListener,
  NotSent,
  type PostgresRow,
  SCRIPT_TIMEOUT,
  type PostgresValue,
  withTimeout,
} from './driver.ts'

interface PendingQuery extends PromiseLike<readonly unknown[]> {
  raw(): PromiseLike<readonly (readonly (Uint8Array | null)[])[]> & { cancel(): void }
  simple(): PromiseLike<unknown>
}

/** An instance of `postgres` (postgres.js). */
export interface PostgresJs {
  unsafe(text: string, values?: unknown[], options?: { readonly prepare?: boolean }): PendingQuery
  listen(channel: string, heard: (payload: string) => void): Promise<{ unlisten(): Promise<void> }>
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
      if (error instanceof NoAnswer) query.cancel() // it may not even have left yet
      if (NEVER_CONNECTED.has(codeOf(error))) throw new NotSent('no connection', { cause: error })
      throw error
    }
  }

  async script(text: string): Promise<void> {
    await withTimeout({ ...this.#settings, timeout: SCRIPT_TIMEOUT }, this.#sql.unsafe(text).simple())
  }

  /** It connects again by itself; what was missed meanwhile the poll beneath finds. */
  async listen(channel: string, { heard }: NotificationListener): Promise<ListeningConnection> {
    const { unlisten } = await withTimeout(this.#settings, this.#sql.listen(channel, heard))
    return { [Symbol.asyncDispose]: () => withTimeout({ ...this.#settings, timeout: 1_000 }, unlisten()).catch(() => {}) }
  }

  /** It is whoever handed it in who ends it. */
  async [Symbol.asyncDispose](): Promise<void> {}
}

const NEVER_CONNECTED = new Set(['CONNECT_TIMEOUT', 'CONNECTION_ENDED', 'ECONNREFUSED', 'ENOTFOUND', 'EHOSTUNREACH', 'ENETUNREACH'])
