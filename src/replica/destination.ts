/**
 * The log that leases move to. First it is closed, so that it decides nothing; then it gets a copy of the leases, and the commands that the old log has decided
 * since. They are in force with the last step; before that, the old log must have recorded, for good, where they are.
 *
 * Unlike a backup, what arrives is complete: no holder trusts anything that it does not contain, so no quiet period is needed. Until the last step the counters
 * are those of the old log, so that each command gets the same ids, tokens and revisions as there.
 */
import type { Clock } from '../clock.ts'
import { LeaseError } from '../errors.ts'
import { apply } from '../kernel/apply.ts'
import type { Batch } from '../kernel/codec/batch.ts'
import type { Proposal } from '../kernel/command.ts'
import type { State } from '../kernel/state.ts'
import { refusedError } from '../refused-error.ts'
import type { Store } from '../store.ts'
import { BEGIN, END, OfflineLog, silent, takePlaceOf } from './offline-log.ts'
import { contentsOf, type LogContents } from './restore.ts'

/** The most commands in one record. */
const MAX_CARRIED = 500

export class Destination implements AsyncDisposable {
  readonly #store: Store
  readonly #log: OfflineLog
  readonly #clock: Clock

  private constructor(store: Store, log: OfflineLog, clock: Clock) {
    this.#store = store
    this.#log = log
    this.#clock = clock
  }

  /** Takes over the store. Throws, without a change, if it cannot take moved leases. */
  static async open(store: Store, clock: Clock): Promise<Destination> {
    try {
      const log = await OfflineLog.open(store)
      const probe = { ...log.state }
      const outcome = apply(probe, { command: BEGIN }, silent())
      if (outcome.kind === 'refused') throw refusedError(outcome)
      return new Destination(store, log, clock)
    } catch (error) {
      await Promise.resolve(store[Symbol.asyncDispose]()).catch(() => {}) // nothing was written, so nothing is lost
      throw error
    }
  }

  /** The revision of the old log up to which its decisions are here. */
  get revision(): number {
    return this.#log.state.revision
  }

  /** One round trip to the log. */
  async read(): Promise<void> {
    await this.#log.readOn()
  }

  get contents(): LogContents {
    return contentsOf(this.#log.state)
  }

  /** Closes the log and writes the copy. `left` belongs to this object afterwards. */
  async copy(left: State): Promise<void> {
    const { nextLease: lease, nextToken: token, revision } = left
    await this.#log.close({ kind: 'generation', lease, token, revision, quiet: 0 }, this.#clock)
    const { state } = this.#log
    takePlaceOf(state, left)
    left.floor = { revision: state.revision, lease: state.nextLease, token: state.nextToken, key: state.nextKey }
    await this.#log.replaceBy(left, this.#clock)
  }

  /** Adds what the old log has decided since, in its order. */
  async carry(batches: readonly Batch[]): Promise<void> {
    let proposals: Proposal[] = []
    let wall = 0
    for (const batch of batches)
      for (const proposal of batch.proposals) {
        mustNotChangeLog(proposal)
        wall = Math.max(wall, batch.wall)
        proposals.push(proposal)
        if (proposals.length < MAX_CARRIED) continue
        await this.#log.carry(proposals, wall, this.#clock)
        proposals = []
      }
    if (proposals.length > 0) await this.#log.carry(proposals, wall, this.#clock)
  }

  /** Puts the leases in force; every term begins anew. */
  async complete(): Promise<void> {
    await this.#log.append([END], this.#clock)
  }

  /** Whatever was answered is durable: an error tells nothing about the leases. */
  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.resolve(this.#store[Symbol.asyncDispose]()).catch(() => {})
  }
}

/** Completes a move that was interrupted after the leases had left. False: they were in force already. Takes over the store. */
export async function completeMove(store: Store, clock: Clock): Promise<boolean> {
  await using here = store
  const log = await OfflineLog.open(here)
  if (!log.state.awaiting) return false
  await log.append([END], clock)
  return true
}

/** These change the log itself. They are rare: a new copy is simpler than carrying them. */
function mustNotChangeLog({ command: { kind, ...command } }: Proposal): void {
  const isOther = kind === 'move' && !('prepare' in command)
  if (kind !== 'run' && kind !== 'generation' && kind !== 'upgrade' && !isOther) return
  throw new LeaseError('UNAVAILABLE', `the old log was changed as a whole while its leases were copied (${kind}): run the move again`)
}
