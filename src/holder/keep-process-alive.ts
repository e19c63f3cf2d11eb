import type { Clock } from '../clock.ts'

/** Its timer is set anew so often, and does nothing. */
const AWAKE = 3_600_000

/** What `from` brings. While someone waits for the next of it, the process stays: nothing else may be left that would keep it. */
export async function* keepProcessAlive<T>(clock: Clock, from: AsyncIterable<T>): AsyncGenerator<T, void, void> {
  const source = from[Symbol.asyncIterator]()
  try {
    for (;;) {
      const rest = stay(clock)
      const next = await source.next().finally(rest)
      if (next.done) return
      yield next.value
    }
  } finally {
    await source.return?.()
  }
}

function stay(clock: Clock): () => void {
  let cancel = () => {}
  const again = () => {
    cancel = clock.after(AWAKE, again, { ref: true })
  }
  again()
  return () => cancel()
}
