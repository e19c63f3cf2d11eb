/**
 * The lessor at the place that leases are about to move to. It is opened when the move is announced, because to load all leases may take longer than a short
 * lease lives.
 */
import type { Clock } from '../clock.ts'
import type { Lessor } from '../lessor.ts'

/** It is kept open this long if the leases do not come. The process that moves them may have died. */
const MAX_PREPARED = 600_000

export class NextLessor {
  readonly #clock: Clock
  readonly #open: (url: string) => Promise<Lessor>
  #prepared: { readonly url: string; readonly lessor: Promise<Lessor>; readonly stopTimer: () => void } | undefined

  constructor(clock: Clock, open: (url: string) => Promise<Lessor>) {
    this.#clock = clock
    this.#open = open
  }

  /** The leases are about to move to `url`; empty: they stay. */
  prepare(url: string): void {
    this.drop()
    if (url === '') return
    const lessor = this.#open(url)
    lessor.catch(() => {}) // opened again when the leases have left: then the error counts
    this.#prepared = { url, lessor, stopTimer: this.#clock.after(MAX_PREPARED, () => this.drop()) }
  }

  /** The leases have left for `url`. */
  async open(url: string): Promise<Lessor> {
    if (this.#prepared?.url !== url) this.drop()
    const ahead = await this.#take()?.catch(() => undefined)
    if (ahead === undefined) return this.#open(url)
    if (!ahead.signal.aborted) return ahead
    await ahead[Symbol.asyncDispose]()
    return this.#open(url)
  }

  drop(): void {
    this.#take()
      ?.then(lessor => lessor[Symbol.asyncDispose]())
      .catch(() => {})
  }

  #take(): Promise<Lessor> | undefined {
    this.#prepared?.stopTimer()
    const lessor = this.#prepared?.lessor
    this.#prepared = undefined
    return lessor
  }
}
