/**
 * Puts a backup in the place of what a log says.
 *
 * Not promised: what was decided after the backup was taken; leases granted since then are unknown to the restored log, and keys revoked since
 * then work again. Promised: tokens, ids and revisions go on above whatever the backup or the log itself has given out; nothing is granted until the
 * longest term that anyone can believe in has run, and leases in the backup begin their terms anew; fences never go back; until the last step the
 * log says what it said before.
 *
 * What is put there comes as a snapshot, which a replica that lives does not read. So the log is owned where the store can be. Where it cannot, it
 * must be empty, and it decides nothing (`move` with `into`) from before the snapshot is written until an entry after it says so: that entry
 * bears the trail of what the snapshot holds, and a replica that has come another way loads it (follower.ts).
 */
import { type Clock, systemClock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import { apply, understands } from '../kernel/apply.ts'
import { type Applied, applyBatch, decodeBatch, encodeBatch } from '../kernel/codec/batch.ts'
import { StateLoader, saveState } from '../kernel/codec/snapshot.ts'
import type { Generation, Move } from '../kernel/command.ts'
import type { Effects } from '../kernel/effects.ts'
import { carryLineage } from '../kernel/lineage.ts'
import type { Outcome } from '../kernel/outcome.ts'
import { createState, nameFence, RULES, type State } from '../kernel/state.ts'
import { type Position, START, type Store } from '../store.ts'
import { framed, unframed } from './frame.ts'

const BEGIN: Move = { kind: 'move', into: 'begin' }
const END: Move = { kind: 'move', into: 'end' }

export interface RestoreOptions {
  readonly clock?: Clock
  /** Told what the log holds now; to go on, it returns. What it throws ends everything, and nothing was changed. */
  readonly confirm?: (found: LogContents) => void | PromiseLike<void>
}

/** What a log holds. */
export interface LogContents {
  readonly leases: number
  readonly policies: number
  readonly keys: readonly string[]
  readonly nextToken: number
  readonly revision: number
  /** For so many ms nothing is granted. */
  readonly quiet: number
}

/** The store belongs to this call, which opens it and disposes of it. */
export async function restore(store: Store, backup: State, options: RestoreOptions = {}): Promise<LogContents> {
  const { clock = systemClock, confirm } = options
  await using here = store
  const target = await Log.open(here)
  if (here.profile.shared && target.state.index > 0)
    throw new LeaseError('UNSUPPORTED', 'a log that others may have open cannot be replaced: restore into an empty one, as with ?name=NEW')
  for (const { moved } of [target.state, backup])
    if (moved) throw new LeaseError('INVALID', `the leases of this log have moved to ${moved}: restore there`, { facts: { moved } })
  await confirm?.(described(target.state))

  // First in the log itself: whatever happens from here on, its counters are above all that the backup has given out.
  const above: Generation = {
    kind: 'generation',
    lease: Math.max(target.state.nextLease, backup.nextLease),
    token: Math.max(target.state.nextToken, backup.nextToken),
    revision: Math.max(target.state.revision, backup.revision),
    quiet: Math.max(longest(target.state), longest(backup)),
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
    // Whoever is told of it must not take it for nothing: the log has a generation more.
    throw new LeaseError(error.code, error.message, { cause: error, facts: { ...error.facts, restore: 'begun' } })
  }
  return described(backup)
}

/**
 * Puts the leases of a log that decides nothing any more into an empty one. Unlike a backup, `left` is all there is: nobody believes in anything
 * that it does not know, so it need not be quiet. They are not in force there until `arrive`: before that, the log they come from must have said,
 * for good, where they are.
 */
export async function restoreMoved(
  store: Store,
  left: State,
  { clock = systemClock }: { readonly clock?: Clock } = {},
): Promise<LogContents> {
  if (left.moved === undefined) throw new Error('leases can be granted in the log that they leave')
  await using here = store
  const target = await Log.open(here)
  const { nextLease: lease, nextToken: token, revision } = left
  await target.close({ kind: 'generation', lease, token, revision, quiet: 0 }, clock)
  takePlaceOf(target.state, left)
  left.nextLease = target.state.nextLease
  left.nextToken = target.state.nextToken
  // Above what anyone who follows this log has seen of it: whoever watches must begin anew.
  left.revision = target.state.revision + 1
  await target.replaceBy(left, clock)
  return described(left)
}

/** Opens the store and looks, and changes nothing. Throws what would keep `settleIn` from using it. */
export async function mustBeEmpty(store: Store): Promise<void> {
  try {
    const { state } = await Log.open(store)
    const outcome = apply(state, { command: BEGIN }, silent())
    if (outcome.kind === 'refused') throw new LeaseError(outcome.code, outcome.message, { facts: outcome.facts })
  } finally {
    await Promise.resolve(store[Symbol.asyncDispose]()).catch(() => {}) // nothing was written, so nothing depends on it
  }
}

/** What `settleIn` has put there is in force, and every term begins anew. False: it was already. */
export async function completeMove(store: Store, { clock = systemClock }: { readonly clock?: Clock } = {}): Promise<boolean> {
  await using here = store
  const target = await Log.open(here)
  if (!target.state.awaiting) return false
  await target.append([END], clock)
  return true
}

/** How long anyone may go on believing in what this state has granted, or in what it had forgotten before. */
function longest({ longest: term, quiet }: State): number {
  return Math.max(term, quiet?.duration ?? 0)
}

/** From here on `backup` stands where `target` stands in its log. */
function takePlaceOf(target: State, backup: State): void {
  backup.index = target.index
  backup.wall = Math.max(target.wall, backup.wall)
  backup.moved = target.moved
  backup.awaiting = target.awaiting
  // Of the log, not of what it says: who wrote to it, and its runs. Its trail stays that of the backup, so that a replica that was overlooked
  // is found out with its first word.
  backup.proposers.clear()
  for (const [proposer, known] of target.proposers) backup.proposers.set(proposer, known)
  backup.run = { ...target.run }
  backup.lineage = carryLineage(target.lineage, backup.lineage)
  for (const { rare } of backup.leases.values())
    for (const [slot, timer] of rare?.timers?.entries() ?? [])
      if (timer !== undefined) rare!.timers![slot] = { ...timer, run: target.run.number }
  backup.nextKey = Math.max(target.nextKey, backup.nextKey)
  backup.quietEpochs = Math.max(target.quietEpochs, backup.quietEpochs)
  backup.longest = Math.max(target.longest, backup.longest)
  for (const [resource, token] of target.fences)
    nameFence(backup, resource, Math.max(token, backup.fences.get(resource) ?? 0), target.fencedBy.get(resource) ?? 0)
}

function described(state: State): LogContents {
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
  for (const chunk of saveState(state)) yield framed(chunk)
}

/** A log read to its end by one who counts no time and tells nobody. */
class Log {
  readonly #store: Store
  state: State
  position: Position

  private constructor(store: Store, state: State, position: Position) {
    this.#store = store
    this.state = state
    this.position = position
  }

  static async open(store: Store): Promise<Log> {
    const { snapshot } = await store.open()
    let state = createState()
    if (snapshot !== undefined) {
      const loader = new StateLoader()
      for await (const chunk of unframed(snapshot.bytes)) loader.add(chunk)
      state = loader.finish()
    }
    const log = new Log(store, state, snapshot?.position ?? START)
    while ((await log.#readOn(Number.POSITIVE_INFINITY)) !== undefined) {
      // Until the end of the log.
    }
    return log
  }

  /** Applies what follows, up to that entry at most; what became of the last of it, and undefined when there was nothing. */
  async #readOn(last: number): Promise<Applied | undefined> {
    const read = await this.#store.read(this.position)
    if (read.kind !== 'records') throw new LeaseError('UNAVAILABLE', `the log cannot be read to its end: ${read.kind}`)
    let applied: Applied | undefined
    for (const { position, bytes } of read.records) if (position.index <= last) applied = this.#apply(position, bytes)
    return applied
  }

  #apply(position: Position, bytes: Uint8Array): Applied {
    const applied = applyBatch(this.state, position.index, decodeBatch(bytes), silent())
    this.position = position
    if (!understands(this.state))
      throw new LeaseError(
        'UNSUPPORTED',
        `the log has been raised to rules version ${this.state.rules}, this process knows ${RULES}: upgrade it`,
      )
    return applied
  }

  /** Nothing is decided in this log any more, whoever writes to it, if it holds nothing. */
  async close(above: Generation, clock: Clock): Promise<void> {
    const [closed] = await this.append([BEGIN, above], clock)
    if (closed?.kind === 'refused') throw new LeaseError(closed.code, closed.message, { facts: closed.facts })
  }

  /** From here on the log says what `state` says, and nothing else. */
  async replaceBy(state: State, clock: Clock): Promise<void> {
    try {
      if ((await this.#store.snapshot(this.position, chunks(state))) !== 'kept')
        throw new LeaseError('UNAVAILABLE', 'another process has written a snapshot meanwhile: end whoever uses this log, then try again')
      this.state = state
    } catch (error) {
      // Certainly not there: whoever has the log open goes on as before. Otherwise it stays closed, since nobody knows what it holds.
      if (this.state.awaiting && error instanceof LeaseError && error.code === 'UNAVAILABLE') await this.append([END], clock)
      throw error
    }
  }

  async append(commands: readonly (Generation | Move)[], clock: Clock): Promise<readonly Outcome[]> {
    const { index: applied, trailA, trailB } = this.state
    const header = { proposer: Number(clock.bits() >> 11n) || 1, seq: 1, applied, trail: [trailA, trailB] as const }
    const proposals = commands.map(command => ({ command }))
    const entry = encodeBatch({ ...header, wall: Math.max(0, Math.floor(clock.wall())), proposals })
    const appended = await this.#store.append(entry, this.position)
    if (appended.kind !== 'appended' && appended.kind !== 'behind')
      throw new LeaseError('UNAVAILABLE', `the log cannot be written to: ${appended.kind}. Nothing was restored`)
    let done: Applied | undefined
    while (this.position.index < appended.position.index) {
      done = await this.#readOn(appended.position.index).catch(unread)
      if (done === undefined) throw new LeaseError('DIVERGED', 'the log ends before what was just written to it: nothing can be said of it')
    }
    return done?.kind === 'applied' ? done.outcomes : []
  }
}

/** It stands in the log: that it cannot be read back does not undo it. */
function unread(error: unknown): never {
  if (!(error instanceof LeaseError) || error.code !== 'UNAVAILABLE') throw error
  throw new LeaseError('UNKNOWN', `it was written, but what became of it cannot be read: ${error.message}`, {
    cause: error,
    facts: error.facts,
  })
}

function silent(): Effects {
  return { events: [], timer: () => {} }
}
