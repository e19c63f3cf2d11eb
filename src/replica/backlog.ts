/** Proposals that wait until a record has room for them. Each key has a queue of its own, and the queues are served in turn: a flood of one key delays no other. */
interface Keyed {
  readonly key: number
}

interface KeyQueue<Item> {
  readonly items: Item[]
  /** Index of the first item that was not taken. */
  head: number
}

export class Backlog<Item extends Keyed> {
  readonly #byKey = new Map<number, KeyQueue<Item>>()

  /** The number of items. */
  size = 0

  add(item: Item): void {
    this.size++
    const queue = this.#byKey.get(item.key)
    if (queue === undefined) this.#byKey.set(item.key, { items: [item], head: 0 })
    else queue.items.push(item)
  }

  /** The next item. There must be one. */
  take(): Item {
    const [key, queue] = this.#byKey.entries().next().value!
    const item = queue.items[queue.head++]!
    this.size--
    this.#byKey.delete(key)
    if (queue.head < queue.items.length) this.#byKey.set(key, queue) // behind the others
    return item
  }

  /** The items of each key, in the order in which they will be taken. */
  queues(): (readonly Item[])[] {
    return [...this.#byKey.values()].map(({ items, head }) => items.slice(head))
  }

  takeAll(): readonly Item[] {
    const all = this.queues().flat()
    this.#byKey.clear()
    this.size = 0
    return all
  }
}
