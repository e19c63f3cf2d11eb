/** The parts of npm `pg` that the store uses, described structurally, and queries in its form. */
import { bufferOf, type PostgresValue } from './driver.ts'

/** The result of a query of `pg`. */
export interface PgResult {
  readonly rows: readonly (readonly (string | null)[])[]
}

/** A query of `pg`. */
export interface PgQuery {
  readonly text: string
  readonly values?: unknown[]
  readonly rowMode?: 'array'
  readonly name?: string
  /** Instead of the parsers of the application. */
  readonly types?: { getTypeParser(): (value: string | Buffer) => string }
}

const verbatim = (value: string | Buffer) => value.toString()
const types = { getTypeParser: () => verbatim }

/** A query whose values come back as text, see PostgresRow. */
export function inText(text: string, values?: readonly PostgresValue[]): PgQuery {
  return { text, rowMode: 'array', types, ...(values !== undefined && { values: values.map(bufferOf) }) }
}

/** A client of a `Pool` of `pg`. */
export interface PgConnection {
  query(config: PgQuery): Promise<PgResult>
  on(event: 'error', listener: (error: Error) => void): unknown
  removeListener(event: 'error', listener: (error: Error) => void): unknown
}

/** A `Pool` of `pg`. */
export interface PgPool {
  connect(then: (error: Error | undefined, connection: PgConnection | undefined, release: (destroy?: boolean) => void) => void): void
  end(): Promise<void>
  readonly options: object
}

/** A connection beside the pool. */
export interface PgClient {
  readonly processID: number | null
  connect(): Promise<unknown>
  end(): Promise<void>
  ref(): void
  unref(): void
  query(config: PgQuery): Promise<PgResult>
  query(config: PgQuery, done: (error: Error | null, result: PgResult) => void): void
  on(event: 'error' | 'end', listener: () => void): unknown
  on(event: 'notification', listener: (message: { readonly channel: string; readonly payload?: string }) => void): unknown
}
