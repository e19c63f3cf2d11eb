/** One connection on which statements are prepared once. */
import { afterReading } from '../../clock.ts'
import {
  type ConnectionSettings,
  codeOf,
  isAnswer,
  NoAnswer,
  NotSent,
  type PostgresRow,
  type PostgresValue,
  withTimeout,
} from './driver.ts'
import { inText, type PgClient } from './pg-client.ts'

const MAX_NAME = 63
/** The statement is not prepared in this session, or twice: there is a pooler after all, or DISCARD was run. Nothing was done. */
const NOT_PREPARED = new Set(['26000', '42P05'])

/**
 * Runs one statement at a time on one connection. One timer serves many statements, since most are answered long before it fires: what an
 * append costs besides the engine's work is counted in microseconds.
 */
export class PreparedConnection {
  readonly #client: PgClient
  readonly #settings: ConnectionSettings
  readonly #broken: () => void
  #waiting: ((error: Error) => void) | undefined
  #idle: (() => void) | undefined
  #until = 0
  #watching = false
  #prepared = true
  #over = false

  /** `broken` is called when the connection must not be used any more, because a late answer may still arrive. */
  constructor(client: PgClient, settings: ConnectionSettings, broken: () => void) {
    this.#client = client
    this.#settings = settings
    this.#broken = broken
  }

  get busy(): boolean {
    return this.#waiting !== undefined
  }

  run(text: string, values: readonly PostgresValue[]): Promise<readonly PostgresRow[]> {
    return new Promise((resolve, reject) => {
      if (this.#over) return reject(new NotSent('the connection is gone'))
      const config = inText(text, values)
      const fail = (error: Error) => {
        if (this.#prepared && NOT_PREPARED.has(codeOf(error))) {
          this.#prepared = false
          return resolve(this.run(text, values))
        }
        if (!isAnswer(error)) {
          this.#over = true
          this.#broken()
        }
        reject(error)
      }
      this.#started(fail)
      this.#client.query(this.#prepared ? { ...config, name: text.slice(-MAX_NAME) } : config, (error, result) => {
        if (this.#waiting !== fail) return // timed out
        this.#finished()
        if (error) fail(error)
        else resolve(result.rows)
      })
    })
  }

  /** Accepts no more statements. Resolves when none is pending, or after a while. */
  async end(): Promise<void> {
    this.#over = true
    if (this.#waiting === undefined) return
    const idle = new Promise<void>(resolve => (this.#idle = resolve))
    await withTimeout({ ...this.#settings, timeout: 1_000 }, idle).catch(() => {})
  }

  #started(fail: (error: Error) => void): void {
    const { clock, timeout } = this.#settings
    this.#waiting = fail
    this.#until = clock.now() + timeout
    this.#client.ref()
    if (!this.#watching) this.#watch(timeout)
  }

  #finished(): void {
    this.#waiting = undefined
    this.#client.unref()
    this.#idle?.()
  }

  #watch(ms: number): void {
    const { clock, timeout } = this.#settings
    this.#watching = true
    afterReading(clock, ms, () => {
      this.#watching = false
      const fail = this.#waiting
      if (fail === undefined) return
      const left = this.#until - clock.now()
      if (left > 0) return this.#watch(left)
      this.#finished()
      fail(new NoAnswer(`no answer for ${timeout} ms`))
    })
  }
}
