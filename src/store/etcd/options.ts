/** The options of an `EtcdStore`. */
import type { Clock } from '../../clock.ts'

export interface EtcdStoreOptions {
  /** `host:port` of some or all members. */
  readonly endpoints: readonly string[]
  /** Separates several logs in one cluster. @default 'leasehold' */
  readonly name?: string
  readonly user?: { readonly name: string; readonly password: string }
  /** Files with the authority, the certificate and its key, in PEM; an empty object is TLS with the system's authorities. */
  readonly tls?: { readonly ca?: string; readonly cert?: string; readonly key?: string }
  /** A call may take this long in all, in ms. @default 5000 */
  readonly timeout?: number
  /** A waiting reader polls this often, in ms, beside the watch. @default 1000 */
  readonly poll?: number
  readonly clock?: Clock
}
