/** The conductor's knowledge of its clients, their connections and their leases is kept here. */
import type { ByteLinkEnd } from '../src/wire/resp/link.ts'
import type { DriverEvent } from './driver.ts'
import type { ClientOptions } from './scenario.ts'

export interface Connection {
  readonly client: Client
  readonly number: number
  readonly address: number
  far: ByteLinkEnd | undefined
  /** Where copies of requests arrive, as from a proxy that sends again what it may have sent. Its answers reach no client. */
  twin: ByteLinkEnd | undefined
  open: boolean
  /** It was cut: what is under way does not arrive. */
  broken: boolean
  /** Nothing arrives on it any more, and neither end is told. */
  silent: boolean
  readonly there: Uint8Array[]
  readonly back: Uint8Array[]
}

export interface Client {
  readonly name: string
  readonly options: ClientOptions
  readonly connections: Map<number, Connection>
  /** Differences between its clocks and true time, in ms. */
  slept: number
  wallStep: number
  next: number | undefined
  /** Stands still until then: no timer fires and nothing is read. */
  stalledUntil: number
  refused: boolean
  /** Addresses that never answer. */
  readonly down: Set<number>
  holdRequests: boolean
  holdAnswers: boolean
  drip: boolean
  /** Requests arrive twice. */
  duplicate: boolean
}

export interface Delivery {
  readonly at: number
  readonly order: number
  readonly then: () => void | Promise<void>
}

export interface LeaseRecord {
  readonly client: string
  /** 1, if the request states none. */
  readonly permits: number
  readonly covers: boolean
  readonly resources: readonly string[]
  readonly lease: number
  lost: DriverEvent | undefined
  released: boolean
}
