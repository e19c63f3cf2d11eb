/**
 * Limits how many more bytes a network is sent over UDP than it sent itself. The source of a datagram may be forged, so replies that are larger than
 * queries could be used to flood a third party. Above the budget the reply is empty and truncated: the client asks again over TCP, where
 * addresses cannot be forged.
 */
import { isIPv4 } from 'node:net'
import type { Clock } from '../../clock.ts'
import { RecentMap } from '../../recent-map.ts'
import { wordsOf } from './ipv6.ts'

/** Bytes a second beyond those of the queries, and the most that can be saved up. About 500 replies. */
export const BUDGET = 131_072
/** This many networks, at least, are remembered. Those that were silent for longest are forgotten first. */
const KEPT_NETWORKS = 2_048

interface NetworkBudget {
  bytes: number
  updatedAt: number
}

export class DnsBudget {
  readonly #clock: Clock
  readonly #left = new RecentMap<string, NetworkBudget>(KEPT_NETWORKS)

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Networks that are remembered. */
  get size(): number {
    return this.#left.size
  }

  /** Returns whether an address may be sent more than it sent itself. */
  has(address: string): boolean {
    return this.#of(networkOf(address)).bytes > 0
  }

  spend(address: string, bytes: number): void {
    if (bytes > 0) this.#of(networkOf(address)).bytes -= bytes
  }

  #of(network: string): NetworkBudget {
    const now = this.#clock.now()
    const left = this.#left.get(network) ?? { bytes: BUDGET, updatedAt: now }
    left.bytes = Math.min(BUDGET, left.bytes + ((now - left.updatedAt) / 1_000) * BUDGET)
    left.updatedAt = now
    this.#left.set(network, left)
    return left
  }
}

/** A flood may use many addresses of one network, so the budget is for a /24 of IPv4 and a /56 of IPv6. */
function networkOf(address: string): string {
  const bare = address.replace(/%.*$/, '')
  if (isIPv4(bare)) return bare.slice(0, bare.lastIndexOf('.'))
  const [one, two, three, four = 0] = wordsOf(bare)
  return `${one}:${two}:${three}:${four >> 8}`
}
