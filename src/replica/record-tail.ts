/**
 * A copy of a log that continues: the state, as the chunks of a snapshot, then every record that is applied afterwards. Leases that move to another log are
 * copied in this way while the old log still decides.
 *
 *   the chunks, each after its length (4 bytes) · length 0 · the records, each after its length
 */
import { unlessAborted } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import { frameChunk } from './frame.ts'

/** A reader that is further behind would cost this process too much memory. */
const MAX_BYTES = 256 << 20

/** The records that were applied and that the reader of the copy does not have yet. */
export class RecordTail implements Disposable {
  readonly #log: { readonly tails: Set<RecordTail> }
  #waiting: Uint8Array[] = []
  #bytes = 0
  #error: LeaseError | undefined
  #wake = () => {}

  constructor(log: { readonly tails: Set<RecordTail> }) {
    this.#log = log
    log.tails.add(this)
  }

  add(record: Uint8Array): void {
    this.#waiting.push(record)
    this.#bytes += record.length
    if (this.#bytes > MAX_BYTES) this.fail('its reader is too slow')
    this.#wake()
  }

  fail(why: string): void {
    this.#error ??= new LeaseError('UNAVAILABLE', `the copy of the log cannot continue: ${why}`)
    this.#log.tails.delete(this)
    this.#wake()
  }

  /** The records since the last call, as soon as there is one. */
  async #next(signal: AbortSignal): Promise<readonly Uint8Array[]> {
    if (this.#waiting.length === 0 && this.#error === undefined)
      await unlessAborted(
        new Promise<void>(resolve => {
          this.#wake = resolve
        }),
        signal,
      )
    if (this.#error !== undefined) throw this.#error
    const records = this.#waiting
    this.#waiting = []
    this.#bytes = 0
    return records
  }

  /** Ends only by `signal` or with an error. */
  async *bytes(chunks: Iterable<Uint8Array>, signal: AbortSignal): AsyncGenerator<Uint8Array, void, void> {
    for (const chunk of chunks) yield frameChunk(chunk)
    yield frameChunk(new Uint8Array(0))
    for (;;) for (const record of await this.#next(signal)) yield frameChunk(record)
  }

  [Symbol.dispose](): void {
    this.#log.tails.delete(this)
  }
}
