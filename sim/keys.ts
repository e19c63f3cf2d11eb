/** Checks S7 for keys, and which resources a lease's key allows: where keys are in use, only the key that made a lease may act on it. */
import type { Command, Scope } from '../src/kernel/command.ts'
import type { Outcome } from '../src/kernel/outcome.ts'
import { findLease, UNCLAIMED } from '../src/kernel/state/leases.ts'
import type { LeaseState } from '../src/kernel/state.ts'
import type { LogView } from './log-view.ts'
import type { World } from './world.ts'

export class KeyChecker {
  readonly #world: World
  readonly #log: LogView
  readonly #scopes = new Map<number, readonly Scope[]>()
  /** Leases that were transferred to a name without a known process. */
  readonly #unclaimed = new Set<number>()

  constructor(world: World, log: LogView) {
    this.#world = world
    this.#log = log
  }

  /** Remembers keys and unclaimed leases. Called for commands that were not refused. */
  follow(command: Command, outcome: Outcome): void {
    if (command.kind === 'transfer' && outcome.kind === 'done' && outcome.id !== undefined)
      if (findLease(this.#log.state, outcome.id)?.key === UNCLAIMED) this.#unclaimed.add(outcome.id)
    if (command.kind === 'key' && outcome.kind === 'done' && outcome.id !== undefined) this.#scopes.set(outcome.id, command.allow)
    if (command.kind === 'unkey') this.#scopes.delete(command.id)
  }

  /** The log lost records: the rest is replayed. */
  lose(): void {
    this.#scopes.clear()
    this.#unclaimed.clear()
  }

  allows(lease: LeaseState, resource: string): boolean {
    // A lease that was transferred to a name alone has no key until a process renews it.
    if (lease.key === 0 || lease.key === UNCLAIMED) return true
    const scopes = this.#scopes.get(lease.key) ?? []
    return scopes.some(
      ({ verb, prefix }) =>
        (verb === 'acquire' || verb === 'admin' || (verb === 'renew' && lease.extras?.handed === true)) &&
        (prefix === '' || `${resource}/`.startsWith(`${prefix}/`)),
    )
  }

  /** A lease was renewed with this key. */
  judgeRenewal(id: number, key: number): void {
    const lease = findLease(this.#log.state, id)
    if (lease === undefined) return
    if (this.#unclaimed.delete(id))
      for (const { resource } of lease.grants)
        if (!this.allows(lease, resource.name))
          this.#world.violate('S7', `lease ${id} was claimed with key ${key}, which does not allow ${resource.name}`)
    if (key !== 0 && lease.key !== key) this.#world.violate('S7', `lease ${id} of key ${lease.key} was renewed with key ${key}`)
  }
}
