/**
 * A kernel that follows one store: the Lessor of this process, or of the server's clients.
 *
 * The follower applies the log, the outbox writes to it, the timekeeper says when something is due. Answers go out when the entry is
 * durable and applied. What is certain to be refused is not written: it is answered from a state known to be at the log's end.
 */
import { setMaxListeners } from 'node:events'
import { type Clock, systemClock, whenAborted } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import { isInternal, refusal } from '../kernel/apply.ts'
import { answered } from '../kernel/codec/batch.ts'
import { malformed, malformedAsker } from '../kernel/codec/form.ts'
import { stateHash } from '../kernel/codec/snapshot.ts'
import type { Command, Operation, Proposal, Release, Run } from '../kernel/command.ts'
import { copyOf } from '../kernel/copy.ts'
import type { Event, EventType } from '../kernel/event.ts'
import { under } from '../kernel/name.ts'
import { GONE, type Outcome, type Refused, type Renewed } from '../kernel/outcome.ts'
import { mayRenew } from '../kernel/rule/authority.ts'
import { movedAway } from '../kernel/rule/move.ts'
import { MAX_RENEWALS } from '../kernel/rule/renew.ts'
import { needsTicks } from '../kernel/rule/service.ts'
import { findLease } from '../kernel/state/leases.ts'
import { RULES, type State } from '../kernel/state.ts'
import {
  type Completion,
  complete,
  type Lessor,
  type ProposeOptions,
  type Query,
  type ReadOptions,
  type View,
  type WatchOptions,
} from '../lessor.ts'
import type { Appended, Profile, Store } from '../store.ts'
import { backupBytes } from './backup.ts'
import { Follower, type Survivor } from './follower.ts'
import { ListReader } from './lists.ts'
import { type InFlight, Outbox } from './outbox.ts'
import type { EventFilter } from './recent-events.ts'
import { isTransient, orAborted, pauseUnless, within } from './retry.ts'
import { Timekeeper } from './timekeeper.ts'
import { view } from './view.ts'
import { isMadeUpFor, judge, readWitness, type Witness, witnessOf, writeWitness } from './witness.ts'

export type { Survivor } from './follower.ts'

export interface ReplicaOptions {
  readonly clock?: Clock
  /** The store was opened as its owner: renewals may be kept in memory. */
  readonly owned?: boolean
  /** What a survivor of a log that lost entries had seen: a new generation begins above it. */
  readonly survivor?: Survivor
  /** After so long without an answer from the store a proposal is told that its fate is unknown; it may still be carried out. */
  readonly timeout?: number
  readonly snapshotEntries?: number
  readonly snapshotBytes?: number
  /** Events kept for watches that resume. */
  readonly events?: number
}

/** Renewals of which some were kept in memory: 0 stands for those that must be written. */
interface Partly {
  readonly kind: 'partly'
  readonly ttls: readonly number[]
  readonly logged: readonly number[]
}

const RETRY_FIRST = 10
const RETRY_LAST = 1_000
const TICK = 1_000
/** In so many turns as much again has been written. */
const SNAPSHOT_TURNS = 8
/** For what only fades: a row of sweeps, a penalty. */
const SLOW_TICK = 5_000

export class Replica implements Lessor {
  readonly #store: Store
  readonly #clock: Clock
  readonly #owned: boolean
  readonly #timeout: number
  readonly #snapshotEntries: number
  readonly #snapshotBytes: number
  readonly #closing = new AbortController()
  readonly #proposer: number
  readonly #follower: Follower
  readonly #outbox: Outbox
  readonly #keeper: Timekeeper
  readonly #lists: ListReader
  #snapshotting: Promise<void> | undefined
  #tailing: Promise<void> | undefined
  #ticking: (() => void) | undefined
  #memoryRenewals = 0
  #closed = false
  #told: { readonly index: number; readonly run: State['run']; readonly text: string } | undefined
  #recovering = Promise.resolve()
  #rewinds = 0

  private constructor(store: Store, options: ReplicaOptions) {
    const { clock = systemClock, owned = false, timeout = 30_000, events = 100_000 } = options
    const { snapshotEntries = 10_000, snapshotBytes = 8 << 20 } = options
    const closing = this.#closing.signal
    setMaxListeners(0, closing) // every watch and every pause listens there
    const broken = (error: unknown) => this.#fail(error)
    this.#store = store
    this.#clock = clock
    this.#owned = owned
    this.#timeout = timeout
    this.#snapshotEntries = snapshotEntries
    this.#snapshotBytes = snapshotBytes
    const proposer = Number(clock.bits() >> 11n) || 1
    this.#proposer = proposer
    this.#follower = new Follower(store, {
      ...{ clock, proposer, closing, events, broken },
      keeper: () => this.#keeper,
      own: (seq, applied) => this.#outbox.seenInLog(seq, applied),
    })
    this.#outbox = new Outbox({
      ...{ clock, timeout, proposer, closing, broken },
      applied: () => ({ applied: this.#state.index, trail: [this.#state.trailA, this.#state.trailB] }),
      reloads: () => this.#follower.stats.reloads,
      append: bytes => store.append(bytes, this.#follower.position),
      arrived: (flight, appended) => this.#arrived(flight, appended),
      after: () => this.#afterApply(),
    })
    this.#keeper = new Timekeeper(this.#state, {
      clock,
      // Only what is certain is told: while a `due` can still reach the log, its lease must not be renewed in memory.
      propose: (command, settled) =>
        this.#outbox.put({ proposal: { command }, told: { settle: settled, fail: () => settled(undefined) }, patient: true }),
      drain: () => this.#drain(),
      turn: () => this.#turn(),
    })
    this.#lists = new ListReader({
      clock,
      state: () => this.#state,
      remaining: lease => this.#keeper.remaining(lease),
      named: (after, tell) => this.#follower.named(after, tell),
    })
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

  get #state(): State {
    return this.#follower.state
  }

  get profile(): Profile {
    return this.#store.profile
  }

  get signal(): AbortSignal {
    return this.#closing.signal
  }

  /** The last append failed, with this: undefined as soon as one has succeeded. */
  get trouble(): { readonly error: LeaseError; readonly at: number } | undefined {
    return this.#outbox.trouble
  }

  get revision(): number {
    return this.#state.revision
  }

  get index(): number {
    return this.#state.index
  }

  /** What whoever recovers a log that lost entries must know of this replica. */
  get survivor(): Survivor {
    return this.#follower.survivor
  }

  /** Equal on every replica that has applied as much. Costs a walk over everything. */
  hash(): string {
    return stateHash(this.#state)
  }

  /** For metrics and tests. */
  get stats(): Outbox['stats'] & Follower['stats'] & { readonly memoryRenewals: number; readonly rewinds: number } {
    return { ...this.#outbox.stats, ...this.#follower.stats, memoryRenewals: this.#memoryRenewals, rewinds: this.#rewinds }
  }

  /** How late proposals were and how long this process stood still, for metrics and tests. */
  get timing(): Timekeeper['stats'] {
    return this.#keeper.stats
  }

  /** Everything that can be counted here, by name: for an operator's figures. */
  get figures(): Readonly<Record<string, number>> {
    const { within, ms } = this.#outbox.took
    const { index, revision } = this.#state
    return {
      ...this.stats,
      ...this.timing,
      index,
      appliedRevision: revision,
      ...Object.fromEntries(Object.entries(this.#follower.happened).map(([type, count]) => [`events.${type}`, count])),
      ...Object.fromEntries(within.map(([bound, count]) => [`commit.le.${bound === Number.POSITIVE_INFINITY ? 'inf' : bound}`, count])),
      'commit.ms': ms,
    }
  }

  // Taking part

  async #start(survivor: Survivor | undefined): Promise<void> {
    const { snapshot } = await this.#store.open()
    const { ended } = this.#store
    if (ended !== undefined) whenAborted(ended, () => this.#fail(ended.reason))
    await this.#follower.start(snapshot)
    this.#keeper.learnTogether()
    const { run } = this.#state
    if (this.#owned || run.owned) {
      const ms = this.#keeper.runSoFar()
      const commands: Command[] = []
      if (run.owned && ms > run.ms) commands.push({ kind: 'aged-together', run: run.number, ms })
      // An owner is the log's only reader, so no older build can be left behind. On a shared log the operator raises the rules.
      if (this.#owned) for (let rules = this.#state.rules + 1; rules <= RULES; rules++) commands.push({ kind: 'upgrade', rules })
      commands.push(this.#newRun())
      // In one record: a run begins with the first that its owner writes, and what went before it belongs to the last one.
      await Promise.all(commands.map(command => this.#submit({ command })))
      if (this.#owned) this.#keeper.ownRunBegan()
    }
    if (survivor !== undefined) await this.#submit({ command: { kind: 'generation', ...survivor } })
    // Only now may anything be said to be due: before, a renewal may have been among what was lost.
    this.#keeper.caughtUp()
    this.#tickWhileNeeded()
    if (this.#owned) return
    this.#keeper.judgeFound()
    this.#tailing = this.#tail()
  }

  #newRun(): Run {
    const owned = this.#owned
    const { rules, lineage } = this.#state
    if (rules < 2 && !owned) return { kind: 'run', owned } // builds that share the log may not know more
    const bits = () => this.#clock.bits()
    const nonce = Number(bits() >> 11n) || 1
    if (lineage.secret !== '') return { kind: 'run', owned, nonce }
    return { kind: 'run', owned, nonce, secret: [bits(), bits()].map(part => part.toString(16).padStart(16, '0')).join('') }
  }

  async #tail(): Promise<void> {
    let pause = RETRY_FIRST
    while (!this.#closed) {
      try {
        await this.#follower.readOn(this.#closing.signal)
        pause = RETRY_FIRST
        this.#afterApply()
      } catch (error) {
        // Also once it has failed: what ended it may be of the kind that passes, and the signal that wakes us has fired already.
        if (this.#closed || this.#closing.signal.aborted) return
        if (!isTransient(error)) return this.#fail(error)
        await pauseUnless(this.#clock, pause, this.#closing.signal)
        pause = Math.min(pause * 2, RETRY_LAST)
      }
    }
  }

  /** Everything that waits has been read: the sockets of this process, and the log. */
  async #drain(): Promise<void> {
    // One turn for input that is ready, one more for what it leads to.
    await new Promise<void>(resolve => this.#clock.soon(resolve))
    await new Promise<void>(resolve => this.#clock.soon(resolve))
    if (!this.#owned) await this.#follower.toTheEnd()
  }

  /** Whether an entry of ours has been dealt with. */
  async #arrived(flight: InFlight, appended: Appended): Promise<boolean> {
    if (appended.kind === 'appended') {
      const { position, missed } = appended
      this.#follower.applyAll(missed)
      if (this.#state.index === position.index - 1) this.#follower.apply({ position, bytes: flight.bytes, age: 0 }, flight.batch)
      else await this.#follower.readUpTo(position)
    } else if (appended.kind === 'behind') await this.#follower.readUpTo(appended.position)
    else {
      await this.#follower.notThere(appended)
      return flight.settled
    }
    if (!flight.settled) this.#outbox.tellSkipped(flight)
    return true
  }

  #afterApply(): void {
    this.#tickWhileNeeded()
    if (this.#closed || this.#snapshotting !== undefined || !this.#snapshotDue()) return
    this.#snapshotting = this.#snapshot().finally(() => (this.#snapshotting = undefined))
  }

  /** Every replica counts for itself, and one of them is enough: each waits a little longer than the one before it. */
  #snapshotDue(): boolean {
    if (this.#state.awaiting) return false // it would take the place of what is being carried in
    const later = 1 + this.#turn() / SNAPSHOT_TURNS
    return this.#follower.snapshotDue(this.#snapshotEntries * later, this.#snapshotBytes * later)
  }

  /** Whoever's turn comes later finds it there. */
  async #snapshot(): Promise<void> {
    if (this.#turn() > 0 && (await this.#follower.snapshotThere(this.#snapshotEntries))) return
    if (!this.#closed) await this.#follower.snapshot()
  }

  /** The log's own time passes only while something depends on it: a place in a queue, or what is held against a registration. */
  #tickWhileNeeded(): void {
    const pace = this.#pace()
    if (this.#ticking !== undefined || this.#closed || pace === 0) return
    const { tick } = this.#state
    const began = this.#clock.now()
    this.#ticking = this.#clock.after(pace * (1 + this.#turn() / 4), () => {
      this.#ticking = undefined
      if (this.#closed || this.#pace() === 0) return
      if (this.#state.tick !== tick) return this.#tickWhileNeeded()
      const command = { kind: 'tick', n: tick + 1, elapsed: Math.floor(this.#clock.now() - began) } as const
      this.#submit({ command }).then(
        () => this.#tickWhileNeeded(),
        () => {},
      )
    })
  }

  #pace(): number {
    if (this.#state.counts.waiting > 0) for (const { aging = 0 } of this.#state.policies.values()) if (aging > 0) return TICK
    return needsTicks(this.#state) ? SLOW_TICK : 0
  }

  /** Our place among those who proposed of late, by their numbers: everyone comes to the same order. */
  #turn(): number {
    if (this.#owned) return 0
    let before = 0
    for (const proposer of this.#state.proposers.keys()) if (proposer < this.#proposer && ++before === 8) break
    return before
  }

  // Proposing

  propose(command: Command, options: ProposeOptions = {}): Promise<Outcome> {
    try {
      return this.#propose(command, options)
    } catch (error) {
      return Promise.reject(error)
    }
  }

  submit(command: Command, options: ProposeOptions, told: Completion): void {
    const { op, key = 0, signal } = options
    if (signal !== undefined) return complete(told, this.propose(command, options))
    try {
      const known = this.#withoutLog(command, key, op)
      if (known === undefined) {
        const proposal = proposalOf(command, key, op)
        if (op?.again !== true && this.#looksRefused(command)) complete(told, this.#submitUnlessRefused(proposal, undefined))
        else this.#write(proposal, told)
      } else if (known.kind === 'partly') complete(told, this.#renewRest(known, key, undefined))
      else told.settle(known)
    } catch (error) {
      told.fail(error)
    }
  }

  /** Not async itself: the usual way is one promise from here to the answer. */
  #propose(command: Command, { op, key = 0, signal }: ProposeOptions): Promise<Outcome> {
    signal?.throwIfAborted()
    const known = this.#withoutLog(command, key, op)
    if (known?.kind === 'partly') return this.#renewRest(known, key, signal)
    if (known !== undefined) return Promise.resolve(known)
    const proposal = proposalOf(command, key, op)
    const answer = op?.again !== true && this.#looksRefused(command) ? this.#submitUnlessRefused(proposal, signal) : this.#submit(proposal)
    return orAborted(answer, signal)
  }

  /** What is not one of our commands, and renewals that an owner keeps in memory where the time law allows it. Undefined: the log decides. */
  #withoutLog(command: Command, key: number, op: Operation | undefined): Refused | Renewed | Partly | undefined {
    this.#mustBeOpen()
    const wrong = malformed(command) ?? notToBeWritten(command) ?? malformedAsker(key, op)
    if (wrong !== undefined) return { kind: 'refused', revision: this.#state.revision, code: 'INVALID', message: wrong, facts: {} }
    if (command.kind !== 'renew' || command.waiting === true || !this.#owned || op !== undefined) return undefined
    if (this.#state.moved !== undefined || command.leases.length > MAX_RENEWALS) return undefined
    return this.#renewInMemory(command.leases, key)
  }

  #submit(proposal: Proposal): Promise<Outcome> {
    return new Promise((settle, fail) => this.#write(proposal, { settle, fail }))
  }

  #write(proposal: Proposal, told: Completion): void {
    const { command } = proposal
    if (command.kind === 'transfer') this.#keeper.markForHeir(command.lease)
    if (command.kind === 'release' && command.stopped !== undefined && this.#state.rules < 2)
      return this.#writeEach(proposal, command, told)
    this.#outbox.put({ proposal, told, patient: false })
  }

  /** By the rules of version 1 a release names one lease, and older builds that share the log read no other. */
  #writeEach(proposal: Proposal, { kind, lease, stopped = [] }: Release, told: Completion): void {
    const unheard: Completion = { settle: () => {}, fail: () => {} }
    const { key = 0 } = proposal
    for (const child of stopped) this.#outbox.put({ proposal: { command: { kind, lease: child }, key }, told: unheard, patient: false })
    this.#outbox.put({ proposal: { ...proposal, command: { kind, lease } }, told, patient: false })
  }

  async #submitUnlessRefused(proposal: Proposal, signal: AbortSignal | undefined): Promise<Outcome> {
    await orAborted(this.#atTheEnd(), signal)
    const refused = answered(this.#state, proposal) ?? refusal(this.#state, proposal)
    return refused ?? this.#submit(proposal)
  }

  /** Cheap to ask, and never wrong in the one way that matters: what it lets pass is decided in the log. */
  #looksRefused(command: Command): boolean {
    if (this.#state.moved !== undefined) return true
    if (command.kind === 'release') return findLease(this.#state, command.lease) === undefined
    if (command.kind !== 'acquire' || command.wait === true) return false
    for (const { resource } of command.wants) if (this.#state.resources.has(resource)) return true
    return false
  }

  #mustBeOpen(): void {
    if (this.#closing.signal.aborted) throw this.#closing.signal.reason
    if (this.#closed) throw new LeaseError('UNAVAILABLE', 'this replica is closing')
  }

  #renewInMemory(leases: readonly number[], key: number): Renewed | Partly {
    const ttls: number[] = []
    const logged: number[] = []
    const now = this.#keeper.now()
    for (const id of leases) {
      const lease = findLease(this.#state, id)
      if (lease === undefined || !mayRenew(this.#state, key, lease)) ttls.push(GONE)
      else if (this.#keeper.renewInMemory(lease, now)) ttls.push(lease.ttl)
      else {
        ttls.push(0)
        logged.push(id)
      }
    }
    this.#memoryRenewals += leases.length - logged.length
    return logged.length === 0 ? { kind: 'renewed', revision: this.#state.revision, ttls } : { kind: 'partly', ttls, logged }
  }

  async #renewRest({ ttls, logged }: Partly, key: number, signal: AbortSignal | undefined): Promise<Outcome> {
    const outcome = await orAborted(this.#submit({ command: { kind: 'renew', leases: logged }, key }), signal)
    if (outcome.kind !== 'renewed') return outcome
    const written = outcome.ttls.values()
    return {
      kind: 'renewed',
      revision: outcome.revision,
      ttls: ttls.map(ttl => (ttl === 0 ? written.next().value! : ttl)),
    } satisfies Renewed
  }

  // Reading

  /**
   * What callers proposed here before is applied, and the log has been read to its end as of now. `UNAVAILABLE` after `timeout`: the store may be silent for
   * ever, and nothing that waits here was sent.
   */
  #atTheEnd(): Promise<void> {
    if (this.#owned && this.#outbox.idle) return Promise.resolve()
    return within(this.#clock, this.#timeout, this.#reachTheEnd(), () => silent(this.#timeout))
  }

  async #reachTheEnd(): Promise<void> {
    if (!this.#owned) {
      // Not what the timekeeper proposed: nobody was told of it, and the end of the log says what became of it.
      await this.#outbox.answered()
      this.#mustBeOpen()
      return this.#follower.toTheEnd()
    }
    const asked = this.#outbox.lastSeq
    await this.#outbox.allSettled()
    this.#mustBeOpen()
    // An owner's end of the log is what it wrote itself; while the fate of that is unknown, so is the end.
    if (this.#outbox.undecided(asked))
      throw new LeaseError('UNAVAILABLE', 'the store has not answered yet: nothing can be said about the end of the log; ask again')
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
    const answer = (await this.#answer(query, signal)) as View<K>
    // Afterwards: a long list is of the state that its last turn met.
    if (query.kind !== 'summary') this.#mustBeHere(this.#state.moved)
    return answer
  }

  #answer(query: Query, signal: AbortSignal | undefined): View | Promise<View> {
    if (query.kind === 'leases' || query.kind === 'resources' || query.kind === 'entries') return this.#lists.read(query, signal)
    return view(this.#state, query, lease => this.#keeper.remaining(lease))
  }

  /** What this log holds says nothing of leases that have left it, or that are still on their way. */
  #mustBeHere(moved: string | undefined): void {
    if (moved === undefined) return
    const { code, message, facts } = movedAway(this.#state, moved)
    throw new LeaseError(code, message, { facts })
  }

  async *watch(prefix: string, { after, types, signal }: WatchOptions): AsyncGenerator<readonly Event[], void, void> {
    // One who has seen more than we have: catch up first.
    if (after !== undefined && after > this.#state.revision)
      try {
        await orAborted(this.#atTheEnd(), signal)
      } catch (error) {
        if (signal.aborted) return
        throw error
      }
    let revision = after ?? this.#state.revision
    const wanted = wantedBy(prefix, types)
    using news = this.#follower.news(signal)
    while (!signal.aborted) {
      this.#mustBeOpen()
      const missed = this.#follower.after(revision, wanted)
      if (missed === undefined) {
        revision = this.#state.revision
        yield [{ revision, type: 'resync', lease: 0, at: this.#state.wall }]
        continue
      }
      for (const events of missed.revisions) {
        yield events
        if (signal.aborted) return
      }
      if (missed.upTo === revision) {
        this.#mustBeHere(this.#state.moved || undefined) // on their way, nothing happens anywhere
        await news.next()
      }
      revision = missed.upTo
    }
  }

  async *backup({ signal }: { readonly signal?: AbortSignal } = {}): AsyncGenerator<Uint8Array, void, void> {
    signal?.throwIfAborted()
    this.#mustBeOpen()
    await orAborted(this.#atTheEnd(), signal)
    while (this.#snapshotting !== undefined) await orAborted(this.#snapshotting, signal)
    this.#mustBeOpen()
    // Copied whole before the first byte leaves: a reader that takes its time must not keep the log from being snapshotted.
    const copying = this.#follower.copy()
    this.#snapshotting = copying.then(
      () => (this.#snapshotting = undefined),
      () => (this.#snapshotting = undefined),
    )
    yield* backupBytes(await orAborted(copying, signal))
  }

  // What clients saw

  get witness(): string {
    const { index, run } = this.#state
    if (this.#told?.index !== index || this.#told.run !== run)
      this.#told = { index, run, text: writeWitness(witnessOf(this.#state, this.#follower.position), this.#state.lineage.secret) }
    return this.#told.text
  }

  async continues(text: string): Promise<boolean> {
    this.#mustBeOpen()
    // What was told last: nearly always.
    if (text === this.#told?.text) return true
    const seen = readWitness(text, this.#state.lineage.secret)
    // Of another version, perhaps: it says nothing. Nor can a log speak for leases that are elsewhere.
    if (seen === undefined || this.#state.moved !== undefined) return true
    // A replica of a shared log may only lag.
    if (!this.#owned && seen.index > this.#state.index) await this.#atTheEnd()
    const verdict = judge(this.#state, seen, index => this.#follower.recordAt(index))
    if (verdict === 'contained') return true
    // One after another: the first to tell of a loss makes up for all that the same loss concerns.
    if (this.#owned && seen.signed) {
      const recovered = this.#recovering.then(() => this.#recover(seen, verdict.lost))
      this.#recovering = recovered
      await recovered
    }
    return false
  }

  async #recover(seen: Witness, fork: number): Promise<void> {
    if (isMadeUpFor(this.#state, seen, fork)) return
    const { lease, token, revision, quiet } = seen
    try {
      await this.#submit({ command: { kind: 'generation', lease, token, revision, quiet } })
      this.#rewinds++
    } catch {
      // The store cannot be written to at the moment, so nothing is granted either. Whoever tells of it next tries again.
    }
  }

  // The end

  /** Nothing can be decided here any more; everyone who waits or asks later is told why. */
  #fail(error: unknown): void {
    if (this.#closing.signal.aborted) return
    this.#keeper.stop()
    this.#ticking?.()
    const { message } = (error ?? {}) as { message?: string }
    const reason = error instanceof LeaseError ? error : new LeaseError('UNAVAILABLE', `the replica stopped: ${message}`, { cause: error })
    this.#closing.abort(reason)
    this.#outbox.close(reason)
    this.#follower.wake()
  }

  /** Answers what is under way, leaves a mark of what has aged, and lets go of the store. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#closed) return
    this.#closed = true
    if (!this.#closing.signal.aborted) this.#keeper.markBeforeLeaving(this.profile)
    this.#keeper.stop()
    this.#ticking?.()
    if (!this.#closing.signal.aborted)
      await Promise.race([this.#outbox.allSettled(), pauseUnless(this.#clock, this.#timeout, this.#closing.signal)])
    this.#fail(new LeaseError('UNAVAILABLE', 'this replica was closed'))
    await this.#snapshotting
    await this.#store[Symbol.asyncDispose]()
    await this.#tailing
  }
}

function silent(timeout: number): LeaseError {
  return new LeaseError(
    'UNAVAILABLE',
    `no answer from the store for ${timeout} ms: the end of the log is not known, and nothing was sent; ask again`,
  )
}

function wantedBy(prefix: string, types: readonly EventType[] | undefined): EventFilter | undefined {
  if (types === undefined) return prefix === '' ? undefined : event => under(prefix, event.resource ?? event.key ?? '')
  return event => types.includes(event.type) && (prefix === '' || under(prefix, event.resource ?? event.key ?? ''))
}

/** The caller may change its own objects while this waits for the log: what is written must be what is applied. */
function proposalOf(command: Command, key: number, op: Operation | undefined): Proposal {
  const own = copyOf(command)
  return op === undefined ? { command: own, key } : { command: own, key, op: { ...op } }
}

function notToBeWritten(command: Command): string | undefined {
  if (isInternal(command)) return `${command.kind} is written by replicas only`
  // Every replica that does not know the new rules stops at this entry, for ever: we would be the first of them.
  if (command.kind === 'upgrade' && command.rules > RULES)
    return `this process knows the rules up to version ${RULES}: upgrade every process first, then raise the rules`
  return undefined
}
