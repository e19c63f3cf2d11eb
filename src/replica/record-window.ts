/** The nonces and decision hashes of the last records that were applied here, to compare them with what others saw. */
import { WINDOW } from '../kernel/codec/batch.ts'
import type { State } from '../kernel/state.ts'

export class RecordWindow {
  readonly #hashes = new Uint32Array(WINDOW * 2)
  readonly #nonces = new BigUint64Array(WINDOW)
  /** The first record whose decision hash may be compared. */
  #hashesFrom = 0
  #noncesFrom = 1
  #last = 0

  /** The log begins anew here: what was kept of earlier records does not count. */
  restart(index: number): void {
    this.#hashesFrom = index
    this.#noncesFrom = index
  }

  /** Other replicas may have had other decision hashes before this record. */
  forgetHashesBefore(index: number): void {
    this.#hashesFrom = index
  }

  /** The last record that was applied, and the state after it. */
  keep({ index, decisionHashA, decisionHashB }: State, nonce: bigint): void {
    const slot = index % WINDOW
    this.#hashes[slot * 2] = decisionHashA
    this.#hashes[slot * 2 + 1] = decisionHashB
    this.#nonces[slot] = nonce
    this.#last = index
  }

  /** The nonce of a record, if it is among those kept. */
  nonceOf(index: number): bigint | undefined {
    if (index > this.#last || index < Math.max(1, this.#noncesFrom) || this.#last - index >= WINDOW) return undefined
    return this.#nonces[index % WINDOW]
  }

  /** Returns whether a replica that had applied `index` records with this hash decided otherwise than this one. */
  differs(index: number, [a, b]: readonly [number, number]): boolean {
    if (index < this.#hashesFrom || index > this.#last || this.#last - index >= WINDOW) return false
    const slot = (index % WINDOW) * 2
    return this.#hashes[slot] !== a || this.#hashes[slot + 1] !== b
  }
}
