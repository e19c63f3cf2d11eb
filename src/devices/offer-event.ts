/** These things happen to an offer of devices, and its parts know this of the host and the pool. */
import type { LeaseClient } from '../holder/lease-client.ts'
import type { HolderProcess } from './attribution.ts'
import type { IdleStage } from './idle.ts'

export interface DeviceOfferEvent {
  /**
   * - `offered`, `withdrawn`: a device joined or left the pool.
   * - `refused`: another holder offers the device already.
   * - `problem`, `recovered`: the discovery failed, or succeeds again.
   * - `unleased`: a process uses a device without a lease.
   * - `idle`: the holder of devices is warned, asked to release, or ended; see `stage`.
   * - `lost`: the lessor could not be reached for so long that the offer lapsed. It is made again.
   */
  readonly type: 'offered' | 'withdrawn' | 'refused' | 'problem' | 'recovered' | 'unleased' | 'idle' | 'lost'
  /** For people. */
  readonly message: string
  readonly member?: string
  readonly lease?: number
  readonly stage?: IdleStage
}

/** The parts of an offer share this. */
export interface OfferContext {
  readonly leases: LeaseClient
  readonly pool: string
  readonly host: string
  /** Fires when the offer ends. */
  readonly signal: AbortSignal
  emit(event: DeviceOfferEvent): void
}

/** A lease that holds devices of the pool. */
export interface PoolHolder extends HolderProcess {
  /** That it counts for; without one, the user. */
  readonly account: string
  readonly resources: readonly string[]
  /** Of each member. */
  readonly units: number
  /** It also holds names outside the pool, so it is not reclaimed for idle devices. */
  readonly others: boolean
}
