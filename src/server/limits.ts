/** What one caller may ask of a server before others would feel it. Each has a default, a setting of its name, and a coded refusal. */
import { getHeapStatistics } from 'node:v8'
import { LeaseError } from '../errors.ts'

export interface Limits {
  /** Bytes of an HTTP request's body. */
  readonly body: number
  /** Bytes of one RESP command. */
  readonly command: number
  /** Bytes of unfinished commands that all connections together may have sent; as many again of unfinished bodies over HTTP. */
  readonly unfinished: number
  /** Leases in one renewal. */
  readonly renewals: number
  /** Bytes of a registration's metadata. */
  readonly metadata: number
  /** How deep JSON may be nested. */
  readonly depth: number
  readonly connections: number
  /** Of the connections, so many are for callers with a key, once there are keys. */
  readonly reserved: number
  /** Connections of one address that have shown no key where one is needed. */
  readonly strangersPerAddress: number
  /** Ms that such a connection may ask nothing. Then it is closed. */
  readonly strangerTime: number
  /** Bytes of answers that all connections together may leave unread. Then those are closed that have read nothing for the longest time. */
  readonly unread: number
  /** Watches open at once with one key, or on one connection without a key. */
  readonly watches: number
  /** Bytes kept for a watcher that does not read. Then it is told to begin anew, or cut off. */
  readonly watchBuffer: number
  /** Ms that a watcher may leave unread what it was sent. Then it is cut off. */
  readonly drainTime: number
  /** Requests a second with one key; 0: any number. Renewals and releases are never counted: refusing them would end leases. */
  readonly rate: number
  /** Ms from the first byte of a request to the end of its header, and of its body. */
  readonly headerTime: number
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
  strangersPerAddress: 1_000,
  strangerTime: 10_000,
  unread: Math.min(256 << 20, Math.floor(getHeapStatistics().heap_size_limit / 8)),
  watches: 100,
  watchBuffer: 1 << 20,
  drainTime: 30_000,
  rate: 50_000,
  headerTime: 10_000,
  bodyTime: 15_000,
}

/** The limits of a server whose configuration says `given`. */
export function limitsFrom(given: Readonly<Record<string, unknown>> = {}): Limits {
  for (const [name, value] of Object.entries(given)) {
    if (!Object.hasOwn(DEFAULT_LIMITS, name))
      throw new LeaseError('INVALID', `there is no limit ${name}; there are ${Object.keys(DEFAULT_LIMITS).join(', ')}`)
    if (!Number.isSafeInteger(value) || (value as number) < 0 || (value as number) > 2 ** 31 - 1)
      throw new LeaseError('INVALID', `the limit ${name} must be a whole number from 0 to ${2 ** 31 - 1}, not ${String(value)}`)
  }
  return { ...DEFAULT_LIMITS, ...given }
}
