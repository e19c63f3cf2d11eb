import { type Clock, keepAlive } from '../clock.ts'

/** Passes on the items of `from`. While the consumer waits for the next one, the process stays alive, although nothing else may be pending. */
export async function* keepProcessAlive<T>(clock: Clock, from: AsyncIterable<T>): AsyncGenerator<T, void, void> {
  const source = from[Symbol.asyncIterator]()
  try {
    for (;;) {
      const release = keepAlive(clock)
      const next = await source.next().finally(release)
      if (next.done) return
      yield next.value
    }
  } finally {
    await source.return?.()
  }
}
