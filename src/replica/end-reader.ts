/** Reads a log to its end: for callers who need to know all that was there when they asked, and for a process that looks now and then. */
import type { Lifetime } from './lifetime.ts'
import { isTransient } from './retry.ts'

/** An answer with fewer records and bytes than these is no part of a longer one, in any store. */
const [MANY_RECORDS, MANY_BYTES] = [500, 262_144]

/** The log, as far as it is read here. */
interface Readable {
  readonly state: { readonly index: number }
  readonly sinceSnapshot: { readonly bytes: number }
  /** Applies the next records. Returns whether there were any. */
  readOn(): Promise<boolean>
}

export class EndReader {
  readonly #log: Readable
  readonly #lifetime: Pick<Lifetime, 'fail'>
  #barrier: { readonly begun: Promise<void>; next: Promise<void> | undefined } | undefined

  constructor(log: Readable, lifetime: Pick<Lifetime, 'fail'>) {
    this.#log = log
    this.#lifetime = lifetime
  }

  /** Calls made during one read share the next: it begins after all of them. */
  toTheEnd(): Promise<void> {
    const running = this.#barrier
    if (running === undefined) return this.#beginBarrier()
    running.next ??= running.begun.then(
      () => this.#beginBarrier(),
      () => this.#beginBarrier(),
    )
    return running.next
  }

  #beginBarrier(): Promise<void> {
    const toTheEnd = async () => {
      while (await this.#log.readOn()) {
        // Until the end of the log.
      }
    }
    // A store may learn that a connection was lost from the first read that fails on it: the second one is made on another.
    const begun = this.#failing(
      toTheEnd().catch(error => {
        if (!isTransient(error)) throw error
        return toTheEnd()
      }),
    )
    const barrier = { begun, next: undefined }
    this.#barrier = barrier
    const done = () => {
      if (this.#barrier === barrier && barrier.next === undefined) this.#barrier = undefined
    }
    begun.then(done, done)
    return begun
  }

  /**
   * A small answer is taken for the last one. For proposals that the log judges once more, since a read that confirms the end costs as much as one that brings
   * records.
   */
  async toThePresent(): Promise<void> {
    for (let isMore = true; isMore; ) {
      const { index } = this.#log.state
      const { bytes } = this.#log.sinceSnapshot
      await this.#failing(this.#log.readOn())
      isMore = this.#log.state.index - index >= MANY_RECORDS || this.#log.sinceSnapshot.bytes - bytes >= MANY_BYTES
    }
  }

  async #failing<T>(reading: Promise<T>): Promise<T> {
    try {
      return await reading
    } catch (error) {
      if (!isTransient(error)) this.#lifetime.fail(error)
      throw error
    }
  }
}
