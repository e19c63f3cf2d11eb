/**
 * Wakes the process of a lease that this replica has revoked, recalled or transferred, and reads the log when another process wakes this one. Otherwise an idle process
 * (idle-mode.ts) would learn of it only with its next renewal. The name of a process is made of the holder name of its leases and its incarnation.
 */
import { createHash } from 'node:crypto'
import type { Event, EventType } from '../kernel/event.ts'
import { OWN_INCARNATION } from '../kernel/state/lease-state.ts'
import { findLease } from '../kernel/state/leases.ts'
import type { State } from '../kernel/state.ts'
import type { Store } from '../store.ts'

/** The process of a lease hears at once of these events. The end by a timer is not among them: the holder's own clocks notice that first. */
const TELLING: ReadonlySet<EventType> = new Set(['revoked', 'transferred', 'recalled'])
/** A process has one holder, and one incarnation, or a few. */
const MAX_NAMES = 64

export class Wakes {
  readonly #store: Pick<Store, 'waker'>
  readonly #woken: () => void
  /** The names of this process. */
  readonly #own = new Set<string>()

  /** `woken` is called when another process has done something to a lease of this one. */
  constructor(store: Pick<Store, 'waker'>, woken: () => void) {
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
      if (!TELLING.has(type)) continue
      const name = processOf(state, id, by)
      if (name === undefined || this.#own.has(name)) continue
      names ??= new Set()
      names.add(name)
    }
    if (names !== undefined) this.#store.waker?.wake([...names])
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
