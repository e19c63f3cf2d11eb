/** What a command has freed, and nobody has looked at yet. */
import type { Resource } from '../state.ts'

/** Each once, in the order they came. A set would do, and be most of the garbage of a release: one that empties and fills is made anew. */
export class FreedResources {
  readonly #list: (Resource | undefined)[] = []
  #next = 0
  #end = 0

  add(resource: Resource): void {
    if (resource.freed) return
    resource.freed = true
    this.#list[this.#end++] = resource
  }

  /** The next one, which may be added again; undefined when there is none. */
  take(): Resource | undefined {
    if (this.#next === this.#end) {
      this.#next = this.#end = 0
      return undefined
    }
    const resource = this.#list[this.#next]!
    this.#list[this.#next++] = undefined
    resource.freed = false
    return resource
  }

  *[Symbol.iterator](): Generator<Resource, void, void> {
    for (let i = this.#next; i < this.#end; i++) yield this.#list[i]!
  }
}
