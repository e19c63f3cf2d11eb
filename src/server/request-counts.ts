/** How often each thing was asked on each wire, and how it was answered. Counted for every answer, so it is an addition and nothing else. */

export type Wire = 'http' | 'resp'

export class RequestCount {
  readonly wire: Wire
  /** A route or a command of ours, never what somebody sent. */
  readonly asked: string
  /** By far the most frequent answer. */
  #ok = 0
  readonly #others = new Map<string, number>()

  constructor(wire: Wire, asked: string) {
    this.wire = wire
    this.asked = asked
  }

  count(code = 'OK'): void {
    if (code === 'OK') this.#ok++
    else this.#others.set(code, (this.#others.get(code) ?? 0) + 1)
  }

  get counts(): readonly (readonly [code: string, count: number])[] {
    return this.#ok === 0 ? [...this.#others] : [['OK', this.#ok], ...this.#others]
  }
}

export class RequestCounts {
  static readonly #byDesk = new WeakMap<object, RequestCounts>()
  readonly #tallies = new Map<string, RequestCount>()

  /** One for all wires of a server. */
  static of(desk: object): RequestCounts {
    let tallies = RequestCounts.#byDesk.get(desk)
    if (tallies === undefined) {
      tallies = new RequestCounts()
      RequestCounts.#byDesk.set(desk, tallies)
    }
    return tallies
  }

  tally(wire: Wire, asked: string): RequestCount {
    const key = `${wire} ${asked}`
    let tally = this.#tallies.get(key)
    if (tally === undefined) {
      tally = new RequestCount(wire, asked)
      this.#tallies.set(key, tally)
    }
    return tally
  }

  all(): Iterable<RequestCount> {
    return this.#tallies.values()
  }
}
