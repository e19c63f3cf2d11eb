/** Several servers of which one is the primary: whoever answers as such is asked, and the next when it does no longer. */
import { codeOf, type PostgresDriver, type ListeningConnection, type NotificationListener, NotSent, type PostgresRow, type PostgresValue } from './driver.ts'

export class Hosts implements PostgresDriver {
  readonly #drivers: readonly PostgresDriver[]
  #at = 0

  constructor(drivers: readonly PostgresDriver[]) {
    this.#drivers = drivers
  }

  run(text: string, values: readonly PostgresValue[]): Promise<readonly PostgresRow[]> {
    return this.#ask(driver => driver.run(text, values))
  }

  script(text: string): Promise<void> {
    return this.#ask(driver => driver.script(text))
  }

  /** A standby does not let anyone listen. */
  listen(channel: string, listener: NotificationListener): Promise<ListeningConnection> {
    return this.#ask(driver => driver.listen(channel, listener))
  }

  /** Only what was certainly not done is asked of another. */
  async #ask<T>(work: (driver: PostgresDriver) => Promise<T>): Promise<T> {
    let refused: unknown
    for (const _ of this.#drivers) {
      const at = this.#at
      try {
        return await work(this.#drivers[at]!)
      } catch (error) {
        if (!isElsewhere(error)) throw error
        refused ??= error
        if (this.#at === at) this.#at = (at + 1) % this.#drivers.length // else another call has moved on already
      }
    }
    throw refused
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all(this.#drivers.map(driver => driver[Symbol.asyncDispose]()))
  }
}

/** Nobody there, or a standby. */
function isElsewhere(error: unknown): boolean {
  return (
    error instanceof NotSent || codeOf(error) === '25006' || ['ECONNREFUSED', 'EHOSTUNREACH', 'ENOTFOUND', '57P03'].includes(codeOf(error))
  )
}

/** `postgres://user@one:5432,two:5432/database`, as libpq writes it: the URL of each. */
export function hostsOf(url: string): string[] {
  const [, before, hosts, after] = /^([a-z]+:\/\/(?:[^@/?]*@)?)([^/?]+)(.*)$/.exec(url) ?? []
  return hosts?.includes(',') === true ? hosts.split(',').map(host => `${before}${host}${after}`) : [url]
}
