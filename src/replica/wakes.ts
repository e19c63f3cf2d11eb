/**
 * Wakes the process of a lease that this replica has revoked, recalled or transferred, and every process that has a lease when the log is about to move; and reads the log when another process wakes this one. Otherwise an idle process
 * (idle-mode.ts) would learn of it only with its next renewal. The name of a process is made of the holder name of its leases and its incarnation.
 */
import { createHash } from 'node:crypto'
import type { Clock } from '../clock.ts'
import type { Event, EventType } from '../kernel/event.ts'
import { OWN_INCARNATION } from '../kernel/state/lease-state.ts'
import { findLease } from '../kernel/state/leases.ts'
import type { State } from '../kernel/state.ts'
import type { Store } from '../store.ts'

/** The process of a lease hears at once of these events. The end by a timer is not among them: the holder's own clocks notice that first. */
const TELLING: ReadonlySet<EventType> = new Set(['revoked', 'transferred', 'recalled'])
/** A process has one holder, and one incarnation, or a few. */
const MAX_NAMES = 64
/** So many leases are looked at in one turn of the event loop. */
const STRIDE = 1_000

export class Wakes {
  readonly #clock: Clock
  readonly #store: Pick<Store, 'waker'>
  readonly #woken: () => void
  /** The names of this process. */
  readonly #own = new Set<string>()

  /** `woken` is called when another process has done something to a lease of this one. */
  constructor(clock: Clock, store: Pick<Store, 'waker'>, woken: () => void) {
    this.#clock = clock
    this.#store = store
    this.#woken = woken
  }

  /** This process holds the lease, or waits with it. */
  listenFor(state: State, id: number): void {
    const lease = findLease(state, id)
    if (lease === undefined || this.#own.size >= MAX_NAMES) return
    const name = nameOf(lease.holder.name, lease.incarnation)
    if (this.#own.has(name)) return
    this.#own.add(name)
    this.#store.waker?.listen(name, this.#woken)
  }

  /** A record of this replica has caused these events. */
  tell(events: readonly Event[], state: State): void {
    let names: Set<string> | undefined
    for (const { type, lease: id, holder: by } of events) {
      if (type === 'moved') void this.#tellAll(state)
      if (!TELLING.has(type)) continue
      const name = processOf(state, id, by)
      if (name === undefined || this.#own.has(name)) continue
      names ??= new Set()
      names.add(name)
    }
    if (names !== undefined) this.#store.waker?.wake([...names])
  }

  /** The leases move, begin to, or stay after all: from then on their processes follow the log, or the one that the leases move to. */
  async #tellAll(state: State): Promise<void> {
    const { waker } = this.#store
    if (waker === undefined) return
    const told = new Set(this.#own)
    let names: string[] = []
    let count = 0
    let last: { readonly name: string; readonly incarnation: number } | undefined
    for (const { holder, incarnation } of state.leases.values()) {
      // The leases of one process usually lie side by side.
      if (last?.name !== holder.name || last.incarnation !== incarnation) {
        last = { name: holder.name, incarnation }
        const name = nameOf(holder.name, incarnation)
        if (!told.has(name)) names.push(name)
        told.add(name)
      }
      if (++count % STRIDE > 0) continue
      waker.wake(names)
      names = []
      await new Promise<void>(resolve => this.#clock.soon(resolve))
    }
    if (names.length > 0) waker.wake(names)
  }
}

/** The process that has the lease, or had it: then the holder's name tells. */
function processOf(state: State, id: number, by: string | undefined): string | undefined {
  const lease = findLease(state, id)
  if (lease !== undefined) return nameOf(lease.holder.name, lease.incarnation)
  const holder = by === undefined ? undefined : state.holders.get(by)
  return holder && nameOf(holder.name, holder.process === OWN_INCARNATION ? id : holder.process)
}

/** Letters and digits only: it becomes part of the name of a channel. */
function nameOf(name: string, incarnation: number): string {
  return createHash('sha256').update(`${name}\n${incarnation}`).digest('hex').slice(0, 16)
}
