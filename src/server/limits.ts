/**
 * The limits of a server. They keep one client from using up what others need.
 *
 * Each limit is a configuration key (`"serve": {"limits": {"body": 131072}}`), has a default, and is enforced with an error that names it. Limits are part of the
 * documented configuration: the names stay as they are. Fixed bounds that no operator needs to change are constants beside the code that enforces them.
 */
import { getHeapStatistics } from 'node:v8'
import { LeaseError } from '../errors.ts'

export interface Limits {
  /** Maximum bytes in the body of an HTTP request. @default 65536 */
  readonly body: number
  /** Maximum bytes of one RESP command. @default 4194304 */
  readonly command: number
  /** Maximum bytes of incomplete RESP commands over all connections. The same limit applies, separately, to incomplete HTTP bodies. @default 268435456 */
  readonly unfinished: number
  /** Maximum leases in one renewal. @default 10000 */
  readonly renewals: number
  /** Maximum bytes of a registration's metadata, as JSON. @default 8192 */
  readonly metadata: number
  /** Maximum nesting depth of a JSON body. @default 16 */
  readonly depth: number
  /** Maximum open connections, over all wires. @default 12000 */
  readonly connections: number
  /** Connections that only clients with a key can use, once keys exist. @default 3000 */
  readonly reserved: number
  /** Maximum connections from one address that have not sent a key, where one is required. @default 1000 */
  readonly unauthenticatedPerAddress: number
  /** Close a connection that has not sent a required key and has been idle for this long, in ms. @default 10000 */
  readonly unauthenticatedTimeout: number
  /** Maximum bytes of unread responses over all connections. Beyond it, connections that have not read for longest are closed. @default 268435456, at most an eighth of the heap */
  readonly unread: number
  /** Maximum open watches of one key, or of one connection without a key. @default 100 */
  readonly watches: number
  /** Maximum bytes buffered for a watcher that does not read. It then gets a `resync`, or is disconnected. @default 1048576 */
  readonly watchBuffer: number
  /** Disconnect a client that leaves responses unread for this long, in ms. @default 30000 */
  readonly drainTime: number
  /** Maximum requests per second with one key; 0 for no limit. Renewals and releases are not counted: a refused renewal would end a lease. @default 50000 */
  readonly rate: number
  /** Timeout from the first byte of a request to the end of its header, in ms. @default 10000 */
  readonly headerTime: number
  /** Timeout for the body of a request, in ms. Also applies to an incomplete RESP command. @default 15000 */
  readonly bodyTime: number
}

export const DEFAULT_LIMITS: Limits = {
  body: 64 << 10,
  command: 4 << 20,
  unfinished: 256 << 20,
  renewals: 10_000,
  metadata: 8 << 10,
  depth: 16,
  connections: 12_000,
  reserved: 3_000,
  unauthenticatedPerAddress: 1_000,
  unauthenticatedTimeout: 10_000,
  unread: Math.min(256 << 20, Math.floor(getHeapStatistics().heap_size_limit / 8)),
  watches: 100,
  watchBuffer: 1 << 20,
  drainTime: 30_000,
  rate: 50_000,
  headerTime: 10_000,
  bodyTime: 15_000,
}

/** The limits of a server with this configuration. Throws `INVALID` for an unknown name or a bad value. */
export function limitsFrom(configured: Readonly<Record<string, unknown>> = {}): Limits {
  for (const [name, value] of Object.entries(configured)) {
    if (!Object.hasOwn(DEFAULT_LIMITS, name))
      throw new LeaseError('INVALID', `there is no limit ${name}. The limits are ${Object.keys(DEFAULT_LIMITS).join(', ')}`)
    if (!Number.isSafeInteger(value) || (value as number) < 0 || (value as number) > 2 ** 31 - 1)
      throw new LeaseError('INVALID', `the limit ${name} must be a whole number from 0 to ${2 ** 31 - 1}, not ${String(value)}`)
  }
  return { ...DEFAULT_LIMITS, ...configured }
}
