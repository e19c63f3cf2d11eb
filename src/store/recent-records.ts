import type { LogRecord, Position } from '../store.ts'

const MAX_ENTRIES = 256
const MAX_BYTES = 1_048_576

/**
 * The last entries that our own appends have put or brought, without a gap. Whoever waits for news is served from here: otherwise everything
 * that this process writes would be fetched back from the engine once more.
 */
export class RecentRecords {
  #base: Position | undefined
  #entries: LogRecord[] = []
  #bytes = 0

  get end(): Position | undefined {
    return this.#entries.at(-1)?.position ?? this.#base
  }

  add(after: Position, entries: readonly LogRecord[]): void {
    const { end } = this
    const from = entries.findIndex(({ position }) => position.index === (end?.index ?? -1) + 1)
    const joins = from !== -1 && isSame(end!, from === 0 ? after : entries[from - 1]!.position)
    if (!joins) this.#begin(after)
    for (const entry of joins ? entries.slice(from) : entries) {
      this.#entries.push(entry)
      this.#bytes += entry.bytes.length
    }
    while (this.#entries.length > MAX_ENTRIES || this.#bytes > MAX_BYTES) {
      const { position, bytes } = this.#entries.shift()!
      this.#base = position
      this.#bytes -= bytes.length
    }
  }

  has({ index, nonce }: Position): boolean {
    const found = this.#at(index)
    return found !== undefined && found.nonce === nonce
  }

  /** What follows, when that is known here; empty when it is not. */
  following(after: Position): readonly LogRecord[] {
    return this.has(after) ? this.#entries.slice(after.index - this.#base!.index) : []
  }

  clear(): void {
    this.#base = undefined
    this.#entries = []
    this.#bytes = 0
  }

  #begin(at: Position): void {
    this.clear()
    this.#base = at
  }

  #at(index: number): Position | undefined {
    if (this.#base === undefined) return undefined
    return index === this.#base.index ? this.#base : this.#entries[index - this.#base.index - 1]?.position
  }
}

function isSame(a: Position, b: Position): boolean {
  return a.index === b.index && a.nonce === b.nonce
}
