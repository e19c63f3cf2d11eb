/** An operator does this to a whole log: takes a backup, restores it into a new log, and moves the leases to another log, with the real commands. */
import { LeaseError } from '../src/errors.ts'
import { applyBatch, decodeBatch } from '../src/kernel/codec/batch.ts'
import { StateLoader, saveState } from '../src/kernel/codec/snapshot.ts'
import { propose } from '../src/lessor/propose.ts'
import { readBackup } from '../src/replica/backup.ts'
import { readFrames } from '../src/replica/frame.ts'
import { moveLeases } from '../src/replica/move-leases.ts'
import { restore } from '../src/replica/restore.ts'
import { type Host, pauseOn, type Site } from './participants.ts'
import { isArrival } from './referee.ts'
import { type WatchedLog, WiredStore } from './wire.ts'
import type { Machine } from './world.ts'

/** By how much the operator's clock is ahead of all others, in ms. */
const AHEAD = 36_000_000
/** An operator tries again this often before it gives up a move. */
const TRIES = 12

export interface LogChangesOptions {
  readonly site: Site
  readonly hosts: readonly Host[]
  readonly operator: Machine
  readonly newLog: () => WatchedLog
  /** A process that opens the log now and then, and is killed when the log is replaced. */
  readonly cron: Host
}

export class LogChanges {
  readonly #options: LogChangesOptions

  constructor(options: LogChangesOptions) {
    this.#options = options
    // Ids of a log begin above the wall time: an operator whose clock is behind would give some again, which the documented assumptions allow.
    options.operator.wallOffset += AHEAD
  }

  /** Undefined while no replica runs. */
  async backup(): Promise<Uint8Array | undefined> {
    const replica = this.#options.hosts.find(host => host.replica !== undefined)?.replica
    if (replica === undefined) return undefined
    const pieces: Uint8Array[] = []
    for await (const piece of replica.backup()) pieces.push(piece)
    return Buffer.concat(pieces)
  }

  /** Moves all leases to a new log. The command is repeated until it is complete or called off. */
  async migrate(): Promise<void> {
    const { site, hosts, operator, newLog } = this.#options
    const { referee, world } = site
    const clock = operator.clock()
    const log = newLog()
    const place = `simulated:${world.events}`
    world.fault('the leases move to another log')
    // A log that the leases are leaving, or have left, grants nothing until the move is complete.
    for (let i = 0; i < TRIES || referee.state.moved !== undefined; i++) {
      const replica = hosts.find(host => host.replica !== undefined)?.replica
      const options = { place, open: async () => this.#storeOf(log), clock }
      const moved =
        replica === undefined
          ? undefined
          : await moveLeases(replica, options).then(
              () => true,
              error => isComplete(error, place),
            )
      if (moved === true) return this.#continueOn(log, 'migration')
      if (referee.state.moved === undefined && replica !== undefined) return // called off
      await pauseOn(clock, 200)
      if (referee.state.moved === '' && replica !== undefined) await propose(replica, { kind: 'move', stay: true }).catch(ignored)
    }
  }

  /** Restores a backup into a new log, while no replica runs. Holders that had leases may use them until their terms are over. */
  async restore(bytes: Uint8Array): Promise<void> {
    const { site, hosts, operator, newLog } = this.#options
    const clock = operator.clock()
    const log = newLog()
    site.world.fault('a backup is restored')
    await this.#closeAll()
    const state = await readBackup(oneOf(bytes))
    for (let i = 0; i < TRIES; i++) {
      const done = await restore(this.#storeOf(log), state, { clock, longestTtl: site.referee.terms.longest }).then(() => true, ignored)
      if (done === true) return this.#continueOn(log, 'restore')
      if (log.head.index > 0) break // it was begun, and its outcome is unknown
      await pauseOn(clock, 100)
    }
    for (const host of hosts) if (host.machine.alive) void host.start()
  }

  #storeOf(log: WatchedLog): WiredStore {
    const { site, operator } = this.#options
    return new WiredStore(log, site.wire, operator, { ages: site.ages, push: true })
  }

  async #closeAll(): Promise<void> {
    this.#options.cron.crash()
    for (const host of this.#options.hosts) await host.close().catch(ignored)
  }

  /** All hosts use the new log from now on. */
  async #continueOn(log: WatchedLog, cause: 'restore' | 'migration'): Promise<void> {
    const { hosts, site } = this.#options
    const { referee } = site
    await this.#closeAll()
    const { snapshot, head } = log
    const loader = new StateLoader()
    for await (const chunk of readFrames(snapshot!.bytes)) loader.add(chunk)
    const state = loader.finish()
    const read = log.read(snapshot!.position, 0)
    const records = read.kind === 'records' ? [...read.records] : []
    // What was carried after the copy was decided, and observed, in the old log.
    const end = records.findIndex(({ bytes }) => decodeBatch(bytes).proposals.some(isArrival))
    for (const { position, bytes } of records.splice(0, Math.max(0, end)))
      applyBatch(state, position.index, decodeBatch(bytes), { events: [], timer: () => {} })
    site.log.onAppend = () => {} // a record that was under way is of no effect any more
    referee.beginWith({ chunks: [...saveState(state)], index: state.index }, cause)
    site.log = log
    site.arrival = state.index + 1
    for (const { position, bytes } of records) referee.observe(position, bytes, 0)
    if (head.index !== referee.length) throw new Error('the referee has not seen the whole log')
    log.onAppend = (position, bytes, sentAt) => referee.observe(position, bytes, sentAt)
    for (const host of hosts) if (host.machine.alive) void host.start()
  }
}

async function* oneOf(bytes: Uint8Array): AsyncGenerator<Uint8Array, void, void> {
  yield bytes
}

/** An attempt whose answer was lost has completed the move: the next one finds nothing left to do. */
function isComplete(error: unknown, place: string): boolean {
  if (!(error instanceof LeaseError)) throw error
  return error.code === 'INVALID' && error.facts.moved === place
}

function ignored(error: unknown): undefined {
  if (!(error instanceof LeaseError)) throw error
  return undefined
}
