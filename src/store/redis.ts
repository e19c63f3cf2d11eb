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
import { type Clock, systemClock } from '../clock.ts'
import { type ErrorCode, LeaseError } from '../errors.ts'
import {
  type Appended,
  type Entry,
  type NotThere,
  type Opened,
  type Position,
  type Profile,
  type Read,
  type Snapshot,
  START,
  type Store,
} from '../store.ts'
import { type AnyRedis, type Argument, dialCopyOf, dialUrl } from './redis-driver.ts'
import { closed, Link } from './redis-link.ts'
import { profileOf, readSettings, UNREAD } from './redis-profile.ts'
import { APPEND, KEEP, LOOK, READ, type Script } from './redis-script.ts'
import { divergence, refusal } from './redis-trouble.ts'

/** One field of a snapshot. */
const CHUNK = 262_144
/** A snapshot that nobody completes is gone after so many ms. Its end by a wall clock harms nothing: it is counted before it is kept. */
const UNFINISHED = 3_600_000
/** A waiting read looks after so many ms whether the log is still there: Redis wakes nobody when a stream is deleted. */
const LOOK_AGAIN = 1_000
/** Entries that a waiting read brings at most. They may be large, and Redis cannot bound their bytes. */
const MOST_AT_ONCE = 16

export interface RedisStoreOptions {
  /** `redis://` or `rediss://`, with `?name=` if there is no `name`. Or: */
  readonly url?: string
  /** A client of npm `redis` or `ioredis`, single or cluster. It is copied: the store has connections of its own. */
  readonly client?: AnyRedis
  /** Separates several logs in one Redis. */
  readonly name?: string
  /** How long, in ms, Redis may take to answer before the connection is given up. */
  readonly patience?: number
  readonly clock?: Clock
}

export class RedisStore implements Store {
  readonly #clock: Clock
  readonly #key: string
  readonly #where: string
  readonly #link: Link
  readonly #tail: Link
  #profile = UNREAD
  #state: 'new' | 'open' | 'closed' = 'new'
  /** The log contained these when we last heard of it, so a read that waits there need not ask first. */
  #seen: { appended: Position; read: Position } = { appended: START, read: START }
  #news: Promise<readonly Row[]> | undefined
  /** Drawn in advance. */
  #nonce: bigint | undefined

  constructor({ url, client, name, patience = 5_000, clock = systemClock }: RedisStoreOptions) {
    const place = parse(url, name)
    this.#clock = clock
    this.#key = `{${place.name}}`
    this.#where = client ? 'Redis' : place.where
    const dial = client ? dialCopyOf(client, `${this.#key}:log`, patience) : dialUrl(place.url, patience)
    const greet = async (send: (args: readonly Argument[]) => Promise<unknown>) => {
      const settings = await readSettings(send)
      if (settings.role === 'slave') throw replica(this.#where, settings.primary)
      this.#profile = profileOf(settings)
    }
    this.#link = new Link({ dial, clock, patience, where: this.#where, greet })
    this.#tail = new Link({ dial, clock, patience, where: this.#where })
  }

  get profile(): Profile {
    return this.#profile
  }

  async open(): Promise<Opened> {
    if (this.#state === 'closed') throw closed()
    const { head, first, snapshot } = await this.#look()
    this.#state = 'open'
    this.#seen = { appended: head, read: head }
    if (snapshot) return { head, snapshot: this.#readable(snapshot) }
    if (first > 1) throw this.#beginningLost(first)
    return { head }
  }

  async append(entry: Uint8Array, after: Position): Promise<Appended> {
    this.#assertOpen()
    const nonce = this.#nonce ?? this.#clock.bits()
    const asked = this.#run(APPEND, [...standing(after), String(nonce), view(entry)], 'UNKNOWN')
    this.#nonce = this.#clock.bits()
    const [kind, index, rows] = (await asked) as [unknown, number, Buffer[]]
    const position = { index, nonce }
    switch (String(kind)) {
      case 'appended':
        this.#seen.appended = position
        return { kind: 'appended', position, missed: this.#chained(after, rows) ?? this.#broken(position) }
      case 'behind':
        return { kind: 'behind', position }
      default:
        return this.#notThere([kind, index], after)
    }
  }

  async read(after: Position, { wait }: { readonly wait?: AbortSignal } = {}): Promise<Read> {
    this.#assertOpen()
    if (!wait) return this.#readNow(after)
    wait.throwIfAborted()
    return unless(wait, this.#readWaiting(after, wait))
  }

  async snapshot(at: Position, bytes: AsyncIterable<Uint8Array>): Promise<'kept' | 'older'> {
    this.#assertOpen()
    const [asked, stale] = (await this.#run(KEEP, standing(at), 'UNAVAILABLE')) as [unknown, unknown]
    if (String(asked) === 'older') return 'older'
    if (String(asked) !== 'newer') throw this.#noSnapshot([asked, stale], at)
    await this.#forget(String(stale))
    const id = this.#clock.bits().toString(16)
    const key = `${this.#key}:snapshot:${id}`
    let count = 0
    try {
      for await (const chunk of inPiecesOf(CHUNK, bytes)) {
        this.#assertOpen()
        const put = this.#link.send(['HSET', key, String(count++), chunk], { ifLost: 'UNAVAILABLE' })
        const until = this.#link.send(['PEXPIRE', key, String(UNFINISHED)], { ifLost: 'UNAVAILABLE' })
        await Promise.all([put, until])
      }
      this.#assertOpen()
      const answer = (await this.#run(KEEP, [...standing(at), id, String(count)], 'UNKNOWN', key)) as [unknown, unknown]
      switch (String(answer[0])) {
        case 'kept':
          await this.#forget(String(answer[1])).catch(() => {}) // or before the next one
          return 'kept'
        case 'older': // another was quicker
          await this.#forget(id)
          return 'older'
        case 'taken':
          throw new LeaseError('UNAVAILABLE', `the snapshot of ${at.index} was taken away while it was written: write it again`)
        default:
          throw this.#noSnapshot(answer, at)
      }
    } catch (error) {
      // After `UNKNOWN` it may be in force.
      if (!(error instanceof LeaseError && error.code === 'UNKNOWN')) await this.#forget(id).catch(() => {})
      throw error
    }
  }

  async newest(): Promise<Snapshot | undefined> {
    this.#assertOpen()
    const { first, snapshot } = await this.#look()
    if (snapshot) return this.#readable(snapshot)
    if (first > 1) throw this.#beginningLost(first)
    return undefined
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#state = 'closed'
    this.#link.close()
    this.#tail.close()
  }

  // Reading

  async #readNow(after: Position): Promise<Read> {
    const answer = (await this.#run(READ, standing(after), 'UNAVAILABLE')) as [unknown, Buffer[]]
    if (String(answer[0]) !== 'entries') return this.#notThere(answer, after)
    const entries = this.#chained(after, answer[1])
    if (!entries) return this.#diverged('another', after.index, 0)
    this.#seen.read = entries.at(-1)?.position ?? after
    return { kind: 'entries', entries }
  }

  async #readWaiting(after: Position, wait: AbortSignal): Promise<Read> {
    let sure = same(after, this.#seen.appended) || same(after, this.#seen.read)
    while (!wait.aborted) {
      if (!sure) {
        const read = await this.#readNow(after)
        if (read.kind !== 'entries' || read.entries.length > 0) return read
      }
      const rows = await this.#next(after.index)
      const entries =
        rows.length > 0 && rows[0]!.index === after.index + 1
          ? this.#chained(
              after,
              rows.flatMap(({ parts }) => parts),
            )
          : undefined
      if (entries) {
        this.#seen.read = entries.at(-1)!.position
        return { kind: 'entries', entries }
      }
      sure = false // nothing for a while, or nothing that follows where we stand: look what has become of the log
    }
    throw wait.reason
  }

  /** What comes after `index`, or nothing after a while. One question for all who wait: whoever really waits does so at the end of the log. */
  #next(index: number): Promise<readonly Row[]> {
    if (this.#news) return this.#news
    const args = ['XREAD', 'COUNT', String(MOST_AT_ONCE), 'BLOCK', String(LOOK_AGAIN), 'STREAMS', `${this.#key}:log`, `${index}-0`]
    const news = this.#tail.send(args, { ifLost: 'UNAVAILABLE', waits: LOOK_AGAIN }).then(rowsOf)
    this.#news = news
    const over = () => (this.#news = undefined)
    news.then(over, over)
    return news
  }

  /** Nonce, nonce before and bytes of each, if they follow `after` and each other. */
  #chained(after: Position, rows: readonly Buffer[]): Entry[] | undefined {
    const entries: Entry[] = []
    let { index, nonce } = after
    for (let i = 0; i < rows.length; i += 3) {
      if (BigInt(text(rows[i + 1]!)) !== nonce) return undefined
      nonce = BigInt(text(rows[i]!))
      entries.push({ position: { index: ++index, nonce }, bytes: rows[i + 2]!, age: 0 })
    }
    return entries
  }

  // Snapshots

  async #look(): Promise<{ head: Position; first: number; snapshot: Kept | undefined }> {
    const answer = (await this.#run(LOOK, [], 'UNAVAILABLE')) as [unknown, number, Buffer, number, Buffer[]]
    const [kind, index, nonce, first, kept] = answer
    if (String(kind) !== 'there') {
      const found = typeof index === 'number' ? index : 0
      throw new LeaseError('DIVERGED', divergence(`${this.#key}:log`, String(kind), found, found), { facts: { where: this.#where } })
    }
    const head = { index, nonce: BigInt(text(nonce)) }
    if (kept.length === 0) return { head, first, snapshot: undefined }
    const [id, at, its, chunks] = kept.map(text) as [string, string, string, string]
    const snapshot = { id, position: { index: Number(at), nonce: BigInt(its) }, chunks: Number(chunks) }
    const there = await this.#link.send(['HLEN', `${this.#key}:snapshot:${id}`], { ifLost: 'UNAVAILABLE' })
    return { head, first, snapshot: there === snapshot.chunks ? snapshot : undefined }
  }

  #readable({ id, position, chunks }: Kept): Snapshot {
    const chunk = async (number: number) => {
      this.#assertOpen()
      const bytes = await this.#link.send(['HGET', `${this.#key}:snapshot:${id}`, String(number)], { ifLost: 'UNAVAILABLE' })
      if (bytes instanceof Uint8Array) return bytes
      throw new LeaseError(
        'UNAVAILABLE',
        'two newer snapshots were kept while this one was read, or it was lost: begin again with the newest',
      )
    }
    async function* bytes(): AsyncGenerator<Uint8Array> {
      for (let number = 0; number < chunks; number++) yield await chunk(number)
    }
    return { position, age: 0, bytes: { [Symbol.asyncIterator]: bytes } }
  }

  async #forget(id: string): Promise<void> {
    if (id !== '') await this.#link.send(['UNLINK', `${this.#key}:snapshot:${id}`], { ifLost: 'UNAVAILABLE' })
  }

  // Asking

  async #run(script: Script, args: readonly Argument[], ifLost: ErrorCode, ...more: readonly string[]): Promise<unknown> {
    const keys = [`${this.#key}:log`, `${this.#key}:snapshot`, ...more]
    const rest = [String(keys.length), ...keys, ...args]
    try {
      try {
        return await this.#link.send(['EVALSHA', script.sha, ...rest], { ifLost })
      } catch (error) {
        if (refusal((error as Error).cause) !== 'NOSCRIPT') throw error
        return await this.#link.send(['EVAL', script.text, ...rest], { ifLost })
      }
    } catch (error) {
      if (/\bWRONGTYPE\b/.test(String(((error as Error).cause as Error | undefined)?.message))) return [FOREIGN]
      throw error
    }
  }

  #notThere([kind, found]: readonly unknown[], after: Position): NotThere {
    if (String(kind) === 'trimmed') return { kind: 'trimmed' }
    return this.#diverged(String(kind), after.index, typeof found === 'number' ? found : 0)
  }

  #diverged(what: string, index: number, found: number): NotThere {
    return { kind: 'diverged', reason: divergence(`${this.#key}:log`, what, index, found) }
  }

  #noSnapshot([kind, found]: readonly unknown[], at: Position): LeaseError {
    const why = divergence(`${this.#key}:log`, String(kind), at.index, typeof found === 'number' ? found : 0)
    return new LeaseError('DIVERGED', `no snapshot can be kept of ${at.index}: ${why}`)
  }

  #beginningLost(first: number): LeaseError {
    const what = `${this.#key}:log begins at ${first} and no snapshot has what came before`
    return new LeaseError('DIVERGED', `${what}: deleted by someone, or evicted. Restore a backup, or delete every key of it to begin anew`)
  }

  #broken(position: Position): never {
    // It was appended all the same.
    throw new LeaseError('DIVERGED', `what came before entry ${position.index} of ${this.#key}:log does not fit together: restore a backup`)
  }

  #assertOpen(): void {
    if (this.#state === 'closed') throw closed()
    if (this.#state === 'new') throw new LeaseError('UNAVAILABLE', 'the store was not opened')
  }
}

interface Kept {
  readonly id: string
  readonly position: Position
  readonly chunks: number
}

/** An entry as a blocking read brings it: nonce, nonce before, bytes. */
interface Row {
  readonly index: number
  readonly parts: readonly [Buffer, Buffer, Buffer]
}

const FOREIGN = 'foreign'
function rowsOf(reply: unknown): Row[] {
  const [stream] = (reply ?? []) as [[unknown, [Buffer, Buffer[]][]]?]
  return (stream?.[1] ?? []).flatMap(([id, fields]) => {
    const index = /^(\d+)-0$/.exec(text(id))?.[1]
    // Not ours: the script will say so.
    if (index === undefined || fields.length !== 6) return []
    return [{ index: Number(index), parts: [fields[1]!, fields[3]!, fields[5]!] as const }]
  })
}

function parse(url: string | undefined, name: string | undefined): { url: string; where: string; name: string } {
  let place: URL | undefined
  try {
    place = url === undefined ? undefined : new URL(url)
  } catch (cause) {
    throw new LeaseError('INVALID', 'a Redis is named as redis://user:password@host:port/database', { cause })
  }
  const chosen = name ?? place?.searchParams.get('name') ?? 'leasehold'
  // Braces are what a cluster looks for in a key.
  if (!/^[^{}\s\p{Cc}]{1,128}$/u.test(chosen))
    throw new LeaseError('INVALID', `${JSON.stringify(chosen)} cannot name a log: use up to 128 characters without blanks or braces`)
  if (!place) return { url: '', where: 'Redis', name: chosen }
  place.search = ''
  return { url: place.href, where: `${place.protocol}//${place.host}`, name: chosen }
}

function replica(where: string, primary: string): LeaseError {
  return new LeaseError('UNAVAILABLE', `${where} is a replica and takes no writes: connect to its primary, ${primary}`, {
    facts: { where, reason: 'readonly', primary },
  })
}

function standing({ index, nonce }: Position): [string, string] {
  return [String(index), String(nonce)]
}

function same(a: Position, b: Position): boolean {
  return a.index === b.index && a.nonce === b.nonce
}

function text(bytes: Buffer): string {
  return bytes.toString('latin1')
}

function view(bytes: Uint8Array): Buffer {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength)
}

/** Gives up waiting with the signal's own reason. Leaves no listener behind. */
function unless<T>(signal: AbortSignal, answer: Promise<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason)
    signal.addEventListener('abort', stop, { once: true })
    answer.then(resolve, reject).finally(() => signal.removeEventListener('abort', stop))
  })
}

/** The same bytes in pieces of one size: a snapshot of many small chunks is not as many writes. */
async function* inPiecesOf(size: number, chunks: AsyncIterable<Uint8Array>): AsyncGenerator<Buffer> {
  let pieces: Uint8Array[] = []
  let filled = 0
  for await (let chunk of chunks) {
    while (filled + chunk.length >= size) {
      const taken = chunk.subarray(0, size - filled)
      yield Buffer.concat([...pieces, taken])
      chunk = chunk.subarray(taken.length)
      pieces = []
      filled = 0
    }
    if (chunk.length > 0) pieces.push(chunk.slice())
    filled += chunk.length
  }
  if (filled > 0) yield Buffer.concat(pieces)
}
