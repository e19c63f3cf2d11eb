/**
 * A thread that is ended while it is inside SQLite takes its whole process with it: what comes back from there finds no JavaScript to come back
 * to, and the npm engine aborts (seen as SIGABRT in one of a hundred programs that had ended well). So whoever ends takes the gate first.
 *
 * A lock of one word, shared by the thread that calls SQLite and the one that started it. The thread holds it during each call. A process that
 * exits takes it and never gives it back: the thread has then come out and stands still where it would go in again.
 *
 * Not promised: anything when the thread that uses the store is itself a worker and ended from outside (`worker.terminate()`): nothing of ours
 * is asked then. Dispose of the store first.
 */
import type { Database, DatabaseOptions, Engine, Statement, SqliteValue } from './engine.ts'

const [FREE, TAKEN, WANTED] = [0, 1, 2]
/** A disk that hangs: Node itself waits for the thread then. */
const TIMEOUT = 10_000

export class ExitMutex {
  readonly #word: Int32Array

  constructor(readonly memory = new SharedArrayBuffer(4)) {
    this.#word = new Int32Array(memory)
  }

  enter(timeout?: number): void {
    if (Atomics.compareExchange(this.#word, 0, FREE, TAKEN) === FREE) return
    while (Atomics.exchange(this.#word, 0, WANTED) !== FREE) if (Atomics.wait(this.#word, 0, WANTED, timeout) === 'timed-out') return
  }

  leave(): void {
    if (Atomics.exchange(this.#word, 0, FREE) === WANTED) Atomics.notify(this.#word, 0)
  }
}

const open = new Set<ExitMutex>()
let listening = false

/** Taken when this process exits, unless what it returns was called before. */
export function lockAtExit(gate: ExitMutex): () => void {
  open.add(gate)
  if (!listening) process.once('exit', () => open.forEach(gate => void gate.enter(TIMEOUT)))
  listening = true
  return () => void open.delete(gate)
}

/** The engine, entered through the gate at every call. */
export function locked({ DatabaseSync }: Engine, gate: ExitMutex): Engine {
  const through = <T>(call: () => T): T => {
    gate.enter()
    try {
      return call()
    } finally {
      gate.leave()
    }
  }
  const statement = (inner: Statement): Statement => ({
    run: (...values: SqliteValue[]) => through(() => inner.run(...values)),
    get: (...values: SqliteValue[]) => through(() => inner.get(...values)),
    all: (...values: SqliteValue[]) => through(() => inner.all(...values)),
    setReadBigInts: on => through(() => inner.setReadBigInts(on)),
  })
  return {
    DatabaseSync: class implements Database {
      readonly #inner: Database

      constructor(path: string, options: DatabaseOptions) {
        this.#inner = through(() => new DatabaseSync(path, options))
      }

      exec(sql: string): void {
        through(() => this.#inner.exec(sql))
      }

      prepare(sql: string): Statement {
        return statement(through(() => this.#inner.prepare(sql)))
      }

      function(...args: Parameters<Database['function']>): void {
        through(() => this.#inner.function(...args))
      }

      close(): void {
        through(() => this.#inner.close())
      }
    },
  }
}
