/** A forecast is made of members, running leases, and requests that wait. */
import type { PoolRules } from '../lessor.ts'
import type { DurationModel } from './duration-model.ts'

/** Members are numbered. Each has this many units. */
export interface ForecastInput {
  readonly units: readonly number[]
  readonly running: readonly ForecastUse[]
  /** The waiters in the order of service, by position: a long queue is not looked at as a whole. */
  readonly waiter: (position: number) => ForecastRequest
  /** Which waiters may start before one that does not fit. */
  readonly discipline: PoolRules['queue']
}

/** A lease that holds members. */
export interface ForecastUse {
  readonly takes: readonly Taken[]
  /** It has been held for this long, in ms. */
  readonly age: number
  readonly duration: DurationModel
  /** It ends within this many ms in any case. */
  readonly atMost?: number
  /** Its request said this about its duration, in ms; 0 or left out: nothing. In a `backfill` queue, others overtake by that. */
  readonly expect?: number
  /** It overtook a waiter, and ends when that one would fit without it. */
  readonly yields?: boolean
}

export interface Taken {
  readonly member: number
  readonly units: number
}

export interface ForecastRequest {
  /** The members that match. Equal requests should share one array: it is indexed once. */
  readonly matching: readonly number[]
  /** The number of members; ignored with `total`. */
  readonly count: number
  /** Units of each member; 0: all units of a member that no other lease uses. */
  readonly each: number
  /** Units in all; 0: `count` members are wanted. */
  readonly total: number
  /** The group of each member, if all must be of one group. */
  readonly groups?: readonly number[]
  readonly duration: DurationModel
  readonly atMost?: number
  readonly expect?: number
  /** In a `backfill` queue it may overtake however long it stays. */
  readonly preemptible?: boolean
}
