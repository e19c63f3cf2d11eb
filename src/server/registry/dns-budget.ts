/**
 * How much more each network is sent than it asked with. The address of a datagram may be forged: answers that are larger than questions would let a stranger
 * flood somebody else. Above the budget the answer is an empty one that says: ask over TCP, where addresses cannot be forged.
 */
import { isIPv4 } from 'node:net'
import type { Clock } from '../../clock.ts'
import { wordsOf } from './ipv6.ts'

/** Bytes a second beyond those of the questions, and at most this many at once. About 500 answers. */
export const BUDGET = 131_072
/** Networks that are remembered. Who was not heard for longest is forgotten first. */
const MAX = 4_096

interface Left {
  bytes: number
  at: number
}

export class DnsBudget {
  readonly #clock: Clock
  readonly #left = new Map<string, Left>()

  constructor(clock: Clock) {
    this.#clock = clock
  }

  /** Networks that are remembered. */
  get size(): number {
    return this.#left.size
  }

  /** Whether an address may be sent more than it asked with. */
  has(address: string): boolean {
    return this.#of(networkOf(address)).bytes > 0
  }

  spend(address: string, bytes: number): void {
    if (bytes > 0) this.#of(networkOf(address)).bytes -= bytes
  }

  #of(network: string): Left {
    const now = this.#clock.now()
    const left = this.#left.get(network) ?? { bytes: BUDGET, at: now }
    left.bytes = Math.min(BUDGET, left.bytes + ((now - left.at) / 1_000) * BUDGET)
    left.at = now
    this.#left.delete(network)
    if (this.#left.size >= MAX) this.#left.delete(this.#left.keys().next().value!)
    this.#left.set(network, left)
    return left
  }
}

/** Whoever forges addresses forges its neighbours' too: /24 of IPv4, /56 of IPv6. */
function networkOf(address: string): string {
  const bare = address.replace(/%.*$/, '')
  if (isIPv4(bare)) return bare.slice(0, bare.lastIndexOf('.'))
  const [one, two, three, four = 0] = wordsOf(bare)
  return `${one}:${two}:${three}:${four >> 8}`
}
