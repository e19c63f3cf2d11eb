/** What holders believe, and what they do to a resource that checks tokens. */
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
  /** The resources themselves: each remembers the highest token it was shown, and turns away any below. */
  readonly #registers = new Map<string, { readonly token: number; readonly who: string }>()
  readonly #lost: { readonly from: number; readonly to: number }[] = []
  /** Leases whose holders were overruled by force: the one named exception to S1. */
  readonly forced = new Set<number>()
  /** The most that each prefix ever allowed: what was granted before a shrink is held on. */
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

  /** S1. `fate` says what has become of a lease, for people. */
  begins(belief: ObservedBelief, fate: (lease: number) => string): void {
    if (!belief.holds()) return // the answer came after its time
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

  /** The log has forgotten these tokens. A resource they were shown to remembers: whoever came before them may hold again, and is turned away. */
  lose(from: number, to: number): void {
    this.#lost.push({ from, to })
  }

  #isLost(token: number): boolean {
    return this.#lost.some(({ from, to }) => from <= token && token < to)
  }

  /** S2: whoever holds it by right gets through; a late one may try, and does not, once a newer token was shown. Whether it got through. */
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
