/** Snapshots in Redis: written in chunks under a key of their own, in force once the pointer names them. */
import type { Clock } from '../../clock.ts'
import { LeaseError } from '../../errors.ts'
import type { Position, Snapshot } from '../../store.ts'
import { rechunk } from '../rechunk.ts'
import type { EngineAges } from './engine-ages.ts'
import { positionArguments, type RedisLog, text } from './log.ts'
import { KEEP, LOOK } from './script.ts'

/** Bytes in one field of a snapshot. */
const CHUNK = 262_144
/** An unfinished snapshot expires after this many ms. Expiry by the wall clock is harmless: the chunks are counted before the snapshot is put in force. */
const UNFINISHED = 3_600_000

export class RedisSnapshots {
  readonly #log: RedisLog
  readonly #clock: Clock
  readonly #ages: EngineAges
  /** Throws if the store is not open. */
  readonly #assertOpen: () => void

  constructor(log: RedisLog, clock: Clock, ages: EngineAges, assertOpen: () => void) {
    this.#log = log
    this.#clock = clock
    this.#ages = ages
    this.#assertOpen = assertOpen
  }

  /** The end of the log, and the snapshot in force. Throws DIVERGED if any part of the log is missing. */
  async inspect(): Promise<{ readonly head: Position; readonly snapshot: Snapshot | undefined }> {
    const [word, ...facts] = await this.#log.run(LOOK, [])
    if (word !== 'there') throw this.#log.diverged([word, ...facts], 0)
    const [index, nonce, first, kept] = facts as [number, Buffer, number, Buffer[]]
    const head = { index, nonce: BigInt(text(nonce)) }
    const [id = '', at = '0', its = '0', chunks = '0', age = '0', here = ''] = kept.map(text)
    const there = id !== '' && (await this.#log.send('HLEN', this.#log.chunks(id))) === Number(chunks)
    if (there)
      return {
        head,
        snapshot: this.#readable(id, { index: Number(at), nonce: BigInt(its) }, Number(chunks), this.#ages.of(Number(age), here)),
      }
    if (first > 1) throw this.#log.diverged(['beginning', first], first)
    return { head, snapshot: undefined }
  }

  async keep(at: Position, bytes: AsyncIterable<Uint8Array>): Promise<'kept' | 'older'> {
    const checked = await this.#log.run(KEEP, positionArguments(at))
    if (checked[0] === 'older') return 'older'
    if (checked[0] !== 'newer') throw this.#log.diverged(checked, at.index, `no snapshot can be kept of ${at.index}: `)
    await this.#delete(checked[1])
    const id = this.#clock.bits().toString(16)
    try {
      const answer = await this.#write(id, at, bytes)
      if (answer === 'older') await this.#delete(id)
      return answer
    } catch (error) {
      // After `UNKNOWN` the snapshot may be in force.
      if (!(error instanceof LeaseError && error.code === 'UNKNOWN')) await this.#delete(id).catch(() => {})
      throw error
    }
  }

  async #write(id: string, at: Position, bytes: AsyncIterable<Uint8Array>): Promise<'kept' | 'older'> {
    const key = this.#log.chunks(id)
    let count = 0
    for await (const chunk of rechunk(CHUNK, bytes)) {
      this.#assertOpen()
      const put = this.#log.send('HSET', key, String(count++), Buffer.from(chunk.buffer))
      await Promise.all([put, this.#log.send('PEXPIRE', key, String(UNFINISHED))])
    }
    this.#assertOpen()
    const answer = await this.#log.run(KEEP, [...positionArguments(at), id, String(count)], { ifLost: 'UNKNOWN', key })
    switch (answer[0]) {
      case 'kept':
        await this.#delete(answer[1]).catch(() => {}) // else the next snapshot deletes it
        return 'kept'
      case 'older':
        return 'older' // another process was quicker
      case 'taken':
        throw new LeaseError('UNAVAILABLE', `the snapshot of ${at.index} was deleted while it was written: write it again`)
      default:
        throw this.#log.diverged(answer, at.index, `no snapshot can be kept of ${at.index}: `)
    }
  }

  #readable(id: string, position: Position, chunks: number, age: number): Snapshot {
    const chunk = async (number: number) => {
      this.#assertOpen()
      const bytes = await this.#log.send('HGET', this.#log.chunks(id), String(number))
      if (bytes instanceof Uint8Array) return bytes
      throw new LeaseError('UNAVAILABLE', 'two newer snapshots were saved while this one was read: start again from the newest')
    }
    async function* bytes(): AsyncGenerator<Uint8Array> {
      for (let number = 0; number < chunks; number++) yield await chunk(number)
    }
    return { position, age, bytes: { [Symbol.asyncIterator]: bytes } }
  }

  async #delete(id: unknown): Promise<void> {
    if (String(id) !== '') await this.#log.send('UNLINK', this.#log.chunks(String(id)))
  }
}
