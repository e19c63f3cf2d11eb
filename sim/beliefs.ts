/** Checks S1 and S2: which holders use which leases at the same time, and which writes a resource with fencing accepts. */
import { under } from '../src/kernel/name.ts'

export interface ObservedBelief {
  readonly who: string
  readonly lease: number
  readonly grants: readonly { readonly resource: string; readonly units: number; readonly shared: boolean; readonly token: number }[]
  holds(): boolean
}

export class BeliefChecker {
  readonly #violate: (invariant: string, message: string) => void
  readonly #byResource = new Map<string, Set<ObservedBelief>>()
  /** The protected resources: each remembers the highest token it has seen, and refuses lower ones. */
  readonly #registers = new Map<string, { readonly token: number; readonly who: string }>()
  readonly #lost: { readonly from: number; readonly to: number }[] = []
  /** Leases that were ended by force: the one named exception to S1. */
  readonly forced = new Set<number>()
  /** The largest capacity of each prefix so far: grants from before a shrink are kept. */
  readonly #widest = new Map<string, number>()

  constructor(violate: (invariant: string, message: string) => void) {
    this.#violate = violate
  }

  allows(prefix: string, capacity: number): void {
    this.#widest.set(prefix, Math.max(capacity, this.#widest.get(prefix) ?? 1))
  }

  #capacity(resource: string): number {
    let most = 1
    for (const [prefix, capacity] of this.#widest) if (under(prefix, resource)) most = Math.max(most, capacity)
    return most
  }

  /** S1. `fate` says how a lease ended, for people. */
  begins(belief: ObservedBelief, fate: (lease: number) => string): void {
    if (!belief.holds()) return // the answer came too late
    for (const { resource, units, shared, token } of belief.grants) {
      let all = this.#byResource.get(resource)
      if (all === undefined) {
        all = new Set()
        this.#byResource.set(resource, all)
      }
      for (const other of all) if (other !== belief && !other.holds()) all.delete(other)
      const others = [...all].filter(
        other => other.lease !== belief.lease && !this.forced.has(other.lease) && !this.forced.has(belief.lease),
      )
      all.add(belief)
      const capacity = this.#capacity(resource)
      const sum = others.reduce(
        (total, other) => total + (other.grants.find(grant => grant.resource === resource)?.units ?? 0),
        shared ? 0 : units,
      )
      const mixed = others.find(other => other.grants.some(grant => grant.resource === resource && grant.shared !== shared))
      if (sum > capacity || mixed !== undefined) {
        const other = mixed ?? others[0]!
        this.#violate(
          'S1',
          `${belief.who} (lease ${belief.lease}, token ${token}) and ${other.who} (lease ${other.lease}, ${fate(other.lease)}) both believe they hold ${resource}`,
        )
      }
    }
  }

  /** The log lost these tokens. A resource that has seen them refuses earlier tokens, although their holders may hold again. */
  lose(from: number, to: number): void {
    this.#lost.push({ from, to })
  }

  #isLost(token: number): boolean {
    return this.#lost.some(({ from, to }) => from <= token && token < to)
  }

  /** S2: a write of the present holder is accepted; a late write is refused after a newer token. Returns whether it was accepted. */
  writes(belief: ObservedBelief, resource: string, token: number): boolean {
    const last = this.#registers.get(resource)
    if (last !== undefined && token < last.token) {
      if (belief.holds() && !this.forced.has(belief.lease) && !this.#isLost(last.token))
        this.#violate('S2', `${belief.who} holds ${resource} with token ${token} and is turned away: ${last.who} has shown ${last.token}`)
      return false
    }
    this.#registers.set(resource, { token, who: belief.who })
    return true
  }
}
