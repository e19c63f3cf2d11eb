/** Snapshots in Postgres: written in chunks by one at a time, in force when the log's row points to them, taken away when nobody can be reading them. */
import { type Clock, pause } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import type { Position, Snapshot } from '../../store.ts'
import type { PostgresRow, PostgresValue } from './driver.ts'
import { signed, unsigned } from './nonce.ts'

const CHUNK_BYTES = 262_144
/** Rows taken away at a time: nobody waits long behind us. */
const ROWS_AT_ONCE = 1_000
/** Another's snapshot that has not grown for so long is abandoned. It costs promptness, never a snapshot in force. */
const ABANDONED = 5_000
const LOOK_AGAIN = 100

export interface PostgresSnapshotsOptions {
  readonly schema: string
  readonly name: string
  readonly clock: Clock
  /** Asks the engine. `done`: whether it may have been carried out when no answer came; what can be asked again never was. */
  readonly ask: (text: string, values: readonly PostgresValue[], options?: { readonly done: 'perhaps' }) => Promise<readonly PostgresRow[]>
  readonly closing: AbortSignal
}

export class PostgresSnapshots {
  readonly #options: PostgresSnapshotsOptions

  constructor(options: PostgresSnapshotsOptions) {
    this.#options = options
  }

  async write(at: Position, bytes: AsyncIterable<Uint8Array>): Promise<'kept' | 'older'> {
    const { schema, name, ask } = this.#options
    const id = await this.#begin(at)
    if (id === undefined) return 'older'
    let chunks = 0
    try {
      for await (const chunk of inChunks(bytes)) if (!(await this.#put(id, chunks++, chunk))) return 'older'
      const text = `select ${schema}.keep_snapshot($1, $2, $3)`
      const [[kept]] = (await ask(text, [name, id, chunks], { done: 'perhaps' })) as [[string]]
      if (kept.startsWith('diverged')) throw notThere(at, kept)
      if (kept !== 'kept') return 'older'
    } catch (error) {
      await this.#drop(id)
      throw error
    }
    await this.#tidy()
    return 'kept'
  }

  async newest(): Promise<Snapshot | undefined> {
    const { schema, name, ask } = this.#options
    const text = `select s.id::text, s.idx::text, s.nonce::text, s.written::text from ${schema}.log l join ${schema}.snapshot s on s.id = l.snapshot where l.name = $1`
    const [row] = await ask(text, [name])
    if (row === undefined) return undefined
    const [id, index, nonce, chunks] = row as [string, string, string, string]
    return { position: { index: Number(index), nonce: unsigned(nonce) }, age: 0, bytes: this.#chunks(id, Number(chunks)) }
  }

  async *#chunks(id: string, chunks: number): AsyncGenerator<Uint8Array> {
    const { schema, ask } = this.#options
    for (let n = 0; n < chunks; n++) {
      const [row] = await ask(`select encode(bytes, 'hex') from ${schema}.chunk where snapshot = $1 and n = $2`, [id, n])
      if (row === undefined)
        throw new LeaseError('UNAVAILABLE', 'the snapshot was replaced by newer ones while it was read: begin from the newest')
      yield Buffer.from(row[0]!, 'hex')
    }
  }

  /** One is written at a time. Whoever comes second waits, and finds that its own is older, or writes the next. */
  async #begin(at: Position): Promise<string | undefined> {
    const { schema, name, ask, clock, closing } = this.#options
    let seen = { id: '', written: '', since: clock.now() }
    for (let stale = '0'; ; ) {
      const text = `select kind, snapshot::text, written::text from ${schema}.begin_snapshot($1, $2, $3, $4)`
      const [[kind, id, written]] = (await ask(text, [name, at.index, signed(at.nonce), stale])) as [[string, string, string]]
      if (kind === 'begun') return id
      if (kind === 'older' || kind === 'trimmed') return undefined
      if (kind !== 'busy') throw notThere(at, kind)
      const now = clock.now()
      if (seen.id !== id || seen.written !== written) seen = { id, written, since: now }
      stale = now - seen.since > ABANDONED ? id : '0'
      if (stale === '0') await pause(clock, LOOK_AGAIN, closing, { ref: true })
    }
  }

  /** False when it was taken away: a newer one is in force, or we were taken for dead. */
  async #put(id: string, n: number, bytes: Uint8Array): Promise<boolean> {
    const { schema, ask } = this.#options
    const text = `with mine as (update ${schema}.snapshot set written = $2::int + 1 where id = $1 and not complete returning id)
      insert into ${schema}.chunk select id, $2::int, $3 from mine on conflict (snapshot, n) do update set bytes = excluded.bytes returning n::text`
    return (await ask(text, [id, n, bytes])).length === 1
  }

  /** Not complete, so it never existed. If this fails too, the next one that is written finds it abandoned. */
  async #drop(id: string): Promise<void> {
    const { schema, ask } = this.#options
    await ask(`delete from ${schema}.snapshot where id = $1 and not complete`, [id]).catch(() => {})
  }

  async #tidy(): Promise<void> {
    const { schema, name, ask, closing } = this.#options
    try {
      for (let gone = 1; gone > 0 && !closing.aborted; )
        gone = Number((await ask(`select ${schema}.tidy($1, $2)::text`, [name, ROWS_AT_ONCE]))[0]![0])
    } catch {
      // What is left is taken away after the next snapshot.
    }
  }
}

function notThere(at: Position, kind: string): LeaseError {
  return new LeaseError('DIVERGED', `no snapshot can be kept of ${at.index}: ${kind.replace('diverged ', '')}`)
}

/** Pieces of any size, as pieces of about the same size. */
async function* inChunks(pieces: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
  let held: Uint8Array[] = []
  let size = 0
  for await (const piece of pieces) {
    for (let from = 0; from < piece.length; ) {
      const part = piece.slice(from, from + CHUNK_BYTES - size)
      held.push(part)
      size += part.length
      from += part.length
      if (size < CHUNK_BYTES) continue
      yield Buffer.concat(held)
      held = []
      size = 0
    }
  }
  if (size > 0) yield Buffer.concat(held)
}
