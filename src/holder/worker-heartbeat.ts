/**
 * Keeps leases alive while the main loop is blocked: a worker thread with a lessor of its own renews what the heartbeat is late with.
 *
 * Alive and working are two signals. The loop shows that it turns by a beat from its timers; when none came for `maxStall`, the worker
 * renews nothing any more, and what was held runs out: a process that hangs must not hold for ever. A lease with a `maxStall` of its own
 * needs `progress()` besides.
 *
 * What the worker achieved is read from shared memory, so `held` is right in the very first line after a long block, before any message
 * could have been read. Monotonic time is common to all threads.
 */
import type { Clock } from '../clock.ts'
import type { ClockReading, HeldLease, RenewalFigures } from '../lease.ts'

/** In one page of shared memory. */
const SLOTS = 1_024
const FIELDS = 8
/** Four that the main loop writes, four that the worker does: each field has one writer. */
const [LEASE, UNTIL, TERM, WORKING, WRITES, STOOD_FOR, STOOD_UNTIL, STOOD_UPTIME] = [0, 1, 2, 3, 4, 5, 6, 7] as const
/** Tries to read what is being written. The writer may have been put aside in the middle of it; then there is no news this time. */
const TRIES = 1_000

export interface BeliefSlot {
  readonly page: BeliefPage
  readonly slot: number
  readonly lease: number
  /** Believed until then, by the monotonic clock. */
  readonly until: number
  readonly term: number
  /** Its work is said to go on until then. */
  readonly working: number
}

/** Slots in memory that both threads see. Moments are in µs. */
export class BeliefPage {
  readonly memory: SharedArrayBuffer
  readonly #fields: BigInt64Array

  constructor(memory = new SharedArrayBuffer(SLOTS * FIELDS * 8)) {
    this.memory = memory
    this.#fields = new BigInt64Array(memory)
  }

  // The main loop's

  take(slot: number, { id, term }: Pick<HeldLease, 'id' | 'term'>): void {
    this.#set(slot, UNTIL, 0n)
    this.#set(slot, TERM, BigInt(term))
    this.#set(slot, WORKING, micros(Number.POSITIVE_INFINITY))
    this.#set(slot, LEASE, BigInt(id))
  }

  free(slot: number): void {
    this.#set(slot, LEASE, 0n)
  }

  believes(slot: number, until: number, term: number): void {
    this.#set(slot, TERM, BigInt(term))
    this.#set(slot, UNTIL, micros(until))
  }

  works(slot: number, until: number): void {
    this.#set(slot, WORKING, micros(until))
  }

  /** Until when the worker's renewals let this lease be believed in, by each clock. */
  stood(slot: number, lease: number): ClockReading | undefined {
    for (let i = 0; i < TRIES; i++) {
      const writes = this.#get(slot, WRITES)
      if (this.#get(slot, STOOD_FOR) !== BigInt(lease)) return undefined
      const reading = { now: millis(this.#get(slot, STOOD_UNTIL)), uptime: millis(this.#get(slot, STOOD_UPTIME)) }
      // Else the slot may have been written for another lease while we read.
      if (writes % 2n === 0n && this.#get(slot, WRITES) === writes) return reading
    }
    return undefined
  }

  // The worker's

  *slots(): Generator<BeliefSlot> {
    for (let slot = 0; slot < SLOTS; slot++) {
      const lease = Number(this.#get(slot, LEASE))
      if (lease === 0) continue
      const stood = this.stood(slot, lease)?.now ?? 0
      const until = Math.max(stood, millis(this.#get(slot, UNTIL)))
      const term = Number(this.#get(slot, TERM))
      yield { page: this, slot, lease, until, term, working: millis(this.#get(slot, WORKING)) }
    }
  }

  standFor(slot: number, lease: number, { now, uptime }: ClockReading): void {
    const before = this.stood(slot, lease)
    const writes = this.#get(slot, WRITES)
    this.#set(slot, WRITES, writes + 1n)
    this.#set(slot, STOOD_FOR, BigInt(lease))
    this.#set(slot, STOOD_UNTIL, micros(Math.max(now, before?.now ?? 0)))
    this.#set(slot, STOOD_UPTIME, micros(Math.max(uptime, before?.uptime ?? 0)))
    this.#set(slot, WRITES, writes + 2n)
  }

  #get(slot: number, field: number): bigint {
    return Atomics.load(this.#fields, slot * FIELDS + field)
  }

  #set(slot: number, field: number, value: bigint): void {
    Atomics.store(this.#fields, slot * FIELDS + field, value)
  }
}

/** Rounded down: what was rounded away is not believed in. */
function micros(ms: number): bigint {
  return ms === Number.POSITIVE_INFINITY ? 2n ** 62n : BigInt(Math.floor(ms * 1_000))
}

function millis(micros: bigint): number {
  return Number(micros) / 1_000
}

/** When the main loop turned last. */
export class LoopPulse {
  readonly memory: SharedArrayBuffer
  readonly #fields: BigInt64Array

  constructor(memory = new SharedArrayBuffer(8)) {
    this.memory = memory
    this.#fields = new BigInt64Array(memory)
  }

  get at(): number {
    return millis(Atomics.load(this.#fields, 0))
  }

  beat(now: number): void {
    Atomics.store(this.#fields, 0, micros(now))
  }
}

/** To the worker. */
export type Message = { readonly page: SharedArrayBuffer } | { readonly shortest: number } | 'close'

/** The other end of a worker that runs a StandIn. */
export interface Thread extends AsyncDisposable {
  post(message: Message): void
}

/** The main loop's end: says what is held and that the loop turns. */
export class WorkerHeartbeat implements AsyncDisposable {
  readonly #clock: Clock
  readonly #thread: Thread
  readonly #pulse: LoopPulse
  readonly #every: number
  readonly #pages: BeliefPage[] = []
  readonly #free: { readonly page: BeliefPage; readonly slot: number }[] = []
  #shortest = Number.POSITIVE_INFINITY
  #cancel: (() => void) | undefined

  constructor(clock: Clock, thread: Thread, pulse: LoopPulse, maxStall: number) {
    this.#clock = clock
    this.#thread = thread
    this.#pulse = pulse
    this.#every = Math.min(1_000, maxStall / 8)
    this.#beat()
  }

  #beat(): void {
    this.#pulse.beat(this.#clock.now())
    this.#cancel = this.#clock.after(this.#every, () => this.#beat())
  }

  /** From now on the worker renews it when we are late. */
  keep(belief: HeldLease): RenewalFigures {
    const { page, slot } = this.#free.pop() ?? this.#anotherPage()
    page.take(slot, belief)
    if (belief.term < this.#shortest) {
      this.#shortest = belief.term
      this.#thread.post({ shortest: belief.term })
    }
    return {
      stood: () => page.stood(slot, belief.id),
      renewed: () => page.believes(slot, belief.sent.now + belief.valid, belief.term),
      progressed: () => page.works(slot, belief.progress + belief.maxStall),
      drop: () => {
        page.free(slot)
        this.#free.push({ page, slot })
      },
    }
  }

  #anotherPage(): { readonly page: BeliefPage; readonly slot: number } {
    const page = new BeliefPage()
    this.#pages.push(page)
    this.#thread.post({ page: page.memory })
    for (let slot = SLOTS - 1; slot > 0; slot--) this.#free.push({ page, slot })
    return { page, slot: 0 }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#cancel?.()
    await this.#thread[Symbol.asyncDispose]()
  }
}
