/** Items in the order of their names, in chunks: to add or delete one moves the items of its chunk, and not those of a list of a hundred thousand. */
const CHUNK = 512

interface ListItem {
  readonly name: string
}

export class SortedList<T extends ListItem> {
  /** Each has at least one item, and at most twice CHUNK. */
  readonly #chunks: T[][] = []

  get(name: string): T | undefined {
    const chunk = this.#chunks[this.#chunkOf(name)]
    const found = chunk?.[indexIn(chunk, name)]
    return found?.name === name ? found : undefined
  }

  /** There must be no item with its name. Returns the item. */
  add(item: T): T {
    const at = this.#chunkOf(item.name)
    const chunk = this.#chunks[at]
    if (chunk === undefined) this.#chunks.push([item])
    else {
      chunk.splice(indexIn(chunk, item.name), 0, item)
      if (chunk.length > 2 * CHUNK) this.#chunks.splice(at + 1, 0, chunk.splice(CHUNK))
    }
    return item
  }

  /** It must be there. */
  delete({ name }: T): void {
    const at = this.#chunkOf(name)
    const chunk = this.#chunks[at]!
    chunk.splice(indexIn(chunk, name), 1)
    if (chunk.length === 0) this.#chunks.splice(at, 1)
  }

  *[Symbol.iterator](): Generator<T, void, void> {
    for (const chunk of this.#chunks) yield* chunk
  }

  /** The index of the last chunk that begins at or before the name, or of the first one. */
  #chunkOf(name: string): number {
    let [low, high] = [0, this.#chunks.length]
    while (low < high) {
      const middle = (low + high) >>> 1
      if (name < this.#chunks[middle]![0]!.name) high = middle
      else low = middle + 1
    }
    return Math.max(0, low - 1)
  }
}

function indexIn(chunk: readonly ListItem[], name: string): number {
  let [low, high] = [0, chunk.length]
  while (low < high) {
    const middle = (low + high) >>> 1
    if (chunk[middle]!.name < name) low = middle + 1
    else high = middle
  }
  return low
}
