/** The real kernel in virtual time: applies commands, and proposes that timers are due exactly when they are. */
import { apply } from '../../src/kernel/apply.ts'
import type { Command } from '../../src/kernel/command.ts'
import type { Event } from '../../src/kernel/event.ts'
import type { Outcome } from '../../src/kernel/outcome.ts'
import { timerId, timerOf } from '../../src/kernel/state/timers.ts'
import { createState, type LeaseState, type Slot, type State, TERM } from '../../src/kernel/state.ts'

/** Something that happens at a time. */
interface Scheduled {
  readonly at: number
  readonly order: number
  run(): void
}

export interface VirtualLogOptions {
  /**
   * Every holder and every waiter renews in time, so no term runs out. The renewals themselves are left out: they would decide nothing.
   * @default false
   */
  readonly renewed?: boolean
}

export class VirtualLog {
  readonly state: State = createState(0)
  readonly #renewed: boolean
  /** Virtual time in ms. */
  now = 0
  /** Called with each event of the kernel. */
  onEvent: (event: Event) => void = () => {}
  readonly #heap: Scheduled[] = []
  #order = 0
  readonly #effects = { events: [] as Event[], timer: (lease: LeaseState | undefined, slot: Slot) => this.#timer(lease, slot) }

  constructor({ renewed = false }: VirtualLogOptions = {}) {
    this.#renewed = renewed
  }

  /** Lets the log's own time catch up with virtual time. */
  tick(): void {
    const elapsed = Math.round(this.now) - this.state.elapsed
    if (elapsed > 0) this.propose({ kind: 'tick', n: this.state.tick + 1, elapsed })
  }

  propose(command: Command): Outcome {
    this.state.wall = this.now
    const outcome = apply(this.state, { command }, this.#effects)
    const events = this.#effects.events.splice(0)
    for (const event of events) this.onEvent(event)
    return outcome
  }

  /** Runs `run` at this time, after everything that was scheduled for the same time before. */
  at(at: number, run: () => void): void {
    const item = { at: Math.max(at, this.now), order: this.#order++, run }
    const heap = this.#heap
    let place = heap.push(item) - 1
    for (let above = (place - 1) >> 1; place > 0 && isBefore(item, heap[above]!); above = (place - 1) >> 1) {
      heap[place] = heap[above]!
      place = above
    }
    heap[place] = item
  }

  /** Runs everything that is scheduled, and what that schedules. */
  run(): void {
    for (let next = this.#take(); next !== undefined; next = this.#take()) {
      this.now = next.at
      next.run()
    }
  }

  #take(): Scheduled | undefined {
    const heap = this.#heap
    const first = heap[0]
    const last = heap.pop()
    if (heap.length === 0 || last === undefined) return first
    let place = 0
    for (;;) {
      let below = 2 * place + 1
      if (below >= heap.length) break
      if (below + 1 < heap.length && isBefore(heap[below + 1]!, heap[below]!)) below++
      if (isBefore(last, heap[below]!)) break
      heap[place] = heap[below]!
      place = below
    }
    heap[place] = last
    return first
  }

  #timer(lease: LeaseState | undefined, slot: Slot): void {
    const timer = lease && timerOf(lease, slot)
    if (lease === undefined || timer === undefined || (this.#renewed && slot === TERM)) return
    const id = timerId(lease, slot)
    this.at(this.now + timer.duration, () => {
      if (this.state.leases.has(lease.id - this.state.origin) && timerOf(lease, slot)?.epoch === timer.epoch)
        this.propose({ kind: 'due', timer: id, epoch: timer.epoch })
    })
  }
}

function isBefore(a: Scheduled, b: Scheduled): boolean {
  return a.at < b.at || (a.at === b.at && a.order < b.order)
}
