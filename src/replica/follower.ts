/**
 * Follows the log: loads the newest snapshot, applies what comes after it, and keeps the last events for those who watch. It decides
 * nothing; it only makes sure that what is decided rests on the log as it is.
 */
import type { Clock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import { understands } from '../kernel/apply.ts'
import { type Applied, applyBatch, type Batch, decodeBatch, WINDOW } from '../kernel/codec/batch.ts'
import { FromTheFuture } from '../kernel/codec/bytes.ts'
import { StateLoader, saveState } from '../kernel/codec/snapshot.ts'
import type { Generation } from '../kernel/command.ts'
import { EVENT_TYPES, type Event, type EventFilter, RecentEvents } from '../kernel/event.ts'
import { createState, type Lease, RULES, type Slot, type State } from '../kernel/state.ts'
import type { LogRecord, Position, Rejected, Snapshot, Store } from '../store.ts'
import { START } from '../store.ts'
import { framed, unframed } from './frame.ts'
import { isTransient } from './retry.ts'
import type { Timekeeper } from './timekeeper.ts'

/** How far the counters had come, and how long anyone may believe in what was lost. */
export type Survivor = Omit<Generation, 'kind'>

/** What a lease takes in a snapshot, and what an entry costs a store beside its bytes. */
const LEASE_BYTES = 64
const ENTRY_BYTES = 1_024

export interface FollowerOptions {
  readonly clock: Clock
  readonly proposer: number
  readonly closing: AbortSignal
  readonly keeper: () => Timekeeper
  /** Events kept for watches that resume. */
  readonly events: number
  /** An entry of our own was applied. Whether someone waited for it. */
  readonly own: (seq: number, applied: Applied) => boolean
  /** The log cannot be followed any more. */
  readonly broken: (error: unknown) => void
}

export class Follower {
  readonly #store: Store
  readonly #options: FollowerOptions
  #state = createState()
  #position: Position = START
  #recent: RecentEvents
  readonly #effects: { readonly events: Event[]; timer(lease: Lease | undefined, slot: Slot): void }
  /** Trails of the last entries: what a proposer says it had must be what we had. */
  readonly #trails = new Uint32Array(WINDOW * 2)
  #trailsFrom = 0
  /** Nonces of the last records, in the same places. */
  readonly #nonces = new BigUint64Array(WINDOW)
  #noncesFrom = 1
  #barrier: { readonly begun: Promise<void>; next: Promise<void> | undefined } | undefined
  #reloading: Promise<void> | undefined
  /** The entry that opened a log which awaited leases, while what we have is not what was carried into it: that must be loaded first. */
  #overlooked: number | undefined
  #tookIn: number | undefined
  /** Where we stood when it was loaded: what was asked for from there does not follow any more. */
  #stoodAt = 0
  readonly #onChange = new Set<ReplicaNews>()
  #sinceSnapshot = { entries: 0, bytes: 0 }
  /** For metrics and tests. */
  readonly stats = { snapshots: 0, reloads: 0 }
  /** What was applied since the log had been read, by type. */
  readonly happened: Record<string, number> = Object.fromEntries(EVENT_TYPES.map(type => [type, 0]))

  constructor(store: Store, options: FollowerOptions) {
    this.#store = store
    this.#options = options
    this.#recent = new RecentEvents(0, { limit: options.events })
    this.#effects = { events: [], timer: (lease, slot) => options.keeper().timer(lease, slot) }
  }

  get state(): State {
    return this.#state
  }

  get position(): Position {
    return this.#position
  }

  /** What whoever recovers a log that lost entries must know of this replica. */
  get survivor(): Survivor {
    const { nextLease, nextToken, nextKey, revision, longest, quiet } = this.#state
    // A quiet that still runs was asked for by others: it stands for what they saw.
    return { lease: nextLease, token: nextToken, revision, quiet: Math.max(longest, quiet?.duration ?? 0), key: nextKey }
  }

  /** What `wanted` lets pass after `revision`; undefined when that is no longer, or not yet, known here. */
  after(revision: number, wanted?: EventFilter): ReturnType<RecentEvents['after']> {
    return revision > this.#state.revision ? undefined : this.#recent.after(revision, wanted)
  }

  /** Tells the leases that events after `revision` name; false when some of those are no longer known here. */
  named(revision: number, tell: (lease: number) => void): boolean {
    const each: EventFilter = ({ lease }) => {
      if (lease !== 0) tell(lease)
      return false
    }
    return this.after(revision, each) !== undefined
  }

  // Loading

  async start(snapshot: Snapshot | undefined): Promise<void> {
    if (snapshot !== undefined) await this.#load(snapshot)
    else this.#options.keeper().load(this.#state, 0)
    while (await this.readOn()) {
      // Until the end of the log.
    }
    for (const type of EVENT_TYPES) this.happened[type] = 0
  }

  async #load(snapshot: Snapshot): Promise<void> {
    const loader = new StateLoader()
    let state: State
    try {
      for await (const chunk of unframed(snapshot.bytes)) loader.add(chunk)
      state = loader.finish()
    } catch (error) {
      throw unreadable(error, `the snapshot at ${snapshot.position.index}`)
    }
    if (this.#overlooked === undefined) {
      if (state.index <= this.#state.index) return // entries came in while it was read: we are past it
      const missing = lacking(state, this.#state)
      if (missing !== undefined) throw this.#diverged(`the snapshot at ${state.index} was made without entry ${missing}`)
    }
    this.#stoodAt = this.#state.index
    this.#tookIn = this.#overlooked
    this.#overlooked = undefined
    this.#state = state
    this.#position = snapshot.position
    this.#recent = new RecentEvents(this.#state.revision, { limit: this.#options.events })
    this.#trailsFrom = this.#state.index
    this.#noncesFrom = this.#state.index
    this.#keepTrail()
    this.#options.keeper().load(this.#state, snapshot.age)
    this.#sinceSnapshot = { entries: 0, bytes: 0 }
  }

  /** Too far behind: what is missing is only in the snapshot. */
  #reload(): Promise<void> {
    this.#reloading ??= (async () => {
      try {
        const snapshot = await this.#store.newest()
        if (snapshot === undefined) throw new LeaseError('DIVERGED', 'entries are gone from the log and there is no snapshot of them')
        if (snapshot.position.index <= this.#state.index && this.#overlooked === undefined) return
        this.stats.reloads++
        await this.#load(snapshot)
        this.#options.keeper().caughtUp()
        this.wake()
      } finally {
        this.#reloading = undefined
      }
    })()
    return this.#reloading
  }

  // Applying

  /** Applies what follows. Whether there was anything. */
  async readOn(wait?: AbortSignal): Promise<boolean> {
    if (this.#overlooked !== undefined) {
      await this.#reload()
      return true
    }
    const read = await this.#store.read(this.#position, wait === undefined ? {} : { wait })
    if (read.kind !== 'records') return this.notThere(read)
    this.applyAll(read.records)
    return read.records.length > 0
  }

  /** To where an entry was acknowledged. A log that ends before it has lost it. */
  async readUpTo({ index, nonce }: Position): Promise<void> {
    while (this.#state.index < index)
      if (!(await this.readOn()) && this.#state.index < index) throw this.#diverged(`it ends before ${index}, which was acknowledged`)
    if (this.#position.index === index && this.#position.nonce !== nonce) throw this.#diverged(`another entry stands at ${index}`)
  }

  async notThere(what: Rejected): Promise<true> {
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
    return new LeaseError('DIVERGED', `the log lost entries that this process had seen: ${reason}; nothing can be decided on it`, {
      facts: { ...this.survivor },
    })
  }

  applyAll(entries: readonly LogRecord[]): void {
    for (const entry of entries) {
      const { index, nonce } = entry.position
      if (this.#overlooked !== undefined || (index > this.#state.index + 1 && index <= this.#stoodAt + 1)) return
      if (index > this.#state.index) this.apply(entry)
      // Asked for before we came to where we stand: the store could not compare that. (What was under way while the log lost its tail would
      // otherwise be applied on top of what was lost, and nobody could tell afterwards.)
      else if (index === this.#position.index && nonce !== this.#position.nonce) throw this.#diverged(`another entry stands at ${index}`)
    }
  }

  /** `own`: the batch that these bytes were made of, where that is at hand. */
  apply({ position, bytes, age }: LogRecord, own?: Batch): void {
    let batch: Batch
    try {
      batch = own ?? decodeBatch(bytes)
    } catch (error) {
      throw unreadable(error, `entry ${position.index}`)
    }
    if (!this.#sameTrail(batch, position.index)) {
      this.#overlooked = position.index
      return
    }
    const { awaiting } = this.#state
    const keeper = this.#options.keeper()
    keeper.entering(age)
    const { events } = this.#effects
    let told = 0
    const applied = applyBatch(this.#state, position.index, batch, this.#effects, () => {
      if (events.length === told) return
      this.#recent.push(events, told)
      for (; told < events.length; told++) this.happened[events[told]!.type]!++
    })
    // Once for the whole entry: a list that is emptied loses its room.
    events.length = 0
    this.#position = position
    this.#keepTrail()
    // What others say of before was perhaps said by those who did not know what had been carried in.
    if (awaiting && !this.#state.awaiting) this.#trailsFrom = position.index
    this.#sinceSnapshot.entries++
    this.#sinceSnapshot.bytes += bytes.length
    if (!understands(this.#state))
      throw new LeaseError(
        'UNSUPPORTED',
        `the log has been raised to rules version ${this.#state.rules}, this process knows ${RULES}: upgrade it`,
      )
    const answered = batch.proposer === this.#options.proposer && this.#options.own(batch.seq, applied)
    if (!answered && own === undefined) keeper.learnTogether()
    if (told > 0) this.wake()
  }

  /** The nonce of a record, where it is among the last that were applied here. */
  recordAt(index: number): bigint | undefined {
    if (index > this.#state.index || index < Math.max(1, this.#noncesFrom) || this.#state.index - index >= WINDOW) return undefined
    return this.#nonces[index % WINDOW]
  }

  #keepTrail(): void {
    const slot = (this.#state.index % WINDOW) * 2
    this.#trails[slot] = this.#state.trailA
    this.#trails[slot + 1] = this.#state.trailB
    this.#nonces[this.#position.index % WINDOW] = this.#position.nonce
  }

  /**
   * Two replicas that applied the same entries and differ: one of them is broken, and nobody can say which. Not so where leases were carried into
   * the log while we had it open: they came as a snapshot, nothing has been decided since, and the entry that opens it is the first to differ.
   */
  #sameTrail({ applied, trail, proposer, proposals }: Batch, index: number): boolean {
    const { index: here, awaiting } = this.#state
    if (applied < this.#trailsFrom || applied > here || here - applied >= WINDOW || proposer === this.#options.proposer) return true
    if (awaiting && !proposals.some(({ command }) => command.kind === 'move' && command.into === 'end')) return true
    const slot = (applied % WINDOW) * 2
    if (this.#trails[slot] === trail[0] && this.#trails[slot + 1] === trail[1]) return true
    if (awaiting && this.#tookIn !== index) return false
    const message = `entry ${index} was proposed by a replica that decided otherwise up to entry ${applied}: compare versions`
    throw new LeaseError('DIVERGED', message, { facts: { ...this.survivor } })
  }

  // The end of the log, and news

  /** One barrier for all that ask: whoever comes while one is under way shares the next, since that begins after they asked. */
  toTheEnd(): Promise<void> {
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
      while (await this.readOn()) {
        // Until the end of the log.
      }
    })().catch(error => {
      if (!isTransient(error)) this.#options.broken(error)
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

  /** For one who watches, until `signal` or the end of this replica: listened to once, since every change comes by here. */
  news(signal: AbortSignal): ReplicaNews {
    const news = new ReplicaNews(() => {
      this.#onChange.delete(news)
      for (const over of [signal, closing]) over.removeEventListener('abort', wake)
    })
    const wake = () => news.wake()
    const { closing } = this.#options
    for (const over of [signal, closing]) over.addEventListener('abort', wake, { once: true })
    this.#onChange.add(news)
    if (signal.aborted || closing.aborted) wake()
    return news
  }

  wake(): void {
    for (const news of this.#onChange) news.wake()
  }

  // Snapshots

  snapshotDue(entries: number, bytes: number): boolean {
    const { entries: written, bytes: size } = this.#sinceSnapshot
    return written >= Math.max(entries, this.#weight / ENTRY_BYTES) || size >= Math.max(bytes, this.#weight)
  }

  /** About how many bytes a snapshot takes. As much is written between two of them: a large state would else be copied over and over. */
  get #weight(): number {
    const { leases, entries } = this.#state
    return LEASE_BYTES * (leases.size + entries.size)
  }

  /** Whether another replica has lately made one: then ours is not due yet. */
  async snapshotThere(entries: number): Promise<boolean> {
    const newest = await this.#store.newest().catch(() => undefined) // whether the store can be reached shows when one is made
    const since = this.#state.index - (newest?.position.index ?? 0)
    if (newest === undefined || since >= Math.max(entries, this.#weight / ENTRY_BYTES) / 2) return false
    this.#sinceSnapshot = { entries: Math.max(0, since), bytes: 0 }
    return true
  }

  /** Takes one in slices, while entries go on being applied. Replicas reach the mark together; the store keeps the first. */
  async snapshot(): Promise<void> {
    const at = this.#position
    this.#sinceSnapshot = { entries: 0, bytes: 0 }
    const { slices, end } = this.#slices()
    async function* frames(): AsyncGenerator<Uint8Array> {
      for await (const slice of slices) yield framed(slice)
    }
    try {
      if ((await this.#store.snapshot(at, frames())) === 'kept') this.stats.snapshots++
    } catch (error) {
      // The log is still whole without it; the next try comes when as much again has been written.
      const { closing, broken } = this.#options
      if (!isTransient(error) && !closing.aborted) broken(error)
    } finally {
      end()
    }
  }

  /** The state as it is now. Only while no snapshot is being taken, nor another of these. */
  async copy(): Promise<readonly Uint8Array[]> {
    const { slices, end } = this.#slices()
    const copied: Uint8Array[] = []
    try {
      for await (const slice of slices) copied.push(slice)
      return copied
    } finally {
      end()
    }
  }

  /** Begun before this returns: they are the state of this moment. */
  #slices(): { readonly slices: AsyncIterable<Uint8Array>; end(): void } {
    const chunks = saveState(this.#state)
    const first = chunks.next()
    const { clock, closing } = this.#options
    async function* slices(): AsyncGenerator<Uint8Array> {
      for (let slice = first; !slice.done; slice = chunks.next()) {
        if (closing.aborted) throw closing.reason
        yield slice.value
        await new Promise<void>(resolve => clock.soon(resolve))
      }
    }
    return { slices: slices(), end: () => void chunks.return() }
  }
}

/** Whether something was applied that a watcher could see. */
export class ReplicaNews implements Disposable {
  readonly #stop: () => void
  #wake: (() => void) | undefined

  constructor(stop: () => void) {
    this.#stop = stop
  }

  /** Resolves with the next change after this call, or when it is all over. */
  next(): Promise<void> {
    return new Promise(resolve => {
      this.#wake = resolve
    })
  }

  wake(): void {
    this.#wake?.()
    this.#wake = undefined
  }

  [Symbol.dispose](): void {
    this.#stop()
  }
}

/**
 * An entry that we have applied and that a later snapshot knows nothing of. Whoever was cut off while the log lost its tail, and for so long that
 * what followed was trimmed, is told by no position. But each proposer's last entry is known to both, unless it is WINDOW entries old.
 */
function lacking(snapshot: State, { proposers }: State): number | undefined {
  for (const [proposer, { seq, index }] of proposers) {
    const there = snapshot.proposers.get(proposer)
    const lost = there === undefined ? snapshot.index - index <= WINDOW : there.seq < seq || (there.seq === seq && there.index !== index)
    if (lost) return index
  }
  return undefined
}

function unreadable(error: unknown, what: string): LeaseError {
  if (error instanceof LeaseError) return error
  const { message } = error as Error
  if (error instanceof FromTheFuture)
    return new LeaseError('UNSUPPORTED', `${what} was written by a newer version of leasehold (${message}): upgrade this process`, {
      cause: error,
    })
  return new LeaseError('DIVERGED', `${what} is damaged (${message}): restore the log from a backup; nothing was changed`, { cause: error })
}
