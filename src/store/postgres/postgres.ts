/**
 * A log in Postgres, shared by any number of replicas: one row for each record. A lock on the log's row gives the order.
 *
 * Not guaranteed: the age of records (the engine has only a wall clock, which may be adjusted), unless that clock is trusted; that an acknowledged record survives a
 * failover to a standby that was not synchronous. See docs/stores/postgres.md for settings, roles and poolers, and schema.ts for the order.
 */
import { type Clock, systemClock } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import type { Appended, Opened, Position, Profile, Read, RenewalMark, Snapshot, Store, Waker } from '../../store.ts'
import { storeClosed, storeNotOpened } from '../closed.ts'
import { ConfirmedReads } from '../confirmed-reads.ts'
import { RecentRecords } from '../recent-records.ts'
import { TRUSTED_CLOCK, trustedClock } from '../trusted-clock.ts'
import { divergence, parseAnswer } from './answer.ts'
import { isAnswer, type PostgresDriver, type PostgresRow, type PostgresValue } from './driver.ts'
import { PgDriver, pgPool } from './driver-pg.ts'
import { type PostgresJs, PostgresJsDriver } from './driver-postgres-js.ts'
import { isAbsent, isConflict, postgresError } from './errors.ts'
import { Hosts, hostsOf } from './hosts.ts'
import { signed, unsigned } from './nonce.ts'
import { Notifier } from './notifier.ts'
import type { PgPool } from './pg-client.ts'
import { profileOf, READ_SETTINGS } from './profile.ts'
import { creation, isPlain, VERSION } from './schema.ts'
import { PostgresSnapshots } from './snapshots.ts'

/** One answer carries at most this much. A larger record travels alone. */
const MAX_RECORDS = 1_000
const MAX_BYTES = 1_048_576
/** A statement that conflicts with other transactions is tried this many times. */
const ATTEMPTS = 20
/** An append that took so many ms may have waited for the standby until an operator cancelled the wait. */
const LONG_WAIT = 1_000
/** The settings of the store in its URL. The driver gets the others. */
export const SETTINGS = ['name', 'schema', 'clock'] as const

export interface PostgresStoreOptions {
  /** `postgres://user:password@host/database`, with `?name=`, `?schema=` and `?clock=trusted` as below. Several hosts: `one:5432,two:5432`. Needs the npm package `pg`. */
  readonly url?: string
  /** A `Pool` of `pg`. It stays open when the store is closed. */
  readonly pool?: PgPool
  /** An instance of `postgres` (postgres.js). It stays open when the store is closed. */
  readonly sql?: PostgresJs
  /** Separates several logs in one schema. @default 'leasehold' */
  readonly name?: string
  /** The schema of the tables: lower-case letters, digits and `_`. @default 'leasehold' */
  readonly schema?: string
  /**
   * Takes the age of records from the clock of the server, so that processes that live for a second see a lease expire. If that clock is set forward, a
   * lease may end while its holder still believes in it. A record from before a restart or a failover has no age. In a URL: `?clock=trusted`.
   * @default false
   */
  readonly trustEngineClock?: boolean
  readonly clock?: Clock
  /** An answer may take this long, in ms, before its connection is closed. @default 5000 */
  readonly timeout?: number
}

/** A store on a log in a Postgres database. */
export class PostgresStore implements Store {
  readonly #options: PostgresStoreOptions
  readonly #clock: Clock
  readonly #timeout: number
  readonly #name: string
  readonly #schema: string
  readonly #trusted: boolean
  /** The URL without the password, for messages. */
  readonly #server: string
  readonly #closing = new AbortController()
  readonly #recent = new RecentRecords()
  #driver: PostgresDriver | undefined
  #notifier: Notifier | undefined
  #snapshots: PostgresSnapshots | undefined
  /** The nonce of the next append, drawn in advance. */
  #nonce: bigint | undefined
  #appending = false
  /** A position that was announced while an append was pending: usually of that append. */
  #announced: Position | undefined
  readonly #noteOnAges: string
  #profile: Profile
  readonly #reads: ConfirmedReads
  /** After how many changes of connections the settings of the server were read. */
  #settingsOf = -1

  constructor(options: PostgresStoreOptions) {
    const { url, clock = systemClock, timeout = 5_000 } = options
    const urls = url === undefined ? [] : hostsOf(url).map(parsed)
    const first = urls[0]
    this.#options = options
    this.#clock = clock
    this.#timeout = timeout
    this.#name = options.name ?? first?.searchParams.get('name') ?? 'leasehold'
    this.#schema = options.schema ?? first?.searchParams.get('schema') ?? 'leasehold'
    this.#trusted = trustedClock(first?.searchParams, options.trustEngineClock)
    this.#noteOnAges = this.#trusted ? `${TRUSTED_CLOCK} Postgres.` : 'The age of records is not known.'
    this.#profile = {
      ...{ store: 'postgres', durable: true, failover: false, push: true, shared: true, ages: this.#trusted },
      notes: [this.#noteOnAges],
    }
    this.#server = first === undefined ? 'postgres' : `postgres://${urls.map(({ host }) => host).join()}${first.pathname}`
    this.#reads = new ConfirmedReads({ clock, longWait: LONG_WAIT, server: this.#server, commit: () => this.#barrier() })
    if (!isPlain(this.#schema))
      throw new LeaseError('INVALID', `${this.#schema} cannot be the schema: use lower-case letters, digits and _`, {
        facts: { schema: this.#schema },
      })
    if ([url, options.pool, options.sql].filter(given => given !== undefined).length !== 1)
      throw new LeaseError('INVALID', 'PostgresStore takes exactly one of url, pool and sql')
  }

  get profile(): Profile {
    return this.#notifier === undefined ? this.#profile : { ...this.#profile, push: this.#notifier.pushes }
  }

  get waker(): Waker {
    return {
      listens: this.#notifier?.listens ?? this.#options.url !== undefined,
      listen: (name, woken) => this.#notifier?.listenTo(name, woken),
      wake: names => this.#notifier?.wake(names),
    }
  }

  // Opening

  async open(): Promise<Opened> {
    if (this.#closing.signal.aborted) throw storeClosed()
    this.#driver ??= await this.#connect()
    await this.#createTables()
    const snapshots = new PostgresSnapshots({
      ...{ schema: this.#schema, name: this.#name, clock: this.#clock, trusted: this.#trusted, closing: this.#closing.signal },
      query: (statement, values, options) => this.#query(statement, values, options),
    })
    const { found, snapshot } = await this.#reads.confirmed(async () => {
      const [[text]] = (await this.#query(`select ${this.#schema}.open_log($1)`, [this.#name])) as [[string]]
      return { found: text, snapshot: await snapshots.newest() }
    })
    const [id, head, nonce, ...missing] = found.split(' ') as [string, string, string, ...string[]]
    if (missing.join() !== '')
      throw new LeaseError(
        'DIVERGED',
        `the log ${this.#name} in ${this.#server} lost records: ${divergence(missing.join(' '))}; restore it from a backup`,
        {
          facts: { where: this.#server, name: this.#name },
        },
      )
    this.#notifier = new Notifier(this.#driver, {
      ...{ clock: this.#clock, log: Number(id), notified: payload => this.#notified(payload) },
      requestNotify: () => this.#query(`select ${this.#schema}.make_loud($1)::text`, [id]),
      reconnected: () => this.#reads.distrust(),
      keep: this.#options.url !== undefined,
    })
    await this.#notifier.start()
    this.#snapshots = snapshots
    return { head: { index: Number(head), nonce: unsigned(nonce) }, ...(snapshot !== undefined && { snapshot }) }
  }

  async #connect(): Promise<PostgresDriver> {
    const { url, pool, sql } = this.#options
    const settings = { clock: this.#clock, timeout: this.#timeout }
    if (sql !== undefined) return new PostgresJsDriver(sql, settings)
    if (pool !== undefined) return new PgDriver(pool, { ...settings, own: false })
    const pools = await Promise.all(hostsOf(url!).map(one => pgPool(driverUrl(one), settings)))
    const drivers = pools.map(one => new PgDriver(one, { ...settings, own: true }))
    return drivers.length === 1 ? drivers[0]! : new Hosts(drivers, () => this.#reads.distrust())
  }

  /** Creates the tables. Only a process that has to do so needs the right to create them. */
  async #createTables(): Promise<void> {
    const driver = this.#driver!
    const version = async () => {
      const [row] = await driver.run(`select version::text from ${this.#schema}.version`, [])
      return row && Number(row[0])
    }
    try {
      const create = async () => {
        await retryConflicts(() => driver.script(creation(this.#schema)))
        return version()
      }
      const found = await retryConflicts(version).catch(error => {
        if (!isAbsent(error)) throw error
        return create()
      })
      if (found === VERSION) return
      throw new LeaseError(
        'UNSUPPORTED',
        `the tables of the schema ${this.#schema} in ${this.#server} have version ${found}, and this process knows ${VERSION}: use the version of leasehold that created them, or another ?schema=`,
        { reason: (found ?? 0) > VERSION ? 'newer' : 'older', facts: { where: this.#server, version: found ?? 0 } },
      )
    } catch (error) {
      throw postgresError(error, this.#server, 'never')
    }
  }

  /** Reads the settings that decide what the profile promises. */
  async #readSettings(): Promise<void> {
    const { connections } = this.#reads
    const [row] = await this.#query(READ_SETTINGS, [])
    const { standby, notes, ...promised } = profileOf(row!)
    if (standby)
      throw new LeaseError('UNAVAILABLE', `${this.#server} is a standby: name the primary`, {
        reason: 'standby',
        facts: { where: this.#server },
      })
    this.#profile = { ...this.#profile, ...promised, notes: [...notes, this.#noteOnAges] }
    this.#settingsOf = connections
  }

  /** A commit of its own, under the settings of the present server. */
  async #barrier(): Promise<void> {
    await this.#readSettings()
    if (this.#profile.failover) await this.#query(`select ${this.#schema}.barrier($1)::text`, [this.#name])
  }

  // Writing and reading

  readonly passesRenewals = true

  async append(record: Uint8Array, after: Position, renewal?: RenewalMark): Promise<Appended> {
    this.#mustBeOpen()
    const bytes = new Uint8Array(record) // kept for waiting readers; a `slice` of a Buffer would share the caller's memory
    const nonce = this.#nonce ?? this.#clock.bits()
    this.#nonce = undefined
    const values = [
      this.#name,
      after.index,
      signed(after.nonce),
      signed(nonce),
      bytes,
      markOf(renewal),
      renewal?.past?.read ?? -1,
      renewal?.past?.since ?? 0,
    ]
    this.#appending = true
    try {
      if (this.#settingsOf !== this.#reads.connections) await this.#readSettings()
      const appended = await this.#reads.append(nonce, () => this.#append(values, after, nonce))
      if (appended.kind === 'passed') this.#notifier!.notify()
      if (appended.kind !== 'appended') return appended
      this.#recent.add(after, [...appended.missed, { position: appended.position, bytes, age: 0 }])
      this.#notifier!.notify()
      return appended
    } catch (error) {
      if (isAbsent((error as LeaseError).cause)) return this.#rejected('diverged its tables are gone')
      throw error
    } finally {
      this.#appending = false
      if (this.#announced !== undefined && !this.#recent.has(this.#announced)) this.#notifier!.notify()
      this.#announced = undefined
    }
  }

  async #append(values: readonly PostgresValue[], after: Position, nonce: bigint): Promise<Appended> {
    const text = `select ${this.#schema}.append($1, $2, $3, $4, $5, $6, $7, $8)`
    const [[answer]] = (await this.#query(text, values, { done: 'perhaps', run: this.#notifier!.connection })) as [[string]]
    this.#clock.soon(() => (this.#nonce ??= this.#clock.bits()))
    const { kind, index, records: missed } = parseAnswer(answer, after, this.#trusted)
    const position = { index, nonce }
    if (kind === 'behind' || kind === 'passed') return { kind, position }
    return kind === 'appended' ? { kind, position, missed } : this.#rejected(answer)
  }

  async read(after: Position, { wait }: { readonly wait?: AbortSignal } = {}): Promise<Read> {
    let woken: 'notified' | 'poll' = 'notified'
    for (;;) {
      wait?.throwIfAborted()
      this.#mustBeOpen()
      const { count } = this.#notifier!
      const known = wait === undefined ? [] : this.#recent.following(after)
      if (known.length > 0) return { kind: 'records', records: known }
      const read = await this.#readNow(after)
      if (wait === undefined || read.kind !== 'records') return read
      if (read.records.length > 0) {
        if (woken === 'poll' && this.#notifier!.count === count) this.#notifier!.distrust()
        return read
      }
      woken = await this.#notifier!.wait(count, wait)
    }
  }

  async #readNow(after: Position): Promise<Read> {
    const values = [this.#name, after.index, signed(after.nonce), MAX_RECORDS, MAX_BYTES]
    const text = `select ${this.#schema}.read($1, $2, $3, $4, $5)`
    try {
      return await this.#reads.read(async () => {
        // While no reader waits, one connection is enough.
        const run = this.#notifier!.isWanted ? undefined : this.#notifier!.connection
        const [[answer]] = (await this.#query(text, values, { run })) as [[string]]
        const { kind, records } = parseAnswer(answer, after, this.#trusted)
        return kind === 'entries' ? { kind: 'records', records } : this.#rejected(answer)
      })
    } catch (error) {
      if (isAbsent((error as LeaseError).cause)) return this.#rejected('diverged its tables are gone')
      throw error
    }
  }

  #rejected(answer: string): { readonly kind: 'trimmed' } | { readonly kind: 'diverged'; readonly reason: string } {
    this.#recent.clear()
    return answer === 'trimmed' ? { kind: 'trimmed' } : { kind: 'diverged', reason: divergence(answer) }
  }

  /** A process has appended, usually this one. Any user of the database may notify, so a notification is only a reason to read. */
  #notified(payload: string): void {
    const [, index, nonce] = /^(\d{1,16}) (-?\d{1,19})$/.exec(payload) ?? []
    if (index === undefined || nonce === undefined) return this.#notifier!.notify()
    const position = { index: Number(index), nonce: unsigned(nonce) }
    if (this.#appending) this.#announced = position
    else if (!this.#recent.has(position)) this.#notifier!.notify()
  }

  // Snapshots

  async snapshot(at: Position, bytes: AsyncIterable<Uint8Array>): Promise<'kept' | 'older'> {
    this.#mustBeOpen()
    return await this.#snapshots!.write(at, bytes)
  }

  async newest(): Promise<Snapshot | undefined> {
    this.#mustBeOpen()
    return await this.#snapshots!.newest()
  }

  // Closing

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#closing.signal.aborted) return
    this.#closing.abort(storeClosed())
    await this.#notifier?.[Symbol.asyncDispose]()
    await this.#driver?.[Symbol.asyncDispose]()
  }

  #mustBeOpen(): void {
    if (this.#closing.signal.aborted) throw storeClosed()
    if (this.#snapshots === undefined) throw storeNotOpened()
  }

  async #query(
    text: string,
    values: readonly PostgresValue[],
    { done = 'never', run }: QueryOptions = {},
  ): Promise<readonly PostgresRow[]> {
    try {
      return await retryConflicts(() => (run === undefined ? this.#driver!.run(text, values) : run(text, values)))
    } catch (error) {
      if (!isAnswer(error)) this.#reads.distrust()
      throw postgresError(error, this.#server, done)
    }
  }
}

/** The argument of `append`. */
function markOf(renewal: RenewalMark | undefined): number {
  if (renewal === undefined) return 0
  return renewal.reads ? 2 : 1
}

interface QueryOptions {
  /** Tells whether the statement may have taken effect if no answer came. `never` for one that only reads, or that can be repeated. */
  readonly done?: 'never' | 'perhaps'
  /** Runs the statement. Default: the driver, on any connection. */
  readonly run?: PostgresDriver['run'] | undefined
}

/** Retries after a conflict with another transaction. */
async function retryConflicts<T>(work: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work()
    } catch (error) {
      if (!isConflict(error) || attempt === ATTEMPTS) throw error
    }
  }
}

function parsed(url: string): URL {
  try {
    return new URL(url)
  } catch (cause) {
    throw new LeaseError('INVALID', 'this is not a URL of Postgres: write postgres://user:password@host:5432/database', { cause })
  }
}

/** The URL without the settings of the store, for the driver. */
function driverUrl(url: string): string {
  const rest = new URL(url)
  for (const setting of SETTINGS) rest.searchParams.delete(setting)
  return rest.href
}
