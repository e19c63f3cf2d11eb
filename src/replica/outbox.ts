/**
 * The outbox of a replica: proposals that wait to be written to the log. One append is under way at a time; the next record carries all proposals that
 * arrived meanwhile. An append whose answer was lost is sent again, byte for byte, until its fate is certain or this replica had to load a snapshot.
 * Callers get the truth within `timeout`: `UNKNOWN` while the fate of their record is uncertain, `UNAVAILABLE` when it was not sent.
 */
import { BACKOFF, pauseAfter } from '../backoff.ts'
import { afterReading, type Clock } from '../clock.ts'
import { type ErrorReason, LeaseError } from '../errors.ts'
import { type Applied, type Batch, BatchWriter, WINDOW } from '../kernel/codec/batch.ts'
import type { Command, Operation, Proposal } from '../kernel/command.ts'
import type { Outcome } from '../kernel/outcome.ts'
import { DurationHistogram } from '../lessor/duration-histogram.ts'
import type { Completion } from '../lessor.ts'
import type { Appended, Position, RenewalMark } from '../store.ts'
import { Backlog } from './backlog.ts'
import type { Lifetime } from './lifetime.ts'
import type { Log } from './log.ts'
import { isTransient, pauseUnless, within } from './retry.ts'

/**
 * A record takes no more proposals beyond this size, or this much work (kernel/work.ts). A record is applied, and its callers are answered, in one turn of the
 * event loop, and nothing else is done meanwhile.
 */
const RECORD_BYTES = 128 * 1_024
export const RECORD_WORK = 1_000

/** A proposal with its completion, in one object: there is one for every command. */
export interface OutboxItem extends Proposal {
  readonly command: Command
  readonly key: number
  readonly op: Operation | undefined
  completion: Completion
  /** Waits for the certain outcome, however long that takes. Other items fail with `UNKNOWN` after `timeout`. */
  readonly untilSettled: boolean
}

/** Of an item whose caller was answered already. */
const ANSWERED: Completion = { settle: () => {}, fail: () => {} }

/** A record on its way into the log. */
export interface InFlight {
  readonly seq: number
  readonly bytes: Uint8Array
  readonly batch: Batch<OutboxItem>
  /** It only renews leases, in a way that other processes need not know. */
  readonly renewal: RenewalMark | undefined
  /** This replica had loaded a snapshot instead of records this many times when the record was made. */
  readonly reloads: number
  /** When its callers are told that the store does not answer. */
  overdueAt: number
  /** A copy is being appended. */
  underWay: boolean
  /** The answer to an earlier copy was lost: that copy may be in the log. */
  lost: boolean
  settled: boolean
  /** Since when the store says why it cannot write. */
  failingSince?: number
}

/** The store gives these reasons when it cannot write, and will not by itself: callers are told after ANSWER_AFTER ms, not after `timeout`. */
const LASTING: ReadonlySet<ErrorReason | undefined> = new Set<ErrorReason>([
  ...(['full', 'readonly', 'io', 'disk', 'memory', 'permission', 'credentials', 'password', 'user'] as const),
])
const ANSWER_AFTER = 1_000

type RecordHeader = Parameters<BatchWriter['take']>[0]

/** The part of passing.ts that is used here. It uses the timekeeper, which writes here, and so cannot be imported. */
interface PassingRules {
  mark(proposals: readonly Proposal[]): RenewalMark | undefined
  prepare(mark: RenewalMark, batch: Batch): { readonly mark: RenewalMark; readonly answers: readonly Outcome[] } | undefined
  passed(index: number, batch: Batch): void
  read(index: number): void
}

export interface OutboxOptions {
  readonly clock: Clock
  /** A proposal that the store has not answered for this many ms fails with `UNKNOWN`. */
  readonly timeout: number
  readonly log: Log
  readonly lifetime: Lifetime
}

export class Outbox {
  readonly #clock: Clock
  readonly #timeout: number
  readonly #log: Log
  readonly #lifetime: Lifetime
  /** Of a log that is shared. */
  #passing: PassingRules | undefined
  /** Why nothing more is sent. */
  #closed: LeaseError | undefined
  #seq = 0
  #next = new BatchWriter<OutboxItem>()
  /** Proposals that the next record has no room for. */
  readonly #backlog = new Backlog<OutboxItem>()
  #flight: InFlight | undefined
  /** `#pump` is running, or will run in the next turn. */
  #pumping = false
  #cancelTimeout: (() => void) | undefined
  /** For metrics and tests. */
  readonly stats = { appends: 0, commands: 0, resent: 0, voided: 0 }
  /** Why the last append failed, and when. */
  storeError: { readonly error: LeaseError; readonly at: number } | undefined
  /** The rules that a new log begins with. Undefined: the newest that this process knows. */
  #firstRules: number | undefined
  /** The time that appends took. */
  readonly latency = new DurationHistogram()

  constructor({ clock, timeout, log, lifetime }: OutboxOptions) {
    this.#clock = clock
    this.#timeout = timeout
    this.#log = log
    this.#lifetime = lifetime
  }

  passWith(passing: PassingRules): void {
    this.#passing = passing
  }

  beginWith(rules: number): void {
    this.#firstRules = rules
  }

  /** Writes a command to the log, and resolves with what the log decided. */
  write(command: Command, key = 0, op?: Operation): Promise<Outcome> {
    return new Promise((settle, fail) => this.put({ command, key, op, completion: { settle, fail }, untilSettled: false }))
  }

  /**
   * Writes a command of the timekeeper. Calls `settled` with the outcome, or with undefined when it is certain that nothing was done: while a `due` can still
   * reach the log, its lease must not be renewed in memory. `key`: it must be written before a later command of this key.
   */
  writeUntilSettled(command: Command, settled: (outcome: Outcome | undefined) => void, key = 0): void {
    const completion = { settle: settled, fail: () => settled(undefined) }
    this.put({ command, key, op: undefined, completion, untilSettled: true })
  }

  put(item: OutboxItem): void {
    if (this.#closed !== undefined) return item.completion.fail(this.#closed)
    if (this.#next.bytes > RECORD_BYTES || this.#next.work >= RECORD_WORK) this.#backlog.add(item)
    else this.#next.add(item)
    if (this.#pumping) return
    // All proposals of this turn go into one record. (Starting earlier, in a turn longer than an append, was tried and gained nothing.)
    this.#pumping = true
    this.#clock.soon(this.#pump)
  }

  /** Sends one record after another, one in a turn: a store that answers within the turn would otherwise starve timers, sockets and snapshots. */
  readonly #pump = async (): Promise<void> => {
    this.#pumping = !this.#lifetime.isOver && this.#next.proposals.length > 0
    if (!this.#pumping) return
    try {
      const flight = this.#take()
      if (this.#backlog.size > 0) this.#refill()
      await this.#send(flight)
      this.#log.afterRecord()
      this.#clock.soon(this.#pump)
    } catch (error) {
      this.#lifetime.fail(error)
      this.#pumping = false
    }
  }

  #take(): InFlight {
    const seq = ++this.#seq
    const { proposer, state, stats } = this.#log
    const wall = Math.max(0, Math.floor(this.#clock.wall()))
    const renewal = this.#passing?.mark(this.#next.proposals)
    const header: RecordHeader = {
      ...{ proposer, seq, wall },
      applied: state.index,
      decisionHash: [state.decisionHashA, state.decisionHashB],
      ...(this.#firstRules !== undefined && { rules: this.#firstRules }),
    }
    const { bytes, batch } = this.#next.take(this.#passing === undefined ? header : this.#ofShared(header, renewal))
    this.stats.appends++
    this.stats.commands += batch.proposals.length
    this.#flight = {
      ...{ seq, bytes, batch, renewal, reloads: stats.reloads },
      overdueAt: this.#clock.now() + this.#timeout,
      ...{ underWay: false, lost: false, settled: false },
    }
    return this.#flight
  }

  /** The header of a record on a shared log: it may stand behind records that were not read here. */
  #ofShared(header: RecordHeader, renewal: RenewalMark | undefined): RecordHeader {
    const { index } = this.#log.end
    const unread = index > header.applied && ({ applied: index, decisionHash: [0, 0], unread: true } as const)
    return { ...header, ...unread, ...(renewal?.reads && { reads: true }) }
  }

  #refill(): void {
    while (this.#backlog.size > 0 && this.#next.bytes <= RECORD_BYTES && this.#next.work < RECORD_WORK) {
      const item = this.#backlog.take()
      try {
        this.#next.add(item)
      } catch (error) {
        item.completion.fail(error)
      }
    }
  }

  /** Appends the record until its fate is certain. Throws only errors that no further attempt can cure. */
  async #send(flight: InFlight): Promise<void> {
    if (this.#cancelTimeout === undefined) this.#armTimeout(this.#timeout)
    for (let failures = 0; ; failures++) {
      try {
        const inLog = await this.#append(flight)
        if (inLog && !flight.settled) this.#failSkipped(flight)
        if (inLog || flight.settled) return
      } catch (error) {
        if (!isTransient(error)) throw error
        if (this.#lifetime.isOver) return
        if (flight.settled) return // applied meanwhile: it was in the log
        if (flight.underWay) flight.lost = true // it is in the log; only the records before it could not be read
        if (!flight.lost) return this.#reject(flight, error)
        if (LASTING.has((error as LeaseError).reason)) {
          flight.failingSince ??= this.#clock.now()
          if (this.#clock.now() - flight.failingSince >= ANSWER_AFTER) this.#failUnknown(flight, error as LeaseError)
        }
      }
      await pauseUnless(this.#clock, pauseAfter(BACKOFF.store, failures), this.#lifetime.signal)
      if (this.#lifetime.isOver || flight.settled) return
      if (this.#log.stats.reloads > flight.reloads) return this.#replace(flight)
      this.stats.resent++
    }
  }

  /** One timer for all records: it is set again only when it fires, so that a record which is answered in time costs none. */
  #armTimeout(ms: number): void {
    this.#cancelTimeout = afterReading(this.#clock, ms, () => {
      this.#cancelTimeout = undefined
      const flight = this.#flight
      if (flight === undefined || flight.settled || this.#lifetime.isOver) return
      const left = flight.overdueAt - this.#clock.now()
      if (left <= 0) {
        flight.overdueAt += this.#timeout
        this.#failUnknown(flight)
      }
      this.#armTimeout(left > 0 ? left : this.#timeout)
    })
  }

  /** Appends a copy of the record, and applies it. Returns whether it is in the log. */
  async #append(flight: InFlight): Promise<boolean> {
    const { renewal, bytes, batch } = flight
    const prepared = renewal && this.#passing!.prepare(renewal, batch)
    const began = this.#clock.now()
    let appended: Appended
    flight.underWay = true
    try {
      appended = await this.#log.store.append(bytes, this.#log.end, prepared?.mark ?? renewal)
      this.storeError = undefined
      this.latency.add(this.#clock.now() - began)
      flight.underWay = 'position' in appended
    } catch (error) {
      flight.underWay = false
      if (error instanceof LeaseError) this.storeError = { error, at: this.#clock.now() }
      flight.lost ||= !(error instanceof LeaseError && error.code === 'UNAVAILABLE')
      throw error
    }
    if (appended.kind === 'passed' && prepared !== undefined && this.#passed(flight, appended.position, prepared.answers)) return true
    const inLog = await this.#log.applyAppended(bytes, batch, appended)
    if (inLog && renewal !== undefined) this.#passing!.read(this.#log.state.index)
    return inLog
  }

  /** Settles a record behind others that were not read. False: so many came before it that it has no effect. */
  #passed(flight: InFlight, position: Position, answers: readonly Outcome[]): boolean {
    const { batch, seq } = flight
    this.#log.passed.keep(position, seq, this.#log.state.index)
    if (position.index - batch.applied > WINDOW) return false
    this.#passing!.passed(position.index, batch)
    if (flight.settled) return true
    flight.settled = true
    for (const [i, { completion }] of batch.proposals.entries()) completion.settle(answers[i]!)
    return true
  }

  // Settling a record

  /** A record of this replica was applied. Returns whether it was the pending one. */
  seenInLog(seq: number, applied: Applied): boolean {
    const flight = this.#flight
    if (flight === undefined || flight.seq !== seq || flight.settled) return false
    flight.settled = true
    if (applied.kind === 'applied') {
      const { proposals } = flight.batch
      for (let i = 0; i < proposals.length; i++) proposals[i]!.completion.settle(applied.outcomes[i]!)
      return true
    }
    if (applied.kind === 'void') this.stats.voided++
    // An earlier copy may be among the skipped records, so old that its proposer was forgotten since.
    if (applied.kind === 'again' || (flight.lost && this.#log.stats.reloads > flight.reloads)) this.#failSkipped(flight)
    // The record was not applied, and a later copy of it would not be: propose its commands again in a new record.
    else this.#putAgain(flight)
    return true
  }

  /**
   * Settles a record that was made before this replica loaded a snapshot. No copy of it can be appended any more, because the log was trimmed at the
   * position that it was to follow. It must not be sent after another position: its header states what this replica had applied, and if the log has lost
   * some of that, the other replicas would stop with DIVERGED.
   */
  #replace(flight: InFlight): void {
    if (flight.lost) this.#failSkipped(flight)
    else this.#putAgain(flight)
  }

  /** The record is certainly not in the log: its proposals go into a new one. */
  #putAgain(flight: InFlight): void {
    flight.settled = true
    for (const item of flight.batch.proposals) this.put(item)
  }

  /** The record was applied, if at all, among the records that a snapshot replaced: its outcomes are not known here. */
  #failSkipped(flight: InFlight): void {
    this.#reject(flight, new LeaseError('UNKNOWN', 'this process fell too far behind to see how this was answered; it may have been done'))
  }

  #reject(flight: InFlight, error: unknown): void {
    flight.settled = true
    for (const { completion } of flight.batch.proposals) completion.fail(error)
  }

  /** Answers the callers after `timeout`, or with the error of the store. The pending record is still being sent; the proposals behind it never will be. */
  #failUnknown(flight: InFlight, cause?: LeaseError): void {
    const why = cause?.message ?? `no answer from the store for ${this.#timeout} ms`
    const more = cause && { cause, reason: cause.reason, facts: cause.facts }
    const unknown = new LeaseError(
      'UNKNOWN',
      `${why}: what was asked may or may not have been done; ask again with the same operation id`,
      more,
    )
    if (!flight.settled)
      for (const item of flight.batch.proposals) {
        if (item.untilSettled) continue
        const { completion } = item
        // Complete each once: by the time the outcome comes, its completion may have been reused for another call.
        item.completion = ANSWERED
        completion.fail(unknown)
      }
    const unsent = new LeaseError('UNAVAILABLE', `${why}: what was asked was not sent; ask again later`, more)
    for (const { completion } of this.#takeUnsent()) completion.fail(unsent)
  }

  #takeUnsent(): readonly OutboxItem[] {
    const unsent = [...this.#next.proposals, ...this.#backlog.takeAll()]
    this.#next = new BatchWriter()
    return unsent
  }

  // The end of the log, as callers of this replica see it

  /**
   * Resolves when all earlier proposals of this replica's callers are applied, and the log has been read to its present end. Throws `UNAVAILABLE` after
   * `timeout`: the store may never answer, and nothing that waits here was sent.
   */
  readToEnd(): Promise<void> {
    if (this.#log.owned && this.idle) return Promise.resolve()
    return within(this.#clock, this.#timeout, this.#reachTheEnd(), () => noAnswer(this.#timeout))
  }

  async #reachTheEnd(): Promise<void> {
    if (!this.#log.owned) {
      // Proposals of the timekeeper need not be settled: no caller waits for them, and the end of the log shows what became of them.
      await this.callersAnswered()
      this.#lifetime.assertOpen()
      return this.#log.toTheEnd()
    }
    const last = this.#seq
    await this.allSettled()
    this.#lifetime.assertOpen()
    // The end of an owner's log is what the owner wrote. While the fate of a record is unknown, so is the end.
    if (this.#flight?.settled === false && this.#flight.seq <= last)
      throw new LeaseError('UNAVAILABLE', 'the store has not answered yet, so the end of the log is not known; ask again')
  }

  /** Returns whether nothing waits and nothing is under way. */
  get idle(): boolean {
    return this.#next.proposals.length === 0 && this.#flight?.settled !== false
  }

  /** Resolves when all present items are settled. */
  allSettled(): Promise<void> {
    return this.#lastSettled(() => true)
  }

  /** Resolves when all present callers were answered, even with `UNKNOWN`. Proposals of the timekeeper may still be under way. */
  callersAnswered(): Promise<void> {
    return this.#lastSettled(({ untilSettled, completion }) => !untilSettled && completion !== ANSWERED)
  }

  /** The items of a record are settled in order, and those of one key in the backlog: when the last ones that count are settled, all of them are. */
  async #lastSettled(counts: (item: OutboxItem) => boolean): Promise<void> {
    const sent = this.#flight?.settled === false ? this.#flight.batch.proposals : []
    const waiting = this.#backlog.queues().map(queue => queue.findLast(counts))
    const lasts = waiting.some(last => last !== undefined) ? waiting : [this.#next.proposals.findLast(counts) ?? sent.findLast(counts)]
    await Promise.all(lasts.map(last => last && settled(last)))
  }

  /** Nothing more will be sent: all pending items fail. */
  close(error: LeaseError): void {
    this.#closed = error
    this.#cancelTimeout?.()
    if (this.#flight?.settled === false) {
      const { lost, underWay } = this.#flight
      // A copy may be in the log already.
      const unknown = new LeaseError('UNKNOWN', `the replica stopped while this was under way: ${error.message}`, { cause: error })
      this.#reject(this.#flight, lost || underWay ? unknown : error)
    }
    for (const { completion } of this.#takeUnsent()) completion.fail(error)
  }
}

function settled(item: OutboxItem): Promise<void> {
  return new Promise(resolve => {
    const { completion } = item
    item.completion = {
      settle: outcome => {
        completion.settle(outcome)
        resolve()
      },
      fail: error => {
        completion.fail(error)
        resolve()
      },
    }
  })
}

function noAnswer(timeout: number): LeaseError {
  return new LeaseError(
    'UNAVAILABLE',
    `no answer from the store for ${timeout} ms: the end of the log is not known, and nothing was sent; ask again`,
  )
}
