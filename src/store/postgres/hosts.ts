/** Several servers of which one is the primary. Statements go to the server that answered last as the primary, else to the next one. */
import {
  codeOf,
  type ListeningConnection,
  type NotificationListener,
  NotSent,
  type PostgresDriver,
  type PostgresRow,
  type PostgresValue,
} from './driver.ts'

export class Hosts implements PostgresDriver {
  readonly #drivers: readonly PostgresDriver[]
  readonly #moved: () => void
  #current = 0

  /** `moved` is called when the next statement goes to another server. */
  constructor(drivers: readonly PostgresDriver[], moved: () => void) {
    this.#drivers = drivers
    this.#moved = moved
  }

  run(text: string, values: readonly PostgresValue[]): Promise<readonly PostgresRow[]> {
    return this.#try(driver => driver.run(text, values))
  }

  script(text: string): Promise<void> {
    return this.#try(driver => driver.script(text))
  }

  listen(channel: string | undefined, listener: NotificationListener): Promise<ListeningConnection> {
    return this.#try(driver => driver.listen(channel, listener))
  }

  /** Tries the next server only if the statement certainly had no effect. */
  async #try<T>(work: (driver: PostgresDriver) => Promise<T>): Promise<T> {
    let refused: unknown
    for (const _ of this.#drivers) {
      const current = this.#current
      try {
        return await work(this.#drivers[current]!)
      } catch (error) {
        if (!isNotPrimary(error)) throw error
        refused ??= error
        if (this.#current !== current) continue // another call has moved on already
        this.#current = (current + 1) % this.#drivers.length
        this.#moved()
      }
    }
    throw refused
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#drivers.map(driver => driver[Symbol.asyncDispose]()))
  }
}

/** The server is unreachable, or a standby. */
function isNotPrimary(error: unknown): boolean {
  return (
    error instanceof NotSent || codeOf(error) === '25006' || ['ECONNREFUSED', 'EHOSTUNREACH', 'ENOTFOUND', '57P03'].includes(codeOf(error))
  )
}

/** `postgres://user@one:5432,two:5432/database`, as libpq writes it: the URL of each. */
export function hostsOf(url: string): string[] {
  const [, before, hosts, after] = /^([a-z]+:\/\/(?:[^@/?]*@)?)([^/?]+)(.*)$/.exec(url) ?? []
  return hosts?.includes(',') === true ? hosts.split(',').map(host => `${before}${host}${after}`) : [url]
}
