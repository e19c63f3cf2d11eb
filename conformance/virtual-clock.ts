/** A clock whose time is set from outside, with timers that its owner fires. Used by the conductor's server and by the TypeScript driver. */
import { type Clock, turn } from '../src/clock.ts'

interface Timer {
  readonly at: number
  readonly order: number
  readonly then: () => void
}

export interface Moment {
  /** Milliseconds; stands still while the machine is suspended. */
  readonly monotonic: number
  /** Milliseconds, suspends included. */
  readonly boottime: number
  readonly wall: number
}

export class VirtualClock implements Clock {
  readonly #timers = new Set<Timer>()
  #moment: Moment
  #order = 0
  #soon = 0
  #state: bigint

  constructor(moment: Moment, seed = 1) {
    this.#moment = moment
    this.#state = BigInt(seed)
  }

  now(): number {
    return this.#moment.monotonic
  }

  uptime(): number {
    return this.#moment.boottime
  }

  wall(): number {
    return this.#moment.wall
  }

  boot(): string {
    return 'boot-1'
  }

  random(): number {
    return Number(this.bits() >> 11n) / 2 ** 53
  }

  /** SplitMix64: every run of a scenario is the same. */
  bits(): bigint {
    this.#state = BigInt.asUintN(64, this.#state + 0x9e3779b97f4a7c15n)
    let z = this.#state
    z = BigInt.asUintN(64, (z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n)
    z = BigInt.asUintN(64, (z ^ (z >> 27n)) * 0x94d049bb133111ebn)
    return z ^ (z >> 31n)
  }

  after(ms: number, then: () => void): () => void {
    const timer = { at: this.now() + Math.max(0, ms), order: this.#order++, then }
    this.#timers.add(timer)
    return () => this.#timers.delete(timer)
  }

  soon(then: () => void): void {
    this.#soon++
    void turn().then(() => {
      this.#soon--
      then()
    })
  }

  set(moment: Moment): void {
    this.#moment = moment
  }

  /** When the next timer is due, on the monotonic clock. */
  get next(): number | undefined {
    let first: number | undefined
    for (const { at } of this.#timers) if (first === undefined || at < first) first = at
    return first
  }

  /** Fires what is due, in order. */
  fire(): boolean {
    const due = [...this.#timers].filter(({ at }) => at <= this.now()).sort((a, b) => a.at - b.at || a.order - b.order)
    for (const timer of due) if (this.#timers.delete(timer)) timer.then()
    return due.length > 0
  }

  /** Lets promises and `soon` callbacks run until nothing is left to do at this moment. */
  async settle(): Promise<void> {
    do await turn()
    while (this.#soon > 0)
    for (let i = 0; i < 3; i++) await turn()
  }
}
