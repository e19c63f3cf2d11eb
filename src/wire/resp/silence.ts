/**
 * How long a client bears a silent connection, by the shortest ttl that answers have told of.
 *
 * With several addresses a silent server is left for the next one. With one address it can only be waited for; but the connection may be dead
 * while the server is not, so a second connection is tried while there is time to renew.
 */
import type { Clock } from '../../clock.ts'
import type { RespConnection } from './connection.ts'
import type { PendingRequest } from './request.ts'
import type { ShortestTtl } from './shortest-ttl.ts'

const ALONE = 10_000
const LONGEST = 5_000
const SHORTEST = 100
const SHORTEST_ALONE = 50
/** Where there are other addresses, a server that does not greet is not waited for any longer. */
const GREETING = 1_000
/** A lease is renewed at half its ttl, and a third of what is left then is a sixth of it: half for noticing, half for going elsewhere. */
const SHARE = 12

export class Silence {
  readonly #clock: Clock
  readonly #terms: ShortestTtl
  readonly #alone: boolean
  /** Second connections that were tried since the connection in use was last heard. */
  #seconds = 0

  constructor(clock: Clock, terms: ShortestTtl, addresses: number) {
    this.#clock = clock
    this.#terms = terms
    this.#alone = addresses === 1
  }

  /** What the shortest lease can spare for noticing, or for going elsewhere. */
  share(least = this.#alone ? SHORTEST_ALONE : SHORTEST): number {
    return Math.max(least, this.#terms.shortest(this.#clock.now()) / SHARE)
  }

  /** After this long without a byte the connection is given up. */
  limit({ open }: RespConnection): number {
    return this.#alone ? ALONE : Math.min(open ? LONGEST : GREETING, this.share())
  }

  /** How often to look. */
  get every(): number {
    return Math.min(this.#alone ? ALONE : LONGEST, this.share()) / 2
  }

  /** Whether the connection is to be given up: nothing was heard, or renewals are not answered while there are other addresses. */
  isOver(connection: RespConnection, asks: Iterable<PendingRequest>): boolean {
    const now = this.#clock.now()
    const limit = this.limit(connection)
    if (!connection.open) return now - connection.heard >= limit
    if (!this.#alone) for (const ask of asks) if (ask.isRenewal && ask.on === connection && now - ask.sentAt > 2 * limit) return true
    if (connection.beat !== undefined) return connection.heard < connection.beat && now - connection.beat >= limit
    if (now - connection.heard >= limit / 2) connection.sendBeat()
    return false
  }

  /**
   * Whether to try a second connection to the only address: an answer is overdue, and so is that to a beat. A server that answers beats is only
   * slow, and another connection would add to its load.
   */
  wantsSecond(connection: RespConnection, asks: Iterable<PendingRequest>): boolean {
    if (!this.#alone || !connection.open) return false
    const now = this.#clock.now()
    const share = Math.min(ALONE, this.share())
    const { beat, heard } = connection
    if (beat !== undefined) return now - beat >= (heard < beat ? share : 2 * share)
    this.#seconds = 0
    for (const { on, since, sentAt } of asks) {
      if (now - since < share) break // those that follow are younger
      if (on !== undefined && on !== connection) continue // it waits on a connection that was replaced
      if (now - (on === undefined ? since : sentAt) < share) continue
      connection.sendBeat()
      break
    }
    return false
  }

  /** How long a second connection may take to be greeted before another is tried: longer each time, since the server may be what is silent. */
  nextSecond(): number {
    return Math.min(ALONE, 2 * this.share() * 2 ** this.#seconds++)
  }
}
