/**
 * Announcements in Postgres: rows of a table that the first announcement creates. It is not logged by the engine: a base backup does not contain its rows, and after a
 * crash it is empty.
 */
import type { Clock } from '../../clock.ts'
import { type Announcements, checkName } from '../announcements.ts'
import { codeOf, type PostgresDriver, type PostgresRow, type PostgresValue } from './driver.ts'
import { PgDriver, pgPool } from './driver-pg.ts'
import { isAbsent, isConflict, postgresError } from './errors.ts'
import { Hosts, hostsOf } from './hosts.ts'
import { SETTINGS } from './postgres.ts'
import { isPlain } from './schema.ts'

const TIMEOUT = 5_000
const ATTEMPTS = 5
/** Two processes have created the table at the same time. */
const CREATED_TWICE = ['23505', '42P07']

export class PostgresAnnouncements implements Announcements {
  readonly #driver: PostgresDriver
  readonly #schema: string
  readonly #log: string
  readonly #where: string

  static async open(url: string, clock: Clock): Promise<PostgresAnnouncements> {
    const settings = { clock, timeout: TIMEOUT }
    const urls = hostsOf(url).map(one => new URL(one))
    const { searchParams, pathname } = urls[0]!
    const [schema, log] = [searchParams.get('schema') ?? 'leasehold', searchParams.get('name') ?? 'leasehold']
    for (const one of urls) for (const setting of SETTINGS) one.searchParams.delete(setting)
    const drivers = await Promise.all(urls.map(async one => new PgDriver(await pgPool(one.href, settings), { ...settings, own: true })))
    const driver = drivers.length === 1 ? drivers[0]! : new Hosts(drivers, () => {})
    return new PostgresAnnouncements(driver, { schema, log, where: `postgres://${urls.map(({ host }) => host).join()}${pathname}` })
  }

  private constructor(
    driver: PostgresDriver,
    { schema, log, where }: { readonly schema: string; readonly log: string; readonly where: string },
  ) {
    if (!isPlain(schema)) throw new RangeError(`${schema} cannot be the schema`) // it becomes a part of statements
    this.#driver = driver
    this.#schema = schema
    this.#log = log
    this.#where = where
  }

  async put(name: string, text: string, ttl: number): Promise<void> {
    const ended = `with ended as (delete from ${this.#schema}.announcement where ends < now() and name <> $2)`
    const put = `${ended} insert into ${this.#schema}.announcement as there (log, name, content, ends)
      values ($1, $2, $3, now() + $4 * interval '1 millisecond')
      on conflict (log, name) do update set content = excluded.content, ends = excluded.ends returning there.name`
    const values = [this.#log, checkName(name), text, Math.ceil(ttl)]
    if ((await this.#run(put, values)) === undefined) {
      await this.#create()
      await this.#run(put, values)
    }
  }

  async list(prefix: string): Promise<ReadonlyMap<string, string>> {
    const rows = await this.#run(
      `select name, content from ${this.#schema}.announcement where log = $1 and starts_with(name, $2) and ends > now()`,
      [this.#log, prefix],
    )
    return new Map((rows ?? []).map(([name, content]) => [name!, content!]))
  }

  async take(name: string): Promise<string | undefined> {
    const rows = await this.#run(
      `delete from ${this.#schema}.announcement where log = $1 and name = $2 returning case when ends > now() then content end`,
      [this.#log, checkName(name)],
    )
    return rows?.[0]?.[0] ?? undefined
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#driver[Symbol.asyncDispose]()
  }

  async #create(): Promise<void> {
    try {
      await this.#driver.script(
        `create schema if not exists ${this.#schema};
        create unlogged table if not exists ${this.#schema}.announcement (
          log text not null, name text not null, content text not null, ends timestamptz not null, primary key (log, name));`,
      )
    } catch (error) {
      if (!CREATED_TWICE.includes(codeOf(error))) throw postgresError(error, this.#where, 'never')
    }
  }

  /** Undefined if there is no table yet. */
  async #run(text: string, values: readonly PostgresValue[]): Promise<readonly PostgresRow[] | undefined> {
    for (let attempt = 1; ; attempt++) {
      try {
        return await this.#driver.run(text, values)
      } catch (error) {
        if (isAbsent(error)) return undefined
        if (!isConflict(error) || attempt === ATTEMPTS) throw postgresError(error, this.#where, 'never')
      }
    }
  }
}
