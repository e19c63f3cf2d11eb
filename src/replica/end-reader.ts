/** Reads a log to its end: for callers who need to know all that was there when they asked, and for a process that looks now and then. */
import { LARGE_ANSWER } from '../store.ts'
import type { Lifetime } from './lifetime.ts'
import { isTransient } from './retry.ts'

/** A log that grows faster than it is read never answers that nothing follows. After this many small answers in turn, all that was there has been read. */
const SMALL_ANSWERS = 4

/** The log, as far as it is read here. */
interface Readable {
  readonly state: { readonly index: number }
  readonly sinceSnapshot: { readonly bytes: number }
  /** Applies the next records. Returns whether there were any. */
  readOn(): Promise<boolean>
}

/** Reads all that is in the log now. Ends at an empty answer, the cheapest proof, and on a busy log without one. */
export async function readToEnd(log: Readable): Promise<void> {
  for (let small = 0; small < SMALL_ANSWERS; ) {
    const { any, large } = await readSome(log)
    if (!any) return
    if (!large) small++
  }
}

async function readSome(log: Readable): Promise<{ readonly any: boolean; readonly large: boolean }> {
  const { index } = log.state
  const { bytes } = log.sinceSnapshot
  const any = await log.readOn()
  const more = log.sinceSnapshot.bytes - bytes
  // After a snapshot was loaded, too, more may follow: the bytes are counted anew.
  const large = log.state.index - index >= LARGE_ANSWER.records || more >= LARGE_ANSWER.bytes || more < 0
  return { any, large }
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
    // A store may learn that a connection was lost from the first read that fails on it: the second one is made on another.
    const begun = this.#failing(
      readToEnd(this.#log).catch(error => {
        if (!isTransient(error)) throw error
        return readToEnd(this.#log)
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
    while ((await this.#failing(readSome(this.#log))).large) {
      // More may follow a large answer.
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
