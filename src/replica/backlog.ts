/** Proposals that wait until a record has room for them. Each key has a queue of its own, and the queues are served in turn: a flood of one key delays no other. */
import { Fifo } from '../fifo.ts'

interface Keyed {
  readonly key: number
}

export class Backlog<Item extends Keyed> {
  readonly #byKey = new Map<number, Fifo<Item>>()
  /** The keys that have items, the next one first. */
  #turns = new Fifo<number>()

  /** The number of items. */
  size = 0

  add(item: Item): void {
    this.size++
    let queue = this.#byKey.get(item.key)
    if (queue === undefined) {
      queue = new Fifo()
      this.#byKey.set(item.key, queue)
      this.#turns.push(item.key)
    }
    queue.push(item)
  }

  /** The next item. There must be one. */
  take(): Item {
    const key = this.#turns.shift()!
    const queue = this.#byKey.get(key)!
    const item = queue.shift()!
    this.size--
    if (queue.size > 0) this.#turns.push(key)
    else this.#byKey.delete(key)
    return item
  }

  /** The items of each key, in the order in which they will be taken. */
  queues(): (readonly Item[])[] {
    return this.#turns.items().map(key => this.#byKey.get(key)!.items())
  }

  takeAll(): readonly Item[] {
    const all = this.queues().flat()
    this.#byKey.clear()
    this.#turns = new Fifo()
    this.size = 0
    return all
  }
}
