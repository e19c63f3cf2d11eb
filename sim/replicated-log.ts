/**
 * An engine with a synchronous standby, as Postgres has it. A commit holds the log until the standby has it, and is visible only then, unless its wait is ended: then
 * it is visible and not replicated, and a failover undoes it.
 *
 * It also judges S9 as far as a store decides it: which records a store shows or acknowledges before the standby has them.
 */
import { LeaseError } from '../src/errors.ts'
import type { Appended, Position } from '../src/store.ts'
import { LONG_WAIT, WatchedLog } from './wire.ts'
import type { World } from './world.ts'

/** A commit waits this long for the log while another one holds it, ms. */
const LOCK_WAIT = 240

interface Commit {
  /** Makes it visible. */
  readonly write: () => void
  readonly answer: () => void
  readonly refuse: (error: LeaseError) => void
  since: number
}

export class ReplicatedLog extends WatchedLog {
  readonly #world: World
  /** The index of the last record that the standby has. */
  #replicated = 0
  #standbyIsAway = false
  /** Changes when the server restarts or is replaced: calls on older connections fail. */
  #connection = 1
  /** The commit that waits for the standby. */
  #waiting: Commit | undefined
  readonly #behind = new Set<Commit>()
  /** Since when each record is visible, by its nonce. */
  readonly #visibleSince = new Map<bigint, number>()
  /** A failover undid this many records, perhaps none. */
  onFailover: (undone: number) => void = () => {}

  constructor(world: World, options: ConstructorParameters<typeof WatchedLog>[0]) {
    super(options)
    this.#world = world
  }

  override get connection(): number {
    return this.#connection
  }

  override get hasStandby(): boolean {
    return true
  }

  override append(...args: Parameters<WatchedLog['append']>): Appended {
    const appended = super.append(...args)
    if ('position' in appended) this.#visibleSince.set(appended.position.nonce, this.#world.now)
    return appended
  }

  override commit<T>(write: () => T, answer: (value: T) => void, refuse: (error: LeaseError) => void): void {
    let value: T
    const commit: Commit = {
      write: () => {
        value = write()
      },
      answer: () => answer(value),
      refuse,
      since: this.#world.now,
    }
    if (this.#waiting === undefined) return this.#begin(commit)
    this.#behind.add(commit)
    this.#world.later(LOCK_WAIT, () => {
      if (this.#behind.delete(commit)) refuse(new LeaseError('UNAVAILABLE', 'another transaction has locked the log', { reason: 'busy' }))
    })
  }

  #begin(commit: Commit): void {
    if (this.#standbyIsAway) {
      commit.since = this.#world.now
      this.#waiting = commit
      return
    }
    commit.write()
    this.#isReplicated()
    commit.answer()
  }

  #isReplicated(): void {
    this.#replicated = this.head.index
  }

  /** The commit that waited is done with: the next ones have their turn. */
  #next(): void {
    this.#waiting = undefined
    for (const commit of [...this.#behind]) {
      if (this.#waiting !== undefined) return
      this.#behind.delete(commit)
      this.#begin(commit)
    }
  }

  // Faults

  override get standbyIsAway(): boolean {
    return this.#standbyIsAway
  }

  /** Returns how many records a failover would undo. */
  get undoable(): number {
    return this.head.index - this.#replicated
  }

  losesStandby(): void {
    this.#standbyIsAway = true
  }

  findsStandby(): void {
    if (!this.#standbyIsAway) return
    this.#standbyIsAway = false
    const waiting = this.#waiting
    waiting?.write()
    this.#isReplicated()
    waiting?.answer()
    this.#next()
  }

  /** The wait of a commit ends: it is visible, and its client is not answered. */
  terminates(): boolean {
    const waiting = this.#waiting
    if (waiting === undefined) return false
    waiting.write()
    waiting.refuse(new LeaseError('UNKNOWN', 'the connection was terminated'))
    this.#next()
    return true
  }

  /** The wait of a commit is cancelled: it is visible, and its client is answered as if the standby had it. */
  cancels(): boolean {
    const waiting = this.#waiting
    // A wait that is cancelled sooner is acknowledged: docs/not-promised.md names the exception.
    if (waiting === undefined || this.#world.now - waiting.since < LONG_WAIT * 1.05) return false
    waiting.write()
    waiting.answer()
    this.#next()
    return true
  }

  /** The server restarts: the commit that waits is visible, and all connections are lost. */
  restarts(): void {
    this.#waiting?.write()
    this.#breakConnections()
  }

  /** The standby becomes the server, and has another standby at once. */
  failsOver(): void {
    const undone = this.undoable
    this.loseTail(undone)
    this.#standbyIsAway = false
    this.#breakConnections()
    this.onFailover(undone)
  }

  #breakConnections(): void {
    this.#connection++
    this.#waiting = undefined
    this.#behind.clear()
  }

  // Judging

  override acknowledged(position: Position, by: string): void {
    if (!this.#has(position))
      this.#world.violate('S9', `an append of ${by} at ${position.index} is acknowledged, and the standby does not have it`)
  }

  override shown(position: Position, by: string, { isOwn, connectedAt }: { readonly isOwn: boolean; readonly connectedAt: number }): void {
    if (this.#has(position)) return
    if (isOwn) this.#world.violate('S9', `record ${position.index} of ${by} is shown to it, and the standby does not have it`)
    if (this.#visibleSince.get(position.nonce)! < connectedAt)
      this.#world.violate(
        'S9',
        `record ${position.index} is shown to ${by}, which connected after it became visible; the standby does not have it`,
      )
  }

  #has(position: Position): boolean {
    return position.index <= this.#replicated && this.find(position)?.kind !== 'diverged'
  }
}
