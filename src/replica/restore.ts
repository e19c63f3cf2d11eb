/**
 * Replaces the contents of a log by a backup, or by the leases that move from another log.
 *
 * Not guaranteed: what was decided after the backup was taken. Leases granted since then are unknown to the restored log, and keys revoked since then work
 * again. Guaranteed: tokens, ids and revisions continue above all that the backup or the log itself has given out; nothing is granted until the longest
 * term that a holder may still trust has passed, and leases in the backup last at least as long; fences never go back; until the last step the log keeps its
 * contents. The log that the backup was made from knows that longest term. Into another log, the caller has to say it.
 *
 * The new contents are written as a snapshot, which running replicas do not read. So the log is owned where the store supports it. Elsewhere it must be
 * empty, and it decides nothing (`move` with `into`) from before the snapshot until a record after it: that record carries the decision hash of the snapshot,
 * and replicas with another decision hash load the snapshot (log.ts).
 */
import { type Clock, systemClock } from '../clock.ts'
import { inWords } from '../duration.ts'
import { LeaseError } from '../errors.ts'
import { apply, understands } from '../kernel/apply.ts'
import { type Applied, applyBatch, type Batch, decodeBatch, encodeBatch } from '../kernel/codec/batch.ts'
import { StateLoader, saveState } from '../kernel/codec/snapshot.ts'
import type { Generation, Move } from '../kernel/command.ts'
import type { Outcome } from '../kernel/outcome.ts'
import type { Effects } from '../kernel/rule/effects.ts'
import { rule } from '../kernel/rule/policy.ts'
import { carryLineage } from '../kernel/state/lineage.ts'
import { recordFence } from '../kernel/state/resources.ts'
import { createState, RULES, type State } from '../kernel/state.ts'
import { refusedError } from '../refused-error.ts'
import { type Position, START, type Store } from '../store.ts'
import { frameChunk, readFrames } from './frame.ts'
import { missingRecord } from './log.ts'
import { unreadable } from './unreadable.ts'

const BEGIN: Move = { kind: 'move', into: 'begin' }
const END: Move = { kind: 'move', into: 'end' }

export interface RestoreOptions {
  readonly clock?: Clock
  /**
   * The longest ttl, in ms, that a client may have been granted after the backup was made. Needed unless the log is the one that the backup was made from, and
   * has all its records.
   */
  readonly longestTtl?: number
  /** Instead: no client runs any more that was granted a lease after the backup was made. */
  readonly clientsStopped?: boolean
  /** Called with the present contents of the log. An error that it throws stops the restore before anything is changed. */
  readonly confirm?: (found: LogContents) => void | PromiseLike<void>
}

/** The contents of a log, in numbers. */
export interface LogContents {
  readonly leases: number
  readonly policies: number
  readonly keys: readonly string[]
  readonly nextToken: number
  readonly revision: number
  /** For how many ms nothing is granted. */
  readonly quiet: number
}

/** Takes over the store: opens it and disposes of it. */
export async function restore(store: Store, backup: State, options: RestoreOptions = {}): Promise<LogContents> {
  const { clock = systemClock, confirm, longestTtl, clientsStopped = false } = options
  await using here = store
  const target = await OfflineLog.open(here)
  if (here.profile.shared && target.state.index > 0)
    throw new LeaseError(
      'UNSUPPORTED',
      'a log that other processes may have open cannot be replaced: restore into an empty one, as with ?name=NEW',
    )
  for (const { moved } of [target.state, backup])
    if (moved) throw new LeaseError('INVALID', `the leases of this log have moved to ${moved}: restore there`, { facts: { moved } })
  await confirm?.(contentsOf(target.state))
  if (longestTtl === undefined && !clientsStopped && !contains(target.state, backup)) throw longestTtlUnknown(backup)

  // First in the log itself: whatever fails later, its counters are above all that the backup has given out.
  const above: Generation = {
    kind: 'generation',
    lease: Math.max(target.state.nextLease, backup.nextLease),
    token: Math.max(target.state.nextToken, backup.nextToken),
    revision: Math.max(target.state.revision, backup.revision),
    quiet: Math.max(longestTtl ?? 0, longest(target.state), longest(backup)),
  }
  const { shared } = here.profile
  if (shared) await target.close(above, clock)
  else await target.append([above], clock)
  takePlaceOf(target.state, backup)
  const { nextLease: lease, nextToken: token, revision } = target.state
  apply(backup, { command: { ...above, lease, token, revision } }, silent())
  try {
    await target.replaceBy(backup, clock)
    if (shared) await target.append([END], clock)
  } catch (error) {
    if (!(error instanceof LeaseError)) throw error
    // The caller must not take this for "nothing was done": the log has one more generation.
    throw new LeaseError(error.code, error.message, { cause: error, reason: error.reason, facts: { ...error.facts, restore: 'begun' } })
  }
  return contentsOf(backup)
}

/**
 * Writes the leases of a log that decides nothing any more into an empty log. Unlike a backup, `left` is complete: no holder trusts anything that it does
 * not contain, so no quiet period is needed. The leases are not in force there until `completeMove`; before that, the old log must have recorded, for good,
 * where they are.
 */
export async function restoreMoved(
  store: Store,
  left: State,
  { clock = systemClock }: { readonly clock?: Clock } = {},
): Promise<LogContents> {
  if (left.moved === undefined) throw new Error('leases can be granted in the log that they leave')
  await using here = store
  const target = await OfflineLog.open(here)
  const { nextLease: lease, nextToken: token, revision } = left
  await target.close({ kind: 'generation', lease, token, revision, quiet: 0 }, clock)
  takePlaceOf(target.state, left)
  left.nextLease = target.state.nextLease
  left.nextToken = target.state.nextToken
  // Above every revision that a reader of this log has seen: its watches must resync.
  left.revision = target.state.revision + 1
  await target.replaceBy(left, clock)
  return contentsOf(left)
}

/** Checks, without a change, that the store can take moved leases. Throws the reason why `restoreMoved` would fail. */
export async function mustBeEmpty(store: Store): Promise<void> {
  try {
    const { state } = await OfflineLog.open(store)
    const outcome = apply(state, { command: BEGIN }, silent())
    if (outcome.kind === 'refused') throw refusedError(outcome)
  } finally {
    await Promise.resolve(store[Symbol.asyncDispose]()).catch(() => {}) // nothing was written, so nothing is lost
  }
}

/** Puts the leases that `restoreMoved` has written in force; every term begins anew. False: they were in force already. */
export async function completeMove(store: Store, { clock = systemClock }: { readonly clock?: Clock } = {}): Promise<boolean> {
  await using here = store
  const target = await OfflineLog.open(here)
  if (!target.state.awaiting) return false
  await target.append([END], clock)
  return true
}

/** Whether the log has all records of the backup: then it knows the longest term of all that it has granted since. */
function contains(log: State, backup: State): boolean {
  const isSame = [...backup.proposers.keys()].some(proposer => log.proposers.has(proposer))
  return isSame && log.index >= backup.index && missingRecord(log, backup) === undefined
}

function longestTtlUnknown(backup: State): LeaseError {
  const { longest: known, allowed } = longestTtlOf(backup)
  return new LeaseError(
    'INVALID',
    `leases that were granted after the backup was made may be longer than any that it knows (${inWords(known)}), so it is not known when their holders have stopped; its policies allow ${inWords(allowed)}`,
    { reason: 'longest-ttl', facts: { known, allowed } },
  )
}

/** The longest term that a state has given, and the longest ttl that its policies allow. */
function longestTtlOf(state: State): { readonly longest: number; readonly allowed: number } {
  const named = [...state.policies.values()].map(rules => rules.ttlMax ?? 0)
  return { longest: longest(state), allowed: Math.max(rule(state, '', 'ttlMax'), ...named) }
}

/** For how long a holder may trust what this state, or one before it, has granted. */
function longest({ longest: term, quiet }: State): number {
  return Math.max(term, quiet?.duration ?? 0)
}

/** Gives `backup` the position of `target` in its log. */
function takePlaceOf(target: State, backup: State): void {
  backup.index = target.index
  backup.wall = Math.max(target.wall, backup.wall)
  backup.moved = target.moved
  backup.awaiting = target.awaiting
  // These belong to the log, not to its contents: its proposers and runs. The decision hash stays that of the backup, so that a replica which missed the
  // snapshot is detected with its first record.
  backup.proposers.clear()
  for (const [proposer, known] of target.proposers) backup.proposers.set(proposer, known)
  backup.run = { ...target.run }
  backup.lineage = carryLineage(target.lineage, backup.lineage)
  for (const { extras } of backup.leases.values())
    for (const [slot, timer] of extras?.timers?.entries() ?? [])
      if (timer !== undefined) extras!.timers![slot] = { ...timer, run: target.run.number }
  backup.nextKey = Math.max(target.nextKey, backup.nextKey)
  backup.quietEpochs = Math.max(target.quietEpochs, backup.quietEpochs)
  backup.longest = Math.max(target.longest, backup.longest)
  for (const [resource, token] of target.fences)
    recordFence(backup, resource, Math.max(token, backup.fences.get(resource) ?? 0), target.fencedBy.get(resource) ?? 0)
}

function contentsOf(state: State): LogContents {
  return {
    leases: state.leases.size,
    policies: state.policies.size,
    keys: [...state.keys.values()].map(({ name }) => name),
    nextToken: state.nextToken,
    revision: state.revision,
    quiet: state.quiet?.duration ?? 0,
  }
}

async function* chunks(state: State): AsyncGenerator<Uint8Array, void, void> {
  for (const chunk of saveState(state)) yield frameChunk(chunk)
}

/** A log that is read to its end and written to, without timers and watches. */
class OfflineLog {
  readonly #store: Store
  state: State
  position: Position

  private constructor(store: Store, state: State, position: Position) {
    this.#store = store
    this.state = state
    this.position = position
  }

  static async open(store: Store): Promise<OfflineLog> {
    const { snapshot } = await store.open()
    let state = createState()
    if (snapshot !== undefined) {
      const loader = new StateLoader()
      try {
        for await (const chunk of readFrames(snapshot.bytes)) loader.add(chunk)
        state = loader.finish()
      } catch (error) {
        throw unreadable(error, `the snapshot at ${snapshot.position.index}`)
      }
    }
    const log = new OfflineLog(store, state, snapshot?.position ?? START)
    while ((await log.#readOn(Number.POSITIVE_INFINITY)) !== undefined) {
      // Until the end of the log.
    }
    return log
  }

  /** Applies the next records, up to index `last`. Returns the outcome of the last one; undefined when there was none. */
  async #readOn(last: number): Promise<Applied | undefined> {
    const read = await this.#store.read(this.position)
    if (read.kind !== 'records') throw new LeaseError('UNAVAILABLE', `the log cannot be read to its end: ${read.kind}`)
    let applied: Applied | undefined
    for (const { position, bytes } of read.records) if (position.index <= last) applied = this.#apply(position, bytes)
    return applied
  }

  #apply(position: Position, bytes: Uint8Array): Applied {
    let batch: Batch
    try {
      batch = decodeBatch(bytes)
    } catch (error) {
      throw unreadable(error, `record ${position.index}`)
    }
    const applied = applyBatch(this.state, position.index, batch, silent())
    this.position = position
    if (!understands(this.state))
      throw new LeaseError(
        'UNSUPPORTED',
        `the log has been raised to rules version ${this.state.rules}, this process knows ${RULES}: upgrade it`,
      )
    return applied
  }

  /** Makes an empty log decide nothing any more, whichever replica writes to it. */
  async close(above: Generation, clock: Clock): Promise<void> {
    const [closed] = await this.append([BEGIN, above], clock)
    if (closed?.kind === 'refused') throw refusedError(closed)
  }

  /** Replaces the contents of the log by `state`. */
  async replaceBy(state: State, clock: Clock): Promise<void> {
    try {
      if ((await this.#store.snapshot(this.position, chunks(state))) !== 'kept')
        throw new LeaseError(
          'UNAVAILABLE',
          'another process has written a snapshot meanwhile: stop the processes that use this log, then try again',
        )
      this.state = state
    } catch (error) {
      // Certainly not written: replicas that have the log open continue as before. Otherwise the log stays closed, since its contents are unknown.
      if (this.state.awaiting && error instanceof LeaseError && error.code === 'UNAVAILABLE') await this.append([END], clock)
      throw error
    }
  }

  async append(commands: readonly (Generation | Move)[], clock: Clock): Promise<readonly Outcome[]> {
    const { index: applied, decisionHashA, decisionHashB } = this.state
    const header = { proposer: Number(clock.bits() >> 11n) || 1, seq: 1, applied, decisionHash: [decisionHashA, decisionHashB] as const }
    const proposals = commands.map(command => ({ command }))
    const entry = encodeBatch({ ...header, wall: Math.max(0, Math.floor(clock.wall())), proposals })
    const appended = await this.#store.append(entry, this.position)
    if (appended.kind !== 'appended' && appended.kind !== 'behind')
      throw new LeaseError('UNAVAILABLE', `the log cannot be written to: ${appended.kind}. Nothing was restored`)
    let done: Applied | undefined
    while (this.position.index < appended.position.index) {
      done = await this.#readOn(appended.position.index).catch(unread)
      if (done === undefined)
        throw new LeaseError('DIVERGED', 'the log ends before the record that was just written to it: it cannot be relied on')
    }
    return done?.kind === 'applied' ? done.outcomes : []
  }
}

/** The record is in the log: an error on reading it back does not undo it. */
function unread(error: unknown): never {
  if (!(error instanceof LeaseError) || error.code !== 'UNAVAILABLE') throw error
  throw new LeaseError('UNKNOWN', `it was written, but its outcome cannot be read: ${error.message}`, {
    cause: error,
    reason: error.reason,
    facts: error.facts,
  })
}

function silent(): Effects {
  return { events: [], timer: () => {} }
}
