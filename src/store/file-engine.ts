/** SQLite, by the shape we use of it: Node's own where this Node has it, else the same API from npm. */
import { linkSync, mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { dirname } from 'node:path'
import type { Clock } from '../clock.ts'
import { LeaseError } from '../errors.ts'

export type Value = null | number | bigint | string | Uint8Array
export type Row = Record<string, Value>

export interface Statement {
  run(...values: Value[]): { changes: number | bigint; lastInsertRowid: number | bigint }
  get(...values: Value[]): unknown
  all(...values: Value[]): unknown[]
  setReadBigInts(on: boolean): void
}

export interface Database {
  exec(sql: string): void
  prepare(sql: string): Statement
  close(): void
}

export interface Engine {
  readonly DatabaseSync: new (path: string, options: { readonly timeout: number }) => Database
}

const ENGINES = ['node:sqlite', '@photostructure/sqlite']

export async function loadEngine(engines: readonly string[] = ENGINES): Promise<Engine> {
  const causes: unknown[] = []
  for (const name of engines) {
    try {
      return await import(name)
    } catch (cause) {
      causes.push(cause)
    }
  }
  throw new LeaseError(
    'UNSUPPORTED',
    `this Node (${process.version}) has no SQLite of its own and @photostructure/sqlite could not be loaded: ` +
      'use Node 22.13 or later, or run npm install @photostructure/sqlite@1',
    { cause: causes.at(-1) },
  )
}

/**
 * Makes an empty file that only its user may read; SQLite gives its side files the same mode. It is linked into place already closed:
 * closing a file that SQLite has open elsewhere in this process would take away its locks.
 */
export function createPrivately(path: string, clock: Clock): void {
  mkdirSync(dirname(path), { recursive: true, mode: 0o700 })
  const draft = `${path}-new-${clock.bits().toString(36)}`
  writeFileSync(draft, '', { mode: 0o600, flag: 'wx' })
  try {
    linkSync(draft, path)
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  } finally {
    rmSync(draft)
  }
}
