/**
 * Puts a backup in the place of what a log says.
 *
 * Not promised: what was decided after the backup was taken; leases granted since then are unknown to the restored log, and keys revoked since
 * then work again. Promised: tokens, ids and revisions go on above whatever the backup or the log itself has given out; nothing is granted until the
 * longest term that anyone can believe in has run, and leases in the backup begin their terms anew; fences never go back; until the last step the
 * log says what it said before.
 *
 * Nobody else may have the log open: a replica that lives would go on from a state that is no longer there. So it is owned where the store can
 * be; where it cannot, it must be empty.
 */
import { type Clock, systemClock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import { apply, understands } from '../kernel/apply.ts'
import { applyBatch, decodeBatch, encodeBatch } from '../kernel/batch.ts'
import type { Generation } from '../kernel/command.ts'
import type { Effects } from '../kernel/effects.ts'
import { StateLoader, saveState } from '../kernel/snapshot.ts'
import { found, nameFence, RULES, type State } from '../kernel/state.ts'
import { type Position, START, type Store } from '../store.ts'
import { framed, unframed } from './frame.ts'

export interface RestoreOptions {
  readonly clock?: Clock
  /** Told what the log holds now; to go on, it returns. What it throws ends everything, and nothing was changed. */
  readonly confirm?: (found: Restored) => void | PromiseLike<void>
}

/** What a log holds. */
export interface Restored {
  readonly leases: number
  readonly policies: number
  readonly keys: readonly string[]
  readonly nextToken: number
  readonly revision: number
  /** For so many ms nothing is granted. */
  readonly quiet: number
}

/** The store belongs to this call, which opens it and disposes of it. */
export async function restore(store: Store, backup: State, options: RestoreOptions = {}): Promise<Restored> {
  const { clock = systemClock, confirm } = options
  await using here = store
  const target = await Log.open(here)
  if (here.profile.shared && target.state.index > 0)
    throw new LeaseError('UNSUPPORTED', 'a log that others may have open cannot be replaced: restore into an empty one, as with ?name=NEW')
  await confirm?.(described(target.state))

  // First in the log itself: whatever happens from here on, its counters are above all that the backup has given out.
  const above: Generation = {
    kind: 'generation',
    lease: Math.max(target.state.nextLease, backup.nextLease),
    token: Math.max(target.state.nextToken, backup.nextToken),
    revision: Math.max(target.state.revision, backup.revision),
    quiet: Math.max(longest(target.state), longest(backup)),
  }
  await target.append(above, clock)
  takePlaceOf(target.state, backup)
  const { nextLease: lease, nextToken: token, revision } = target.state
  apply(backup, { command: { ...above, lease, token, revision } }, silent())
  await target.replaceBy(backup)
  return described(backup)
}

/**
 * Puts the leases of a log that decides nothing any more into an empty one. Unlike a backup, `left` is all there is: nobody believes in anything
 * that it does not know, so it need not be quiet; every term begins anew.
 */
export async function settleIn(store: Store, left: State, { clock = systemClock }: { readonly clock?: Clock } = {}): Promise<Restored> {
  if (left.moved === undefined) throw new Error('leases can be granted in the log that they leave')
  await using here = store
  const target = await Log.open(here)
  const { leases, policies, keys } = described(target.state)
  if (leases + policies + keys.length > 0)
    throw new LeaseError(
      'INVALID',
      `the log to move into holds ${leases} leases, ${policies} policies and ${keys.length} keys: name an empty one`,
    )
  const { nextLease: lease, nextToken: token, revision } = left
  await target.append({ kind: 'generation', lease, token, revision, quiet: 0 }, clock)
  takePlaceOf(target.state, left)
  left.nextLease = target.state.nextLease
  left.nextToken = target.state.nextToken
  left.revision = target.state.revision
  apply(left, { command: { kind: 'move', stay: true } }, silent())
  await target.replaceBy(left)
  return described(left)
}

/** How long anyone may go on believing in what this state has granted, or in what it had forgotten before. */
function longest({ longest: term, quiet }: State): number {
  return Math.max(term, quiet?.duration ?? 0)
}

/** From here on `backup` stands where `target` stands in its log. */
function takePlaceOf(target: State, backup: State): void {
  backup.index = target.index
  backup.wall = Math.max(target.wall, backup.wall)
  // Of the log, not of what it says: who wrote to it, and its runs. Its trail stays that of the backup, so that a replica that was overlooked
  // is found out with its first word.
  backup.proposers.clear()
  for (const [proposer, known] of target.proposers) backup.proposers.set(proposer, known)
  backup.run = { ...target.run }
  for (const { rare } of backup.leases.values())
    for (const [slot, timer] of rare?.timers?.entries() ?? [])
      if (timer !== undefined) rare!.timers![slot] = { ...timer, run: target.run.number }
  backup.nextKey = Math.max(target.nextKey, backup.nextKey)
  backup.quietEpochs = Math.max(target.quietEpochs, backup.quietEpochs)
  backup.longest = Math.max(target.longest, backup.longest)
  for (const [resource, token] of target.fences)
    nameFence(backup, resource, Math.max(token, backup.fences.get(resource) ?? 0), target.fencedBy.get(resource) ?? 0)
}

function described(state: State): Restored {
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
    let state = found()
    if (snapshot !== undefined) {
      const loader = new StateLoader()
      for await (const chunk of unframed(snapshot.bytes)) loader.add(chunk)
      state = loader.finish()
    }
    const log = new Log(store, state, snapshot?.position ?? START)
    while (await log.#readOn()) {
      // Until the end of the log.
    }
    return log
  }

  async #readOn(): Promise<boolean> {
    const read = await this.#store.read(this.position)
    if (read.kind !== 'entries') throw new LeaseError('UNAVAILABLE', `the log cannot be read to its end: ${read.kind}`)
    for (const { position, bytes } of read.entries) this.#apply(position, bytes)
    return read.entries.length > 0
  }

  #apply(position: Position, bytes: Uint8Array): void {
    applyBatch(this.state, position.index, decodeBatch(bytes), silent())
    this.position = position
    if (!understands(this.state))
      throw new LeaseError(
        'UNSUPPORTED',
        `the log has been raised to rules version ${this.state.rules}, this process knows ${RULES}: upgrade it`,
      )
  }

  /** From here on the log says what `state` says, and nothing else. */
  async replaceBy(state: State): Promise<void> {
    if ((await this.#store.snapshot(this.position, chunks(state))) !== 'kept')
      throw new LeaseError('UNAVAILABLE', 'another process has written a snapshot meanwhile: end whoever uses this log, then try again')
  }

  async append(command: Generation, clock: Clock): Promise<void> {
    const { index: applied, trailA, trailB } = this.state
    const header = { proposer: Number(clock.bits() >> 11n) || 1, seq: 1, applied, trail: [trailA, trailB] as const }
    const entry = encodeBatch({ ...header, wall: Math.max(0, Math.floor(clock.wall())), proposals: [{ command }] })
    const appended = await this.#store.append(entry, this.position)
    if (appended.kind !== 'appended' || appended.missed.length > 0)
      throw new LeaseError('UNAVAILABLE', 'others write to this log: end whoever uses it, then restore again. Nothing was restored')
    this.#apply(appended.position, entry)
  }
}

function silent(): Effects {
  return { events: [], timer: () => {} }
}
