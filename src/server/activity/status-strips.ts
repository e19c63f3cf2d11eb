/** A strip for each registered instance shows how its status changed: bounded in length and number. */

/** Changes that are kept of each instance. */
const MAX_CHANGES = 100
/** Instances that are kept, and changes of all of them together. The instance that changed longest ago is forgotten first. */
const MAX_INSTANCES = 2_000
const MAX_TOGETHER = 50_000

export interface StatusChange {
  /** Wall time in ms. */
  readonly at: number
  readonly status: string
}

export class StatusStrips {
  /** By `SERVICE/INSTANCE`. The one that changed last is the last. */
  readonly #strips = new Map<string, StatusChange[]>()
  #changes = 0

  note(service: string, instance: string, status: string, at: number): void {
    const name = `${service}/${instance}`
    const strip = this.#strips.get(name) ?? []
    if (strip.at(-1)?.status === status) return
    strip.push({ at, status })
    this.#changes++
    if (strip.length > MAX_CHANGES) {
      strip.shift()
      this.#changes--
    }
    this.#strips.delete(name)
    this.#strips.set(name, strip)
    while (this.#strips.size > MAX_INSTANCES || this.#changes > MAX_TOGETHER) this.#forgetOldest()
  }

  #forgetOldest(): void {
    const oldest = this.#strips.entries().next().value!
    this.#strips.delete(oldest[0])
    this.#changes -= oldest[1].length
  }

  /** The strips of one service, by instance. */
  of(service: string): { readonly instance: string; readonly changes: readonly StatusChange[] }[] {
    const found = []
    for (const [name, changes] of this.#strips)
      if (name.startsWith(`${service}/`)) found.push({ instance: name.slice(service.length + 1), changes })
    return found.sort((a, b) => (a.instance < b.instance ? -1 : 1))
  }

  *[Symbol.iterator](): Generator<readonly [name: string, changes: readonly StatusChange[]], void, void> {
    yield* this.#strips
  }
}
