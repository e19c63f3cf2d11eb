/**
 * Keeps a process from exiting while its worker thread is inside SQLite. Otherwise the native call returns into a JavaScript engine that is
 * gone, and the SQLite from npm aborts the process (seen as SIGABRT in one of a hundred programs that had ended well).
 *
 * A mutex of one word, shared by the thread that calls SQLite and the thread that started it. The worker holds it during each call. A
 * process that exits locks it and never unlocks it: by then the worker is outside SQLite, and it blocks before the next call.
 *
 * Not guaranteed: anything if the thread that uses the store is itself a worker that is ended from outside (`worker.terminate()`, or the exit of
 * its process), because no code of ours runs then. Dispose of the store first, or let the worker call `process.exit()`.
 */
import type { Database, DatabaseOptions, Engine, SqliteValue, Statement } from './engine.ts'

const [FREE, LOCKED, CONTENDED] = [0, 1, 2]
/** For a disk that hangs, in ms: after this Node itself waits for the thread. */
const TIMEOUT = 10_000

export class ExitMutex {
  readonly #word: Int32Array

  constructor(readonly memory = new SharedArrayBuffer(4)) {
    this.#word = new Int32Array(memory)
  }

  lock(timeout?: number): void {
    if (Atomics.compareExchange(this.#word, 0, FREE, LOCKED) === FREE) return
    while (Atomics.exchange(this.#word, 0, CONTENDED) !== FREE) if (Atomics.wait(this.#word, 0, CONTENDED, timeout) === 'timed-out') return
  }

  /** Locks it for good, before the thread or the process ends. */
  lockForever(): void {
    this.lock(TIMEOUT)
  }

  unlock(): void {
    if (Atomics.exchange(this.#word, 0, FREE) === CONTENDED) Atomics.notify(this.#word, 0)
  }
}

/** The engine, with every call inside the mutex. */
export function locked({ DatabaseSync }: Engine, mutex: ExitMutex): Engine {
  const inside = <T>(call: () => T): T => {
    mutex.lock()
    try {
      return call()
    } finally {
      mutex.unlock()
    }
  }
  const statement = (inner: Statement): Statement => ({
    run: (...values: SqliteValue[]) => inside(() => inner.run(...values)),
    get: (...values: SqliteValue[]) => inside(() => inner.get(...values)),
    all: (...values: SqliteValue[]) => inside(() => inner.all(...values)),
    setReadBigInts: on => inside(() => inner.setReadBigInts(on)),
  })
  return {
    DatabaseSync: class implements Database {
      readonly #inner: Database

      constructor(path: string, options: DatabaseOptions) {
        this.#inner = inside(() => new DatabaseSync(path, options))
      }

      exec(sql: string): void {
        inside(() => this.#inner.exec(sql))
      }

      prepare(sql: string): Statement {
        return statement(inside(() => this.#inner.prepare(sql)))
      }

      function(...args: Parameters<Database['function']>): void {
        inside(() => this.#inner.function(...args))
      }

      close(): void {
        inside(() => this.#inner.close())
      }
    },
  }
}
