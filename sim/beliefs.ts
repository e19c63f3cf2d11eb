/**
 * Checks S1, S2 and L3: which holders use which leases at the same time, which writes a resource with fencing accepts, and whether a holder
 * knows that its lease has ended.
 */
import type { Event } from '../src/kernel/event.ts'
import { under } from '../src/kernel/name.ts'
import { conflicts } from './covers.ts'
import type { PairTracker } from './pairs.ts'

export interface ObservedBelief {
  readonly who: string
  readonly lease: number
  readonly grants: readonly { readonly resource: string; readonly units: number; readonly shared: boolean; readonly token: number }[]
  /** Left out: each name stands for itself. */
  readonly covers?: boolean
  holds(): boolean
}

export class BeliefChecker {
  readonly #violate: (invariant: string, message: string) => void
  readonly #fate: (lease: number) => string
  readonly #byResource = new Map<string, Set<ObservedBelief>>()
  readonly #watched = new Map<number, ObservedBelief & { told(): boolean }>()
  /** The protected resources: each remembers the highest token it has seen, and refuses lower ones. */
  readonly #registers = new Map<string, { readonly token: number; readonly who: string }>()
  readonly #lost: { readonly from: number; readonly to: number }[] = []
  /** Leases that were ended by force: the one named exception to S1. */
  readonly forced = new Set<number>()
  /** The largest capacity of each prefix so far: grants from before a shrink are kept. */
  readonly #widest = new Map<string, number>()

  readonly #pairs: Pick<PairTracker, 'looked'> | undefined
  #hasCovering = false

  /** `fate` says how a lease ended, for the message of a violation. */
  constructor(violate: (invariant: string, message: string) => void, fate: (lease: number) => string, pairs?: Pick<PairTracker, 'looked'>) {
    this.#violate = violate
    this.#fate = fate
    this.#pairs = pairs
  }

  allows(prefix: string, capacity: number): void {
    this.#widest.set(prefix, Math.max(capacity, this.#widest.get(prefix) ?? 1))
  }

  #capacity(resource: string): number {
    let most = 1
    for (const [prefix, capacity] of this.#widest) if (under(prefix, resource)) most = Math.max(most, capacity)
    return most
  }

  /** S1: a holder uses its lease from now on. */
  begins(belief: ObservedBelief): void {
    if (!belief.holds()) return // the answer came too late
    this.#hasCovering ||= belief.covers === true
    if (this.#hasCovering) this.#judgeAround(belief)
    this.#pairs?.looked('S1', belief.lease, ...belief.grants.map(({ resource }) => resource))
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
          `${belief.who} (lease ${belief.lease}, token ${token}) and ${other.who} (lease ${other.lease}, ${this.#fate(other.lease)}) both believe they hold ${resource}`,
        )
      }
    }
  }

  /** No other holder relies on a claim above or below that conflicts. */
  #judgeAround(belief: ObservedBelief): void {
    const claims = ({ grants, covers = false }: ObservedBelief) => grants.map(({ resource, shared }) => ({ resource, shared, covers }))
    for (const other of new Set([...this.#byResource.values()].flatMap(all => [...all]))) {
      const isForced = this.forced.has(other.lease) || this.forced.has(belief.lease)
      if (other.lease === belief.lease || other.who === belief.who || isForced || !other.holds()) continue
      for (const one of claims(belief))
        for (const two of claims(other))
          if (conflicts(one, two))
            this.#violate(
              'S1',
              `${belief.who} (lease ${belief.lease}) believes it holds ${one.resource}, and ${other.who} (lease ${other.lease}, ${this.#fate(other.lease)}) ${two.resource}`,
            )
    }
  }

  /** From now on the holder must have stopped, and must know of the loss, when its lease lapses or it releases the lease. */
  watch(belief: ObservedBelief & { told(): boolean }): void {
    this.#watched.set(belief.lease, belief)
  }

  /** A lease lapsed, or its holder released it. */
  judgeEnd({ lease, type }: Pick<Event, 'lease' | 'type'>, givenUp: ReadonlySet<number>): void {
    const belief = this.#watched.get(lease)
    if (belief === undefined) return
    if (belief.holds()) this.#violate('S1', `lease ${lease} ${type} while ${belief.who} still used it`)
    // A holder that transfers its lease has stopped: its signal fires when the transfer is answered.
    if ((type === 'lapsed' || type === 'suspected') && !belief.told() && !givenUp.has(lease))
      this.#violate('L3', `lease ${lease} ${type} and ${belief.who}, which was not stalled, had not been told`)
    this.#watched.delete(lease)
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
