/** A log that is read to its end and written to, without timers and watches: for a restore, and for leases that move. */
import type { Clock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import { type Applied, applyBatch, type Batch, decodeBatch, encodeBatch } from '../kernel/codec/batch.ts'
import { StateLoader, saveState } from '../kernel/codec/snapshot.ts'
import type { Generation, Move, Proposal } from '../kernel/command.ts'
import type { Outcome } from '../kernel/outcome.ts'
import type { Effects } from '../kernel/rule/effects.ts'
import { carryLineage } from '../kernel/state/lineage.ts'
import { recordFence } from '../kernel/state/resources.ts'
import { createState, RULES, type State } from '../kernel/state.ts'
import { refusedError } from '../refused-error.ts'
import { type Position, START, type Store } from '../store.ts'
import { frameChunk, readFrames } from './frame.ts'
import { unreadable } from './unreadable.ts'

export const BEGIN: Move = { kind: 'move', into: 'begin' }
export const END: Move = { kind: 'move', into: 'end' }

/** Gives `backup` the position of `target` in its log. */
export function takePlaceOf(target: State, backup: State): void {
  backup.index = target.index
  backup.wall = Math.max(target.wall, backup.wall)
  backup.moved = target.moved
  backup.awaiting = target.awaiting
  backup.floor = undefined
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

export class OfflineLog {
  readonly #store: Store
  state: State
  position: Position
  #proposer: number | undefined
  #seq = 0

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
    while ((await log.readOn()) !== undefined) {
      // Until the end of the log.
    }
    return log
  }

  /** Applies the next records, up to index `last`. Returns the outcome of the last one; undefined when there was none. */
  async readOn(last = Number.POSITIVE_INFINITY): Promise<Applied | undefined> {
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
    if (this.state.rules > RULES)
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

  append(commands: readonly (Generation | Move)[], clock: Clock): Promise<readonly Outcome[]> {
    const wall = Math.max(0, Math.floor(clock.wall()))
    return this.#append({ wall, proposals: commands.map(command => ({ command })) }, clock)
  }

  /** Applies commands that were decided in the log that the leases come from. */
  async carry(proposals: readonly Proposal[], wall: number, clock: Clock): Promise<void> {
    await this.#append({ wall, proposals, carried: true }, clock)
  }

  async #append(content: Pick<Batch, 'wall' | 'proposals' | 'carried'>, clock: Clock): Promise<readonly Outcome[]> {
    const { index: applied, decisionHashA, decisionHashB } = this.state
    this.#proposer ??= Number(clock.bits() >> 11n) || 1
    const header = { proposer: this.#proposer, seq: ++this.#seq, applied, decisionHash: [decisionHashA, decisionHashB] as const }
    const entry = encodeBatch({ ...header, ...content })
    const appended = await this.#store.append(entry, this.position)
    if (appended.kind !== 'appended' && appended.kind !== 'behind')
      throw new LeaseError('UNAVAILABLE', `the log cannot be written to: ${appended.kind}. Nothing was restored`)
    let done: Applied | undefined
    while (this.position.index < appended.position.index) {
      done = await this.readOn(appended.position.index).catch(unread)
      if (done === undefined)
        throw new LeaseError('DIVERGED', 'the log ends before the record that was just written to it: it cannot be relied on')
    }
    return done?.kind === 'applied' ? done.outcomes : []
  }
}

async function* chunks(state: State): AsyncGenerator<Uint8Array, void, void> {
  for (const chunk of saveState(state)) yield frameChunk(chunk)
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

export function silent(): Effects {
  return { events: [], timer: () => {} }
}
