/**
 * A log in Redis: a stream, appended to by one script that checks where its caller stands and tells what was missed. Shared by any number
 * of replicas; blocking reads tell them of each other's entries.
 *
 * Not promised: that an acknowledged entry survives a failover, since Redis replicates asynchronously; that it survives a crash, unless the
 * settings say so (`appendonly yes`, `appendfsync always`), which the profile repeats. What was lost is noticed by whoever had seen it, and is
 * `diverged`. Ages are not known.
 *
 * Keys: `{NAME}:log` the stream, `{NAME}:snapshot` which snapshot is in force, `{NAME}:snapshot:ID` its chunks. The braces put them on one
 * node of a cluster. What happens inside Redis is in `redis-script.ts`.
 */
import { type Clock, systemClock } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import {
  type Appended,
  type LogRecord,
  type Opened,
  type Position,
  type Profile,
  type Read,
  type Rejected,
  type Snapshot,
  START,
  type Store,
} from '../../store.ts'
import { RecentRecords } from '../recent-records.ts'
import { closed, RedisConnection } from './connection.ts'
import { type AnyRedis, type RedisArgument, dialCopyOf, dialUrl } from './driver.ts'
import { isWrongType } from './errors.ts'
import { parseUrl, RedisLog, type ScriptAnswer, positionArguments, text } from './log.ts'
import { profileOf, readSettings, UNREAD } from './profile.ts'
import { APPEND, READ } from './script.ts'
import { RedisSnapshots } from './snapshots.ts'

/** A waiting read looks after so many ms whether the log is still there: Redis wakes nobody when a stream is deleted. */
const LOOK_AGAIN = 1_000
/** Entries that a waiting read brings at most. They may be large, and Redis cannot bound their bytes. */
const MAX_AT_ONCE = 16
/** Turns of the loop until whoever was served by an append has begun the next one. */
const TURNS = 2

export interface RedisStoreOptions {
  /** `redis://` or `rediss://`, with `?name=` if there is no `name`. Or: */
  readonly url?: string
  /** A client of npm `redis` or `ioredis`, single or cluster. It is copied: the store has connections of its own. */
  readonly client?: AnyRedis
  /** Separates several logs in one Redis. */
  readonly name?: string
  /** How long, in ms, Redis may take to answer before the connection is given up. */
  readonly timeout?: number
  readonly clock?: Clock
}

export class RedisStore implements Store {
  readonly #clock: Clock
  readonly #place: RedisLog
  readonly #snapshots: RedisSnapshots
  readonly #link: RedisConnection
  /** A blocking read holds up whatever is sent after it. */
  readonly #tail: RedisConnection
  #profile = UNREAD
  #state: 'new' | 'open' | 'closed' = 'new'
  /** The log contained these when we last heard of it, so a read that waits there need not ask first. */
  readonly #seen = { appended: START, read: START }
  readonly #run = new RecentRecords()
  #news: Promise<readonly StreamRow[]> | undefined
  /** Resolves when the append that is under way has ended, however that was. */
  #appending: Promise<unknown> | undefined
  /** Drawn in advance. */
  #nonce: bigint | undefined

  constructor({ url, client, name, timeout = 5_000, clock = systemClock }: RedisStoreOptions) {
    const parsed = parseUrl(url, name)
    const where = client ? 'Redis' : parsed.where
    const dial = client ? dialCopyOf(client, `{${parsed.name}}`, timeout) : dialUrl(parsed.url, timeout)
    const greet = async (send: (args: readonly RedisArgument[]) => Promise<unknown>) => {
      const settings = await readSettings(send)
      if (settings.role === 'slave') throw replica(where, settings.primary)
      this.#profile = profileOf(settings)
    }
    this.#clock = clock
    this.#link = new RedisConnection({ dial, clock, timeout, where, greet })
    this.#tail = new RedisConnection({ dial, clock, timeout, where })
    this.#place = new RedisLog(parsed.name, this.#link)
    this.#snapshots = new RedisSnapshots(this.#place, clock, () => this.#assertOpen())
  }

  get profile(): Profile {
    return this.#profile
  }

  async open(): Promise<Opened> {
    if (this.#state === 'closed') throw closed()
    const { head, snapshot } = await this.#snapshots.look()
    if (this.#state === 'new') this.#state = 'open'
    this.#seen.read = head
    return snapshot ? { head, snapshot } : { head }
  }

  append(entry: Uint8Array, after: Position): Promise<Appended> {
    const appending = this.#append(entry, after)
    const over = () => {
      if (this.#appending === ended) this.#appending = undefined
    }
    const ended = appending.then(over, over)
    this.#appending = ended
    return appending
  }

  async #append(entry: Uint8Array, after: Position): Promise<Appended> {
    this.#assertOpen()
    const nonce = this.#nonce ?? this.#clock.bits()
    const bytes = Buffer.from(entry) // kept for those who wait, so it may not be the caller's own memory
    this.#nonce = undefined
    const args = [...positionArguments(after), String(nonce), bytes, `${after.index + 1}-0`]
    const [word, ...facts] = await this.#place.run(APPEND, args, { ifLost: 'UNKNOWN' })
    this.#clock.soon(() => (this.#nonce ??= this.#clock.bits()))
    const [index, rows] = facts as [number, Buffer[]]
    const position = { index, nonce }
    if (word === 'behind') return { kind: 'behind', position }
    if (word !== 'appended') return this.#notThere([word, ...facts], after)
    const missed = chained(after, rows)
    // It stands there all the same; whoever reads on will be told more.
    if (!missed) return { kind: 'behind', position }
    this.#seen.appended = position
    this.#run.add(after, [...missed, { position, bytes, age: 0 }])
    return { kind: 'appended', position, missed }
  }

  async read(after: Position, { wait }: { readonly wait?: AbortSignal } = {}): Promise<Read> {
    this.#assertOpen()
    if (!wait) return this.#readNow(after)
    wait.throwIfAborted()
    return unless(wait, this.#readWaiting(after, wait))
  }

  async snapshot(at: Position, bytes: AsyncIterable<Uint8Array>): Promise<'kept' | 'older'> {
    this.#assertOpen()
    return this.#snapshots.keep(at, bytes)
  }

  async newest(): Promise<Snapshot | undefined> {
    this.#assertOpen()
    return (await this.#snapshots.look()).snapshot
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#state = 'closed'
    this.#link.close()
    this.#tail.close()
  }

  async #readNow(after: Position): Promise<Read> {
    const [word, ...facts] = await this.#place.run(READ, positionArguments(after))
    if (word !== 'entries') return this.#notThere([word, ...facts], after)
    const entries = chained(after, facts[0] as Buffer[])
    if (!entries) return this.#notThere(['unchained'], after)
    this.#seen.read = entries.at(-1)?.position ?? after
    return { kind: 'records', records: entries }
  }

  async #readWaiting(after: Position, wait: AbortSignal): Promise<Read> {
    let sure = same(after, this.#seen.appended) || same(after, this.#seen.read)
    await this.#ownNews()
    while (!wait.aborted) {
      const known = this.#run.following(after)
      if (known.length > 0) return { kind: 'records', records: known }
      if (!sure) {
        const read = await this.#readNow(after)
        if (read.kind !== 'records' || read.records.length > 0) return read
      }
      const rows = await this.#next(after.index)
      const follows = rows[0]?.index === after.index + 1
      const entries = follows
        ? chained(
            after,
            rows.flatMap(({ parts }) => parts),
          )
        : undefined
      if (entries) {
        this.#seen.read = entries.at(-1)!.position
        return { kind: 'records', records: entries }
      }
      sure = false // nothing for a while, or nothing that follows where we stand: look what has become of the log
    }
    throw wait.reason
  }

  /**
   * An append brings whatever there is, so nobody asks while one is under way, or is about to be: else each entry of ours would be sent back to
   * us once more, and a busy process would read as much as it writes.
   */
  async #ownNews(): Promise<void> {
    for (let turn = 0; turn < TURNS && this.#appending === undefined; turn++) await new Promise<void>(resolve => this.#clock.soon(resolve))
    await this.#appending
  }

  #notThere(answer: ScriptAnswer, after: Position): Rejected {
    this.#run.clear()
    return this.#place.rejection(answer, after)
  }

  /** What comes after `index`, or nothing after a while. One question for all who wait: whoever really waits does so at the end of the log. */
  #next(index: number): Promise<readonly StreamRow[]> {
    if (this.#news) return this.#news
    const args = ['XREAD', 'COUNT', String(MAX_AT_ONCE), 'BLOCK', String(LOOK_AGAIN), 'STREAMS', this.#place.log, `${index}-0`]
    const news = this.#tail.send(args, { ifLost: 'UNAVAILABLE', waits: LOOK_AGAIN }).then(rowsOf, error => {
      if (isWrongType(error)) return [] // the script will say so
      throw error
    })
    this.#news = news
    const over = () => (this.#news = undefined)
    news.then(over, over)
    return news
  }

  #assertOpen(): void {
    if (this.#state === 'closed') throw closed()
    if (this.#state === 'new') throw new LeaseError('UNAVAILABLE', 'the store was not opened')
  }
}

/** An entry as a blocking read brings it: nonce, nonce before, bytes. */
interface StreamRow {
  readonly index: number
  readonly parts: readonly [Buffer, Buffer, Buffer]
}

function rowsOf(reply: unknown): StreamRow[] {
  const [stream] = (reply ?? []) as [[unknown, [Buffer, Buffer[]][]]?]
  return (stream?.[1] ?? []).flatMap(([id, fields]) => {
    const index = /^(\d+)-0$/.exec(text(id))?.[1]
    // Not ours: the script will say so.
    if (index === undefined || fields.length !== 6) return []
    return [{ index: Number(index), parts: [fields[1]!, fields[3]!, fields[5]!] as const }]
  })
}

/** Nonce, nonce before and bytes of each, if they follow `after` and each other. */
function chained(after: Position, rows: readonly Buffer[]): LogRecord[] | undefined {
  const entries: LogRecord[] = []
  let { index, nonce } = after
  for (let i = 0; i < rows.length; i += 3) {
    if (text(rows[i + 1]!) !== String(nonce)) return undefined
    nonce = BigInt(text(rows[i]!))
    entries.push({ position: { index: ++index, nonce }, bytes: rows[i + 2]!, age: 0 })
  }
  return entries
}

function replica(where: string, primary: string): LeaseError {
  return new LeaseError('UNAVAILABLE', `${where} is a replica and takes no writes: connect to its primary, ${primary}`, {
    facts: { where, reason: 'readonly', primary },
  })
}

function same(a: Position, b: Position): boolean {
  return a.index === b.index && a.nonce === b.nonce
}

/** Gives up waiting with the signal's own reason. Leaves no listener behind. */
function unless<T>(signal: AbortSignal, answer: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason)
    signal.addEventListener('abort', stop, { once: true })
    if (signal.aborted) stop()
    answer.then(resolve, reject).finally(() => signal.removeEventListener('abort', stop))
  })
}
