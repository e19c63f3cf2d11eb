/** The part of the SQLite API that the store uses: Node's own SQLite if this Node has it, else the same API from npm. */
import { LeaseError } from '../../errors.ts'

export type SqliteValue = null | number | bigint | string | Uint8Array
export type SqliteRow = Record<string, SqliteValue>

export interface Statement {
  run(...values: SqliteValue[]): { changes: number | bigint; lastInsertRowid: number | bigint }
  get(...values: SqliteValue[]): unknown
  all(...values: SqliteValue[]): unknown[]
  setReadBigInts(on: boolean): void
}

export interface Database {
  exec(sql: string): void
  prepare(sql: string): Statement
  /** Defines a function that SQL statements can call. */
  function(name: string, options: { readonly varargs: boolean }, call: (...values: SqliteValue[]) => SqliteValue): void
  close(): void
}

export interface DatabaseOptions {
  readonly timeout: number
  readonly readOnly?: boolean
}

export interface Engine {
  readonly DatabaseSync: new (path: string, options: DatabaseOptions) => Database
}

const ENGINES = ['node:sqlite', '@photostructure/sqlite']

/** The engine that this process uses, also of another copy of this library. */
const USED = Symbol.for('leasehold.sqlite')

export async function loadEngine(engines: readonly string[] = ENGINES): Promise<Engine> {
  const causes: unknown[] = []
  for (const name of engines) {
    try {
      const engine = name.startsWith('node:') ? builtin(name) : await import(name)
      mustBeOnly(name)
      return engine
    } catch (cause) {
      if (cause instanceof LeaseError) throw cause
      causes.push(cause)
    }
  }
  throw new LeaseError(
    'UNSUPPORTED',
    `this Node (${process.version}) has no SQLite and @photostructure/sqlite could not be loaded: ` +
      'use Node 22.13 or later, or run npm install @photostructure/sqlite@1',
    { cause: causes.at(-1) },
  )
}

/** Loads a module of Node without its warning that SQLite is experimental: it would be on the stderr of every program. */
function builtin(name: string): Engine {
  const { emitWarning } = process
  process.emitWarning = () => {}
  try {
    const engine = process.getBuiltinModule(name)
    if (engine === undefined) throw new Error(`this Node has no ${name}`)
    return engine as unknown as Engine
  } finally {
    process.emitWarning = emitWarning
  }
}

/** Each copy of SQLite knows only its own locks. Closing a file in one of them would release the locks of the other, and two processes could own a log. */
function mustBeOnly(name: string): void {
  const process = globalThis as { [USED]?: string }
  process[USED] ??= name
  if (process[USED] === name) return
  throw new LeaseError(
    'UNSUPPORTED',
    `this process already uses the SQLite of ${process[USED]} for a Leasehold file, and ${name} does not respect its locks: install one version of leasehold only`,
  )
}
