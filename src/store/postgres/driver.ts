/**
 * The store needs this of a driver. Two packages provide it, `pg` (driver-pg.ts) and `postgres` (driver-postgres-js.ts). Their types are
 * described structurally, so that neither has to be installed for the other.
 *
 * No statement has a name and none relies on the one before it: behind a pooler in transaction mode each may run in another session.
 * Statements are prepared only on the connection that listens, and only if no pooler is in between.
 */
import { afterReading, type Clock } from '../../clock.ts'
import type { DriverPackage } from '../driver-package.ts'

export const PG: DriverPackage = { package: 'pg', install: 'npm install pg', url: 'postgres://' }

export type PostgresValue = string | number | Uint8Array
/**
 * Each value as text. An application may configure its driver to parse int8 as a number, which would round nonces, so the store bypasses
 * the driver's parsers. Every selected column is cast to text, so this also holds for drivers that receive binary values.
 */
export type PostgresRow = readonly (string | null)[]

/** The connection failed before the statement was sent. */
export class NotSent extends Error {
  override readonly name = 'NotSent'
}

/** The statement was sent, and no answer came in time. */
export class NoAnswer extends Error {
  override readonly name = 'NoAnswer'
}

export interface PostgresDriver extends AsyncDisposable {
  /** Runs one statement in a transaction of its own. Rejects with NotSent, NoAnswer, or the driver's error. */
  run(text: string, values: readonly PostgresValue[]): Promise<readonly PostgresRow[]>
  /** Runs several statements without values in one transaction. */
  script(text: string): Promise<void>
  /**
   * Opens a connection for notifications. Resolves when LISTEN is in effect: from then on `notified` receives the payloads of the channel. Without a channel it listens
   * to nothing yet.
   */
  listen(channel: string | undefined, listener: NotificationListener): Promise<ListeningConnection>
}

export interface NotificationListener {
  notified(payload: string, channel: string): void
  /** The connection is lost, and no more notifications will come. */
  lost(): void
  /** The statements to run first on a direct connection, with no pooler in between. Their effect lasts as long as the connection. */
  readonly greeting: string
}

export interface ListeningConnection extends AsyncDisposable {
  /** Present on a direct connection, with no pooler in between: notifications will arrive, and statements can run on it. As `PostgresDriver.run`. */
  readonly run?: PostgresDriver['run']
  /** As `PostgresDriver.script`, on this very connection. */
  readonly script?: PostgresDriver['script']
}

export interface ConnectionSettings {
  readonly clock: Clock
  /** An answer may take this long, in ms. */
  readonly timeout: number
}

/** For the script that creates the tables, in ms: a second process waits for the first. */
export const SCRIPT_TIMEOUT = 30_000

export function bufferOf(value: PostgresValue): unknown {
  return value instanceof Uint8Array ? Buffer.from(value.buffer, value.byteOffset, value.byteLength) : value
}

/** The SQLSTATE of five characters, or the code of the system or the driver. */
export function codeOf(error: unknown): string {
  const { code } = (error ?? {}) as { readonly code?: unknown }
  return typeof code === 'string' ? code : ''
}

/** Codes after which the effect of a statement is unknown: a shutdown, a broken connection, an internal error of the server. */
const NO_ANSWER = /^(08|25P|57P|58|F0|XX|40003|53300)/

/**
 * The server reported that the statement failed and its transaction was rolled back. (Severities are translated, codes are not.) Every
 * SQLSTATE has a digit; the system's EPIPE, of a broken connection, has none.
 */
export function isAnswer(error: unknown): boolean {
  return /^(?=.*\d)[0-9A-Z]{5}$/.test(codeOf(error)) && !NO_ANSWER.test(codeOf(error))
}

/** The result of `promise`, or NoAnswer after the timeout. */
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
