/**
 * A queue with constant cost for each item. `Array.shift` moves all items of a long array, and the first key of a `Map` from whose front many were deleted is found
 * only behind the places of all of those.
 */
export class Fifo<T> {
  #items: (T | undefined)[] = []
  /** The index of the first item that was not taken. */
  #head = 0

  get size(): number {
    return this.#items.length - this.#head
  }

  push(item: T): void {
    this.#items.push(item)
  }

  /** Undefined if it is empty. */
  shift(): T | undefined {
    if (this.size === 0) return undefined
    const item = this.#items[this.#head]
    this.#items[this.#head++] = undefined
    // Half of the array at a time, so that each item is moved once on average.
    if (this.#head * 2 >= this.#items.length) {
      this.#items = this.#items.slice(this.#head)
      this.#head = 0
    }
    return item
  }

  /** The items, the next one first. They stay in the queue. */
  items(): readonly T[] {
    return this.#items.slice(this.#head) as T[]
  }
}
