/**
 * The log as this replica knows it: the state after the last record that was applied, and the position of that record. It loads the newest snapshot, appends
 * and reads records, applies them, and keeps the recent events for watches. It decides nothing; it makes sure that all decisions rest on the log as it is, and
 * reports a log that lost records.
 */
import { BACKOFF, pauseAfter } from '../backoff.ts'
import type { Clock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import { type Applied, applyBatch, type Batch, decodeBatch, WINDOW } from '../kernel/codec/batch.ts'
import type { Generation } from '../kernel/command.ts'
import { EVENT_TYPES, type Event, type EventType } from '../kernel/event.ts'
import type { Outcome } from '../kernel/outcome.ts'
import type { Effects } from '../kernel/rule/effects.ts'
import { createState, type LeaseState, RULES, type Slot, type State } from '../kernel/state.ts'
import type { Appended, LogRecord, Position, Rejected, Snapshot, Store } from '../store.ts'
import { START } from '../store.ts'
import { ChangeListener, ChangeListeners } from './change-listeners.ts'
import { EndReader, readToEnd } from './end-reader.ts'
import type { Lifetime } from './lifetime.ts'
import { loadState } from './load-state.ts'
import { PassedRecords } from './passed-records.ts'
import { type EventFilter, RecentEvents } from './recent-events.ts'
import type { RecordTail } from './record-tail.ts'
import { RecordWindow } from './record-window.ts'
import { isTransient, pauseUnless } from './retry.ts'
import { unreadable } from './unreadable.ts'
import { encodeWitness, witnessOf } from './witness.ts'

/** The counters had come this far, and a holder may still trust a grant that was lost for this long. */
export type Survivor = Omit<Generation, 'kind'>

export interface ReplicaLogOptions {
  readonly clock: Clock
  readonly lifetime: Lifetime
  /** This replica is the only one that appends. */
  readonly owned: boolean
  /** Events kept for watches that resume. */
  readonly events: number
  /** The log may be read now and then only, and after this many ms at the latest. */
  readonly readEvery: number | undefined
}

/** The parts of a replica that follow its log. They use the log too, and so cannot be imported here: replica.ts connects them. */
export interface Followers {
  /** timekeeper.ts: counts the timers of the state. */
  readonly timekeeper: {
    load(state: State, age: number, advisoryAge: number): void
    readonly isReplaying: boolean
    entering(age: number, advisoryAge: number): void
    timer(lease: LeaseState | undefined, slot: Slot): void
    learnTogether(): void
    caughtUp(): void
    keepOwn(lease: number): void
  }
  /** wakes.ts */
  readonly wakes: { listenFor(state: State, lease: number): void; tell(events: readonly Event[], state: State): void }
  /** outbox.ts: answers the callers of a record of this replica. Returns whether it was waiting for it. */
  readonly outbox: { seenInLog(seq: number, applied: Applied): boolean }
  /** idle-mode.ts */
  readonly idleMode: { readonly isIdle: boolean }
  /** log-ticker.ts */
  readonly ticker: { readonly isIdle: boolean; tickWhileNeeded(): void }
  /** snapshotter.ts */
  readonly snapshotter: { readonly records: number; readonly bytes: number; takeWhenDue(): void }
}

interface RecordTotals {
  records: number
  bytes: number
}

/** For a clock that is slow, a timer that is late, and the read itself. */
const NOTICED = 1.25

export class Log {
  readonly store: Store
  readonly owned: boolean
  /** A number that no two proposers share. */
  readonly proposer: number
  readonly #clock: Clock
  readonly #lifetime: Lifetime
  readonly #keptEvents: number
  readonly #readEvery: number | undefined
  /** Replaced when a snapshot is loaded. Only this class does that. */
  state = createState()
  /** The last record that was applied. */
  position: Position = START
  readonly passed = new PassedRecords()
  #recent: RecentEvents
  /** Set by `connect`, as is `#effects`. */
  #followers!: Followers
  #effects!: Effects
  readonly #window = new RecordWindow()
  readonly #reader: EndReader
  #reloading: Promise<void> | undefined
  /** The record that ended a move into this log, while our state is not the one that was moved in: the snapshot must be loaded first. */
  #missedMove: number | undefined
  /** The last such record after which the snapshot was loaded. */
  #loadedMove: number | undefined
  /** Our index when it was loaded: records that were requested from there do not follow any more. */
  #loadedFrom = 0
  readonly #listeners = new ChangeListeners()
  /** Copies that continue with every record (record-tail.ts). */
  readonly tails = new Set<RecordTail>()
  /** The records applied since the last snapshot that this replica loaded, took, tried to take or found. `before`: those that an attempt has not replaced. */
  sinceSnapshot: RecordTotals & { before?: Readonly<RecordTotals> } = { records: 0, bytes: 0 }
  /** For metrics and tests. */
  readonly stats = { reloads: 0 }
  /** The events since this replica started, by type. */
  readonly eventCounts: Record<string, number> = Object.fromEntries(EVENT_TYPES.map(type => [type, 0]))

  constructor(store: Store, { clock, lifetime, owned, events, readEvery }: ReplicaLogOptions) {
    this.store = store
    this.owned = owned
    this.proposer = Number(clock.bits() >> 11n) || 1
    this.#clock = clock
    this.#lifetime = lifetime
    this.#keptEvents = events
    this.#readEvery = readEvery
    this.#recent = new RecentEvents(0, { limit: events })
    this.#reader = new EndReader(this, lifetime)
  }

  /** Called once, before `start`. */
  connect(followers: Followers): void {
    const { timekeeper } = followers
    this.#followers = followers
    this.#effects = { events: [], timer: timekeeper.timer.bind(timekeeper) }
  }

  /** The last record that is known to be in the log, read or not. */
  get end(): Position {
    return this.passed.last?.position ?? this.position
  }

  /** The place of this replica among the recent proposers, by their numbers: all replicas agree on the order. 0 goes first. */
  turn(): number {
    if (this.owned) return 0
    let before = 0
    for (const proposer of this.state.proposers.keys()) if (proposer < this.proposer && ++before === 8) break
    return before
  }

  /** Returns what this replica has seen, for the recovery of a log that lost records. */
  get survivor(): Survivor {
    const { nextLease, nextToken, nextKey, revision, longest, quiet } = this.state
    // A quiet period that still runs covers what other survivors saw. Lost records that this replica had not read may have given a longer term; in the time in which
    // every replica reads once, the process with that term has noticed the loss.
    const unread = this.#followers.idleMode.isIdle ? (this.#readEvery ?? 0) * NOTICED : 0
    return { lease: nextLease, token: nextToken, revision, quiet: Math.max(longest, quiet?.duration ?? 0, unread), key: nextKey }
  }

  /** The events after `revision` that pass `wanted`; undefined when they are no longer, or not yet, known here. */
  after(revision: number, wanted?: EventFilter): ReturnType<RecentEvents['after']> {
    return revision > this.state.revision ? undefined : this.#recent.after(revision, wanted)
  }

  /** Calls `each` for every lease, or 0, and entry that events after `revision` name. False when some of those events are no longer known here. */
  named(revision: number, each: (lease: number, key?: string) => void): boolean {
    const filter: EventFilter = ({ lease, key }) => {
      if (lease !== 0 || key !== undefined) each(lease, key)
      return false
    }
    return this.after(revision, filter) !== undefined
  }

  // Loading

  async start(snapshot: Snapshot | undefined): Promise<void> {
    if (snapshot !== undefined) await this.#load(snapshot)
    else this.#followers.timekeeper.load(this.state, 0, 0)
    await readToEnd(this)
    for (const type of EVENT_TYPES) this.eventCounts[type] = 0
  }

  async #load(snapshot: Snapshot): Promise<void> {
    let state: State
    try {
      state = await loadState(snapshot.bytes, this.#clock)
    } catch (error) {
      throw unreadable(error, `the snapshot at ${snapshot.position.index}`)
    }
    if (this.#missedMove === undefined) {
      if (state.index <= this.state.index) return // records arrived while it was read: we are past it
      const missing = missingRecord(state, this.state) ?? this.passed.missingFrom(state, this.proposer)
      if (missing !== undefined) throw this.#diverged(`the snapshot at ${state.index} was made without record ${missing}`)
    }
    for (const tail of this.tails) tail.fail('records were deleted before they were read here')
    this.#loadedFrom = this.state.index
    this.#loadedMove = this.#missedMove
    this.#missedMove = undefined
    this.state = state
    this.position = snapshot.position
    this.passed.reaches(state.index)
    this.#recent = new RecentEvents(this.state.revision, { limit: this.#keptEvents })
    this.#window.restart(this.state.index)
    this.#window.keep(this.state, this.position.nonce)
    this.#followers.timekeeper.load(this.state, snapshot.age, this.#clock.wall() - this.state.wall)
    this.sinceSnapshot = { records: 0, bytes: 0 }
  }

  /** Loads the newest snapshot: the records after our position are no longer kept. */
  #reload(): Promise<void> {
    this.#reloading ??= (async () => {
      try {
        const snapshot = await this.store.newest()
        if (snapshot === undefined) throw new LeaseError('DIVERGED', 'records are gone from the log and there is no snapshot of them')
        if (snapshot.position.index <= this.state.index && this.#missedMove === undefined) return
        this.stats.reloads++
        await this.#load(snapshot)
        this.#followers.timekeeper.caughtUp()
        this.wake()
      } finally {
        this.#reloading = undefined
      }
    })()
    return this.#reloading
  }

  // Applying

  /** Applies the next records. Returns whether there were any. */
  async readOn(wait?: AbortSignal): Promise<boolean> {
    if (this.#missedMove !== undefined) {
      await this.#reload()
      return true
    }
    const { index } = this.end
    const read = await this.store.read(this.position, wait === undefined || index > this.state.index ? {} : { wait })
    if (read.kind !== 'records') return this.#onRejected(read)
    this.#applyAll(read.records)
    if (read.records.length === 0 && this.state.index < index) throw this.#diverged(`it ends before ${index}, which was acknowledged`)
    return read.records.length > 0
  }

  /** Reads to an acknowledged record. A log that ends before it has lost it. */
  async #readUpTo({ index, nonce }: Position): Promise<void> {
    while (this.state.index < index)
      if (!(await this.readOn()) && this.state.index < index) throw this.#diverged(`it ends before ${index}, which was acknowledged`)
    if (this.position.index === index && this.position.nonce !== nonce) throw this.#diverged(`another record is at ${index}`)
  }

  /** Applies the answer to an append of this replica. Returns whether its record is in the log. */
  async applyAppended(bytes: Uint8Array, batch: Batch, appended: Appended): Promise<boolean> {
    if (!('position' in appended)) {
      await this.#onRejected(appended)
      return false
    }
    const { position } = appended
    if (appended.kind === 'appended' && appended.missed.length > 0 && appended.missed[0]!.position.index <= this.state.index + 1)
      this.#applyAll(appended.missed)
    if (appended.kind === 'appended' && this.state.index === position.index - 1) this.#apply({ position, bytes, age: 0 }, batch)
    else await this.#readUpTo(position)
    return true
  }

  async #onRejected(what: Rejected): Promise<true> {
    if (what.kind === 'trimmed') {
      await this.#reload()
      return true
    }
    if (what.kind === 'disowned')
      throw new LeaseError('UNAVAILABLE', `${what.by} has taken over the log: this process owns it no longer`, {
        facts: { owner: what.by },
      })
    throw this.#diverged(what.reason)
  }

  #diverged(reason: string): LeaseError {
    return new LeaseError('DIVERGED', `the log lost records that this process had seen: ${reason}; nothing can be decided on it`, {
      facts: { ...this.survivor },
    })
  }

  #applyAll(records: readonly LogRecord[]): void {
    for (const record of records) {
      const { index, nonce } = record.position
      if (this.#missedMove !== undefined || (index > this.state.index + 1 && index <= this.#loadedFrom + 1)) return
      if (index > this.state.index) this.#apply(record)
      // The records were requested from an earlier position, so the store could not compare our newest nonce. Without this check, records requested
      // while the log lost its tail would be applied on top of the lost ones, and no check could find that later.
      else if (index === this.position.index && nonce !== this.position.nonce) throw this.#diverged(`another record is at ${index}`)
    }
  }

  /** `own`: the batch that was encoded into these bytes, if this replica wrote them. */
  #apply({ position, bytes, age, advisoryAge }: LogRecord, own?: Batch): void {
    let batch: Batch
    try {
      batch = own ?? decodeBatch(bytes)
    } catch (error) {
      throw unreadable(error, `record ${position.index}`)
    }
    if (this.passed.last !== undefined && !this.passed.meets(position)) throw this.#diverged(`another record is at ${position.index}`)
    if (batch.reads) this.passed.noteReader(batch, position.index, this.proposer)
    if (batch.proposer !== this.proposer && !this.#sameDecisionHash(batch, position.index)) {
      this.#missedMove = position.index
      return
    }
    const { awaiting, revision: before } = this.state
    const { timekeeper } = this.#followers
    timekeeper.entering(age, timekeeper.isReplaying ? (advisoryAge ?? this.#clock.wall() - batch.wall) : 0)
    const { events } = this.#effects
    const applied = applyBatch(this.state, position.index, batch, this.#effects)
    if (applied.kind === 'applied') for (const tail of this.tails) tail.add(bytes)
    const isOwn = batch.proposer === this.proposer
    if (events.length > 0) {
      if (isOwn && this.store.waker !== undefined && !timekeeper.isReplaying) this.#followers.wakes.tell(events, this.state)
      this.#recent.push(events)
      for (const { type } of events) this.eventCounts[type]!++
      this.#listeners.offer(events, before)
      // Once for the whole record: an array that is emptied loses its capacity.
      events.length = 0
    }
    this.position = position
    this.#window.keep(this.state, position.nonce)
    // Replicas that had not loaded the moved leases may have reported other decision hashes before this record.
    if (awaiting && !this.state.awaiting) this.#window.forgetHashesBefore(position.index)
    this.sinceSnapshot.records++
    this.sinceSnapshot.bytes += bytes.length
    if (this.state.rules > RULES)
      throw new LeaseError(
        'UNSUPPORTED',
        `the log has been raised to rules version ${this.state.rules}, this process knows ${RULES}: upgrade it`,
      )
    // Before the callers are answered: they rely on this record from then on.
    if (this.owned && !timekeeper.isReplaying) this.store.witness?.write(encodeWitness(witnessOf(this.state, position)))
    if (isOwn && this.#readEvery !== undefined && applied.kind === 'applied') this.#keepOwn(batch, applied.outcomes)
    const answered = isOwn && this.#followers.outbox.seenInLog(batch.seq, applied)
    if (!answered && own === undefined) timekeeper.learnTogether()
  }

  /** A replica that reads the log now and then sets timers for the leases of its own process. */
  #keepOwn({ proposals }: Batch, outcomes: readonly Outcome[]): void {
    const { timekeeper, wakes } = this.#followers
    const keep = (lease: number) => {
      timekeeper.keepOwn(lease)
      wakes.listenFor(this.state, lease)
    }
    for (const [i, outcome] of outcomes.entries()) {
      const { command } = proposals[i]!
      if (outcome.kind === 'granted' || outcome.kind === 'queued') keep(outcome.lease)
      else if (outcome.kind === 'renewed' && command.kind === 'renew')
        for (const [j, lease] of command.leases.entries()) if (outcome.ttls[j]! > 0) keep(lease)
    }
  }

  /** The nonce of a record, if it is among the last that were applied here. */
  recordAt(index: number): bigint | undefined {
    return this.#window.nonceOf(index)
  }

  /**
   * Compares our decision hash with that of the record's proposer. Two replicas that applied the same records and differ: one of them is faulty, and it is
   * unknown which. The exception: leases were moved into the log while we had it open. They came as a snapshot, nothing was decided since, and the
   * record that ends the move is the first to differ. False: load that snapshot.
   */
  #sameDecisionHash({ applied, decisionHash, unread, proposals }: Batch, index: number): boolean {
    const { awaiting } = this.state
    if (unread || !this.#window.differs(applied, decisionHash)) return true
    if (awaiting && !proposals.some(({ command }) => command.kind === 'move' && command.into === 'end')) return true
    if (awaiting && this.#loadedMove !== index) return false
    const message = `record ${index} was proposed by a replica that decided otherwise up to record ${applied}: compare versions`
    throw new LeaseError('DIVERGED', message, { reason: 'disagreement', facts: { ...this.survivor } })
  }

  /** Called after every record, and after several that were read together. */
  afterRecord(): void {
    const { ticker, snapshotter } = this.#followers
    const { counts, pools, flaps, upkeep } = this.state
    if (!ticker.isIdle || counts.waiting + pools.size + flaps.size + upkeep.size > 0) ticker.tickWhileNeeded()
    const { records, bytes } = this.sinceSnapshot
    if (records >= snapshotter.records || bytes >= snapshotter.bytes) snapshotter.takeWhenDue()
  }

  /** Reads what other replicas append, until `signal` fires. Calls `read` after each read. */
  async follow(signal: AbortSignal, read: () => void): Promise<void> {
    let failures = 0
    while (!this.#lifetime.isClosing && !signal.aborted) {
      try {
        await this.readOn(signal)
        failures = 0
        this.afterRecord()
        read()
      } catch (error) {
        // Check the signals too: the error that stopped the replica may look transient, and the signal that would end the pause has fired already.
        if (this.#lifetime.isClosing || this.#lifetime.isOver || signal.aborted) return
        if (!isTransient(error)) return this.#lifetime.fail(error)
        await pauseUnless(this.#clock, pauseAfter(BACKOFF.store, failures++), signal)
      }
    }
  }

  // The end of the log, and changes

  /** Reads to the end of the log. */
  toTheEnd(): Promise<void> {
    return this.#reader.toTheEnd()
  }

  /** Reads to about the present end, with one read if possible. */
  toThePresent(): Promise<void> {
    return this.#reader.toThePresent()
  }

  /** A listener for one watch of the names under `root`, until `signal` fires or this replica closes. It adds its abort listeners once, not for every change. */
  changes(signal: AbortSignal, root: string, wanted?: EventFilter, types?: readonly EventType[]): ChangeListener {
    const listener = new ChangeListener(root, wanted, types && new Set(types), () => {
      this.#listeners.delete(listener)
      for (const over of [signal, closing]) over.removeEventListener('abort', wake)
    })
    const wake = () => listener.wake()
    const { signal: closing } = this.#lifetime
    for (const over of [signal, closing]) over.addEventListener('abort', wake, { once: true })
    this.#listeners.add(listener)
    if (signal.aborted || closing.aborted) wake()
    return listener
  }

  wake(): void {
    this.#listeners.wake()
  }
}

/**
 * The index of a record that we have applied and that a later snapshot does not contain. No position reveals this to a replica that was cut off while the
 * log lost its tail, and until the records after it were trimmed. But both states know the last record of each proposer, unless it is older than
 * WINDOW records.
 */
export function missingRecord(snapshot: State, { proposers }: State): number | undefined {
  for (const [proposer, { seq, index }] of proposers) {
    const there = snapshot.proposers.get(proposer)
    const lost = there === undefined ? snapshot.index - index <= WINDOW : there.seq < seq || (there.seq === seq && there.index !== index)
    if (lost) return index
  }
  return undefined
}
