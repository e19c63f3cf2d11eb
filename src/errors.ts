import type { RefusalCode } from './kernel/outcome.ts'

/**
 * `UNAVAILABLE` promises that nothing was done; `UNKNOWN` promises nothing at all: it may or may not have been done, and only the same
 * operation id makes it safe to ask again. `LOST` is the reason of a lease's signal. A call rejects with it only where no signal could tell: see
 * `request`, and `acquire` when the answer came after the ttl.
 */
export type ErrorCode = RefusalCode | 'TIMEOUT' | 'LOST' | 'UNKNOWN' | 'UNAUTHENTICATED' | 'UNSUPPORTED' | 'DIVERGED'

export type Facts = Readonly<Record<string, string | number | boolean | readonly string[] | readonly number[]>>

/** Code reads `code` and `facts`; people read the message, so it names the resource, what was expected, what was found and what to do next. */
export class LeaseError extends Error {
  override readonly name = 'LeaseError'
  readonly code: ErrorCode
  readonly facts: Facts
  /** With `LOST` from `request`: what the callback returned. */
  declare readonly result?: unknown

  constructor(
    code: ErrorCode,
    message: string,
    { cause, facts = {}, result }: { readonly cause?: unknown; readonly facts?: Facts; readonly result?: unknown } = {},
  ) {
    super(message, cause === undefined ? undefined : { cause })
    this.code = code
    this.facts = facts
    if (result !== undefined) this.result = result
  }
}
