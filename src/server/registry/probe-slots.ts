/**
 * Limits how many probes run at the same time. A target that does not answer keeps its probe until the timeout, so probes of targets that failed last time, and
 * probes that have run for a while, have slots of their own: first probes and healthy targets do not wait behind them.
 */
import type { Clock } from '../../clock.ts'

/** Probes of targets that are new or answered last time. */
export const FAST_PROBES = 64
/** Probes of targets that failed last time, and those that take longer than SLOW ms. */
export const SLOW_PROBES = 256
const SLOW = 1_000

export class ProbeSlots {
  readonly #clock: Clock
  readonly #fast = new Lane(FAST_PROBES)
  readonly #slow = new Lane(SLOW_PROBES)

  constructor(clock: Clock) {
    this.#clock = clock
  }

  get inUse(): number {
    return this.#fast.inUse + this.#slow.inUse
  }

  /** Runs `work` when a slot is free. */
  async run<T>(service: string, hasFailed: boolean, work: () => Promise<T>): Promise<T> {
    let lane = hasFailed ? this.#slow : this.#fast
    let isOver = false
    await lane.enter(service)
    const move = async () => {
      await this.#slow.enter(service)
      if (isOver) return this.#slow.leave()
      lane = this.#slow
      this.#fast.leave()
    }
    const cancel = hasFailed ? undefined : this.#clock.after(SLOW, () => void move())
    try {
      return await work()
    } finally {
      isOver = true
      cancel?.()
      lane.leave()
    }
  }
}

class Lane {
  readonly #limit: number
  inUse = 0
  /** Probes that wait for a slot, by service. */
  readonly #waiting = new Map<string, (() => void)[]>()

  constructor(limit: number) {
    this.#limit = limit
  }

  async enter(service: string): Promise<void> {
    if (this.inUse < this.#limit) {
      this.inUse++
      return
    }
    await new Promise<void>(resolve => {
      const queue = this.#waiting.get(service)
      if (queue === undefined) this.#waiting.set(service, [resolve])
      else queue.push(resolve)
    })
  }

  /** Passes the slot on, to one service after another: a thousand dead targets of one service must not delay those of others. */
  leave(): void {
    const [first] = this.#waiting
    if (first === undefined) {
      this.inUse--
      return
    }
    const [service, queue] = first
    const next = queue.shift()!
    this.#waiting.delete(service)
    if (queue.length > 0) this.#waiting.set(service, queue)
    next()
  }
}
