/**
 * Keeps leases alive while the main loop is blocked: a worker thread with its own lessor renews the leases that the heartbeat is late with.
 * This is the main loop's side; backup-renewer.ts is the worker's.
 *
 * Being alive and working are two signals. A timer of the loop records that it turns. When no record came for `maxStall`, the worker stops
 * renewing and the leases run out: a process that hangs must not hold for ever. A lease with its own `maxStall` also needs `progress()`.
 *
 * The result of the worker's renewals is read from shared memory. So `held` is right in the first line after a long block, before any
 * message could be read. Monotonic time is common to all threads.
 */
import type { Clock } from '../clock.ts'
import type { BackupRenewal, HeldLease } from './held-lease.ts'
import type { ClockReading } from './validity.ts'

/** Slots in one page of shared memory. */
const SLOTS = 1_024
const FIELDS = 9
/** The main loop writes the first four fields, the worker the others: each field has one writer. */
const [LEASE, SENT, TERM, WORKING, WRITES, RENEWED, RENEWED_SENT, RENEWED_UPTIME, RENEWED_TERM] = [0, 1, 2, 3, 4, 5, 6, 7, 8] as const
/** Tries to read fields that are being written. The writer may be preempted in the middle; then the read reports nothing this time. */
const TRIES = 1_000

export interface LeaseSlot {
  readonly page: SlotPage
  readonly slot: number
  readonly lease: number
  /** When its last answered renewal was sent, by the monotonic clock. */
  readonly sent: number
  readonly term: number
  /** Its work counts as going on until then. */
  readonly working: number
}

/** A renewal by the worker that was answered: when it was sent, by each clock, and the term in the answer. */
export interface WorkerRenewal extends ClockReading {
  readonly term: number
}

/**
 * Slots in memory that both threads see. Times are in µs. They say when renewals were sent, not until when a lease is valid: how much of a term may be
 * trusted changes with what each thread has measured, so a send time cannot be computed back from a validity.
 */
export class SlotPage {
  readonly memory: SharedArrayBuffer
  readonly #fields: BigInt64Array

  constructor(memory = new SharedArrayBuffer(SLOTS * FIELDS * 8)) {
    this.memory = memory
    this.#fields = new BigInt64Array(memory)
  }

  // Called by the main loop

  take(slot: number, { id, term }: Pick<HeldLease, 'id' | 'term'>): void {
    this.#set(slot, SENT, 0n)
    this.#set(slot, TERM, BigInt(term))
    this.#set(slot, WORKING, micros(Number.POSITIVE_INFINITY))
    this.#set(slot, LEASE, BigInt(id))
  }

  free(slot: number): void {
    this.#set(slot, LEASE, 0n)
  }

  setSent(slot: number, sent: number, term: number): void {
    this.#set(slot, TERM, BigInt(term))
    this.#set(slot, SENT, micros(sent))
  }

  setWorking(slot: number, until: number): void {
    this.#set(slot, WORKING, micros(until))
  }

  /** The last renewal of this lease by the worker. */
  lastRenewal(slot: number, lease: number): WorkerRenewal | undefined {
    for (let i = 0; i < TRIES; i++) {
      const writes = this.#get(slot, WRITES)
      if (this.#get(slot, RENEWED) !== BigInt(lease)) return undefined
      const now = millis(this.#get(slot, RENEWED_SENT))
      const uptime = millis(this.#get(slot, RENEWED_UPTIME))
      const term = Number(this.#get(slot, RENEWED_TERM))
      // Otherwise the worker may have written the slot for another lease while we read.
      if (writes % 2n === 0n && this.#get(slot, WRITES) === writes) return { now, uptime, term }
    }
    return undefined
  }

  // Called by the worker

  *slots(): Generator<LeaseSlot> {
    for (let slot = 0; slot < SLOTS; slot++) {
      const lease = Number(this.#get(slot, LEASE))
      if (lease === 0) continue
      const renewed = this.lastRenewal(slot, lease)
      const sent = millis(this.#get(slot, SENT))
      const last = renewed !== undefined && renewed.now > sent ? renewed : { now: sent, term: Number(this.#get(slot, TERM)) }
      yield { page: this, slot, lease, sent: last.now, term: last.term, working: millis(this.#get(slot, WORKING)) }
    }
  }

  /** Records a renewal by the worker that was answered. An earlier one that is answered late changes nothing. */
  renewed(slot: number, lease: number, { now, uptime, term }: WorkerRenewal): void {
    if ((this.lastRenewal(slot, lease)?.now ?? Number.NEGATIVE_INFINITY) >= now) return
    const writes = this.#get(slot, WRITES)
    this.#set(slot, WRITES, writes + 1n)
    this.#set(slot, RENEWED, BigInt(lease))
    this.#set(slot, RENEWED_SENT, micros(now))
    this.#set(slot, RENEWED_UPTIME, micros(uptime))
    this.#set(slot, RENEWED_TERM, BigInt(term))
    this.#set(slot, WRITES, writes + 2n)
  }

  #get(slot: number, field: number): bigint {
    return Atomics.load(this.#fields, slot * FIELDS + field)
  }

  #set(slot: number, field: number, value: bigint): void {
    Atomics.store(this.#fields, slot * FIELDS + field, value)
  }
}

/** Rounded down: a send time must never be rounded up. */
function micros(ms: number): bigint {
  return ms === Number.POSITIVE_INFINITY ? 2n ** 62n : BigInt(Math.floor(ms * 1_000))
}

function millis(micros: bigint): number {
  return Number(micros) / 1_000
}

/** When the main loop last turned. */
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

/** A message to the worker. */
export type WorkerMessage = { readonly page: SharedArrayBuffer } | { readonly shortest: number } | 'close' | 'exit'

/** A worker thread that runs a BackupRenewer. */
export interface RenewalThread extends AsyncDisposable {
  post(message: WorkerMessage): void
}

/** The main loop's side: records which leases are held, and that the loop turns. */
export class WorkerHeartbeat implements AsyncDisposable {
  readonly #clock: Clock
  readonly #thread: RenewalThread
  readonly #pulse: LoopPulse
  readonly #interval: number
  readonly #pages: SlotPage[] = []
  readonly #free: { readonly page: SlotPage; readonly slot: number }[] = []
  #shortest = Number.POSITIVE_INFINITY
  #cancel: (() => void) | undefined

  constructor(clock: Clock, thread: RenewalThread, pulse: LoopPulse, maxStall: number) {
    this.#clock = clock
    this.#thread = thread
    this.#pulse = pulse
    this.#interval = Math.min(1_000, maxStall / 8)
    this.#beat()
  }

  #beat(): void {
    this.#pulse.beat(this.#clock.now())
    this.#cancel = this.#clock.after(this.#interval, () => this.#beat())
  }

  /** From now on the worker renews the lease when the main loop is late. */
  keep(held: HeldLease): BackupRenewal {
    const { page, slot } = this.#free.pop() ?? this.#addPage()
    page.take(slot, held)
    if (held.term < this.#shortest) {
      this.#shortest = held.term
      this.#thread.post({ shortest: held.term })
    }
    return {
      last: () => page.lastRenewal(slot, held.id),
      renewed: () => page.setSent(slot, held.sent.now, held.term),
      progressed: () => page.setWorking(slot, held.lastProgress + held.maxStall),
      drop: () => {
        page.free(slot)
        this.#free.push({ page, slot })
      },
    }
  }

  #addPage(): { readonly page: SlotPage; readonly slot: number } {
    const page = new SlotPage()
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
