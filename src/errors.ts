/** The one error class of Leasehold, its codes, and the facts that come with each code. */

import type { Facts } from './kernel/reason.ts'

export type { Facts } from './kernel/reason.ts'

/**
 * Every error code, with the facts it may carry. A fact that does not apply is left out, so check before use. Facts that are not listed here
 * may come along as well.
 */
export interface FactsByCode {
  /**
   * The resource, entry or lease is held by another holder, and the call does not wait. Nothing was changed.
   * Next: wait (`wait`, or `acquire` without `ifAvailable`), or do something else.
   */
  readonly HELD: {
    readonly resource?: string
    readonly holder?: string
    readonly lease?: number
    readonly token?: number
    /** Wall-clock time of the grant, for people. */
    readonly since?: number
    /** About how many ms the holder's lease has left unless renewed. */
    readonly remaining?: number
    /** Length of the queue. */
    readonly queue?: number
    readonly key?: string
  }
  /** `wait` ran out before the lease was granted. The place in the queue is given up. Next: try again later, or wait longer. */
  readonly TIMEOUT: {
    readonly resource?: string
    readonly resources?: readonly string[]
    /** Milliseconds. */
    readonly waited?: number
    readonly holder?: string
    readonly holders?: readonly string[]
  }
  /**
   * The lease was lost: this is the reason of `lease.signal`. A call rejects with it only where no signal could report the loss: see
   * `request`, and `acquire` when the answer came after the ttl. Next: stop the work, then acquire again.
   */
  readonly LOST: {
    readonly resource?: string
    readonly lease?: number
    readonly holder?: string
    /** Such as `unreachable`, `stall`, `suspend`, `revoked`, `parent`, `max-hold`, `not-renewed`, `inactive`, `no-progress`. */
    readonly cause?: string
    /** How long that lasted. */
    readonly ms?: number
    readonly by?: string
  }
  /** The lease has ended, or never existed. Next: acquire a new one. */
  readonly GONE: { readonly lease?: number; readonly resource?: string; readonly holder?: string; readonly cause?: string }
  /** A newer token, generation or incarnation was seen: the caller has been replaced. Next: stop; do not retry. */
  readonly STALE: {
    readonly resource?: string
    readonly token?: number
    readonly highest?: number
    readonly key?: string
    readonly generation?: number
  }
  /** Waiting would never end: holders wait for each other. `cycle` names them. Next: release what is held, then acquire in one order. */
  readonly DEADLOCK: { readonly cycle?: readonly string[] }
  /** An argument or option is wrong. Nothing was sent, or it was refused. Next: correct the call; the message says how. */
  readonly INVALID: { readonly option?: string; readonly url?: string; readonly path?: string; readonly moved?: string }
  /** The key does not allow this. Next: ask an administrator for the scope. */
  readonly FORBIDDEN: { readonly verb?: string; readonly name?: string }
  /** A limit is reached. Next: use less, raise the limit, or retry after `retryAfter` ms. */
  readonly LIMIT: { readonly limit?: number; readonly retryAfter?: number; readonly resource?: string; readonly quota?: number }
  /** What was named does not exist. Next: check the name. */
  readonly NOT_FOUND: { readonly resource?: string; readonly key?: string; readonly member?: string }
  /** Certainly not done: the store or server could not be reached, or is closed. Next: retry. */
  readonly UNAVAILABLE: {
    readonly reason?: string
    readonly path?: string
    readonly where?: string
    readonly moved?: string
    readonly certificate?: string
  }
  /** It may or may not have been done. Next: retry only under the same operation id, or read what happened. */
  readonly UNKNOWN: { readonly lease?: number; readonly ttl?: number; readonly reason?: string }
  /** The server wants a key, or does not know this one. Next: pass `apiKey`, or ask an administrator for a key. */
  readonly UNAUTHENTICATED: { readonly lease?: number; readonly cause?: string }
  /** The store, server or platform cannot do this. Next: use another store, or leave out the requirement. */
  readonly UNSUPPORTED: { readonly reason?: string; readonly path?: string }
  /** The log lost records that this process had seen. Nothing can be decided on it any more. Next: connect again. */
  readonly DIVERGED: { readonly lease?: number; readonly token?: number; readonly revision?: number }
}

/** See `FactsByCode` for what each code means and what to do next. */
export type ErrorCode = keyof FactsByCode

/** Any `LeaseError`, as a union: comparing `code` narrows `facts`. */
export type AnyLeaseError = { readonly [C in ErrorCode]: LeaseError<C> }[ErrorCode]

export interface LeaseErrorOptions {
  readonly cause?: unknown
  readonly facts?: Facts
  /** With `LOST` from `request`: what the callback returned. */
  readonly result?: unknown
}

/**
 * What every call of Leasehold rejects with, except that an aborted call rejects with the reason of its signal. Programs read `code` and
 * `facts`; people read `message`, which names the resource, what happened and what to do next.
 *
 * @example
 * try {
 *   await leases.acquire('jobs/nightly', { ifAvailable: true })
 * } catch (error) {
 *   if (!LeaseError.is(error, 'HELD')) throw error
 *   console.log(`held by ${error.facts.holder}`)
 * }
 */
export class LeaseError<C extends ErrorCode = ErrorCode> extends Error {
  override readonly name = 'LeaseError'
  readonly code: C
  readonly facts: Facts & FactsByCode[C]
  /** With `LOST` from `request`: what the callback returned. */
  declare readonly result?: unknown

  constructor(code: C, message: string, { cause, facts = {}, result }: LeaseErrorOptions = {}) {
    super(message, cause === undefined ? undefined : { cause })
    this.code = code
    this.facts = facts as Facts & FactsByCode[C]
    if (result !== undefined) this.result = result
  }

  /** Whether `error` is a LeaseError with one of these codes; with none named, any LeaseError. Narrows `code` and `facts`. */
  static is<C extends ErrorCode = ErrorCode>(error: unknown, ...codes: readonly C[]): error is { [K in C]: LeaseError<K> }[C] {
    return error instanceof LeaseError && (codes.length === 0 || (codes as readonly ErrorCode[]).includes(error.code))
  }

  // Narrows `instanceof` to the union. Without it TypeScript narrows to LeaseError<any>, and a misspelt code compiles.
  static override [Symbol.hasInstance](value: unknown): value is AnyLeaseError {
    // biome-ignore lint/complexity/noThisInStatic: of a subclass, only its own instances
    return Function.prototype[Symbol.hasInstance].call(this, value)
  }
}

/** Whether a retry would be refused again: the error is a decision, not an outage. */
export function isRefusal(error: unknown): boolean {
  return error instanceof LeaseError && error.code !== 'UNAVAILABLE' && error.code !== 'UNKNOWN'
}
