/** The last records of a log that this process has appended or received. */
import type { LogRecord, Position } from '../store.ts'

const MAX_RECORDS = 256
const MAX_BYTES = 1_048_576

/**
 * The last records that this process has appended, and those it missed before them, without a gap. Waiting readers are served from here.
 * Otherwise a process would fetch every record that it writes back from the engine.
 */
export class RecentRecords {
  #base: Position | undefined
  #records: LogRecord[] = []
  #bytes = 0

  get end(): Position | undefined {
    return this.#records.at(-1)?.position ?? this.#base
  }

  add(after: Position, records: readonly LogRecord[]): void {
    const { end } = this
    const from = records.findIndex(({ position }) => position.index === (end?.index ?? -1) + 1)
    const joins = from !== -1 && isSame(end!, from === 0 ? after : records[from - 1]!.position)
    if (!joins) this.#begin(after)
    for (const record of joins ? records.slice(from) : records) {
      this.#records.push(record)
      this.#bytes += record.bytes.length
    }
    while (this.#records.length > MAX_RECORDS || this.#bytes > MAX_BYTES) {
      const { position, bytes } = this.#records.shift()!
      this.#base = position
      this.#bytes -= bytes.length
    }
  }

  has({ index, nonce }: Position): boolean {
    const found = this.#at(index)
    return found !== undefined && found.nonce === nonce
  }

  /** The records that follow, if they are known here; otherwise empty. */
  following(after: Position): readonly LogRecord[] {
    return this.has(after) ? this.#records.slice(after.index - this.#base!.index) : []
  }

  clear(): void {
    this.#base = undefined
    this.#records = []
    this.#bytes = 0
  }

  #begin(at: Position): void {
    this.clear()
    this.#base = at
  }

  #at(index: number): Position | undefined {
    if (this.#base === undefined) return undefined
    return index === this.#base.index ? this.#base : this.#records[index - this.#base.index - 1]?.position
  }
}

function isSame(a: Position, b: Position): boolean {
  return a.index === b.index && a.nonce === b.nonce
}
