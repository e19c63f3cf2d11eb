/**
 * A replica: a kernel that follows one store, and the Lessor of this process or of a server's clients.
 *
 * The parts of this folder: the log reads records and applies them, the outbox writes them, the timekeeper counts timers and proposes what is due, the
 * snapshotter shortens the log. Callers get an answer once its record is durable and applied. A command that is certain to be refused is not written, and an
 * owner keeps renewals in memory where the timekeeper allows it.
 */
import { type Clock, systemClock, unlessAborted, whenAborted } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import { isInternal, refusal } from '../kernel/apply.ts'
import { answered } from '../kernel/codec/batch.ts'
import { malformed } from '../kernel/codec/form.ts'
import { stateHash } from '../kernel/codec/snapshot.ts'
import type { Acquire, Command, Operation, Proposal, Renew, Revoke } from '../kernel/command.ts'
import type { Event } from '../kernel/event.ts'
import type { Outcome } from '../kernel/outcome.ts'
import type { Flaw } from '../kernel/reason.ts'
import { mayRenew } from '../kernel/rule/authority.ts'
import { movedAway } from '../kernel/rule/move.ts'
import { refuseFlaw } from '../kernel/rule/refuse.ts'
import { MAX_RENEWALS } from '../kernel/rule/renew.ts'
import { findLease } from '../kernel/state/leases.ts'
import { RULES, type State } from '../kernel/state.ts'
import { complete } from '../lessor/complete.ts'
import type { ListPart } from '../lessor/list-part.ts'
import type { BackupOptions, Completion, Lessor, PageView, ProposeOptions, Query, ReadOptions, View, WatchOptions } from '../lessor.ts'
import { refusedError } from '../refused-error.ts'
import type { Profile, Store } from '../store.ts'
import { backupBytes } from './backup.ts'
import { Confirmation } from './confirmation.ts'
import { divideRenewal } from './divided-renewal.ts'
import { IdleMode } from './idle-mode.ts'
import { Lifetime } from './lifetime.ts'
import { ListPages } from './list-pages.ts'
import { ListReader } from './lists.ts'
import { Log, type Survivor } from './log.ts'
import { LogTicker } from './log-ticker.ts'
import { Outbox } from './outbox.ts'
import { Passing } from './passing.ts'
import { RecordTail } from './record-tail.ts'
import { renewInMemory } from './renew-in-memory.ts'
import { pauseUnless } from './retry.ts'
import { isDivided, revokeInPages } from './revoke-pages.ts'
import { RewindDetector } from './rewind-detector.ts'
import { beginRun, reportRaised } from './run.ts'
import { Snapshotter } from './snapshotter.ts'
import { Timekeeper } from './timekeeper.ts'
import { type Remaining, view } from './view.ts'
import { Wakes } from './wakes.ts'
import { watchEvents } from './watch.ts'

export type { Survivor } from './log.ts'

export interface ReplicaOptions {
  readonly clock?: Clock
  /** The store was opened as its owner: renewals may be kept in memory. */
  readonly owned?: boolean
  /** A survivor of a log that lost records had seen this: the replica begins a new generation above it. */
  readonly survivor?: Survivor
  /** A proposal that the store has not answered for this many ms fails with `UNKNOWN`. It may still be carried out. */
  readonly timeout?: number
  /** An owner leaves the rules of the log as they are, so that an older build can open it again. @default false: it raises them to the newest that it knows */
  readonly holdRules?: boolean
  /** Called when the owner has raised the rules. */
  readonly raised?: (from: number, to: number) => void
  /** A snapshot is taken after this many records, or this many bytes of records. */
  readonly snapshotRecords?: number
  readonly snapshotBytes?: number
  /** Events kept for watches that resume. */
  readonly events?: number
  /**
   * The replica of a process that may only hold leases: while nothing needs news of the log, it reads the log before it renews and after this many ms at the
   * latest (idle-mode.ts). Left out: it reads the log as it grows, as a server has to. Has no effect on an owner, nor on a store that cannot wake it.
   */
  readonly readEvery?: number
}

export class Replica implements Lessor {
  readonly #clock: Clock
  readonly #timeout: number
  readonly #lifetime = new Lifetime()
  readonly #log: Log
  readonly #outbox: Outbox
  readonly #timekeeper: Timekeeper
  readonly #snapshotter: Snapshotter
  readonly #ticker: LogTicker
  readonly #rewinds: RewindDetector
  readonly #confirmation: Confirmation
  readonly #idleMode: IdleMode
  readonly #passing: Passing
  readonly #lists: ListReader
  readonly #pages: ListPages
  readonly #remaining: Remaining = lease => this.#timekeeper.remaining(lease)
  #memoryRenewals = 0

  private constructor(store: Store, options: ReplicaOptions) {
    const { clock = systemClock, owned = false, timeout = 30_000, events = 100_000 } = options
    const { snapshotRecords = 10_000, snapshotBytes = 8 << 20 } = options
    const readEvery = owned || store.waker === undefined ? undefined : options.readEvery
    const lifetime = this.#lifetime
    const remaining = this.#remaining
    const log = new Log(store, { clock, lifetime, owned, events, readEvery })
    const outbox = new Outbox({ clock, timeout, log, lifetime })
    this.#clock = clock
    this.#timeout = timeout
    this.#log = log
    this.#outbox = outbox
    this.#timekeeper = new Timekeeper(clock, log, outbox)
    this.#snapshotter = new Snapshotter({ clock, log, lifetime, records: snapshotRecords, bytes: snapshotBytes })
    this.#ticker = new LogTicker(clock, log, outbox)
    this.#rewinds = new RewindDetector(log, outbox)
    this.#idleMode = new IdleMode({ clock, log, timekeeper: this.#timekeeper, ticker: this.#ticker, lifetime, readEvery })
    this.#passing = new Passing({ clock, log, idleMode: this.#idleMode, timekeeper: this.#timekeeper, readEvery })
    if (!owned) outbox.passWith(this.#passing)
    this.#confirmation = new Confirmation({ clock, log, outbox, timekeeper: this.#timekeeper, lifetime, idleMode: this.#idleMode })
    this.#lists = new ListReader({ clock, log, remaining })
    this.#pages = new ListPages({ clock, log, remaining, lists: this.#lists })
    log.connect({
      ...{ timekeeper: this.#timekeeper, outbox, ticker: this.#ticker, snapshotter: this.#snapshotter },
      idleMode: this.#idleMode,
      wakes: new Wakes(clock, store, () => void this.#idleMode.read().catch(() => {})),
    })
    lifetime.signal.addEventListener('abort', () => this.#stop(), { once: true })
  }

  /** Reads the log and begins to take part. The replica owns the store from then on, and disposes of it. */
  static async open(store: Store, options: ReplicaOptions = {}): Promise<Replica> {
    const replica = new Replica(store, options)
    try {
      await replica.#start(options)
      return replica
    } catch (error) {
      replica.#lifetime.fail(error)
      await store[Symbol.asyncDispose]()
      throw error
    }
  }

  get profile(): Profile {
    return this.#log.store.profile
  }

  get signal(): AbortSignal {
    return this.#lifetime.signal
  }

  /** A log that is still empty begins with these rules, so that older processes on it can follow. */
  readonly beginWith = (rules: number): void => this.#outbox.beginWith(rules)

  /** Why the last append failed, and when; undefined as soon as one has succeeded. */
  get storeError(): { readonly error: LeaseError; readonly at: number } | undefined {
    return this.#outbox.storeError
  }

  get revision(): number {
    return this.#log.state.revision
  }

  get index(): number {
    return this.#log.state.index
  }

  /** Returns what this replica has seen, for the recovery of a log that lost records. */
  get survivor(): Survivor {
    return this.#log.survivor
  }

  /** Equal on every replica that has applied the same records. Costs a walk over the whole state. */
  hash(): string {
    return stateHash(this.#log.state)
  }

  /** For metrics and tests. */
  get stats(): Outbox['stats'] &
    Log['stats'] &
    Snapshotter['stats'] &
    IdleMode['stats'] & { readonly memoryRenewals: number; readonly rewinds: number } {
    const own = { memoryRenewals: this.#memoryRenewals, rewinds: this.#rewinds.rewinds, ...this.#idleMode.stats }
    return { ...this.#outbox.stats, ...this.#snapshotter.stats, ...this.#log.stats, ...own }
  }

  /** For metrics and tests: how late proposals were, and for how long this process stood still. */
  get timing(): Timekeeper['stats'] {
    return this.#timekeeper.stats
  }

  /** All counters, by name, for metrics. */
  get figures(): Readonly<Record<string, number>> {
    const { index, revision } = this.#log.state
    return {
      ...this.stats,
      ...this.timing,
      index,
      appliedRevision: revision,
      ...Object.fromEntries(Object.entries(this.#log.eventCounts).map(([type, count]) => [`events.${type}`, count])),
      ...this.#outbox.latency.figures('commit'),
      ...this.#timekeeper.delays.figures('delay'),
    }
  }

  async #start({ survivor, holdRules, raised }: ReplicaOptions): Promise<void> {
    const { store, owned } = this.#log
    const { snapshot } = await store.open()
    const { ended } = store
    if (ended !== undefined) whenAborted(ended, () => this.#lifetime.fail(ended.reason))
    await this.#log.start(snapshot)
    this.#timekeeper.learnTogether()
    if (owned || this.#log.state.run.owned) {
      const commands = beginRun(this.#log.state, { clock: this.#clock, owned, ms: this.#timekeeper.runSoFar(), holdRules })
      await Promise.all(commands.map(command => this.#outbox.write(command)))
      reportRaised(commands, raised)
      if (owned) this.#timekeeper.ownRunBegan()
    }
    if (survivor !== undefined) await this.#outbox.write({ kind: 'generation', ...survivor })
    if (owned) await this.#rewinds.compareWithKept()
    // Nothing may be proposed as due before this: a renewal may have been among the lost records.
    this.#timekeeper.caughtUp()
    this.#ticker.tickWhileNeeded()
    if (owned) return
    this.#timekeeper.judgeFound()
    this.#passing.start()
    this.#idleMode.start()
  }

  /** Returns whether the log is read now and then, because nothing here needs its news. */
  get isIdle(): boolean {
    return this.#idleMode.isIdle
  }

  // Proposing

  submit(command: Command, { op, key = 0, signal }: ProposeOptions, completion: Completion): void {
    try {
      signal?.throwIfAborted()
      if (!this.#lifetime.isOpen) this.#lifetime.assertOpen()
      const { state } = this.#log
      const wrong = malformed(command, key, op) ?? (RESERVED.has(command.kind) ? notToBeWritten(command) : undefined)
      if (wrong !== undefined) completion.settle(refuseFlaw(state, wrong))
      else if (command.kind === 'renew' && op === undefined && this.#log.owned && mayStayInMemory(state, command))
        this.#renewInMemory(command.leases, key, completion)
      else if (command.kind === 'revoke' && isDivided(command)) complete(completion, this.#revokeInPages(command, { key, op }, signal))
      else if (op?.again !== true && looksRefused(state, command)) void this.#putUnlessRefused({ command, key, op }, signal, completion)
      else {
        if (command.kind === 'transfer' || command.kind === 'extend') this.#timekeeper.markBeforeTransfer(command.lease, key)
        if (command.kind === 'renew' && this.#idleMode.isIdle && !this.#passing.mayPass({ command, key, op }))
          void this.#readAndRenew(command, key, op, completion)
        else if (command.kind === 'renew') this.#putRenewal(command, key, op, completion)
        else this.#outbox.put({ command, key, op, completion, untilSettled: false })
      }
    } catch (error) {
      completion.fail(error)
    }
  }

  /** A refusal is decided at the end of the log. Only what is not refused there is written, even if it was answered before. */
  async #putUnlessRefused(proposal: Required<Proposal>, signal: AbortSignal | undefined, completion: Completion): Promise<void> {
    try {
      await this.#outbox.readToEnd()
      signal?.throwIfAborted()
      const known = answered(this.#log.state, proposal) ?? refusal(this.#log.state, proposal)
      // Only a refusal may rest on a read alone. What a holder believes must be appended behind the records that it rests on: a failover may undo what a read shows.
      if (known?.kind === 'refused') return completion.settle(known)
      const { command, key, op } = proposal
      if (command.kind === 'transfer' || command.kind === 'extend') this.#timekeeper.markBeforeTransfer(command.lease, key)
      this.#outbox.put({ command, key, op, completion, untilSettled: false })
    } catch (error) {
      completion.fail(error)
    }
  }

  async confirm(command: Acquire, { limit, signal }: { readonly limit?: number; readonly signal: AbortSignal }): Promise<void> {
    this.#lifetime.assertOpen()
    await this.#readIfIdle(signal)
    await this.#confirmation.confirm(command, limit, signal)
  }

  renewAtOnce(id: number, key: number): number | undefined {
    const { state, owned } = this.#log
    if (!owned || !this.#lifetime.isOpen || state.moved !== undefined) return undefined
    const lease = findLease(state, id)
    if (lease === undefined || !mayRenew(state, key, lease) || !this.#timekeeper.renewInMemory(lease, this.#timekeeper.now()))
      return undefined
    this.#memoryRenewals++
    return lease.ttl
  }

  /** Reads to the end of the log first, since what an idle replica has read may be old. */
  async #readIfIdle(signal?: AbortSignal): Promise<void> {
    if (this.#idleMode.isIdle) await unlessAborted(this.#outbox.readToEnd(), signal)
  }

  async #revokeInPages(command: Revoke, { key, op }: Required<Omit<Proposal, 'command'>>, signal?: AbortSignal): Promise<Outcome> {
    await this.#readIfIdle(signal)
    return revokeInPages({ clock: this.#clock, log: this.#log, outbox: this.#outbox }, { command, key, ...(op && { op }) }, signal)
  }

  /** Reads the log, and renews in the record of the ends and marks that follow from the read: in front of them, so that none ends a lease that is being renewed. */
  async #readAndRenew(renewal: Renew, key: number, op: Operation | undefined, completion: Completion): Promise<void> {
    await this.#idleMode.readBriefly()
    try {
      this.#putRenewal(renewal, key, op, completion)
    } catch (error) {
      completion.fail(error)
    }
  }

  #renewInMemory(leases: readonly number[], key: number, completion: Completion): void {
    const { ttls, logged } = renewInMemory(this.#log.state, this.#timekeeper, leases, key)
    this.#memoryRenewals += leases.length - logged.length
    if (logged.length === 0) return completion.settle({ kind: 'renewed', revision: this.#log.state.revision, ttls })
    const merged: Completion = {
      settle: outcome => {
        if (outcome.kind !== 'renewed') return completion.settle(outcome)
        const written = outcome.ttls.values()
        completion.settle({ ...outcome, ttls: ttls.map(ttl => (ttl === 0 ? written.next().value! : ttl)) })
      },
      fail: error => completion.fail(error),
    }
    this.#putRenewal({ kind: 'renew', leases: logged }, key, undefined, merged)
  }

  #putRenewal(renewal: Renew, key: number, op: Operation | undefined, whole: Completion): void {
    divideRenewal(renewal, whole, (command, completion, isLast) =>
      this.#outbox.put({ command, key, op: isLast ? op : undefined, completion, untilSettled: false }),
    )
  }

  // Reading

  async read<K extends Query['kind']>(query: Extract<Query, { readonly kind: K }>, options: ReadOptions = {}): Promise<View<K>> {
    const { consistent = false, atLeast = 0, signal } = options
    signal?.throwIfAborted()
    this.#lifetime.assertOpen()
    if (consistent || this.#idleMode.isIdle || this.#log.state.revision < atLeast) await unlessAborted(this.#outbox.readToEnd(), signal)
    if (this.#log.state.revision < atLeast && query.kind !== 'summary') this.#assertHere()
    if (this.#log.state.revision < atLeast)
      throw new LeaseError('UNAVAILABLE', `revision ${atLeast} has not been reached here: the log ends at ${this.#log.state.revision}`, {
        facts: { revision: this.#log.state.revision },
      })
    const answer = (await this.#answer(query, signal)) as View<K>
    // Checked afterwards: a long list shows the state of its last turn.
    if (query.kind !== 'summary') this.#assertHere()
    return answer
  }

  #answer(query: Query, signal: AbortSignal | undefined): View | Promise<View> {
    if (query.kind === 'leases' || query.kind === 'resources' || query.kind === 'entries') return this.#lists.read(query, signal)
    return view(this.#log.state, query, this.#remaining)
  }

  /** This log cannot speak for leases that have left it, or that are being moved. */
  #assertHere(): void {
    const { moved } = this.#log.state
    if (moved !== undefined) throw refusedError(movedAway(this.#log.state, moved))
  }

  async page<K extends 'leases' | 'resources'>(
    query: Extract<Query, { readonly kind: K }>,
    part: ListPart,
    { signal }: { readonly signal?: AbortSignal } = {},
  ): Promise<PageView<K>> {
    signal?.throwIfAborted()
    this.#lifetime.assertOpen()
    await this.#readIfIdle(signal)
    this.#assertHere()
    const answer = await this.#pages.read(query, part, signal)
    this.#lifetime.assertOpen()
    this.#assertHere()
    return answer as PageView<K>
  }

  watch(prefix: string, options: WatchOptions): AsyncGenerator<readonly Event[], void, void> {
    return watchEvents({ log: this.#log, outbox: this.#outbox, lifetime: this.#lifetime, idleMode: this.#idleMode }, prefix, options)
  }

  async *backup({ follow = false, signal }: BackupOptions = {}): AsyncGenerator<Uint8Array, void, void> {
    signal?.throwIfAborted()
    this.#lifetime.assertOpen()
    await unlessAborted(this.#outbox.readToEnd(), signal)
    while (this.#snapshotter.running !== undefined) await unlessAborted(this.#snapshotter.running, signal)
    this.#lifetime.assertOpen()
    if (follow) {
      using _following = { [Symbol.dispose]: this.#idleMode.need() }
      using tail = new RecordTail(this.#log)
      const over = signal === undefined ? this.signal : AbortSignal.any([this.signal, signal])
      return yield* tail.bytes(await unlessAborted(this.#snapshotter.copy(), over), over)
    }
    // Copied completely before the first byte is sent: a slow reader must not delay snapshots of the log.
    yield* backupBytes(await unlessAborted(this.#snapshotter.copy(), signal))
  }

  get witness(): string {
    return this.#rewinds.witness
  }

  async continues(witness: string): Promise<boolean> {
    this.#lifetime.assertOpen()
    return this.#rewinds.continues(witness)
  }

  // Closing

  #stop(): void {
    this.#timekeeper.stop()
    this.#ticker.stop()
    void this.#idleMode.stop()
    this.#outbox.close(this.signal.reason)
    this.#log.wake()
  }

  /** Answers pending proposals, marks the age of timers, and disposes of the store. */
  async [Symbol.asyncDispose](): Promise<void> {
    const lifetime = this.#lifetime
    if (lifetime.isClosing) return
    lifetime.close()
    this.#snapshotter.stop()
    if (!lifetime.isOver && !this.#passing.isBehind) this.#timekeeper.markBeforeLeaving(this.profile)
    this.#timekeeper.stop()
    this.#ticker.stop()
    if (!lifetime.isOver) await Promise.race([this.#outbox.allSettled(), pauseUnless(this.#clock, this.#timeout, lifetime.signal)])
    lifetime.fail(new LeaseError('UNAVAILABLE', 'this replica was closed'))
    await this.#snapshotter.running
    await this.#log.store[Symbol.asyncDispose]()
    await this.#idleMode.stop()
  }
}

/** The commands that `notToBeWritten` has to look at. */
const RESERVED: ReadonlySet<Command['kind']> = new Set(['due', 'aged', 'aged-together', 'run', 'tick', 'move', 'upgrade'])

function notToBeWritten(command: Command): Flaw | undefined {
  if (isInternal(command)) return { reason: 'internal-command', facts: { command: command.kind } }
  // A replica that does not know the new rules stops at this record, for ever. This replica would be the first to stop.
  if (command.kind === 'upgrade' && command.rules > RULES) return { reason: 'unknown-rules', facts: { rules: RULES, given: command.rules } }
  return undefined
}

/** Returns whether an owner may keep the renewals in memory, as far as their form tells. */
function mayStayInMemory({ moved }: State, { waiting, ttl, leases }: Renew): boolean {
  return waiting !== true && ttl === undefined && moved === undefined && leases.length <= MAX_RENEWALS
}

/** A cheap guess whether the command will be refused. A wrong `false` is harmless: the log decides then. */
function looksRefused(state: State, command: Command): boolean {
  if (state.moved !== undefined) return true
  if (command.kind === 'release') return findLease(state, command.lease) === undefined
  if (command.kind !== 'acquire' || command.wait === true) return false
  if (command.pool !== undefined) return true
  for (const { resource } of command.wants) if (state.resources.has(resource)) return true
  return false
}
