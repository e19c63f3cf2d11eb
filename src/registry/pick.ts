/** Picks one of many instances by a strategy. Sums and hashes over all instances are cached, so that a pick looks at few of them. */
import type { Instance } from './match.ts'
import { draw, hash } from './rendezvous.ts'

/** All strategies (see docs/registry.md). */
export const STRATEGIES = ['round-robin', 'weighted', 'least-loaded', 'two-choices', 'hash'] as const
export type PickStrategy = (typeof STRATEGIES)[number]

/**
 * These options say how to pick an instance.
 *
 * @example
 * await reviewers.pick({ strategy: 'two-choices' })
 * await reviewers.pick({ key: 'user-7' }) // the same instance for the same key
 */
export interface PickOptions {
  /** @default 'round-robin', or 'hash' if there is a key */
  readonly strategy?: PickStrategy
  /** For `hash`: the same key picks the same instance while that is there. When an instance comes or goes, only its own keys move. */
  readonly key?: string
}

/** Holds the current version of an instance. Its load may change often, without a new `Picker`. */
export interface PickSlot {
  readonly instance: Instance
}

export class Picker {
  readonly #slots: readonly PickSlot[]
  readonly #random: () => number
  #sums: Float64Array | undefined
  #hashes: Int32Array | undefined
  #even: boolean | undefined

  constructor(slots: readonly PickSlot[], random: () => number) {
    this.#slots = slots
    this.#random = random
  }

  /** `turn` is the number of picks before this one. */
  pick(strategy: PickStrategy, turn: number, key: string): Instance | undefined {
    const slots = this.#slots
    if (slots.length <= 1) return slots[0]?.instance
    switch (strategy) {
      case 'round-robin':
        return slots[turn % slots.length]!.instance
      case 'weighted':
        return this.#weighted()
      case 'least-loaded':
        return this.#least(turn)
      case 'two-choices':
        return this.#two()
      case 'hash':
        return this.#hash(key)
    }
  }

  #weighted(): Instance {
    const slots = this.#slots
    if (this.#sums === undefined) {
      let sum = 0
      this.#sums = Float64Array.from(slots, ({ instance }) => (sum += instance.weight))
    }
    const sums = this.#sums
    const total = sums[sums.length - 1]!
    if (total === 0) return slots[Math.floor(this.#random() * slots.length)]!.instance
    const drawn = this.#random() * total
    let low = 0
    let high = sums.length - 1
    while (low < high) {
      const middle = (low + high) >>> 1
      if (sums[middle]! > drawn) high = middle
      else low = middle + 1
    }
    return slots[low]!.instance
  }

  /** Starts elsewhere each time, so that instances of equal load take turns. */
  #least(turn: number): Instance {
    const slots = this.#slots
    const start = turn % slots.length
    let best = slots[start]!.instance
    for (let i = 1; i < slots.length; i++) {
      const { instance } = slots[(start + i) % slots.length]!
      if (instance.load < best.load) best = instance
    }
    return best
  }

  /** The less loaded of two at random. Nearly as good as the least loaded, but clients with old data do not all pick the same instance. */
  #two(): Instance {
    const slots = this.#slots
    const first = Math.floor(this.#random() * slots.length)
    const second = (first + 1 + Math.floor(this.#random() * (slots.length - 1))) % slots.length
    const [a, b] = [slots[first]!.instance, slots[second]!.instance]
    return b.load < a.load ? b : a
  }

  /**
   * Rendezvous hashing: each instance draws a number for the key, and the highest draw wins. An instance that comes or goes moves only its own
   * keys. A weight w turns a draw u into u^(1/w), which gives shares in proportion to the weights.
   */
  #hash(key: string): Instance {
    const slots = this.#slots
    this.#hashes ??= Int32Array.from(slots, ({ instance }) => hash(`${instance.service}/${instance.instance}`))
    this.#even ??= slots.every(({ instance }) => instance.weight === slots[0]!.instance.weight)
    const keyHash = hash(key)
    let best = 0
    let highest = Number.NEGATIVE_INFINITY
    for (let i = 0; i < slots.length; i++) {
      const drawn = draw(this.#hashes[i]!, keyHash)
      const score = this.#even ? drawn : weigh(drawn, slots[i]!.instance.weight)
      if (score <= highest) continue
      highest = score
      best = i
    }
    return slots[best]!.instance
  }
}

/** ln u / w, which has the same order as u^(1/w). Instances of weight 0 come last. */
function weigh(drawn: number, weight: number): number {
  return weight === 0 ? -1e12 + drawn / 0x1_0000_0000 : Math.log((drawn + 1) / 0x1_0000_0001) / weight
}
