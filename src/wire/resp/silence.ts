/**
 * Decides when a connection has been silent for too long. The limit follows the shortest ttl among recent answers, so that a client moves on
 * while its leases can still be renewed.
 *
 * With several addresses the client leaves a silent server for the next one. With one address it can only wait; but the connection may be
 * dead while the server is not, so the client tries a second connection beside the silent one.
 */
import type { Clock } from '../../clock.ts'
import type { RespConnection } from './connection.ts'
import type { PendingRequest } from './request.ts'
import type { ShortestTtl } from './shortest-ttl.ts'

/** Upper limits: with one address, with several, and for a greeting when there are several. */
const LONGEST_ALONE = 10_000
const LONGEST = 5_000
const LONGEST_GREETING = 1_000
const SHORTEST_ALONE = 50
const SHORTEST = 100
/** A lease is renewed at half its ttl. A third of the time left then is a sixth of the ttl: half for detection, half for reconnecting. */
const SHARE = 12

export class SilenceDetector {
  readonly #clock: Clock
  readonly #ttls: ShortestTtl
  /** There is only one address. */
  readonly #alone: boolean
  /** Second connections tried since the connection in use was last heard. */
  #seconds = 0

  constructor(clock: Clock, ttls: ShortestTtl, addresses: number) {
    this.#clock = clock
    this.#ttls = ttls
    this.#alone = addresses === 1
  }

  /** The time that the shortest lease can spare for detection, or for reconnecting. */
  share(least = this.#alone ? SHORTEST_ALONE : SHORTEST): number {
    return Math.max(least, this.#ttls.shortest(this.#clock.now()) / SHARE)
  }

  /** Give a connection up after this long without a byte. */
  limit({ open }: RespConnection): number {
    return this.#alone ? LONGEST_ALONE : Math.min(open ? LONGEST : LONGEST_GREETING, this.share())
  }

  /** Returns how often to check. */
  get interval(): number {
    return Math.min(this.#alone ? LONGEST_ALONE : LONGEST, this.share()) / 2
  }

  /** Returns whether to give the connection up: it is silent, or renewals stay unanswered while there are other addresses. */
  isOver(connection: RespConnection, requests: Iterable<PendingRequest>): boolean {
    const now = this.#clock.now()
    const limit = this.limit(connection)
    if (!connection.open) return now - connection.heardAt >= limit
    if (!this.#alone)
      for (const request of requests) if (request.isRenewal && request.on === connection && now - request.sentAt > 2 * limit) return true
    if (connection.heartbeatAt !== undefined) return connection.heardAt < connection.heartbeatAt && now - connection.heartbeatAt >= limit
    if (now - connection.heardAt >= limit / 2) connection.sendHeartbeat()
    return false
  }

  /**
   * Returns whether to try a second connection to the only address: an answer is overdue, and so is that to a heartbeat. A server that answers
   * heartbeats is only slow, and another connection would add to its load.
   */
  wantsSecond(connection: RespConnection, requests: Iterable<PendingRequest>): boolean {
    if (!this.#alone || !connection.open) return false
    const now = this.#clock.now()
    const share = Math.min(LONGEST_ALONE, this.share())
    const { heartbeatAt, heardAt } = connection
    if (heartbeatAt !== undefined) return now - heartbeatAt >= (heardAt < heartbeatAt ? share : 2 * share)
    this.#seconds = 0
    for (const { on, createdAt, sentAt } of requests) {
      if (now - createdAt < share) break // the requests that follow are younger
      if (on !== undefined && on !== connection) continue // it waits on a replaced connection
      if (now - (on === undefined ? createdAt : sentAt) < share) continue
      connection.sendHeartbeat()
      break
    }
    return false
  }

  /** Returns how long to wait for the greeting on a second connection before trying another. It grows, since the server itself may be silent. */
  nextSecond(): number {
    return Math.min(LONGEST_ALONE, 2 * this.share() * 2 ** this.#seconds++)
  }
}
