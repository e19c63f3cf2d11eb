/**
 * A kernel that follows one store: the Lessor of this process, or of the server's clients.
 *
 * One append is under way at a time and carries everything that piled up meanwhile; answers go out when the entry is durable and applied.
 * An append whose answer was lost is sent again byte for byte. What is certain to be refused is not written: it is answered from a state
 * known to be at the log's end.
 */
import { type Clock, systemClock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import { isInternal, refusal, understands } from '../kernel/apply.ts'
import { answered, applyBatch, type Batch, BatchWriter, decodeBatch, WINDOW } from '../kernel/batch.ts'
import { FromTheFuture } from '../kernel/bytes.ts'
import type { Command, Generation, Operation, Proposal } from '../kernel/command.ts'
import { type Event, RecentEvents } from '../kernel/event.ts'
import { malformed } from '../kernel/form.ts'
import { NAME_BYTES, under, utf8Length } from '../kernel/name.ts'
import { GONE, type Outcome, type Renewed } from '../kernel/outcome.ts'
import { mayTouch } from '../kernel/policy.ts'
import { MOST_RENEWALS } from '../kernel/renew.ts'
import { StateLoader, saveState, stateHash } from '../kernel/snapshot.ts'
import { findLease, found, type Lease, RULES, type Slot, type State } from '../kernel/state.ts'
import type { Lessor, ProposeOptions, Query, ReadOptions, View, WatchOptions } from '../lessor.ts'
import type { Appended, Entry, NotThere, Position, Profile, Snapshot, Store } from '../store.ts'
import { START } from '../store.ts'
import { framed, unframed } from './frame.ts'
import { Timekeeper } from './timekeeper.ts'
import { view } from './view.ts'

export interface ReplicaOptions {
  readonly clock?: Clock
  /** The store was opened as its owner: renewals may be kept in memory. */
  readonly owned?: boolean
  /** What a survivor of a log that lost entries had seen: a new generation begins above it. */
  readonly survivor?: Survivor
  /** After so long without an answer from the store a proposal is told that its fate is unknown; it may still be carried out. */
  readonly patience?: number
  readonly snapshotEntries?: number
  readonly snapshotBytes?: number
  /** Events kept for watches that resume. */
  readonly events?: number
}

/** How far the counters had come, and how long anyone may believe in what was lost. */
export type Survivor = Omit<Generation, 'kind'>

interface Waiting {
  readonly proposal: Proposal
  readonly settle: (outcome: Outcome) => void
  readonly fail: (error: unknown) => void
  /** Wants to know what became of it, however long that takes. */
  readonly patient: boolean
}

interface Flight {
  readonly seq: number
  readonly bytes: Uint8Array
  readonly batch: Batch
  readonly waiting: Waiting[]
  /** How often the log had been skipped through by a snapshot when this was made. */
  readonly reloads: number
  /** A copy is on its way. */
  underWay: boolean
  /** What became of an earlier copy was never told: it may be in the log. */
  lost: boolean
  settled: boolean
}

/** An entry is at most so large: etcd takes 1.5 MiB, and a smaller one is durable sooner. */
const ENTRY_BYTES = 512 * 1_024
const RETRY_FIRST = 10
const RETRY_LAST = 1_000
const TICK = 1_000

export class Replica implements Lessor {
  readonly #store: Store
  readonly #clock: Clock
  readonly #owned: boolean
  readonly #patience: number
  readonly #snapshotEntries: number
  readonly #snapshotBytes: number
  readonly #eventLimit: number
  readonly #closing = new AbortController()
  readonly #proposer: number
  #seq = 0

  #state = found()
  #position: Position = START
  #recent: RecentEvents
  readonly #keeper: Timekeeper
  readonly #effects: { readonly events: Event[]; timer(lease: Lease | undefined, slot: Slot): void }
  /** Trails of the last entries: what a proposer says it had must be what we had. */
  readonly #trails = new Uint32Array(WINDOW * 2)
  #trailsFrom = 0

  #next = new BatchWriter()
  #nextWaiting: Waiting[] = []
  /** Full batches that wait behind the one under way. */
  readonly #backlog: { readonly writer: BatchWriter; readonly waiting: Waiting[] }[] = []
  #flight: Flight | undefined
  #pumping = false
  #pumpSoon = false

  #barrier: { readonly begun: Promise<void>; next: Promise<void> | undefined } | undefined
  readonly #onChange = new Set<() => void>()
  #sinceSnapshot = { entries: 0, bytes: 0 }
  #snapshotting: Promise<void> | undefined
  #tailing: Promise<void> | undefined
  #reloading: Promise<void> | undefined
  #ticking: (() => void) | undefined
  #closed = false
  /** For metrics and tests. */
  readonly seen = { appends: 0, commands: 0, resent: 0, voided: 0, snapshots: 0, memoryRenewals: 0, reloads: 0 }

  private constructor(store: Store, options: ReplicaOptions) {
    const {
      clock = systemClock,
      owned = false,
      patience = 30_000,
      snapshotEntries = 10_000,
      snapshotBytes = 8 << 20,
      events = 100_000,
    } = options
    this.#store = store
    this.#clock = clock
    this.#owned = owned
    this.#patience = patience
    this.#snapshotEntries = snapshotEntries
    this.#snapshotBytes = snapshotBytes
    this.#eventLimit = events
    this.#proposer = Number(clock.bits() >> 11n) || 1
    this.#recent = new RecentEvents(0, { limit: events })
    this.#keeper = new Timekeeper(this.#state, {
      clock,
      // Only what is certain is told: while a `due` can still reach the log, its lease must not be renewed in memory.
      propose: (command, settled) => this.#enqueue({ command }, settled, () => settled(undefined), { patient: true }),
      drain: () => this.#drain(),
      turn: () => this.#turn(),
    })
    this.#effects = { events: [], timer: (lease, slot) => this.#keeper.timer(lease, slot) }
  }

  /** Reads the log and begins to take part. The replica has the store from then on, and disposes of it. */
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

  get profile(): Profile {
    return this.#store.profile
  }

  get signal(): AbortSignal {
    return this.#closing.signal
  }

  get revision(): number {
    return this.#state.revision
  }

  get index(): number {
    return this.#state.index
  }

  /** What whoever recovers a log that lost entries must know of this replica. */
  get survivor(): Survivor {
    const { nextLease, nextToken, revision, longest } = this.#state
    return { lease: nextLease, token: nextToken, revision, quiet: longest }
  }

  /** Equal on every replica that has applied as much. Costs a walk over everything. */
  hash(): string {
    return stateHash(this.#state)
  }

  /** How late proposals were and how long this process stood still, for metrics and tests. */
  get timing(): Timekeeper['seen'] {
    return this.#keeper.seen
  }

  async #start(survivor: Survivor | undefined): Promise<void> {
    const { snapshot } = await this.#store.open()
    if (snapshot !== undefined) await this.#load(snapshot)
    else this.#keeper.load(this.#state, 0)
    while (await this.#readOn()) {
      // Until the end of the log.
    }
    this.#keeper.learnTogether()
    const { run } = this.#state
    if (this.#owned || run.owned) {
      const ms = this.#keeper.runSoFar()
      if (run.owned && ms > run.ms) await this.#internal({ kind: 'aged-together', run: run.number, ms })
      await this.#internal({ kind: 'run', owned: this.#owned })
      if (this.#owned) this.#keeper.ownRunBegan()
    }
    if (survivor !== undefined) await this.#internal({ kind: 'generation', ...survivor })
    // Only now may anything be said to be due: before, a renewal may have been among what was lost.
    this.#keeper.caughtUp()
    if (this.#owned) return
    this.#keeper.judgeFound()
    this.#tailing = this.#tail()
  }

  #internal(command: Command): Promise<Outcome> {
    return new Promise((resolve, reject) => this.#enqueue({ command }, resolve, reject))
  }

  // Loading and following the log

  async #load(snapshot: Snapshot): Promise<void> {
    const loader = new StateLoader()
    let state: State
    try {
      for await (const chunk of unframed(snapshot.bytes)) loader.add(chunk)
      state = loader.finish()
    } catch (error) {
      throw this.#unreadable(error, `the snapshot at ${snapshot.position.index}`)
    }
    if (state.index <= this.#state.index) return // entries came in while it was read: we are past it
    this.#state = state
    this.#position = snapshot.position
    this.#recent = new RecentEvents(this.#state.revision, { limit: this.#eventLimit })
    this.#trailsFrom = this.#state.index
    this.#keepTrail()
    this.#keeper.load(this.#state, snapshot.age)
    this.#sinceSnapshot = { entries: 0, bytes: 0 }
  }

  #unreadable(error: unknown, what: string): LeaseError {
    if (error instanceof LeaseError) return error
    if (error instanceof FromTheFuture)
      return new LeaseError('UNSUPPORTED', `${what} was written by a newer version of leasehold (${error.message}): upgrade this process`, {
        cause: error,
      })
    return new LeaseError(
      'DIVERGED',
      `${what} is damaged (${(error as Error).message}): restore the log from a backup; nothing was changed`,
      {
        cause: error,
      },
    )
  }

  /** Applies what follows. Whether there was anything. */
  async #readOn(): Promise<boolean> {
    const read = await this.#store.read(this.#position)
    if (read.kind !== 'entries') return this.#notThere(read)
    this.#applyAll(read.entries)
    return read.entries.length > 0
  }

  async #notThere(what: NotThere): Promise<true> {
    if (what.kind === 'trimmed') {
      await this.#reload()
      return true
    }
    if (what.kind === 'disowned')
      throw new LeaseError('UNAVAILABLE', `${what.by} has taken over the log: this process owns it no longer`, {
        facts: { owner: what.by },
      })
    throw new LeaseError('DIVERGED', `the log lost entries that this process had seen: ${what.reason}; nothing can be decided on it`, {
      facts: { ...this.survivor },
    })
  }

  /** Too far behind: what is missing is only in the snapshot. */
  #reload(): Promise<void> {
    this.#reloading ??= (async () => {
      try {
        const snapshot = await this.#store.newest()
        if (snapshot === undefined) throw new LeaseError('DIVERGED', 'entries are gone from the log and there is no snapshot of them')
        if (snapshot.position.index <= this.#state.index) return
        this.seen.reloads++
        await this.#load(snapshot)
        this.#keeper.caughtUp()
        for (const wake of this.#onChange) wake()
      } finally {
        this.#reloading = undefined
      }
    })()
    return this.#reloading
  }

  #applyAll(entries: readonly Entry[]): void {
    for (const entry of entries) if (entry.position.index > this.#state.index) this.#apply(entry, undefined)
  }

  #apply({ position, bytes, age }: Entry, own: Batch | undefined): void {
    let batch: Batch
    try {
      batch = own ?? decodeBatch(bytes)
    } catch (error) {
      throw this.#unreadable(error, `entry ${position.index}`)
    }
    this.#compareTrail(batch, position.index)
    this.#keeper.entering(age)
    const events = this.#effects.events
    let changed = false
    const applied = applyBatch(this.#state, position.index, batch, this.#effects, () => {
      if (events.length === 0) return
      this.#recent.push(events.slice())
      events.length = 0
      changed = true
    })
    this.#position = position
    this.#keepTrail()
    this.#sinceSnapshot.entries++
    this.#sinceSnapshot.bytes += bytes.length
    if (!understands(this.#state))
      throw new LeaseError(
        'UNSUPPORTED',
        `the log has been raised to rules version ${this.#state.rules}, this process knows ${RULES}: upgrade it`,
      )
    if (batch.proposer === this.#proposer && this.#flight?.seq === batch.seq && !this.#flight.settled) this.#answer(this.#flight, applied)
    else if (own === undefined) this.#keeper.learnTogether()
    if (changed) for (const wake of this.#onChange) wake()
  }

  #answer(flight: Flight, applied: ReturnType<typeof applyBatch>): void {
    flight.settled = true
    if (applied.kind === 'applied') {
      for (const [i, { settle }] of flight.waiting.entries()) settle(applied.outcomes[i]!)
      return
    }
    if (applied.kind === 'again') return this.#tellSkipped(flight)
    this.seen.voided++
    // An earlier copy may have been done in what was skipped, so long ago that its proposer was forgotten since.
    if (flight.lost && this.seen.reloads > flight.reloads) return this.#tellSkipped(flight)
    // Certainly not done, and too late to be. It goes into a new entry.
    for (const waiting of flight.waiting) this.#enqueueWaiting(waiting)
  }

  /** It was applied, if it was, within what a snapshot made us skip: how it was answered is not known here. */
  #tellSkipped(flight: Flight): void {
    flight.settled = true
    const error = new LeaseError('UNKNOWN', 'this process fell too far behind to see how this was answered; it may have been done')
    for (const { fail } of flight.waiting) fail(error)
  }

  #keepTrail(): void {
    const slot = (this.#state.index % WINDOW) * 2
    this.#trails[slot] = this.#state.trailA
    this.#trails[slot + 1] = this.#state.trailB
  }

  /** Two replicas that applied the same entries and differ: one of them is broken, and nobody can say which. */
  #compareTrail({ applied, trail, proposer }: Batch, index: number): void {
    if (applied < this.#trailsFrom || applied > this.#state.index || this.#state.index - applied >= WINDOW || proposer === this.#proposer)
      return
    const slot = (applied % WINDOW) * 2
    if (this.#trails[slot] === trail[0] && this.#trails[slot + 1] === trail[1]) return
    throw new LeaseError(
      'DIVERGED',
      `entry ${index} was proposed by a replica that decided otherwise up to entry ${applied}: compare versions`,
      {
        facts: { ...this.survivor },
      },
    )
  }

  async #tail(): Promise<void> {
    let pause = RETRY_FIRST
    while (!this.#closed) {
      try {
        const read = await this.#store.read(this.#position, { wait: this.#closing.signal })
        if (this.#closed) return
        if (read.kind === 'entries') this.#applyAll(read.entries)
        else await this.#notThere(read)
        pause = RETRY_FIRST
        this.#afterApply()
      } catch (error) {
        if (this.#closed) return
        if (!isTransient(error)) return this.#fail(error)
        await this.#pause(pause)
        pause = Math.min(pause * 2, RETRY_LAST)
      }
    }
  }

  /** Everything that waits has been read: the sockets of this process, and the log. */
  async #drain(): Promise<void> {
    // One turn for input that is ready, one more for what it leads to.
    await new Promise<void>(resolve => this.#clock.soon(resolve))
    await new Promise<void>(resolve => this.#clock.soon(resolve))
    if (!this.#owned) await this.#toTheEnd()
  }

  // Proposing

  propose(command: Command, options: ProposeOptions = {}): Promise<Outcome> {
    try {
      return this.#propose(command, options)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  /** Not async itself: the usual way is one promise from here to the answer. */
  #propose(command: Command, { op, key = 0, signal }: ProposeOptions): Promise<Outcome> {
    signal?.throwIfAborted()
    this.#mustBeOpen()
    const wrong = malformed(command) ?? notToBeWritten(command) ?? malformedAsker(key, op)
    if (wrong !== undefined)
      return Promise.resolve({ kind: 'refused', revision: this.#state.revision, code: 'INVALID', message: wrong, facts: {} })
    if (command.kind === 'renew' && command.waiting !== true && this.#owned && op === undefined && command.leases.length <= MOST_RENEWALS)
      return this.#renew(command.leases, key, signal)
    const proposal: Proposal = op === undefined ? { command, key } : { command, key, op }
    return op?.again !== true && this.#looksRefused(command) ? this.#submitUnlessRefused(proposal, signal) : this.#submit(proposal, signal)
  }

  async #submitUnlessRefused(proposal: Proposal, signal: AbortSignal | undefined): Promise<Outcome> {
    await orAborted(this.#atTheEnd(), signal)
    const refused = answered(this.#state, proposal) ?? refusal(this.#state, proposal)
    return refused ?? this.#submit(proposal, signal)
  }

  /** Cheap to ask, and never wrong in the one way that matters: what it lets pass is decided in the log. */
  #looksRefused(command: Command): boolean {
    if (command.kind === 'release') return findLease(this.#state, command.lease) === undefined
    if (command.kind !== 'acquire' || command.wait === true) return false
    return command.wants.some(want => this.#state.resources.has(want.resource))
  }

  #mustBeOpen(): void {
    if (this.#closing.signal.aborted) throw this.#closing.signal.reason
    if (this.#closed) throw new LeaseError('UNAVAILABLE', 'this replica is closing')
  }

  #submit(proposal: Proposal, signal: AbortSignal | undefined): Promise<Outcome> {
    return orAborted(new Promise((resolve, reject) => this.#enqueue(proposal, resolve, reject)), signal)
  }

  /** An owner keeps renewals in memory where the time law allows it; the rest goes through the log. */
  async #renew(leases: readonly number[], key: number, signal: AbortSignal | undefined): Promise<Outcome> {
    const ttls: number[] = []
    const logged: number[] = []
    const now = this.#keeper.now()
    for (const id of leases) {
      const lease = findLease(this.#state, id)
      if (lease === undefined || !mayTouch(this.#state, key, lease)) ttls.push(GONE)
      else if (this.#keeper.renewInMemory(lease, now)) ttls.push(lease.ttl)
      else {
        ttls.push(0)
        logged.push(id)
      }
    }
    this.seen.memoryRenewals += leases.length - logged.length
    if (logged.length === 0) return { kind: 'renewed', revision: this.#state.revision, ttls }
    const outcome = await this.#submit({ command: { kind: 'renew', leases: logged }, key }, signal)
    if (outcome.kind !== 'renewed') return outcome
    const written = outcome.ttls.values()
    return {
      kind: 'renewed',
      revision: outcome.revision,
      ttls: ttls.map(ttl => (ttl === 0 ? written.next().value! : ttl)),
    } satisfies Renewed
  }

  #enqueue(
    proposal: Proposal,
    settle: (outcome: Outcome) => void,
    fail: (error: unknown) => void,
    { patient = false }: { readonly patient?: boolean } = {},
  ): void {
    this.#enqueueWaiting({ proposal, settle, fail, patient })
  }

  #enqueueWaiting(waiting: Waiting): void {
    if (this.#closing.signal.aborted) return waiting.fail(this.#closing.signal.reason)
    if (this.#next.bytes > ENTRY_BYTES) {
      this.#backlog.push({ writer: this.#next, waiting: this.#nextWaiting })
      this.#next = new BatchWriter()
      this.#nextWaiting = []
    }
    this.#next.add(waiting.proposal)
    this.#nextWaiting.push(waiting)
    if (this.#pumping || this.#pumpSoon) return
    // Everything asked for within this turn goes into one entry.
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
        if (this.#closing.signal.aborted) return
        await this.#send(this.#takeFlight())
        this.#afterApply()
        // A store that answers within the turn would otherwise keep everyone else from running: timers, sockets, snapshots.
        await new Promise<void>(resolve => this.#clock.soon(resolve))
      }
    } catch (error) {
      this.#fail(error)
    } finally {
      this.#pumping = false
    }
  }

  #takeFlight(): Flight {
    const { writer, waiting } = this.#backlog.shift() ?? { writer: this.#next, waiting: this.#nextWaiting }
    if (writer === this.#next) {
      this.#next = new BatchWriter()
      this.#nextWaiting = []
    }
    const { index, trailA, trailB } = this.#state
    const seq = ++this.#seq
    const { bytes, batch } = writer.take({
      proposer: this.#proposer,
      seq,
      applied: index,
      trail: [trailA, trailB],
      wall: Math.max(0, Math.floor(this.#clock.wall())),
    })
    this.seen.appends++
    this.seen.commands += waiting.length
    const flight = { seq, bytes, batch, waiting, reloads: this.seen.reloads, underWay: false, lost: false, settled: false }
    this.#flight = flight
    return flight
  }

  /** Appends until it is certain what became of it. Throws only what no further attempt can cure. */
  async #send(flight: Flight): Promise<void> {
    let pause = RETRY_FIRST
    let impatient = () => {}
    const wait = () => {
      impatient = this.#clock.after(this.#patience, () => {
        this.#tellUnknown(flight)
        wait()
      })
    }
    wait()
    try {
      for (;;) {
        try {
          if (await this.#appended(flight, await this.#append(flight))) return
        } catch (error) {
          if (!isTransient(error)) throw error
          if (this.#closing.signal.aborted) return
          if (flight.settled) return // seen in the log meanwhile: it was there
          if (!flight.lost) return this.#reject(flight, error)
        }
        await this.#pause(pause)
        if (this.#closing.signal.aborted || flight.settled) return
        pause = Math.min(pause * 2, RETRY_LAST)
        this.seen.resent++
      }
    } finally {
      impatient()
    }
  }

  async #append(flight: Flight): Promise<Appended> {
    flight.underWay = true
    try {
      const appended = await this.#store.append(flight.bytes, this.#position)
      flight.underWay = appended.kind === 'appended' || appended.kind === 'behind'
      return appended
    } catch (error) {
      flight.underWay = false
      flight.lost ||= !(error instanceof LeaseError && error.code === 'UNAVAILABLE')
      throw error
    }
  }

  /** Whether the flight is over. */
  async #appended(flight: Flight, appended: Appended): Promise<boolean> {
    if (appended.kind === 'appended') {
      this.#applyAll(appended.missed)
      if (this.#state.index === appended.position.index - 1)
        this.#apply({ position: appended.position, bytes: flight.bytes, age: 0 }, flight.batch)
      else if (this.#state.index < appended.position.index) await this.#readUpTo(appended.position.index)
    } else if (appended.kind === 'behind') await this.#readUpTo(appended.position.index)
    else {
      await this.#notThere(appended)
      return flight.settled
    }
    if (!flight.settled) this.#tellSkipped(flight)
    return true
  }

  async #readUpTo(index: number): Promise<void> {
    while (this.#state.index < index) await this.#readOn()
  }

  #reject(flight: Flight, error: unknown): void {
    flight.settled = true
    for (const { fail } of flight.waiting) fail(error)
  }

  /** Nobody waits for ever: after so long, the truth is that it is not known. The entry itself is still being sent; what waits behind it never is. */
  #tellUnknown(flight: Flight): void {
    const silence = `no answer from the store for ${this.#patience} ms`
    const unknown = new LeaseError(
      'UNKNOWN',
      `${silence}: what was asked may or may not have been done; ask again with the same operation id`,
    )
    if (!flight.settled) for (const { fail, patient } of flight.waiting) if (!patient) fail(unknown)
    const unsent = new LeaseError('UNAVAILABLE', `${silence}: what was asked was not sent; ask again later`)
    for (const { fail } of this.#takeUnsent()) fail(unsent)
  }

  #takeUnsent(): readonly Waiting[] {
    const unsent = [...this.#backlog.splice(0).flatMap(({ waiting }) => waiting), ...this.#nextWaiting]
    this.#next = new BatchWriter()
    this.#nextWaiting = []
    return unsent
  }

  #pause(ms: number): Promise<void> {
    return new Promise(resolve => {
      const stop = () => {
        cancel()
        resolve()
      }
      const cancel = this.#clock.after(ms, () => {
        this.#closing.signal.removeEventListener('abort', stop)
        resolve()
      })
      this.#closing.signal.addEventListener('abort', stop, { once: true })
    })
  }

  // Reading

  /** What was proposed here before is applied, and the log has been read to its end as of now. */
  async #atTheEnd(): Promise<void> {
    const asked = this.#seq
    await this.#allSettled()
    this.#mustBeOpen()
    if (!this.#owned) return this.#toTheEnd()
    // An owner's end of the log is what it wrote itself; while the fate of that is unknown, so is the end.
    if (this.#flight !== undefined && !this.#flight.settled && this.#flight.seq <= asked)
      throw new LeaseError('UNAVAILABLE', 'the store has not answered yet: nothing can be said about the end of the log; ask again')
  }

  /** What was proposed here so far is settled in that order: when the last of it is, all is. */
  async #allSettled(): Promise<void> {
    const sent = this.#flight?.settled === false ? this.#flight.waiting : undefined
    const waiting = this.#nextWaiting.length > 0 ? this.#nextWaiting : (this.#backlog.at(-1)?.waiting ?? sent)
    const last = waiting?.at(-1)
    if (waiting === undefined || last === undefined) return
    await new Promise<void>(resolve => {
      waiting[waiting.length - 1] = {
        ...last,
        settle: outcome => {
          last.settle(outcome)
          resolve()
        },
        fail: error => {
          last.fail(error)
          resolve()
        },
      }
    })
  }

  /** One barrier for all that ask: whoever comes while one is under way shares the next, since that begins after they asked. */
  #toTheEnd(): Promise<void> {
    const running = this.#barrier
    if (running === undefined) return this.#beginBarrier()
    running.next ??= running.begun.then(
      () => this.#beginBarrier(),
      () => this.#beginBarrier(),
    )
    return running.next
  }

  #beginBarrier(): Promise<void> {
    const begun = (async () => {
      while (await this.#readOn()) {
        // Until the end of the log.
      }
    })().catch(error => {
      if (!isTransient(error)) this.#fail(error)
      throw error
    })
    const barrier = { begun, next: undefined }
    this.#barrier = barrier
    const done = () => {
      if (this.#barrier === barrier && barrier.next === undefined) this.#barrier = undefined
    }
    begun.then(done, done)
    return begun
  }

  async read<K extends Query['kind']>(query: Extract<Query, { readonly kind: K }>, options: ReadOptions = {}): Promise<View<K>> {
    const { consistent = false, atLeast = 0, signal } = options
    signal?.throwIfAborted()
    this.#mustBeOpen()
    if (consistent || this.#state.revision < atLeast) await orAborted(this.#atTheEnd(), signal)
    if (this.#state.revision < atLeast)
      throw new LeaseError('UNAVAILABLE', `revision ${atLeast} has not been reached here: the log ends at ${this.#state.revision}`, {
        facts: { revision: this.#state.revision },
      })
    return view(this.#state, query, lease => this.#keeper.remaining(lease))
  }

  async *watch(prefix: string, { after, signal }: WatchOptions): AsyncGenerator<readonly Event[], void, void> {
    // One who has seen more than we have: catch up first.
    if (after !== undefined && after > this.#state.revision) await this.#atTheEnd()
    let revision = after ?? this.#state.revision
    while (!signal.aborted) {
      this.#mustBeOpen()
      const missed = revision > this.#state.revision ? undefined : this.#recent.after(revision)
      if (missed === undefined) {
        revision = this.#state.revision
        yield [{ revision, type: 'resync', lease: 0, at: this.#state.wall }]
        continue
      }
      for (const events of missed) {
        revision = events[0]!.revision
        const seen = prefix === '' ? events : events.filter(event => under(prefix, event.resource ?? event.key ?? ''))
        if (seen.length > 0) yield seen
        if (signal.aborted) return
      }
      if (missed.length === 0) await this.#changed(signal)
    }
  }

  #changed(signal: AbortSignal): Promise<void> {
    return new Promise(resolve => {
      const wake = () => {
        this.#onChange.delete(wake)
        signal.removeEventListener('abort', wake)
        this.#closing.signal.removeEventListener('abort', wake)
        resolve()
      }
      this.#onChange.add(wake)
      signal.addEventListener('abort', wake, { once: true })
      this.#closing.signal.addEventListener('abort', wake, { once: true })
    })
  }

  // What follows from having applied something

  #afterApply(): void {
    this.#tickWhileWaiting()
    const { entries, bytes } = this.#sinceSnapshot
    const due = entries >= this.#snapshotEntries || bytes >= this.#snapshotBytes
    if (due && this.#snapshotting === undefined && !this.#closed)
      this.#snapshotting = this.#snapshot().finally(() => (this.#snapshotting = undefined))
  }

  async #snapshot(): Promise<void> {
    const at = this.#position
    this.#sinceSnapshot = { entries: 0, bytes: 0 }
    // Replicas reach the mark together; each waits for its turn, and finds that it was done.
    const chunks = saveState(this.#state)
    const first = chunks.next()
    const clock = this.#clock
    const closing = this.#closing.signal
    async function* slices(): AsyncGenerator<Uint8Array> {
      try {
        for (let slice = first; !slice.done; slice = chunks.next()) {
          if (closing.aborted) throw closing.reason
          yield framed(slice.value)
          await new Promise<void>(resolve => clock.soon(resolve))
        }
      } finally {
        chunks.return()
      }
    }
    try {
      if ((await this.#store.snapshot(at, slices())) === 'kept') this.seen.snapshots++
    } catch (error) {
      // The log is still whole without it; the next try comes when as much again has been written.
      if (!isTransient(error) && !this.#closed) this.#fail(error)
    } finally {
      chunks.return()
    }
  }

  /** The log's own time passes only while someone's place in a queue depends on it. */
  #tickWhileWaiting(): void {
    if (this.#ticking !== undefined || this.#closed || this.#state.counts.waiting === 0 || !this.#aging()) return
    const { tick } = this.#state
    const began = this.#clock.now()
    this.#ticking = this.#clock.after(TICK * (1 + this.#turn() / 4), () => {
      this.#ticking = undefined
      if (this.#closed || this.#state.counts.waiting === 0) return
      if (this.#state.tick !== tick) return this.#tickWhileWaiting()
      const command = { kind: 'tick', n: tick + 1, elapsed: Math.floor(this.#clock.now() - began) } as const
      this.#enqueue(
        { command },
        () => this.#tickWhileWaiting(),
        () => {},
      )
    })
  }

  #aging(): boolean {
    for (const { aging = 0 } of this.#state.policies.values()) if (aging > 0) return true
    return false
  }

  /** Our place among those who proposed of late, by their numbers: everyone comes to the same order. */
  #turn(): number {
    if (this.#owned) return 0
    let before = 0
    for (const proposer of this.#state.proposers.keys()) if (proposer < this.#proposer && ++before === 8) break
    return before
  }

  // The end

  /** Nothing can be decided here any more; everyone who waits or asks later is told why. */
  #fail(error: unknown): void {
    if (this.#closing.signal.aborted) return
    this.#keeper.stop()
    this.#ticking?.()
    this.#closing.abort(error)
    const notDone =
      error instanceof LeaseError
        ? error
        : new LeaseError('UNAVAILABLE', `the replica stopped: ${(error as Error)?.message}`, { cause: error })
    if (this.#flight?.settled === false) {
      const { lost, underWay } = this.#flight
      // A copy may be in the log already.
      const unknown = new LeaseError('UNKNOWN', `the replica stopped while this was under way: ${notDone.message}`, { cause: error })
      this.#reject(this.#flight, lost || underWay ? unknown : notDone)
    }
    for (const { fail } of this.#takeUnsent()) fail(notDone)
    for (const wake of this.#onChange) wake()
  }

  /** Answers what is under way, leaves a mark of what has aged, and lets go of the store. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    if (!this.#closing.signal.aborted) this.#keeper.markBeforeLeaving(this.profile)
    this.#keeper.stop()
    this.#ticking?.()
    if (!this.#closing.signal.aborted) await Promise.race([this.#allSettled(), this.#pause(this.#patience)])
    this.#fail(new LeaseError('UNAVAILABLE', 'this replica was closed'))
    await this.#snapshotting
    await this.#store[Symbol.asyncDispose]()
    await this.#tailing
  }
}

/** Gives up waiting with the signal's own reason; what was waited for goes on. Leaves no listener behind. */
function orAborted<T>(promise: Promise<T>, signal: AbortSignal | undefined): Promise<T> {
  if (signal === undefined) return promise
  return new Promise((resolve, reject) => {
    const stop = () => reject(signal.reason)
    const done = () => signal.removeEventListener('abort', stop)
    if (signal.aborted) stop()
    else signal.addEventListener('abort', stop, { once: true })
    promise.then(resolve, reject).then(done)
  })
}

/** The store may work again, and nothing was decided on wrong ground. */
function isTransient(error: unknown): boolean {
  return error instanceof LeaseError && (error.code === 'UNAVAILABLE' || error.code === 'UNKNOWN') && error.facts.owner === undefined
}

function notToBeWritten(command: Command): string | undefined {
  if (isInternal(command)) return `${command.kind} is written by replicas only`
  // Every replica that does not know the new rules stops at this entry, for ever: we would be the first of them.
  if (command.kind === 'upgrade' && command.rules > RULES)
    return `this process knows the rules up to version ${RULES}: upgrade every process first, then raise the rules`
  return undefined
}

/** As `malformed`, for who asks: what cannot be encoded would spoil the entry for all who share it. */
function malformedAsker(key: number, op: Operation | undefined): string | undefined {
  const number = (value: unknown) => Number.isSafeInteger(value) && (value as number) >= 0
  if (!number(key)) return `${String(key)} is not the number of a key`
  if (op === undefined) return undefined
  const { session, seq, acked } = op
  if (typeof session !== 'string' || utf8Length(session) > NAME_BYTES) return `a session's name is text of at most ${NAME_BYTES} bytes`
  return number(seq) && number(acked) ? undefined : `an operation is numbered by whole numbers, not ${String(seq)} after ${String(acked)}`
}
