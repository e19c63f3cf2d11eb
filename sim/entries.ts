/** Checks S7 and S18 for entries: no holder takes the entry of another, and an entry ends only with its own lease. */
import type { Command } from '../src/kernel/command.ts'
import type { Event } from '../src/kernel/event.ts'
import { processOf } from '../src/kernel/rule/attach.ts'
import { findLease } from '../src/kernel/state/leases.ts'
import type { LogView } from './log-view.ts'
import { bringsChanges } from './transactions.ts'
import type { World } from './world.ts'

export class EntryChecker {
  readonly #world: World
  readonly #log: LogView
  /** The holder of each entry. */
  readonly #holders = new Map<string, { readonly name: string; readonly incarnation: number }>()

  constructor(world: World, log: LogView) {
    this.#world = world
    this.#log = log
  }

  follow(events: readonly Event[]): void {
    for (const { type, key, lease } of events) {
      if (key === undefined) continue
      const writer = findLease(this.#log.state, lease)
      if (type === 'put' && writer !== undefined) this.#holders.set(key, processOf(writer))
      if (type === 'deleted') this.#holders.delete(key)
    }
  }

  /** Another process has taken the lease, with its entries. */
  claimed(lease: number): void {
    const taken = findLease(this.#log.state, lease)
    if (taken === undefined) return
    for (const key of taken.extras?.entries ?? []) this.#holders.set(key, processOf(taken))
  }

  /** The log lost records: the rest is replayed, after the contents with which the log began. */
  lose(): void {
    this.#holders.clear()
    for (const { key, lease } of this.#log.state.entries.values()) this.#holders.set(key, processOf(lease))
  }

  /** `events`: those of the same command. */
  judgePut({ key, lease }: Event, events: readonly Event[]): void {
    // In one revision an entry may end with its lease, and another waiter bring it again.
    const known = events.some(event => event.type === 'deleted' && event.key === key) ? undefined : this.#holders.get(key!)
    const writer = findLease(this.#log.state, lease)
    if (known === undefined || writer === undefined) return
    const holder = processOf(writer)
    if (known.name !== holder.name) this.#world.violate('S7', `${holder.name} took the entry ${key} from ${known.name}`)
    else if (known.incarnation > holder.incarnation)
      this.#world.violate('S18', `incarnation ${holder.incarnation} of ${holder.name} wrote ${key} over incarnation ${known.incarnation}`)
  }

  /** An entry ends with its lease, or when it is deleted with the right lease named. */
  judgeDeleted({ key, lease }: Event, command: Command): void {
    if (command.kind === 'transaction' || bringsChanges(command) || lease === 0) return // see TransactionChecker
    if (command.kind === 'delete') {
      if (command.lease !== undefined && command.lease !== lease)
        this.#world.violate(
          'S18',
          `the entry ${key} of lease ${lease} was deleted for lease ${command.lease}, from which it was taken over`,
        )
    } else if (!this.#log.ended.has(lease)) this.#world.violate('S18', `the entry ${key} of lease ${lease} ended with another lease`)
  }
}
