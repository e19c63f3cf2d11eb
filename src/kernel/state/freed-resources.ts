/** The resources that the present command has freed, and whose queues have not been served yet. */

/** Marked while it is in the queue. */
interface Freeable {
  freed: boolean
}

/** A queue without duplicates. A Set would do, but it would be most of the garbage of a release: a Set that empties and fills reallocates. */
export class FreedResources<Resource extends Freeable> {
  readonly #list: (Resource | undefined)[] = []
  /** The number of resources in the queue. */
  size = 0
  #next = 0
  #end = 0

  add(resource: Resource): void {
    if (resource.freed) return
    resource.freed = true
    this.size++
    this.#list[this.#end++] = resource
  }

  /** Takes the next resource, which may be added again; undefined when there is none. */
  take(): Resource | undefined {
    if (this.#next === this.#end) {
      this.#next = this.#end = 0
      return undefined
    }
    const resource = this.#list[this.#next]!
    this.#list[this.#next++] = undefined
    resource.freed = false
    this.size--
    return resource
  }

  *[Symbol.iterator](): Generator<Resource, void, void> {
    for (let i = this.#next; i < this.#end; i++) yield this.#list[i]!
  }
}
