/**
 * What waits to be written. One append is under way at a time and carries everything that piled up meanwhile. An append whose answer was
 * lost is sent again byte for byte, until it is certain what became of it; whoever waits is told the truth, and never waits for ever.
 */
import { afterReading, type Clock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import { type Applied, type Batch, BatchWriter, type Header } from '../kernel/codec/batch.ts'
import type { Proposal } from '../kernel/command.ts'
import type { Completion } from '../lessor.ts'
import type { Appended } from '../store.ts'
import { isTransient, pauseUnless } from './retry.ts'

/** An entry is at most so large: etcd takes 1.5 MiB, and a smaller one is durable sooner. */
const ENTRY_BYTES = 512 * 1_024
const RETRY_FIRST = 10
const RETRY_LAST = 1_000
/** Upper bounds in ms of what `took` counts. */
const BOUNDS = [0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 5_000, Number.POSITIVE_INFINITY] as const

export interface OutboxItem {
  readonly proposal: Proposal
  readonly told: Completion
  /** Wants to know what became of it, however long that takes. */
  readonly patient: boolean
}

const NOBODY: Completion = { settle: () => {}, fail: () => {} }

/** An entry on its way into the log. */
export interface InFlight {
  readonly seq: number
  readonly bytes: Uint8Array
  readonly batch: Batch
  readonly waiting: OutboxItem[]
  /** How often the log had been skipped through by a snapshot when this was made. */
  readonly reloads: number
  /** A copy is on its way. */
  underWay: boolean
  /** What became of an earlier copy was never told: it may be in the log. */
  lost: boolean
  settled: boolean
}

export interface OutboxOptions {
  readonly clock: Clock
  readonly timeout: number
  /** A number that no two proposers share. */
  readonly proposer: number
  readonly closing: AbortSignal
  /** What has been applied here, for the head of an entry. */
  readonly applied: () => Pick<Header, 'applied' | 'trail'>
  /** How often a snapshot made us skip entries. */
  readonly reloads: () => number
  readonly append: (bytes: Uint8Array) => Promise<Appended>
  /** Applies what an append brought. Whether the entry has been dealt with; else it is sent again. */
  readonly arrived: (flight: InFlight, appended: Appended) => Promise<boolean>
  /** After each entry. */
  readonly after: () => void
  /** Nothing more can be written. */
  readonly broken: (error: unknown) => void
}

export class Outbox {
  readonly #options: OutboxOptions
  readonly #clock: Clock
  readonly #closing: AbortSignal
  #seq = 0
  #next = new BatchWriter()
  #nextWaiting: OutboxItem[] = []
  /** Full batches that wait behind the one under way. */
  readonly #backlog: { readonly writer: BatchWriter; readonly waiting: OutboxItem[] }[] = []
  #flight: InFlight | undefined
  #pumping = false
  #pumpSoon = false
  /** For metrics and tests. */
  readonly stats = { appends: 0, commands: 0, resent: 0, voided: 0 }
  /** The last append failed with this, and when. */
  trouble: { readonly error: LeaseError; readonly at: number } | undefined
  /** How many appends were acknowledged within each bound and not within the one before, and how many ms all of them took. */
  readonly took = { within: BOUNDS.map(bound => [bound, 0] as [bound: number, count: number]), ms: 0 }

  constructor(options: OutboxOptions) {
    this.#options = options
    this.#clock = options.clock
    this.#closing = options.closing
  }

  /** The number of the last entry that was made. */
  get lastSeq(): number {
    return this.#seq
  }

  /** Whether an entry made up to `seq` has not been dealt with. */
  undecided(seq: number): boolean {
    return this.#flight?.settled === false && this.#flight.seq <= seq
  }

  put(waiting: OutboxItem): void {
    if (this.#closing.aborted) return waiting.told.fail(this.#closing.reason)
    if (this.#next.bytes > ENTRY_BYTES) {
      this.#backlog.push({ writer: this.#next, waiting: this.#nextWaiting })
      this.#next = new BatchWriter()
      this.#nextWaiting = []
    }
    this.#next.add(waiting.proposal)
    this.#nextWaiting.push(waiting)
    if (this.#pumping || this.#pumpSoon) return
    // Everything asked for within this turn goes into one entry. (To begin earlier, in a turn longer than an append, was tried: it gained nothing.)
    this.#pumpSoon = true
    this.#clock.soon(() => {
      this.#pumpSoon = false
      void this.#pump()
    })
  }

  async #pump(): Promise<void> {
    if (this.#pumping) return
    this.#pumping = true
    try {
      while (this.#nextWaiting.length > 0 || this.#backlog.length > 0) {
        if (this.#closing.aborted) return
        await this.#send(this.#take())
        this.#options.after()
        // A store that answers within the turn would otherwise keep everyone else from running: timers, sockets, snapshots.
        await new Promise<void>(resolve => this.#clock.soon(resolve))
      }
    } catch (error) {
      this.#options.broken(error)
    } finally {
      this.#pumping = false
    }
  }

  #take(): InFlight {
    const { writer, waiting } = this.#backlog.shift() ?? { writer: this.#next, waiting: this.#nextWaiting }
    if (writer === this.#next) {
      this.#next = new BatchWriter()
      this.#nextWaiting = []
    }
    const seq = ++this.#seq
    const { proposer, applied, reloads } = this.#options
    const wall = Math.max(0, Math.floor(this.#clock.wall()))
    const { bytes, batch } = writer.take({ proposer, seq, ...applied(), wall })
    this.stats.appends++
    this.stats.commands += waiting.length
    this.#flight = { seq, bytes, batch, waiting, reloads: reloads(), underWay: false, lost: false, settled: false }
    return this.#flight
  }

  /** Appends until it is certain what became of it. Throws only what no further attempt can cure. */
  async #send(flight: InFlight): Promise<void> {
    let pause = RETRY_FIRST
    let impatient = () => {}
    const wait = () => {
      impatient = afterReading(this.#clock, this.#options.timeout, () => {
        this.#tellUnknown(flight)
        wait()
      })
    }
    wait()
    try {
      for (;;) {
        try {
          if (await this.#options.arrived(flight, await this.#append(flight))) return
        } catch (error) {
          if (!isTransient(error)) throw error
          if (this.#closing.aborted) return
          if (flight.settled) return // seen in the log meanwhile: it was there
          if (flight.underWay) flight.lost = true // it stands in the log: only what came before it could not be read
          if (!flight.lost) return this.#reject(flight, error)
        }
        await pauseUnless(this.#clock, pause, this.#closing)
        if (this.#closing.aborted || flight.settled) return
        pause = Math.min(pause * 2, RETRY_LAST)
        this.stats.resent++
      }
    } finally {
      impatient()
    }
  }

  async #append(flight: InFlight): Promise<Appended> {
    flight.underWay = true
    const began = this.#clock.now()
    try {
      const appended = await this.#options.append(flight.bytes)
      this.trouble = undefined
      this.#count(this.#clock.now() - began)
      flight.underWay = appended.kind === 'appended' || appended.kind === 'behind'
      return appended
    } catch (error) {
      flight.underWay = false
      if (error instanceof LeaseError) this.trouble = { error, at: this.#clock.now() }
      flight.lost ||= !(error instanceof LeaseError && error.code === 'UNAVAILABLE')
      throw error
    }
  }

  #count(ms: number): void {
    this.took.ms += ms
    for (const bucket of this.took.within)
      if (ms <= bucket[0]) {
        bucket[1]++
        return
      }
  }

  // What became of an entry

  /** An entry of ours was applied. Whether it was the one that is waited for. */
  seenInLog(seq: number, applied: Applied): boolean {
    const flight = this.#flight
    if (flight === undefined || flight.seq !== seq || flight.settled) return false
    flight.settled = true
    if (applied.kind === 'applied') {
      for (let i = 0; i < flight.waiting.length; i++) flight.waiting[i]!.told.settle(applied.outcomes[i]!)
      return true
    }
    if (applied.kind === 'void') this.stats.voided++
    // An earlier copy may have been done in what was skipped, so long ago that its proposer was forgotten since.
    if (applied.kind === 'again' || (flight.lost && this.#options.reloads() > flight.reloads)) this.tellSkipped(flight)
    // Certainly not done, and too late to be. It goes into a new entry.
    else for (const waiting of flight.waiting) this.put(waiting)
    return true
  }

  /** It was applied, if it was, within what a snapshot made us skip: how it was answered is not known here. */
  tellSkipped(flight: InFlight): void {
    this.#reject(flight, new LeaseError('UNKNOWN', 'this process fell too far behind to see how this was answered; it may have been done'))
  }

  #reject(flight: InFlight, error: unknown): void {
    flight.settled = true
    for (const { told } of flight.waiting) told.fail(error)
  }

  /**
   * Nobody waits for ever: after so long, the truth is that it is not known. The entry itself is still being sent; what waits behind it
   * never is.
   */
  #tellUnknown(flight: InFlight): void {
    const silence = `no answer from the store for ${this.#options.timeout} ms`
    const unknown = new LeaseError(
      'UNKNOWN',
      `${silence}: what was asked may or may not have been done; ask again with the same operation id`,
    )
    if (!flight.settled)
      for (const [i, waiting] of flight.waiting.entries()) {
        if (waiting.patient) continue
        // Each is told once: where it waited, another may wait by the time the answer comes.
        flight.waiting[i] = { ...waiting, told: NOBODY }
        waiting.told.fail(unknown)
      }
    const unsent = new LeaseError('UNAVAILABLE', `${silence}: what was asked was not sent; ask again later`)
    for (const { told } of this.#takeUnsent()) told.fail(unsent)
  }

  #takeUnsent(): readonly OutboxItem[] {
    const unsent = [...this.#backlog.splice(0).flatMap(({ waiting }) => waiting), ...this.#nextWaiting]
    this.#next = new BatchWriter()
    this.#nextWaiting = []
    return unsent
  }

  /** Nothing waits, and nothing is under way. */
  get idle(): boolean {
    return this.#nextWaiting.length === 0 && this.#backlog.length === 0 && this.#flight?.settled !== false
  }

  /** Everything that was put here so far has been settled. */
  allSettled(): Promise<void> {
    return this.#lastSettled(() => true)
  }

  /** Every caller that waits here now has been answered, be it with `UNKNOWN`. What the timekeeper proposed may still be under way. */
  answered(): Promise<void> {
    return this.#lastSettled(({ patient, told }) => !patient && told !== NOBODY)
  }

  /** What was put here is settled in that order: when the last of those that count is, all of them are. */
  async #lastSettled(counts: (waiting: OutboxItem) => boolean): Promise<void> {
    const sent = this.#flight?.settled === false ? this.#flight.waiting : []
    const queued = [this.#nextWaiting, ...this.#backlog.map(({ waiting }) => waiting).reverse(), sent]
    const waiting = queued.find(some => some.some(counts))
    const place = waiting?.findLastIndex(counts)
    if (waiting === undefined || place === undefined) return
    const last = waiting[place]!
    await new Promise<void>(resolve => {
      const { told } = last
      waiting[place] = {
        ...last,
        told: {
          settle: outcome => {
            told.settle(outcome)
            resolve()
          },
          fail: error => {
            told.fail(error)
            resolve()
          },
        },
      }
    })
  }

  /** Nothing more will be sent: everyone who waits is told why. */
  close(error: LeaseError): void {
    if (this.#flight?.settled === false) {
      const { lost, underWay } = this.#flight
      // A copy may be in the log already.
      const unknown = new LeaseError('UNKNOWN', `the replica stopped while this was under way: ${error.message}`, { cause: error })
      this.#reject(this.#flight, lost || underWay ? unknown : error)
    }
    for (const { told } of this.#takeUnsent()) told.fail(error)
  }
}
