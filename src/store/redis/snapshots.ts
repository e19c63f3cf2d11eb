/** Snapshots in Redis: written in chunks under a key of their own, in force when the pointer says so. */
import type { Clock } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import type { Position, Snapshot } from '../../store.ts'
import { type RedisLog, positionArguments, text } from './log.ts'
import { KEEP, LOOK } from './script.ts'

/** One field of a snapshot. */
const CHUNK = 262_144
/** One that nobody completes is gone after so many ms. Its end by a wall clock harms nothing: it is counted before it is kept. */
const UNFINISHED = 3_600_000

export class RedisSnapshots {
  readonly #place: RedisLog
  readonly #clock: Clock
  /** Throws when the store may not be used. */
  readonly #assertOpen: () => void

  constructor(place: RedisLog, clock: Clock, assertOpen: () => void) {
    this.#place = place
    this.#clock = clock
    this.#assertOpen = assertOpen
  }

  /** The end of the log, and the snapshot in force. Refuses a log of which anything is missing. */
  async look(): Promise<{ readonly head: Position; readonly snapshot: Snapshot | undefined }> {
    const [word, ...facts] = await this.#place.run(LOOK, [])
    if (word !== 'there') throw this.#place.diverged([word, ...facts], 0)
    const [index, nonce, first, kept] = facts as [number, Buffer, number, Buffer[]]
    const head = { index, nonce: BigInt(text(nonce)) }
    const [id = '', at = '0', its = '0', chunks = '0'] = kept.map(text)
    const there = id !== '' && (await this.#place.ask('HLEN', this.#place.chunks(id))) === Number(chunks)
    if (there) return { head, snapshot: this.#readable(id, { index: Number(at), nonce: BigInt(its) }, Number(chunks)) }
    if (first > 1) throw this.#place.diverged(['beginning', first], first)
    return { head, snapshot: undefined }
  }

  async keep(at: Position, bytes: AsyncIterable<Uint8Array>): Promise<'kept' | 'older'> {
    const asked = await this.#place.run(KEEP, positionArguments(at))
    if (asked[0] === 'older') return 'older'
    if (asked[0] !== 'newer') throw this.#place.diverged(asked, at.index, `no snapshot can be kept of ${at.index}: `)
    await this.#forget(asked[1])
    const id = this.#clock.bits().toString(16)
    try {
      const answer = await this.#write(id, at, bytes)
      if (answer === 'older') await this.#forget(id)
      return answer
    } catch (error) {
      // After `UNKNOWN` it may be in force.
      if (!(error instanceof LeaseError && error.code === 'UNKNOWN')) await this.#forget(id).catch(() => {})
      throw error
    }
  }

  async #write(id: string, at: Position, bytes: AsyncIterable<Uint8Array>): Promise<'kept' | 'older'> {
    const key = this.#place.chunks(id)
    let count = 0
    for await (const chunk of inPiecesOf(CHUNK, bytes)) {
      this.#assertOpen()
      const put = this.#place.ask('HSET', key, String(count++), chunk)
      await Promise.all([put, this.#place.ask('PEXPIRE', key, String(UNFINISHED))])
    }
    this.#assertOpen()
    const answer = await this.#place.run(KEEP, [...positionArguments(at), id, String(count)], { ifLost: 'UNKNOWN', key })
    switch (answer[0]) {
      case 'kept':
        await this.#forget(answer[1]).catch(() => {}) // or before the next one
        return 'kept'
      case 'older':
        return 'older' // another was quicker
      case 'taken':
        throw new LeaseError('UNAVAILABLE', `the snapshot of ${at.index} was taken away while it was written: write it again`)
      default:
        throw this.#place.diverged(answer, at.index, `no snapshot can be kept of ${at.index}: `)
    }
  }

  #readable(id: string, position: Position, chunks: number): Snapshot {
    const chunk = async (number: number) => {
      this.#assertOpen()
      const bytes = await this.#place.ask('HGET', this.#place.chunks(id), String(number))
      if (bytes instanceof Uint8Array) return bytes
      throw new LeaseError('UNAVAILABLE', 'two newer snapshots were kept while this one was read: begin again with the newest')
    }
    async function* bytes(): AsyncGenerator<Uint8Array> {
      for (let number = 0; number < chunks; number++) yield await chunk(number)
    }
    return { position, age: 0, bytes: { [Symbol.asyncIterator]: bytes } }
  }

  async #forget(id: unknown): Promise<void> {
    if (String(id) !== '') await this.#place.ask('UNLINK', this.#place.chunks(String(id)))
  }
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
