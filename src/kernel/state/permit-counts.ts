/** The numbers of permits that the leases on one resource state. Most resources have none of this. */
export class PermitCounts {
  /** The number of leases that state each of these numbers. */
  readonly #leases = new Map<number, number>()
  /** 0: not known since the last lease with the smallest number has ended. It is searched when it is next needed, once for all that end together. */
  #smallest = 0
  /** The leases in all. */
  total = 0

  add(permits: number): void {
    this.#leases.set(permits, (this.#leases.get(permits) ?? 0) + 1)
    if (this.total === 0 || (this.#smallest !== 0 && permits < this.#smallest)) this.#smallest = permits
    this.total++
  }

  delete(permits: number): void {
    const others = this.#leases.get(permits)! - 1
    this.total--
    if (others > 0) {
      this.#leases.set(permits, others)
      return
    }
    this.#leases.delete(permits)
    if (permits === this.#smallest) this.#smallest = 0
  }

  /** Only of a resource with such leases. */
  get smallest(): number {
    if (this.#smallest === 0) {
      this.#smallest = Number.POSITIVE_INFINITY
      for (const permits of this.#leases.keys()) if (permits < this.#smallest) this.#smallest = permits
    }
    return this.#smallest
  }
}
