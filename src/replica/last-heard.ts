/**
 * When the holders of leases that a replica found in its log were last heard of, by the clock of the engine or by wall clocks. These may be wrong, so they
 * only tell whether it is worth waiting for the end of a lease (confirmation.ts).
 */
import type { LeaseState } from '../kernel/state/lease-state.ts'

/** The wall clocks of two machines may differ by this many ms without either of them having been set back. */
const CLOCKS_DIFFER = 1_000

export class LastHeard {
  /** When the record that is being applied was written, and the snapshot that the state was loaded from. Undefined: not even that is known. */
  #writtenAt: number | undefined
  #loadedAt: number | undefined
  /** The first lease of each record that acquired some, with when it was written: ids rise along the log, and a million entries of a map take a second. */
  #firsts: number[] = []
  #writtenAts: (number | undefined)[] = []
  #greatest = 0
  /** Leases that were heard of again. */
  #heardAt = new WeakMap<LeaseState, number | undefined>()

  /** A state was loaded. Its holders count as heard of when it was saved. `nextLease`: above the ids of its leases. */
  load(now: number, age: number, nextLease: number): void {
    this.#loadedAt = writtenAt(now, age)
    this.#firsts = []
    this.#writtenAts = []
    this.#greatest = nextLease - 1
    this.#heardAt = new WeakMap()
  }

  entering(now: number, age: number): void {
    this.#writtenAt = writtenAt(now, age)
  }

  /** The record that is being applied acquires the lease. */
  acquired(lease: LeaseState): void {
    if (lease.id <= this.#greatest) return this.renewed(lease) // it has come from another log
    this.#greatest = lease.id
    if (this.#firsts.length > 0 && this.#writtenAts.at(-1) === this.#writtenAt) return
    this.#firsts.push(lease.id)
    this.#writtenAts.push(this.#writtenAt)
  }

  /** The record that is being applied renews the lease. */
  renewed(lease: LeaseState): void {
    this.#heardAt.set(lease, this.#writtenAt)
  }

  /** In ms; infinity if it is not known. */
  silence(lease: LeaseState, now: number): number {
    const heard = this.#heardAt.has(lease) ? this.#heardAt.get(lease) : this.#acquiredAt(lease.id)
    return heard === undefined ? Number.POSITIVE_INFINITY : now - Math.min(heard, lease.zero)
  }

  #acquiredAt(lease: number): number | undefined {
    let low = 0
    let high = this.#firsts.length
    while (low < high) {
      const middle = (low + high) >>> 1
      if (this.#firsts[middle]! > lease) high = middle
      else low = middle + 1
    }
    return low === 0 ? this.#loadedAt : this.#writtenAts[low - 1]
  }
}

/** An age below 0 means that a clock was set back, so nothing is known. */
function writtenAt(now: number, age: number): number | undefined {
  return age < -CLOCKS_DIFFER ? undefined : now - Math.max(0, age)
}
