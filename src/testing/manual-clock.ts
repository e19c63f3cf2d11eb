/** A clock for tests and the simulator: one machine whose time moves only by method calls. */
import { type Clock, turn } from '../clock.ts'

export interface ManualClockOptions {
  /** Same seed, same random numbers, in the same order. */
  readonly seed?: number | bigint
  readonly boot?: string
  readonly wall?: number
}

interface ManualTimer {
  readonly at: number
  /** Timers of the same moment fire in the order they were set. */
  readonly order: number
  readonly then: () => void
}

export class ManualClock implements Clock {
  /** Sorted by moment, then by order. */
  readonly #timers: ManualTimer[] = []
  #soon = 0
  #now = 1_000
  #slept = 0
  #wall: number
  #boot: string
  #state: bigint
  #order = 0

  constructor({ seed = 1, boot = 'boot-1', wall = 1_700_000_000_000 }: ManualClockOptions = {}) {
    this.#state = BigInt(seed)
    this.#boot = boot
    this.#wall = wall
  }

  now(): number {
    return this.#now
  }

  uptime(): number {
    return this.#now + this.#slept
  }

  wall(): number {
    return this.#wall
  }

  boot(): string {
    return this.#boot
  }

  random(): number {
    return Number(this.bits() >> 11n) / 2 ** 53
  }

  /** SplitMix64. */
  bits(): bigint {
    this.#state = BigInt.asUintN(64, this.#state + 0x9e3779b97f4a7c15n)
    let z = this.#state
    z = BigInt.asUintN(64, (z ^ (z >> 30n)) * 0xbf58476d1ce4e5b9n)
    z = BigInt.asUintN(64, (z ^ (z >> 27n)) * 0x94d049bb133111ebn)
    return z ^ (z >> 31n)
  }

  after(ms: number, then: () => void): () => void {
    const timer = { at: this.#now + Math.max(0, ms), order: this.#order++, then }
    this.#timers.splice(this.#place(timer), 0, timer)
    return () => {
      const place = this.#place(timer)
      if (this.#timers[place] === timer) this.#timers.splice(place, 1)
    }
  }

  /** Independent of the clock: runs in a later turn of the real event loop, so that a test that awaits its effect need not advance the clock. */
  soon(then: () => void): void {
    this.#soon++
    void turn().then(() => {
      this.#soon--
      then()
    })
  }

  /** Advances time by `ms` and fires each timer at its own time. Between two timers all promises that can settle do. */
  async advance(ms: number): Promise<void> {
    const end = this.#now + ms
    await this.settle()
    for (let next = this.#timers[0]; next && next.at <= end; next = this.#timers[0]) {
      this.#timers.shift()
      this.#moveTo(Math.max(this.#now, next.at))
      next.then()
      await this.settle()
    }
    this.#moveTo(end)
    await this.settle()
  }

  /**
   * The process is stopped or blocked for `ms`: time passes and nothing runs. Then all overdue timers fire before queued input is read, as in
   * Node. If Node was stopped while it waited for input, it reads before timers fire; `input` stands for that.
   */
  stall(ms: number, input: () => void = () => {}): void {
    this.#moveTo(this.#now + ms)
    input()
    for (let next = this.#timers[0]; next && next.at <= this.#now; next = this.#timers[0]) {
      this.#timers.shift()
      next.then()
    }
  }

  /** Synchronous code runs for `ms`: time passes and no timer fires. Overdue timers fire with the next `advance`. */
  block(ms: number): void {
    this.#moveTo(this.#now + ms)
  }

  /** Lets promises and `soon` callbacks run until nothing is left to do at this moment. */
  async settle(): Promise<void> {
    do await turn()
    while (this.#soon > 0)
    await turn()
  }

  /** The machine is suspended for `ms`: its uptime and wall clock advance, its monotonic clock and timers do not. */
  sleepMachine(ms: number): void {
    this.#slept += ms
    this.#wall += ms
  }

  stepWall(ms: number): void {
    this.#wall += ms
  }

  /** From now on `now` belongs to another boot, or to an unknown one: ''. */
  reboot(boot: string): void {
    this.#boot = boot
  }

  /** The number of pending timers, so that a test can check that none was left behind. */
  get waiting(): number {
    return this.#timers.length
  }

  #moveTo(now: number): void {
    this.#wall += now - this.#now
    this.#now = now
  }

  #place({ at, order }: ManualTimer): number {
    let low = 0
    let high = this.#timers.length
    while (low < high) {
      const middle = (low + high) >> 1
      const timer = this.#timers[middle]!
      if (timer.at < at || (timer.at === at && timer.order < order)) low = middle + 1
      else high = middle
    }
    return low
  }
}
