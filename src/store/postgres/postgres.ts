/**
 * A log in Postgres, shared by any number of replicas: one row for each batch, in the order in which a lock on the log's row was had.
 *
 * Not promised: the age of entries (the engine's wall clock may be moved, and it tells nothing else); that an acknowledged entry survives a
 * failover to a standby that was not synchronous. See docs/stores.md for settings, roles and poolers, and postgres-schema.ts for the order.
 */
import { type Clock, systemClock } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import type { Appended, Opened, Position, Profile, Read, Snapshot, Store } from '../../store.ts'
import { RecentRecords } from '../recent-records.ts'
import { parseAnswer } from './answer.ts'
import type { PostgresDriver, PostgresRow, PostgresValue } from './driver.ts'
import { PgDriver, type PgPool, pgPool } from './driver-pg.ts'
import { type PostgresJs, PostgresJsDriver } from './driver-postgres-js.ts'
import { isAbsent, isPassing, postgresError } from './errors.ts'
import { Hosts, hostsOf } from './hosts.ts'
import { signed, unsigned } from './nonce.ts'
import { Notifier } from './notifier.ts'
import { creation, isPlain, VERSION } from './schema.ts'
import { PostgresSnapshots } from './snapshots.ts'

/** What one answer carries at most. An entry that is larger travels alone. */
const MAX_ENTRIES = 1_000
const MAX_BYTES = 1_048_576
/** How often is asked again what stood in another's way. */
const ATTEMPTS = 20

export interface PostgresStoreOptions {
  /** `postgres://user:password@host/database`, with `?name=` and `?schema=` as below. Several hosts: `one:5432,two:5432`. Needs the package `pg`. */
  readonly url?: string
  /** A `Pool` of `pg` that is there already. It stays open when the store is closed. */
  readonly pool?: PgPool
  /** An instance of `postgres` (postgres.js). It stays open, too. */
  readonly sql?: PostgresJs
  /** Which log; `leasehold` unless said otherwise. */
  readonly name?: string
  /** The schema of the tables; `leasehold` unless said otherwise. Lower-case letters, digits and `_`. */
  readonly schema?: string
  readonly clock?: Clock
  /** How long an answer may take, in ms, before we give up on its connection. */
  readonly timeout?: number
}

export class PostgresStore implements Store {
  readonly #options: PostgresStoreOptions
  readonly #clock: Clock
  readonly #timeout: number
  readonly #name: string
  readonly #schema: string
  /** Without the password, for messages. */
  readonly #place: string
  readonly #closing = new AbortController()
  readonly #run = new RecentRecords()
  #driver: PostgresDriver | undefined
  #bell: Notifier | undefined
  #snapshots: PostgresSnapshots | undefined
  /** Drawn in advance. */
  #nonce: bigint | undefined
  #appending = false
  /** What was announced while an append was under way: most often that append. */
  #announced: Position | undefined
  #profile: Profile = {
    ...{ store: 'postgres', durable: true, failover: false, push: true, shared: true, ages: false },
    notes: ['Ages of entries are not known.'],
  }

  constructor(options: PostgresStoreOptions) {
    const { url, clock = systemClock, timeout = 5_000 } = options
    const urls = url === undefined ? [] : hostsOf(url).map(parsed)
    const asked = urls[0]
    this.#options = options
    this.#clock = clock
    this.#timeout = timeout
    this.#name = options.name ?? asked?.searchParams.get('name') ?? 'leasehold'
    this.#schema = options.schema ?? asked?.searchParams.get('schema') ?? 'leasehold'
    this.#place = asked === undefined ? 'postgres' : `postgres://${urls.map(({ host }) => host).join()}${asked.pathname}`
    if (!isPlain(this.#schema))
      throw new LeaseError('INVALID', `${this.#schema} cannot be the schema: use lower-case letters, digits and _`, {
        facts: { schema: this.#schema },
      })
    if ([url, options.pool, options.sql].filter(given => given !== undefined).length !== 1)
      throw new LeaseError('INVALID', 'a store in Postgres takes a url, a pool or a sql, and one of them only')
  }

  get profile(): Profile {
    return this.#bell === undefined ? this.#profile : { ...this.#profile, push: this.#bell.trusted }
  }

  // Opening

  async open(): Promise<Opened> {
    if (this.#closing.signal.aborted) throw closed()
    this.#driver ??= await this.#connect()
    await this.#provide()
    await this.#learn()
    const log = `${this.#schema}.log`
    await this.#ask(`insert into ${log} (name, loud) values ($1, false) on conflict do nothing`, [this.#name])
    const text = `select l.id::text, l.head::text, l.head_nonce::text, ${this.#schema}.missing(l, l.head, l.head_nonce) from ${log} l where l.name = $1`
    const [[id, head, nonce, missing]] = (await this.#ask(text, [this.#name])) as [[string, string, string, string | null]]
    if (missing !== null)
      throw new LeaseError(
        'DIVERGED',
        `the log ${this.#name} in ${this.#place} lost entries: ${reason(missing)}; restore it from a backup`,
        {
          facts: { place: this.#place, name: this.#name },
        },
      )
    this.#bell = new Notifier(this.#driver, {
      ...{ clock: this.#clock, log: Number(id), news: payload => this.#heard(payload) },
      call: () => this.#ask(`update ${log} set loud = true where id = $1 and not loud`, [id]),
    })
    const snapshots = new PostgresSnapshots({
      ...{ schema: this.#schema, name: this.#name, clock: this.#clock, closing: this.#closing.signal },
      ask: (asked, values, options) => this.#ask(asked, values, options),
    })
    this.#snapshots = snapshots
    await this.#bell.start()
    const snapshot = await snapshots.newest()
    return { head: { index: Number(head), nonce: unsigned(nonce) }, ...(snapshot !== undefined && { snapshot }) }
  }

  async #connect(): Promise<PostgresDriver> {
    const { url, pool, sql } = this.#options
    const settings = { clock: this.#clock, timeout: this.#timeout }
    if (sql !== undefined) return new PostgresJsDriver(sql, settings)
    if (pool !== undefined) return new PgDriver(pool, { ...settings, own: false })
    const pools = await Promise.all(hostsOf(url!).map(one => pgPool(bare(one), settings)))
    const drivers = pools.map(one => new PgDriver(one, { ...settings, own: true }))
    return drivers.length === 1 ? drivers[0]! : new Hosts(drivers)
  }

  /** Tables of our version. Only whoever finds none needs the right to make them. */
  async #provide(): Promise<void> {
    const driver = this.#driver!
    const version = async () => {
      const [row] = await driver.run(`select version::text from ${this.#schema}.version`, [])
      return row && Number(row[0])
    }
    try {
      const make = async () => {
        await persistently(() => driver.script(creation(this.#schema)))
        return version()
      }
      const there = await persistently(version).catch(error => {
        if (!isAbsent(error)) throw error
        return 0
      })
      const found = there !== undefined && there < VERSION ? await make() : there
      if (found === VERSION) return
      throw new LeaseError(
        'UNSUPPORTED',
        `the tables in ${this.#place} are of version ${found}, this process knows ${VERSION}: use the version of leasehold that made them`,
        { facts: { place: this.#place, version: found ?? 0, reason: 'newer' } },
      )
    } catch (error) {
      throw postgresError(error, this.#place, 'never')
    }
  }

  /** What its settings promise. */
  async #learn(): Promise<void> {
    const [[fsync, commit, standbys, pages, standby]] = (await this.#ask(
      `select current_setting('fsync'), current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
        current_setting('full_page_writes'), pg_is_in_recovery()::text`,
      [],
    )) as [[string, string, string, string, string]]
    if (standby === 'true')
      throw new LeaseError('UNAVAILABLE', `${this.#place} is a standby: name the primary`, {
        facts: { place: this.#place, reason: 'standby' },
      })
    const durable = fsync === 'on' && pages === 'on'
    const failover = durable && standbys !== '' && (commit === 'on' || commit === 'remote_apply')
    const notes = [
      ...this.#profile.notes,
      ...(fsync === 'on' ? [] : ['fsync is off: what was acknowledged may be lost, or the database damaged, when its machine crashes.']),
      ...(pages === 'on' ? [] : ['full_page_writes is off: the database may be damaged when its machine crashes.']),
      ...(commit === 'off' ? ['synchronous_commit is off; our own transactions wait for the disk all the same (local).'] : []),
      ...(failover
        ? []
        : ['No synchronous standby confirms what is acknowledged: a failover may lose the end of the log, which is noticed.']),
    ]
    this.#profile = { ...this.#profile, durable, failover, notes }
  }

  // Writing and reading

  async append(entry: Uint8Array, after: Position): Promise<Appended> {
    this.#mustBeOpen()
    const bytes = new Uint8Array(entry) // kept for those who wait; a `slice` of a Buffer would be the caller's own memory
    const nonce = this.#nonce ?? this.#clock.bits()
    this.#nonce = undefined
    const values = [this.#name, after.index, signed(after.nonce), signed(nonce), bytes]
    this.#appending = true
    try {
      const [[answer]] = (await this.#ask(`select ${this.#schema}.append($1, $2, $3, $4, $5)`, values, {
        done: 'perhaps',
        line: this.#bell!.connection,
      })) as [[string]]
      this.#clock.soon(() => (this.#nonce ??= this.#clock.bits()))
      const { kind, index, entries: missed } = parseAnswer(answer, after)
      const position = { index, nonce }
      if (kind === 'behind') return { kind, position }
      if (kind !== 'appended') return this.#notThere(answer)
      this.#run.add(after, [...missed, { position, bytes, age: 0 }])
      this.#bell!.notify()
      return { kind, position, missed }
    } catch (error) {
      if (isAbsent((error as LeaseError).cause)) return this.#notThere('diverged its tables are gone')
      throw error
    } finally {
      this.#appending = false
      if (this.#announced !== undefined && !this.#run.has(this.#announced)) this.#bell!.notify()
      this.#announced = undefined
    }
  }

  async read(after: Position, { wait }: { readonly wait?: AbortSignal } = {}): Promise<Read> {
    let why: 'rung' | 'asked' = 'rung'
    for (;;) {
      wait?.throwIfAborted()
      this.#mustBeOpen()
      const { count } = this.#bell!
      const known = wait === undefined ? [] : this.#run.following(after)
      if (known.length > 0) return { kind: 'records', records: known }
      const read = await this.#readNow(after)
      if (wait === undefined || read.kind !== 'records') return read
      if (read.records.length > 0) {
        if (why === 'asked' && this.#bell!.count === count) this.#bell!.distrust()
        return read
      }
      why = await this.#bell!.wait(count, wait)
    }
  }

  async #readNow(after: Position): Promise<Read> {
    const values = [this.#name, after.index, signed(after.nonce), MAX_ENTRIES, MAX_BYTES]
    try {
      const [[answer]] = (await this.#ask(`select ${this.#schema}.read($1, $2, $3, $4, $5)`, values)) as [[string]]
      const { kind, entries } = parseAnswer(answer, after)
      return kind === 'entries' ? { kind: 'records', records: entries } : this.#notThere(answer)
    } catch (error) {
      if (isAbsent((error as LeaseError).cause)) return this.#notThere('diverged its tables are gone')
      throw error
    }
  }

  #notThere(kind: string): { readonly kind: 'trimmed' } | { readonly kind: 'diverged'; readonly reason: string } {
    this.#run.clear()
    return kind === 'trimmed' ? { kind } : { kind: 'diverged', reason: reason(kind) }
  }

  /** Somebody has appended; usually we have. Whoever may use the database may call here: it is a reason to look, and never more than that. */
  #heard(payload: string): void {
    const [, index, nonce] = /^(\d{1,16}) (-?\d{1,19})$/.exec(payload) ?? []
    if (index === undefined || nonce === undefined) return this.#bell!.notify()
    const position = { index: Number(index), nonce: unsigned(nonce) }
    if (this.#appending) this.#announced = position
    else if (!this.#run.has(position)) this.#bell!.notify()
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

  // The end

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#closing.signal.aborted) return
    this.#closing.abort(closed())
    await this.#bell?.[Symbol.asyncDispose]()
    await this.#driver?.[Symbol.asyncDispose]()
  }

  #mustBeOpen(): void {
    if (this.#closing.signal.aborted) throw closed()
    if (this.#snapshots === undefined) throw new LeaseError('UNAVAILABLE', 'the store was not opened')
  }

  async #ask(text: string, values: readonly PostgresValue[], { done = 'never', line }: AskOptions = {}): Promise<readonly PostgresRow[]> {
    try {
      return await persistently(() => (line === undefined ? this.#driver!.run(text, values) : line(text, values)))
    } catch (error) {
      throw postgresError(error, this.#place, done)
    }
  }
}

interface AskOptions {
  /** Whether it may have been carried out when no answer came. What only reads, or can be asked again, never was. */
  readonly done?: 'never' | 'perhaps'
  /** The connection to ask on; any, unless said otherwise. */
  readonly line?: PostgresDriver['run'] | undefined
}

/** Again, when it was only another transaction that stood in the way. */
async function persistently<T>(work: () => Promise<T>): Promise<T> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await work()
    } catch (error) {
      if (!isPassing(error) || attempt === ATTEMPTS) throw error
    }
  }
}

function reason(kind: string): string {
  return kind.replace('diverged ', '')
}

function parsed(url: string): URL {
  try {
    return new URL(url)
  } catch (cause) {
    throw new LeaseError('INVALID', 'not a URL of Postgres: it looks like postgres://user:password@host:5432/database', { cause })
  }
}

/** Without what is ours. */
function bare(url: string): string {
  const rest = new URL(url)
  rest.searchParams.delete('name')
  rest.searchParams.delete('schema')
  return rest.href
}

function closed(): LeaseError {
  return new LeaseError('UNAVAILABLE', 'the store was closed')
}
