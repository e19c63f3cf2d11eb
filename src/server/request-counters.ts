/** Counts requests by wire, by route or command, by key, and by result code. It runs for every response, so counting is a single addition. */

export type Wire = 'http' | 'resp'

/** Counts results by code. */
class ResultCounter {
  /** Results that are OK, as almost every one is. */
  ok = 0
  readonly #others = new Map<string, number>()

  increment(code = 'OK'): void {
    if (code === 'OK') this.ok++
    else this.#others.set(code, (this.#others.get(code) ?? 0) + 1)
  }

  get counts(): readonly (readonly [code: string, count: number])[] {
    return this.ok === 0 ? [...this.#others] : [['OK', this.ok], ...this.#others]
  }
}

export class RequestCounter extends ResultCounter {
  readonly wire: Wire
  /** One of our routes or commands. Never text from a client, which would create metric labels without bound. */
  readonly request: string

  constructor(wire: Wire, request: string) {
    super()
    this.wire = wire
    this.request = request
  }
}

/** Counts what belongs to no command. It is part of no metric. */
export const UNCOUNTED = new RequestCounter('resp', '')

/** The requests of one key. */
export class KeyCounter extends ResultCounter {}

/** For callers without a key. It is never read. */
export const NO_KEY = new KeyCounter()

export class RequestCounters {
  static readonly #byServer = new WeakMap<object, RequestCounters>()
  readonly #counters = new Map<string, RequestCounter>()
  readonly #byKey = new Map<number, KeyCounter>()

  /** The counters of a server, shared by its wires. `guarded` identifies the server. */
  static of(guarded: object): RequestCounters {
    let counters = RequestCounters.#byServer.get(guarded)
    if (counters === undefined) {
      counters = new RequestCounters()
      RequestCounters.#byServer.set(guarded, counters)
    }
    return counters
  }

  counter(wire: Wire, request: string): RequestCounter {
    const key = `${wire} ${request}`
    let counter = this.#counters.get(key)
    if (counter === undefined) {
      counter = new RequestCounter(wire, request)
      this.#counters.set(key, counter)
    }
    return counter
  }

  all(): Iterable<RequestCounter> {
    return this.#counters.values()
  }

  ofKey(id: number): KeyCounter {
    if (id === 0) return NO_KEY
    let counter = this.#byKey.get(id)
    if (counter === undefined) {
      counter = new KeyCounter()
      this.#byKey.set(id, counter)
    }
    return counter
  }

  /** By key id, also of keys that were revoked since. */
  keys(): Iterable<readonly [id: number, counter: KeyCounter]> {
    return this.#byKey
  }
}
