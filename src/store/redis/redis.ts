/**
 * A log in Redis: a stream. One script checks the caller's position, appends, and returns what was missed. Shared by any number of replicas;
 * blocking reads deliver the records of other replicas.
 *
 * Not guaranteed: that an acknowledged record survives a failover, since Redis replicates asynchronously; that it survives a crash, unless
 * Redis is configured so (`appendonly yes`, `appendfsync always`), which the profile states. Replicas that had seen lost records report
 * `diverged`. Ages are not known, unless the clock of Redis is trusted.
 *
 * Keys: `{NAME}:log` the stream, `{NAME}:snapshot` which snapshot is in force, `{NAME}:snapshot:ID` its chunks, `{NAME}:wake:PROCESS` for a minute (waker.ts). The braces put them on one
 * node of a cluster. The scripts are in `script.ts`.
 */
import { type Clock, systemClock, unlessAborted } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import {
  type Appended,
  type LogRecord,
  type Opened,
  type Position,
  type Profile,
  type Read,
  type Rejected,
  type RenewalMark,
  type Snapshot,
  START,
  type Store,
  type Waker,
} from '../../store.ts'
import { storeClosed, storeNotOpened } from '../closed.ts'
import { RecentRecords } from '../recent-records.ts'
import { trustedClock } from '../trusted-clock.ts'
import { WaitingReaders } from '../waiting-readers.ts'
import { RedisConnection } from './connection.ts'
import { type AnyRedis, dialCopyOf, dialUrl, isCluster, type RedisArgument } from './driver.ts'
import { EngineAges } from './engine-ages.ts'
import { isWrongType } from './errors.ts'
import { parseUrl, positionArguments, RedisLog, type ScriptAnswer, text } from './log.ts'
import { profileOf, readSettings, UNREAD } from './profile.ts'
import { APPEND, READ } from './script.ts'
import { RedisSnapshots } from './snapshots.ts'
import { RedisWaker } from './waker.ts'

/** A waiting read checks this often, in ms, whether the log still exists: Redis does not wake readers of a deleted stream. */
const CHECK_AGAIN = 1_000
/** Records that a blocking read returns at most. They may be large, and Redis cannot bound their bytes. */
const MAX_AT_ONCE = 16
/** Turns of the event loop until a caller that got the answer to an append has begun the next append. */
const TURNS = 2
/** A record in the stream, with the names of its fields, and in the answer of a script. */
const FIELDS = 14
const PARTS = 5

export interface RedisStoreOptions {
  /** `redis://` or `rediss://`, with `?name=` and `?clock=trusted` as below. Needs the npm package `redis`. Or: */
  readonly url?: string
  /** A client of npm `redis` or `ioredis`, single or cluster. The store duplicates it and leaves it open. */
  readonly client?: AnyRedis
  /** Separates several logs in one Redis. @default 'leasehold' */
  readonly name?: string
  /**
   * Takes the age of records from the clock of Redis, so that processes that live for a second see a lease expire. If that clock is set forward, a lease may end
   * while its holder still believes in it. A record from before a restart or a failover has no age. Not for clusters. In a URL: `?clock=trusted`.
   * @default false
   */
  readonly trustEngineClock?: boolean
  /** An answer may take this long, in ms, before its connection is closed. @default 5000 */
  readonly timeout?: number
  readonly clock?: Clock
}

/** A store on a log in a Redis stream. */
export class RedisStore implements Store {
  readonly #clock: Clock
  readonly #log: RedisLog
  readonly #snapshots: RedisSnapshots
  readonly #connection: RedisConnection
  /** For blocking reads, which delay every command after them. */
  readonly #readConnection: RedisConnection
  readonly #ages: EngineAges
  readonly #readers: WaitingReaders
  readonly #waker: RedisWaker
  #profile = UNREAD
  #state: 'new' | 'open' | 'closed' = 'new'
  /** Positions that the log contained at the last answer, so a waiting read from there need not check first. */
  readonly #seen = { appended: START, read: START }
  readonly #recent = new RecentRecords()
  #blockingRead: Promise<readonly NewRow[]> | undefined
  /** Resolves when the pending append has ended, successfully or not. */
  #appending: Promise<unknown> | undefined
  /** The nonce of the next append, drawn in advance. */
  #nonce: bigint | undefined

  constructor({ url, client, name, trustEngineClock, timeout = 5_000, clock = systemClock }: RedisStoreOptions) {
    const parsed = parseUrl(url, name)
    const ages = new EngineAges(trustedClock(parsed.settings, trustEngineClock))
    if (ages.trusted && client !== undefined && isCluster(client))
      throw new LeaseError('INVALID', 'the clock of a cluster cannot be trusted: the log may move to a node with another clock, unnoticed')
    const where = client ? 'Redis' : parsed.where
    const dial = client ? dialCopyOf(client, `{${parsed.name}}`, timeout) : dialUrl(parsed.url, timeout)
    const greet = async (send: (args: readonly RedisArgument[]) => Promise<unknown>) => {
      const settings = await readSettings(send)
      if (settings.server === 'leasehold') throw leaseholdServer(where)
      if (settings.mode === 'sentinel') throw sentinel(where)
      if (settings.role === 'slave') throw replica(where, settings.primary)
      ages.server = settings.runId
      this.#profile = profileOf(settings, ages.trusted)
    }
    this.#ages = ages
    this.#clock = clock
    // A process that only holds leases has one connection, on which it is told what became of them, and none with a client of the application.
    const mayRest = () => !this.#readers.some && (client !== undefined || this.#waker.isNeeded)
    this.#connection = new RedisConnection({ dial, clock, timeout, where, greet, mayRest })
    this.#readConnection = new RedisConnection({ dial, clock, timeout, where, mayRest })
    this.#waker = new RedisWaker({
      ...{ clock, name: parsed.name, connection: this.#connection, isFollowing: () => this.#readers.some },
      listening: client === undefined ? new RedisConnection({ dial, clock, timeout, where }) : undefined,
    })
    this.#readers = new WaitingReaders(clock, () => {
      this.#waker.look()
      this.#connection.rest()
      this.#readConnection.rest()
    })
    this.#log = new RedisLog(parsed.name, this.#connection, ages)
    this.#snapshots = new RedisSnapshots(this.#log, clock, ages, () => this.#assertOpen())
  }

  get waker(): Waker {
    return this.#waker
  }

  get profile(): Profile {
    return this.#profile
  }

  async open(): Promise<Opened> {
    if (this.#state === 'closed') throw storeClosed()
    const { head, snapshot } = await this.#snapshots.inspect()
    if (this.#state === 'new') this.#state = 'open'
    this.#seen.read = head
    return snapshot ? { head, snapshot } : { head }
  }

  readonly passesRenewals = true

  append(record: Uint8Array, after: Position, renewal?: RenewalMark): Promise<Appended> {
    const appending = this.#append(record, after, renewal)
    const over = () => {
      if (this.#appending === ended) this.#appending = undefined
    }
    const ended = appending.then(over, over)
    this.#appending = ended
    return appending
  }

  async #append(record: Uint8Array, after: Position, renewal: RenewalMark | undefined): Promise<Appended> {
    this.#assertOpen()
    const nonce = this.#nonce ?? this.#clock.bits()
    const bytes = Buffer.from(record) // kept for waiting readers, so it must not be the caller's memory
    this.#nonce = undefined
    const args = [...positionArguments(after), String(nonce), bytes, `${after.index + 1}-0`, ...markArguments(renewal)]
    const [word, ...facts] = await this.#log.run(APPEND, args, { ifLost: 'UNKNOWN' })
    this.#clock.soon(() => (this.#nonce ??= this.#clock.bits()))
    const [index, rows] = facts as [number, Buffer[]]
    const position = { index, nonce }
    if (word === 'behind' || word === 'passed') return { kind: word, position }
    if (word !== 'appended') return this.#rejected([word, ...facts], after)
    const missed = this.#aged(after, rows)
    // The record is in the log all the same. Reading on will report what is wrong.
    if (!missed) return { kind: 'behind', position }
    this.#seen.appended = position
    this.#recent.add(after, [...missed, { position, bytes, age: 0 }])
    return { kind: 'appended', position, missed }
  }

  async read(after: Position, { wait }: { readonly wait?: AbortSignal } = {}): Promise<Read> {
    this.#assertOpen()
    if (!wait) return this.#readNow(after)
    wait.throwIfAborted()
    return this.#readers.during(() => unlessAborted(this.#readWaiting(after, wait), wait))
  }

  async snapshot(at: Position, bytes: AsyncIterable<Uint8Array>): Promise<'kept' | 'older'> {
    this.#assertOpen()
    return this.#snapshots.keep(at, bytes)
  }

  async newest(): Promise<Snapshot | undefined> {
    this.#assertOpen()
    return (await this.#snapshots.inspect()).snapshot
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#state = 'closed'
    this.#readers.close()
    this.#waker.close()
    this.#connection.close()
    this.#readConnection.close()
  }

  async #readNow(after: Position): Promise<Read> {
    const [word, ...facts] = await this.#log.run(READ, positionArguments(after))
    if (word !== 'entries') return this.#rejected([word, ...facts], after)
    const records = this.#aged(after, facts[0] as Buffer[])
    if (!records) return this.#rejected(['unchained'], after)
    this.#seen.read = records.at(-1)?.position ?? after
    return { kind: 'records', records }
  }

  async #readWaiting(after: Position, wait: AbortSignal): Promise<Read> {
    let verified = same(after, this.#seen.appended) || same(after, this.#seen.read)
    await this.#appendEnded()
    while (!wait.aborted) {
      const known = this.#recent.following(after)
      if (known.length > 0) return { kind: 'records', records: known }
      if (!verified) {
        const read = await this.#readNow(after)
        if (read.kind !== 'records' || read.records.length > 0) return read
      }
      const rows = await this.#next(after.index)
      const follows = rows[0]?.index === after.index + 1
      const records = follows ? chained(after, rows) : undefined
      if (records) {
        this.#seen.read = records.at(-1)!.position
        return { kind: 'records', records }
      }
      verified = false // no record for a while, or none that follows the position: check the log
    }
    throw wait.reason
  }

  /**
   * Waits for the append that is pending or about to start: its answer contains all new records. Otherwise Redis would send each record of
   * this process back to it, and a busy process would read as much as it writes.
   */
  async #appendEnded(): Promise<void> {
    for (let turn = 0; turn < TURNS && this.#appending === undefined; turn++) await new Promise<void>(resolve => this.#clock.soon(resolve))
    await this.#appending
  }

  /** The records of a script's answer, each with its age. */
  #aged(after: Position, parts: readonly Buffer[]): LogRecord[] | undefined {
    const rows: StreamRow[] = []
    for (let i = 0; i < parts.length; i += PARTS) {
      const [nonce, before, bytes, advised, here] = parts.slice(i, i + PARTS) as [Buffer, Buffer, Buffer, Buffer, Buffer]
      const advisoryAge = Number(text(advised))
      rows.push({ nonce, before, bytes, age: this.#ages.of(advisoryAge, text(here)), advisoryAge })
    }
    return chained(after, rows)
  }

  #rejected(answer: ScriptAnswer, after: Position): Rejected {
    this.#recent.clear()
    return this.#log.rejection(answer, after)
  }

  /** The records after `index`, or nothing after a while. One blocking read serves all waiting readers: they wait at the end of the log. */
  #next(index: number): Promise<readonly NewRow[]> {
    if (this.#blockingRead) return this.#blockingRead
    const args = ['XREAD', 'COUNT', String(MAX_AT_ONCE), 'BLOCK', String(CHECK_AGAIN), 'STREAMS', this.#log.log, `${index}-0`]
    const rows = this.#readConnection.send(args, { ifLost: 'UNAVAILABLE', waits: CHECK_AGAIN }).then(rowsOf, error => {
      if (isWrongType(error)) return [] // the script reports it
      throw error
    })
    this.#blockingRead = rows
    const over = () => (this.#blockingRead = undefined)
    rows.then(over, over)
    return rows
  }

  #assertOpen(): void {
    if (this.#state === 'closed') throw storeClosed()
    if (this.#state === 'new') throw storeNotOpened()
  }
}

/** The arguments of the script that say if the record is a renewal, and behind which records it may pass. */
function markArguments(renewal: RenewalMark | undefined): [string, string, string] {
  if (renewal === undefined) return ['0', '-1', '0']
  const { reads, past = { read: -1, since: 0 } } = renewal
  return [reads ? '2' : '1', String(past.read), String(past.since)]
}

/** A record as it is in the stream. */
interface StreamRow {
  readonly nonce: Buffer
  /** The nonce of the record before it. */
  readonly before: Buffer
  readonly bytes: Buffer
  readonly age: number
  readonly advisoryAge?: number
}

/** A row of a blocking read. It was appended just now, so its age does not matter. */
interface NewRow extends StreamRow {
  readonly index: number
}

function rowsOf(reply: unknown): NewRow[] {
  const [stream] = (reply ?? []) as [[unknown, [Buffer, Buffer[]][]]?]
  return (stream?.[1] ?? []).flatMap(([id, fields]) => {
    const index = /^(\d+)-0$/.exec(text(id))?.[1]
    // Not a record of ours: the script reports it.
    if (index === undefined || fields.length !== FIELDS) return []
    return [{ index: Number(index), nonce: fields[1]!, before: fields[3]!, bytes: fields[5]!, age: 0 }]
  })
}

/** The records in `rows`, if they follow `after` and each other. */
function chained(after: Position, rows: readonly StreamRow[]): LogRecord[] | undefined {
  const records: LogRecord[] = []
  let { index, nonce } = after
  for (const row of rows) {
    if (text(row.before) !== String(nonce)) return undefined
    nonce = BigInt(text(row.nonce))
    const { bytes, age, advisoryAge } = row
    records.push({ position: { index: ++index, nonce }, bytes, age, ...(advisoryAge !== undefined && { advisoryAge }) })
  }
  return records
}

function replica(where: string, primary: string): LeaseError {
  return new LeaseError('UNAVAILABLE', `${where} is a replica and takes no writes: connect to its primary, ${primary}`, {
    reason: 'readonly',
    facts: { where, primary },
  })
}

function sentinel(where: string): LeaseError {
  const message = `${where} is a Sentinel, which keeps no data: name the address of the primary, one that follows it, or pass a client of ioredis with its option sentinels`
  return new LeaseError('UNSUPPORTED', message, { facts: { where } })
}

function leaseholdServer(where: string): LeaseError {
  return new LeaseError('UNAVAILABLE', `${where} is not Redis: this is Leasehold. Use leasehold:// instead of redis://`, {
    reason: 'leasehold',
    facts: { where },
  })
}

function same(a: Position, b: Position): boolean {
  return a.index === b.index && a.nonce === b.nonce
}
