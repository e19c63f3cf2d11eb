/** Follows a log through one of several stores. */
import { type LogRecord, type Position, START, type Store } from '../../store.ts'
import { appended, bytes, readAll, text } from './records.ts'

/** Follows the log by the answers to its own appends, as a replica does. */
export class LogFollower {
  readonly seen: { position: Position; text: string }[] = []
  readonly #store: Store
  #at = START

  constructor(store: Store) {
    this.#store = store
  }

  async append(word: string): Promise<void> {
    const answer = await this.#store.append(bytes(word), this.#at)
    if (answer.kind === 'behind') return this.catchUp()
    const { position, missed } = appended(answer)
    this.#see([...missed, { position, bytes: bytes(word), age: 0 }])
  }

  async catchUp(): Promise<void> {
    this.#see(await readAll(this.#store, this.#at))
  }

  #see(entries: readonly LogRecord[]): void {
    for (const entry of entries) this.seen.push({ position: entry.position, text: text(entry.bytes) })
    this.#at = entries.at(-1)?.position ?? this.#at
  }
}
