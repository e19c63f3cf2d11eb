/**
 * A table of leases by number, in ascending order. It keeps 32 leases with consecutive numbers together in a page. A holder's leases usually have
 * consecutive numbers, so renewing them reads few places in memory. A page also takes less memory than entries of a Map.
 */

/** Leases in a page. Small, because the last lease of a page keeps the whole page in memory. */
const PAGE = 32

interface Page<Lease> {
  readonly leases: (Lease | undefined)[]
  count: number
}

export class LeaseTable<Lease extends object> {
  readonly #pages = new Map<number, Page<Lease>>()
  /** Stays when it is empty: the next leases belong there. */
  #newest = Number.NEGATIVE_INFINITY
  size = 0

  get(number: number): Lease | undefined {
    const page = Math.floor(number / PAGE)
    return this.#pages.get(page)?.leases[number - page * PAGE]
  }

  has(number: number): boolean {
    return this.get(number) !== undefined
  }

  set(number: number, lease: Lease): void {
    const at = Math.floor(number / PAGE)
    const page = this.#pages.get(at) ?? this.#addPage(at)
    const slot = number - at * PAGE
    if (page.leases[slot] === undefined) {
      page.count++
      this.size++
    }
    page.leases[slot] = lease
  }

  #addPage(at: number): Page<Lease> {
    const page = { leases: new Array<undefined>(PAGE).fill(undefined), count: 0 }
    const last = this.#newest
    if (at > last) {
      this.#newest = at
      if (this.#pages.get(last)?.count === 0) this.#pages.delete(last)
    }
    this.#pages.set(at, page)
    return page
  }

  delete(number: number): void {
    const at = Math.floor(number / PAGE)
    const page = this.#pages.get(at)
    const slot = number - at * PAGE
    if (page?.leases[slot] === undefined) return
    page.leases[slot] = undefined
    page.count--
    this.size--
    if (page.count === 0 && at !== this.#newest) this.#pages.delete(at)
  }

  /** Leases that are added or removed meanwhile are seen or not seen, as with a Map. */
  *values(): Generator<Lease, undefined> {
    for (const { leases } of this.#pages.values()) for (const lease of leases) if (lease !== undefined) yield lease
  }
}
