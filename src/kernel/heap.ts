/** A binary heap: gives the first of its items by an order that the caller defines. */
export class Heap<T> {
  readonly #items: T[] = []
  readonly #isBefore: (one: T, other: T) => boolean

  constructor(isBefore: (one: T, other: T) => boolean) {
    this.#isBefore = isBefore
  }

  add(item: T): void {
    const items = this.#items
    let at = items.push(item) - 1
    while (at > 0) {
      const above = (at - 1) >> 1
      if (!this.#isBefore(item, items[above]!)) break
      items[at] = items[above]!
      at = above
    }
    items[at] = item
  }

  /** Removes the first item; undefined when there is none. */
  take(): T | undefined {
    const items = this.#items
    const first = items[0]
    const last = items.pop()
    if (first === undefined || items.length === 0) return first
    let at = 0
    for (;;) {
      let below = 2 * at + 1
      if (below >= items.length) break
      if (below + 1 < items.length && this.#isBefore(items[below + 1]!, items[below]!)) below++
      if (!this.#isBefore(items[below]!, last!)) break
      items[at] = items[below]!
      at = below
    }
    items[at] = last!
    return first
  }
}
