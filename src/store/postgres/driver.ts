/**
 * What the store needs of a driver. Two can do it, `pg` (postgres-pg.ts) and `postgres` (postgres-js.ts). They are described by their shape, so
 * that neither has to be installed for the other.
 *
 * No statement has a name and none relies on the one before it: behind a pooler in transaction mode each may run in another session. Only on
 * the connection that listens, and only where nothing stands between us and the engine, statements are prepared once.
 */
import { afterReading, type Clock } from '../../clock.ts'
import type { DriverPackage } from '../driver-package.ts'

export const PG: DriverPackage = { package: 'pg', install: 'npm install pg', url: 'postgres://' }

export type PostgresValue = string | number | Uint8Array
/**
 * Each value as the engine writes it. What an application makes its driver parse (int8 as a number, say) would round nonces, so no parser of
 * the driver is asked. Every column that is selected is cast to text: then this also holds where values come in binary.
 */
export type PostgresRow = readonly (string | null)[]

/** The engine never got to see it: the connection failed before anything was sent. */
export class NotSent extends Error {
  override readonly name = 'NotSent'
}

/** It was sent, and no answer came in time. */
export class NoAnswer extends Error {
  override readonly name = 'NoAnswer'
}

export interface PostgresDriver extends AsyncDisposable {
  /** One statement in a transaction of its own. Rejects with NotSent, NoAnswer, or what the driver says. */
  run(text: string, values: readonly PostgresValue[]): Promise<readonly PostgresRow[]>
  /** Several statements without values, in one transaction. */
  script(text: string): Promise<void>
  /** Resolves when `heard` is to be told of what is sent to the channel. */
  listen(channel: string, listener: NotificationListener): Promise<ListeningConnection>
}

export interface NotificationListener {
  heard(payload: string): void
  /** From now on nothing will be heard. */
  lost(): void
  /** What is said first where nothing stands between us and the engine. Lasts as long as the connection. */
  readonly greeting: string
}

export interface ListeningConnection extends AsyncDisposable {
  /** Nothing stands between us and the engine, so it will be heard; and this is a connection that can be used as well. As `Driver.run`. */
  readonly run?: PostgresDriver['run']
}

export interface ConnectionSettings {
  readonly clock: Clock
  /** How long an answer may take, in ms. */
  readonly timeout: number
}

/** Tables are made once, and whoever comes second waits for the first. */
export const SCRIPT_TIMEOUT = 30_000

export function bufferOf(value: PostgresValue): unknown {
  return value instanceof Uint8Array ? Buffer.from(value.buffer, value.byteOffset, value.byteLength) : value
}

/** Five characters, as the SQL standard has them, or what the system or the driver calls it. */
export function codeOf(error: unknown): string {
  const { code } = (error ?? {}) as { readonly code?: unknown }
  return typeof code === 'string' ? code : ''
}

/** What ends the connection, or says that nobody knows: a shutdown, a broken connection, trouble of the engine itself. */
const NO_ANSWER = /^(08|25P|57P|58|F0|XX|40003|53300)/

/**
 * The engine said that the statement failed, and goes on: its transaction was rolled back. (Severities are translated, codes are not.) Every
 * code of the engine has a digit; the system's EPIPE, of a connection that broke, has none.
 */
export function isAnswer(error: unknown): boolean {
  return /^(?=.*\d)[0-9A-Z]{5}$/.test(codeOf(error)) && !NO_ANSWER.test(codeOf(error))
}

/** Its answer, if it comes in time. */
export async function withTimeout<T>({ clock, timeout }: ConnectionSettings, promise: PromiseLike<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const cancel = afterReading(clock, timeout, () => reject(new NoAnswer(`no answer for ${timeout} ms`)), { ref: true })
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
