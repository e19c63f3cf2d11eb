/** The resource at the bottom of the picture: it receives the writes of all processes, and checks the tokens of leases if fencing is on. */
import type { Side } from './history.ts'

export type WriteResult = 'accepted' | 'refused' | 'overwrote'

export class ProtectedResource {
  isFenced: boolean
  /** The newest turn that has written, by side and name. The turn of a lease is its token. */
  readonly #newest = new Map<string, number>()

  constructor(isFenced: boolean) {
    this.isFenced = isFenced
  }

  newest(side: Side, name: string): number {
    return this.#newest.get(`${side} ${name}`) ?? 0
  }

  /** A write of an earlier turn after one of a later turn undoes its work, unless the token is checked. */
  write(side: Side, name: string, turn: number): WriteResult {
    if (turn >= this.newest(side, name)) {
      this.#newest.set(`${side} ${name}`, turn)
      return 'accepted'
    }
    return side === 'lease' && this.isFenced ? 'refused' : 'overwrote'
  }
}
