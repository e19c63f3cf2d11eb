/** The newest items of a stream, up to a fixed number, oldest first. */
export class Newest<T> implements Iterable<T> {
  readonly #size: number
  readonly #items: T[] = []
  /** Where the oldest is, once the ring is full. */
  #oldest = 0

  constructor(size: number) {
    this.#size = size
  }

  get length(): number {
    return this.#items.length
  }

  push(item: T): void {
    if (this.#items.length < this.#size) this.#items.push(item)
    else {
      this.#items[this.#oldest] = item
      this.#oldest = (this.#oldest + 1) % this.#size
    }
  }

  *[Symbol.iterator](): Generator<T, void, void> {
    for (let i = 0; i < this.#items.length; i++) yield this.#items[(this.#oldest + i) % this.#items.length]!
  }

  /** Newest first. */
  *backwards(): Generator<T, void, void> {
    for (let i = this.#items.length - 1; i >= 0; i--) yield this.#items[(this.#oldest + i) % this.#items.length]!
  }
}
