/**
 * A replica: a kernel that follows one store, and the Lessor of this process or of a server's clients.
 *
 * The parts of this folder: the follower reads the log and applies it, the outbox writes to it, the timekeeper counts timers and proposes what is due,
 * the snapshotter shortens the log. Proposals decides what need not be written. Callers get an answer once its record is durable and applied.
 */
import { setMaxListeners } from 'node:events'
import { type Clock, systemClock, unlessAborted, whenAborted } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import { stateHash } from '../kernel/codec/snapshot.ts'
import type { Command } from '../kernel/command.ts'
import type { Event } from '../kernel/event.ts'
import type { Outcome } from '../kernel/outcome.ts'
import { movedAway } from '../kernel/rule/move.ts'
import type { State } from '../kernel/state.ts'
import { complete } from '../lessor/complete.ts'
import type { Completion, Lessor, ProposeOptions, Query, ReadOptions, View, WatchOptions } from '../lessor.ts'
import { refusedError } from '../refused-error.ts'
import type { Profile, Store } from '../store.ts'
import { backupBytes } from './backup.ts'
import { Follower, type Survivor } from './follower.ts'
import { ListPages } from './list-pages.ts'
import { ListReader } from './lists.ts'
import { LogTicker } from './log-ticker.ts'
import { Outbox, OutboxItem } from './outbox.ts'
import { Proposals } from './proposals.ts'
import { isTransient, pauseUnless, RETRY_FIRST, RETRY_LAST, within } from './retry.ts'
import { RewindDetector } from './rewind-detector.ts'
import { beginRun } from './run.ts'
import { Snapshotter } from './snapshotter.ts'
import { Timekeeper } from './timekeeper.ts'
import { type Remaining, view } from './view.ts'
import { watchEvents } from './watch.ts'

export type { Survivor } from './follower.ts'

export interface ReplicaOptions {
  readonly clock?: Clock
  /** The store was opened as its owner: renewals may be kept in memory. */
  readonly owned?: boolean
  /** What a survivor of a log that lost records had seen: the replica begins a new generation above it. */
  readonly survivor?: Survivor
  /** A proposal that the store has not answered for this many ms fails with `UNKNOWN`. It may still be carried out. */
  readonly timeout?: number
  /** A snapshot is taken after this many records, or this many bytes of records. */
  readonly snapshotRecords?: number
  readonly snapshotBytes?: number
  /** Events kept for watches that resume. */
  readonly events?: number
}

export class Replica implements Lessor {
  readonly #store: Store
  readonly #clock: Clock
  readonly #owned: boolean
  readonly #timeout: number
  readonly #closing = new AbortController()
  readonly #proposer: number
  readonly #follower: Follower
  readonly #outbox: Outbox
  readonly #timekeeper: Timekeeper
  readonly #proposals: Proposals
  readonly #snapshotter: Snapshotter
  readonly #ticker: LogTicker
  readonly #rewinds: RewindDetector
  readonly #lists: ListReader
  readonly page: NonNullable<Lessor['page']>
  #tailing: Promise<void> | undefined
  #closed = false
  #failed = false

  private constructor(store: Store, options: ReplicaOptions) {
    const { clock = systemClock, owned = false, timeout = 30_000, events = 100_000 } = options
    const { snapshotRecords = 10_000, snapshotBytes = 8 << 20 } = options
    const closing = this.#closing.signal
    setMaxListeners(0, closing) // every watch and every pause listens to it
    const broken = (error: unknown) => this.#fail(error)
    const state = () => this.#state
    const turn = () => this.#turn()
    const readToEnd = () => this.#readToEnd()
    this.#store = store
    this.#clock = clock
    this.#owned = owned
    this.#timeout = timeout
    const proposer = Number(clock.bits() >> 11n) || 1
    this.#proposer = proposer
    this.#follower = new Follower(store, {
      ...{ clock, proposer, closing, events, broken },
      timekeeper: () => this.#timekeeper,
      ownApplied: (seq, applied) => this.#outbox.seenInLog(seq, applied),
    })
    this.#outbox = new Outbox({
      ...{ clock, timeout, proposer, closing, broken },
      applied: () => ({ applied: this.#state.index, decisionHash: [this.#state.decisionHashA, this.#state.decisionHashB] }),
      reloads: () => this.#follower.stats.reloads,
      append: bytes => store.append(bytes, this.#follower.position),
      apply: ({ bytes, batch }, appended) => this.#follower.applyAppended(bytes, batch, appended),
      afterRecord: () => this.#afterRecord(),
    })
    this.#timekeeper = new Timekeeper(this.#state, {
      clock,
      // Only a certain outcome settles it: while a `due` can still reach the log, its lease must not be renewed in memory.
      propose: (command, settled) =>
        this.#outbox.put(new OutboxItem(command, 0, undefined, { settle: settled, fail: () => settled(undefined) }, true)),
      drain: () => this.#drain(),
      turn,
    })
    this.#proposals = new Proposals({ owned, state, outbox: this.#outbox, timekeeper: this.#timekeeper, readToEnd })
    this.#snapshotter = new Snapshotter(store, {
      ...{ clock, follower: this.#follower, closing, turn, broken },
      ...{ records: snapshotRecords, bytes: snapshotBytes },
    })
    this.#ticker = new LogTicker({ clock, state, turn, propose: command => this.#write(command) })
    this.#rewinds = new RewindDetector({ follower: this.#follower, owned, readToEnd, propose: command => this.#write(command) })
    const remaining: Remaining = lease => this.#timekeeper.remaining(lease)
    this.#lists = new ListReader({ clock, state, remaining, named: (after, each) => this.#follower.named(after, each) })
    this.page = new ListPages({ clock, state, remaining, lists: this.#lists, check: () => this.#mustBeReadable() }).page
  }

  /** Reads the log and begins to take part. The replica owns the store from then on, and disposes of it. */
  static async open(store: Store, options: ReplicaOptions = {}): Promise<Replica> {
    const replica = new Replica(store, options)
    try {
      await replica.#start(options.survivor)
      return replica
    } catch (error) {
      replica.#fail(error)
      await store[Symbol.asyncDispose]()
      throw error
    }
  }

  get #state(): State {
    return this.#follower.state
  }

  get profile(): Profile {
    return this.#store.profile
  }

  get signal(): AbortSignal {
    return this.#closing.signal
  }

  /** Why the last append failed, and when; undefined as soon as one has succeeded. */
  get storeError(): { readonly error: LeaseError; readonly at: number } | undefined {
    return this.#outbox.storeError
  }

  get revision(): number {
    return this.#state.revision
  }

  get index(): number {
    return this.#state.index
  }

  /** What this replica has seen, for the recovery of a log that lost records. */
  get survivor(): Survivor {
    return this.#follower.survivor
  }

  /** Equal on every replica that has applied the same records. Costs a walk over the whole state. */
  hash(): string {
    return stateHash(this.#state)
  }

  /** For metrics and tests. */
  get stats(): Outbox['stats'] & Follower['stats'] & Snapshotter['stats'] & Proposals['stats'] & { readonly rewinds: number } {
    const { stats: proposals } = this.#proposals
    return { ...this.#outbox.stats, ...this.#snapshotter.stats, ...this.#follower.stats, ...proposals, rewinds: this.#rewinds.rewinds }
  }

  /** For metrics and tests: how late proposals were, and for how long this process stood still. */
  get timing(): Timekeeper['stats'] {
    return this.#timekeeper.stats
  }

  /** All counters, by name, for metrics. */
  get figures(): Readonly<Record<string, number>> {
    const { within, ms } = this.#outbox.latency
    const { index, revision } = this.#state
    return {
      ...this.stats,
      ...this.timing,
      index,
      appliedRevision: revision,
      ...Object.fromEntries(Object.entries(this.#follower.eventCounts).map(([type, count]) => [`events.${type}`, count])),
      ...Object.fromEntries(within.map(([bound, count]) => [`commit.le.${bound === Number.POSITIVE_INFINITY ? 'inf' : bound}`, count])),
      'commit.ms': ms,
    }
  }

  async #start(survivor: Survivor | undefined): Promise<void> {
    const { snapshot } = await this.#store.open()
    const { ended } = this.#store
    if (ended !== undefined) whenAborted(ended, () => this.#fail(ended.reason))
    await this.#follower.start(snapshot)
    this.#timekeeper.learnTogether()
    if (this.#owned || this.#state.run.owned) {
      const commands = beginRun(this.#state, { clock: this.#clock, owned: this.#owned, ms: this.#timekeeper.runSoFar() })
      await Promise.all(commands.map(command => this.#write(command)))
      if (this.#owned) this.#timekeeper.ownRunBegan()
    }
    if (survivor !== undefined) await this.#write({ kind: 'generation', ...survivor })
    // Nothing may be proposed as due before this: a renewal may have been among the lost records.
    this.#timekeeper.caughtUp()
    this.#ticker.tickWhileNeeded()
    if (this.#owned) return
    this.#timekeeper.judgeFound()
    this.#tailing = this.#tail()
  }

  async #tail(): Promise<void> {
    let pause = RETRY_FIRST
    while (!this.#closed) {
      try {
        await this.#follower.readOn(this.#closing.signal)
        pause = RETRY_FIRST
        this.#afterRecord()
      } catch (error) {
        // Check the signal too: the error that stopped the replica may look transient, and the signal that would end the pause has fired already.
        if (this.#closed || this.#closing.signal.aborted) return
        if (!isTransient(error)) return this.#fail(error)
        await pauseUnless(this.#clock, pause, this.#closing.signal)
        pause = Math.min(pause * 2, RETRY_LAST)
      }
    }
  }

  /** Reads all pending input: the sockets of this process, and the log. */
  async #drain(): Promise<void> {
    // One turn for input that is ready, one more for what that input causes.
    await new Promise<void>(resolve => this.#clock.soon(resolve))
    await new Promise<void>(resolve => this.#clock.soon(resolve))
    if (!this.#owned) await this.#follower.toTheEnd()
  }

  #afterRecord(): void {
    this.#ticker.tickWhileNeeded()
    this.#snapshotter.takeWhenDue()
  }

  /** The place of this replica among the recent proposers, by their numbers: all replicas agree on the order. */
  #turn(): number {
    if (this.#owned) return 0
    let before = 0
    for (const proposer of this.#state.proposers.keys()) if (proposer < this.#proposer && ++before === 8) break
    return before
  }

  // Proposing

  propose(command: Command, options: ProposeOptions = {}): Promise<Outcome> {
    try {
      options.signal?.throwIfAborted()
      this.#mustBeOpen()
      return this.#proposals.propose(command, options)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  submit(command: Command, options: ProposeOptions, completion: Completion): void {
    if (options.signal !== undefined) return complete(completion, this.propose(command, options))
    try {
      this.#mustBeOpen()
      this.#proposals.submit(command, options, completion)
    } catch (error) {
      completion.fail(error)
    }
  }

  #write(command: Command): Promise<Outcome> {
    return this.#proposals.write(command)
  }

  #mustBeOpen(): void {
    if (this.#failed) throw this.#closing.signal.reason
    if (this.#closed) throw new LeaseError('UNAVAILABLE', 'this replica is closing')
  }

  // Reading

  /**
   * Resolves when all earlier proposals of this replica's callers are applied, and the log has been read to its present end. Throws `UNAVAILABLE` after
   * `timeout`: the store may never answer, and nothing that waits here was sent.
   */
  #readToEnd(): Promise<void> {
    if (this.#owned && this.#outbox.idle) return Promise.resolve()
    return within(this.#clock, this.#timeout, this.#reachTheEnd(), () => noAnswer(this.#timeout))
  }

  async #reachTheEnd(): Promise<void> {
    if (!this.#owned) {
      // Proposals of the timekeeper need not be settled: no caller waits for them, and the end of the log shows what became of them.
      await this.#outbox.callersAnswered()
      this.#mustBeOpen()
      return this.#follower.toTheEnd()
    }
    const last = this.#outbox.lastSeq
    await this.#outbox.allSettled()
    this.#mustBeOpen()
    // The end of an owner's log is what the owner wrote. While the fate of a record is unknown, so is the end.
    if (this.#outbox.undecided(last))
      throw new LeaseError('UNAVAILABLE', 'the store has not answered yet, so the end of the log is not known; ask again')
  }

  async read<K extends Query['kind']>(query: Extract<Query, { readonly kind: K }>, options: ReadOptions = {}): Promise<View<K>> {
    const { consistent = false, atLeast = 0, signal } = options
    signal?.throwIfAborted()
    this.#mustBeOpen()
    if (consistent || this.#state.revision < atLeast) await unlessAborted(this.#readToEnd(), signal)
    if (this.#state.revision < atLeast)
      throw new LeaseError('UNAVAILABLE', `revision ${atLeast} has not been reached here: the log ends at ${this.#state.revision}`, {
        facts: { revision: this.#state.revision },
      })
    const answer = (await this.#answer(query, signal)) as View<K>
    // Checked afterwards: a long list shows the state of its last turn.
    if (query.kind !== 'summary') this.#mustBeHere(this.#state.moved)
    return answer
  }

  #answer(query: Query, signal: AbortSignal | undefined): View | Promise<View> {
    if (query.kind === 'leases' || query.kind === 'resources' || query.kind === 'entries') return this.#lists.read(query, signal)
    return view(this.#state, query, lease => this.#timekeeper.remaining(lease))
  }

  #mustBeReadable(): void {
    this.#mustBeOpen()
    this.#mustBeHere(this.#state.moved)
  }

  /** This log cannot speak for leases that have left it, or that are being moved. */
  #mustBeHere(moved: string | undefined): void {
    if (moved === undefined) return
    throw refusedError(movedAway(this.#state, moved))
  }

  watch(prefix: string, options: WatchOptions): AsyncGenerator<readonly Event[], void, void> {
    const source = {
      follower: this.#follower,
      readToEnd: () => this.#readToEnd(),
      check: () => this.#mustBeOpen(),
      // While leases are being moved, nothing happens in either log: the watch waits.
      checkMoved: () => this.#mustBeHere(this.#state.moved || undefined),
    }
    return watchEvents(source, prefix, options)
  }

  async *backup({ signal }: { readonly signal?: AbortSignal } = {}): AsyncGenerator<Uint8Array, void, void> {
    signal?.throwIfAborted()
    this.#mustBeOpen()
    await unlessAborted(this.#readToEnd(), signal)
    while (this.#snapshotter.running !== undefined) await unlessAborted(this.#snapshotter.running, signal)
    this.#mustBeOpen()
    // Copied completely before the first byte is sent: a slow reader must not delay snapshots of the log.
    yield* backupBytes(await unlessAborted(this.#snapshotter.copy(), signal))
  }

  get witness(): string {
    return this.#rewinds.witness
  }

  async continues(witness: string): Promise<boolean> {
    this.#mustBeOpen()
    return this.#rewinds.continues(witness)
  }

  // Closing

  /** This replica can decide nothing more. All pending and later calls fail with the reason. */
  #fail(error: unknown): void {
    if (this.#closing.signal.aborted) return
    this.#timekeeper.stop()
    this.#ticker.stop()
    const { message } = (error ?? {}) as { message?: string }
    const reason = error instanceof LeaseError ? error : new LeaseError('UNAVAILABLE', `the replica stopped: ${message}`, { cause: error })
    this.#failed = true
    this.#closing.abort(reason)
    this.#outbox.close(reason)
    this.#follower.wake()
  }

  /** Answers pending proposals, marks the age of timers, and disposes of the store. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    this.#snapshotter.stop()
    if (!this.#closing.signal.aborted) this.#timekeeper.markBeforeLeaving(this.profile)
    this.#timekeeper.stop()
    this.#ticker.stop()
    if (!this.#closing.signal.aborted)
      await Promise.race([this.#outbox.allSettled(), pauseUnless(this.#clock, this.#timeout, this.#closing.signal)])
    this.#fail(new LeaseError('UNAVAILABLE', 'this replica was closed'))
    await this.#snapshotter.running
    await this.#store[Symbol.asyncDispose]()
    await this.#tailing
  }
}

function noAnswer(timeout: number): LeaseError {
  return new LeaseError(
    'UNAVAILABLE',
    `no answer from the store for ${timeout} ms: the end of the log is not known, and nothing was sent; ask again`,
  )
}
